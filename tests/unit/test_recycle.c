/* When workers are due, over many dice; and a pool under full load on a
 * virtual clock that replaces its workers by these rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pool/recycle.h"

enum { ROLLS = 20000, WORKERS = 128, TURNS = 20000 };

static const int64_t NOW = 123456789;
static const int64_t DAY_MS = 86400000;

static uint32_t roll(uint64_t *dice)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (uint32_t)(*dice >> 32);
}

static struct recycle born(int64_t max_requests, int64_t lifetime_ms, int64_t now_us, uint32_t dice)
{
	struct recycle r;
	struct pool_settings settings = {.pm_max_requests = max_requests, .worker_max_lifetime_ms = lifetime_ms};

	recycle_init(&r, &settings, now_us, dice);
	return r;
}

/* The first request with which it is due. */
static uint64_t due_at(const struct recycle *r, uint64_t max)
{
	uint64_t given = 0;

	while (!recycle_due(r, given, 0, 0)) {
		given++;
		assert_true(given <= max);
	}
	return given;
}

static void test_no_limits(void **state)
{
	struct recycle r = born(0, 0, NOW, 7);
	(void)state;

	assert_null(recycle_due(&r, UINT64_MAX - 1, INT64_MAX, INT64_MAX));
	assert_false(recycle_is_spent(&r, UINT64_MAX - 1));
}

/* Within the last tenth, before the last request, and spent with the last. */
static void test_requests(void **state)
{
	uint64_t dice = 1;
	(void)state;

	for (uint64_t max = 1; max <= 300; max++) {
		uint64_t least = max > 1 ? max - 1 : 1, most = 0;
		for (int i = 0; i < 1000; i++) {
			struct recycle r = born((int64_t)max, 0, NOW, roll(&dice));
			uint64_t due = due_at(&r, max);
			assert_string_equal(recycle_due(&r, due, INT64_MAX, 0), "pm.max_requests");
			assert_false(recycle_is_spent(&r, max - 1));
			assert_true(recycle_is_spent(&r, max));
			assert_true(recycle_is_spent(&r, max + 1));
			least = due < least ? due : least;
			most = due > most ? due : most;
		}
		assert_int_equal(most, max > 1 ? max - 1 : 1);
		assert_int_equal(least, max < 10 ? most : max - max / 10);
	}
}

static void test_one_request(void **state)
{
	struct recycle r = born(1, 0, NOW, 99);
	(void)state;

	assert_null(recycle_due(&r, 0, NOW, 0));
	assert_false(recycle_is_spent(&r, 0));
	assert_non_null(recycle_due(&r, 1, NOW, 0));
	assert_true(recycle_is_spent(&r, 1));
}

/* As evenly as dice fall, with those of 31 bits, too. */
static void check_spread(int bits)
{
	int found[100] = {0};
	uint64_t dice = 2;

	for (int i = 0; i < ROLLS; i++) {
		struct recycle r = born(1000, 0, NOW, roll(&dice) >> (32 - bits));
		uint64_t due = due_at(&r, 1000);
		assert_in_range(due, 900, 999);
		found[due - 900]++;
	}
	for (int i = 0; i < 100; i++)
		assert_in_range(found[i], ROLLS / 100 * 6 / 10, ROLLS / 100 * 14 / 10);
}

static void test_spread(void **state)
{
	(void)state;
	check_spread(32);
	check_spread(31);
}

static void test_lifetime(void **state)
{
	int64_t life_us = DAY_MS * 1000;
	int found[10] = {0};
	uint64_t dice = 3;
	(void)state;

	for (int i = 0; i < ROLLS; i++) {
		struct recycle r = born(0, DAY_MS, NOW, roll(&dice));
		int64_t due_us = r.due_us - NOW;
		assert_in_range(due_us, life_us - life_us / 10, life_us);
		assert_null(recycle_due(&r, 1000, r.due_us - 1, 0));
		assert_string_equal(recycle_due(&r, 0, r.due_us, 0), "worker.max_lifetime");
		found[(life_us - due_us) * 10 / (life_us / 10 + 1)]++;
	}
	for (int i = 0; i < 10; i++)
		assert_in_range(found[i], ROLLS / 10 * 8 / 10, ROLLS / 10 * 12 / 10);
}

static void test_lifetime_does_not_overflow(void **state)
{
	struct recycle r = born(0, INT64_MAX, NOW, UINT32_MAX);
	(void)state;

	assert_null(recycle_due(&r, 0, INT64_MAX / 2, 0));
	r = born(0, DAY_MS, INT64_MAX - 5, 0);
	assert_null(recycle_due(&r, 0, INT64_MAX, 0));
}

static void test_memory(void **state)
{
	struct recycle r;
	struct pool_settings settings = {.worker_max_memory_bytes = 1 << 20};
	(void)state;

	recycle_init(&r, &settings, NOW, 5);
	assert_null(recycle_due(&r, 1000, INT64_MAX, 1 << 20));
	assert_string_equal(recycle_due(&r, 0, 0, (1 << 20) + 1), "worker.max_memory");
}

static void test_cap(void **state)
{
	(void)state;

	for (int64_t children = 0; children < 20; children++)
		assert_int_equal(recycle_cap(children), 1);
	assert_int_equal(recycle_cap(20), 2);
	assert_int_equal(recycle_cap(29), 2);
	assert_int_equal(recycle_cap(64), 6);
	assert_int_equal(recycle_cap(10000), 1000);
}

struct place {
	struct recycle recycle;
	uint64_t given;
	int replaced_in; /* turns until its replacement is up; 0: it is not being replaced */
};

struct pool {
	struct place places[WORKERS];
	int64_t size;
	int64_t max_requests;
	int64_t replacing;
	int64_t served, replaced;
	uint64_t dice;
};

static void renew(struct pool *p, struct place *place)
{
	*place = (struct place){.recycle = born(p->max_requests, 0, NOW, roll(&p->dice))};
}

/* A request for each that may have one; then the due ones are replaced, as
 * many as may be at one time. */
static void turn(struct pool *p)
{
	for (int64_t i = 0; i < p->size; i++) {
		struct place *place = &p->places[i];
		if (place->replaced_in > 0 && --place->replaced_in == 0) {
			renew(p, place);
			p->replacing--;
			p->replaced++;
		}
		if (recycle_is_spent(&place->recycle, place->given))
			continue;
		place->given++;
		p->served++;
		assert_true(place->given <= (uint64_t)p->max_requests);
		bool is_due = recycle_due(&place->recycle, place->given, NOW, 0) != NULL;
		if (!is_due || place->replaced_in > 0 || p->replacing >= recycle_cap(p->size))
			continue;
		place->replaced_in = 2;
		p->replacing++;
	}
}

/* Workers of one age, none of which is early enough to be ended alone: the
 * jitter and the lead leave hardly one of them spent while it waits. */
static void test_under_full_load(void **state)
{
	struct pool p = {.size = 100, .max_requests = 500, .dice = 4};
	(void)state;

	for (int64_t i = 0; i < p.size; i++)
		renew(&p, &p.places[i]);
	for (int i = 0; i < TURNS; i++) {
		turn(&p);
		assert_in_range(p.replacing, 0, 10);
	}
	assert_true(p.served >= TURNS * p.size / 1000 * 999);
	assert_in_range(p.replaced, TURNS * p.size / 500, TURNS * p.size / 450);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_no_limits),
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_one_request),
	        cmocka_unit_test(test_spread),
	        cmocka_unit_test(test_lifetime),
	        cmocka_unit_test(test_lifetime_does_not_overflow),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_cap),
	        cmocka_unit_test(test_under_full_load),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The quota with pools that want, hold, give back, crash and leave at random:
 * what must hold after each step, and who gets what when there is too little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fpm/quota.h"

enum { POOLS = 12, ROUNDS = 400, STEPS = 1000 };

static uint32_t roll(uint64_t *dice, uint32_t sides)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (uint32_t)(*dice >> 32) % sides;
}

static bool has_none(const struct quota_share *share)
{
	return share->held == 0 && !share->absent;
}

/* Pools that have none, with and without wanting one. */
static int64_t count_without(const struct quota *q, bool wanting)
{
	int64_t count = 0;

	for (size_t i = 0; i < q->count; i++)
		count += has_none(&q->shares[i]) && (!wanting || q->shares[i].wanted > 0);
	return count;
}

static void check(const struct quota *q)
{
	int64_t held = 0;

	for (size_t i = 0; i < q->count; i++) {
		assert_true(q->shares[i].held >= 0 && q->shares[i].wanted >= 0);
		held += q->shares[i].held;
	}
	assert_true(held <= q->max);
	assert_int_equal(held + q->free, q->max);
}

/* All that can be granted; how many grants it took. */
static int grant_all(struct quota *q)
{
	size_t pool;
	int64_t n;
	int grants = 0;

	while (quota_next(q, &pool, &n)) {
		assert_true(pool < q->count && n > 0);
		check(q);
		grants++;
	}
	return grants;
}

/* Nobody waits for what could be had; what is kept is kept for a first one. */
static void check_granted(const struct quota *q)
{
	if (q->free > 0)
		assert_int_equal(count_without(q, true), 0);
	for (size_t i = 0; i < q->count; i++) {
		if (q->shares[i].wanted > 0)
			assert_true(q->free <= count_without(q, false));
	}
}

static void give_back(struct quota *q, size_t pool, int64_t n)
{
	int64_t held = q->shares[pool].held, free = q->free;
	bool was_taken = quota_return(q, pool, n);

	assert_int_equal(was_taken, n <= held);
	assert_int_equal(q->free, was_taken ? free + n : free);
	assert_int_equal(q->shares[pool].held, was_taken ? held - n : held);
}

static void random_step(struct quota *q, uint64_t *dice)
{
	size_t pool = roll(dice, (uint32_t)q->count);
	uint32_t what = roll(dice, 1000);

	if (what < 500)
		quota_want(q, pool, roll(dice, 2) ? roll(dice, 40) : 0);
	else if (what < 950)
		give_back(q, pool, roll(dice, 8));
	else if (what < 999)
		quota_reset(q, pool);
	else
		quota_leave(q, pool);
}

static void test_random(void **state)
{
	struct quota q;
	uint64_t dice = 1;
	(void)state;

	for (int round = 0; round < ROUNDS; round++) {
		size_t pools = 1 + roll(&dice, POOLS);
		int64_t max = roll(&dice, 40);
		assert_true(quota_init(&q, max, pools));
		for (int i = 0; i < STEPS; i++) {
			random_step(&q, &dice);
			check(&q);
			if (roll(&dice, 2))
				continue;
			grant_all(&q);
			check_granted(&q);
			if (max >= (int64_t)pools)
				assert_true(q.free >= count_without(&q, false));
		}
		quota_fini(&q);
	}
}

/* A greedy pool leaves one for each of the others, however late they want it. */
static void test_each_gets_one(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 4));
	quota_want(&q, 2, 1000);
	grant_all(&q);
	assert_int_equal(q.shares[2].held, 7);
	for (size_t i = 0; i < 4; i++)
		quota_want(&q, i, 5);
	grant_all(&q);
	assert_int_equal(q.shares[2].held, 7);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(q.shares[i].held, i == 2 ? 7 : 1);
	quota_fini(&q);
}

/* With fewer places than pools nobody has two. */
static void test_too_few(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 3, 5));
	quota_want(&q, 4, 9);
	grant_all(&q);
	assert_int_equal(q.shares[4].held, 1);
	for (size_t i = 0; i < 5; i++)
		quota_want(&q, i, 9);
	grant_all(&q);
	assert_int_equal(q.free, 0);
	for (size_t i = 0; i < 5; i++)
		assert_true(q.shares[i].held <= 1);
	assert_true(quota_return(&q, 4, 1));
	quota_want(&q, 4, 0);
	grant_all(&q);
	assert_int_equal(q.shares[4].held, 0);
	assert_int_equal(q.free, 0);
	quota_fini(&q);
}

/* Shared out as evenly as it goes, and further places go round. */
static void test_turns(void **state)
{
	struct quota q;
	int64_t got[3] = {0};
	size_t pool;
	int64_t n;
	(void)state;

	assert_true(quota_init(&q, 32, 3));
	for (size_t i = 0; i < 3; i++)
		quota_want(&q, i, 1000);
	grant_all(&q);
	for (size_t i = 0; i < 3; i++)
		assert_in_range(q.shares[i].held, 10, 11);
	for (int i = 0; i < 300; i++) {
		assert_true(quota_return(&q, 0, 1)); /* the same one gives each time … */
		assert_true(quota_next(&q, &pool, &n));
		assert_int_equal(n, 1);
		got[pool]++;
		assert_false(quota_next(&q, &pool, &n));
		if (pool != 0) { /* … and is given it back from where it went */
			assert_true(quota_return(&q, pool, 1));
			q.shares[0].held++;
			q.free--;
		}
	}
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(got[i], 100);
	quota_fini(&q);
}

/* A small need beside great ones is met in full. */
static void test_small_needs(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 40, 3));
	quota_want(&q, 0, 1000);
	quota_want(&q, 1, 5);
	quota_want(&q, 2, 1000);
	grant_all(&q);
	assert_int_equal(q.shares[1].held, 5);
	assert_in_range(q.shares[0].held, 17, 18);
	assert_in_range(q.shares[2].held, 17, 18);
	quota_fini(&q);
}

/* Each alone could have all that it wants, both cannot. */
static void test_too_little_for_both(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 2));
	quota_want(&q, 0, 7);
	quota_want(&q, 1, 7);
	grant_all(&q);
	assert_int_equal(q.shares[0].held, 5);
	assert_int_equal(q.shares[1].held, 5);
	quota_fini(&q);
}

/* Where there is enough, one message a pool. */
static void test_plenty_takes_few_grants(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 900, 3));
	for (size_t i = 0; i < 3; i++)
		quota_want(&q, i, 300);
	assert_int_equal(grant_all(&q), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(q.shares[i].held, 300);
	assert_true(quota_return(&q, 2, 100));
	quota_want(&q, 1, 100);
	assert_int_equal(grant_all(&q), 1);
	assert_int_equal(q.free, 0);
	quota_fini(&q);
}

static void test_want_replaces(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 1));
	quota_want(&q, 0, 5);
	quota_want(&q, 0, 2);
	grant_all(&q);
	assert_int_equal(q.shares[0].held, 2);
	assert_int_equal(grant_all(&q), 0);
	quota_want(&q, 0, 1); /* one more than those */
	grant_all(&q);
	assert_int_equal(q.shares[0].held, 3);
	quota_want(&q, 0, -1);
	assert_int_equal(q.shares[0].wanted, 0);
	assert_int_equal(grant_all(&q), 0);
	quota_fini(&q);
}

static void test_returns(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 2));
	quota_want(&q, 0, 4);
	grant_all(&q);
	assert_false(quota_return(&q, 1, 1));
	assert_false(quota_return(&q, 0, 5));
	assert_false(quota_return(&q, 0, -1));
	assert_int_equal(q.shares[0].held, 4);
	assert_int_equal(q.free, 6);
	assert_true(quota_return(&q, 0, 4));
	assert_false(quota_return(&q, 0, 1));
	assert_int_equal(q.free, 10);
	quota_fini(&q);
}

/* The place of a pool whose process died is kept for its next process. */
static void test_reset(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 2));
	quota_want(&q, 0, 20);
	grant_all(&q);
	quota_reset(&q, 0);
	assert_int_equal(q.free, 10);
	assert_int_equal(grant_all(&q), 0);
	quota_want(&q, 1, 20);
	grant_all(&q);
	assert_int_equal(q.shares[1].held, 9);
	quota_fini(&q);
}

static void test_leave(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 3));
	quota_want(&q, 0, 20);
	grant_all(&q);
	assert_int_equal(q.shares[0].held, 8);
	quota_leave(&q, 1);
	grant_all(&q);
	assert_int_equal(q.shares[0].held, 9);
	quota_want(&q, 1, 1); /* it stops, and may have what nobody else is kept */
	assert_int_equal(grant_all(&q), 0);
	assert_true(quota_return(&q, 0, 3));
	quota_want(&q, 0, 0);
	grant_all(&q);
	assert_int_equal(q.shares[1].held, 1);
	quota_fini(&q);
}

static void test_none(void **state)
{
	struct quota q;
	(void)state;

	assert_true(quota_init(&q, 10, 0));
	assert_int_equal(grant_all(&q), 0);
	quota_fini(&q);
	assert_true(quota_init(&q, -1, 1));
	quota_want(&q, 0, 1);
	assert_int_equal(grant_all(&q), 0);
	assert_int_equal(q.free, 0);
	quota_fini(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_each_gets_one),
	        cmocka_unit_test(test_too_few),
	        cmocka_unit_test(test_turns),
	        cmocka_unit_test(test_small_needs),
	        cmocka_unit_test(test_too_little_for_both),
	        cmocka_unit_test(test_plenty_takes_few_grants),
	        cmocka_unit_test(test_want_replaces),
	        cmocka_unit_test(test_returns),
	        cmocka_unit_test(test_reset),
	        cmocka_unit_test(test_leave),
	        cmocka_unit_test(test_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

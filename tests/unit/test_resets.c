/* Who is held back, and for how long, on a virtual clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pool/resets.h"

enum { SECOND_US = 1000000, FLOW = 7, OTHER = 8 };

/* per_s aborts a second of requests of that age; what is held back after it. */
static int64_t abort_for(struct resets *t, int64_t *now_us, int per_s, double seconds, int64_t age_us)
{
	for (int i = 0; i < (int)(per_s * seconds); i++) {
		*now_us += SECOND_US / per_s;
		resets_on_abort(t, FLOW, age_us, *now_us);
	}
	return resets_hold_us(t, FLOW, *now_us);
}

static void test_browsers_are_not_held_back(void **state)
{
	static struct resets t;
	int64_t now_us = 5 * SECOND_US;

	(void)state;
	resets_init(&t);
	assert_int_equal(resets_hold_us(&t, FLOW, now_us), 0);
	/* A page of a hundred streams is left, again and again. */
	for (int page = 0; page < 20; page++) {
		for (int i = 0; i < 100; i++)
			resets_on_abort(&t, FLOW, 30000, now_us);
		assert_int_equal(resets_hold_us(&t, FLOW, now_us), 0);
		now_us += 2 * SECOND_US;
	}
	/* A search box that gives up the last question at each key. */
	assert_int_equal(abort_for(&t, &now_us, 50, 60, 10000), 0);
}

static void test_a_flood_is_held_back_for_as_long_as_it_takes(void **state)
{
	static const struct { int64_t age_us, hold_us; } cases[] = {
		{0, RESETS_HOLD_MIN_US}, {1000, RESETS_HOLD_MIN_US}, {20000, 40000}, {3 * SECOND_US, RESETS_HOLD_MAX_US}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		static struct resets t;
		int64_t now_us = SECOND_US;

		resets_init(&t);
		assert_int_equal(abort_for(&t, &now_us, 10000, 0.0126, cases[i].age_us), 0);
		assert_int_equal(abort_for(&t, &now_us, 10000, 1, cases[i].age_us), cases[i].hold_us);
		assert_int_equal(resets_hold_us(&t, OTHER, now_us), 0);
		/* It is forgotten in the time that the rest of its count takes. */
		assert_true(resets_hold_us(&t, FLOW, now_us + SECOND_US * 19 / 10) > 0);
		assert_int_equal(resets_hold_us(&t, FLOW, now_us + SECOND_US * 21 / 10), 0);
	}
}

static void test_the_average_age_follows(void **state)
{
	static struct resets t;
	int64_t now_us = 0;

	(void)state;
	resets_init(&t);
	assert_int_equal(abort_for(&t, &now_us, 10000, 1, 100000), 200000);
	int64_t hold_us = abort_for(&t, &now_us, 10000, 1, 10000);
	assert_in_range(hold_us, 19000, 21000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_browsers_are_not_held_back),
		cmocka_unit_test(test_a_flood_is_held_back_for_as_long_as_it_takes),
		cmocka_unit_test(test_the_average_age_follows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

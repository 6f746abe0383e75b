/* Delays between attempts: growth, the cap, and the jitter's whole range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>

#include "pool/backoff.h"

static int64_t nominal_ms(unsigned failures)
{
	static const int64_t of[] = {100, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600};
	return failures < sizeof(of) / sizeof(of[0]) ? of[failures] : 30000;
}

/* Every remainder that the widest jitter can make of a random number, at both
 * ends of the numbers' range, and numbers spread over all of it. */
static void each_random(void (*check)(unsigned failures, uint32_t random), unsigned failures)
{
	for (uint32_t i = 0; i <= 15001; i++) {
		check(failures, i);
		check(failures, UINT32_MAX - i);
		check(failures, i * 286331153U);
	}
}

static int64_t least_ms, most_ms;

static void check_bounds(unsigned failures, uint32_t random)
{
	int64_t delay_ms = backoff_delay_ms(failures, random);
	int64_t upper_ms = nominal_ms(failures) * 5 / 4;

	assert_in_range(delay_ms, nominal_ms(failures) * 3 / 4, upper_ms < 30000 ? upper_ms : 30000);
	least_ms = delay_ms < least_ms ? delay_ms : least_ms;
	most_ms = delay_ms > most_ms ? delay_ms : most_ms;
}

static void test_jitter_has_all_of_its_range(void **state)
{
	static const unsigned many[] = {63, 64, 65, 1000, UINT_MAX - 1, UINT_MAX};

	(void)state;
	for (unsigned failures = 0; failures < 30; failures++) {
		unsigned number = failures < 24 ? failures : many[failures - 24];
		int64_t upper_ms = nominal_ms(number) * 5 / 4;

		least_ms = INT64_MAX;
		most_ms = 0;
		each_random(check_bounds, number);
		assert_int_equal(least_ms, nominal_ms(number) * 3 / 4);
		assert_int_equal(most_ms, upper_ms < 30000 ? upper_ms : 30000);
	}
}

static void test_failures_are_counted_until_a_success(void **state)
{
	struct backoff b = {0};

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 1; i < 100; i++) {
			assert_int_equal(backoff_fail(&b, i * 40503U), backoff_delay_ms(i, i * 40503U));
			assert_int_equal(b.failures, i);
		}
		backoff_succeed(&b);
		assert_int_equal(b.failures, 0);
	}
}

static void test_count_never_wraps(void **state)
{
	struct backoff b = {.failures = UINT_MAX};

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(backoff_fail(&b, 0), 22500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_jitter_has_all_of_its_range),
	        cmocka_unit_test(test_failures_are_counted_until_a_success),
	        cmocka_unit_test(test_count_never_wraps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

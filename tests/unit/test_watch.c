#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fpm/watch.h"

static void test_late_only_after_silence(void **context)
{
	struct watch w;
	int64_t now_ms = 1000;

	(void)context;
	watch_init(&w, 5000);
	watch_started(&w, now_ms);
	assert_int_equal(watch_patience_ms(&w, now_ms), 5000);
	for (int i = 0; i < 100000; i++) {
		now_ms += 4999;
		assert_int_equal(watch_patience_ms(&w, now_ms), 1);
		watch_heard(&w, now_ms);
	}
	assert_int_equal(watch_patience_ms(&w, now_ms + 4999), 1);
	assert_int_equal(watch_patience_ms(&w, now_ms + 5000), 0);
	assert_int_equal(watch_patience_ms(&w, now_ms + 500000), 0);
	watch_started(&w, now_ms + 500000); /* the next process begins anew */
	assert_int_equal(watch_patience_ms(&w, now_ms + 500000), 5000);
}

static void test_never_late_when_off(void **context)
{
	struct watch w;

	(void)context;
	watch_init(&w, 0);
	watch_started(&w, 0);
	assert_int_equal(watch_patience_ms(&w, INT64_MAX), -1);
}

static void test_backoff_grows_to_its_most(void **context)
{
	struct watch w;
	int64_t want_ms[] = {0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000};
	int64_t now_ms = 0;

	(void)context;
	watch_init(&w, 5000);
	for (size_t i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
		int64_t delay_ms;
		int64_t most_ms = want_ms[i] + want_ms[i] / 4;

		watch_started(&w, now_ms);
		now_ms += 5;
		delay_ms = watch_ended(&w, now_ms, false, (uint32_t)(i * 2654435761U));
		assert_in_range(delay_ms, want_ms[i] - want_ms[i] / 4, most_ms < 30000 ? most_ms : 30000);
		now_ms += delay_ms;
	}
}

static void test_jitter_spans_its_range(void **context)
{
	int64_t least_ms = INT64_MAX;
	int64_t most_ms = 0;

	(void)context;
	for (uint32_t dice = 0; dice < 1000; dice++) {
		struct watch w;
		int64_t delay_ms;

		watch_init(&w, 5000);
		assert_int_equal(watch_ended(&w, 0, false, dice), 0);
		delay_ms = watch_ended(&w, 0, false, dice * 7919);
		least_ms = delay_ms < least_ms ? delay_ms : least_ms;
		most_ms = delay_ms > most_ms ? delay_ms : most_ms;
	}
	assert_int_equal(least_ms, 75);
	assert_int_equal(most_ms, 125);
}

static void test_long_life_is_forgiven(void **context)
{
	struct watch w;

	(void)context;
	watch_init(&w, 5000);
	watch_started(&w, 0);
	assert_int_equal(watch_ended(&w, 0, false, 0), 0);
	watch_started(&w, 0);
	assert_int_equal(watch_ended(&w, 9999, false, 0), 75); /* too short a life */
	watch_started(&w, 20000);
	assert_int_equal(watch_ended(&w, 30000, false, 0), 0);
	watch_started(&w, 30000);
	assert_int_equal(watch_ended(&w, 30000, false, 0), 75);
}

static void test_hopeless_waits_longest(void **context)
{
	struct watch w;

	(void)context;
	watch_init(&w, 5000);
	watch_started(&w, 0);
	assert_int_equal(watch_ended(&w, 1, true, 0), 22500);
	assert_int_equal(watch_ended(&w, 1, true, 15000), 30000);
}

static void test_never_a_busy_loop(void **context)
{
	struct watch w;
	int64_t now_ms = 0;
	int starts = 0;

	(void)context;
	watch_init(&w, 5000);
	while (now_ms < 3600 * 1000) {
		watch_started(&w, now_ms);
		now_ms += watch_ended(&w, now_ms, false, (uint32_t)starts * 40503U);
		assert_true(++starts < 200); /* an hour of dying at start */
	}
	assert_true(starts > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_only_after_silence),   cmocka_unit_test(test_never_late_when_off),
		cmocka_unit_test(test_backoff_grows_to_its_most), cmocka_unit_test(test_jitter_spans_its_range),
		cmocka_unit_test(test_long_life_is_forgiven),     cmocka_unit_test(test_hopeless_waits_longest),
		cmocka_unit_test(test_never_a_busy_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

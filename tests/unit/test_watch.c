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

static void test_hopeless_is_given_up(void **context)
{
	struct watch w;

	(void)context;
	watch_init(&w, 5000);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 1; i < WATCH_HOPELESS; i++) {
			watch_started(&w, 0);
			assert_true(watch_ended(&w, 1, true, 0) >= 22500);
		}
		if (turn == 0) /* another kind of end: it is no longer in a row */
			assert_true(watch_ended(&w, 1, false, 0) >= 0);
		if (turn == 1) /* nor after one that became ready */
			watch_ready(&w);
	}
	assert_int_equal(watch_ended(&w, 1, true, 0), -1);
	assert_int_equal(watch_ended(&w, 1, true, 0), -1);
}

/* Starts one that becomes ready, lets it die at now_ms, and returns when the
 * next one is started. */
static int64_t die_ready(struct watch *w, int64_t now_ms)
{
	int64_t delay_ms;

	watch_started(w, now_ms);
	watch_ready(w);
	delay_ms = watch_ended(w, now_ms, false, 12345);
	assert_in_range(delay_ms, 0, 1000);
	return now_ms + delay_ms;
}

static void test_ready_ones_come_back_at_once_then_each_second(void **context)
{
	struct watch w;
	int64_t now_ms = 7;

	(void)context;
	watch_init(&w, 5000);
	for (int i = 0; i < WATCH_BURST; i++)
		assert_int_equal(die_ready(&w, now_ms), now_ms);
	for (int i = 1; i < 10000; i++) {
		now_ms = die_ready(&w, now_ms);
		assert_int_equal(now_ms, 7 + 1000 * i);
	}
	now_ms += 600; /* part of the second is over: the rest is waited for */
	assert_int_equal(die_ready(&w, now_ms), now_ms + 400);
}

static void test_tokens_are_saved_up_to_the_burst(void **context)
{
	struct watch w;
	int64_t now_ms = 0;

	(void)context;
	watch_init(&w, 5000);
	for (int i = 0; i < WATCH_BURST; i++)
		assert_int_equal(die_ready(&w, now_ms), now_ms);
	now_ms += 3000;
	for (int i = 0; i < 3; i++)
		assert_int_equal(die_ready(&w, now_ms), now_ms);
	assert_int_equal(die_ready(&w, now_ms), now_ms + 1000);
	now_ms += 1000000; /* long quiet: no more than the burst */
	for (int i = 0; i < WATCH_BURST; i++)
		assert_int_equal(die_ready(&w, now_ms), now_ms);
	assert_int_equal(die_ready(&w, now_ms), now_ms + 1000);
}

/* What a chaos test does: every 300 ms for an hour. */
static void test_killed_again_and_again_is_back_within_a_second(void **context)
{
	struct watch w;
	int64_t now_ms = 0;
	int starts = 0;

	(void)context;
	watch_init(&w, 5000);
	while (now_ms < 3600 * 1000) {
		now_ms = die_ready(&w, now_ms + 300);
		starts++;
	}
	assert_in_range(starts, 3600, 3600 + WATCH_BURST + 1);
}

static void test_being_ready_ends_the_backoff(void **context)
{
	struct watch w;

	(void)context;
	watch_init(&w, 5000);
	for (int i = 0; i < 20; i++) {
		watch_started(&w, 0);
		assert_true(watch_ended(&w, 1, false, 0) >= 0);
	}
	assert_int_equal(die_ready(&w, 5), 5);
	watch_started(&w, 5);
	assert_int_equal(watch_ended(&w, 6, false, 0), 0);
	watch_started(&w, 6); /* whoever died ready says nothing about this one */
	assert_int_equal(watch_ended(&w, 7, false, 0), 75);
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
		cmocka_unit_test(test_hopeless_is_given_up),
		cmocka_unit_test(test_ready_ones_come_back_at_once_then_each_second),
		cmocka_unit_test(test_tokens_are_saved_up_to_the_burst),
		cmocka_unit_test(test_killed_again_and_again_is_back_within_a_second),
		cmocka_unit_test(test_being_ready_ends_the_backoff),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

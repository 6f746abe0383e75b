/* The scaler in a simulated pool: bursts, waves, constant and random load. */
#include "tests/unit/scaler_sim.h"

enum { ROUNDS = 300, STEPS = 2000 };

/* Somebody's worker is killed; a request that it had waits once more. */
static void kill_one(struct pool *p)
{
	int64_t victim = roll(p, total(p) + 1) - 1;

	if (victim < 0)
		return;
	if (victim < p->starting) {
		take(p->ready_at_us, &p->starting, victim);
	} else if (victim < p->starting + p->idle) {
		int64_t at = victim - p->starting;
		p->idle--;
		memmove(p->idle_since_us + at, p->idle_since_us + at + 1, (size_t)(p->idle - at) * sizeof(p->idle_since_us[0]));
	} else {
		take(p->free_at_us, &p->busy, victim - p->starting - p->idle);
		p->queued++;
	}
	settle(p);
}

static void leave(struct pool *p)
{
	if (p->queued == 0)
		return;
	p->queued--;
	p->left++;
	settle(p);
}

static void random_step(struct pool *p, int64_t load)
{
	int64_t what = roll(p, 100);

	if (what < load)
		arrive(p, what < 5 ? 1 + roll(p, 30) : 1);
	else if (what == 98)
		kill_one(p);
	else if (what == 99)
		leave(p);
	else
		run(p, what < 95 ? roll(p, 20 * MS) : roll(p, SECOND));
}

static void check_quiet(const struct pool *p)
{
	assert_int_equal(p->queued + p->busy + p->starting, 0);
	assert_int_equal(p->done + p->left, p->arrived);
	switch (p->scaler.mode) {
	case PM_STATIC:
		assert_int_equal(p->idle, p->scaler.max_children);
		assert_int_equal(p->ends, 0);
		break;
	case PM_DYNAMIC:
		assert_true(p->idle >= p->scaler.min_spare || p->idle == p->scaler.max_children);
		assert_true(p->idle <= p->scaler.max_spare);
		break;
	case PM_ONDEMAND:
		assert_int_equal(p->idle, 0);
		break;
	}
}

/* Arrivals, departures and deaths at random, then none: whatever the settings,
 * everyone has been served in the end and the extra workers are gone. */
static void test_random(void **state)
{
	struct pool p;
	uint64_t dice = 42;
	(void)state;

	for (int round = 0; round < ROUNDS; round++) {
		struct pool_settings settings = dynamic_settings(24, 0, 0, 0);
		p.dice = dice += 0x9e3779b97f4a7c15ULL;
		settings.pm = round % 3;
		settings.pm_max_children = 1 + roll(&p, 24);
		settings.pm_max_spawn_rate = roll(&p, 8);
		settings.pm_process_idle_timeout_ms = 1 + roll(&p, 3000);
		settings.pm_min_spare_servers = 1 + roll(&p, settings.pm_max_children);
		settings.pm_max_spare_servers = settings.pm_min_spare_servers + roll(&p, 4);
		settings.pm_start_servers = settings.pm_min_spare_servers;
		int64_t load = 10 + roll(&p, 80);
		int64_t start_takes = 1 + roll(&p, 50 * MS);
		begin(&p, &settings, start_takes, 30 * MS);
		p.dice = dice;
		for (int i = 0; i < STEPS; i++)
			random_step(&p, load);
		run(&p, (p.arrived + 1) * 100 * MS + settings.pm_process_idle_timeout_ms * MS + 2 * PERIOD);
		check_quiet(&p);
	}
}

static void test_static_is_constant(void **state)
{
	struct pool p;
	struct pool_settings settings = settings_of(PM_STATIC, 100);
	(void)state;

	begin(&p, &settings, MS, 10 * MS);
	assert_int_equal(p.starting, 32);
	run(&p, 4 * MS);
	assert_int_equal(p.idle, 100);
	run(&p, 3600 * SECOND);
	assert_int_equal(p.idle, 100);
	assert_int_equal(p.starts, 100);
}

/* From none to all in as many rounds as the spawn rate says, no tick awaited. */
static void test_ondemand_burst(void **state)
{
	struct pool p;
	struct pool_settings settings = settings_of(PM_ONDEMAND, 200);
	(void)state;

	begin(&p, &settings, MS, 200 * MS);
	run(&p, 10 * SECOND);
	assert_int_equal(total(&p), 0);
	arrive(&p, 200);
	assert_int_equal(p.starting, 32);
	for (int round = 1; round < 7; round++) {
		run(&p, MS);
		assert_int_equal(p.busy, round * 32);
	}
	run(&p, MS);
	assert_int_equal(p.busy, 200);
	run(&p, 200 * MS);
	assert_int_equal(p.done, 200);
	assert_int_equal(p.starts, 200);
}

static void test_ondemand_extras_go(void **state)
{
	struct pool p;
	struct pool_settings settings = settings_of(PM_ONDEMAND, 50);
	(void)state;

	settings.pm_process_idle_timeout_ms = 2000;
	begin(&p, &settings, MS, 100 * MS);
	arrive(&p, 6);
	run(&p, 101 * MS);
	assert_int_equal(p.idle, 6);
	for (int i = 0; i < 2; i++) {
		arrive(&p, 1);
		run(&p, SECOND - MS);
		assert_int_equal(total(&p), 6);
	}
	arrive(&p, 1);
	run(&p, 2 * MS + PERIOD);
	assert_int_equal(total(&p), 1);
	for (int i = 0; i < 100; i++) {
		run(&p, SECOND);
		arrive(&p, 1);
	}
	assert_int_equal(total(&p), 1);
	assert_int_equal(p.starts, 6);
	run(&p, 3 * SECOND);
	assert_int_equal(total(&p), 0);
}

/* One that is idle for less than the timeout stays, to the microsecond. */
static void test_idle_deadline(void **state)
{
	struct scaler s;
	struct pool_settings settings = settings_of(PM_ONDEMAND, 50);
	(void)state;

	scaler_init(&s, &settings);
	assert_int_equal(scaler_idle_deadline_us(&s, 5), 10 * SECOND + 5);
	assert_int_equal(scaler_idle_deadline_us(&s, INT64_MAX - 5), INT64_MAX);
	settings.pm_process_idle_timeout_ms = INT64_MAX / 10;
	scaler_init(&s, &settings);
	assert_int_equal(scaler_idle_deadline_us(&s, 5), INT64_MAX);
}

static void test_dynamic_starts(void **state)
{
	struct pool p;
	struct pool_settings settings = dynamic_settings(20, 5, 2, 8);
	(void)state;

	begin(&p, &settings, MS, 10 * MS);
	assert_int_equal(p.starting, 5);
	settle(&p);
	take(p.ready_at_us, &p.starting, 0); /* died before it was there: it still counts as to be started */
	settle(&p);
	assert_int_equal(p.starting, 5);
	run(&p, MS);
	assert_int_equal(p.idle, 5);
	p.idle = 1; /* once they were there, min_spare is what counts */
	settle(&p);
	assert_int_equal(total(&p), 2);
}

static void test_dynamic_converges(void **state)
{
	struct pool p;
	struct pool_settings settings = dynamic_settings(40, 6, 3, 8);
	(void)state;

	begin(&p, &settings, MS, 30 * SECOND);
	run(&p, SECOND);
	assert_int_equal(p.idle, 6);
	arrive(&p, 4); /* two are left, three are to be spare */
	assert_int_equal(p.starting, 1);
	run(&p, SECOND);
	assert_int_equal(p.idle, 3);
	arrive(&p, 20);
	run(&p, SECOND);
	assert_int_equal(p.busy, 24);
	assert_int_equal(p.idle, 3);
	arrive(&p, 16);
	run(&p, SECOND);
	assert_int_equal(p.busy, 40);
	run(&p, 30 * SECOND);
	assert_int_equal(p.idle, 40);
	run(&p, 10 * SECOND + PERIOD);
	assert_int_equal(p.idle, 8);
	run(&p, 3600 * SECOND);
	assert_int_equal(p.idle, 8);
}

/* Each finished request is followed by the next; what is spare stays alone. */
static void test_constant_load(void **state)
{
	struct pool p;
	(void)state;

	for (int max_spare = 3; max_spare < 6; max_spare++) {
		struct pool_settings settings = dynamic_settings(40, 4, 3, max_spare);
		if (max_spare == 3)
			settings.pm_start_servers = 3;
		begin(&p, &settings, MS, 10 * MS);
		for (int i = 0; i < 3000; i++) {
			arrive(&p, 10);
			run(&p, i % 100 == 0 ? 9 * SECOND : 10 * MS);
		}
		int64_t changes = p.starts + p.ends;
		for (int i = 0; i < 3000; i++) {
			arrive(&p, 10);
			run(&p, i % 100 == 0 ? 9 * SECOND : 10 * MS);
		}
		assert_int_equal(p.starts + p.ends, changes);
	}
}

/* A load that comes in waves shorter than the timeout costs no worker: those
 * that were spare at the peak are so again at the next. */
static void test_waves(void **state)
{
	struct pool p;
	struct pool_settings settings = dynamic_settings(40, 4, 3, 3);
	(void)state;

	settings.pm_start_servers = 3;
	begin(&p, &settings, MS, SECOND);
	for (int i = 0; i < 10; i++) {
		arrive(&p, 20);
		run(&p, 3 * SECOND);
	}
	assert_int_equal(p.starts, 23);
	for (int i = 0; i < 1000; i++) {
		arrive(&p, 20);
		run(&p, 3 * SECOND);
	}
	assert_int_equal(p.starts, 23);
	assert_int_equal(p.ends, 0);
}

static void test_spare(void **state)
{
	struct scaler s;
	struct pool_settings settings = dynamic_settings(40, 6, 3, 8);
	struct scaler_view v = {.idle = 12, .busy = 5};
	(void)state;

	scaler_init(&s, &settings);
	assert_int_equal(scaler_wanted(&s, &v), 8);
	assert_int_equal(scaler_to_start(&s, &v), 0);
	assert_int_equal(scaler_spare(&s, &v), 4);
	v.queued = 3;
	assert_int_equal(scaler_spare(&s, &v), 1);
	v.queued = 0;
	settings.pm_max_spare_servers = 2; /* under min_spare, which counts */
	scaler_init(&s, &settings);
	assert_int_equal(scaler_spare(&s, &v), 9);
	v.queued = 3;
	s.mode = PM_ONDEMAND;
	s.max_spare = s.min_spare = 0;
	assert_int_equal(scaler_spare(&s, &v), 9);
	s.mode = PM_STATIC;
	assert_int_equal(scaler_spare(&s, &v), 0);
}

static void test_exhausted(void **state)
{
	struct scaler s;
	struct pool_settings settings = settings_of(PM_ONDEMAND, 10);
	(void)state;

	scaler_init(&s, &settings);
	assert_true(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 10, .queued = 1}));
	assert_false(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 10}));
	assert_false(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 9, .queued = 5}));
	assert_false(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 6, .starting = 4, .queued = 4}));
	assert_true(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 6, .starting = 4, .queued = 5}));
	s.mode = PM_STATIC;
	assert_true(scaler_is_exhausted(&s, &(struct scaler_view){.busy = 10, .queued = 1}));
}

static void test_huge_numbers(void **state)
{
	struct scaler s;
	struct pool_settings settings = dynamic_settings(10000, 10000, 10000, 10000);
	struct scaler_view v = {.queued = INT64_MAX, .busy = INT64_MAX, .idle = INT64_MAX, .starting = INT64_MAX};
	(void)state;

	for (enum pm_mode mode = PM_STATIC; mode <= PM_ONDEMAND; mode++) {
		settings.pm = mode;
		scaler_init(&s, &settings);
		assert_int_equal(scaler_wanted(&s, &v), 10000);
		assert_int_equal(scaler_to_start(&s, &v), 0);
		assert_int_equal(scaler_spare(&s, &v), 0);
		struct scaler_view full = {.queued = 10000000, .starting = 31};
		assert_int_equal(scaler_wanted(&s, &full), 10000);
		assert_int_equal(scaler_to_start(&s, &full), 1);
		assert_int_equal(scaler_spare(&s, &full), 0);
	}
}

static void test_spawn_rate_is_one_at_least(void **state)
{
	struct scaler s;
	struct pool_settings settings = settings_of(PM_STATIC, 10);
	struct scaler_view v = {0};
	(void)state;

	for (int64_t rate = -1; rate <= 1; rate++) {
		settings.pm_max_spawn_rate = rate;
		scaler_init(&s, &settings);
		v.starting = 0;
		assert_int_equal(scaler_to_start(&s, &v), 1);
		v.starting = 1;
		assert_int_equal(scaler_to_start(&s, &v), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_static_is_constant),
	        cmocka_unit_test(test_ondemand_burst),
	        cmocka_unit_test(test_ondemand_extras_go),
	        cmocka_unit_test(test_idle_deadline),
	        cmocka_unit_test(test_dynamic_starts),
	        cmocka_unit_test(test_dynamic_converges),
	        cmocka_unit_test(test_constant_load),
	        cmocka_unit_test(test_waves),
	        cmocka_unit_test(test_spare),
	        cmocka_unit_test(test_exhausted),
	        cmocka_unit_test(test_huge_numbers),
	        cmocka_unit_test(test_spawn_rate_is_one_at_least),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

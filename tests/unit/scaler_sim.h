/* For the scaler's tests: a simulated pool on a virtual clock. Workers take
 * time to start, requests take time to run, the most recently used idle worker
 * gets the next one, and what must hold is checked after each event. */
#ifndef H2FPM_TESTS_SCALER_SIM_H
#define H2FPM_TESTS_SCALER_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pool/scaler.h"

enum { WORKERS = 256 };

static const int64_t MS = 1000;
static const int64_t SECOND = 1000000;
static const int64_t PERIOD = 500000; /* how often idle ones are looked at */

struct pool {
	struct scaler scaler;
	int64_t now_us;
	int64_t next_period_us;
	int64_t start_takes_us;
	int64_t run_takes_us;
	int64_t starting, idle, busy, queued;
	int64_t ready_at_us[WORKERS];   /* of the starting ones */
	int64_t idle_since_us[WORKERS]; /* most recently used last */
	int64_t free_at_us[WORKERS];    /* of the busy ones */
	int64_t starts, ends;
	int64_t arrived, left, done;
	uint64_t dice;
};

static int64_t roll(struct pool *p, int64_t sides)
{
	p->dice ^= p->dice << 13;
	p->dice ^= p->dice >> 7;
	p->dice ^= p->dice << 17;
	return (int64_t)(p->dice >> 33) % sides;
}

static struct pool_settings settings_of(enum pm_mode mode, int64_t max_children)
{
	return (struct pool_settings){
	        .pm = mode,
	        .pm_max_children = max_children,
	        .pm_max_spawn_rate = 32,
	        .pm_process_idle_timeout_ms = 10000,
	};
}

static struct pool_settings dynamic_settings(int64_t max_children, int64_t start, int64_t min, int64_t max)
{
	struct pool_settings settings = settings_of(PM_DYNAMIC, max_children);

	settings.pm_start_servers = start;
	settings.pm_min_spare_servers = min;
	settings.pm_max_spare_servers = max;
	return settings;
}

static struct scaler_view view_of(const struct pool *p)
{
	return (struct scaler_view){.starting = p->starting, .idle = p->idle, .busy = p->busy, .queued = p->queued};
}

static int64_t total(const struct pool *p)
{
	return p->starting + p->idle + p->busy;
}

static void take(int64_t *times, int64_t *count, int64_t at)
{
	times[at] = times[--*count];
}

static void dispatch(struct pool *p)
{
	for (; p->queued > 0 && p->idle > 0; p->queued--) {
		p->idle--;
		p->free_at_us[p->busy++] = p->now_us + p->run_takes_us;
	}
}

/* What must hold once the crew has done what it was told. */
static void check(const struct pool *p)
{
	const struct scaler *s = &p->scaler;
	bool is_at_limit = total(p) == s->max_children || p->starting == s->spawn_rate;

	assert_true(total(p) <= s->max_children);
	assert_true(p->starting <= s->spawn_rate);
	if (s->mode == PM_STATIC)
		assert_true(is_at_limit);
	if (p->starting < p->queued)
		assert_true(is_at_limit);
	if (s->mode == PM_DYNAMIC && p->starting + p->idle < p->queued + s->min_spare)
		assert_true(is_at_limit);
}

static void settle(struct pool *p)
{
	dispatch(p);
	struct scaler_view v = view_of(p);
	int64_t wanted = scaler_wanted(&p->scaler, &v);
	int64_t n = scaler_to_start(&p->scaler, &v);

	assert_in_range(wanted, 0, p->scaler.max_children);
	assert_true(n >= 0);
	if (n > 0)
		assert_true(total(p) + n <= wanted);
	p->starts += n;
	for (; n > 0; n--)
		p->ready_at_us[p->starting++] = p->now_us + p->start_takes_us;
	check(p);
}

static void begin(struct pool *p, const struct pool_settings *settings, int64_t start_takes_us, int64_t run_takes_us)
{
	memset(p, 0, sizeof(*p));
	scaler_init(&p->scaler, settings);
	p->start_takes_us = start_takes_us;
	p->run_takes_us = run_takes_us;
	p->next_period_us = PERIOD;
	p->dice = 88172645463325252ULL;
	settle(p);
}

static void arrive(struct pool *p, int64_t requests)
{
	p->arrived += requests;
	p->queued += requests;
	settle(p);
}

static int64_t long_idle(const struct pool *p)
{
	int64_t count = 0;

	while (count < p->idle && scaler_idle_deadline_us(&p->scaler, p->idle_since_us[count]) <= p->now_us)
		count++;
	return count;
}

static void end_spare(struct pool *p)
{
	struct scaler_view v = view_of(p);
	v.idle = long_idle(p);
	int64_t n = scaler_spare(&p->scaler, &v);

	assert_in_range(n, 0, v.idle);
	p->idle -= n;
	p->ends += n;
	memmove(p->idle_since_us, p->idle_since_us + n, (size_t)p->idle * sizeof(p->idle_since_us[0]));
	v = view_of(p);
	assert_int_equal(scaler_to_start(&p->scaler, &v), 0); /* none that is wanted has been ended */
}

static int64_t earliest(const int64_t *times, int64_t count, int64_t before, int64_t *at)
{
	for (int64_t i = 0; i < count; i++) {
		if (times[i] > before)
			continue;
		before = times[i];
		*at = i;
	}
	return before;
}

/* The next thing that happens, if it does so until then. */
static bool step(struct pool *p, int64_t until)
{
	int64_t ready = -1, freed = -1;
	int64_t at = p->next_period_us < until ? p->next_period_us : until;

	at = earliest(p->ready_at_us, p->starting, at, &ready);
	at = earliest(p->free_at_us, p->busy, at, &freed);
	p->now_us = at;
	if (freed >= 0) {
		take(p->free_at_us, &p->busy, freed);
		p->done++;
	} else if (ready >= 0) {
		take(p->ready_at_us, &p->starting, ready);
	} else if (at == p->next_period_us) {
		p->next_period_us += PERIOD;
		settle(p);
		end_spare(p);
		return true;
	} else {
		return false;
	}
	p->idle_since_us[p->idle++] = at;
	settle(p);
	return true;
}

static void run(struct pool *p, int64_t time)
{
	int64_t until = p->now_us + time;

	while (step(p, until))
		;
}

#endif

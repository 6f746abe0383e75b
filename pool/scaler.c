#include "pool/scaler.h"

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The sum, or INT64_MAX where it would be more. Neither is negative. */
static int64_t plus(int64_t a, int64_t b)
{
	return a <= INT64_MAX - b ? a + b : INT64_MAX;
}

void scaler_init(struct scaler *s, const struct pool_settings *settings)
{
	bool is_dynamic = settings->pm == PM_DYNAMIC;
	int64_t timeout_ms = greater(settings->pm_process_idle_timeout_ms, 0);

	s->mode = (enum pm_mode)settings->pm;
	s->max_children = greater(settings->pm_max_children, 0);
	s->start_servers = is_dynamic ? greater(settings->pm_start_servers, 0) : 0;
	s->min_spare = is_dynamic ? greater(settings->pm_min_spare_servers, 0) : 0;
	/* One that is ended while it is wanted would be started again at once. */
	s->max_spare = is_dynamic ? greater(settings->pm_max_spare_servers, s->min_spare) : 0;
	s->spawn_rate = greater(settings->pm_max_spawn_rate, 1);
	s->idle_timeout_us = timeout_ms <= INT64_MAX / 1000 ? timeout_ms * 1000 : INT64_MAX;
	s->primed = false;
}

static int64_t present(const struct scaler_view *v)
{
	return plus(v->starting, plus(v->idle, v->busy));
}

/* Those that are starting may still die of it: only the others count as there. */
static int64_t dynamic_wanted(struct scaler *s, const struct scaler_view *v)
{
	int64_t wanted = plus(plus(v->busy, v->queued), s->min_spare);

	if (plus(v->idle, v->busy) >= lesser(s->start_servers, s->max_children))
		s->primed = true;
	return s->primed ? wanted : greater(wanted, s->start_servers);
}

int64_t scaler_wanted(struct scaler *s, const struct scaler_view *v)
{
	switch (s->mode) {
	case PM_DYNAMIC:
		return lesser(dynamic_wanted(s, v), s->max_children);
	case PM_ONDEMAND:
		return lesser(plus(v->busy, v->queued), s->max_children);
	case PM_STATIC:
		break;
	}
	return s->max_children;
}

int64_t scaler_to_start(struct scaler *s, const struct scaler_view *v)
{
	int64_t missing = scaler_wanted(s, v) - present(v);
	int64_t room = s->spawn_rate - v->starting;

	return greater(lesser(missing, room), 0);
}

/* The queue needs an idle one for each request: they meet in a moment. */
int64_t scaler_spare(const struct scaler *s, const struct scaler_view *v)
{
	if (s->mode == PM_STATIC)
		return 0;
	return greater(v->idle - plus(v->queued, s->max_spare), 0);
}

int64_t scaler_idle_deadline_us(const struct scaler *s, int64_t idle_since_us)
{
	return plus(s->idle_timeout_us, greater(idle_since_us, 0));
}

bool scaler_is_exhausted(const struct scaler *s, const struct scaler_view *v)
{
	return present(v) >= s->max_children && v->queued > plus(v->starting, v->idle);
}

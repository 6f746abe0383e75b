#include "fpm/watch.h"

void watch_init(struct watch *w, int64_t timeout_ms)
{
	*w = (struct watch){.timeout_ms = timeout_ms};
}

void watch_started(struct watch *w, int64_t now_ms)
{
	w->started_ms = now_ms;
	w->heard_ms = now_ms;
}

void watch_heard(struct watch *w, int64_t now_ms)
{
	w->heard_ms = now_ms;
}

int64_t watch_patience_ms(const struct watch *w, int64_t now_ms)
{
	int64_t late_at_ms = w->heard_ms + w->timeout_ms;

	if (w->timeout_ms <= 0)
		return -1;
	return late_at_ms > now_ms ? late_at_ms - now_ms : 0;
}

int64_t watch_age_ms(const struct watch *w, int64_t now_ms)
{
	return now_ms - w->started_ms;
}

static int64_t backoff_ms(unsigned failures)
{
	int64_t delay_ms = WATCH_BACKOFF_FIRST_MS;

	for (unsigned i = 2; i < failures && delay_ms < WATCH_BACKOFF_MAX_MS; i++)
		delay_ms *= 2;
	return delay_ms < WATCH_BACKOFF_MAX_MS ? delay_ms : WATCH_BACKOFF_MAX_MS;
}

/* Between 75 and 125 %, and never over the most. */
static int64_t jitter_ms(int64_t delay_ms, uint32_t dice)
{
	int64_t half_ms = delay_ms / 2;

	delay_ms = delay_ms - delay_ms / 4 + (int64_t)(dice % (uint32_t)(half_ms + 1));
	return delay_ms < WATCH_BACKOFF_MAX_MS ? delay_ms : WATCH_BACKOFF_MAX_MS;
}

int64_t watch_ended(struct watch *w, int64_t now_ms, bool hopeless, uint32_t dice)
{
	if (watch_age_ms(w, now_ms) >= WATCH_LIVED_MS)
		w->failures = 0;
	if (w->failures < UINT32_MAX)
		w->failures++;
	if (hopeless)
		return jitter_ms(WATCH_BACKOFF_MAX_MS, dice);
	return w->failures == 1 ? 0 : jitter_ms(backoff_ms(w->failures), dice);
}

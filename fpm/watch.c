#include "fpm/watch.h"

#include <limits.h>

#include "pool/backoff.h"

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

int64_t watch_ended(struct watch *w, int64_t now_ms, bool hopeless, uint32_t dice)
{
	if (watch_age_ms(w, now_ms) >= WATCH_LIVED_MS)
		w->failures = 0;
	if (w->failures < UINT_MAX)
		w->failures++;
	if (hopeless)
		return backoff_delay_ms(UINT_MAX, dice);
	return w->failures == 1 ? 0 : backoff_delay_ms(w->failures - 1, dice);
}

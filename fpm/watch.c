#include "fpm/watch.h"

#include <limits.h>

#include "pool/backoff.h"

void watch_init(struct watch *w, int64_t timeout_ms)
{
	*w = (struct watch){.timeout_ms = timeout_ms, .token_ms = INT64_MIN};
}

void watch_started(struct watch *w, int64_t now_ms)
{
	w->started_ms = now_ms;
	w->heard_ms = now_ms;
	w->ready = false;
}

void watch_heard(struct watch *w, int64_t now_ms)
{
	w->heard_ms = now_ms;
}

void watch_ready(struct watch *w)
{
	w->ready = true;
	w->failures = 0;
	w->hopeless = 0;
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

/* A token comes each WATCH_TOKEN_MS; of the past ones WATCH_BURST are kept. */
static int64_t take_token(struct watch *w, int64_t now_ms)
{
	int64_t oldest_ms = now_ms - (int64_t)(WATCH_BURST - 1) * WATCH_TOKEN_MS;

	w->token_ms = w->token_ms < oldest_ms - WATCH_TOKEN_MS ? oldest_ms : w->token_ms + WATCH_TOKEN_MS;
	return w->token_ms > now_ms ? w->token_ms - now_ms : 0;
}

static int64_t back_off(struct watch *w, int64_t now_ms, uint32_t dice)
{
	if (watch_age_ms(w, now_ms) >= WATCH_LIVED_MS)
		w->failures = 0;
	if (w->failures < UINT_MAX)
		w->failures++;
	return w->failures == 1 ? 0 : backoff_delay_ms(w->failures - 1, dice);
}

int64_t watch_ended(struct watch *w, int64_t now_ms, bool hopeless, uint32_t dice)
{
	if (hopeless)
		return ++w->hopeless < WATCH_HOPELESS ? backoff_delay_ms(UINT_MAX, dice) : -1;
	w->hopeless = 0;
	return w->ready ? take_token(w, now_ms) : back_off(w, now_ms, dice);
}

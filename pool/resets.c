#include "pool/resets.h"

enum {
	AGE_WEIGHT = 8, /* the average is over about so many */
	AGE_FACTOR = 2, /* held back for so many times the average */
	MILLI = 1000,
};

uint32_t resets_hash(uint32_t h, const void *data, size_t len)
{
	for (const uint8_t *at = data, *end = at + len; at < end; at++)
		h = (h ^ *at) * 16777619u; /* FNV-1a */
	return h;
}

void resets_init(struct resets *t)
{
	*t = (struct resets){0};
}

static int64_t count_now(const struct resets_flow *f, int64_t now_us)
{
	int64_t gone = (now_us - f->at_us) * RESETS_A_SECOND / MILLI;

	return f->count_milli > gone ? f->count_milli - gone : 0;
}

void resets_on_abort(struct resets *t, uint32_t flow, int64_t age_us, int64_t now_us)
{
	struct resets_flow *f = &t->flows[flow % RESETS_SLOTS];
	int64_t count = count_now(f, now_us);

	if (count == 0)
		f->age_us = age_us;
	else
		f->age_us += (age_us - f->age_us) / AGE_WEIGHT;
	count += MILLI;
	f->count_milli = count < RESETS_MAX * (int64_t)MILLI ? count : RESETS_MAX * (int64_t)MILLI;
	f->at_us = now_us;
}

int64_t resets_hold_us(const struct resets *t, uint32_t flow, int64_t now_us)
{
	const struct resets_flow *f = &t->flows[flow % RESETS_SLOTS];
	int64_t hold_us = f->age_us * AGE_FACTOR;

	if (count_now(f, now_us) < RESETS_FREE * (int64_t)MILLI)
		return 0;
	if (hold_us < RESETS_HOLD_MIN_US)
		return RESETS_HOLD_MIN_US;
	return hold_us < RESETS_HOLD_MAX_US ? hold_us : RESETS_HOLD_MAX_US;
}

#include "pool/recycle.h"

/* 0 … whole - 1, each as likely; of nothing, nothing. Random numbers of 31
 * bits, as random()'s are, do as well: the product has all 32. */
static uint64_t draw(uint64_t whole, uint32_t dice)
{
	uint64_t mixed = (uint32_t)(dice * 2654435761U);

	return (whole >> 32) * mixed + (((whole & UINT32_MAX) * mixed) >> 32);
}

/* One before the last at the latest, where there is one, so that the
 * replacement has the time of a request to start. */
static uint64_t due_requests(uint64_t max, uint32_t dice)
{
	return max > 1 ? max - 1 - draw(max / 10, dice) : 1;
}

static int64_t due_us(int64_t lifetime_ms, int64_t now_us, uint32_t dice)
{
	int64_t life_us = lifetime_ms <= INT64_MAX / 1000 ? lifetime_ms * 1000 : INT64_MAX;

	life_us -= (int64_t)draw((uint64_t)life_us / 10 + 1, dice);
	return now_us <= INT64_MAX - life_us ? now_us + life_us : INT64_MAX;
}

void recycle_init(struct recycle *r, const struct pool_settings *settings, int64_t now_us, uint32_t dice)
{
	*r = (struct recycle){UINT64_MAX, UINT64_MAX, INT64_MAX, INT64_MAX};
	if (settings->pm_max_requests > 0) {
		r->max_requests = (uint64_t)settings->pm_max_requests;
		r->due_requests = due_requests(r->max_requests, dice);
	}
	if (settings->worker_max_lifetime_ms > 0)
		r->due_us = due_us(settings->worker_max_lifetime_ms, now_us, dice);
	if (settings->worker_max_memory_bytes > 0)
		r->max_memory_bytes = settings->worker_max_memory_bytes;
}

const char *recycle_due(const struct recycle *r, uint64_t given, int64_t now_us, int64_t memory_bytes)
{
	if (given >= r->due_requests)
		return "pm.max_requests";
	if (memory_bytes > r->max_memory_bytes)
		return "worker.max_memory";
	if (r->due_us != INT64_MAX && now_us >= r->due_us)
		return "worker.max_lifetime";
	return NULL;
}

bool recycle_is_spent(const struct recycle *r, uint64_t given)
{
	return given >= r->max_requests;
}

int64_t recycle_cap(int64_t max_children)
{
	return max_children < 10 ? 1 : max_children / 10;
}

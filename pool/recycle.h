/* When a worker has served its time: pm.max_requests, worker.max_lifetime and
 * worker.max_memory. Pure: time, memory and dice are passed in.
 *
 * A worker is due a little before its limit, at a point of its own, so that
 * workers that were born together are not replaced together, and so that its
 * replacement is up before it goes. Over the limit of requests it gets none:
 * request N + 1 never reaches it. Of a pool at most a tenth is replaced at one
 * time, one at least. */
#ifndef H2FPM_POOL_RECYCLE_H
#define H2FPM_POOL_RECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/settings.h"

struct recycle {
	uint64_t due_requests;  /* from the dispatch of this one on; UINT64_MAX: never */
	uint64_t max_requests;  /* that many and no more; UINT64_MAX: any number */
	int64_t due_us;         /* from this time on; INT64_MAX: never */
	int64_t max_memory_bytes; /* INT64_MAX: any */
};

/* For a worker that was born now: the limit of requests less up to a tenth,
 * but at the last request at the latest; the lifetime less up to a tenth. */
void recycle_init(struct recycle *r, const struct pool_settings *settings, int64_t now_us, uint32_t dice);
/* Why it is due, for the log (a constant); NULL: it is not. given: requests
 * that it was given so far, the running one included. */
const char *recycle_due(const struct recycle *r, uint64_t given, int64_t now_us, int64_t memory_bytes);
/* It must not be given another. */
bool recycle_is_spent(const struct recycle *r, uint64_t given);
/* How many may be replaced at one time. */
int64_t recycle_cap(int64_t max_children);

#endif

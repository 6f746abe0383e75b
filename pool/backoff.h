/* Growing delays between attempts that fail: the first is short, each further
 * one twice as long up to a cap, all with jitter so that pools which failed
 * together do not retry together. Pure: randomness is passed in. */
#ifndef H2FPM_POOL_BACKOFF_H
#define H2FPM_POOL_BACKOFF_H

#include <stdint.h>

enum { BACKOFF_FIRST_MS = 100, BACKOFF_CAP_MS = 30000 };

struct backoff {
	unsigned failures; /* in a row */
};

/* The delay after that many failures in a row (0 as 1). */
int64_t backoff_delay_ms(unsigned failures, uint32_t random);
/* Counts a failure; the delay before the next attempt in milliseconds, within
 * ±25% of the nominal one and never over the cap. Any random number does. */
int64_t backoff_fail(struct backoff *b, uint32_t random);
void backoff_succeed(struct backoff *b);

#endif

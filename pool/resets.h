/* Who gives its requests up again and again: a reset flood (many HTTP/2 streams
 * opened and cancelled at once) would have the workers run scripts for nobody.
 * Its next requests are held back for about as long as the last ones lived, so
 * that they are given up before they cost a worker. Pure: the time is passed
 * in; a fixed table, in which flows that hash alike share their fate. */
#ifndef H2FPM_POOL_RESETS_H
#define H2FPM_POOL_RESETS_H

#include <stddef.h>
#include <stdint.h>

enum {
	RESETS_SLOTS = 1024,
	RESETS_FREE = 128,       /* so many at once are what a browser does that leaves a page */
	RESETS_A_SECOND = 64,    /* and so many are forgotten in a second */
	RESETS_MAX = 2 * RESETS_FREE,
	RESETS_HOLD_MIN_US = 5000,
	RESETS_HOLD_MAX_US = 1000000,
};

struct resets {
	struct resets_flow {
		int64_t count_milli; /* thousandths, as of at_us */
		int64_t at_us;
		int64_t age_us; /* of those given up, on average */
	} flows[RESETS_SLOTS];
};

/* Names a flow: h is RESETS_HASH, or what was made of other data before. */
#define RESETS_HASH 2166136261u
uint32_t resets_hash(uint32_t h, const void *data, size_t len);

void resets_init(struct resets *t);
/* A request of the flow was given up, age_us after it had begun. */
void resets_on_abort(struct resets *t, uint32_t flow, int64_t age_us, int64_t now_us);
/* How long a new one is to be held back; 0: not at all. */
int64_t resets_hold_us(const struct resets *t, uint32_t flow, int64_t now_us);

#endif

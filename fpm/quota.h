/* process.max: who may start how many workers, over all pools. Pure. Every
 * pool gets one place before any gets a second that would be the last (as far
 * as there are so many places); beyond that, those that want one take turns.
 * What a pool says is gossip: it cannot give back more than it holds. */
#ifndef H2FPM_FPM_QUOTA_H
#define H2FPM_FPM_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota_share {
	int64_t held;
	int64_t wanted; /* more than it holds */
	bool absent;    /* disabled or stopping: nothing is kept for it */
};

struct quota {
	int64_t max;
	int64_t free;
	struct quota_share *shares; /* one for each pool; owned */
	size_t count;
	size_t turn; /* whose turn it is */
};

bool quota_init(struct quota *q, int64_t max, size_t pools) __attribute__((warn_unused_result));
void quota_fini(struct quota *q);
/* The pool would start so many more. */
void quota_want(struct quota *q, size_t pool, int64_t n);
/* False: it does not hold so many; nothing is changed. */
bool quota_return(struct quota *q, size_t pool, int64_t n) __attribute__((warn_unused_result));
/* Its process is gone, and all of its places are free. */
void quota_reset(struct quota *q, size_t pool);
/* Nothing is kept for it any more. */
void quota_leave(struct quota *q, size_t pool);
/* The next grant: which pool may start how many; false: none can be made. */
bool quota_next(struct quota *q, size_t *pool, int64_t *n);

#endif

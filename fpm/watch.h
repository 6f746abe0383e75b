/* When a pool process is late and when a dead one is started again. Pure: the
 * time and the dice are passed in, nothing is read or written, nothing fails.
 *
 * Restarts: at once the first time, then after 100, 200, 400 … ms up to 30 s,
 * each with 25 % of jitter so that pools that died together do not come back
 * together. A process that lived 10 s has earned a new first time. One that
 * exits saying that its configuration is wrong waits the longest at once:
 * trying sooner cannot help. */
#ifndef H2FPM_FPM_WATCH_H
#define H2FPM_FPM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_LIVED_MS = 10000 };

struct watch {
	int64_t timeout_ms; /* 0: heartbeats are not asked for */
	int64_t started_ms;
	int64_t heard_ms;
	unsigned failures; /* short lives in a row */
};

void watch_init(struct watch *w, int64_t timeout_ms);
void watch_started(struct watch *w, int64_t now_ms);
void watch_heard(struct watch *w, int64_t now_ms);

/* Milliseconds until the process is late, 0 when it is, -1 when never. */
int64_t watch_patience_ms(const struct watch *w, int64_t now_ms);
/* Milliseconds since it was started. */
int64_t watch_age_ms(const struct watch *w, int64_t now_ms);

/* The process ended: how long to wait before the next. dice is any random
 * number; hopeless: it said that its configuration is wrong. */
int64_t watch_ended(struct watch *w, int64_t now_ms, bool hopeless, uint32_t dice) __attribute__((warn_unused_result));

#endif

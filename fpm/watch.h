/* When a pool process is late and when a dead one is started again. Pure: the
 * time and the dice are passed in, nothing is read or written, nothing fails.
 *
 * Restarts of one that was ready: at once, WATCH_BURST of them in a row and one
 * more each second; beyond that it waits for its second, never for longer.
 *
 * Of one that never became ready: at once the first time, then after 100, 200,
 * 400 … ms up to 30 s, each with 25 % of jitter so that pools that died together
 * do not come back together. A process that lived 10 s has earned a new first
 * time. One that exits saying that its configuration is wrong waits the longest
 * at once, since trying sooner cannot help, and after WATCH_HOPELESS of these
 * in a row there is no other try. */
#ifndef H2FPM_FPM_WATCH_H
#define H2FPM_FPM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
	WATCH_LIVED_MS = 10000,
	WATCH_BURST = 10,
	WATCH_TOKEN_MS = 1000,
	WATCH_HOPELESS = 5,
};

struct watch {
	int64_t timeout_ms; /* 0: heartbeats are not asked for */
	int64_t started_ms;
	int64_t heard_ms;
	int64_t token_ms;   /* when the latest restart's token came to be */
	bool ready;         /* this process has been */
	unsigned failures;  /* short lives in a row, never ready */
	unsigned hopeless;  /* wrong configurations in a row */
};

void watch_init(struct watch *w, int64_t timeout_ms);
void watch_started(struct watch *w, int64_t now_ms);
void watch_heard(struct watch *w, int64_t now_ms);
void watch_ready(struct watch *w);

/* Milliseconds until the process is late, 0 when it is, -1 when never. */
int64_t watch_patience_ms(const struct watch *w, int64_t now_ms);
/* Milliseconds since it was started. */
int64_t watch_age_ms(const struct watch *w, int64_t now_ms);

/* The process ended: how long to wait before the next; -1: none any more. dice
 * is any random number; hopeless: it said that its configuration is wrong. */
int64_t watch_ended(struct watch *w, int64_t now_ms, bool hopeless, uint32_t dice) __attribute__((warn_unused_result));

#endif

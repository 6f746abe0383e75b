/* How many workers a pool should have: php-fpm's pm modes, driven by demand
 * rather than by a tick of a second. Pure policy: what there is and the time
 * are passed in, nothing is started or read, nothing fails.
 *
 *   static    always max_children
 *   dynamic   start_servers at first; then one for each request that runs or
 *             waits and min_spare more; idle ones over max_spare go when they
 *             have been idle for the idle timeout
 *   ondemand  one for each request that runs or waits; idle ones go by the
 *             same timeout, to none
 *
 * Never more than max_children. Not more than spawn_rate are starting at one
 * time (php-fpm: at once in a tick). A worker that is being replaced (see
 * recycle.h) is no part of the view, so that somebody else is wanted for it. */
#ifndef H2FPM_POOL_SCALER_H
#define H2FPM_POOL_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/settings.h"

struct scaler {
	enum pm_mode mode;
	int64_t max_children;
	int64_t start_servers;
	int64_t min_spare;
	int64_t max_spare;
	int64_t spawn_rate;
	int64_t idle_timeout_us;
	bool primed; /* the first start_servers have been there */
};

/* What there is now. */
struct scaler_view {
	int64_t starting;
	int64_t idle;
	int64_t busy;   /* with a request, or not yet free of one */
	int64_t queued; /* requests that wait for a worker */
};

void scaler_init(struct scaler *s, const struct pool_settings *settings);
/* How many workers there should be, 0 … max_children. */
int64_t scaler_wanted(struct scaler *s, const struct scaler_view *v);
/* How many to start now: those that are wanted and not there, as many as the
 * spawn rate leaves room for. */
int64_t scaler_to_start(struct scaler *s, const struct scaler_view *v);
/* How many idle ones may go, the longest idle first. Count as idle here those
 * alone that are so for the timeout: they were not needed in that time, and
 * max_spare of them stay. Were all counted, the lull after each peak of a load
 * that comes in waves would cost the peak's own spare ones, which have waited
 * for long, and the next peak would start them anew. */
int64_t scaler_spare(const struct scaler *s, const struct scaler_view *v);
/* When a worker that is idle since then may go. */
int64_t scaler_idle_deadline_us(const struct scaler *s, int64_t idle_since_us);
/* True while requests wait and max_children forbids one more worker. */
bool scaler_is_exhausted(const struct scaler *s, const struct scaler_view *v);

#endif

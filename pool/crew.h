/* How many workers a pool has: starts them, replaces the dead at once, backs
 * off when they die at start, and hands queued requests to idle ones. The
 * only place that decides; worker.c only reports. */
#ifndef H2FPM_POOL_CREW_H
#define H2FPM_POOL_CREW_H

#include <stdbool.h>

struct broker;
struct worker;

bool crew_init(struct broker *b) __attribute__((warn_unused_result));
void crew_fini(struct broker *b);
/* Starts what is missing, if no delay is running. */
void crew_fill(struct broker *b);
/* Hands queued requests to idle workers while there are both. */
void crew_dispatch(struct broker *b);
/* True when workers keep dying at start and none is left: requests that come
 * now would only wait for their timeout. */
bool crew_is_broken(const struct broker *b);
/* One died at start, by itself: the next attempt waits. */
void crew_on_start_failure(struct broker *b);
/* Ends all workers; the pool is stopping. */
void crew_stop(struct broker *b, bool at_once);
/* No process left, not even one that is stopping. */
bool crew_is_empty(const struct broker *b);

#endif

/* How many workers a pool has, and who serves: starts them (from a zygote or
 * one by one) as scaler.c wants, backs off when they die at start, and hands
 * queued requests to idle ones. Who leaves is turnover.c's; these two decide,
 * worker.c and zygote.c report. */
#ifndef H2FPM_POOL_CREW_H
#define H2FPM_POOL_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/scaler.h"

struct broker;
struct worker;

bool crew_init(struct broker *b) __attribute__((warn_unused_result));
void crew_fini(struct broker *b);
/* At the end of a loop turn: does what its events have made possible. */
void crew_turn(struct broker *b);
/* True when workers keep dying at start and none is left: requests that come
 * now would only wait for their timeout. */
bool crew_is_broken(const struct broker *b);
/* One died at start, by itself: the next attempt waits. */
void crew_on_start_failure(struct broker *b);
/* A zygote's worker. Takes the descriptors over; NULL: out of memory, and they
 * are still the caller's. */
struct worker *crew_on_birth(struct broker *b, pid_t pid, int socket_fd, int err_fd) __attribute__((warn_unused_result));

/* Workers that are being replaced. */
int64_t crew_recycling(const struct broker *b);
/* What there is, as scaler.h wants it: whoever is being replaced is not in it,
 * but somebody is wanted in its place. */
struct scaler_view crew_view(const struct broker *b);

/* The master allows n more workers (process.max). */
void crew_on_grant(struct broker *b, uint32_t n);

/* Ends all workers; the pool is stopping. */
void crew_stop(struct broker *b, bool at_once);
/* No process left, not even one that is stopping. */
bool crew_is_empty(const struct broker *b);

#endif

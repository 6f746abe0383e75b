/* The queue of complete requests that wait for a worker: first come, first
 * served, bounded in number and in waiting time. Some are held back first, for
 * a time of their own (resets.h), and count as waiting for nobody until then.
 * Pure policy: the time is passed in, nothing is allocated, and entries are
 * embedded in their owners. */
#ifndef H2FPM_POOL_QUEUE_H
#define H2FPM_POOL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/list.h"

struct queue_entry {
	struct list node;
	int64_t since_us;
	int64_t held_until_us; /* 0: not held back */
};

struct queue {
	struct list entries; /* oldest first */
	struct list held;    /* soonest first */
	int64_t length;      /* of entries */
	int64_t held_length;
	int64_t max;
	int64_t timeout_us; /* 0: no limit */
};

void queue_init(struct queue *q, int64_t max, int64_t timeout_us);
bool queue_full(const struct queue *q);
/* The queue must not be full. */
void queue_push(struct queue *q, struct queue_entry *e, int64_t now_us);
/* Held back until then; since_us: when its waiting began. It must not be on the
 * queue, nor that be full unless the entry was on it before. */
void queue_hold(struct queue *q, struct queue_entry *e, int64_t since_us, int64_t until_us);
/* Lets those in whose time has come. */
void queue_release(struct queue *q, int64_t now_us);
/* When the next one's time comes; -1: none is held back. */
int64_t queue_release_us(const struct queue *q);
/* Back among the first, by its age and with its waiting time counted on: for a
 * request whose worker was lost. It had its place before, so that a full queue
 * takes it as well. */
void queue_push_back_to_front(struct queue *q, struct queue_entry *e);
void queue_remove(struct queue *q, struct queue_entry *e);
/* The next one to run, which stays queued until removed; NULL: none. */
struct queue_entry *queue_peek(const struct queue *q);
/* The oldest entry if it has waited its time or longer; NULL: none has. */
struct queue_entry *queue_expired(const struct queue *q, int64_t now_us);
/* When the oldest entry's time is over; -1: never. */
int64_t queue_deadline_us(const struct queue *q);

#endif

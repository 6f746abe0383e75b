/* A php-cgi that is started once and set up once, and then forks the workers:
 * they share its loaded extensions, opcache's memory and what opcache.preload
 * brought. gate.c is what makes it wait for orders; this is the broker's side.
 *
 *    LOADING ──the gate is in──► STARTING ──PHP has started──► READY
 *       └──────────┴── ended, died or late ──► ENDED ◄──────────┘
 *
 * An order is a worker's private listening socket and the pipe for its
 * standard error; the answer comes from the new worker itself, and the kernel
 * says which process that is. What a zygote says is checked: an answer to no
 * order, or from a process that is no child of ours, is dropped.
 *
 * All that live are on the broker's list; crew.c decides which one is used. */
#ifndef H2FPM_POOL_ZYGOTE_H
#define H2FPM_POOL_ZYGOTE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/words.h"
#include "protocol/list.h"

struct broker;

enum zygote_state { ZYGOTE_LOADING, ZYGOTE_STARTING, ZYGOTE_READY, ZYGOTE_ENDED };

enum { ZYGOTE_LOAD_MS = 10000 }; /* for the gate to come up: it is there before PHP is */

struct zygote {
	struct list node; /* of the broker's zygotes */
	enum zygote_state state;
	struct broker *broker;
	pid_t pid;
	bool exited; /* reaped: the number may be another's */
	bool failed; /* by a signal that was not ours, or it said so by its status */
	int link; /* -1: closed */
	struct ev_io io;
	struct ev_timer timer; /* LOADING, STARTING: its patience */
	struct list orders; /* not answered yet */
	uint32_t last_order;
	int64_t started_us;
	struct words words;
};

/* Whether the pool's workers are to come from one: by worker.spawn and, where
 * that is auto, by the command's name. */
bool zygote_is_meant(const struct broker *b);
/* NULL with errno set: no process was started. */
struct zygote *zygote_start(struct broker *b);
/* Orders one worker; READY only. False with errno set: not now. */
bool zygote_order(struct zygote *z) __attribute__((warn_unused_result));
/* Ends it: what it has said is heard, no more is. Its orders fail; its workers go on. */
void zygote_end(struct zygote *z);
/* Reads what they have said. To be called before a process that nobody knows
 * is taken for a stranger: a worker may have been born, and have died. */
void zygote_listen(struct broker *b);
/* Once in a while, such as at each heartbeat: orders whose worker has died before
 * it could say so are given up, and so is a zygote that carries none out. */
void zygote_tick(struct broker *b);
/* The process was reaped. False: it was no zygote. */
bool zygote_on_exit(struct broker *b, pid_t pid, int status);
/* Frees those that ended. */
void zygote_collect(struct broker *b);

#endif

/* One worker: a FastCGI program with a private listening socket, on which the
 * broker keeps one connection and runs one request at a time.
 *
 *    STARTING ──probe answered──► IDLE ◄──answer complete── BUSY
 *        │                         │ ▲                        │
 *        │                         │ └─probe answered─ FREEING ◄─client left, connection lost
 *        │                         └────────dispatch────────► BUSY
 *        └── any ──told to end──► STOPPING ──reaped──► DEAD (any state, when it dies)
 *
 * The probe is FCGI_GET_VALUES on a new connection: a worker that answers is
 * in its accept loop, so it has started, or its aborted script has ended. The
 * answer leaves the connection usable. States are lists, as with requests. */
#ifndef H2FPM_POOL_WORKER_H
#define H2FPM_POOL_WORKER_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "pool/recycle.h"
#include "pool/wire.h"
#include "pool/words.h"
#include "protocol/list.h"

struct broker;
struct request;

enum worker_state { WORKER_STARTING, WORKER_IDLE, WORKER_BUSY, WORKER_FREEING, WORKER_STOPPING, WORKER_DEAD, WORKER_STATES };

/* Whether it is to be replaced: DUE ones wait for their turn, RECYCLING ones
 * serve on until their replacement is up. */
enum worker_leaving { WORKER_STAYS, WORKER_DUE, WORKER_RECYCLING };

enum {
	WORKER_KILL_GRACE_S = 1, /* between SIGTERM and SIGKILL */
	WORKER_LEAVE_MS = 500,   /* between the gate's signal and SIGTERM */
	WORKER_SHUTDOWN_S = 5,   /* the same for one that was idle: PHP takes down what it has set up */
	WORKER_REPROBE_MS = 100,
};

struct worker {
	struct list node;
	enum worker_state state;
	struct broker *broker;
	pid_t pid;
	int socket_fd; /* O_PATH: what connect() goes to */
	struct wire wire;
	struct ev_timer timer; /* of the state: start, terminate or kill */
	struct ev_timer probe_timer;
	uint8_t end_body[8]; /* END_REQUEST cut into pieces */
	uint8_t end_have;
	uint32_t reprobes;
	struct request *request; /* BUSY only */
	bool ready_once;         /* it answered a probe in its life */
	bool exited;             /* reaped; only its last bytes are still read */
	bool told_to_end;        /* its death is ours */
	bool has_gate;           /* it was forked by a zygote */
	bool is_asked;           /* STOPPING: by the gate's signal, and SIGTERM is still to come */
	enum worker_leaving leaving;
	uint32_t generation; /* the broker's when it was born */
	struct recycle recycle;
	int statm_fd; /* its /proc/PID/statm, where memory is limited; -1: not */
	uint64_t given;    /* requests that were sent to it */
	uint64_t requests; /* that it has answered */
	int64_t started_us;
	int64_t idle_since_us; /* IDLE only */
	int64_t proven_us; /* when it last answered a probe */
	int64_t paused_us; /* since when it is paused */
	bool paced;        /* it is not read from until the next tick */
	char last_request[768];            /* what it ran when it was lost */
	struct words words;
};

/* Takes over a spawned process and its descriptors; NULL: out of memory
 * (they are still the caller's). The worker is STARTING. */
struct worker *worker_new(struct broker *b, pid_t pid, int socket_fd, int err_fd);
/* Hands it the request. False: it could not take it (nothing was sent that it
 * could have run) and is no longer IDLE. */
bool worker_dispatch(struct worker *w, struct request *r) __attribute__((warn_unused_result));
/* Whether an idle worker is known to have lived after a moment; if not, it can
 * be asked (it is IDLE again once it answers). A write to one that was just
 * killed succeeds, so a request that has lost a worker goes to a proven one. */
bool worker_is_proven(const struct worker *w, int64_t since_us);
void worker_prove(struct worker *w);
/* The client of its request has gone: ends the script at its next output. */
void worker_abort(struct worker *w);
/* Whether it is not read from, since its request's answer waits for the client. */
bool worker_is_paused(const struct worker *w);
/* The client took bytes: reading goes on. */
void worker_resume(struct worker *w);
/* Paused workers that others wait for are relieved: their answers spill. */
void worker_on_relief_timer(struct broker *b);
/* Those that were read from slowly may be read from once more. */
void worker_on_pace_timer(struct broker *b);
/* SIGTERM, then SIGKILL. reason: for the log's debug lines. */
void worker_stop(struct worker *w, const char *reason);
/* By its process; NULL: it is none. */
struct worker *worker_find(struct broker *b, pid_t pid);
/* The process was reaped. */
void worker_on_exit(struct worker *w, int status, const struct rusage *usage);
void worker_collect(struct broker *b);

#endif

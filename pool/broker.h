/* One pool's broker: the state that its modules share, and their map.
 *
 *   frontend  listening sockets, and the account of descriptors
 *   conn      a front end's connection: bytes ⇄ mux events
 *   output    what goes out on it: its answers in turns (pure)
 *   answer    a request's answer, in memory or in a nameless file
 *   intake    a request's parameters and body: may it run?
 *   request   its life from there to its access-log line
 *   queue     which request is next (pure)
 *   resets    whose requests are to wait and see, in a reset flood (pure)
 *   worker    a worker's states
 *   wire      its private connection: a request's way there
 *   exitstatus  how a process ended, in words (pure)
 *   words     what a worker writes to standard error
 *   crew      how many workers there are: starting, dispatching, backing off
 *   turnover  who leaves: the idle, those that have served their time, all
 *   scaler    how many there should be (pure)
 *   recycle   when one has served its time (pure)
 *   zygote    php-cgi started once, to fork the workers; gate.c is inside it
 *   spawn     fork + exec of one process with its private listening socket
 *   oom       whether the kernel's out-of-memory killer was at work
 *   phpini    php-cgi's settings, and the protection of the admin ones
 *   backoff   growing delays with jitter (pure)
 *   meta      what the broker reads from a request's parameters (pure)
 *   script    which file PHP would run, and whether it may
 *   spool     a request's body, in memory or in an unlinked file
 *   reply     the answers that need no worker
 *   access    the access log's lines (pure)
 *   allow     listen.allowed_clients (pure)
 *
 * Single-threaded, one libev loop; nothing blocks after start-up. What dies
 * is put on a retired list and freed by pool.c at the end of the loop turn,
 * so that no callback frees what its caller still holds. */
#ifndef H2FPM_POOL_BROKER_H
#define H2FPM_POOL_BROKER_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

#include "fpm/log.h"
#include "pool/allow.h"
#include "pool/backoff.h"
#include "pool/oom.h"
#include "pool/phpini.h"
#include "pool/queue.h"
#include "pool/request.h"
#include "pool/resets.h"
#include "pool/scaler.h"
#include "pool/script.h"
#include "pool/settings.h"
#include "pool/worker.h"
#include "protocol/list.h"
#include "protocol/mux.h"

enum { BROKER_SCRATCH_BYTES = 65536 };

/* Monotonic counters since the pool process started. */
struct counters {
	uint64_t connections;
	uint64_t accepted; /* requests begun */
	uint64_t finished; /* answers by workers, complete */
	uint64_t replied;  /* answers without a worker: 4xx, 5xx, ping */
	uint64_t replies[REPLY_COUNT]; /* of these, by what was said */
	uint64_t overloaded; /* requests refused by mpxs.max_requests */
	uint64_t send_timeouts; /* connections closed for taking nothing */
	uint64_t spilled;    /* answers put into a file since others wanted the worker */
	uint64_t cancelled_queued;
	uint64_t cancelled_running;
	uint64_t held_back; /* requests, in a reset flood */
	uint64_t retried;
	uint64_t cut; /* answers that could not be completed */
	uint64_t bad_connections;
	uint64_t refused_clients;
	uint64_t crashes;
	uint64_t recycled; /* workers that were replaced because they had served their time */
	uint64_t exhausted; /* times that pm.max_children was reached */
};

/* Where a pool is in its own life. */
enum broker_phase {
	BROKER_SERVING,
	BROKER_DRAINING, /* no new connections; what is here is finished */
	BROKER_STOPPING, /* waiting for the workers to be gone */
};

struct broker {
	struct ev_loop *loop;
	const struct pool_settings *settings;
	enum broker_phase phase;

	/* frontend, conn */
	struct ev_io *listeners;
	int listener_count;
	bool accepting;
	struct ev_timer accept_timer; /* after EMFILE and its kind */
	struct mux_limits limits;
	struct allow allow;
	struct list conns; /* open ones */
	struct list lingering;
	struct ev_timer linger_timer;
	struct list blocked_conns; /* of the open ones: their output waits for room */
	struct ev_timer stall_timer; /* response.send_timeout of the first of these */
	struct list dirty_conns; /* of the open ones: to be flushed at the turn's end */
	struct list retired_conns;
	int64_t conn_count; /* descriptors in use by clients */
	int64_t spool_count; /* and by spool files */
	int64_t descriptor_max; /* for both together */

	/* request: one list a state, but for the queue */
	struct list requests[REQUEST_STATES];
	struct queue queue;
	struct resets resets;
	struct ev_timer queue_timer;
	struct ev_timer hold_timer; /* the next one of those that are held back may go on */
	struct ev_timer receive_timer;
	struct ev_timer pace_timer;   /* some worker is read from slowly */
	struct ev_timer relief_timer; /* some worker is held up by a slow reader */
	struct list free_requests;
	size_t free_request_count;
	struct script_judge judge;

	/* worker, crew */
	struct list workers[WORKER_STATES]; /* by enum worker_state */
	int64_t worker_counts[WORKER_STATES]; /* how many are on each */
	int64_t recycling_counts[WORKER_STATES]; /* of these, WORKER_RECYCLING ones */
	int64_t due_count; /* WORKER_DUE ones */
	int64_t births;    /* ordered from a zygote and not yet born */
	uint32_t generation; /* of workers: older ones are to be replaced */
	struct scaler scaler;
	bool exhausted; /* requests wait and pm.max_children is reached */
	struct backoff start_backoff;
	struct ev_timer start_timer;  /* active: nothing is started meanwhile */
	struct ev_timer retire_timer; /* the longest idle one may go */
	struct ev_timer lifetime_timer; /* worker.max_lifetime */
	bool refuse_waiting; /* see whether the queue waits in vain */
	int64_t *faults; /* when the last emergency_restart_threshold ones died so, in turn */
	int64_t fault_count;
	struct oom oom;
	struct phpini phpini;
	char **worker_argv;
	char **worker_envp;
	struct rlimit worker_nofile; /* as it was before the broker raised its own */

	/* zygote */
	bool uses_zygote;
	struct list zygotes; /* all that live */
	struct zygote *zygote; /* that forks the workers; NULL: none */
	struct zygote *next_zygote; /* that is to take its place; NULL: none */
	bool renew_again; /* asked for while one was being started */
	bool hopeful; /* somebody asked for it, who may have mended what keeps workers from starting */
	char **zygote_envp;
	int gate_image; /* -1: there is none */

	/* process.max: places that the master has granted, and those asked for */
	int64_t granted;
	int64_t wanted_told;
	int64_t lacking_since_us; /* some are wanted and not granted since then; 0: none */

	/* pool */
	struct ev_io link_io;
	struct ev_timer heartbeat_timer;
	struct ev_timer stop_timer;
	struct ev_prepare turn;
	struct ev_idle again; /* active: the loop is not to sleep before the next turn */
	struct ev_signal child_signal;
	struct ev_signal term_signal, int_signal, quit_signal;
	struct buf access_lines; /* written once a loop turn */
	pid_t pid; /* our own */
	struct counters counters;
	/* one for each kind of message, so that none hides another */
	struct log_gate bad_gate, client_gate, script_gate, full_gate, late_gate;
	struct log_gate accept_gate, descriptor_gate, spool_gate, spill_gate, stall_gate, overload_gate, memory_gate, gossip_gate, exhausted_gate, start_gate;
	uint8_t scratch[BROKER_SCRATCH_BYTES]; /* what was just read; never kept */
};

/* Microseconds of CLOCK_MONOTONIC. */
static inline int64_t broker_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A one-shot timer armed in seconds from now (libev's clock may be stale). */
static inline void broker_arm(struct broker *b, struct ev_timer *timer, double seconds)
{
	ev_timer_stop(b->loop, timer);
	ev_timer_set(timer, seconds + (double)ev_time() - ev_now(b->loop), 0.);
	ev_timer_start(b->loop, timer);
}

#endif

#include "pool/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/conn.h"
#include "pool/gate_image.h"
#include "pool/link.h"
#include "pool/request.h"
#include "pool/scaler.h"
#include "pool/spawn.h"
#include "pool/turnover.h"
#include "pool/worker.h"
#include "pool/zygote.h"

enum {
	/* After so many deaths at start in a row with no worker left, requests are
	 * answered at once: their time in the queue would be wasted. */
	BROKEN_AFTER_FAILURES = 5,
	EXHAUSTED_INTERVAL_MS = 60000,
	CROWD_MIN = 8,
};

/* ---- what there is ---- */

int64_t crew_recycling(const struct broker *b)
{
	int64_t n = 0;

	for (int state = 0; state < WORKER_STOPPING; state++)
		n += b->recycling_counts[state];
	return n;
}

static int64_t stable(const struct broker *b, enum worker_state state)
{
	return b->worker_counts[state] - b->recycling_counts[state];
}

/* Whoever is being replaced is not in it, but somebody is wanted in its place. */
struct scaler_view crew_view(const struct broker *b)
{
	return (struct scaler_view){
		.starting = stable(b, WORKER_STARTING) + b->births,
		.idle = stable(b, WORKER_IDLE),
		.busy = stable(b, WORKER_BUSY) + stable(b, WORKER_FREEING),
		.queued = b->queue.length + crew_recycling(b),
	};
}

/* Processes that are there or about to be, for process.max. */
static int64_t processes(const struct broker *b)
{
	int64_t n = b->births;

	for (int state = 0; state < WORKER_DEAD; state++)
		n += b->worker_counts[state];
	return n;
}

static bool has_failed(const struct broker *b)
{
	return b->start_backoff.failures > 0;
}

bool crew_is_broken(const struct broker *b)
{
	return b->start_backoff.failures >= BROKEN_AFTER_FAILURES && b->worker_counts[WORKER_IDLE] == 0 &&
	       b->worker_counts[WORKER_BUSY] == 0 && b->worker_counts[WORKER_FREEING] == 0;
}

/* ---- starting ---- */

struct worker *crew_on_birth(struct broker *b, pid_t pid, int socket_fd, int err_fd)
{
	struct worker *w = worker_new(b, pid, socket_fd, err_fd);

	if (!w) {
		log_error("a worker cannot be started: out of memory");
		kill(pid, SIGKILL);
		return NULL;
	}
	log_debug("child %d started", (int)pid);
	return w;
}

static bool start_by_exec(struct broker *b)
{
	struct spawn_result spawned;
	const struct spawn_plan plan = {
		.settings = b->settings,
		.argv = b->worker_argv,
		.envp = b->worker_envp,
		.nofile = b->worker_nofile,
		.gate_link = -1,
		.gate_image = -1,
	};

	if (!spawn_worker(&plan, &spawned)) {
		log_error("a worker cannot be started: %s", strerror(errno));
		return false;
	}
	if (crew_on_birth(b, spawned.pid, spawned.socket_fd, spawned.err_fd))
		return true;
	close(spawned.socket_fd);
	close(spawned.err_fd);
	return false;
}

/* False: nothing more can be started now. */
static bool start_one(struct broker *b)
{
	bool started = b->uses_zygote ? zygote_order(b->zygote) : start_by_exec(b);

	/* It has as many orders as it can take, or is about to be known to be dead. */
	if (started || (b->uses_zygote && (errno == EAGAIN || errno == EPIPE || errno == ECONNRESET)))
		return started;
	if (b->uses_zygote)
		log_error("a worker cannot be started: %s", strerror(errno));
	crew_on_start_failure(b);
	return false;
}

/* Processes are not to be born faster than they die. */
static bool is_crowded(const struct broker *b)
{
	return b->worker_counts[WORKER_STOPPING] > b->settings->pm_max_children + CROWD_MIN;
}

static bool ready_to_start(struct broker *b)
{
	if (b->phase == BROKER_STOPPING || ev_is_active(&b->start_timer) || is_crowded(b))
		return false;
	if (b->uses_zygote && !b->zygote) {
		b->zygote = zygote_start(b);
		if (!b->zygote) {
			log_error("php-cgi cannot be started: %s", strerror(errno));
			crew_on_start_failure(b);
		}
	}
	return !b->uses_zygote || (b->zygote && b->zygote->state == ZYGOTE_READY);
}

/* While starts fail, one worker at a time tries it; and one does even where
 * nobody is waiting, so that it shows when the fault is gone. */
static int64_t wanted_now(struct broker *b)
{
	const struct scaler_view v = crew_view(b);
	int64_t n = scaler_to_start(&b->scaler, &v);

	if (!has_failed(b))
		return n;
	if (v.starting > 0)
		return 0;
	return n > 0 || v.idle + v.busy == 0;
}

/* process.max: what is missing is asked for, what is not needed given back. */
static void tell_master(struct broker *b, enum link_message kind, int64_t n)
{
	char message[LINK_COUNTED_BYTES] = {(char)kind};
	uint32_t count = (uint32_t)n;

	memcpy(message + 1, &count, sizeof count);
	if (send(LINK_FD_LINK, message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof message)
		return; /* at the next turn, then */
	if (kind == LINK_WANT)
		b->wanted_told = n;
	else
		b->granted -= n;
}

static void settle_with_master(struct broker *b, int64_t missing)
{
	int64_t surplus = b->granted - processes(b);

	if (missing == 0)
		b->lacking_since_us = 0;
	else if (b->lacking_since_us == 0)
		b->lacking_since_us = broker_now_us();
	if (missing != b->wanted_told)
		tell_master(b, LINK_WANT, missing);
	if (missing == 0 && surplus > 0)
		tell_master(b, LINK_RETURN, surplus);
}

void crew_on_grant(struct broker *b, uint32_t n)
{
	b->granted += n;
	b->wanted_told = b->wanted_told > n ? b->wanted_told - n : 0;
}

static void start_missing(struct broker *b)
{
	bool ready = ready_to_start(b);
	int64_t wanted = ready ? wanted_now(b) : 0, allowed = wanted;

	if (b->settings->asks_master && allowed > b->granted - processes(b))
		allowed = b->granted - processes(b);
	for (int64_t i = 0; i < allowed; i++) {
		if (!start_one(b))
			break;
	}
	if (b->settings->asks_master)
		settle_with_master(b, wanted > allowed ? wanted - (allowed > 0 ? allowed : 0) : 0);
}

static void on_start_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)timer, (void)events; /* the turn's end does it */
}

void crew_on_start_failure(struct broker *b)
{
	int64_t delay_ms = backoff_fail(&b->start_backoff, (uint32_t)random());

	if (b->phase == BROKER_STOPPING)
		return;
	if (b->start_backoff.failures > 1)
		log_warning("%u workers in a row died at their start: the next one is started in %lld ms",
			    b->start_backoff.failures, (long long)delay_ms);
	broker_arm(b, &b->start_timer, (double)delay_ms / 1e3);
	b->refuse_waiting = true; /* at the end of the turn: no caller's list is touched */
}

/* ---- dispatching ---- */

static struct request *next_request(struct broker *b)
{
	struct queue_entry *e;

	while ((e = queue_peek(&b->queue)) != NULL) {
		struct request *r = container_of(e, struct request, place);
		if (r->conn->half_closed && conn_peer_gone(r->conn))
			conn_close(r->conn, "the client has gone");
		else if (!request_waits_for_reader(r))
			return r;
	}
	return NULL;
}

static void dispatch(struct broker *b)
{
	struct list *idle;
	struct request *r;

	if (b->refuse_waiting && crew_is_broken(b))
		request_refuse_queued(b, REPLY_NO_WORKER);
	b->refuse_waiting = false;
	while ((idle = list_first(&b->workers[WORKER_IDLE])) != NULL && (r = next_request(b)) != NULL) {
		struct worker *w = container_of(idle, struct worker, node);
		if (r->attempts > 0 && !worker_is_proven(w, r->lost_us)) {
			worker_prove(w);
			break;
		}
		if (!worker_dispatch(w, r))
			log_debug("child %d could not take a request", (int)w->pid);
	}
}

/* Said in every mode, since in every mode it is what a user can change. */
static void tell_exhausted(struct broker *b)
{
	struct scaler_view v = crew_view(b);

	v.queued = b->queue.length;
	if (!scaler_is_exhausted(&b->scaler, &v)) {
		b->exhausted = false;
		return;
	}
	if (b->exhausted)
		return;
	b->exhausted = true;
	b->counters.exhausted++;
	log_limited(&b->exhausted_gate, EXHAUSTED_INTERVAL_MS, LOG_LEVEL_WARNING,
		    "server reached pm.max_children setting (%lld), consider raising it: %lld requests are waiting",
		    (long long)b->settings->pm_max_children, (long long)b->queue.length);
}

/* ---- the turn ---- */

void crew_turn(struct broker *b)
{
	turnover_replace(b);
	dispatch(b);
	start_missing(b);
	turnover_let_go(b);
	tell_exhausted(b);
}

/* ---- stopping ---- */

bool crew_is_empty(const struct broker *b)
{
	for (int state = 0; state < WORKER_DEAD; state++) {
		if (!list_empty(&b->workers[state]))
			return false;
	}
	return list_empty(&b->zygotes);
}

static void kill_all(struct broker *b, enum worker_state state, int signal)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->workers[state])
		kill(container_of(node, struct worker, node)->pid, signal);
}

static void end_zygotes(struct broker *b)
{
	struct list *node, *tmp;

	b->zygote = b->next_zygote = NULL;
	list_each(node, tmp, &b->zygotes)
		zygote_end(container_of(node, struct zygote, node));
}

void crew_stop(struct broker *b, bool at_once)
{
	struct list *node, *tmp;

	ev_timer_stop(b->loop, &b->start_timer);
	turnover_stop(b);
	zygote_listen(b);
	end_zygotes(b);
	for (int state = 0; state < WORKER_STOPPING; state++) {
		bool busy = state == WORKER_BUSY || state == WORKER_FREEING || state == WORKER_STARTING;
		list_each(node, tmp, &b->workers[state]) {
			struct worker *w = container_of(node, struct worker, node);
			struct request *r = w->request;
			worker_stop(w, "the pool stops");
			if (busy)
				kill(w->pid, SIGKILL);
			if (r)
				request_fail(r, REPLY_WORKER_LOST);
		}
	}
	if (at_once)
		kill_all(b, WORKER_STOPPING, SIGKILL);
}

/* ---- building ---- */

static void open_gate(struct broker *b)
{
	b->uses_zygote = zygote_is_meant(b);
	if (!b->uses_zygote)
		return;
	b->gate_image = gate_image_open();
	if (b->gate_image >= 0)
		return;
	log_warning("workers share no memory (worker.spawn): the gate cannot be put into memory: %s", strerror(errno));
	b->uses_zygote = false;
}

bool crew_init(struct broker *b)
{
	b->gate_image = -1;
	for (int state = 0; state < WORKER_STATES; state++)
		list_init(&b->workers[state]);
	list_init(&b->zygotes);
	ev_timer_init(&b->start_timer, on_start_timer, 0., 0.);
	scaler_init(&b->scaler, b->settings);
	oom_init(&b->oom);
	if (!phpini_init(&b->phpini, b->settings) || !turnover_init(b)) {
		log_error("out of memory");
		return false;
	}
	b->judge.is_strict = b->phpini.roots != NULL;
	b->worker_argv = spawn_argv(b->settings, &b->phpini);
	b->worker_envp = spawn_envp(b->settings);
	b->zygote_envp = spawn_zygote_envp(b->settings);
	if (!b->worker_argv || !b->worker_envp || !b->zygote_envp) {
		log_error("worker.command cannot be used: out of memory, or a quote is not closed");
		return false;
	}
	open_gate(b);
	return true;
}

void crew_fini(struct broker *b)
{
	zygote_collect(b);
	if (b->gate_image >= 0)
		close(b->gate_image);
	oom_fini(&b->oom);
	phpini_fini(&b->phpini);
	turnover_fini(b);
	spawn_strings_free(b->worker_argv);
	spawn_strings_free(b->worker_envp);
	spawn_strings_free(b->zygote_envp);
}

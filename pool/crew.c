#include "pool/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/conn.h"
#include "pool/request.h"
#include "pool/spawn.h"
#include "pool/worker.h"

/* After so many deaths at start in a row with no worker left, requests are
 * answered at once: their time in the queue would be wasted. */
enum { BROKEN_AFTER_FAILURES = 5 };

static bool start_one(struct broker *b)
{
	struct spawn_result spawned;

	if (!spawn_worker(b->settings, b->worker_argv, b->worker_envp, &b->worker_nofile, &spawned)) {
		log_error("a worker cannot be started: %s", strerror(errno));
		return false;
	}
	struct worker *w = worker_new(b, spawned.pid, spawned.socket_fd, spawned.err_fd);
	if (!w) {
		log_error("a worker cannot be started: out of memory");
		kill(spawned.pid, SIGKILL);
		close(spawned.socket_fd);
		close(spawned.err_fd);
		return false;
	}
	log_debug("child %d started", (int)w->pid);
	return true;
}

void crew_fill(struct broker *b)
{
	/* While starts fail, one worker at a time tries it. */
	int64_t wanted = b->start_backoff.failures > 0 ? b->worker_count + 1 : b->settings->pm_max_children;

	if (b->phase == BROKER_STOPPING || ev_is_active(&b->start_timer))
		return;
	if (b->start_backoff.failures > 0 && !list_empty(&b->workers[WORKER_STARTING]))
		return;
	while (b->worker_count < wanted && b->worker_count < b->settings->pm_max_children) {
		if (!start_one(b)) {
			crew_on_start_failure(b);
			return;
		}
	}
}

static void on_start_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	crew_fill(container_of(timer, struct broker, start_timer));
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

bool crew_is_broken(const struct broker *b)
{
	return b->start_backoff.failures >= BROKEN_AFTER_FAILURES && list_empty(&b->workers[WORKER_IDLE]) &&
	       list_empty(&b->workers[WORKER_BUSY]) && list_empty(&b->workers[WORKER_FREEING]);
}

static struct request *next_request(struct broker *b)
{
	struct queue_entry *e;

	while ((e = queue_peek(&b->queue)) != NULL) {
		struct request *r = container_of(e, struct request, place);
		if (!r->conn->half_closed || !conn_peer_gone(r->conn))
			return r;
		conn_close(r->conn, "the client has gone");
	}
	return NULL;
}

void crew_dispatch(struct broker *b)
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

bool crew_is_empty(const struct broker *b)
{
	for (int state = 0; state < WORKER_DEAD; state++) {
		if (!list_empty(&b->workers[state]))
			return false;
	}
	return true;
}

static void kill_all(struct broker *b, enum worker_state state, int signal)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->workers[state])
		kill(container_of(node, struct worker, node)->pid, signal);
}

void crew_stop(struct broker *b, bool at_once)
{
	struct list *node, *tmp;

	ev_timer_stop(b->loop, &b->start_timer);
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

bool crew_init(struct broker *b)
{
	for (int state = 0; state < WORKER_STATES; state++)
		list_init(&b->workers[state]);
	ev_timer_init(&b->start_timer, on_start_timer, 0., 0.);
	if (!phpini_init(&b->phpini, b->settings)) {
		log_error("the php_ settings cannot be passed on: out of memory");
		return false;
	}
	b->judge.is_strict = b->phpini.roots != NULL;
	b->worker_argv = spawn_argv(b->settings, &b->phpini);
	b->worker_envp = spawn_envp(b->settings);
	if (!b->worker_argv || !b->worker_envp)
		log_error("worker.command cannot be used: out of memory, or a quote is not closed");
	return b->worker_argv && b->worker_envp;
}

void crew_fini(struct broker *b)
{
	spawn_strings_free(b->worker_argv);
	spawn_strings_free(b->worker_envp);
	phpini_fini(&b->phpini);
}

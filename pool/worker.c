#include "pool/worker.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/conn.h"
#include "pool/crew.h"
#include "pool/exitstatus.h"
#include "pool/gate_proto.h"
#include "pool/request.h"
#include "pool/turnover.h"

enum {
	REPROBES_MAX = 50, /* of a worker that has taken connections before */
	PACE_MS = 2,
	RELIEF_MS = 100, /* how long a slow reader may hold up a worker that others want */
	READS_AFTER_DEATH = 16, /* more than a socket holds */
	YOUNG_US = 1000000, /* a death at this age without a request is one at start */
	LOG_EXIT_BYTES = 3072,
	STOPPING_MIN = 4, /* so many may shut down in peace, and a tenth of the pool */
};

static const char *const state_names[WORKER_STATES] = {"STARTING", "IDLE", "BUSY", "FREEING", "STOPPING", "DEAD"};

#define TO(state) (1u << (state))
static const unsigned transitions[WORKER_STATES] = {
	[WORKER_STARTING] = TO(WORKER_IDLE) | TO(WORKER_STOPPING) | TO(WORKER_DEAD),
	[WORKER_IDLE] = TO(WORKER_BUSY) | TO(WORKER_FREEING) | TO(WORKER_STOPPING) | TO(WORKER_DEAD),
	[WORKER_BUSY] = TO(WORKER_IDLE) | TO(WORKER_FREEING) | TO(WORKER_STOPPING) | TO(WORKER_DEAD),
	[WORKER_FREEING] = TO(WORKER_IDLE) | TO(WORKER_STOPPING) | TO(WORKER_DEAD),
	[WORKER_STOPPING] = TO(WORKER_DEAD),
	[WORKER_DEAD] = 0,
};

static void worker_move(struct worker *w, enum worker_state to)
{
	struct broker *b = w->broker;
	bool is_recycling = w->leaving == WORKER_RECYCLING;

	if (!(transitions[w->state] & TO(to))) {
		log_alert("worker %d in state %s cannot become %s", (int)w->pid, state_names[w->state], state_names[to]);
		abort();
	}
	b->worker_counts[w->state]--;
	b->recycling_counts[w->state] -= is_recycling;
	w->state = to;
	b->worker_counts[to]++;
	b->recycling_counts[to] += is_recycling;
	list_remove(&w->node);
	/* The most recently used comes first: its caches are warm. */
	list_add_head(&b->workers[to], &w->node);
}

/* ---- the probe ---- */

static void probe(struct worker *w);

static void give_up(struct worker *w)
{
	log_warning("child %d takes no connections any more", (int)w->pid);
	worker_stop(w, "takes no connections");
}

static void probe_later(struct worker *w)
{
	wire_close(&w->wire);
	if (w->state == WORKER_FREEING && ++w->reprobes > REPROBES_MAX) {
		give_up(w);
		return;
	}
	broker_arm(w->broker, &w->probe_timer, WORKER_REPROBE_MS / 1e3);
}

static void on_probe_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct worker *w = container_of(timer, struct worker, probe_timer);

	(void)loop, (void)events;
	if (w->state == WORKER_STARTING || w->state == WORKER_FREEING)
		probe(w);
}

/* The answer comes when the worker accepts. */
static void probe(struct worker *w)
{
	if (!wire_connect(&w->wire, w->socket_fd) || !wire_send_probe(&w->wire))
		probe_later(w);
}

static void set_timer(struct worker *w, double seconds)
{
	ev_timer_stop(w->broker->loop, &w->timer);
	if (seconds > 0)
		broker_arm(w->broker, &w->timer, seconds);
}

/* It has come to a moment at which it can be replaced. */
static void check_time(struct worker *w)
{
	if (w->state == WORKER_IDLE && recycle_is_spent(&w->recycle, w->given))
		worker_stop(w, "pm.max_requests");
	else
		turnover_check(w);
}

static void become_idle(struct worker *w)
{
	set_timer(w, 0);
	ev_timer_stop(w->broker->loop, &w->probe_timer);
	w->reprobes = 0;
	w->last_request[0] = '\0';
	w->idle_since_us = w->proven_us = broker_now_us();
	worker_move(w, WORKER_IDLE);
	if (!w->ready_once)
		log_debug("child %d is ready", (int)w->pid);
	w->ready_once = true;
	check_time(w);
}

/* Whatever it runs goes on, with nobody listening: PHP ends a script at its
 * next output then. The terminate timeout goes on counting. */
static void start_freeing(struct worker *w)
{
	if (w->state != WORKER_FREEING)
		worker_move(w, WORKER_FREEING);
	w->request = NULL;
	probe(w);
}

bool worker_is_proven(const struct worker *w, int64_t since_us)
{
	return w->proven_us > since_us;
}

void worker_prove(struct worker *w)
{
	assert(w->state == WORKER_IDLE);
	set_timer(w, (double)w->broker->settings->worker_start_timeout_ms / 1e3);
	start_freeing(w);
}

/* ---- ends ---- */

static void remember_request(struct worker *w)
{
	char what[640];

	if (w->request) {
		struct slice file = w->request->meta.of[META_SCRIPT_FILENAME];
		char script[256];
		snprintf(w->last_request, sizeof w->last_request, "script '%s' (request: \"%.450s\")",
			 log_escape(script, sizeof script, file.at ? file.at : "", file.len),
			 meta_describe(&w->request->meta, what, sizeof what));
	}
}

void worker_abort(struct worker *w)
{
	assert(w->state == WORKER_BUSY);
	remember_request(w);
	start_freeing(w);
}

/* The connection broke while the process, as far as known, lives. */
static void lose_connection(struct worker *w, const char *how)
{
	struct request *r = w->request;
	enum worker_state was = w->state;

	remember_request(w);
	w->request = NULL;
	wire_close(&w->wire);
	if (r && !w->exited)
		log_debug("child %d %s in mid-request", (int)w->pid, how);
	if (!w->exited && was == WORKER_BUSY)
		start_freeing(w);
	else if (!w->exited && (was == WORKER_STARTING || was == WORKER_FREEING))
		probe_later(w);
	if (r)
		request_on_worker_lost(r);
}

static int64_t age_us(const struct worker *w)
{
	return broker_now_us() - w->started_us;
}

/* PHP takes down all that it has set up, which costs more than many a request.
 * Of those that do so there are not to be too many: they serve nobody. (A lower
 * priority would be no help: the killed need the processor, too, to be gone.) */
static void limit_stopping(struct broker *b)
{
	struct list *oldest = list_last(&b->workers[WORKER_STOPPING]);

	if (b->phase != BROKER_STOPPING && oldest && !container_of(oldest, struct worker, node)->exited &&
	    b->worker_counts[WORKER_STOPPING] > STOPPING_MIN + recycle_cap(b->settings->pm_max_children))
		kill(container_of(oldest, struct worker, node)->pid, SIGKILL);
}

void worker_stop(struct worker *w, const char *reason)
{
	if (w->state == WORKER_STOPPING || w->state == WORKER_DEAD)
		return;
	bool in_peace = w->state == WORKER_IDLE;
	log_debug("child %d is ended: %s", (int)w->pid, reason);
	remember_request(w);
	w->request = NULL;
	w->told_to_end = true;
	wire_close(&w->wire);
	ev_timer_stop(w->broker->loop, &w->probe_timer);
	turnover_forget(w);
	worker_move(w, WORKER_STOPPING);
	if (w->ready_once && age_us(w) > YOUNG_US)
		backoff_succeed(&w->broker->start_backoff);
	if (w->exited)
		return; /* its number may be another's by now */
	w->is_asked = in_peace && w->has_gate;
	kill(w->pid, w->is_asked ? GATE_LEAVE_SIGNAL : SIGTERM);
	set_timer(w, w->is_asked ? WORKER_LEAVE_MS / 1e3 : in_peace ? WORKER_SHUTDOWN_S : WORKER_KILL_GRACE_S);
	limit_stopping(w->broker);
}

/* An end that is nobody's wish, of a worker that has not served anything. One
 * that was ready and then killed from outside is simply replaced, and so is one
 * that died of a request: a script that crashes must not hold up the others. */
static void count_start_failure(struct worker *w, bool killed)
{
	bool young = age_us(w) < YOUNG_US;

	if (!w->told_to_end && w->requests == 0 && !w->last_request[0] &&
	    (!w->ready_once || (young && !killed)))
		crew_on_start_failure(w->broker);
}

/* What it said cannot be followed: it may be in any state now. */
static void break_off(struct worker *w, const char *reason)
{
	struct request *r = w->request;

	log_warning("child %d is ended: %s", (int)w->pid, reason);
	count_start_failure(w, false);
	worker_stop(w, reason);
	if (r)
		request_on_worker_lost(r);
}

/* ---- the request ---- */

/* WIRE_FAILED: not a byte was taken, so that nothing can have been run. If it
 * broke later, the read side will tell what became of the request. */
static enum wire_sent begin_sending(struct worker *w)
{
	struct wire *wire = &w->wire;
	enum wire_sent sent = wire->fd >= 0 ? wire_send(wire, w->request) : WIRE_FAILED;

	/* A program may have closed its idle connection in the meantime. */
	if (sent == WIRE_FAILED && !wire->sent_any)
		sent = wire_connect(wire, w->socket_fd) && wire_load(wire, w->request) ? wire_send(wire, w->request)
										       : WIRE_FAILED;
	return sent == WIRE_FAILED && wire->sent_any ? WIRE_SENT_PART : sent;
}

/* The worker would wait for the rest for ever. */
static void give_up_body(struct worker *w)
{
	struct request *r = w->request;

	log_error("a request body cannot be read back: %s", strerror(errno));
	worker_abort(w);
	request_fail(r, REPLY_NO_SPACE);
}

bool worker_dispatch(struct worker *w, struct request *r)
{
	assert(w->state == WORKER_IDLE && !w->request);
	worker_move(w, WORKER_BUSY);
	w->request = r;
	request_on_dispatch(r, w);
	words_clear(&w->words);
	w->paced = false;
	if (!wire_load(&w->wire, r)) {
		w->request = NULL;
		worker_move(w, WORKER_IDLE);
		request_fail(r, REPLY_NO_SPACE);
		return true;
	}
	enum wire_sent sent = begin_sending(w);
	if (sent == WIRE_FAILED) {
		w->request = NULL;
		request_on_undelivered(r);
		start_freeing(w);
		return false;
	}
	w->given++;
	turnover_check(w);
	double timeout_s = (double)w->broker->settings->request_terminate_timeout_ms / 1e3;
	if (timeout_s > 0)
		set_timer(w, timeout_s);
	if (sent == WIRE_NO_BODY)
		give_up_body(w);
	return true;
}

/* With request_terminate_timeout_track_finished a worker is free when it takes
 * connections again, and its time goes on until then; else it is at once. */
static bool is_tracked(const struct worker *w)
{
	const struct pool_settings *settings = w->broker->settings;

	return settings->request_terminate_timeout_track_finished && settings->request_terminate_timeout_ms > 0 &&
	       !w->exited;
}

static void release(struct worker *w)
{
	set_timer(w, 0);
	if (buf_len(&w->wire.send) > 0)
		wire_close(&w->wire); /* it answered before it had read the body to its end */
	w->last_request[0] = '\0';
	w->idle_since_us = broker_now_us();
	if (!w->exited)
		worker_move(w, WORKER_IDLE);
}

static void request_done(struct worker *w, uint32_t app_status)
{
	struct request *r = w->request;

	w->requests++;
	backoff_succeed(&w->broker->start_backoff);
	if (is_tracked(w)) {
		remember_request(w);
		start_freeing(w);
	} else {
		w->request = NULL;
		release(w);
	}
	request_on_end(r, app_status);
	check_time(w);
}

/* ---- what it sends ---- */

static void on_end_piece(struct worker *w, const struct record_piece *piece)
{
	struct record_end end;

	if (piece->first)
		w->end_have = 0;
	if (piece->header.content_len != sizeof w->end_body) {
		break_off(w, "it sent an END_REQUEST of a wrong length");
		return;
	}
	memcpy(w->end_body + w->end_have, piece->data, piece->len);
	w->end_have = (uint8_t)(w->end_have + piece->len);
	if (!piece->last)
		return;
	record_end_decode(w->end_body, &end);
	if (end.protocol_status != FCGI_REQUEST_COMPLETE)
		break_off(w, "it refused the request");
	else
		request_done(w, end.app_status);
}

static void on_busy_piece(struct worker *w, const struct record_piece *piece)
{
	switch (piece->header.type) {
	case FCGI_STDOUT:
		if (piece->len > 0)
			request_on_stdout(w->request, piece->data, piece->len);
		break;
	case FCGI_STDERR:
		if (piece->len > 0)
			request_on_stderr(w->request, piece->data, piece->len);
		break;
	case FCGI_END_REQUEST:
		on_end_piece(w, piece);
		break;
	default:
		break_off(w, "it sent a record of an unexpected type");
	}
}

static void on_piece(struct worker *w, const struct record_piece *piece)
{
	bool answer = piece->header.type == FCGI_GET_VALUES_RESULT || piece->header.type == FCGI_UNKNOWN_TYPE;

	switch (w->state) {
	case WORKER_BUSY:
		if (w->request) /* else it has sent on behind its answer, and died */
			on_busy_piece(w, piece);
		break;
	case WORKER_STARTING:
	case WORKER_FREEING:
		if (!answer)
			break_off(w, "it answered FCGI_GET_VALUES with something else");
		else if (piece->last)
			become_idle(w);
		break;
	case WORKER_IDLE:
		break_off(w, "it sent bytes without a request");
		break;
	default:
		break;
	}
}

/* Gives what was read to the request; stops when the connection changed. */
static void feed(struct worker *w, const uint8_t *data, size_t len)
{
	struct record_piece piece;
	struct wire *wire = &w->wire;
	enum record_result result = RECORD_PIECE;
	uint32_t connection = wire->connections; /* descriptors are reused at once */

	while (wire->connections == connection &&
	       (result = record_reader_next(&wire->reader, &data, &len, &piece)) == RECORD_PIECE)
		on_piece(w, &piece);
	if (wire->connections == connection && result == RECORD_BAD_VERSION)
		break_off(w, "it sent bytes that are not FastCGI records");
}

static void arm_if_idle(struct broker *b, struct ev_timer *timer, double seconds)
{
	if (!ev_is_active(timer))
		broker_arm(b, timer, seconds);
}

static void relieve(struct worker *w)
{
	struct broker *b = w->broker;

	if (broker_now_us() - w->paused_us < RELIEF_MS * INT64_C(1000) || !request_spill(w->request))
		return;
	b->counters.spilled++;
	log_debug("child %d is held up by a slow reader: the rest of its answer goes to a file", (int)w->pid);
	worker_resume(w);
}

/* Where the reader has taken nothing for a while there is nothing to wait for. */
static void pause_reading(struct worker *w)
{
	struct broker *b = w->broker;
	struct conn *c = w->request->conn;

	ev_io_stop(b->loop, &w->wire.read_io);
	w->paused_us = list_empty(&c->blocked) ? broker_now_us() : c->progress_us;
	c->paused = true;
	if (b->queue.length > 0)
		relieve(w);
	arm_if_idle(b, &b->relief_timer, RELIEF_MS / 1e3);
}

/* A read a tick is no more than 32 MiB a second: not much for a machine, and
 * still more than most visitors' lines take. */
static void pace_reading(struct worker *w)
{
	ev_io_stop(w->broker->loop, &w->wire.read_io);
	w->paced = true;
	arm_if_idle(w->broker, &w->broker->pace_timer, PACE_MS / 1e3);
}

static void slow_down(struct worker *w, struct request *r)
{
	if (w->request != r || !r)
		return; /* it ended */
	if (request_output_full(r))
		pause_reading(w);
	else if (request_yields(r))
		pace_reading(w);
}

/* False: nothing more is there now, or the connection is gone. */
static bool read_once(struct worker *w)
{
	struct broker *b = w->broker;
	struct request *r = w->request;
	ssize_t n = recv(w->wire.fd, b->scratch, sizeof b->scratch, MSG_DONTWAIT);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (n <= 0) {
		lose_connection(w, n == 0 ? "closed its connection" : "reset its connection");
		return false;
	}
	feed(w, b->scratch, (size_t)n);
	slow_down(w, r);
	return w->wire.fd >= 0;
}

static void on_worker_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	(void)loop, (void)events;
	(void)read_once(container_of(io, struct worker, wire.read_io));
}

static void on_worker_writable(struct ev_loop *loop, struct ev_io *io, int events)
{
	struct worker *w = container_of(io, struct worker, wire.write_io);

	(void)events;
	ev_io_stop(loop, io);
	/* If it is broken the read side tells: an answer may be there already. */
	if (wire_send(&w->wire, w->request) == WIRE_NO_BODY)
		give_up_body(w);
}

bool worker_is_paused(const struct worker *w)
{
	return w->wire.fd >= 0 && w->state == WORKER_BUSY && !ev_is_active(&w->wire.read_io) && !w->paced;
}

void worker_on_pace_timer(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->workers[WORKER_BUSY]) {
		struct worker *w = container_of(node, struct worker, node);
		if (!w->paced)
			continue;
		w->paced = false;
		if (w->request && request_output_full(w->request))
			pause_reading(w);
		else
			worker_resume(w);
	}
}

/* Only while requests wait: a file costs more than a wait that nobody feels. */
void worker_on_relief_timer(struct broker *b)
{
	struct list *node, *tmp;
	bool any = false;

	list_each(node, tmp, &b->workers[WORKER_BUSY]) {
		struct worker *w = container_of(node, struct worker, node);
		if (!worker_is_paused(w) || !w->request)
			continue;
		any = true;
		if (b->queue.length > 0)
			relieve(w);
	}
	if (any)
		broker_arm(b, &b->relief_timer, RELIEF_MS / 1e3);
}

void worker_resume(struct worker *w)
{
	if (w->wire.fd >= 0 && w->state == WORKER_BUSY)
		ev_io_start(w->broker->loop, &w->wire.read_io);
}

/* ---- time limits ---- */

static void on_terminate_timeout(struct worker *w)
{
	struct request *r = w->request;
	int64_t limit_ms = w->broker->settings->request_terminate_timeout_ms;

	remember_request(w);
	log_warning("child %d, %s execution timed out (%lld.%03lld sec), terminating", (int)w->pid,
		    w->last_request, (long long)limit_ms / 1000, (long long)limit_ms % 1000);
	worker_stop(w, "request_terminate_timeout");
	if (r)
		request_fail(r, REPLY_TERMINATE_TIMEOUT);
}

static void on_worker_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct worker *w = container_of(timer, struct worker, timer);

	(void)loop, (void)events;
	switch (w->state) {
	case WORKER_STARTING:
		log_error("child %d has not answered FCGI_GET_VALUES within worker.start_timeout", (int)w->pid);
		count_start_failure(w, false);
		worker_stop(w, "not started in time");
		break;
	case WORKER_STOPPING:
		kill(w->pid, w->is_asked ? SIGTERM : SIGKILL);
		if (w->is_asked)
			set_timer(w, WORKER_SHUTDOWN_S);
		w->is_asked = false;
		break;
	case WORKER_FREEING:
		if (!w->last_request[0]) {
			give_up(w); /* it was only asked whether it lives */
			break;
		}
		/* fallthrough */
	case WORKER_BUSY:
		on_terminate_timeout(w);
		break;
	default:
		break;
	}
}

/* ---- birth and death ---- */

struct worker *worker_new(struct broker *b, pid_t pid, int socket_fd, int err_fd)
{
	struct worker *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->state = WORKER_STARTING;
	w->broker = b;
	w->pid = pid;
	w->socket_fd = socket_fd;
	w->started_us = broker_now_us();
	turnover_on_birth(w);
	wire_init(&w->wire, b->loop, on_worker_readable, on_worker_writable);
	ev_timer_init(&w->timer, on_worker_timer, 0., 0.);
	ev_timer_init(&w->probe_timer, on_probe_timer, 0., 0.);
	words_init(&w->words, b, pid, err_fd);
	list_init(&w->node);
	list_add_tail(&b->workers[WORKER_STARTING], &w->node);
	b->worker_counts[WORKER_STARTING]++;
	set_timer(w, (double)b->settings->worker_start_timeout_ms / 1e3);
	probe(w);
	return w;
}

/* The kernel's killer sends SIGKILL, and counts; nobody else's does. */
static bool died_of_memory(struct worker *w, int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_claim(&w->broker->oom);
}

static void log_exit(struct worker *w, int status, const struct rusage *usage)
{
	char text[LOG_EXIT_BYTES];
	bool out_of_memory = died_of_memory(w, status); /* whoever wanted its end */
	bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0 && !w->last_request[0];
	enum log_level level = w->told_to_end ? LOG_LEVEL_DEBUG : clean ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING;
	const struct death death = {
		.status = status,
		.age_ms = age_us(w) / 1000,
		.requests = w->requests,
		.peak_bytes = (int64_t)usage->ru_maxrss * 1024,
		.out_of_memory = out_of_memory,
		.running = w->last_request,
		.last_words = w->told_to_end ? "" : words_last(&w->words),
	};

	log_write(level, "child %d %s", (int)w->pid, exitstatus_explain_death(text, sizeof text, &death));
}

/* What it sent before it died still counts: the answer may be complete. But a
 * process that a script started may hold the connection and write on for ever. */
static void read_the_rest(struct worker *w)
{
	for (int i = 0; i < READS_AFTER_DEATH && w->wire.fd >= 0 && read_once(w); i++) {
	}
	if (w->request)
		lose_connection(w, "died");
	words_fini(&w->words);
}

static bool was_signalled(int status, int a, int b)
{
	return WIFSIGNALED(status) && (WTERMSIG(status) == a || WTERMSIG(status) == b);
}

void worker_on_exit(struct worker *w, int status, const struct rusage *usage)
{
	struct broker *b = w->broker;

	w->exited = true;
	remember_request(w);
	read_the_rest(w);
	log_exit(w, status, usage);
	wire_close(&w->wire);
	ev_timer_stop(b->loop, &w->timer);
	ev_timer_stop(b->loop, &w->probe_timer);
	close(w->socket_fd);
	b->counters.crashes += !w->told_to_end;
	count_start_failure(w, was_signalled(status, SIGKILL, SIGTERM));
	turnover_forget(w);
	worker_move(w, WORKER_DEAD);
	if (!w->told_to_end && was_signalled(status, SIGSEGV, SIGBUS))
		turnover_on_fault(b);
}

struct worker *worker_find(struct broker *b, pid_t pid)
{
	struct list *node, *tmp;

	for (int state = 0; state < WORKER_DEAD; state++) {
		list_each(node, tmp, &b->workers[state]) {
			struct worker *w = container_of(node, struct worker, node);
			if (w->pid == pid && !w->exited)
				return w;
		}
	}
	return NULL;
}

void worker_collect(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->workers[WORKER_DEAD]) {
		struct worker *w = container_of(node, struct worker, node);
		list_remove(node);
		b->worker_counts[WORKER_DEAD]--;
		wire_fini(&w->wire);
		free(w);
	}
}

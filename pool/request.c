#include "pool/request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/access.h"
#include "pool/broker.h"
#include "pool/crew.h"
#include "pool/conn.h"
#include "pool/frontend.h"

enum {
	FREE_REQUESTS_MAX = 256,
	KEEP_BYTES = 16384, /* what a recycled request keeps of each buffer */
	UNDELIVERED_MAX = 16, /* workers that could not take one request */
	SHARED_RECORD_BYTES = OUTPUT_TURN_BYTES - RECORD_HEADER_LEN,
	LEAST_ANSWER_BYTES = 16384,
	BULK_BYTES = 262144,
	PATIENT_US = 1000000,
	READER_MS = 50, /* until it is seen again whether the reader takes something */
	STATUS_CLIENT_GONE = 499, /* nginx's number; in the access log only */
};

static const char *const state_names[REQUEST_STATES] = {"RECEIVING", "QUEUED", "RUNNING", "DRAINING", "DEAD"};

/* The table of transitions: what each state may become, as bits. */
#define TO(state) (1u << (state))
static const unsigned transitions[REQUEST_STATES] = {
	[REQUEST_RECEIVING] = TO(REQUEST_QUEUED) | TO(REQUEST_DRAINING) | TO(REQUEST_DEAD),
	[REQUEST_QUEUED] = TO(REQUEST_RUNNING) | TO(REQUEST_DRAINING) | TO(REQUEST_DEAD),
	[REQUEST_RUNNING] = TO(REQUEST_QUEUED) | TO(REQUEST_DRAINING) | TO(REQUEST_DEAD),
	[REQUEST_DRAINING] = TO(REQUEST_DEAD),
	[REQUEST_DEAD] = 0,
};

static void arm_queue_timer(struct broker *b)
{
	int64_t deadline_us = queue_deadline_us(&b->queue);

	if (deadline_us >= 0)
		broker_arm(b, &b->queue_timer, (double)(deadline_us - broker_now_us()) / 1e6 + 1e-3);
}

static void arm_hold_timer(struct broker *b)
{
	int64_t release_us = queue_release_us(&b->queue);

	if (release_us >= 0)
		broker_arm(b, &b->hold_timer, (double)(release_us - broker_now_us()) / 1e6 + 1e-3);
}

void request_on_hold_timer(struct broker *b)
{
	queue_release(&b->queue, broker_now_us());
	arm_hold_timer(b);
	arm_queue_timer(b); /* they may be the oldest, or all that there is */
}

static void hold_back(struct request *r, int64_t since_us, int64_t until_us)
{
	struct broker *b = r->broker;

	queue_hold(&b->queue, &r->place, since_us, until_us);
	if (!ev_is_active(&b->hold_timer) || queue_release_us(&b->queue) == until_us)
		arm_hold_timer(b);
}

/* Whom it comes from: an HTTP connection, as far as the front end tells, and
 * the FastCGI connection where that carries several requests. */
static uint32_t flow_of(const struct request *r)
{
	const struct slice addr = r->meta.of[META_REMOTE_ADDR], port = r->meta.of[META_REMOTE_PORT];
	uint32_t h = conn_is_shared(r->conn) || port.len == 0 ? conn_flow(r->conn) : RESETS_HASH;

	if (addr.at)
		h = resets_hash(h, addr.at, addr.len);
	return port.at ? resets_hash(h, port.at, port.len) : h;
}

static int64_t hold_us_of(const struct request *r, int64_t now_us)
{
	const struct resets *t = &r->broker->resets;
	int64_t hold_us = resets_hold_us(t, flow_of(r), now_us);

	return hold_us > 0 ? hold_us : resets_hold_us(t, conn_flow(r->conn), now_us);
}

static void note_abort(const struct request *r)
{
	struct broker *b = r->broker;
	int64_t now_us = broker_now_us();

	if (r->params_done && !r->answering && r->state != REQUEST_DRAINING)
		resets_on_abort(&b->resets, flow_of(r), now_us - r->begun_us, now_us);
}

static void enter_queue_first(struct request *r)
{
	struct broker *b = r->broker;
	int64_t now_us = broker_now_us();
	int64_t hold_us = hold_us_of(r, now_us);

	if (hold_us == 0) {
		queue_push(&b->queue, &r->place, now_us);
		return;
	}
	b->counters.held_back++;
	hold_back(r, now_us, now_us + hold_us);
}

static void enter_queue(struct request *r)
{
	struct broker *b = r->broker;
	bool came_back = r->queued_us > 0;

	if (came_back)
		queue_push_back_to_front(&b->queue, &r->place);
	else
		enter_queue_first(r);
	r->queued_us = r->place.since_us;
	if (came_back || !ev_is_active(&b->queue_timer))
		arm_queue_timer(b); /* for who came back it may be set to a younger one's time */
}

static void arm_receive_timer(struct broker *b)
{
	struct list *first = list_first(&b->requests[REQUEST_RECEIVING]);
	int64_t limit_us = b->settings->request_receive_timeout_ms * 1000;

	if (first && limit_us > 0) {
		const struct request *r = container_of(first, struct request, place.node);
		broker_arm(b, &b->receive_timer, (double)(r->progress_us + limit_us - broker_now_us()) / 1e6 + 1e-3);
	}
}

static void request_move(struct request *r, enum request_state to)
{
	struct broker *b = r->broker;

	if (!(transitions[r->state] & TO(to))) {
		log_alert("request in state %s cannot become %s", state_names[r->state], state_names[to]);
		abort();
	}
	if (r->state == REQUEST_QUEUED)
		queue_remove(&b->queue, &r->place);
	else
		list_remove(&r->place.node);
	r->state = to;
	if (to == REQUEST_QUEUED)
		enter_queue(r);
	else
		list_add_tail(&b->requests[to], &r->place.node);
}

/* ---- birth ---- */

static struct request *request_alloc(struct broker *b)
{
	struct list *recycled = list_first(&b->free_requests);

	if (recycled) {
		list_remove(recycled);
		b->free_request_count--;
		return container_of(recycled, struct request, place.node);
	}
	struct request *r = calloc(1, sizeof *r);
	if (r) {
		buf_init(&r->params);
		answer_init(&r->answer);
		spool_init(&r->body);
	}
	return r;
}

struct request *request_new(struct broker *b, struct conn *conn, uint16_t id)
{
	struct request *r = request_alloc(b);

	if (!r)
		return NULL;
	r->state = REQUEST_RECEIVING;
	r->broker = b;
	r->conn = conn;
	r->worker = NULL;
	r->stream.id = id;
	r->path_info = (struct slice){0};
	r->attempts = r->undelivered = 0;
	r->params_done = r->answering = r->ended = r->failed = r->hides_translated = false;
	r->status = 0;
	r->worker_pid = 0;
	r->queue_length = 0;
	r->queued_us = r->dispatched_us = 0;
	r->held_bytes = 0;
	r->answer_bytes = 0;
	r->begun_us = r->progress_us = broker_now_us();
	r->begun = (time_t)ev_now(b->loop);
	list_init(&r->place.node);
	list_add_tail(&b->requests[REQUEST_RECEIVING], &r->place.node);
	list_add_tail(&conn->requests, &r->of_conn);
	b->counters.accepted++;
	if (!ev_is_active(&b->receive_timer))
		arm_receive_timer(b);
	return r;
}

void request_account(struct request *r)
{
	size_t now = buf_len(&r->params) + buf_len(&r->body.memory) + answer_memory(&r->answer);
	bool has_file = r->answer.file.fd >= 0;

	r->broker->spool_count += has_file - r->has_answer_file;
	r->conn->spilled_count += has_file - r->has_answer_file;
	r->has_answer_file = has_file;
	r->conn->held_bytes += now - r->held_bytes;
	r->held_bytes = now;
}

/* It has been told everything, or has gone. */
static void leave_conn(struct request *r)
{
	struct conn *c = r->conn;

	mux_finish(&c->mux, &r->stream);
	list_remove(&r->of_conn);
	list_remove(&r->answer.turn);
	c->held_bytes -= r->held_bytes;
	c->spilled_count -= r->has_answer_file;
	r->held_bytes = 0;
	r->conn = NULL;
}

/* ---- RECEIVING ---- */

/* The list's order is that of the deadlines. */
void request_on_progress(struct request *r)
{
	struct list *receiving = &r->broker->requests[REQUEST_RECEIVING];

	assert(r->state == REQUEST_RECEIVING);
	if (!r->params_done)
		return;
	r->progress_us = broker_now_us();
	list_remove(&r->place.node);
	list_add_tail(receiving, &r->place.node);
}

void request_on_receive_timer(struct broker *b)
{
	int64_t limit_us = b->settings->request_receive_timeout_ms * 1000;
	int64_t now_us = broker_now_us();
	struct list *first;

	while ((first = list_first(&b->requests[REQUEST_RECEIVING])) != NULL) {
		struct request *r = container_of(first, struct request, place.node);
		if (r->progress_us + limit_us > now_us)
			break;
		request_reply(r, REPLY_RECEIVE_TIMEOUT);
	}
	arm_receive_timer(b);
}

/* ---- the access log ---- */

static void request_log(struct request *r)
{
	struct broker *b = r->broker;
	int64_t now_us = broker_now_us();
	int64_t started_us = r->dispatched_us ? r->dispatched_us : now_us;

	if (!b->settings->access_log || !r->params_done)
		return;
	struct access_record record = {
		.meta = &r->meta,
		.params = buf_head(&r->params),
		.params_len = buf_len(&r->params),
		.pool = b->settings->name,
		.pid = r->worker_pid,
		.parent_pid = b->pid,
		.status = r->status,
		.content_length = r->body.size_bytes,
		.wait_us = r->queued_us ? started_us - r->queued_us : 0,
		.run_us = now_us - started_us,
		.begun = r->begun,
		.written = (time_t)ev_now(b->loop),
	};
	size_t before = buf_len(&b->access_lines);
	if (!access_append(&b->access_lines, b->settings->access_format, &record))
		b->access_lines.end = b->access_lines.start + before;
}

/* ---- ends ---- */

static void log_no_room(const struct request *r)
{
	const char *dir = r->broker->settings->request_spool_dir;

	log_limited(&r->broker->spill_gate, 1000, LOG_LEVEL_WARNING,
		    "cannot store an answer in request.spool_dir %s: %s; it waits for its slow reader instead", dir,
		    strerror(errno));
}

/* What was appended to the answer is to be written at the end of the turn. */
static void request_offer(struct request *r)
{
	if (!answer_settle(&r->answer, r->broker->settings->request_spool_dir, r->ended))
		log_no_room(r);
	request_account(r);
	output_offer(&r->conn->output, &r->answer);
	conn_flush_soon(r->conn);
}

/* END_REQUEST is in the answer: what is left is to flush it. */
static void request_ended(struct request *r)
{
	struct conn *c = r->conn;

	r->ended = true;
	r->worker = NULL;
	request_log(r);
	request_move(r, REQUEST_DRAINING);
	if (r->stream.input != MUX_INPUT_CLOSED)
		c->unread = true;
	mux_answered(&r->stream);
	request_offer(r);
}

static bool append_end(struct request *r, uint32_t app_status)
{
	uint16_t id = r->stream.id;
	struct buf *out = answer_sink(&r->answer);

	return record_append_stream_end(out, FCGI_STDOUT, id) &&
	       record_append_end(out, id, app_status, FCGI_REQUEST_COMPLETE);
}

/* Where others may wait, in records of which none keeps them waiting for long. */
static bool append_stream(struct request *r, uint8_t type, const void *data, size_t len)
{
	struct buf *out = answer_sink(&r->answer);
	size_t max = conn_is_shared(r->conn) ? SHARED_RECORD_BYTES : RECORD_MAX_CONTENT;
	const uint8_t *at = data;

	for (size_t n; len > 0; at += n, len -= n) {
		n = len < max ? len : max;
		if (!record_append_stream(out, type, r->stream.id, at, n))
			return false;
	}
	return true;
}

void request_reply_with(struct request *r, int status, const char *headers, const char *body)
{
	assert(!r->answering && !r->ended && r->conn);
	r->broker->counters.replied++;
	r->status = (int16_t)status;
	r->worker_pid = 0;
	if (!append_stream(r, FCGI_STDOUT, headers, strlen(headers)) ||
	    !append_stream(r, FCGI_STDOUT, body, strlen(body)) || !append_end(r, 0))
		conn_close(r->conn, "out of memory");
	else
		request_ended(r);
}

void request_reply(struct request *r, enum reply reply)
{
	const struct reply_text *text = reply_text(reply);

	r->broker->counters.replies[reply]++;
	request_reply_with(r, text->status, text->text, "");
}

void request_on_flushed(struct request *r)
{
	assert(r->ended && answer_is_empty(&r->answer));
	leave_conn(r);
	request_move(r, REQUEST_DEAD);
}

/* No END_REQUEST comes, and the connection is closed when the others on it are
 * done: HAProxy (2.6) takes any END_REQUEST, whatever its status, for the end of
 * a good answer (and one that it cannot decode ends HAProxy itself). Where the
 * peer has not shown that it puts several requests on a connection, a record of
 * an impossible version comes: an unbuffered nginx takes a plain end of file,
 * too, for that. */
static bool append_failure(struct request *r)
{
	static const uint8_t poison[RECORD_HEADER_LEN] = {0};

	r->failed = true;
	r->conn->closing = true;
	return conn_is_shared(r->conn) || buf_append(answer_sink(&r->answer), poison, sizeof poison);
}

/* The answer cannot be completed: what there is of it is sent, and that. */
static void request_cut(struct request *r, const char *reason)
{
	struct worker *w = r->worker;

	r->broker->counters.cut++;
	log_debug("answer cut: %s", reason);
	r->worker = NULL;
	if (w && w->request == r)
		worker_abort(w);
	if (!append_failure(r)) {
		conn_close(r->conn, "out of memory");
		return;
	}
	request_ended(r);
	if (answer_is_empty(&r->answer))
		request_on_flushed(r);
}

void request_on_unreadable(struct request *r)
{
	log_limited(&r->broker->spill_gate, 1000, LOG_LEVEL_ERROR, "an answer cannot be read back: %s", strerror(errno));
	answer_drop(&r->answer);
	if (!r->ended) {
		request_cut(r, "it cannot be read back");
		return;
	}
	r->broker->counters.cut++;
	if (!append_failure(r))
		conn_close(r->conn, "out of memory");
	else if (answer_is_empty(&r->answer))
		request_on_flushed(r);
	else
		request_offer(r);
}

void request_fail(struct request *r, enum reply reply)
{
	r->worker = NULL;
	if (r->answering)
		request_cut(r, reply_text(reply)->reason);
	else
		request_reply(r, reply);
}

void request_on_client_gone(struct request *r)
{
	struct worker *w = r->worker;

	note_abort(r);
	leave_conn(r);
	if (r->state == REQUEST_QUEUED)
		r->broker->counters.cancelled_queued++;
	if (r->state == REQUEST_RUNNING) {
		if (w)
			r->broker->counters.cancelled_running++;
		if (r->status == 0)
			r->status = STATUS_CLIENT_GONE;
		request_log(r);
	}
	if (w)
		worker_abort(w);
	r->worker = NULL;
	request_move(r, REQUEST_DEAD);
}

/* Whether only the rest of its END_REQUEST is to be written. */
static bool is_at_its_end(const struct request *r)
{
	return r->ended && !r->failed && r->answer.cut > 0 && answer_memory(&r->answer) == r->answer.cut && !r->answer.spilling;
}

/* FastCGI 1.0, section 5.4: answered with END_REQUEST as soon as possible. It
 * goes with the records of no request, before everybody's next turn; a record
 * of the answer that was begun precedes it. */
void request_on_abort(struct request *r)
{
	struct conn *c = r->conn;
	struct worker *w = r->worker;

	if (is_at_its_end(r))
		return;
	note_abort(r);
	if (r->state == REQUEST_QUEUED)
		r->broker->counters.cancelled_queued++;
	r->worker = NULL;
	if (w) {
		r->broker->counters.cancelled_running++;
		worker_abort(w);
	}
	if (r->status == 0)
		r->status = STATUS_CLIENT_GONE;
	if (!record_append_end(&c->output.ctl, r->stream.id, 0, FCGI_REQUEST_COMPLETE)) {
		conn_close(c, "out of memory");
		return;
	}
	answer_drop(&r->answer);
	r->failed = false; /* an END_REQUEST will be */
	if (!r->ended)
		request_ended(r);
	conn_flush_soon(c);
	if (answer_is_empty(&r->answer))
		request_on_flushed(r);
}

/* ---- QUEUED ---- */

void request_enqueue(struct request *r)
{
	struct broker *b = r->broker;

	if (crew_is_broken(b)) {
		request_reply(r, REPLY_NO_WORKER);
		return;
	}
	if (queue_full(&b->queue)) {
		log_limited(&b->full_gate, 1000, LOG_LEVEL_WARNING, "queue.max (%lld) reached: requests are answered 503",
			    (long long)b->queue.max);
		request_reply(r, REPLY_QUEUE_FULL);
		return;
	}
	r->queue_length = b->queue.length;
	request_move(r, REQUEST_QUEUED);
}

void request_on_queue_timer(struct broker *b)
{
	struct queue_entry *e;

	while ((e = queue_expired(&b->queue, broker_now_us())) != NULL) {
		log_limited(&b->late_gate, 1000, LOG_LEVEL_WARNING, "queue.timeout reached: requests are answered 503");
		request_reply(container_of(e, struct request, place), REPLY_QUEUE_TIMEOUT);
	}
	arm_queue_timer(b);
}

void request_refuse_queued(struct broker *b, enum reply reply)
{
	struct queue_entry *e;

	queue_release(&b->queue, INT64_MAX);
	while ((e = queue_peek(&b->queue)) != NULL)
		request_reply(container_of(e, struct request, place), reply);
}

int64_t request_body_bytes(const struct request *r)
{
	int64_t declared = r->meta.content_length;
	return declared >= 0 && declared < r->body.size_bytes ? declared : r->body.size_bytes;
}

static bool frame_number(struct params_writer *w, const char *name, int64_t n)
{
	char text[24];
	int len = snprintf(text, sizeof text, "%lld", (long long)n);
	return params_writer_add(w, name, strlen(name), text, (size_t)len);
}

static bool is_passed_on(const struct request *r, const struct param *p)
{
	return !meta_is_reserved(p) && !(r->hides_translated && p->name_len == 15 &&
					 memcmp(p->name, "PATH_TRANSLATED", 15) == 0);
}

static bool frame_own_params(struct params_writer *w, const struct request *r)
{
	if (r->path_info.at && !params_writer_add(w, "PATH_INFO", 9, r->path_info.at, r->path_info.len))
		return false;
	if (r->meta.content_length < 0 && r->body.size_bytes > 0 &&
	    !frame_number(w, "CONTENT_LENGTH", r->body.size_bytes))
		return false;
	return frame_number(w, "H2FPM_QUEUE_WAIT_US", r->dispatched_us - r->queued_us) &&
	       frame_number(w, "H2FPM_QUEUE_LENGTH", r->queue_length);
}

static bool frame_param(struct params_writer *w, const struct request *r, const struct param *p)
{
	char joined[SCRIPT_PATH_MAX + 2];
	struct param v = meta_amended(&r->meta, p);
	struct slice tail = meta_is_script(p) ? r->meta.script_tail : (struct slice){0};
	const char *prefix = phpini_param_prefix(&r->broker->phpini, &r->meta, &v);
	size_t len = prefix ? 2 : 0;

	if (!prefix && !tail.at)
		return params_writer_add(w, v.name, v.name_len, v.value, v.value_len);
	if (v.value_len + tail.len > SCRIPT_PATH_MAX)
		return true; /* not what was judged, nor a name that PHP could open: left out */
	memcpy(joined, prefix ? prefix : "", len);
	memcpy(joined + len, v.value, v.value_len);
	len += v.value_len;
	if (tail.at)
		memcpy(joined + len, tail.at, tail.len);
	return params_writer_add(w, v.name, v.name_len, joined, len + tail.len);
}

bool request_frame(struct request *r, struct buf *out, uint16_t id)
{
	struct params_writer w;
	struct params_iter it;
	struct param p;

	r->dispatched_us = broker_now_us();
	if (!record_append_begin(out, id, FCGI_RESPONDER, FCGI_KEEP_CONN))
		return false;
	params_writer_init(&w, out, id);
	params_iter_init(&it, buf_head(&r->params), buf_len(&r->params));
	while (params_next(&it, &p) == PARAMS_PAIR) {
		if (is_passed_on(r, &p) && !frame_param(&w, r, &p))
			return false;
	}
	return frame_own_params(&w, r) && params_writer_end(&w);
}

void request_on_dispatch(struct request *r, struct worker *w)
{
	r->worker = w;
	r->worker_pid = w->pid;
	r->attempts++;
	request_move(r, REQUEST_RUNNING);
}

/* ---- RUNNING ---- */

static bool word_at(const uint8_t *line, size_t len, const char *word)
{
	return len >= strlen(word) && strncasecmp((const char *)line, word, strlen(word)) == 0;
}

static int16_t parse_number(const uint8_t *at, size_t len)
{
	int16_t n = 0;

	while (len > 0 && *at == ' ') {
		at++;
		len--;
	}
	for (int digits = 0; digits < 3 && len > 0 && *at >= '0' && *at <= '9'; digits++, at++, len--)
		n = (int16_t)(n * 10 + (*at - '0'));
	return n;
}

/* The status of a CGI response (RFC 3875, section 6.3.3), if its header is in
 * the first bytes: php-cgi sends it first of all. */
static int16_t parse_status(const uint8_t *data, size_t len)
{
	int16_t status = 200;

	while (len > 0 && *data != '\n' && *data != '\r') {
		const uint8_t *end = memchr(data, '\n', len);
		size_t line = end ? (size_t)(end - data) + 1 : len;
		if (word_at(data, line, "Status:"))
			return parse_number(data + 7, line - 7);
		if (word_at(data, line, "Location:"))
			status = 302;
		data += line;
		len -= line;
	}
	return status;
}

void request_on_stdout(struct request *r, const uint8_t *data, size_t len)
{
	if (!r->answering) {
		r->answering = true;
		r->status = parse_status(data, len);
	}
	r->answer_bytes += (int64_t)len;
	if (append_stream(r, FCGI_STDOUT, data, len))
		request_offer(r);
	else
		request_cut(r, "out of memory");
}

void request_on_stderr(struct request *r, const uint8_t *data, size_t len)
{
	if (append_stream(r, FCGI_STDERR, data, len))
		request_offer(r);
	else
		request_cut(r, "out of memory");
}

/* Where the connection has no memory left, each answer may still have some. */
bool request_output_full(const struct request *r)
{
	const struct pool_settings *s = r->broker->settings;
	size_t bytes = (size_t)s->response_buffer_bytes;

	if (bytes > LEAST_ANSWER_BYTES && conn_is_short_of_memory(r->conn, 0))
		bytes = LEAST_ANSWER_BYTES;
	return answer_is_full(&r->answer, bytes, s->response_spool_bytes);
}

/* Those that have waited for long wait for something else: an event, say. */
static bool waits_for_answer(const struct request *r, int64_t now_us)
{
	return (r->state == REQUEST_QUEUED || r->state == REQUEST_RUNNING) && !r->answering &&
	       now_us - r->begun_us < PATIENT_US;
}

bool request_yields(const struct request *r)
{
	const struct list *others = &r->conn->requests;

	if (r->answer_bytes < BULK_BYTES || !conn_is_shared(r->conn))
		return false;
	int64_t now_us = broker_now_us();
	for (const struct list *node = others->next; node != others; node = node->next) {
		if (waits_for_answer(container_of(node, struct request, of_conn), now_us))
			return true;
	}
	return false;
}

bool request_spill(struct request *r)
{
	const struct pool_settings *s = r->broker->settings;

	if (r->answer.spilling || s->response_spool_bytes == 0 || !frontend_has_descriptor(r->broker))
		return false;
	if (!answer_spill(&r->answer, s->request_spool_dir)) {
		log_no_room(r);
		return false;
	}
	request_account(r);
	return true;
}

bool request_waits_for_reader(struct request *r)
{
	struct queue *q = &r->broker->queue;

	if (!conn_is_stuffed(r->conn))
		return false;
	int64_t now_us = broker_now_us();
	if (q->timeout_us > 0 && now_us - r->place.since_us >= q->timeout_us) {
		request_reply(r, REPLY_QUEUE_TIMEOUT);
		return true;
	}
	queue_remove(q, &r->place);
	hold_back(r, r->place.since_us, now_us + READER_MS * INT64_C(1000));
	return true;
}

void request_on_end(struct request *r, uint32_t app_status)
{
	r->broker->counters.finished++;
	r->worker = NULL;
	if (append_end(r, app_status))
		request_ended(r);
	else
		request_cut(r, "out of memory");
}

void request_on_undelivered(struct request *r)
{
	r->attempts--;
	r->worker = NULL;
	if (++r->undelivered > UNDELIVERED_MAX)
		request_reply(r, REPLY_WORKER_LOST);
	else
		request_move(r, REQUEST_QUEUED);
}

void request_on_worker_lost(struct request *r)
{
	char what[640], script[512];
	struct slice file = r->meta.of[META_SCRIPT_FILENAME];

	r->worker = NULL;
	if (r->answering) {
		request_cut(r, "the worker was lost in mid-answer");
		return;
	}
	if (r->attempts < 2 && meta_is_safe_method(&r->meta)) {
		r->broker->counters.retried++;
		r->lost_us = broker_now_us();
		/* The time that it ran does not count as waiting. */
		r->place.since_us = r->lost_us - (r->dispatched_us - r->queued_us);
		request_move(r, REQUEST_QUEUED);
		return;
	}
	log_warning("request \"%s\" (script \"%s\") is answered 502: its worker %d was lost%s",
		    meta_describe(&r->meta, what, sizeof what),
		    log_escape(script, sizeof script, file.at ? file.at : "", file.len), (int)r->worker_pid,
		    r->attempts > 1 ? ", the second one in a row" : "");
	request_reply(r, REPLY_WORKER_LOST);
}

/* ---- DEAD ---- */

static void request_recycle(struct broker *b, struct request *r)
{
	b->spool_count -= (r->body.fd >= 0) + r->has_answer_file;
	r->has_answer_file = false;
	list_remove(&r->place.node);
	if (b->free_request_count >= FREE_REQUESTS_MAX) {
		buf_fini(&r->params);
		answer_fini(&r->answer);
		spool_fini(&r->body);
		free(r);
		return;
	}
	buf_reset(&r->params, KEEP_BYTES);
	answer_reset(&r->answer, KEEP_BYTES);
	spool_reset(&r->body, KEEP_BYTES);
	list_add_head(&b->free_requests, &r->place.node);
	b->free_request_count++;
}

void request_collect(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->requests[REQUEST_DEAD])
		request_recycle(b, container_of(node, struct request, place.node));
	frontend_resume(b); /* spool files may have been closed */
}

void request_free_all(struct broker *b)
{
	struct list *node, *tmp;

	b->free_request_count = FREE_REQUESTS_MAX;
	request_collect(b);
	list_each(node, tmp, &b->free_requests)
		request_recycle(b, container_of(node, struct request, place.node));
}

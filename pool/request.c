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

static void enter_queue(struct request *r)
{
	struct broker *b = r->broker;

	if (r->queued_us > 0)
		queue_push_back_to_front(&b->queue, &r->place);
	else
		queue_push(&b->queue, &r->place, broker_now_us());
	r->queued_us = r->place.since_us;
	if (!ev_is_active(&b->queue_timer))
		arm_queue_timer(b);
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
		buf_init(&r->out);
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
	r->params_done = r->answering = r->ended = r->hides_translated = false;
	r->status = 0;
	r->worker_pid = 0;
	r->queue_length = 0;
	r->queued_us = r->dispatched_us = 0;
	r->begun_us = broker_now_us();
	r->begun = (time_t)ev_now(b->loop);
	list_init(&r->place.node);
	list_add_tail(&b->requests[REQUEST_RECEIVING], &r->place.node);
	list_add_tail(&conn->requests, &r->of_conn);
	b->counters.accepted++;
	return r;
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

/* END_REQUEST is in out: what is left is to flush it. */
static void request_ended(struct request *r)
{
	struct conn *c = r->conn;

	r->ended = true;
	r->worker = NULL;
	request_log(r);
	request_move(r, REQUEST_DRAINING);
	if (r->stream.input != MUX_INPUT_CLOSED)
		c->unread = true;
	mux_finish(&c->mux, &r->stream);
}

static void request_end_now(struct request *r)
{
	struct conn *c = r->conn;

	request_ended(r);
	conn_flush(c);
}

static bool append_end(struct request *r, uint32_t app_status, bool had_output)
{
	uint16_t id = r->stream.id;
	return (!had_output || record_append_stream_end(&r->out, FCGI_STDOUT, id)) &&
	       record_append_end(&r->out, id, app_status, FCGI_REQUEST_COMPLETE);
}

void request_reply_with(struct request *r, int status, const char *headers, const char *body)
{
	struct buf *out = &r->out;
	uint16_t id = r->stream.id;

	assert(!r->answering && !r->ended && r->conn);
	r->broker->counters.replied++;
	r->status = (int16_t)status;
	r->worker_pid = 0;
	if (!record_append_stream(out, FCGI_STDOUT, id, headers, strlen(headers)) ||
	    !record_append_stream(out, FCGI_STDOUT, id, body, strlen(body)) || !append_end(r, 0, true))
		conn_close(r->conn, "out of memory");
	else
		request_end_now(r);
}

void request_reply(struct request *r, enum reply reply)
{
	const struct reply_text *text = reply_text(reply);
	request_reply_with(r, text->status, text->text, "");
}

/* The answer cannot be completed. What there is of it is sent, then a record
 * of an impossible version, and the connection is closed: an unbuffered nginx
 * takes a plain end of file, even a well-formed END_REQUEST with an error in
 * it, for the end of a good answer. */
static void request_cut(struct request *r, const char *reason)
{
	static const uint8_t poison[RECORD_HEADER_LEN] = {0};
	struct conn *c = r->conn;
	struct worker *w = r->worker;

	r->broker->counters.cut++;
	log_debug("answer cut: %s", reason);
	r->worker = NULL;
	if (w && w->request == r)
		worker_abort(w);
	if (!buf_append(&r->out, poison, sizeof poison)) {
		conn_close(c, "out of memory");
		return;
	}
	c->keep = false;
	request_end_now(r);
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

	list_remove(&r->of_conn);
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
	r->conn = NULL;
	request_move(r, REQUEST_DEAD);
}

void request_on_flushed(struct request *r)
{
	assert(r->ended && buf_len(&r->out) == 0);
	list_remove(&r->of_conn);
	r->conn = NULL;
	request_move(r, REQUEST_DEAD);
}

/* FastCGI 1.0, section 5.4: answered with END_REQUEST as soon as possible. */
void request_on_abort(struct request *r)
{
	struct worker *w = r->worker;

	if (r->ended)
		return;
	if (r->state == REQUEST_QUEUED)
		r->broker->counters.cancelled_queued++;
	if (w) {
		r->broker->counters.cancelled_running++;
		worker_abort(w);
	}
	if (r->status == 0)
		r->status = STATUS_CLIENT_GONE;
	if (append_end(r, 0, r->answering))
		request_end_now(r);
	else
		conn_close(r->conn, "out of memory");
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
	const char *prefix = phpini_param_prefix(&r->broker->phpini, &r->meta, p);

	if (!prefix)
		return params_writer_add(w, p->name, p->name_len, p->value, p->value_len);
	if (p->value_len > SCRIPT_PATH_MAX)
		return true; /* not what was judged, nor a name that PHP could open: left out */
	memcpy(joined, prefix, 2);
	memcpy(joined + 2, p->value, p->value_len);
	return params_writer_add(w, p->name, p->name_len, joined, p->value_len + 2);
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
	if (!record_append_stream(&r->out, FCGI_STDOUT, r->stream.id, data, len))
		request_cut(r, "out of memory");
}

void request_on_stderr(struct request *r, const uint8_t *data, size_t len)
{
	if (!record_append_stream(&r->out, FCGI_STDERR, r->stream.id, data, len))
		request_cut(r, "out of memory");
}

bool request_output_full(const struct request *r)
{
	return buf_len(&r->out) >= (size_t)r->broker->settings->response_buffer_bytes;
}

void request_on_end(struct request *r, uint32_t app_status)
{
	r->broker->counters.finished++;
	r->worker = NULL;
	if (!append_end(r, app_status, true)) {
		request_cut(r, "out of memory");
		return;
	}
	struct conn *c = r->conn;
	request_ended(r);
	conn_flush_soon(c);
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
	if (r->body.fd >= 0)
		b->spool_count--;
	list_remove(&r->place.node);
	if (b->free_request_count >= FREE_REQUESTS_MAX) {
		buf_fini(&r->params);
		buf_fini(&r->out);
		spool_fini(&r->body);
		free(r);
		return;
	}
	buf_reset(&r->params, KEEP_BYTES);
	buf_reset(&r->out, KEEP_BYTES);
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

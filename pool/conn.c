#include "pool/conn.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/frontend.h"
#include "pool/intake.h"
#include "pool/request.h"
#include "pool/worker.h"

enum {
	LINGER_MS = 2000,      /* for a peer to take its answer and close */
	CTL_MAX_BYTES = 65536, /* records of no request, not yet taken */
	LATE_ABORT_AGE_US = 50000, /* taken for theirs: when their requests began is forgotten */
	FLUSH_BYTES = 1048576, /* for one, before others have their turn */
	SPILLED_MAX = 8,       /* answers in files for one that takes nothing */
	SHARED_SEND_BYTES = 65536, /* in the kernel: what nobody can overtake any more */
};

/* ---- a connection's ends ---- */

static void conn_retire(struct conn *c)
{
	struct broker *b = c->broker;

	assert(list_empty(&c->requests));
	ev_io_stop(b->loop, &c->read_io);
	ev_io_stop(b->loop, &c->write_io);
	list_remove(&c->dirty);
	list_remove(&c->blocked);
	close(c->fd);
	c->fd = -1;
	c->state = CONN_CLOSED;
	list_remove(&c->node);
	list_add_tail(&b->retired_conns, &c->node);
	b->conn_count--;
	frontend_resume(b);
}

void conn_close(struct conn *c, const char *reason)
{
	struct list *node, *tmp;

	if (c->state == CONN_CLOSED)
		return;
	log_debug("connection closed: %s", reason);
	list_each(node, tmp, &c->requests)
		request_on_client_gone(container_of(node, struct request, of_conn));
	conn_retire(c);
}

static void conn_bad(struct conn *c, const char *reason)
{
	c->broker->counters.bad_connections++;
	log_limited(&c->broker->bad_gate, 1000, LOG_LEVEL_WARNING, "a front end's connection is closed: %s", reason);
	conn_close(c, reason);
}

/* Everything is answered and nothing more wanted. Closing with unread input
 * would reset the connection and could take the answer with it, so where the
 * input has not ended the peer gets time to read and close first. */
static void conn_finish(struct conn *c)
{
	struct broker *b = c->broker;

	if (!c->unread || c->half_closed) {
		conn_close(c, "all done");
		return;
	}
	shutdown(c->fd, SHUT_WR);
	c->state = CONN_LINGERING;
	c->linger_until_us = broker_now_us() + LINGER_MS * INT64_C(1000);
	list_remove(&c->node);
	list_add_tail(&b->lingering, &c->node);
	ev_io_start(b->loop, &c->read_io);
	if (!ev_is_active(&b->linger_timer))
		broker_arm(b, &b->linger_timer, LINGER_MS / 1e3);
}

static void on_linger_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct broker *b = container_of(timer, struct broker, linger_timer);
	struct list *node, *tmp;
	int64_t now_us = broker_now_us();

	(void)loop, (void)events;
	list_each(node, tmp, &b->lingering) {
		struct conn *c = container_of(node, struct conn, node);
		if (c->linger_until_us > now_us) {
			broker_arm(b, timer, (double)(c->linger_until_us - now_us) / 1e6 + 1e-3);
			break;
		}
		conn_close(c, "lingered");
	}
}

/* ---- output ---- */

static void on_wrote(void *context, struct answer *a, bool ok)
{
	struct request *r = container_of(a, struct request, answer);

	(void)context;
	if (!r->conn)
		return; /* closed: there was no memory to tell of another's failure */
	request_account(r);
	if (!ok)
		request_on_unreadable(r);
	else if (r->ended && answer_is_empty(a))
		request_on_flushed(r);
}

static void arm_stall_timer(struct broker *b)
{
	struct list *first = list_first(&b->blocked_conns);
	int64_t limit_us = b->settings->response_send_timeout_ms * 1000;

	if (first && limit_us > 0) {
		const struct conn *c = container_of(first, struct conn, blocked);
		broker_arm(b, &b->stall_timer, (double)(c->progress_us + limit_us - broker_now_us()) / 1e6 + 1e-3);
	}
}

static void note_progress(struct conn *c, int unsent_bytes)
{
	c->progress_us = broker_now_us();
	c->unsent_bytes = unsent_bytes;
	list_remove(&c->blocked);
	list_add_tail(&c->broker->blocked_conns, &c->blocked);
}

/* Those that have taken nothing for the longest time come first. */
static void wait_for_room(struct conn *c, bool progress)
{
	struct broker *b = c->broker;

	ev_io_start(b->loop, &c->write_io);
	if (!progress && !list_empty(&c->blocked))
		return;
	note_progress(c, -1);
	if (!ev_is_active(&b->stall_timer))
		arm_stall_timer(b);
}

/* A socket has room again only when much of it is free: a peer may have taken
 * something without our being told, which a look now and one later shows. */
static bool has_taken_something(struct conn *c)
{
	int left = 0;

	if (ioctl(c->fd, SIOCOUTQ, &left) != 0 || left == c->unsent_bytes)
		return false;
	note_progress(c, left);
	return true;
}

/* Who takes nothing for so long will not any more, and keeps what it has. */
static void on_stall_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct broker *b = container_of(timer, struct broker, stall_timer);
	int64_t limit_us = b->settings->response_send_timeout_ms * 1000;
	struct list *first;

	(void)loop, (void)events;
	while ((first = list_first(&b->blocked_conns)) != NULL) {
		struct conn *c = container_of(first, struct conn, blocked);
		if (c->progress_us + limit_us > broker_now_us())
			break;
		if (has_taken_something(c))
			continue;
		b->counters.send_timeouts++;
		log_limited(&b->stall_gate, 1000, LOG_LEVEL_WARNING,
			    "a front end's connection is closed: it took nothing for response.send_timeout");
		conn_close(c, "response.send_timeout");
	}
	arm_stall_timer(b);
}

/* One sendmsg() for all whose turn it is. False: nothing more to do now. */
static bool write_once(struct conn *c, size_t *written)
{
	struct output_plan plan;

	if (output_is_empty(&c->output))
		return false;
	output_plan(&c->output, &plan);
	struct msghdr message = {.msg_iov = plan.parts, .msg_iovlen = (size_t)plan.count};
	ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
		n = 0;
	if (n < 0) {
		conn_close(c, "the client cannot be written to");
		return false;
	}
	output_wrote(&c->output, &plan, (size_t)n, on_wrote, NULL);
	if (c->state != CONN_OPEN)
		return false;
	*written += (size_t)n;
	if ((size_t)n == plan.bytes && *written < FLUSH_BYTES)
		return true;
	if (!output_is_empty(&c->output))
		wait_for_room(c, n > 0);
	return false;
}

/* A peer that sends on without reading its answers gets no more buffers. */
static bool is_stuck(const struct conn *c)
{
	return buf_len(&c->output.ctl) > CTL_MAX_BYTES || mux_is_waiting(&c->mux);
}

static bool has_held(const struct conn *c)
{
	return buf_len(&c->held) > 0 || c->mux.waiting;
}

/* Input is left unread while answers wait to be taken, and after the peer's
 * end of file. What was read too early goes before what is there to read. */
static void update_reading(struct conn *c)
{
	if (is_stuck(c) || (c->half_closed && !has_held(c))) {
		ev_io_stop(c->broker->loop, &c->read_io);
		return;
	}
	ev_io_start(c->broker->loop, &c->read_io);
	if (!has_held(c))
		return;
	ev_feed_event(c->broker->loop, &c->read_io, EV_READ);
	ev_idle_start(c->broker->loop, &c->broker->again); /* fed at a turn's end it would wait for others */
}

/* The answers have room again: reading from their workers goes on. */
static void resume_workers(struct conn *c)
{
	struct list *node, *tmp;

	if (!c->paused)
		return;
	c->paused = false;
	list_each(node, tmp, &c->requests) {
		struct request *r = container_of(node, struct request, of_conn);
		if (!r->worker || !worker_is_paused(r->worker))
			continue;
		if (request_output_full(r))
			c->paused = true;
		else
			worker_resume(r->worker);
	}
}

void conn_flush(struct conn *c)
{
	if (c->state != CONN_OPEN)
		return;
	if (!ev_is_active(&c->write_io)) {
		size_t written = 0;
		while (write_once(c, &written)) {
		}
	}
	if (c->state != CONN_OPEN)
		return;
	if (!ev_is_active(&c->write_io))
		list_remove(&c->blocked);
	if (list_empty(&c->requests) && output_is_empty(&c->output) && c->used && (c->closing || c->half_closed)) {
		conn_finish(c);
		return;
	}
	resume_workers(c);
	update_reading(c);
}

bool conn_is_stuffed(const struct conn *c)
{
	return c->spilled_count >= SPILLED_MAX && ev_is_active(&c->write_io);
}

bool conn_is_shared(const struct conn *c)
{
	return c->shared;
}

uint32_t conn_flow(const struct conn *c)
{
	return resets_hash(RESETS_HASH, &c->number, sizeof c->number);
}

bool conn_is_short_of_memory(const struct conn *c, size_t more_bytes)
{
	return c->mux.stream_count > 1 &&
	       c->held_bytes + more_bytes > (size_t)c->broker->settings->mpxs_buffer_bytes / 2;
}

bool conn_is_over_memory(const struct conn *c, size_t more_bytes)
{
	return c->mux.stream_count > 1 &&
	       c->held_bytes + more_bytes > (size_t)c->broker->settings->mpxs_buffer_bytes;
}

void conn_flush_soon(struct conn *c)
{
	list_remove(&c->dirty);
	list_add_tail(&c->broker->dirty_conns, &c->dirty);
}

void conn_flush_dirty(struct broker *b)
{
	struct list *first;

	while ((first = list_first(&b->dirty_conns)) != NULL) {
		list_remove(first);
		conn_flush(container_of(first, struct conn, dirty));
	}
}

static void on_conn_writable(struct ev_loop *loop, struct ev_io *io, int events)
{
	struct conn *c = container_of(io, struct conn, write_io);

	(void)events;
	ev_io_stop(loop, io);
	conn_flush(c);
}

/* ---- input ---- */

/* What is in the kernel goes before everybody's next record: little is to be
 * there where several wait. */
static void become_shared(struct conn *c)
{
	int bytes = SHARED_SEND_BYTES;

	c->shared = true;
	if (c->is_unix)
		setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	else
		setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static void on_begin(struct conn *c, const struct mux_item *item)
{
	struct request *r = request_new(c->broker, c, item->id);
	bool first = !c->used;

	if (!r) {
		conn_close(c, "out of memory");
		return;
	}
	mux_open(&c->mux, &r->stream, item->id);
	c->closing = c->closing || !item->keep_conn;
	c->used = true;
	if (c->mux.multiplexes && !c->shared)
		become_shared(c);
	/* Who connected before the drain is not refused at once. */
	if (c->broker->phase == BROKER_STOPPING || (c->broker->phase == BROKER_DRAINING && !first))
		request_reply(r, REPLY_DRAINING);
}

static struct request *request_of(struct mux_stream *stream)
{
	return container_of(stream, struct request, stream);
}

static void on_refused(struct conn *c, const struct mux_item *item)
{
	c->used = true;
	c->unread = true;
	c->closing = c->closing || !item->keep_conn;
	conn_flush_soon(c);
	if (item->status == FCGI_UNKNOWN_ROLE)
		return;
	c->broker->counters.overloaded++;
	log_limited(&c->broker->overload_gate, 1000, LOG_LEVEL_WARNING,
		    "mpxs.max_requests (%lld) reached on a connection: a further request is refused; the front end "
		    "should open no more there",
		    (long long)c->broker->settings->mpxs_max_requests);
}

static void on_event(struct conn *c, enum mux_event event, const struct mux_item *item)
{
	switch (event) {
	case MUX_BEGIN:
		on_begin(c, item);
		break;
	case MUX_PARAMS:
		intake_params(request_of(item->stream), item->data, item->len);
		break;
	case MUX_PARAMS_END:
		intake_params_end(request_of(item->stream));
		break;
	case MUX_STDIN:
		intake_stdin(request_of(item->stream), item->data, item->len);
		break;
	case MUX_STDIN_END:
		intake_stdin_end(request_of(item->stream));
		break;
	case MUX_ABORT:
		request_on_abort(request_of(item->stream));
		break;
	case MUX_REFUSED:
		on_refused(c, item);
		break;
	case MUX_REPLIED:
		conn_flush_soon(c);
		break;
	case MUX_BAD:
		conn_bad(c, item->reason);
		break;
	case MUX_WAIT:
	case MUX_NEED_MORE:
	default:
		break;
	}
}

/* They tell of a peer that gives up what was answered in the meantime. */
static void note_late_aborts(struct conn *c)
{
	int64_t now_us = broker_now_us();

	for (; c->mux.late_aborts > 0; c->mux.late_aborts--)
		resets_on_abort(&c->broker->resets, conn_flow(c), LATE_ABORT_AGE_US, now_us);
}

/* How much of the input has to wait until answers are taken. */
static size_t conn_feed(struct conn *c, const uint8_t *data, size_t len)
{
	struct mux_item item;
	enum mux_event event;

	do {
		event = mux_next(&c->mux, &data, &len, &c->output.ctl, &item);
		on_event(c, event, &item);
	} while (event != MUX_NEED_MORE && c->state == CONN_OPEN && !is_stuck(c));
	if (c->mux.late_aborts > 0)
		note_late_aborts(c);
	return c->state == CONN_OPEN ? len : 0;
}

static void feed_read(struct conn *c, const uint8_t *data, size_t len)
{
	size_t left = conn_feed(c, data, len);

	if (c->state != CONN_OPEN)
		return;
	if (buf_append(&c->held, data + len - left, left))
		update_reading(c);
	else
		conn_close(c, "out of memory");
}

static void feed_held(struct conn *c)
{
	size_t left = conn_feed(c, buf_head(&c->held), buf_len(&c->held));

	if (c->state != CONN_OPEN)
		return;
	buf_consume(&c->held, buf_len(&c->held) - left);
	if (left == 0)
		buf_reset(&c->held, 0);
	update_reading(c);
}

bool conn_peer_gone(const struct conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = 0};
	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

/* A peer on a Unix socket that only shut down its writing side still reads;
 * on TCP the two look alike, and front ends that close mean "cancelled". */
static bool still_reads(const struct conn *c)
{
	return c->is_unix && !conn_peer_gone(c);
}

/* The rest of what is half received will not come. False: all of it is that. */
static bool refuse_incomplete(struct conn *c)
{
	struct list *node, *tmp;
	bool others = false;

	list_each(node, tmp, &c->requests)
		others |= container_of(node, struct request, of_conn)->state != REQUEST_RECEIVING;
	list_each(node, tmp, &c->requests) {
		struct request *r = container_of(node, struct request, of_conn);
		if (others && r->state == REQUEST_RECEIVING)
			request_reply(r, REPLY_BAD_REQUEST);
		if (c->state != CONN_OPEN)
			break; /* out of memory: the list is no more */
	}
	return others;
}

static void conn_eof(struct conn *c)
{
	if (!still_reads(c) || !refuse_incomplete(c)) {
		conn_close(c, "the client has gone");
		return;
	}
	c->half_closed = true;
	conn_flush(c);
}

void conn_read(struct conn *c)
{
	struct broker *b = c->broker;

	if (c->state == CONN_OPEN && has_held(c)) {
		feed_held(c);
		return;
	}
	ssize_t n = recv(c->fd, b->scratch, sizeof b->scratch, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (n < 0)
		conn_close(c, "the client has reset the connection");
	else if (c->state == CONN_LINGERING && n > 0)
		return;
	else if (n == 0 && c->state == CONN_OPEN)
		conn_eof(c);
	else if (n == 0)
		conn_close(c, "lingered to the end");
	else
		feed_read(c, b->scratch, (size_t)n);
}

static void on_conn_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	(void)loop, (void)events;
	conn_read(container_of(io, struct conn, read_io));
}

/* ---- birth and burial ---- */

void conn_new(struct broker *b, int fd, const struct sockaddr_storage *peer)
{
	struct conn *c = calloc(1, sizeof *c);
	int one = 1;

	if (!c) {
		close(fd);
		return;
	}
	if (peer->ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	c->state = CONN_OPEN;
	c->broker = b;
	c->fd = fd;
	c->is_unix = peer->ss_family == AF_UNIX;
	ev_io_init(&c->read_io, on_conn_readable, fd, EV_READ);
	ev_io_init(&c->write_io, on_conn_writable, fd, EV_WRITE);
	mux_init(&c->mux, &b->limits);
	output_init(&c->output);
	buf_init(&c->held);
	list_init(&c->requests);
	list_init(&c->dirty);
	list_init(&c->blocked);
	list_init(&c->node);
	list_add_tail(&b->conns, &c->node);
	b->conn_count++;
	c->number = ++b->counters.connections;
	ev_io_start(b->loop, &c->read_io);
}

void conn_init_lists(struct broker *b)
{
	list_init(&b->conns);
	list_init(&b->lingering);
	list_init(&b->retired_conns);
	list_init(&b->dirty_conns);
	list_init(&b->blocked_conns);
	ev_timer_init(&b->stall_timer, on_stall_timer, 0., 0.);
	ev_timer_init(&b->linger_timer, on_linger_timer, 0., 0.);
}

void conn_collect(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->retired_conns) {
		struct conn *c = container_of(node, struct conn, node);
		mux_fini(&c->mux);
		output_fini(&c->output);
		buf_fini(&c->held);
		free(c);
	}
	list_init(&b->retired_conns);
}

static void close_all(struct list *conns)
{
	struct list *first;

	while ((first = list_first(conns)) != NULL)
		conn_close(container_of(first, struct conn, node), "stopping");
}

/* What has just come on a kept-alive connection still gets its 503. */
static void read_all(struct list *conns)
{
	struct list *node, *tmp;

	list_each(node, tmp, conns) {
		struct conn *c = container_of(node, struct conn, node);
		conn_read(c);
		conn_flush(c);
	}
}

void conn_close_all(struct broker *b)
{
	read_all(&b->conns);
	close_all(&b->conns);
	close_all(&b->lingering);
	conn_collect(b);
	ev_timer_stop(b->loop, &b->linger_timer);
	ev_timer_stop(b->loop, &b->stall_timer);
}

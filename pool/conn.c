#include "pool/conn.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
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
	CTL_MAX_BYTES = 65536, /* answers to management records not yet taken */
	FLUSH_PARTS = 8,
};

/* ---- a connection's ends ---- */

static void conn_retire(struct conn *c)
{
	struct broker *b = c->broker;

	assert(list_empty(&c->requests));
	ev_io_stop(b->loop, &c->read_io);
	ev_io_stop(b->loop, &c->write_io);
	list_remove(&c->dirty);
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

static struct request *first_request(const struct conn *c)
{
	struct list *first = list_first(&c->requests);
	return first ? container_of(first, struct request, of_conn) : NULL;
}

/* Where a record that belongs to no request goes so that it cannot land in
 * the middle of another: behind whole records of whoever writes first. */
static struct buf *control_output(struct conn *c)
{
	struct request *first = first_request(c);
	return first ? &first->out : &c->ctl;
}

/* What can be written now, in order: up to the first unended request. */
static int gather(struct conn *c, struct iovec *parts)
{
	struct list *node;
	int count = 0;

	if (buf_len(&c->ctl) > 0)
		parts[count++] = (struct iovec){buf_head(&c->ctl), buf_len(&c->ctl)};
	for (node = c->requests.next; node != &c->requests && count < FLUSH_PARTS; node = node->next) {
		struct request *r = container_of(node, struct request, of_conn);
		if (buf_len(&r->out) > 0)
			parts[count++] = (struct iovec){buf_head(&r->out), buf_len(&r->out)};
		if (!r->ended)
			break;
	}
	return count;
}

static size_t take(struct buf *b, size_t n)
{
	size_t part = n < buf_len(b) ? n : buf_len(b);
	buf_consume(b, part);
	return n - part;
}

static void wrote(struct conn *c, size_t n)
{
	struct list *node, *tmp;

	n = take(&c->ctl, n);
	list_each(node, tmp, &c->requests) {
		struct request *r = container_of(node, struct request, of_conn);
		n = take(&r->out, n);
		if (!r->ended || buf_len(&r->out) > 0)
			break;
		request_on_flushed(r);
	}
	assert(n == 0);
}

/* One sendmsg() for all that is ready. False: nothing more to do now. */
static bool write_once(struct conn *c)
{
	struct iovec parts[FLUSH_PARTS];
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)gather(c, parts)};
	size_t wanted = 0;

	if (message.msg_iovlen == 0)
		return false;
	for (size_t i = 0; i < message.msg_iovlen; i++)
		wanted += parts[i].iov_len;
	ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
		n = 0;
	if (n < 0) {
		conn_close(c, "the client cannot be written to");
		return false;
	}
	wrote(c, (size_t)n);
	if ((size_t)n == wanted)
		return true;
	ev_io_start(c->broker->loop, &c->write_io);
	return false;
}

/* A peer that sends on without reading its answers gets no more buffers. */
static bool is_stuck(const struct conn *c)
{
	const struct request *first = first_request(c);
	return buf_len(&c->ctl) > CTL_MAX_BYTES || (first && (first->ended || request_output_full(first)));
}

/* Input is left unread while answers wait to be taken, and after the peer's
 * end of file. What was read too early goes before what is there to read. */
static void update_reading(struct conn *c)
{
	if (is_stuck(c) || c->half_closed) {
		ev_io_stop(c->broker->loop, &c->read_io);
		return;
	}
	ev_io_start(c->broker->loop, &c->read_io);
	if (buf_len(&c->held) > 0)
		ev_feed_event(c->broker->loop, &c->read_io, EV_READ);
}

void conn_flush(struct conn *c)
{
	if (c->state != CONN_OPEN)
		return;
	if (!ev_is_active(&c->write_io)) {
		while (write_once(c)) {
		}
	}
	if (c->state != CONN_OPEN)
		return;
	struct request *first = first_request(c);
	if (!first && buf_len(&c->ctl) == 0 && c->used && (!c->keep || c->half_closed)) {
		conn_finish(c);
		return;
	}
	if (first && first->worker && !request_output_full(first))
		worker_resume(first->worker);
	update_reading(c);
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

static void on_begin(struct conn *c, const struct mux_item *item)
{
	struct request *r = request_new(c->broker, c, item->id);

	if (!r) {
		conn_close(c, "out of memory");
		return;
	}
	mux_open(&c->mux, &r->stream, item->id);
	c->keep = item->keep_conn;
	c->used = true;
	if (c->broker->phase != BROKER_SERVING)
		request_reply(r, REPLY_DRAINING);
}

static struct request *request_of(struct mux_stream *stream)
{
	return container_of(stream, struct request, stream);
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
		c->used = true;
		c->unread = true;
		if (!first_request(c))
			c->keep = item->keep_conn;
		break;
	case MUX_BAD:
		conn_bad(c, item->reason);
		break;
	case MUX_REPLIED:
	case MUX_NEED_MORE:
	default:
		break;
	}
}

/* How much of the input has to wait until answers are taken. */
static size_t conn_feed(struct conn *c, const uint8_t *data, size_t len)
{
	struct mux_item item;
	enum mux_event event;

	do {
		event = mux_next(&c->mux, &data, &len, control_output(c), &item);
		on_event(c, event, &item);
		if (event == MUX_REPLIED || event == MUX_REFUSED)
			conn_flush(c);
	} while (event != MUX_NEED_MORE && c->state == CONN_OPEN && !is_stuck(c));
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
static bool half_closed(const struct conn *c)
{
	struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof address;

	return getsockname(c->fd, (struct sockaddr *)&address, &len) == 0 && address.ss_family == AF_UNIX &&
	       !conn_peer_gone(c);
}

static void conn_eof(struct conn *c)
{
	struct request *last = list_empty(&c->requests) ? NULL : container_of(c->requests.prev, struct request, of_conn);

	if (!last || last->state == REQUEST_RECEIVING || !half_closed(c)) {
		conn_close(c, "the client has gone");
		return;
	}
	c->half_closed = true;
	update_reading(c);
}

void conn_read(struct conn *c)
{
	struct broker *b = c->broker;

	if (c->state == CONN_OPEN && buf_len(&c->held) > 0) {
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
	if (peer->ss_family == AF_INET || peer->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	c->state = CONN_OPEN;
	c->broker = b;
	c->fd = fd;
	ev_io_init(&c->read_io, on_conn_readable, fd, EV_READ);
	ev_io_init(&c->write_io, on_conn_writable, fd, EV_WRITE);
	mux_init(&c->mux, &b->limits);
	buf_init(&c->ctl);
	buf_init(&c->held);
	list_init(&c->requests);
	list_init(&c->dirty);
	list_init(&c->node);
	list_add_tail(&b->conns, &c->node);
	b->conn_count++;
	b->counters.connections++;
	ev_io_start(b->loop, &c->read_io);
}

void conn_init_lists(struct broker *b)
{
	list_init(&b->conns);
	list_init(&b->lingering);
	list_init(&b->retired_conns);
	list_init(&b->dirty_conns);
	ev_timer_init(&b->linger_timer, on_linger_timer, 0., 0.);
}

void conn_collect(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->retired_conns) {
		struct conn *c = container_of(node, struct conn, node);
		mux_fini(&c->mux);
		buf_fini(&c->ctl);
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

	list_each(node, tmp, conns)
		conn_read(container_of(node, struct conn, node));
}

void conn_close_all(struct broker *b)
{
	read_all(&b->conns);
	close_all(&b->conns);
	close_all(&b->lingering);
	conn_collect(b);
	ev_timer_stop(b->loop, &b->linger_timer);
}

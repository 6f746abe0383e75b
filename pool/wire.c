#include "pool/wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/request.h"
#include "pool/spawn.h"
#include "protocol/params.h"

enum {
	REQUEST_ID = 1, /* php-cgi takes one at a time and checks none */
	BODY_CHUNK_BYTES = 32768,
	KEEP_BYTES = 65536,
	PROBE_PADDING = 7, /* to a multiple of eight */
};

void wire_init(struct wire *wire, struct ev_loop *loop, wire_ready_fn *on_readable, wire_ready_fn *on_writable)
{
	wire->loop = loop;
	wire->fd = -1;
	ev_io_init(&wire->read_io, on_readable, -1, EV_READ);
	ev_io_init(&wire->write_io, on_writable, -1, EV_WRITE);
	buf_init(&wire->send);
}

void wire_fini(struct wire *wire)
{
	wire_close(wire);
	buf_fini(&wire->send);
}

void wire_close(struct wire *wire)
{
	if (wire->fd < 0)
		return;
	ev_io_stop(wire->loop, &wire->read_io);
	ev_io_stop(wire->loop, &wire->write_io);
	close(wire->fd);
	wire->fd = -1;
	wire->connections++;
	buf_reset(&wire->send, KEEP_BYTES);
}

bool wire_connect(struct wire *wire, int socket_fd)
{
	wire_close(wire);
	wire->fd = spawn_connect(socket_fd);
	if (wire->fd < 0)
		return false;
	record_reader_init(&wire->reader);
	ev_io_set(&wire->read_io, wire->fd, EV_READ);
	ev_io_set(&wire->write_io, wire->fd, EV_WRITE);
	ev_io_start(wire->loop, &wire->read_io);
	return true;
}

/* ---- what is put into the buffer ---- */

/* libfcgi answers only if there is padding. */
static bool load_probe(struct wire *wire)
{
	static const char name[] = "FCGI_MPXS_CONNS";
	static const uint8_t padding[PROBE_PADDING] = {0};
	struct record_header header = {.type = FCGI_GET_VALUES,
				       .content_len = (uint16_t)params_pair_len(sizeof name - 1, 0),
				       .padding_len = PROBE_PADDING};
	uint8_t encoded[RECORD_HEADER_LEN];

	record_header_encode(encoded, &header);
	return buf_append(&wire->send, encoded, sizeof encoded) &&
	       params_append(&wire->send, name, sizeof name - 1, "", 0) &&
	       buf_append(&wire->send, padding, sizeof padding);
}

static bool load_chunk(struct wire *wire, const struct request *r, int64_t left)
{
	struct record_header h = {.type = FCGI_STDIN, .id = REQUEST_ID};

	h.content_len = (uint16_t)(left < BODY_CHUNK_BYTES ? left : BODY_CHUNK_BYTES);
	if (!buf_reserve(&wire->send, RECORD_HEADER_LEN + (size_t)h.content_len))
		return false;
	record_header_encode(buf_tail(&wire->send), &h);
	if (!spool_read(&r->body, wire->body_sent, buf_tail(&wire->send) + RECORD_HEADER_LEN, h.content_len))
		return false;
	buf_commit(&wire->send, RECORD_HEADER_LEN + (size_t)h.content_len);
	wire->body_sent += h.content_len;
	return true;
}

/* Keeps a chunk of the body, and then its end, in the buffer. */
static bool load_body(struct wire *wire, const struct request *r)
{
	int64_t total = request_body_bytes(r);

	while (wire->body_sent < total && buf_len(&wire->send) < BODY_CHUNK_BYTES) {
		if (!load_chunk(wire, r, total - wire->body_sent))
			return false;
		if (wire->body_sent == total)
			return record_append_stream_end(&wire->send, FCGI_STDIN, REQUEST_ID);
	}
	return true;
}

bool wire_load(struct wire *wire, struct request *r)
{
	buf_reset(&wire->send, KEEP_BYTES);
	wire->body_sent = 0;
	wire->sent_any = false;
	if (!request_frame(r, &wire->send, REQUEST_ID))
		return false;
	if (request_body_bytes(r) == 0)
		return record_append_stream_end(&wire->send, FCGI_STDIN, REQUEST_ID);
	return load_body(wire, r);
}

/* ---- sending ---- */

static enum wire_sent send_buffer(struct wire *wire)
{
	while (buf_len(&wire->send) > 0) {
		ssize_t n = send(wire->fd, buf_head(&wire->send), buf_len(&wire->send), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			ev_io_start(wire->loop, &wire->write_io);
			return WIRE_SENT_PART;
		}
		if (n < 0) {
			buf_reset(&wire->send, KEEP_BYTES);
			return WIRE_FAILED;
		}
		wire->sent_any = true;
		buf_consume(&wire->send, (size_t)n);
	}
	return WIRE_SENT_ALL;
}

bool wire_send_probe(struct wire *wire)
{
	return load_probe(wire) && send_buffer(wire) != WIRE_FAILED;
}

enum wire_sent wire_send(struct wire *wire, const struct request *r)
{
	enum wire_sent sent;

	while ((sent = send_buffer(wire)) == WIRE_SENT_ALL && r && wire->body_sent < request_body_bytes(r)) {
		if (!load_body(wire, r))
			return WIRE_NO_BODY;
	}
	return sent;
}

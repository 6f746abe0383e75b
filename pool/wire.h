/* The private connection to a worker: its descriptor and watchers, the bytes
 * on their way there, and how far the records that come back are read. Sends
 * one whole request, the body in pieces as the worker takes them. It owns the
 * descriptor and the buffer; what to do when it breaks is worker.c's. */
#ifndef H2FPM_POOL_WIRE_H
#define H2FPM_POOL_WIRE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/buf.h"
#include "protocol/record.h"

struct request;

struct wire {
	struct ev_loop *loop;
	int fd; /* -1: not connected */
	struct ev_io read_io;
	struct ev_io write_io; /* active while bytes wait for room */
	struct record_reader reader;
	struct buf send;
	int64_t body_sent;    /* bytes of the request's body */
	bool sent_any;        /* bytes of the request */
	uint32_t connections; /* how many there have been: descriptors are reused at once */
};

enum wire_sent {
	WIRE_SENT_ALL,
	WIRE_SENT_PART, /* the rest follows when there is room */
	WIRE_FAILED,    /* the connection is broken, with errno */
	WIRE_NO_BODY,   /* the rest of the body cannot be read back, with errno */
};

typedef void wire_ready_fn(struct ev_loop *loop, struct ev_io *io, int events);

void wire_init(struct wire *wire, struct ev_loop *loop, wire_ready_fn *on_readable, wire_ready_fn *on_writable);
void wire_fini(struct wire *wire);
/* To a worker's socket; closes the connection that there is. */
bool wire_connect(struct wire *wire, int socket_fd) __attribute__((warn_unused_result));
/* What was not sent is dropped. Harmless when not connected. */
void wire_close(struct wire *wire);

/* Asks whether the worker takes connections: FCGI_GET_VALUES. */
bool wire_send_probe(struct wire *wire) __attribute__((warn_unused_result));
/* Puts a request into the buffer, without sending. False: out of memory, or
 * its body cannot be read back. */
bool wire_load(struct wire *wire, struct request *r) __attribute__((warn_unused_result));
/* Sends as much as the worker takes now. r: NULL for a probe. */
enum wire_sent wire_send(struct wire *wire, const struct request *r);

#endif

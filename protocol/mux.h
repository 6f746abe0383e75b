/* The server's side of one FastCGI connection: bytes in, events out. It keeps
 * which request ids are open and how far each one's input is, answers what
 * needs no request (GET_VALUES, unknown types, refused roles), and finds what
 * breaks the protocol. Owns no descriptor; the streams are embedded in the
 * caller's requests and owned by the caller.
 *
 *     a stream's input:  PARAMS ──empty PARAMS──► STDIN ──empty STDIN──► CLOSED
 *                           └──────────mux_answered()──────┴────────────────┴──► ANSWERED
 *
 * Rules (FastCGI 1.0, sections 3 to 5): records for ids that are not open are
 * ignored (3.3), and so are those for answered ones, except ABORT_REQUEST; an
 * id is open from BEGIN_REQUEST until mux_finish(). One that begins again
 * while its answer is still to be sent waits for that; one that begins again
 * while it is still to be answered is an error. */
#ifndef H2FPM_PROTOCOL_MUX_H
#define H2FPM_PROTOCOL_MUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/buf.h"
#include "protocol/list.h"
#include "protocol/record.h"

enum mux_input { MUX_INPUT_PARAMS, MUX_INPUT_STDIN, MUX_INPUT_CLOSED, MUX_INPUT_ANSWERED };

struct mux_stream {
	struct list node; /* in a bucket of the mux while open */
	uint16_t id;
	enum mux_input input;
};

/* What FCGI_GET_VALUES is told, and what is enforced. */
struct mux_limits {
	uint32_t max_conns;   /* FCGI_MAX_CONNS */
	uint32_t max_reqs;    /* FCGI_MAX_REQS */
	uint32_t max_streams; /* open at once on this connection; 1: FCGI_MPXS_CONNS is 0 */
};

struct mux {
	struct record_reader reader;
	const struct mux_limits *limits;
	/* The streams by id: one bucket, and an array when they are many. */
	struct list bucket;
	struct list *buckets; /* NULL, or bucket_mask + 1 of them */
	uint32_t bucket_mask;
	uint32_t stream_count;
	uint8_t begin[8]; /* the body of a BEGIN_REQUEST cut into pieces */
	uint8_t begin_have;
	bool waiting;        /* such a body is whole, but its id is still in use */
	uint16_t waiting_id;
	/* The peer has shown that it puts several requests on a connection: by
	 * two at one time, by an id other than 1, or by asking FCGI_MPXS_CONNS. */
	bool multiplexes;
	uint32_t late_aborts; /* ABORT_REQUESTs that came for ids that are not open */
	struct buf values; /* the body of a GET_VALUES; empty otherwise */
};

enum mux_event {
	MUX_NEED_MORE,   /* the input is consumed */
	MUX_BEGIN,       /* a new request: id, keep_conn; call mux_open() */
	MUX_PARAMS,      /* stream, data, len */
	MUX_PARAMS_END,  /* stream */
	MUX_STDIN,       /* stream, data, len */
	MUX_STDIN_END,   /* stream */
	MUX_ABORT,       /* stream: the client gives the request up */
	MUX_REPLIED,     /* an answer was appended to out */
	MUX_REFUSED,     /* so was the refusal of a request: id, keep_conn, status */
	MUX_WAIT,        /* for mux_finish() of the id: it comes again until then */
	MUX_BAD,         /* reason: the connection must be closed */
};

struct mux_item {
	struct mux_stream *stream;
	uint16_t id;
	bool keep_conn;
	uint8_t status; /* FCGI_CANT_MPX_CONN, FCGI_OVERLOADED, FCGI_UNKNOWN_ROLE */
	const uint8_t *data; /* points into the input */
	size_t len;
	const char *reason; /* a constant string */
};

void mux_init(struct mux *m, const struct mux_limits *limits);
void mux_fini(struct mux *m); /* open streams are forgotten */

/* The next event; *in and *len advance past what it consumed. Answers go to
 * out as whole records. After MUX_BAD it must not be called again. */
enum mux_event mux_next(struct mux *m, const uint8_t **in, size_t *len, struct buf *out, struct mux_item *item)
	__attribute__((warn_unused_result));

/* Opens the id of a MUX_BEGIN; stream must stay in place until mux_finish(). */
void mux_open(struct mux *m, struct mux_stream *stream, uint16_t id);
/* Its answer is decided: of what else comes for it only ABORT_REQUEST is told. */
void mux_answered(struct mux_stream *stream);
/* Closes it: the id is free again. Harmless when closed. */
void mux_finish(struct mux *m, struct mux_stream *stream);
/* True while a BEGIN_REQUEST waits for its id: see MUX_WAIT. */
bool mux_is_waiting(const struct mux *m);
/* True when no record is half-read and no stream is open. */
bool mux_idle(const struct mux *m);

#endif

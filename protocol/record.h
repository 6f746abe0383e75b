/* FastCGI records (FastCGI 1.0, section 3.3): headers and the fixed bodies,
 * encoded and decoded; and a reader that takes bytes cut anywhere and gives
 * out pieces of records without copying. Knows no descriptor and no meaning. */
#ifndef H2FPM_PROTOCOL_RECORD_H
#define H2FPM_PROTOCOL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fastcgi.h>

#include "protocol/buf.h"

enum {
	RECORD_HEADER_LEN = 8,
	RECORD_MAX_CONTENT = 65535,
	RECORD_MAX_PADDING = 255,
};

struct record_header {
	uint8_t type;         /* FCGI_BEGIN_REQUEST … */
	uint16_t id;          /* 0: a management record */
	uint16_t content_len; /* bytes */
	uint8_t padding_len;  /* bytes */
};

struct record_begin {
	uint16_t role; /* FCGI_RESPONDER … */
	uint8_t flags; /* FCGI_KEEP_CONN */
};

struct record_end {
	uint32_t app_status;
	uint8_t protocol_status; /* FCGI_REQUEST_COMPLETE … */
};

/* False when the version is not FCGI_VERSION_1. */
bool record_header_decode(const uint8_t in[RECORD_HEADER_LEN], struct record_header *out)
	__attribute__((warn_unused_result));
void record_header_encode(uint8_t out[RECORD_HEADER_LEN], const struct record_header *h);
void record_begin_decode(const uint8_t in[8], struct record_begin *out);
void record_end_decode(const uint8_t in[8], struct record_end *out);

/* The appenders write whole records without padding; false: out of memory,
 * and then the buffer is unchanged. */
bool record_append_begin(struct buf *b, uint16_t id, uint16_t role, uint8_t flags) __attribute__((warn_unused_result));
bool record_append_end(struct buf *b, uint16_t id, uint32_t app_status, uint8_t protocol_status)
	__attribute__((warn_unused_result));
/* Data of a stream, split where it is longer than a record; len 0 writes nothing. */
bool record_append_stream(struct buf *b, uint8_t type, uint16_t id, const void *data, size_t len)
	__attribute__((warn_unused_result));
/* The empty record that ends a stream. */
bool record_append_stream_end(struct buf *b, uint8_t type, uint16_t id) __attribute__((warn_unused_result));

/* A run of content bytes of one record, pointing into the caller's input. A
 * record without content gives one piece of length 0 that is first and last. */
struct record_piece {
	struct record_header header;
	const uint8_t *data;
	size_t len;
	bool first; /* begins the record's content */
	bool last;  /* ends it (padding is skipped by the reader) */
};

struct record_reader {
	uint8_t header[RECORD_HEADER_LEN];
	uint8_t header_have;
	struct record_header current;
	uint32_t content_left;
	uint32_t padding_left;
	bool in_content; /* a header is decoded and its content not yet ended */
	bool started;    /* a piece of the current record was given out */
};

enum record_result {
	RECORD_NEED_MORE,   /* all of the input is consumed */
	RECORD_PIECE,       /* *piece is valid until the input goes */
	RECORD_BAD_VERSION, /* the stream cannot be followed any further */
};

void record_reader_init(struct record_reader *r);
/* Advances *in and *len past what it consumed. */
enum record_result record_reader_next(struct record_reader *r, const uint8_t **in, size_t *len,
				      struct record_piece *piece) __attribute__((warn_unused_result));
/* True between records: nothing of a next one was seen. */
bool record_reader_at_border(const struct record_reader *r);

#endif

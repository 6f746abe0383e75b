/* FastCGI name-value pairs (FastCGI 1.0, section 3.4). Reading walks a whole
 * contiguous block; writing re-frames pairs into PARAMS records so that no
 * pair straddles two of them and none is padded, which is all that php-cgi
 * accepts. Never reads past the block, whatever the lengths say. */
#ifndef H2FPM_PROTOCOL_PARAMS_H
#define H2FPM_PROTOCOL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/buf.h"

/* Points into the block it was read from; not zero-terminated. */
struct param {
	const uint8_t *name;
	size_t name_len;
	const uint8_t *value;
	size_t value_len;
};

struct params_iter {
	const uint8_t *at;
	size_t left;
};

enum params_result {
	PARAMS_PAIR,
	PARAMS_END,       /* the block ended at a pair's border */
	PARAMS_TRUNCATED, /* it ended inside a pair, or a length goes past it */
};

void params_iter_init(struct params_iter *it, const void *block, size_t len);
enum params_result params_next(struct params_iter *it, struct param *out) __attribute__((warn_unused_result));

/* Encoded size of a pair, in bytes. */
size_t params_pair_len(size_t name_len, size_t value_len);
/* Appends one encoded pair; lengths at most 2^31-1. False: out of memory. */
bool params_append(struct buf *b, const void *name, size_t name_len, const void *value, size_t value_len)
	__attribute__((warn_unused_result));

/* Writes pairs as PARAMS records at the end of out, filling each record as
 * far as whole pairs go. Nothing else may be appended to out meanwhile. */
struct params_writer {
	struct buf *out;
	uint16_t id;
	size_t record_len; /* content bytes of the open record; 0: none open */
};

void params_writer_init(struct params_writer *w, struct buf *out, uint16_t id);
/* False: the pair is over RECORD_MAX_CONTENT when encoded, or out of memory. */
bool params_writer_add(struct params_writer *w, const void *name, size_t name_len, const void *value, size_t value_len)
	__attribute__((warn_unused_result));
/* Closes the open record and appends the empty PARAMS that ends the stream. */
bool params_writer_end(struct params_writer *w) __attribute__((warn_unused_result));

#endif

/* A contiguous byte buffer: bytes are appended at the end and consumed from
 * the start. It owns its memory; growth doubles, and an allocation failure is
 * reported, never fatal, and leaves the contents as they were. */
#ifndef H2FPM_PROTOCOL_BUF_H
#define H2FPM_PROTOCOL_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t start; /* first byte not yet consumed */
	size_t end;   /* one past the last byte */
	size_t cap;
};

void buf_init(struct buf *b);
void buf_fini(struct buf *b); /* frees the memory; the buffer is as after buf_init */

static inline size_t buf_len(const struct buf *b)
{
	return b->end - b->start;
}

static inline uint8_t *buf_head(const struct buf *b)
{
	return b->data ? b->data + b->start : NULL; /* NULL + 0 is undefined */
}

/* Makes room for n more bytes behind the end (moving or growing). */
bool buf_reserve(struct buf *b, size_t n) __attribute__((warn_unused_result));

/* Where the next byte goes; valid for what buf_reserve promised. */
static inline uint8_t *buf_tail(const struct buf *b)
{
	return b->data + b->end;
}

/* Counts n bytes written at buf_tail() as contents. */
void buf_commit(struct buf *b, size_t n);
bool buf_append(struct buf *b, const void *src, size_t n) __attribute__((warn_unused_result));

/* Drops n bytes (at most buf_len) from the start; empties to offset 0. */
void buf_consume(struct buf *b, size_t n);

/* Drops everything; gives the memory back when it is over keep_bytes. */
void buf_reset(struct buf *b, size_t keep_bytes);

#endif

#include "protocol/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_MIN_BYTES = 256 };

void buf_init(struct buf *b)
{
	*b = (struct buf){0};
}

void buf_fini(struct buf *b)
{
	free(b->data);
	buf_init(b);
}

/* The doubled capacity that holds need bytes. */
static size_t grown_cap(size_t cap, size_t need)
{
	size_t grown = cap < BUF_MIN_BYTES ? BUF_MIN_BYTES : cap;

	if (cap >= BUF_MIN_BYTES && cap <= SIZE_MAX / 2)
		grown = cap * 2;
	while (grown < need)
		grown = grown > SIZE_MAX / 2 ? need : grown * 2;
	return grown;
}

static bool grow(struct buf *b, size_t need)
{
	size_t cap = grown_cap(b->cap, need);
	size_t len = buf_len(b);
	uint8_t *data;

	if (b->start == 0) {
		data = realloc(b->data, cap);
		if (!data)
			return false;
	} else {
		/* realloc would copy the consumed bytes too. */
		data = malloc(cap);
		if (!data)
			return false;
		memcpy(data, b->data + b->start, len);
		free(b->data);
	}
	b->data = data;
	b->start = 0;
	b->end = len;
	b->cap = cap;
	return true;
}

static void move_to_front(struct buf *b)
{
	size_t len = buf_len(b);

	memmove(b->data, b->data + b->start, len);
	b->start = 0;
	b->end = len;
}

/* Moving is chosen only where it frees at least as many bytes as it copies;
 * otherwise a nearly full buffer that is consumed in small steps would be
 * copied again for every step. */
bool buf_reserve(struct buf *b, size_t n)
{
	size_t len = buf_len(b);

	if (b->cap - b->end >= n)
		return true;
	if (n > SIZE_MAX - len)
		return false;
	if (len + n <= b->cap && b->start >= len) {
		move_to_front(b);
		return true;
	}
	return grow(b, len + n);
}

void buf_commit(struct buf *b, size_t n)
{
	assert(n <= b->cap - b->end);
	b->end += n;
}

bool buf_append(struct buf *b, const void *src, size_t n)
{
	if (n == 0)
		return true;
	if (!buf_reserve(b, n))
		return false;
	memcpy(buf_tail(b), src, n);
	b->end += n;
	return true;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= buf_len(b));
	b->start += n;
	if (b->start == b->end) {
		b->start = 0;
		b->end = 0;
	}
}

void buf_reset(struct buf *b, size_t keep_bytes)
{
	b->start = 0;
	b->end = 0;
	if (b->cap > keep_bytes)
		buf_fini(b);
}

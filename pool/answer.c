#include "pool/answer.h"

#include <assert.h>
#include <errno.h>

#include "protocol/record.h"

enum {
	FILE_CHUNK_BYTES = 131072, /* moved to and from the file: more than any record */
};

_Static_assert(FILE_CHUNK_BYTES > RECORD_HEADER_LEN + RECORD_MAX_CONTENT + RECORD_MAX_PADDING, "");

void answer_init(struct answer *a)
{
	*a = (struct answer){0};
	list_init(&a->turn);
	buf_init(&a->head);
	buf_init(&a->tail);
	spool_init(&a->file);
}

static void leave_file(struct answer *a)
{
	spool_reset(&a->file, 0);
	a->file_read = 0;
	a->spilling = false;
	a->no_room = false;
}

void answer_reset(struct answer *a, size_t keep_bytes)
{
	list_remove(&a->turn);
	buf_reset(&a->head, keep_bytes);
	buf_reset(&a->tail, 0);
	leave_file(a);
	a->cut = 0;
}

void answer_fini(struct answer *a)
{
	answer_reset(a, 0);
	buf_fini(&a->head);
	buf_fini(&a->tail);
	spool_fini(&a->file);
}

struct buf *answer_sink(struct answer *a)
{
	return a->spilling ? &a->tail : &a->head;
}

size_t answer_memory(const struct answer *a)
{
	return buf_len(&a->head) + buf_len(&a->tail);
}

static int64_t file_left(const struct answer *a)
{
	return a->file.size_bytes - a->file_read;
}

bool answer_is_empty(const struct answer *a)
{
	return answer_memory(a) == 0 && file_left(a) == 0;
}

/* ---- the file ---- */

void answer_spill(struct answer *a)
{
	a->spilling = true;
}

/* In large pieces: what is less stays in tail. */
static bool move_tail(struct answer *a, const char *dir)
{
	if (buf_len(&a->tail) < FILE_CHUNK_BYTES / 2)
		return true;
	if (!spool_append(&a->file, buf_head(&a->tail), buf_len(&a->tail), 0, dir)) {
		a->no_room = true;
		return false;
	}
	buf_reset(&a->tail, FILE_CHUNK_BYTES);
	return true;
}

bool answer_is_full(const struct answer *a, size_t memory_bytes, int64_t file_bytes)
{
	if (!a->spilling)
		return buf_len(&a->head) >= memory_bytes;
	return a->no_room || a->file.size_bytes >= file_bytes;
}

/* Keeps the head filled from what follows it, until that is all in memory. */
static bool refill(struct answer *a)
{
	size_t n = file_left(a) < FILE_CHUNK_BYTES ? (size_t)file_left(a) : FILE_CHUNK_BYTES;

	if (n > 0) {
		if (!buf_reserve(&a->head, n)) {
			errno = ENOMEM;
			return false;
		}
		if (!spool_read(&a->file, a->file_read, buf_tail(&a->head), n))
			return false;
		buf_commit(&a->head, n);
		a->file_read += (int64_t)n;
	}
	if (file_left(a) > 0)
		return true;
	if (!buf_append(&a->head, buf_head(&a->tail), buf_len(&a->tail))) {
		errno = ENOMEM;
		return false;
	}
	buf_reset(&a->tail, 0);
	leave_file(a);
	return true;
}

bool answer_settle(struct answer *a, const char *dir)
{
	if (!a->spilling)
		return true;
	return buf_len(&a->head) == 0 ? refill(a) : move_tail(a, dir);
}

void answer_drop(struct answer *a)
{
	a->head.end = a->head.start + a->cut;
	buf_reset(&a->tail, 0);
	leave_file(a);
}

/* ---- turns ---- */

/* The length of the record at p; 0: not all of its header is there. The mark
 * of a cut answer is a bare header (request.c). */
static size_t record_len(const uint8_t *p, size_t len)
{
	struct record_header h;

	if (len < RECORD_HEADER_LEN)
		return 0;
	if (!record_header_decode(p, &h))
		return RECORD_HEADER_LEN;
	return RECORD_HEADER_LEN + (size_t)h.content_len + h.padding_len;
}

struct iovec answer_turn(const struct answer *a, size_t max_bytes)
{
	const uint8_t *p = buf_head(&a->head);
	size_t len = buf_len(&a->head), run = 0, one;

	if (a->cut > 0)
		return (struct iovec){(void *)p, a->cut};
	if (len <= max_bytes && !a->spilling)
		return (struct iovec){(void *)p, len}; /* all that is there is whole */
	while ((one = record_len(p + run, len - run)) > 0 && one <= len - run && (run == 0 || run + one <= max_bytes))
		run += one;
	assert(run > 0);
	return (struct iovec){(void *)p, run};
}

bool answer_wrote(struct answer *a, size_t n)
{
	if (n == 0)
		return true;
	if (a->cut > 0) {
		assert(n <= a->cut);
		a->cut -= n;
	} else {
		size_t at = 0;
		while (at < n)
			at += record_len(buf_head(&a->head) + at, buf_len(&a->head) - at);
		a->cut = at - n;
	}
	buf_consume(&a->head, n);
	if (a->spilling && a->cut == 0 && buf_len(&a->head) < FILE_CHUNK_BYTES / 2)
		return refill(a);
	return true;
}

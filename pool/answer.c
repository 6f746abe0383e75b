#include "pool/answer.h"

#include <assert.h>
#include <errno.h>

#include "protocol/record.h"

enum {
	READ_BYTES = 16384,  /* at one time from the file: many may be in theirs */
	WRITE_BYTES = 32768, /* to it, but for the last */
	LAST_BYTES = 4096,   /* less is not worth a write */
};

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

/* ---- records ---- */

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

/* The length of the whole records at the start, up to max_bytes, at least one;
 * 0: there is none. */
static size_t run_len(const struct buf *b, size_t max_bytes)
{
	const uint8_t *p = buf_head(b);
	size_t len = buf_len(b), run = 0, one;

	while ((one = record_len(p + run, len - run)) > 0 && one <= len - run && (run == 0 || run + one <= max_bytes))
		run += one;
	return run;
}

/* ---- the file ---- */

/* Gives back memory that was for more than is there now. */
static void trim(struct buf *b)
{
	struct buf fitting = {0};

	if (b->cap < 4 * (buf_len(b) + READ_BYTES) || !buf_append(&fitting, buf_head(b), buf_len(b)))
		return;
	buf_fini(b);
	*b = fitting;
}

bool answer_spill(struct answer *a, const char *dir)
{
	size_t keep = a->cut > 0 ? a->cut : run_len(&a->head, READ_BYTES);

	if (!spool_append(&a->file, buf_head(&a->head) + keep, buf_len(&a->head) - keep, 0, dir)) {
		leave_file(a);
		return false;
	}
	a->head.end = a->head.start + keep;
	trim(&a->head);
	a->spilling = true;
	return true;
}

static bool move_tail(struct answer *a, const char *dir)
{
	if (!spool_append(&a->file, buf_head(&a->tail), buf_len(&a->tail), 0, dir)) {
		a->no_room = true;
		return false;
	}
	buf_reset(&a->tail, 0);
	return true;
}

bool answer_is_full(const struct answer *a, size_t memory_bytes, int64_t file_bytes)
{
	if (!a->spilling)
		return buf_len(&a->head) >= memory_bytes;
	return a->no_room || a->file.size_bytes >= file_bytes;
}

static bool read_back(struct answer *a)
{
	size_t n = file_left(a) < READ_BYTES ? (size_t)file_left(a) : READ_BYTES;

	trim(&a->head);
	if (!buf_reserve(&a->head, n)) {
		errno = ENOMEM;
		return false;
	}
	if (!spool_read(&a->file, a->file_read, buf_tail(&a->head), n))
		return false;
	buf_commit(&a->head, n);
	a->file_read += (int64_t)n;
	return true;
}

/* Has a whole record in the head, if one follows anywhere. */
static bool refill(struct answer *a)
{
	while (file_left(a) > 0 && run_len(&a->head, 0) == 0) {
		if (!read_back(a))
			return false;
	}
	if (file_left(a) > 0 || buf_len(&a->head) > READ_BYTES)
		return true;
	if (!buf_append(&a->head, buf_head(&a->tail), buf_len(&a->tail))) {
		errno = ENOMEM;
		return false;
	}
	buf_reset(&a->tail, 0);
	leave_file(a);
	return true;
}

bool answer_settle(struct answer *a, const char *dir, bool last)
{
	if (!a->spilling)
		return true;
	if (buf_len(&a->head) == 0)
		return refill(a);
	return buf_len(&a->tail) < (last ? LAST_BYTES : WRITE_BYTES) || move_tail(a, dir);
}

void answer_drop(struct answer *a)
{
	a->head.end = a->head.start + a->cut;
	buf_reset(&a->tail, 0);
	leave_file(a);
}

/* ---- turns ---- */

struct iovec answer_turn(const struct answer *a, size_t max_bytes)
{
	size_t len = buf_len(&a->head);

	if (a->cut > 0)
		len = a->cut;
	else if (len > max_bytes || a->spilling) /* else all that is there is whole */
		len = run_len(&a->head, max_bytes);
	assert(len > 0);
	return (struct iovec){buf_head(&a->head), len};
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
	return !a->spilling || a->cut > 0 || run_len(&a->head, 0) > 0 || refill(a);
}

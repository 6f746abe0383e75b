/* The record reader: the same bytes cut in two anywhere, and byte by byte,
 * give the same records; and what it read, written again without padding, is
 * read as the same. The first two bytes choose the cut. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "protocol/record.h"
#include "tests/fuzz/check.h"

struct trace {
	struct record_reader reader;
	struct buf text;  /* contents, each record followed by its header */
	struct buf again; /* the records without padding */
	uint32_t left;
	bool inside;
	bool bad;
};

static void keep(struct buf *b, const void *data, size_t len)
{
	CHECK(buf_append(b, data, len));
}

static void take_piece(struct trace *t, const struct record_piece *p)
{
	uint8_t wire[RECORD_HEADER_LEN];
	struct record_header h = p->header;

	CHECK(p->first == !t->inside);
	CHECK(p->len > 0 || h.content_len == 0);
	h.padding_len = 0;
	record_header_encode(wire, &h);
	if (p->first) {
		t->left = h.content_len;
		keep(&t->again, wire, sizeof(wire));
	}
	CHECK(p->len <= t->left);
	t->left -= (uint32_t)p->len;
	CHECK(p->last == (t->left == 0));
	t->inside = !p->last;
	keep(&t->text, p->data, p->len);
	keep(&t->again, p->data, p->len);
	if (p->last)
		keep(&t->text, wire, sizeof(wire));
}

static void feed(struct trace *t, const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	const uint8_t *in = copy;
	size_t left = len;
	struct record_piece piece;
	enum record_result result = RECORD_BAD_VERSION;

	CHECK(copy);
	if (len > 0)
		memcpy(copy, data, len);
	while (!t->bad && (result = record_reader_next(&t->reader, &in, &left, &piece)) == RECORD_PIECE) {
		CHECK(in + left == copy + len);
		CHECK(piece.data >= copy && piece.data + piece.len == in);
		take_piece(t, &piece);
	}
	CHECK(result == RECORD_BAD_VERSION || left == 0);
	t->bad = result == RECORD_BAD_VERSION;
	free(copy);
}

static void start(struct trace *t)
{
	*t = (struct trace){0};
	record_reader_init(&t->reader);
}

static void stop(struct trace *t)
{
	buf_fini(&t->text);
	buf_fini(&t->again);
}

static bool same_bytes(const struct buf *a, const struct buf *b)
{
	return buf_len(a) == buf_len(b) && (buf_len(a) == 0 || !memcmp(buf_head(a), buf_head(b), buf_len(a)));
}

static void check_same(const struct trace *a, const struct trace *b)
{
	CHECK(same_bytes(&a->text, &b->text));
	CHECK(same_bytes(&a->again, &b->again));
	CHECK(a->bad == b->bad);
	CHECK(record_reader_at_border(&a->reader) == record_reader_at_border(&b->reader));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace whole, cut, bytes, again;
	size_t at;

	if (size < 2)
		return 0;
	at = ((size_t)data[0] << 8 | data[1]) % (size - 1);
	data += 2;
	size -= 2;
	start(&whole);
	start(&cut);
	start(&bytes);
	start(&again);
	feed(&whole, data, size);
	feed(&cut, data, at);
	feed(&cut, data + at, size - at);
	for (size_t i = 0; i < size; i++)
		feed(&bytes, data + i, 1);
	check_same(&whole, &cut);
	check_same(&whole, &bytes);
	if (buf_len(&whole.again) > 0)
		feed(&again, buf_head(&whole.again), buf_len(&whole.again));
	CHECK(!again.bad);
	CHECK(same_bytes(&again.text, &whole.text));
	CHECK(same_bytes(&again.again, &whole.again));
	stop(&whole);
	stop(&cut);
	stop(&bytes);
	stop(&again);
	return 0;
}

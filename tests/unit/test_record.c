/* Record headers and bodies, the appenders, and the reader under every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "protocol/record.h"

/* No byte more fits: every append fails as if memory were out. */
#define FULL_BUF ((struct buf){.end = SIZE_MAX, .cap = SIZE_MAX})

static void test_header_layout(void **state)
{
	const struct record_header h = {.type = FCGI_STDIN, .id = 0x1234, .content_len = 0xabcd, .padding_len = 0xef};
	const uint8_t wire[8] = {1, 5, 0x12, 0x34, 0xab, 0xcd, 0xef, 0};
	uint8_t out[8];

	(void)state;
	memset(out, 0xff, sizeof(out));
	record_header_encode(out, &h);
	assert_memory_equal(out, wire, 8);
}

static void test_header_round_trip(void **state)
{
	static const uint16_t edges[] = {0, 1, 127, 128, 255, 256, 32767, 32768, 65534, 65535};

	(void)state;
	for (unsigned type = 0; type < 256; type += 5)
		for (unsigned i = 0; i < 10; i++)
			for (unsigned j = 0; j < 10; j++) {
				struct record_header h = {(uint8_t)type, edges[i], edges[j], (uint8_t)edges[9 - i]};
				struct record_header back;
				uint8_t wire[8];

				record_header_encode(wire, &h);
				assert_true(record_header_decode(wire, &back));
				assert_int_equal(back.type, h.type);
				assert_int_equal(back.id, h.id);
				assert_int_equal(back.content_len, h.content_len);
				assert_int_equal(back.padding_len, h.padding_len);
			}
}

static void test_header_version(void **state)
{
	struct record_header h;
	uint8_t wire[8] = {0, FCGI_STDIN};

	(void)state;
	for (unsigned version = 0; version < 256; version++) {
		wire[0] = (uint8_t)version;
		assert_int_equal(record_header_decode(wire, &h), version == 1);
	}
}

static void test_begin_body(void **state)
{
	const uint8_t wire[16] = {1, 1, 0x01, 0x02, 0, 8, 0, 0, 0x03, 0x04, 0x05};
	struct record_begin begin;
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(record_append_begin(&b, 0x0102, 0x0304, 5));
	assert_int_equal(buf_len(&b), 16);
	assert_memory_equal(buf_head(&b), wire, 16);
	record_begin_decode(buf_head(&b) + 8, &begin);
	assert_int_equal(begin.role, 0x0304);
	assert_int_equal(begin.flags, 5);
	buf_fini(&b);
}

static void test_end_body(void **state)
{
	const uint8_t wire[16] = {1, 3, 0xff, 0xff, 0, 8, 0, 0, 0xfe, 0xdc, 0xba, 0x98, 2};
	struct record_end end;
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(record_append_end(&b, 65535, 0xfedcba98, FCGI_OVERLOADED));
	assert_int_equal(buf_len(&b), 16);
	assert_memory_equal(buf_head(&b), wire, 16);
	record_end_decode(buf_head(&b) + 8, &end);
	assert_int_equal(end.app_status, 0xfedcba98);
	assert_int_equal(end.protocol_status, FCGI_OVERLOADED);
	buf_fini(&b);
}

/* The records' contents must be as long as given and join to data again. */
static void assert_stream(const struct buf *b, const uint8_t *data, size_t len)
{
	const uint8_t *in = buf_head(b);
	size_t left = buf_len(b);
	size_t seen = 0;

	while (left > 0) {
		struct record_header h;

		assert_true(left >= RECORD_HEADER_LEN);
		assert_true(record_header_decode(in, &h));
		assert_int_equal(h.type, FCGI_STDOUT);
		assert_int_equal(h.id, 9);
		assert_int_equal(h.padding_len, 0);
		assert_int_equal(h.content_len, len - seen < 65535 ? len - seen : 65535);
		assert_true(left >= RECORD_HEADER_LEN + (size_t)h.content_len);
		assert_memory_equal(in + RECORD_HEADER_LEN, data + seen, h.content_len);
		seen += h.content_len;
		in += RECORD_HEADER_LEN + h.content_len;
		left -= RECORD_HEADER_LEN + (size_t)h.content_len;
	}
	assert_int_equal(seen, len);
}

static void test_append_stream(void **state)
{
	static const size_t lens[] = {1, 2, 65534, 65535, 65536, 131070, 131071, 300000};
	uint8_t *data = malloc(300000);

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < 300000; i++)
		data[i] = (uint8_t)(i % 251);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		struct buf b;

		buf_init(&b);
		assert_true(record_append_stream(&b, FCGI_STDOUT, 9, data, lens[i]));
		assert_stream(&b, data, lens[i]);
		buf_fini(&b);
	}
	free(data);
}

static void test_append_nothing_and_end(void **state)
{
	const uint8_t wire[8] = {1, 6, 0, 9};
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(record_append_stream(&b, FCGI_STDOUT, 9, NULL, 0));
	assert_int_equal(buf_len(&b), 0);
	assert_true(record_append_stream_end(&b, FCGI_STDOUT, 9));
	assert_int_equal(buf_len(&b), 8);
	assert_memory_equal(buf_head(&b), wire, 8);
	buf_fini(&b);
}

static void test_append_without_memory(void **state)
{
	const struct buf full = FULL_BUF;
	struct buf b = FULL_BUF;

	(void)state;
	assert_false(record_append_begin(&b, 1, FCGI_RESPONDER, 0));
	assert_false(record_append_end(&b, 1, 0, 0));
	assert_false(record_append_stream(&b, FCGI_STDOUT, 1, "x", 1));
	assert_false(record_append_stream(&b, FCGI_STDOUT, 1, "x", SIZE_MAX));
	assert_false(record_append_stream_end(&b, FCGI_STDOUT, 1));
	assert_memory_equal(&b, &full, sizeof(b));
}

static void add_record(struct buf *b, struct record_header h, const char *content)
{
	static const uint8_t padding[RECORD_MAX_PADDING] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	uint8_t wire[RECORD_HEADER_LEN];

	record_header_encode(wire, &h);
	assert_true(buf_append(b, wire, sizeof(wire)));
	assert_true(buf_append(b, content, h.content_len));
	assert_true(buf_append(b, padding, h.padding_len));
}

static void add_conversation(struct buf *b)
{
	assert_true(record_append_begin(b, 1, FCGI_RESPONDER, FCGI_KEEP_CONN));
	add_record(b, (struct record_header){FCGI_PARAMS, 1, 5, 3}, "param");
	add_record(b, (struct record_header){FCGI_PARAMS, 1, 0, 0}, "");
	add_record(b, (struct record_header){FCGI_STDIN, 2, 1, 255}, "s");
	add_record(b, (struct record_header){FCGI_STDIN, 1, 0, 9}, "");
	add_record(b, (struct record_header){200, 65535, 9, 1}, "\x01\x01\0\0\0\0\0\0\x01");
}

/* What came out, as text without any trace of where the pieces were cut. */
struct trace {
	struct record_reader reader;
	struct buf text;
	unsigned records;
	bool inside;
	size_t in_record; /* content bytes of the current record so far */
};

static void trace_piece(struct trace *t, const struct record_piece *p)
{
	assert_int_equal(p->first, !t->inside);
	if (p->first)
		t->in_record = 0;
	assert_true(p->len > 0 || p->header.content_len == 0);
	t->in_record += p->len;
	assert_true(t->in_record <= p->header.content_len);
	assert_int_equal(p->last, t->in_record == p->header.content_len);
	assert_true(buf_append(&t->text, p->data, p->len));
	t->inside = !p->last;
	if (!p->last)
		return;
	t->records++;
	assert_true(buf_append(&t->text, &p->header.type, 1));
	assert_true(buf_append(&t->text, &p->header.id, 2));
	assert_true(buf_append(&t->text, &p->header.content_len, 2));
	assert_true(buf_append(&t->text, &p->header.padding_len, 1));
}

/* Fed from a copy of exactly its size, so that a sanitizer sees reads past it. */
static enum record_result feed(struct trace *t, const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	const uint8_t *in = copy;
	struct record_piece piece;
	enum record_result result;

	assert_non_null(copy);
	memcpy(copy, data, len);
	while ((result = record_reader_next(&t->reader, &in, &len, &piece)) == RECORD_PIECE) {
		assert_ptr_equal(piece.data + piece.len, in);
		trace_piece(t, &piece);
	}
	if (result == RECORD_NEED_MORE)
		assert_int_equal(len, 0);
	free(copy);
	return result;
}

static void trace_init(struct trace *t)
{
	*t = (struct trace){0};
	record_reader_init(&t->reader);
}

static void assert_same(const struct trace *a, const struct trace *b)
{
	assert_int_equal(a->records, b->records);
	assert_int_equal(buf_len(&a->text), buf_len(&b->text));
	assert_memory_equal(buf_head(&a->text), buf_head(&b->text), buf_len(&a->text));
}

static void test_reader_whole(void **state)
{
	struct buf b;
	struct trace t;
	struct record_piece p;
	const uint8_t *in;
	size_t len;

	(void)state;
	buf_init(&b);
	add_conversation(&b);
	trace_init(&t);
	assert_int_equal(feed(&t, buf_head(&b), buf_len(&b)), RECORD_NEED_MORE);
	assert_int_equal(t.records, 6);
	assert_true(record_reader_at_border(&t.reader));

	in = buf_head(&b) + 16;
	len = 8 + 3;
	assert_int_equal(record_reader_next(&t.reader, &in, &len, &p), RECORD_PIECE);
	assert_ptr_equal(p.data, buf_head(&b) + 24); /* not a copy */
	assert_int_equal(p.len, 3);
	assert_true(p.first && !p.last);
	buf_fini(&t.text);
	buf_fini(&b);
}

static void test_reader_every_two_cuts(void **state)
{
	struct buf b;
	struct trace whole;

	(void)state;
	buf_init(&b);
	add_conversation(&b);
	trace_init(&whole);
	assert_int_equal(feed(&whole, buf_head(&b), buf_len(&b)), RECORD_NEED_MORE);
	for (size_t i = 0; i <= buf_len(&b); i++)
		for (size_t j = i; j <= buf_len(&b); j += 1 + (j - i) / 12) {
			struct trace t;

			trace_init(&t);
			assert_int_equal(feed(&t, buf_head(&b), i), RECORD_NEED_MORE);
			assert_int_equal(feed(&t, buf_head(&b) + i, j - i), RECORD_NEED_MORE);
			assert_int_equal(feed(&t, buf_head(&b) + j, buf_len(&b) - j), RECORD_NEED_MORE);
			assert_same(&t, &whole);
			buf_fini(&t.text);
		}
	buf_fini(&whole.text);
	buf_fini(&b);
}

static void test_reader_byte_by_byte(void **state)
{
	struct buf b;
	struct trace whole, t;
	/* Offsets at which a record ends: content and padding. */
	static const size_t borders[] = {0, 16, 32, 40, 304, 321, 339};
	unsigned next = 0;

	(void)state;
	buf_init(&b);
	add_conversation(&b);
	trace_init(&whole);
	trace_init(&t);
	assert_int_equal(feed(&whole, buf_head(&b), buf_len(&b)), RECORD_NEED_MORE);
	for (size_t i = 0; i < buf_len(&b); i++) {
		assert_int_equal(record_reader_at_border(&t.reader), i == borders[next]);
		next += i == borders[next];
		assert_int_equal(feed(&t, buf_head(&b) + i, 1), RECORD_NEED_MORE);
	}
	assert_int_equal(next, 6);
	assert_int_equal(buf_len(&b), borders[6]);
	assert_true(record_reader_at_border(&t.reader));
	assert_same(&t, &whole);
	buf_fini(&t.text);
	buf_fini(&whole.text);
	buf_fini(&b);
}

static void test_reader_largest_record(void **state)
{
	struct buf b;
	struct trace t;
	char *content = calloc(1, RECORD_MAX_CONTENT);

	(void)state;
	assert_non_null(content);
	buf_init(&b);
	add_record(&b, (struct record_header){FCGI_STDIN, 1, RECORD_MAX_CONTENT, RECORD_MAX_PADDING}, content);
	trace_init(&t);
	for (size_t at = 0; at < buf_len(&b); at += 1000)
		assert_int_equal(feed(&t, buf_head(&b) + at, buf_len(&b) - at < 1000 ? buf_len(&b) - at : 1000),
		                 RECORD_NEED_MORE);
	assert_int_equal(t.records, 1);
	assert_int_equal(t.in_record, RECORD_MAX_CONTENT);
	assert_true(record_reader_at_border(&t.reader));
	buf_fini(&t.text);
	buf_fini(&b);
	free(content);
}

static void test_reader_bad_version(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(record_append_begin(&b, 1, FCGI_RESPONDER, 0));
	assert_true(buf_append(&b, "GET / HTTP/1.1\r\n", 16));
	for (size_t cut = 0; cut <= 24; cut++) {
		struct trace t;

		trace_init(&t);
		if (cut < 24)
			assert_int_equal(feed(&t, buf_head(&b), cut), RECORD_NEED_MORE);
		else
			assert_int_equal(feed(&t, buf_head(&b), cut), RECORD_BAD_VERSION);
		if (cut < 24)
			assert_int_equal(feed(&t, buf_head(&b) + cut, 32 - cut), RECORD_BAD_VERSION);
		assert_int_equal(t.records, 1);
		buf_fini(&t.text);
	}
	buf_fini(&b);
}

static void test_reader_empty_input(void **state)
{
	struct record_reader r;
	struct record_piece p;
	const uint8_t *in = NULL;
	size_t len = 0;

	(void)state;
	record_reader_init(&r);
	assert_true(record_reader_at_border(&r));
	assert_int_equal(record_reader_next(&r, &in, &len, &p), RECORD_NEED_MORE);
	assert_true(record_reader_at_border(&r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_header_layout),
	        cmocka_unit_test(test_header_round_trip),
	        cmocka_unit_test(test_header_version),
	        cmocka_unit_test(test_begin_body),
	        cmocka_unit_test(test_end_body),
	        cmocka_unit_test(test_append_stream),
	        cmocka_unit_test(test_append_nothing_and_end),
	        cmocka_unit_test(test_append_without_memory),
	        cmocka_unit_test(test_reader_whole),
	        cmocka_unit_test(test_reader_every_two_cuts),
	        cmocka_unit_test(test_reader_byte_by_byte),
	        cmocka_unit_test(test_reader_largest_record),
	        cmocka_unit_test(test_reader_bad_version),
	        cmocka_unit_test(test_reader_empty_input),
	};

	return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}

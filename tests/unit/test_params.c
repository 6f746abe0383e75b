/* Name-value pairs: both forms of a length, truncation at every byte, and
 * the re-framing into records that php-cgi accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "protocol/params.h"
#include "protocol/record.h"

#define FULL_BUF ((struct buf){.end = SIZE_MAX, .cap = SIZE_MAX})

static uint8_t *letters(size_t len)
{
	uint8_t *p = malloc(len + 1);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)('a' + i % 23);
	return p;
}

/* Reads from a copy of exactly len bytes and tells how the walk ended. */
static enum params_result walk(const uint8_t *block, size_t len, unsigned *pairs)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	enum params_result result;
	struct params_iter it;
	struct param p;

	assert_non_null(copy);
	if (len > 0)
		memcpy(copy, block, len);
	*pairs = 0;
	params_iter_init(&it, copy, len);
	while ((result = params_next(&it, &p)) == PARAMS_PAIR) {
		assert_true(p.name >= copy && p.name + p.name_len <= copy + len);
		assert_true(p.value >= copy && p.value + p.value_len <= copy + len);
		(*pairs)++;
	}
	free(copy);
	return result;
}

static void test_read(void **state)
{
	static const uint8_t block[] = "\x01\x02"
	                               "abc"
	                               "\0\0"
	                               "\x80\0\0\x01\x00"
	                               "n";
	struct params_iter it;
	struct param p;

	(void)state;
	params_iter_init(&it, block, sizeof(block) - 1);
	assert_int_equal(params_next(&it, &p), PARAMS_PAIR);
	assert_int_equal(p.name_len, 1);
	assert_int_equal(p.value_len, 2);
	assert_ptr_equal(p.name, block + 2);
	assert_ptr_equal(p.value, block + 3);
	assert_int_equal(params_next(&it, &p), PARAMS_PAIR);
	assert_int_equal(p.name_len + p.value_len, 0);
	/* A long length that would fit the short form is legal. */
	assert_int_equal(params_next(&it, &p), PARAMS_PAIR);
	assert_int_equal(p.name_len, 1);
	assert_int_equal(p.value_len, 0);
	assert_int_equal(*p.name, 'n');
	assert_int_equal(params_next(&it, &p), PARAMS_END);
	assert_int_equal(params_next(&it, &p), PARAMS_END);
	params_iter_init(&it, NULL, 0);
	assert_int_equal(params_next(&it, &p), PARAMS_END);
}

static void test_lengths_past_the_block(void **state)
{
	static const struct {
		uint8_t bytes[12];
		size_t len;
	} blocks[] = {
	        {{0x01}, 1},
	        {{0x80}, 1},
	        {{0x80, 0, 0}, 3},
	        {{0x80, 0, 0, 0}, 4},
	        {{0x01, 0x00}, 2},
	        {{0x00, 0x01}, 2},
	        {{0x01, 0x01, 'n'}, 3},
	        {{0x02, 0x00, 'n'}, 3},
	        {{0x7f, 0x7f, 'n'}, 3},
	        {{0x00, 0xff, 0xff, 0xff}, 4},
	        {{0xff, 0xff, 0xff, 0xff, 0x00}, 5},
	        {{0x00, 0xff, 0xff, 0xff, 0xff}, 5},
	        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8},
	        {{0xff, 0xff, 0xff, 0xff, 0x02, 'a', 'b'}, 7},
	        {{0x01, 0xff, 0xff, 0xff, 0xff, 'a', 'b'}, 7},
	};
	unsigned pairs;

	(void)state;
	for (unsigned i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		assert_int_equal(walk(blocks[i].bytes, blocks[i].len, &pairs), PARAMS_TRUNCATED);
		assert_int_equal(pairs, 0);
	}
}

/* The flag bit of a long length is no part of it: 0x80000000 means 0. */
static void test_flag_bit_is_not_counted(void **state)
{
	static const uint8_t block[] = {0x80, 0, 0, 0, 0x80, 0, 0, 0};
	unsigned pairs;

	(void)state;
	assert_int_equal(walk(block, sizeof(block), &pairs), PARAMS_END);
	assert_int_equal(pairs, 1);
}

static void test_every_truncation(void **state)
{
	struct buf b;
	uint8_t *text = letters(300);
	size_t borders[4] = {0};
	unsigned pairs;

	(void)state;
	buf_init(&b);
	assert_true(params_append(&b, text, 3, text, 5));
	borders[1] = buf_len(&b);
	assert_true(params_append(&b, text, 128, text, 127));
	borders[2] = buf_len(&b);
	assert_true(params_append(&b, text, 0, text, 300));
	borders[3] = buf_len(&b);
	for (size_t len = 0; len <= buf_len(&b); len++) {
		unsigned whole = (len >= borders[1]) + (len >= borders[2]) + (len >= borders[3]);
		bool at_border = len == borders[whole];

		assert_int_equal(walk(buf_head(&b), len, &pairs), at_border ? PARAMS_END : PARAMS_TRUNCATED);
		assert_int_equal(pairs, whole);
	}
	free(text);
	buf_fini(&b);
}

static void test_append_layout(void **state)
{
	static const uint8_t short_pair[] = {1, 2, 'a', 'a', 'b'};
	uint8_t *text = letters(200);
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(params_append(&b, text, 1, text, 2));
	assert_int_equal(buf_len(&b), sizeof(short_pair));
	assert_memory_equal(buf_head(&b), short_pair, sizeof(short_pair));
	buf_reset(&b, 0);
	assert_true(params_append(&b, text, 127, text, 128));
	assert_int_equal(buf_len(&b), 1 + 4 + 127 + 128);
	assert_memory_equal(buf_head(&b), "\x7f\x80\0\0\x80", 5);
	buf_reset(&b, 0);
	assert_true(params_append(&b, NULL, 0, NULL, 0));
	assert_int_equal(buf_len(&b), 2);
	assert_memory_equal(buf_head(&b), "\0\0", 2);
	free(text);
	buf_fini(&b);
}

static void test_round_trip(void **state)
{
	static const size_t lens[] = {0, 1, 126, 127, 128, 129, 255, 256, 65534, 65535, 65536, 1 << 24};
	const unsigned count = sizeof(lens) / sizeof(*lens);
	uint8_t *text = letters(1 << 24);

	(void)state;
	for (unsigned i = 0; i < count * count; i++) {
		size_t name_len = lens[i / count], value_len = lens[i % count];
		struct params_iter it;
		struct param p;
		struct buf b;

		if (name_len + value_len > 1 << 24)
			continue;
		buf_init(&b);
		assert_true(params_append(&b, text, name_len, text, value_len));
		assert_int_equal(buf_len(&b), params_pair_len(name_len, value_len));
		params_iter_init(&it, buf_head(&b), buf_len(&b));
		assert_int_equal(params_next(&it, &p), PARAMS_PAIR);
		assert_int_equal(p.name_len, name_len);
		assert_int_equal(p.value_len, value_len);
		assert_memory_equal(p.name, text, name_len);
		assert_memory_equal(p.value, text, value_len);
		assert_int_equal(params_next(&it, &p), PARAMS_END);
		buf_fini(&b);
	}
	free(text);
}

static void test_pair_len(void **state)
{
	(void)state;
	assert_int_equal(params_pair_len(0, 0), 2);
	assert_int_equal(params_pair_len(127, 127), 2 + 254);
	assert_int_equal(params_pair_len(128, 127), 5 + 255);
	assert_int_equal(params_pair_len(127, 128), 5 + 255);
	assert_int_equal(params_pair_len(INT32_MAX, INT32_MAX), 8 + 2 * (size_t)INT32_MAX);
}

static void test_without_memory(void **state)
{
	const struct buf full = FULL_BUF;
	struct buf b = FULL_BUF;
	struct params_writer w;

	(void)state;
	assert_false(params_append(&b, "n", 1, "v", 1));
	assert_false(params_append(&b, NULL, INT32_MAX, NULL, INT32_MAX));
	params_writer_init(&w, &b, 1);
	assert_false(params_writer_add(&w, "n", 1, "v", 1));
	assert_false(params_writer_end(&w));
	assert_memory_equal(&b, &full, sizeof(b));
}

/* Walks what a writer wrote: each record holds whole pairs and no padding,
 * none but the last is empty, and none could have taken the next one's first
 * pair. Tells how many records with content and how many pairs there were. */
static void assert_framed(const struct buf *b, size_t at, unsigned *records, unsigned *pairs)
{
	struct record_header h = {.content_len = RECORD_MAX_CONTENT};

	*records = 0;
	*pairs = 0;
	for (;;) {
		size_t before = h.content_len;
		struct params_iter it;
		struct param p;
		unsigned n;

		assert_true(at + RECORD_HEADER_LEN <= buf_len(b));
		assert_true(record_header_decode(buf_head(b) + at, &h));
		at += RECORD_HEADER_LEN;
		assert_int_equal(h.type, FCGI_PARAMS);
		assert_int_equal(h.id, 0x0102);
		assert_int_equal(h.padding_len, 0);
		if (h.content_len == 0)
			break;
		assert_true(at + h.content_len <= buf_len(b));
		params_iter_init(&it, buf_head(b) + at, h.content_len);
		assert_int_equal(params_next(&it, &p), PARAMS_PAIR);
		assert_true(before + params_pair_len(p.name_len, p.value_len) > RECORD_MAX_CONTENT);
		assert_int_equal(walk(buf_head(b) + at, h.content_len, &n), PARAMS_END);
		*pairs += n;
		(*records)++;
		at += h.content_len;
	}
	assert_int_equal(at, buf_len(b));
}

static void test_writer_many_pairs(void **state)
{
	uint8_t *text = letters(5000);
	struct params_writer w;
	struct buf b;
	unsigned records, pairs;

	(void)state;
	buf_init(&b);
	assert_true(buf_append(&b, "earlier", 7));
	params_writer_init(&w, &b, 0x0102);
	for (unsigned i = 0; i < 20000; i++)
		assert_true(params_writer_add(&w, text, i % 40, text, i * 37 % 500));
	assert_true(params_writer_end(&w));
	assert_memory_equal(buf_head(&b), "earlier", 7);
	assert_framed(&b, 7, &records, &pairs);
	assert_int_equal(pairs, 20000);
	assert_true(records > 50);
	free(text);
	buf_fini(&b);
}

static void test_writer_no_pairs(void **state)
{
	struct params_writer w;
	struct buf b;
	unsigned records, pairs;

	(void)state;
	buf_init(&b);
	params_writer_init(&w, &b, 0x0102);
	assert_true(params_writer_end(&w));
	assert_int_equal(buf_len(&b), RECORD_HEADER_LEN);
	assert_framed(&b, 0, &records, &pairs);
	assert_int_equal(pairs, 0);
	buf_fini(&b);
}

/* 65,535 bytes fit exactly, in one pair or two; one more does not. */
static void test_writer_exact_fit(void **state)
{
	const size_t largest = RECORD_MAX_CONTENT - 1 - 4 - 4;
	uint8_t *text = letters(70000);
	struct params_writer w;
	struct buf b;
	unsigned records, pairs;
	size_t len;

	(void)state;
	buf_init(&b);
	params_writer_init(&w, &b, 0x0102);
	assert_false(params_writer_add(&w, text, 4, text, largest + 1));
	assert_false(params_writer_add(&w, text, 65536, text, 0));
	assert_false(params_writer_add(&w, text, 0, text, 70000));
	assert_false(params_writer_add(&w, NULL, SIZE_MAX, NULL, SIZE_MAX));
	assert_int_equal(buf_len(&b), 0);
	assert_true(params_writer_add(&w, text, 4, text, largest));
	len = RECORD_HEADER_LEN + RECORD_MAX_CONTENT;
	assert_int_equal(buf_len(&b), len);
	assert_true(params_writer_add(&w, text, 4, text, largest - 3)); /* leaves room for 3 bytes */
	assert_true(params_writer_add(&w, text, 1, text, 0));           /* takes them */
	assert_int_equal(buf_len(&b), 2 * len);
	assert_true(params_writer_add(&w, text, 4, text, largest - 2)); /* leaves 2, the next takes 3 */
	assert_true(params_writer_add(&w, text, 0, text, 1));
	assert_int_equal(buf_len(&b), 3 * len - 2 + RECORD_HEADER_LEN + 3);
	/* A refused pair in the middle leaves the open record as it is. */
	assert_false(params_writer_add(&w, text, 4, text, largest + 1));
	assert_true(params_writer_add(&w, text, 1, text, 1));
	assert_int_equal(buf_len(&b), 3 * len - 2 + RECORD_HEADER_LEN + 3 + 4);
	assert_true(params_writer_end(&w));
	assert_framed(&b, 0, &records, &pairs);
	assert_int_equal(records, 4);
	assert_int_equal(pairs, 6);
	free(text);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_read),
	        cmocka_unit_test(test_lengths_past_the_block),
	        cmocka_unit_test(test_flag_bit_is_not_counted),
	        cmocka_unit_test(test_every_truncation),
	        cmocka_unit_test(test_append_layout),
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_pair_len),
	        cmocka_unit_test(test_without_memory),
	        cmocka_unit_test(test_writer_many_pairs),
	        cmocka_unit_test(test_writer_no_pairs),
	        cmocka_unit_test(test_writer_exact_fit),
	};

	return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}

/* The byte buffer: contents through growth, moving, consuming and resetting,
 * and what a failed growth leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "protocol/buf.h"

/* A growth that cannot be is one of the tests; AddressSanitizer ends the
 * process for it unless told otherwise. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void assert_contents(const struct buf *b, const char *text)
{
	assert_int_equal(buf_len(b), strlen(text));
	assert_memory_equal(buf_head(b), text, strlen(text));
}

static void test_append_and_consume(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_int_equal(buf_len(&b), 0);
	assert_true(buf_append(&b, NULL, 0));
	assert_null(b.data);
	assert_true(buf_append(&b, "hello ", 6));
	assert_true(buf_append(&b, "world", 5));
	assert_contents(&b, "hello world");
	buf_consume(&b, 0);
	buf_consume(&b, 6);
	assert_contents(&b, "world");
	assert_int_equal(b.start, 6);
	buf_consume(&b, 5);
	assert_int_equal(b.start, 0);
	assert_int_equal(b.end, 0);
	buf_fini(&b);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
	buf_fini(&b);
}

static void test_reserve_and_commit(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_true(buf_reserve(&b, 1000));
	assert_true(b.cap - b.end >= 1000);
	assert_int_equal(buf_len(&b), 0);
	memset(buf_tail(&b), 'x', 1000);
	buf_commit(&b, 999);
	assert_int_equal(buf_len(&b), 999);
	assert_int_equal(buf_head(&b)[998], 'x');
	buf_fini(&b);
}

static void test_growth_doubles(void **state)
{
	struct buf b;
	unsigned growths = 0;
	size_t cap = 0;

	(void)state;
	buf_init(&b);
	for (unsigned i = 0; i < 1000000; i++) {
		uint8_t byte = (uint8_t)(i * 7);

		assert_true(buf_append(&b, &byte, 1));
		if (b.cap == cap)
			continue;
		assert_true(b.cap >= 2 * cap);
		cap = b.cap;
		growths++;
	}
	assert_true(growths <= 16);
	assert_true(b.cap <= 2 * 1048576);
	for (unsigned i = 0; i < 1000000; i++)
		assert_int_equal(buf_head(&b)[i], (uint8_t)(i * 7));
	buf_fini(&b);
}

static void test_growth_drops_what_was_consumed(void **state)
{
	struct buf b;
	size_t cap;

	(void)state;
	buf_init(&b);
	assert_true(buf_append(&b, "abcdef", 6));
	buf_consume(&b, 2);
	cap = b.cap;
	assert_true(buf_reserve(&b, cap));
	assert_true(b.cap > cap);
	assert_int_equal(b.start, 0);
	assert_contents(&b, "cdef");
	buf_fini(&b);
}

/* A buffer that is emptied as fast as it is filled settles at one size. */
static void test_steady_state_allocates_nothing(void **state)
{
	struct buf b;
	uint8_t in = 0, out = 0;
	size_t cap = 0;

	(void)state;
	buf_init(&b);
	for (unsigned round = 0; round < 20000; round++) {
		for (unsigned i = 0; i < 100; i++, in++)
			assert_true(buf_append(&b, &in, 1));
		while (buf_len(&b) > round % 150) {
			assert_int_equal(*buf_head(&b), out++);
			buf_consume(&b, 1);
		}
		if (round == 1000)
			cap = b.cap;
		if (round > 1000)
			assert_int_equal(b.cap, cap);
	}
	assert_true(cap <= 1024);
	buf_fini(&b);
}

/* Small steps through a nearly full buffer do not move all of it each time. */
static void test_moving_is_rare(void **state)
{
	struct buf b;
	unsigned moves = 0;

	(void)state;
	buf_init(&b);
	assert_true(buf_reserve(&b, 65536));
	memset(buf_tail(&b), 'x', b.cap);
	buf_commit(&b, b.cap);
	for (unsigned i = 0; i < 65536; i++) {
		size_t start;

		buf_consume(&b, 1);
		start = b.start;
		assert_true(buf_append(&b, "x", 1));
		moves += b.start < start;
	}
	assert_true(moves <= 2);
	assert_int_equal(buf_len(&b), 65536);
	buf_fini(&b);
}

static void test_failed_growth_changes_nothing(void **state)
{
	struct buf b;
	struct buf before;

	(void)state;
	buf_init(&b);
	assert_true(buf_append(&b, "keep me", 7));
	buf_consume(&b, 5);
	before = b;
	assert_false(buf_reserve(&b, SIZE_MAX));
	assert_false(buf_reserve(&b, SIZE_MAX - 1));
	assert_false(buf_reserve(&b, SIZE_MAX / 2 + 1));
	assert_false(buf_append(&b, "", SIZE_MAX / 2 + 1));
	assert_memory_equal(&b, &before, sizeof(b));
	assert_contents(&b, "me");
	buf_fini(&b);
	assert_false(buf_reserve(&b, SIZE_MAX));
	assert_null(b.data);
}

static void test_reset(void **state)
{
	struct buf b;
	size_t cap;

	(void)state;
	buf_init(&b);
	buf_reset(&b, 0);
	assert_true(buf_append(&b, "abc", 3));
	buf_consume(&b, 1);
	cap = b.cap;
	buf_reset(&b, cap);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(b.start, 0);
	assert_int_equal(b.cap, cap);
	assert_true(buf_append(&b, "abc", 3));
	buf_reset(&b, cap - 1);
	assert_int_equal(buf_len(&b), 0);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
	assert_true(buf_append(&b, "again", 5));
	assert_contents(&b, "again");
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_append_and_consume),
	        cmocka_unit_test(test_reserve_and_commit),
	        cmocka_unit_test(test_growth_doubles),
	        cmocka_unit_test(test_growth_drops_what_was_consumed),
	        cmocka_unit_test(test_steady_state_allocates_nothing),
	        cmocka_unit_test(test_moving_is_rare),
	        cmocka_unit_test(test_failed_growth_changes_nothing),
	        cmocka_unit_test(test_reset),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}

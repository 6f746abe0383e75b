/* What a worker writes to its standard error: which lines are logged, and which
 * are kept for the day it dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/words.h"

static struct {
	struct broker broker;
	struct pool_settings settings;
	struct words words;
	int pipe[2]; /* its standard error */
	int log;
} t;

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	t.broker.loop = ev_loop_new(EVFLAG_AUTO);
	t.broker.settings = &t.settings;
	t.log = memfd_create("log", MFD_CLOEXEC);
	if (!t.broker.loop || t.log < 0 || pipe2(t.pipe, O_CLOEXEC | O_NONBLOCK) != 0)
		return -1;
	log_to(t.log);
	words_init(&t.words, &t.broker, 77, t.pipe[0]);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	log_to(STDERR_FILENO);
	close(t.log);
	close(t.pipe[1]);
	ev_loop_destroy(t.broker.loop);
	return 0;
}

static void say_bytes(const char *text, size_t len)
{
	assert_int_equal(write(t.pipe[1], text, len), (ssize_t)len);
	ev_run(t.broker.loop, EVRUN_NOWAIT);
}

static void say(const char *text)
{
	say_bytes(text, strlen(text));
}

static const char *logged(void)
{
	static char text[8192];
	ssize_t n = pread(t.log, text, sizeof text - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void test_keeps_the_last_lines(void **state)
{
	(void)state;
	assert_string_equal(words_last(&t.words), "");
	say("one\n");
	assert_string_equal(words_last(&t.words), "one");
	say("two\nthree\nfo");
	assert_string_equal(words_last(&t.words), "one | two | three");
	say("ur\nfive\n");
	assert_string_equal(words_last(&t.words), "one | two | three | four | five");
	say("six\n");
	assert_string_equal(words_last(&t.words), "two | three | four | five | six");
	say("a | b\n7\n8\n9\n10\n");
	assert_string_equal(words_last(&t.words), "a | b | 7 | 8 | 9 | 10");
	say("11\n");
	assert_string_equal(words_last(&t.words), "7 | 8 | 9 | 10 | 11");
	assert_string_equal(logged(), ""); /* catch_workers_output = no */
	words_fini(&t.words);
}

static void test_empty_and_repeated_lines_are_no_news(void **state)
{
	(void)state;
	say("PHP Warning: x\nPHP Warning: x\n\n\n");
	assert_string_equal(words_last(&t.words), "PHP Warning: x");
	say("x\nPHP Warning: x\nning: x\n");
	assert_string_equal(words_last(&t.words), "PHP Warning: x | x | PHP Warning: x | ning: x");
	words_fini(&t.words);
}

static void test_clearing(void **state)
{
	(void)state;
	say("a\nb\nc\n");
	words_clear(&t.words);
	assert_string_equal(words_last(&t.words), "");
	say("c\n"); /* as before, but said anew */
	assert_string_equal(words_last(&t.words), "c");
	say("d\ne\nf\ng\nh\n");
	assert_string_equal(words_last(&t.words), "d | e | f | g | h");
	t.words.last[0] = '\0';
	say("");
	assert_string_equal(words_last(&t.words), "");
	words_fini(&t.words);
}

static void test_bytes_are_escaped(void **state)
{
	(void)state;
	say_bytes("a\0b\033[1m\xc3\xa9\r\n", 11);
	assert_string_equal(words_last(&t.words), "a\\x00b\\x1b[1m\\xc3\\xa9\\x0d");
	words_fini(&t.words);
}

/* As many of the newest as fit, each whole; one that is longer by itself is cut. */
static void test_room_is_bounded(void **state)
{
	char line[WORDS_MAX + 1];
	char want[WORDS_KEPT_BYTES];

	(void)state;
	for (char c = 'a'; c <= 'e'; c++) {
		memset(line, c, 400);
		memcpy(line + 400, "\n", 2);
		say(line);
	}
	memset(want, 'd', 400);
	memcpy(want + 400, " | ", 3);
	memset(want + 403, 'e', 400);
	want[803] = '\0';
	assert_string_equal(words_last(&t.words), want);
	memset(line, '\xff', WORDS_MAX);
	say_bytes(line, WORDS_MAX);
	say("\n");
	assert_int_equal(strlen(words_last(&t.words)), WORDS_KEPT_BYTES - 1);
	assert_memory_equal(words_last(&t.words), "\\xff\\xff", 8);
	say("short\n");
	assert_string_equal(words_last(&t.words), "short");
	words_fini(&t.words);
}

/* Whatever is said, line by line: what is kept is the end of it. */
static void test_any_lengths(void **state)
{
	char line[WORDS_MAX];
	unsigned seed = 1;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		size_t len = (size_t)(rand_r(&seed) % (i % 7 == 0 ? WORDS_MAX - 1 : 20));
		memset(line, 'a' + rand_r(&seed) % 3, len);
		line[len] = '\n';
		say_bytes(line, len + 1);
		const char *last = words_last(&t.words);
		assert_true(strlen(last) < WORDS_KEPT_BYTES);
		if (len > 0)
			assert_memory_equal(last + strlen(last) - len, line, len);
		if (i % 50 == 0)
			words_clear(&t.words);
	}
	words_fini(&t.words);
}

static void test_logs_each_line(void **state)
{
	(void)state;
	t.settings.catch_workers_output = true;
	say("one\n\none\n\xff\n");
	assert_string_equal(logged(), "one\none\n\\xff\n");
	t.settings.decorate_workers_output = true;
	say("two\n");
	assert_non_null(strstr(logged(), "WARNING: child 77 said into stderr: \"two\"\n"));
	words_fini(&t.words);
}

/* In pieces, but no byte is lost. */
static void test_long_line_is_logged_whole(void **state)
{
	char line[2 * WORDS_MAX + 3];
	char want[sizeof line + 8];

	(void)state;
	t.settings.catch_workers_output = true;
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\n';
	say_bytes(line, sizeof line);
	snprintf(want, sizeof want, "%.*s\n%.*s\nxx\n", WORDS_MAX, line, WORDS_MAX, line);
	assert_string_equal(logged(), want);
	words_fini(&t.words);
}

/* A worker says its last and dies; nobody has looked yet. */
static void test_end_reads_what_is_left(void **state)
{
	static const char text[] = "first\nno newline";

	(void)state;
	assert_int_equal(write(t.pipe[1], text, strlen(text)), (ssize_t)strlen(text));
	words_fini(&t.words);
	assert_string_equal(words_last(&t.words), "first | no newline");
	assert_int_equal(fcntl(t.pipe[0], F_GETFD), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_keeps_the_last_lines),
		TEST(test_empty_and_repeated_lines_are_no_news),
		TEST(test_clearing),
		TEST(test_bytes_are_escaped),
		TEST(test_room_is_bounded),
		TEST(test_any_lengths),
		TEST(test_logs_each_line),
		TEST(test_long_line_is_logged_whole),
		TEST(test_end_reads_what_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

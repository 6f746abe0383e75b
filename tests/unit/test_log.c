#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "fpm/log.h"

static int fds[2];

static int open_pipe(void **context)
{
	(void)context;
	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	log_to(fds[1]);
	log_set_level(LOG_LEVEL_NOTICE);
	log_set_scope(NULL);
	return 0;
}

static int close_pipe(void **context)
{
	(void)context;
	log_to(STDERR_FILENO);
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return 0;
}

/* What is in the pipe now; empty when nothing is. */
static const char *take(void)
{
	static char text[65536];
	int waiting = 0;
	ssize_t n = 0;

	assert_int_equal(ioctl(fds[0], FIONREAD, &waiting), 0);
	if (waiting > 0)
		n = read(fds[0], text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

static void test_form(void **context)
{
	const char *line;
	struct tm tm = {0};
	time_t before = time(NULL);

	(void)context;
	log_set_scope("pool www");
	log_warning("child %d exited", 12);
	line = take();
	assert_string_equal(strchr(line, ']'), "] WARNING: [pool www] child 12 exited\n");
	assert_int_equal(line[0], '[');
	assert_non_null(strptime(line + 1, "%d-%b-%Y %H:%M:%S", &tm));
	tm.tm_isdst = -1;
	assert_in_range(mktime(&tm), before, before + 5);

	log_set_scope(NULL);
	log_notice("fpm is running");
	assert_string_equal(strchr(take(), ']'), "] NOTICE: fpm is running\n");
}

static void test_level(void **context)
{
	struct log_gate gate = {0};

	(void)context;
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("quiet");
	log_limited(&gate, 1000, LOG_LEVEL_WARNING, "quiet");
	assert_string_equal(take(), "");
	log_alert("loud");
	assert_non_null(strstr(take(), "] ALERT: loud\n"));
}

static void test_errno_survives(void **context)
{
	(void)context;
	close(fds[1]);
	errno = ENOTDIR;
	log_error("to a closed descriptor");
	assert_int_equal(errno, ENOTDIR);
	fds[1] = -1;
}

static void test_long_line_is_cut(void **context)
{
	char text[10000];
	const char *line;

	(void)context;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_notice("%s", text);
	line = take();
	assert_int_equal(strlen(line), PIPE_BUF);
	assert_string_equal(line + strlen(line) - 5, "x...\n");
}

static void test_one_message_one_line(void **context)
{
	(void)context;
	log_notice("a\nb\r\nc");
	assert_non_null(strstr(take(), "NOTICE: a b  c\n"));
}

static void test_stuck_pipe(void **context)
{
	uint64_t before = log_dropped();
	int lines = 0;
	char text[1000];

	(void)context;
	memset(text, 'x', sizeof(text));
	while (log_dropped() == before) {
		log_notice("%.*s", (int)sizeof(text), text);
		assert_true(++lines < 1000); /* a pipe holds 64 KiB */
	}
	log_notice("and again");
	assert_int_equal(log_dropped(), before + 2);
	assert_null(strstr(take(), "and again"));
	log_notice("flows again");
	assert_non_null(strstr(take(), "flows again"));
}

static void test_reader_gone(void **context)
{
	uint64_t before = log_dropped();

	(void)context;
	close(fds[0]);
	log_notice("nobody reads"); /* and no SIGPIPE ends the test */
	assert_int_equal(log_dropped(), before + 1);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
}

static void test_limited(void **context)
{
	struct log_gate gate = {0};

	(void)context;
	log_limited(&gate, 3600000, LOG_LEVEL_NOTICE, "often");
	assert_non_null(strstr(take(), "NOTICE: often\n"));
	log_limited(&gate, 3600000, LOG_LEVEL_NOTICE, "often");
	log_limited(&gate, 3600000, LOG_LEVEL_NOTICE, "often");
	assert_string_equal(take(), "");
	gate.open_at_ms = 0; /* the hour is over */
	log_limited(&gate, 3600000, LOG_LEVEL_NOTICE, "often");
	assert_non_null(strstr(take(), "NOTICE: often (2 more like this left out)\n"));
	gate.open_at_ms = 0;
	log_limited(&gate, 3600000, LOG_LEVEL_NOTICE, "often");
	assert_non_null(strstr(take(), "NOTICE: often\n"));
}

static void test_escape(void **context)
{
	char out[32];

	(void)context;
	assert_string_equal(log_escape(out, sizeof(out), "a b~", 4), "a b~");
	assert_string_equal(log_escape(out, sizeof(out), "\n\\\x7f\xff\0z", 6), "\\x0a\\x5c\\x7f\\xff\\x00z");
	assert_string_equal(log_escape(out, 1, "abc", 3), "");
	assert_string_equal(log_escape(out, 3, "abc", 3), "ab");
	assert_string_equal(log_escape(out, 5, "\n\n", 2), "\\x0a");
	assert_string_equal(log_escape(out, 4, "\n", 1), ""); /* never half of one */
}

static void test_echo(void **context)
{
	int other[2];
	char text[256];
	ssize_t n;

	(void)context;
	assert_int_equal(pipe2(other, O_CLOEXEC | O_NONBLOCK), 0);
	log_echo(other[1]);
	log_notice("for the log alone");
	log_error("for both");
	log_echo(-1);
	log_error("later");
	n = read(other[0], text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_string_equal(strchr(text, ']'), "] ERROR: for both\n");
	assert_non_null(strstr(take(), "for both\n"));
	close(other[0]);
	close(other[1]);
}

static void test_raw(void **context)
{
	char lines[9000];
	uint64_t before = log_dropped();

	(void)context;
	memset(lines, 'y', sizeof(lines));
	for (size_t i = 99; i < sizeof(lines); i += 100)
		lines[i] = '\n';
	assert_true(log_raw(fds[1], lines, sizeof(lines)));
	assert_memory_equal(take(), lines, sizeof(lines));
	while (log_raw(fds[1], lines, sizeof(lines)))
		;
	assert_int_equal(log_dropped(), before + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_form, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_level, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_errno_survives, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_long_line_is_cut, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_one_message_one_line, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_stuck_pipe, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_reader_gone, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_limited, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_escape, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_echo, open_pipe, close_pipe),
		cmocka_unit_test_setup_teardown(test_raw, open_pipe, close_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

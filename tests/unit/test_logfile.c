#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fpm/logfile.h"
#include "fpm/pidfile.h"

static char dir[] = "/tmp/test_logfile.XXXXXX";
static char path[sizeof(dir) + 16];
static char moved[sizeof(dir) + 16];
static char reason[512];

static int make_dir(void **context)
{
	(void)context;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/log", dir);
	snprintf(moved, sizeof(moved), "%s/log.1", dir);
	return 0;
}

static int remove_dir(void **context)
{
	(void)context;
	return rmdir(dir); /* fails when a test left something behind */
}

static const char *contents(const char *name)
{
	static char text[256];
	int fd = open(name, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	assert_true(n >= 0);
	close(fd);
	text[n] = '\0';
	return text;
}

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_reopen(void **context)
{
	struct logfile log;
	int number;

	(void)context;
	put(path, "before\n");
	assert_true(logfile_open(&log, path, reason, sizeof(reason)));
	number = log.fd;
	dprintf(log.fd, "one\n");
	assert_int_equal(rename(path, moved), 0);
	dprintf(log.fd, "two\n");
	assert_true(logfile_reopen(&log, reason, sizeof(reason)));
	assert_int_equal(log.fd, number);
	assert_true(fcntl(log.fd, F_GETFD) & FD_CLOEXEC);
	dprintf(log.fd, "three\n");
	assert_string_equal(contents(moved), "before\none\ntwo\n");
	assert_string_equal(contents(path), "three\n");
	logfile_close(&log);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(moved), 0);
}

static void test_failed_reopen_keeps_the_old(void **context)
{
	struct logfile log;

	(void)context;
	assert_true(logfile_open(&log, path, reason, sizeof(reason)));
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkdir(path, 0700), 0); /* no file can be there now, not even root's */
	assert_false(logfile_reopen(&log, reason, sizeof(reason)));
	assert_non_null(strstr(reason, path));
	dprintf(log.fd, "still here\n");
	assert_string_equal(contents(moved), "still here\n");
	logfile_close(&log);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(unlink(moved), 0);
}

static void check_link(const char *target, bool opens)
{
	struct logfile log;

	assert_int_equal(opens, logfile_open(&log, path, reason, sizeof(reason)));
	if (opens)
		assert_int_equal(write(log.fd, "x", 1), 1);
	assert_string_equal(contents(target), opens ? "x" : "");
	put(target, "");
	logfile_close(&log);
}

/* Only root can make a foreign link to try. */
static void test_links_are_followed_if_their_owner_is_trusted(void **context)
{
	(void)context;
	put(moved, "");
	assert_int_equal(symlink("log.1", path), 0);
	check_link(moved, true);
	if (geteuid() == 0) {
		assert_int_equal(lchown(path, 65534, 65534), 0);
		check_link(moved, false);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(moved, path), 0);
	check_link(moved, true);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(moved), 0);
}

static void test_link_to_a_descriptor_is_followed(void **context)
{
	char name[32];
	int ends[2];
	struct logfile log;

	(void)context;
	assert_int_equal(pipe(ends), 0);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	assert_true(logfile_open(&log, name, reason, sizeof(reason)));
	logfile_close(&log);
	close(ends[0]);
	close(ends[1]);
}

static void test_standard_streams_are_the_open_ones(void **context)
{
	static const char *const names[] = {"/dev/stderr", "/proc/self/fd/2", "/dev/stdout", "/proc/self/fd/1"};

	(void)context;
	for (int i = 0; i < 4; i++) {
		struct logfile log;
		struct stat ours;
		struct stat theirs;

		assert_true(logfile_open(&log, names[i], reason, sizeof(reason)));
		assert_int_equal(fstat(log.fd, &ours), 0);
		assert_int_equal(fstat(i < 2 ? 2 : 1, &theirs), 0);
		assert_int_equal(ours.st_ino, theirs.st_ino);
		assert_true(log.fd > 2);
		assert_true(logfile_reopen(&log, reason, sizeof(reason)));
		assert_int_equal(fstat(log.fd, &theirs), 0);
		assert_int_equal(ours.st_ino, theirs.st_ino);
		logfile_close(&log);
	}
}

static void test_fifo_does_not_block(void **context)
{
	struct logfile log;

	(void)context;
	assert_int_equal(mkfifo(path, 0600), 0);
	alarm(5);
	assert_false(logfile_open(&log, path, reason, sizeof(reason)));
	alarm(0);
	assert_int_equal(unlink(path), 0);
}

static void test_check_makes_nothing(void **context)
{
	(void)context;
	assert_true(logfile_check(path, reason, sizeof(reason)));
	assert_int_equal(access(path, F_OK), -1);
	assert_true(logfile_check("/dev/stderr", reason, sizeof(reason)));
	assert_true(logfile_check("here.log", reason, sizeof(reason)));
	assert_false(logfile_check("/nonexistent/x.log", reason, sizeof(reason)));
	assert_non_null(strstr(reason, "/nonexistent/x.log"));
}

static void test_pidfile(void **context)
{
	char text[32];
	struct stat st;

	(void)context;
	put(path, "a much longer old content than a number");
	assert_true(pidfile_write(path, reason, sizeof(reason)));
	snprintf(text, sizeof(text), "%d", getpid());
	assert_string_equal(contents(path), text);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	pidfile_remove(path);
	assert_int_equal(access(path, F_OK), -1);
	assert_false(pidfile_write("/nonexistent/x.pid", reason, sizeof(reason)));
	assert_non_null(strstr(reason, "/nonexistent/x.pid"));
}

static void test_foreign_pidfile_is_left(void **context)
{
	char text[32];

	(void)context;
	snprintf(text, sizeof(text), "%d\n", getppid());
	put(path, text);
	pidfile_remove(path);
	assert_string_equal(contents(path), text);
	put(path, "");
	pidfile_remove(path);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reopen),
		cmocka_unit_test(test_failed_reopen_keeps_the_old),
		cmocka_unit_test(test_links_are_followed_if_their_owner_is_trusted),
		cmocka_unit_test(test_link_to_a_descriptor_is_followed),
		cmocka_unit_test(test_standard_streams_are_the_open_ones),
		cmocka_unit_test(test_fifo_does_not_block),
		cmocka_unit_test(test_check_makes_nothing),
		cmocka_unit_test(test_pidfile),
		cmocka_unit_test(test_foreign_pidfile_is_left),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

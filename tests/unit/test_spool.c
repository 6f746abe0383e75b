/* Bodies in memory and in a file: byte for byte at every cut, and whole after
 * every failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/spool.h"
#include "tests/unit/entries.h"

enum { LIMIT = 100, SIZE = 300 };

static char dir[] = "/tmp/h2fpm-test-spool-XXXXXX";
static uint8_t bytes[SIZE];

static int setup(void **state)
{
	(void)state;
	signal(SIGXFSZ, SIG_IGN); /* as the pool process does */
	for (int i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 3));
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when a file was left */
}

static void check_bytes(const struct spool *s, int64_t size)
{
	uint8_t got[SIZE];

	assert_int_equal(s->size_bytes, size);
	for (int64_t offset = 0; offset <= size; offset++) {
		memset(got, 0xaa, sizeof(got));
		assert_true(spool_read(s, offset, got, (size_t)(size - offset)));
		assert_memory_equal(got, bytes + offset, (size_t)(size - offset));
	}
	for (int64_t offset = 0; offset < size; offset++) {
		assert_true(spool_read(s, offset, got, 1));
		assert_int_equal(got[0], bytes[offset]);
	}
}

static void append(struct spool *s, int64_t len)
{
	assert_true(spool_append(s, bytes + s->size_bytes, (size_t)len, LIMIT, dir));
}

static void test_every_cut(void **state)
{
	(void)state;
	for (int64_t step = 1; step <= SIZE; step++) {
		struct spool s;

		spool_init(&s);
		while (s.size_bytes < SIZE) {
			append(&s, step < SIZE - s.size_bytes ? step : SIZE - s.size_bytes);
			assert_int_equal(s.fd >= 0, s.size_bytes > LIMIT);
			assert_int_equal(buf_len(&s.memory), s.fd >= 0 ? 0 : s.size_bytes);
			assert_int_equal(entries_in(dir), 0);
		}
		check_bytes(&s, SIZE);
		spool_fini(&s);
	}
}

static void test_border(void **state)
{
	struct spool s;
	struct stat st;

	(void)state;
	spool_init(&s);
	check_bytes(&s, 0);
	append(&s, 0);
	append(&s, LIMIT);
	assert_int_equal(s.fd, -1); /* the limit itself still fits */
	check_bytes(&s, LIMIT);
	append(&s, 1);
	assert_int_equal(fstat(s.fd, &st), 0);
	assert_int_equal(st.st_size, LIMIT + 1);
	assert_int_equal(st.st_nlink, 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fcntl(s.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC); /* no worker inherits it */
	check_bytes(&s, LIMIT + 1);
	spool_fini(&s);
	spool_init(&s);
	assert_true(spool_append(&s, bytes, 1, 0, dir)); /* no memory is allowed at all */
	assert_true(s.fd >= 0);
	check_bytes(&s, 1);
	spool_fini(&s);
}

static void test_reset(void **state)
{
	struct spool s;
	int fd;

	(void)state;
	spool_init(&s);
	append(&s, SIZE);
	fd = s.fd;
	spool_reset(&s, LIMIT);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(s.fd, -1);
	append(&s, LIMIT); /* in memory again */
	assert_int_equal(s.fd, -1);
	check_bytes(&s, LIMIT);
	spool_reset(&s, 100000);
	assert_true(s.memory.cap > 0); /* kept */
	spool_reset(&s, 0);
	assert_int_equal(s.memory.cap, 0);
	spool_fini(&s);
	spool_fini(&s);
}

static void test_missing_directory(void **state)
{
	struct spool s;
	char name[64], too_long[5000];

	(void)state;
	snprintf(name, sizeof(name), "%s/missing", dir);
	memset(too_long, 'x', sizeof(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	spool_init(&s);
	append(&s, LIMIT);
	for (int i = 0; i < 2; i++) {
		assert_false(spool_append(&s, bytes + LIMIT, 1, LIMIT, name));
		assert_int_equal(errno, ENOENT);
		assert_false(spool_append(&s, bytes + LIMIT, 1, LIMIT, too_long));
		assert_int_equal(errno, ENAMETOOLONG);
		assert_false(spool_append(&s, bytes + LIMIT, 1, LIMIT, "/dev/null"));
		assert_int_equal(errno, ENOTDIR);
		assert_int_equal(s.fd, -1);
		check_bytes(&s, LIMIT);
	}
	append(&s, SIZE - LIMIT); /* the directory is there again */
	check_bytes(&s, SIZE);
	spool_fini(&s);
}

static void limit_files(rlim_t bytes_max)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The disk is full for a while: nothing of what failed may get into the body,
 * though a part of it was written. */
static void test_full_disk(void **state)
{
	static const rlim_t limits[] = {0, 1, 50, LIMIT, LIMIT + 1, 200, 299};

	(void)state;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct spool s;
		uint8_t junk[SIZE];

		memset(junk, 0xee, sizeof(junk));
		spool_init(&s);
		append(&s, LIMIT);
		limit_files(limits[i]);
		if (limits[i] > LIMIT)
			append(&s, ((int64_t)limits[i] - LIMIT) / 2); /* room for a part of the junk */
		int64_t size = s.size_bytes;
		for (int again = 0; again < 3; again++) {
			bool done = spool_append(&s, junk, sizeof(junk), LIMIT, dir);
			int error = errno;
			limit_files(RLIM_INFINITY); /* before any assertion writes its words */
			assert_false(done);
			assert_int_equal(error, EFBIG);
			check_bytes(&s, size);
			assert_int_equal(entries_in(dir), 0);
			limit_files(limits[i]);
		}
		limit_files(RLIM_INFINITY);
		append(&s, SIZE - size);
		check_bytes(&s, SIZE);
		spool_fini(&s);
	}
}

static int open_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 64; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_no_descriptor_leaks(void **state)
{
	struct rlimit limit, none;
	struct spool s;
	int before = open_count();

	(void)state;
	spool_init(&s);
	append(&s, LIMIT);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	bool done = spool_append(&s, bytes + LIMIT, 1, LIMIT, dir);
	int error = errno;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_false(done);
	assert_int_equal(error, EMFILE);
	limit_files(10);
	done = spool_append(&s, bytes + LIMIT, 1, LIMIT, dir);
	limit_files(RLIM_INFINITY);
	assert_false(done);
	assert_int_equal(open_count(), before);
	check_bytes(&s, LIMIT);
	spool_fini(&s);
}

/* Someone cuts the file: an error, not an endless wait or old memory. */
static void test_lost_file(void **state)
{
	struct spool s;
	uint8_t got[SIZE];

	(void)state;
	spool_init(&s);
	append(&s, SIZE);
	assert_int_equal(ftruncate(s.fd, 10), 0);
	assert_true(spool_read(&s, 0, got, 10));
	assert_false(spool_read(&s, 0, got, 11));
	assert_int_equal(errno, EIO);
	spool_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_border),
	        cmocka_unit_test(test_reset),     cmocka_unit_test(test_missing_directory),
	        cmocka_unit_test(test_full_disk), cmocka_unit_test(test_no_descriptor_leaks),
	        cmocka_unit_test(test_lost_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

/* Access-log lines: every code, every escape, and the same lines as a real
 * php-fpm writes where one is installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool/access.h"
#include "protocol/params.h"

static struct buf params;
static struct meta meta;
static struct access_record record;

static void add(const char *name, const char *value)
{
	assert_true(params_append(&params, name, strlen(name), value, strlen(value)));
}

/* The line of what was added so far, without its newline. */
static const char *line(const char *format)
{
	static char text[16384];
	struct buf out;

	record.params = buf_head(&params);
	record.params_len = buf_len(&params);
	assert_null(meta_parse(&meta, record.params, record.params_len));
	buf_init(&out);
	assert_true(access_append(&out, format, &record));
	assert_true(buf_len(&out) > 0 && buf_len(&out) < sizeof(text));
	memcpy(text, buf_head(&out), buf_len(&out));
	text[buf_len(&out) - 1] = '\0';
	assert_int_equal(buf_tail(&out)[-1], '\n');
	assert_int_equal(strlen(text), buf_len(&out) - 1);
	buf_fini(&out);
	return text;
}

static int setup(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	buf_init(&params);
	record = (struct access_record){.meta = &meta,
	                                .pool = "www",
	                                .pid = 123,
	                                .parent_pid = 45,
	                                .status = 200,
	                                .content_length = 7,
	                                .wait_us = 1234567,
	                                .run_us = 20731,
	                                .begun = 1700000000,
	                                .written = 1700000061};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	buf_fini(&params);
	return 0;
}

static void add_all(void)
{
	add("REQUEST_METHOD", "POST");
	add("REQUEST_URI", "/a.php?x=1");
	add("SCRIPT_NAME", "/a.php");
	add("SCRIPT_FILENAME", "/srv/a.php");
	add("QUERY_STRING", "x=1");
	add("REMOTE_ADDR", "10.1.2.3");
	add("REMOTE_USER", "joe");
}

static void test_every_code(void **state)
{
	static const char *const codes[][2] = {
	        {"%%", "%"},
	        {"%d", "0.021"},
	        {"%f", "/srv/a.php"},
	        {"%l", "7"},
	        {"%m", "POST"},
	        {"%n", "www"},
	        {"%p", "123"},
	        {"%P", "45"},
	        {"%q", "x=1"},
	        {"%Q", "?"},
	        {"%r", "/a.php"},
	        {"%R", "10.1.2.3"},
	        {"%s", "200"},
	        {"%u", "joe"},
	        {"%W", "1.235"},
	        {"%{SCRIPT_NAME}e", "/a.php"},
	        {"%t", "14/Nov/2023:22:13:20 +0000"},
	        {"%T", "14/Nov/2023:22:14:21 +0000"},
	        {"%{%Y-%m-%d}t", "2023-11-14"},
	        {"%{%H:%M:%S}T", "22:14:21"},
	        {"%{}t", "14/Nov/2023:22:13:20 +0000"},
	        {"", ""},
	        {"a b\t\"}{", "a b\t\"}{"},
	        {"%%%m%%", "%POST%"},
	        {"%%m", "%m"},
	        {"%R - %u %t \"%m %r%Q%q\" %s", "10.1.2.3 - joe 14/Nov/2023:22:13:20 +0000 \"POST /a.php?x=1\" 200"},
	};

	(void)state;
	add_all();
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		assert_null(access_format_check(codes[i][0]));
		assert_string_equal(line(codes[i][0]), codes[i][1]);
	}
}

/* Nothing is known: php-fpm's words for that. */
static void test_absent(void **state)
{
	(void)state;
	assert_string_equal(line("[%R][%u][%m][%r][%q][%Q][%f][%{NONE}e]"), "[-][][-][][][][-][-]");
	add("QUERY_STRING", "");
	assert_string_equal(line("%Q%q."), ".");
}

static void test_units(void **state)
{
	static const char *const units[][2] = {
	        {"seconds", "0.021"},       {"SECONDS", "0.021"},      {"", "0.021"},
	        {"milliseconds", "20.731"}, {"milli", "20.731"},       {"mili", "20.731"},
	        {"MilliSeconds", "20.731"}, {"microseconds", "20731"}, {"micro", "20731"},
	        {"MICRO", "20731"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		char format[64], want[64];

		snprintf(format, sizeof(format), "%%{%s}d %%{%s}W", units[i][0], units[i][0]);
		snprintf(want, sizeof(want), "%s %s", units[i][1], units[i][1]);
		record.wait_us = 20731;
		assert_null(access_format_check(format));
		assert_string_equal(line(format), want);
	}
	record.run_us = 3600 * INT64_C(1000000) * 24 * 365;
	assert_string_equal(line("%d %{milli}d %{micro}d"), "31536000.000 31536000000.000 31536000000000");
	record.run_us = 0;
	assert_string_equal(line("%d %{milli}d %{micro}d"), "0.000 0.000 0");
}

static void test_last_param_counts(void **state)
{
	(void)state;
	add("X", "1");
	add("XY", "2");
	add("X", "3");
	assert_string_equal(line("%{X}e %{x}e %{XYZ}e"), "3 - -");
}

static const char *user_of(const char *authorization)
{
	buf_reset(&params, 4096);
	add("HTTP_AUTHORIZATION", authorization);
	return line("%u");
}

static void test_user(void **state)
{
	(void)state;
	assert_string_equal(user_of("Basic dXNlcjpwYXNz"), "user");
	assert_string_equal(user_of("bASIC dXNlcjpwYXNz"), "user");
	assert_string_equal(user_of("Basic OnBhc3M="), "");              /* no name */
	assert_string_equal(user_of("Basic dXNlcg=="), "");              /* no colon */
	assert_string_equal(user_of("Basic dXNlcgo6cA=="), "user\\x0a"); /* a newline in it */
	assert_string_equal(user_of("Basic "), "");
	assert_string_equal(user_of("Basic"), "");
	assert_string_equal(user_of("Bearer dXNlcjpwYXNz"), "");
	assert_string_equal(user_of(""), "");
	add("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz");
	add("REMOTE_USER", "checked");
	assert_string_equal(line("%u"), "checked");
	add("REMOTE_USER", "");
	assert_string_equal(line("%u"), "user");
}

/* Credentials over any room for them: no user rather than a part of a name. */
static void test_long_user(void **state)
{
	char header[4096] = "Basic ";

	(void)state;
	memset(header + 6, 'Y', sizeof(header) - 7);
	header[sizeof(header) - 1] = '\0';
	strcpy(header + sizeof(header) - 5, "OnA="); /* ":p" */
	assert_string_equal(user_of(header), "");
}

/* Every byte in every value: one line, of printable bytes. */
static void test_no_line_is_forged(void **state)
{
	static const char *const names[] = {
	        "REQUEST_METHOD", "SCRIPT_NAME", "SCRIPT_FILENAME", "QUERY_STRING", "REMOTE_ADDR", "REMOTE_USER", "X"};
	char every[256];

	(void)state;
	for (int i = 0; i < 255; i++)
		every[i] = (char)(i + 1);
	every[255] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		add(names[i], every);
	assert_true(params_append(&params, "Z", 1, "a\0b\n", 4));
	for (const char *c = line("%m%r%f%q%R%u%{X}e%{Z}e%{%n}t"); *c; c++)
		assert_in_range((unsigned char)*c, 0x20, 0x7e);
	assert_string_equal(line("%{Z}e"), "a\\x00b\\x0a");
	assert_string_equal(line("%{a%nb}t"), "a\\x0ab");
	add("X", "\n[evil] \x1b[2J\r\x7f\xff");
	assert_string_equal(line("%{X}e"), "\\x0a[evil] \\x1b[2J\\x0d\\x7f\\xff");
}

static void test_long_values_are_cut(void **state)
{
	char value[65536];

	(void)state;
	memset(value, '\n', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	add("QUERY_STRING", value);
	add("SCRIPT_NAME", "/a");
	const char *got = line("%q %r");
	assert_true(strlen(got) < 4096);
	assert_string_equal(strrchr(got, ' '), " /a");
}

static void test_lines_are_appended(void **state)
{
	struct buf out;

	(void)state;
	assert_null(meta_parse(&meta, "", 0));
	buf_init(&out);
	for (int i = 0; i < 3; i++)
		assert_true(access_append(&out, "%s", &record));
	assert_int_equal(buf_len(&out), 12);
	assert_memory_equal(buf_head(&out), "200\n200\n200\n", 12);
	buf_fini(&out);
	out = (struct buf){.end = SIZE_MAX, .cap = SIZE_MAX}; /* no room, and none to be had */
	assert_false(access_append(&out, "", &record));
}

static void test_format_check(void **state)
{
	static const char *const wrong[][2] = {
	        {"%", "it ends in '%'"},
	        {"%m %", "it ends in '%'"},
	        {"%{seconds}", "it ends in '%'"},
	        {"%{", "'%{' without '}'"},
	        {"%{abc%d", "'%{' without '}'"},
	        {"%C", "%C, %M and %{}o are not supported by this version"},
	        {"%{kilobytes}M", "%C, %M and %{}o are not supported by this version"},
	        {"%{X-Y}o", "%C, %M and %{}o are not supported by this version"},
	        {"%{hours}d", "%d and %W take seconds, milliseconds or microseconds"},
	        {"%{second}W", "%d and %W take seconds, milliseconds or microseconds"},
	        {"%e", "%e needs a name: %{NAME}e"},
	        {"%{}e", "%e needs a name: %{NAME}e"},
	        {"%Z", "unknown code (see h2fpm.conf(5))"},
	        {"%m %{x}Z", "unknown code (see h2fpm.conf(5))"},
	        {"% m", "unknown code (see h2fpm.conf(5))"},
	        {"%{x}m", "only %d, %W, %e, %t and %T take {}"},
	        {"%{}%", "only %d, %W, %e, %t and %T take {}"},
	};
	char format[160];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_string_equal(access_format_check(wrong[i][0]), wrong[i][1]);
	snprintf(format, sizeof(format), "%%{%0127d}t", 0);
	assert_null(access_format_check(format));
	snprintf(format, sizeof(format), "%%{%0128d}t", 0);
	assert_string_equal(access_format_check(format), "the time format is too long");
	assert_null(access_format_check(ACCESS_DEFAULT_FORMAT));
}

/* Every byte as a code: what the check lets through is written, and a code is
 * never dropped in silence. */
static void test_every_byte_as_code(void **state)
{
	(void)state;
	add_all();
	for (int c = 1; c < 256; c++) {
		char format[] = {'%', (char)c, '\0'};

		assert_int_equal(access_format_check(format) == NULL, strchr("%dflmnpPqQrRstTuW", c) != NULL);
		if (!access_format_check(format))
			assert_true(line(format)[0] != '\0');
	}
}

/* ---- beside the real one ---- */

static const char php_fpm[] = "/usr/sbin/php-fpm8.2";
static char dir[] = "/tmp/h2fpm-test-access-XXXXXX";
static uint16_t port;
static pid_t fpm_pid;

#define BESIDE "%R|%u|%m|%r|%Q%q|%s|%n|%l|%f|%{SERVER_NAME}e|%%"
/* Those that time decides: taken from the line, then written in our way. */
#define VARIES "%{micro}d %{microseconds}d %{milli}d %{mili}d %{milliseconds}d %{seconds}d %d %p %t %{%s %y}t"

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static int connect_to_fpm(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void take_port(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &len), 0);
	port = any.sin_port;
	close(fd);
}

static void start_fpm(void)
{
	char text[1024], path[128];

	take_port();
	snprintf(text, sizeof(text),
	         "[global]\nerror_log = %s/error.log\ndaemonize = no\n[www]\nuser = nobody\nlisten = 127.0.0.1:%u\n"
	         "pm = static\npm.max_children = 1\naccess.log = %s/access.log\naccess.format = '%s'\n",
	         dir, ntohs(port), dir, BESIDE "#" VARIES);
	write_file("fpm.conf", text);
	snprintf(path, sizeof(path), "%s/fpm.conf", dir);
	fpm_pid = fork();
	if (fpm_pid == 0) {
		int null = open("/dev/null", O_RDWR);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		dup2(null, 0), dup2(null, 1), dup2(null, 2);
		execl(php_fpm, php_fpm, "-n", "-R", "-F", "-y", path, (char *)NULL);
		_exit(127);
	}
	assert_true(fpm_pid > 0);
	for (int i = 0;; i++) {
		int fd = connect_to_fpm();
		if (fd >= 0) {
			close(fd);
			return;
		}
		assert_true(i < 1000 && waitpid(fpm_pid, NULL, WNOHANG) == 0);
		usleep(10000);
	}
}

static void append_record(struct buf *out, uint8_t type, const void *content, size_t len)
{
	uint8_t head[8] = {1, type, 0, 1, (uint8_t)(len >> 8), (uint8_t)len, 0, 0};

	assert_true(buf_append(out, head, sizeof(head)));
	assert_true(buf_append(out, content, len));
}

static void ask_fpm(const char *body)
{
	static const uint8_t begin[8] = {0, 1, 0};
	struct buf out;
	char answer[4096];
	ssize_t n;
	int fd = connect_to_fpm();

	assert_true(fd >= 0);
	buf_init(&out);
	append_record(&out, 1, begin, sizeof(begin));
	append_record(&out, 4, buf_head(&params), buf_len(&params));
	append_record(&out, 4, "", 0);
	if (*body)
		append_record(&out, 5, body, strlen(body));
	append_record(&out, 5, "", 0);
	assert_int_equal(write(fd, buf_head(&out), buf_len(&out)), buf_len(&out));
	buf_fini(&out);
	while ((n = read(fd, answer, sizeof(answer))) > 0)
		;
	close(fd);
}

/* php-fpm writes after it answers. */
static void next_fpm_line(FILE *log, char *text, size_t size)
{
	size_t len = 0;

	for (int i = 0; i < 1000; i++) {
		clearerr(log);
		len += fread(text + len, 1, size - len - 1, log);
		text[len] = '\0';
		if (len > 0 && text[len - 1] == '\n') {
			text[len - 1] = '\0';
			return;
		}
		usleep(10000);
	}
	fail_msg("php-fpm wrote no line");
}

static void compare(FILE *log, const char *body)
{
	char theirs[4096];
	long pid, begun;
	int64_t us;
	char *varies;

	ask_fpm(body);
	next_fpm_line(log, theirs, sizeof(theirs));
	varies = strrchr(theirs, '#');
	assert_non_null(varies);
	*varies++ = '\0';
	assert_int_equal(sscanf(varies, "%" SCNd64 " %*s %*s %*s %*s %*s %*s %ld %*s %*s %ld", &us, &pid, &begun), 3);
	record.run_us = us;
	record.pid = (pid_t)pid;
	record.begun = begun;
	record.content_length = (int64_t)strlen(body);
	assert_string_equal(line(BESIDE), theirs);
	assert_string_equal(line(VARIES), varies);
}

static void begin_request(const char *script)
{
	char path[128];

	buf_reset(&params, 4096);
	snprintf(path, sizeof(path), "%s%s", dir, script);
	add("REMOTE_ADDR", "127.0.0.1"); /* php-fpm's %R is its peer, which here is the same */
	add("SERVER_NAME", "h");
	add("SCRIPT_FILENAME", path);
	add("SCRIPT_NAME", script);
}

static void ask_in_every_way(FILE *log)
{
	record.status = 201;
	begin_request("/a.php");
	add("REQUEST_METHOD", "GET");
	add("QUERY_STRING", "a=1&b=%20\"'");
	compare(log, "");
	add("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz");
	compare(log, "");
	begin_request("/a.php");
	add("REQUEST_METHOD", "POST");
	add("CONTENT_LENGTH", "5");
	add("CONTENT_TYPE", "text/plain");
	add("HTTP_AUTHORIZATION", "basic  dX-Nl*cjpwYXNz");
	compare(log, "hello");
	record.status = 200; /* without a method the script's own word does not count */
	begin_request("/a.php");
	add("HTTP_AUTHORIZATION", "Basic dXNlcg==");
	compare(log, "");
}

static int stop_fpm(void **state)
{
	static const char *const names[] = {"fpm.conf", "a.php", "error.log", "access.log"};

	if (fpm_pid > 0) {
		kill(fpm_pid, SIGTERM);
		waitpid(fpm_pid, NULL, 0);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	return teardown(state);
}

static void test_beside_php_fpm(void **state)
{
	char path[128];
	FILE *log;

	(void)state;
	if (access(php_fpm, X_OK) != 0 || geteuid() != 0)
		skip();
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	write_file("a.php", "<?php usleep(2500); http_response_code(201);\n");
	start_fpm();
	snprintf(path, sizeof(path), "%s/access.log", dir);
	log = fopen(path, "r");
	assert_non_null(log);
	ask_in_every_way(log);
	fclose(log);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        FRESH(test_every_code),
	        FRESH(test_absent),
	        FRESH(test_units),
	        FRESH(test_last_param_counts),
	        FRESH(test_user),
	        FRESH(test_long_user),
	        FRESH(test_no_line_is_forged),
	        FRESH(test_long_values_are_cut),
	        FRESH(test_lines_are_appended),
	        FRESH(test_format_check),
	        FRESH(test_every_byte_as_code),
	        cmocka_unit_test_setup_teardown(test_beside_php_fpm, setup, stop_fpm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

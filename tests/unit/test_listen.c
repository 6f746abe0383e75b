#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fpm/listen.h"

static char dir[] = "/tmp/test_listen.XXXXXX";
static char path[sizeof(dir) + 8];
static char reason[256];
static const struct listen_access anyone = {(uid_t)-1, (gid_t)-1, 0660};

static int make_dir(void **context)
{
	(void)context;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/s.sock", dir);
	return 0;
}

static int remove_dir(void **context)
{
	(void)context;
	return rmdir(dir); /* fails when a test left something behind */
}

static bool open_text(struct listen_set *set, const char *text, const struct listen_access *access)
{
	struct listen_address address;

	reason[0] = '\0';
	if (!listen_parse(&address, text, reason, sizeof(reason)))
		return false;
	return listen_open(set, &address, text, -1, access, reason, sizeof(reason));
}

static int unix_socket(const char *name, int type, bool do_bind)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type, 0);

	assert_true(fd >= 0);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", name);
	if (do_bind)
		assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	else
		assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	return fd;
}

static int family_of(const char *text)
{
	struct listen_address address;

	return listen_parse(&address, text, reason, sizeof(reason)) ? address.at[0].ss_family : -1;
}

static void test_parse(void **context)
{
	struct listen_address address;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	(void)context;
	assert_true(listen_parse(&address, "127.0.0.1:9000", reason, sizeof(reason)));
	memcpy(&v4, &address.at[0], sizeof(v4));
	assert_int_equal(address.count, 1);
	assert_int_equal(v4.sin_family, AF_INET);
	assert_int_equal(ntohs(v4.sin_port), 9000);
	assert_int_equal(ntohl(v4.sin_addr.s_addr), INADDR_LOOPBACK);

	assert_true(listen_parse(&address, "[::1]:65535", reason, sizeof(reason)));
	memcpy(&v6, &address.at[0], sizeof(v6));
	assert_int_equal(v6.sin6_family, AF_INET6);
	assert_int_equal(ntohs(v6.sin6_port), 65535);
	assert_true(IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr));
	assert_false(address.any);

	assert_true(listen_parse(&address, "9000", reason, sizeof(reason)));
	assert_true(address.any);
	assert_int_equal(family_of("/run/x.sock"), AF_UNIX);
	assert_int_equal(family_of("x.sock"), AF_UNIX);
	assert_int_equal(family_of("/run/a:b"), AF_UNIX);
}

static void test_parse_refuses(void **context)
{
	static const char *const bad[] = {"",       "0",	 "65536",      "99999999999999999999", "127.0.0.1:", ":9000",
					  "::1:90", "[::1]9000", "[::1]:port", "127.0.0.1:0",	       "[]:9000",    "300.1.1.1:80"};
	char text[200];

	(void)context;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		reason[0] = '\0';
		assert_int_equal(family_of(bad[i]), -1);
		assert_string_not_equal(reason, "");
	}
	memset(text, 'x', sizeof(text));
	text[0] = '/';
	text[108] = '\0';
	assert_int_equal(family_of(text), -1);
	assert_non_null(strstr(reason, "108 bytes"));
	text[107] = '\0';
	assert_int_equal(family_of(text), AF_UNIX);
}

static void test_unix(void **context)
{
	struct listen_set set;
	struct stat st;
	int client;
	int peer;

	(void)context;
	assert_true(open_text(&set, path, &anyone));
	assert_int_equal(set.count, 1);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	assert_true(fcntl(set.fds[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(set.fds[0], F_GETFD) & FD_CLOEXEC);
	client = unix_socket(path, SOCK_STREAM, false);
	peer = accept(set.fds[0], NULL, NULL);
	assert_true(peer >= 0);
	close(peer);
	close(client);
	listen_close(&set);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_mode_is_exact_whatever_the_umask(void **context)
{
	struct listen_access all = {(uid_t)-1, (gid_t)-1, 0666};
	struct listen_set set;
	struct stat st;
	mode_t before = umask(077);

	(void)context;
	assert_true(open_text(&set, path, &all));
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0666);
	assert_int_equal(umask(before), 077); /* and given back */
	listen_close(&set);
}

static void test_owner(void **context)
{
	struct listen_access other = {getuid() == 0 ? 12345 : getuid(), getuid() == 0 ? 23456 : getgid(), 0600};
	struct listen_set set;
	struct stat st;

	(void)context;
	assert_true(open_text(&set, path, &other));
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_uid, other.owner);
	assert_int_equal(st.st_gid, other.group);
	assert_int_equal(st.st_mode & 07777, 0600);
	listen_close(&set);
}

static void test_stale_is_replaced(void **context)
{
	struct listen_set set;

	(void)context;
	close(unix_socket(path, SOCK_STREAM, true));
	assert_int_equal(access(path, F_OK), 0);
	assert_true(open_text(&set, path, &anyone));
	close(unix_socket(path, SOCK_STREAM, false));
	listen_close(&set);
}

static void test_used_is_refused(void **context)
{
	struct listen_set first;
	struct listen_set second;
	int datagrams;

	(void)context;
	assert_true(open_text(&first, path, &anyone));
	assert_false(open_text(&second, path, &anyone));
	assert_non_null(strstr(reason, "another process already listens on"));
	assert_int_equal(access(path, F_OK), 0); /* the first one's is unharmed */
	close(unix_socket(path, SOCK_STREAM, false));
	listen_close(&first);

	datagrams = unix_socket(path, SOCK_DGRAM, true);
	assert_false(open_text(&second, path, &anyone));
	assert_non_null(strstr(reason, "another process already listens on"));
	close(datagrams);
	assert_int_equal(unlink(path), 0);
}

static void test_file_is_never_removed(void **context)
{
	struct listen_set set;
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);

	(void)context;
	assert_true(fd >= 0);
	close(fd);
	assert_false(open_text(&set, path, &anyone));
	assert_non_null(strstr(reason, "is not a socket"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/nonexistent", path), 0);
	assert_false(open_text(&set, path, &anyone));
	assert_int_equal(unlink(path), 0);
}

static void test_foreign_inode_is_left(void **context)
{
	struct listen_set set;
	int fd;

	(void)context;
	assert_true(open_text(&set, path, &anyone));
	assert_int_equal(unlink(path), 0);
	fd = unix_socket(path, SOCK_STREAM, true); /* the next server's */
	listen_close(&set);
	assert_int_equal(access(path, F_OK), 0);
	close(fd);
	assert_int_equal(unlink(path), 0);
}

static int bound_port(int fd)
{
	struct sockaddr_storage at;
	struct sockaddr_in v4;
	socklen_t len = sizeof(at);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	memcpy(&v4, &at, sizeof(v4));
	return ntohs(v4.sin_port); /* at the same place in both families */
}

static int free_port(void)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int port;

	assert_int_equal(bind(fd, (struct sockaddr *)&v4, sizeof(v4)), 0);
	port = bound_port(fd);
	close(fd);
	return port;
}

static int connect_v4(int port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int result;

	v4.sin_port = htons((in_port_t)port);
	result = connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	close(fd);
	return result;
}

static void test_tcp(void **context)
{
	struct listen_set set;
	struct listen_set second;
	char text[32];
	int port = free_port();

	(void)context;
	snprintf(text, sizeof(text), "127.0.0.1:%d", port);
	assert_true(open_text(&set, text, &anyone));
	assert_int_equal(bound_port(set.fds[0]), port);
	assert_true(fcntl(set.fds[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(set.fds[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(connect_v4(port), 0);
	assert_false(open_text(&second, text, &anyone));
	assert_non_null(strstr(reason, "Address already in use"));
	assert_non_null(strstr(reason, text));
	listen_close(&set);
	assert_int_equal(connect_v4(port), -1);
}

static void test_bare_port_takes_ipv4_too(void **context)
{
	struct listen_set set;
	char text[32];
	int port = free_port();

	(void)context;
	snprintf(text, sizeof(text), "%d", port);
	assert_true(open_text(&set, text, &anyone));
	assert_int_equal(connect_v4(port), 0);
	listen_close(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_parse_refuses),
		cmocka_unit_test(test_unix),
		cmocka_unit_test(test_mode_is_exact_whatever_the_umask),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_stale_is_replaced),
		cmocka_unit_test(test_used_is_refused),
		cmocka_unit_test(test_file_is_never_removed),
		cmocka_unit_test(test_foreign_inode_is_left),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_bare_port_takes_ipv4_too),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* Arguments, environment and real workers: who can reach the socket, and who
 * outlives whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/spawn.h"
#include "tests/unit/entries.h"

static char dir[] = "/tmp/h2fpm-test-spawn-XXXXXX";
static const struct rlimit nofile = {.rlim_cur = 77, .rlim_max = 99};

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when something was left */
}

/* ---- arguments ---- */

static char **argv_of(const char *command)
{
	struct pool_settings settings = {.worker_command = (char *)(uintptr_t)command};
	static const struct phpini none;
	return spawn_argv(&settings, &none);
}

/* The words between bars; "(null)": refused. */
static void check_split(const char *command, const char *want)
{
	char joined[512] = "";
	char **argv = argv_of(command);

	for (size_t i = 0; argv && argv[i]; i++)
		strcat(strcat(joined, i ? "|" : ""), argv[i]);
	assert_string_equal(argv ? joined : "(null)", want);
	spawn_strings_free(argv);
}

static void test_split(void **state)
{
	(void)state;
	check_split("php-cgi", "php-cgi");
	check_split("  php-cgi \t -c  /etc/x ", "php-cgi|-c|/etc/x");
	check_split("'a b' \"c d\"", "a b|c d");
	check_split("a'b c'd\"e f\"g", "ab cde fg");
	check_split("a \"it's\" 'say \"x\"'", "a|it's|say \"x\"");
	check_split("a '' \"\" b", "a|||b");
	check_split("a\\b '\\' \"\\\\\"", "a\\b|\\|\\\\"); /* a backslash is a byte like others */
	check_split("a $HOME ; `b` *", "a|$HOME|;|`b`|*"); /* and there is no shell */
	check_split("a'", "(null)");
	check_split("a \"b c", "(null)");
	check_split("a 'b\"", "(null)");
	check_split("'", "(null)");
	check_split("", "(null)");
	check_split(" \t ", "(null)");
}

static void test_defines_come_behind(void **state)
{
	char *defines[] = {"-d", "memory_limit='64M'", "-d", "a='1'\n[PATH=.]\na='1'", NULL};
	struct phpini ini = {.args = defines};
	struct pool_settings settings = {.worker_command = "php-cgi -n"};
	char **argv = spawn_argv(&settings, &ini);

	(void)state;
	assert_non_null(argv);
	assert_string_equal(argv[0], "php-cgi");
	assert_string_equal(argv[1], "-n");
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(argv[i + 2], defines[i]);
	assert_null(argv[6]);
	spawn_strings_free(argv);
	settings.worker_command = "php-cgi '";
	assert_null(spawn_argv(&settings, &ini));
	spawn_strings_free(NULL);
}

/* ---- environment ---- */

/* How often the name is there, and its last value. */
static int count_of(char **envp, const char *name, const char **value)
{
	size_t len = strlen(name);
	int count = 0;

	*value = NULL;
	for (; *envp; envp++) {
		if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=') {
			*value = *envp + len + 1;
			count++;
		}
	}
	return count;
}

static void check_variable(char **envp, const char *name, const char *want)
{
	const char *value;

	assert_int_equal(count_of(envp, name, &value), want ? 1 : 0);
	if (want)
		assert_string_equal(value, want);
}

static void test_environment(void **state)
{
	struct setting_pair items[] = {
	        {"FOO", "a=b 'c' $d", false},
	        {"EMPTY", "", false},
	        {"PHP_FCGI_CHILDREN", "9", false},
	        {"TZ", "Asia/Tokyo", false},
	};
	struct pool_settings settings = {.env = {items, 4}};
	const struct passwd *account = getpwuid(geteuid());

	(void)state;
	assert_non_null(account);
	setenv("SECRET", "shown", 1);
	setenv("SECRET_LONGER", "x", 1);
	setenv("TZ", "UTC", 1);
	setenv("TZX", "other", 1);
	setenv("USER", "inherited", 1);
	setenv("HOME", "/inherited", 1);
	setenv("PHP_FCGI_CHILDREN", "8", 1);
	setenv("PHP_FCGI_MAX_REQUESTS", "3", 1);
	for (int clear = 0; clear < 2; clear++) {
		settings.clear_env = clear;
		char **envp = spawn_envp(&settings);
		assert_non_null(envp);
		check_variable(envp, "SECRET", clear ? NULL : "shown");
		check_variable(envp, "SECRET_LONGER", clear ? NULL : "x");
		check_variable(envp, "TZX", clear ? NULL : "other");
		check_variable(envp, "FOO", "a=b 'c' $d");
		check_variable(envp, "EMPTY", "");
		check_variable(envp, "TZ", "Asia/Tokyo");
		check_variable(envp, "PHP_FCGI_CHILDREN", NULL);
		check_variable(envp, "PHP_FCGI_MAX_REQUESTS", "0");
		check_variable(envp, "USER", account->pw_name);
		check_variable(envp, "HOME", account->pw_dir);
		if (clear) {
			size_t count = 0;
			while (envp[count])
				count++;
			assert_int_equal(count, 6);
		}
		spawn_strings_free(envp);
	}
}

/* As in php-fpm: env[] wins over the account. */
static void test_own_home(void **state)
{
	struct setting_pair items[] = {{"HOME", "/mine", false}, {"USER", "me", false}};
	struct pool_settings settings = {.env = {items, 2}, .clear_env = true};
	char **envp = spawn_envp(&settings);

	(void)state;
	assert_non_null(envp);
	check_variable(envp, "HOME", "/mine");
	check_variable(envp, "USER", "me");
	spawn_strings_free(envp);
}

/* ---- workers ---- */

struct started {
	char **argv;
	char **envp;
	struct spawn_result result;
};

/* Wherever the socket was made: its name is gone, and its directory is. */
static void check_nameless(int socket_fd)
{
	static const char gone[] = "/s (deleted)";
	char link[64], path[512];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", socket_fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	assert_true(n > (ssize_t)sizeof(gone));
	path[n] = '\0';
	char *end_of_dir = path + n - (sizeof(gone) - 1);
	assert_string_equal(end_of_dir, gone);
	*end_of_dir = '\0';
	assert_non_null(strstr(path, "/h2fpm-"));
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(entries_in(dir), 0);
}

static void start(struct started *s, const char *command, char *chdir_to)
{
	struct pool_settings settings = {.worker_command = (char *)(uintptr_t)command,
	                                 .clear_env = true,
	                                 .chdir = chdir_to,
	                                 .rlimit_files = RLIMIT_UNSET,
	                                 .rlimit_core = RLIMIT_UNSET,
	                                 .request_spool_dir = dir};

	s->argv = spawn_argv(&settings, &(struct phpini){0});
	s->envp = spawn_envp(&settings);
	assert_non_null(s->argv);
	assert_non_null(s->envp);
	assert_true(spawn_worker(&(struct spawn_plan){&settings, s->argv, s->envp, nofile, -1, -1}, &s->result));
	check_nameless(s->result.socket_fd);
}

/* Reads err_fd to its end, which comes with the worker's. */
static void read_said(struct started *s, char *said, size_t size)
{
	struct pollfd p = {.fd = s->result.err_fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n = 1;

	while (n != 0) {
		assert_int_equal(poll(&p, 1, 20000), 1);
		n = read(p.fd, said + len, size - len - 1);
		assert_true(n >= 0);
		len += (size_t)n;
	}
	said[len] = '\0';
}

static int end(struct started *s)
{
	int status;

	assert_int_equal(waitpid(s->result.pid, &status, 0), s->result.pid);
	close(s->result.socket_fd);
	close(s->result.err_fd);
	spawn_strings_free(s->argv);
	spawn_strings_free(s->envp);
	return status;
}

static void test_worker_is_reached(void **state)
{
	struct started s;
	char said[64];
	int fds[3];
	struct pollfd p;

	(void)state;
	start(&s, "php-cgi -n", NULL);
	for (int i = 0; i < 3; i++) {
		fds[i] = spawn_connect(s.result.socket_fd);
		assert_true(fds[i] >= 0);
		assert_int_equal(fcntl(fds[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
		assert_int_equal(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	}
	assert_int_equal(fcntl(s.result.err_fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(fcntl(s.result.socket_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	/* GET_VALUES of nothing: that is php-cgi at the other end */
	assert_int_equal(write(fds[0], "\1\11\0\0\0\0\0\0", 8), 8);
	p = (struct pollfd){.fd = fds[0], .events = POLLIN};
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(read(fds[0], said, 2), 2);
	assert_memory_equal(said, "\1\12", 2);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	kill(s.result.pid, SIGKILL);
	int socket_fd = fcntl(s.result.socket_fd, F_DUPFD_CLOEXEC, 3);
	assert_true(WIFSIGNALED(end(&s)));
	assert_int_equal(spawn_connect(socket_fd), -1); /* nobody listens any more */
	assert_int_equal(errno, ECONNREFUSED);
	close(socket_fd);
	assert_int_equal(spawn_connect(9999), -1);
}

/* Descriptors, signals, limits and directory as the program finds them. */
static void test_worker_starts_clean(void **state)
{
	struct started s;
	char said[4096];
	int leaked = open("/dev/null", O_RDONLY); /* without close-on-exec */
	sigset_t usr1, old;

	(void)state;
	assert_true(leaked > 2);
	signal(SIGTERM, SIG_IGN);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &old);
	start(&s,
	      "/bin/sh -c 'exec 3>&2; for f in 0 1 2 3 4 5 6 7 8 9 10 11 12; do [ -e /proc/$$/fd/$f ] && echo fd $f "
	      ">&2; done;"
	      " echo hidden; out=$(readlink /proc/$$/fd/1); echo $out >&2; pwd >&2; ulimit -Sn >&2; ulimit -Hn >&2;"
	      /* signals 32 and 33 are the C library's own: it lets nobody reset them */
	      " grep -E ^Sig[BI] /proc/self/status | sed s/0000000180000000/0000000000000000/ >&2; case $(readlink /proc/$$/fd/0) in socket:*) echo socket >&2;; "
	      "esac; exit 7'",
	      dir);
	read_said(&s, said, sizeof(said));
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGTERM, SIG_DFL);
	close(leaked);
	char want[512];
	snprintf(want, sizeof(want),
	         "fd 0\nfd 1\nfd 2\nfd 3\n/dev/null\n%s\n77\n99\n"
	         "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nsocket\n",
	         dir);
	assert_string_equal(said, want);
	int status = end(&s);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void test_failures_are_explained(void **state)
{
	struct started s;
	char said[256], missing[128];

	(void)state;
	start(&s, "/nonexistent/php-cgi", NULL);
	read_said(&s, said, sizeof(said));
	assert_string_equal(said, "/nonexistent/php-cgi: No such file or directory\n");
	assert_int_equal(WEXITSTATUS(end(&s)), 127);
	start(&s, "no-such-program", NULL);
	read_said(&s, said, sizeof(said));
	assert_string_equal(said, "no-such-program: No such file or directory\n");
	assert_int_equal(WEXITSTATUS(end(&s)), 127);
	snprintf(missing, sizeof(missing), "%s/missing", dir);
	start(&s, "/bin/true", missing);
	read_said(&s, said, sizeof(said));
	assert_string_equal(said, "chdir: No such file or directory\n");
	assert_int_equal(WEXITSTATUS(end(&s)), 127);
}

/* A half-copied php-cgi must not become a shell script. */
static void test_what_is_no_program_is_not_given_to_a_shell(void **state)
{
	static const char text[] = "echo run by a shell >&2\n";
	char file[] = "/tmp/h2fpm-half-XXXXXX", said[256], want[256];
	struct started s;
	int fd = mkstemp(file);

	(void)state;
	assert_true(fd >= 0 && fchmod(fd, 0755) == 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	start(&s, file, NULL);
	read_said(&s, said, sizeof(said));
	unlink(file);
	snprintf(want, sizeof(want), "%s: Exec format error\n", file);
	assert_string_equal(said, want);
	assert_int_equal(WEXITSTATUS(end(&s)), 127);
}

static int open_count(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_nothing_is_started(void **state)
{
	char *argv[] = {"/bin/true", NULL}, *envp[] = {NULL};
	struct pool_settings settings = {.rlimit_files = RLIMIT_UNSET, .rlimit_core = RLIMIT_UNSET, .request_spool_dir = dir};
	struct spawn_result result;
	struct rlimit limit, few;
	int before = open_count();
	int next = fcntl(0, F_DUPFD, 0);

	(void)state;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	for (rlim_t room = 0; room < 5; room++) { /* it fails one step later each time */
		few = limit;
		few.rlim_cur = (rlim_t)next + room;
		setrlimit(RLIMIT_NOFILE, &few);
		bool done = spawn_worker(&(struct spawn_plan){&settings, argv, envp, nofile, -1, -1}, &result);
		int error = errno;
		setrlimit(RLIMIT_NOFILE, &limit);
		assert_int_equal(open_count(), before + (done ? 2 : 0));
		assert_int_equal(entries_in(dir), 0);
		if (done) {
			check_nameless(result.socket_fd);
			assert_int_equal(waitpid(result.pid, NULL, 0), result.pid);
			close(result.socket_fd);
			close(result.err_fd);
		} else {
			assert_int_equal(error, EMFILE);
		}
		assert_int_equal(done, room == 4);
	}
}

/* The parent dies without a word; its worker must go, too. As a subreaper
 * this test gets to know when. */
static void test_worker_dies_with_its_parent(void **state)
{
	int told[2], status;
	pid_t worker, parent;

	(void)state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	parent = fork();
	if (parent == 0) {
		char *argv[] = {"/bin/sleep", "60", NULL}, *envp[] = {NULL};
		struct pool_settings settings = {.rlimit_files = RLIMIT_UNSET, .rlimit_core = RLIMIT_UNSET, .request_spool_dir = dir};
		struct spawn_result result;

		if (!spawn_worker(&(struct spawn_plan){&settings, argv, envp, nofile, -1, -1}, &result) ||
		    write(told[1], &result.pid, sizeof(result.pid)) != sizeof(result.pid))
			_exit(1);
		/* until it is /bin/sleep that must die */
		char name[32] = "";
		while (strcmp(name, "sleep\n") != 0) {
			char path[64];
			snprintf(path, sizeof(path), "/proc/%d/comm", result.pid);
			FILE *f = fopen(path, "r");
			if (!f || !fgets(name, sizeof(name), f))
				_exit(2);
			fclose(f);
		}
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(read(told[0], &worker, sizeof(worker)), sizeof(worker));
	assert_int_equal(waitpid(parent, &status, 0), parent);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(waitpid(worker, &status, 0), worker);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	close_range(3, ~0U, 0); /* descriptors of whoever runs this: they are counted below */
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_split),
	        cmocka_unit_test(test_defines_come_behind),
	        cmocka_unit_test(test_environment),
	        cmocka_unit_test(test_own_home),
	        cmocka_unit_test(test_worker_is_reached),
	        cmocka_unit_test(test_worker_starts_clean),
	        cmocka_unit_test(test_failures_are_explained),
		cmocka_unit_test(test_what_is_no_program_is_not_given_to_a_shell),
	        cmocka_unit_test(test_nothing_is_started),
	        cmocka_unit_test(test_worker_dies_with_its_parent),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

/* child_start() runs /proc/self/exe, which is this test: started so, it looks
 * at what it was given and reports on its link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fpm/child.h"
#include "fpm/listen.h"
#include "pool/link.h"

/* What the child sees behind one of its descriptors. */
struct seen {
	dev_t dev[LINK_FD_LISTEN + LISTEN_MAX];
	ino_t ino[LINK_FD_LISTEN + LISTEN_MAX];
	int open_count;
	int argc;
	char argv[3][64];
	bool leads_group;
	bool signals_are_default;
};

static int count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = -1; /* the directory's own */

	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		closedir(dir);
	return count - 2; /* . and .. */
}

static bool are_default(void)
{
	sigset_t blocked;
	struct sigaction term;
	struct sigaction pipe_action;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	sigaction(SIGTERM, NULL, &term);
	sigaction(SIGPIPE, NULL, &pipe_action);
	return !sigismember(&blocked, SIGTERM) && term.sa_handler == SIG_DFL && pipe_action.sa_handler == SIG_DFL;
}

static int be_child(int argc, char **argv)
{
	struct seen seen = {.argc = argc};

	seen.open_count = count_open();
	seen.leads_group = getpgrp() == getpid();
	seen.signals_are_default = are_default();
	for (int i = 0; i < argc && i < 3; i++)
		snprintf(seen.argv[i], sizeof(seen.argv[i]), "%s", argv[i]);
	for (int fd = 0; fd < LINK_FD_LISTEN + LISTEN_MAX; fd++) {
		struct stat st;

		if (fstat(fd, &st) == 0) {
			seen.dev[fd] = st.st_dev;
			seen.ino[fd] = st.st_ino;
		}
	}
	return send(LINK_FD_LINK, &seen, sizeof(seen), 0) == (ssize_t)sizeof(seen) ? 7 : 1;
}

static void assert_same(const struct seen *seen, int theirs, int ours)
{
	struct stat st;

	assert_int_equal(fstat(ours, &st), 0);
	assert_int_equal(seen->dev[theirs], st.st_dev);
	assert_int_equal(seen->ino[theirs], st.st_ino);
}

static void run_child(const struct child_plan *plan, int link, struct seen *seen)
{
	int status;
	pid_t pid = child_start(plan);

	assert_true(pid > 0);
	assert_int_equal(recv(link, seen, sizeof(*seen), 0), sizeof(*seen));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void assert_placed(const struct child_plan *plan, int link)
{
	struct seen seen;
	struct stat null;

	run_child(plan, link, &seen);
	assert_int_equal(stat("/dev/null", &null), 0);
	assert_int_equal(seen.ino[0], null.st_ino);
	assert_int_equal(seen.ino[1], null.st_ino);
	if (plan->detached)
		assert_int_equal(seen.ino[2], null.st_ino);
	else
		assert_same(&seen, 2, 2);
	assert_same(&seen, LINK_FD_LINK, plan->link);
	assert_same(&seen, LINK_FD_SETTINGS, plan->settings);
	assert_same(&seen, LINK_FD_LOG, plan->log);
	assert_same(&seen, LINK_FD_ACCESS_LOG, plan->access_log);
	for (int i = 0; i < plan->listener_count; i++)
		assert_same(&seen, LINK_FD_LISTEN + i, plan->listeners[i]);
	assert_int_equal(seen.open_count, LINK_FD_LISTEN + plan->listener_count);
	assert_int_equal(seen.argc, 3);
	assert_string_equal(seen.argv[0], "h2fpm: pool www");
	assert_string_equal(seen.argv[1], CHILD_OPTION);
	assert_int_equal(atoi(seen.argv[2]), plan->listener_count);
	assert_true(seen.leads_group);
	assert_true(seen.signals_are_default);
}

/* A descriptor of its own inode at exactly this number. */
static int inode_at(int fd)
{
	int made = memfd_create("test", MFD_CLOEXEC);

	assert_true(made >= 0);
	if (made != fd) {
		assert_int_equal(dup3(made, fd, O_CLOEXEC), fd);
		close(made);
	}
	return fd;
}

static void test_every_order_is_placed(void **context)
{
	/* 3 to 9 are the targets; each rotation makes other sources collide */
	enum { FIRST = LINK_FD_LINK, COUNT = 7 };

	(void)context;
	for (int turn = 0; turn < COUNT; turn++) {
		int at[COUNT];
		int listeners[3];
		int ends[2];
		struct child_plan plan = {.name = "www", .listeners = listeners, .listener_count = 3};

		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
		assert_int_equal(fcntl(ends[0], F_DUPFD_CLOEXEC, 40), 40);
		assert_int_equal(fcntl(ends[1], F_DUPFD_CLOEXEC, 41), 41);
		close(ends[0]);
		close(ends[1]);
		for (int i = 0; i < COUNT; i++)
			at[i] = inode_at(FIRST + (i + turn) % COUNT);
		assert_int_equal(dup3(41, at[0], O_CLOEXEC), at[0]);
		close(41);
		plan.link = at[0];
		plan.settings = at[1];
		plan.log = at[2];
		plan.access_log = at[3];
		plan.detached = turn % 2 == 0;
		for (int i = 0; i < 3; i++)
			listeners[i] = at[4 + i];
		assert_placed(&plan, 40);
		for (int i = 0; i < COUNT; i++)
			close(at[i]);
		close(40);
	}
}

static void test_one_descriptor_for_several(void **context)
{
	int ends[2];
	int file = inode_at(20);
	struct child_plan plan = {.name = "www", .settings = 20, .log = 20, .access_log = 20, .listener_count = 1};

	(void)context;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	plan.link = ends[1];
	plan.listeners = &file;
	plan.log = STDERR_FILENO;
	assert_placed(&plan, ends[0]);
	close(ends[0]);
	close(ends[1]);
	close(file);
}

static void test_signals_are_given_back(void **context)
{
	int ends[2];
	int file = inode_at(20);
	struct child_plan plan = {
		.name = "www", .settings = 20, .log = 20, .access_log = 20, .listeners = &file, .listener_count = 1};
	sigset_t mask;

	(void)context;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	plan.link = ends[1];
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	assert_placed(&plan, ends[0]); /* the child has neither */
	sigprocmask(SIG_SETMASK, NULL, &mask);
	assert_true(sigismember(&mask, SIGTERM));
	assert_false(sigismember(&mask, SIGINT));
	sigemptyset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	signal(SIGPIPE, SIG_DFL);
	close(ends[0]);
	close(ends[1]);
	close(file);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_order_is_placed),
		cmocka_unit_test(test_one_descriptor_for_several),
		cmocka_unit_test(test_signals_are_given_back),
	};

	if (argc > 1 && strcmp(argv[1], CHILD_OPTION) == 0)
		return be_child(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fpm/orphan.h"

/* Each test is a process of its own, since what it becomes stays. A pipe's
 * writing end that everybody has shows when all are gone: at its end of file. */
static void run(int (*body)(int everybody))
{
	int ends[2];
	int status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		alarm(30);
		_exit(body(ends[1]));
	}
	close(ends[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody is left */
	close(ends[0]);
}

/* A chain of sessions, each the child of the one before; tells when it stands. */
static void grow(int depth, int told)
{
	pid_t pid = fork();

	if (pid != 0)
		return;
	setsid();
	if (depth > 0)
		grow(depth - 1, told);
	else if (write(told, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static bool grow_and_wait(int depth)
{
	int ends[2];
	char byte;
	bool ok;

	if (pipe(ends) != 0)
		return false;
	grow(depth, ends[1]);
	close(ends[1]);
	ok = read(ends[0], &byte, 1) == 1;
	close(ends[0]);
	return ok;
}

static int kill_all(int everybody)
{
	(void)everybody;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return 1;
	for (int i = 0; i < 50; i++) {
		if (!grow_and_wait(5))
			return 2;
	}
	orphan_kill_all();
	return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 3;
}

static void test_kill_all_reaches_every_session(void **context)
{
	(void)context;
	run(kill_all);
}

static void count_child(void *context, pid_t child)
{
	if (child > 0)
		(*(int *)context)++;
}

/* More than one read's worth of numbers. */
static int list_many(int everybody)
{
	enum { MANY = 1500 };
	int count = 0;

	(void)everybody;
	for (int i = 0; i < MANY; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid == 0) {
			pause();
			_exit(0);
		}
	}
	if (!orphan_each_child(count_child, &count) || count != MANY)
		return 2;
	orphan_kill_all();
	return 0;
}

static void test_list_may_be_long(void **context)
{
	(void)context;
	run(list_many);
}

static bool is_the_one(void *context, pid_t child)
{
	return child == *(pid_t *)context;
}

static int sweep(int everybody)
{
	struct orphans orphans = {0};
	pid_t known;

	(void)everybody;
	orphans_adopt(&orphans);
	known = fork();
	if (known == 0) {
		if (!grow_and_wait(4))
			_exit(1);
		for (;;)
			pause();
	}
	if (!orphans.ours || known < 0 || !grow_and_wait(3))
		return 1;
	do {
		orphans_sweep(&orphans, is_the_one, &known);
	} while (orphans.count > 0 && waitpid(-1, NULL, 0) > 0);
	if (waitpid(-1, NULL, WNOHANG) != 0) /* the known one lives */
		return 2;
	kill(known, SIGKILL);
	do {
		if (waitpid(-1, NULL, 0) < 0)
			return 3;
		orphans_sweep(&orphans, is_the_one, &known);
	} while (orphans.count > 0);
	return 0;
}

static void test_sweep_spares_the_known_and_theirs(void **context)
{
	(void)context;
	run(sweep);
}

static int have_child_before(int everybody)
{
	struct orphans orphans = {0};
	pid_t before = fork();
	int reaper = 1;

	(void)everybody;
	if (before == 0) {
		pause();
		_exit(0);
	}
	orphans_adopt(&orphans);
	orphans_sweep(&orphans, is_the_one, &(pid_t){0});
	if (orphans.ours || waitpid(before, NULL, WNOHANG) != 0)
		return 1;
	kill(before, SIGKILL);
	return prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper == 0 ? 0 : 2;
}

static void test_children_from_before_are_left_alone(void **context)
{
	(void)context;
	run(have_child_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kill_all_reaches_every_session),
		cmocka_unit_test(test_list_may_be_long),
		cmocka_unit_test(test_sweep_spares_the_known_and_theirs),
		cmocka_unit_test(test_children_from_before_are_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

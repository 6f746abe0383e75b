#include "fpm/orphan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 1000 }; /* of a millisecond */

/* "12 345 6789 ": a number may go on in the next piece. */
static pid_t take_numbers(const char *text, ssize_t len, pid_t number, void (*act)(void *, pid_t), void *context)
{
	for (ssize_t i = 0; i < len; i++) {
		if (text[i] >= '0' && text[i] <= '9') {
			number = number * 10 + (text[i] - '0');
			continue;
		}
		if (number > 0)
			act(context, number);
		number = 0;
	}
	return number;
}

bool orphan_each_child(void (*act)(void *context, pid_t child), void *context)
{
	char text[4096];
	pid_t number = 0;
	ssize_t n;
	int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while ((n = read(fd, text, sizeof(text))) > 0)
		number = take_numbers(text, n, number, act, context);
	if (number > 0)
		act(context, number);
	close(fd);
	return true;
}

static void note_child(void *context, pid_t child)
{
	(void)child;
	*(bool *)context = true;
}

void orphans_adopt(struct orphans *orphans)
{
	bool any = false;

	orphans->ours = getpid() != 1 && orphan_each_child(note_child, &any) && !any &&
			prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

struct sweep {
	struct orphans *orphans;
	bool (*is_known)(void *context, pid_t child);
	void *context;
};

static void sweep_child(void *context, pid_t child)
{
	const struct sweep *sweep = context;

	if (sweep->is_known(sweep->context, child))
		return;
	kill(child, SIGKILL);
	sweep->orphans->count++;
}

void orphans_sweep(struct orphans *orphans, bool (*is_known)(void *context, pid_t child), void *context)
{
	struct sweep sweep = {orphans, is_known, context};

	orphans->count = 0;
	if (orphans->ours)
		(void)orphan_each_child(sweep_child, &sweep);
}

static void kill_child(void *context, pid_t child)
{
	(void)context;
	kill(child, SIGKILL);
}

void orphan_kill_all(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid;

		if (!orphan_each_child(kill_child, NULL))
			return;
		do {
			pid = waitpid(-1, NULL, WNOHANG);
		} while (pid > 0);
		if (pid < 0 && errno == ECHILD)
			return;
		poll(NULL, 0, 1);
	}
}

#include "fpm/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

/* No byte: it died, and has said why on the standard error that we share. */
_Noreturn static void wait_for_start(pid_t pid, int fd)
{
	char byte;
	int status;
	sigset_t none;
	ssize_t n;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(EXIT_SUCCESS);
	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 0)
		_exit(WEXITSTATUS(status));
	_exit(EX_SOFTWARE);
}

int daemon_detach(void)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid > 0) {
		close(ends[1]);
		wait_for_start(pid, ends[0]);
	}
	close(ends[0]);
	if (setsid() < 0)
		return -1;
	return ends[1];
}

void daemon_ready(int waiting_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null >= 0)
		close(null);
	/* nobody there any more to be told is no failure of ours */
	if (write(waiting_fd, "", 1) != 1)
		errno = 0;
	close(waiting_fd);
}

#include "fpm/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The standard stream that the name stands for, or -1. */
static int standard_fd(const char *name)
{
	static const struct {
		const char *name;
		int fd;
	} names[] = {
		{"/dev/stderr", STDERR_FILENO},       {"/proc/self/fd/2", STDERR_FILENO}, {"/dev/fd/2", STDERR_FILENO},
		{"/dev/stdout", STDOUT_FILENO},       {"/proc/self/fd/1", STDOUT_FILENO}, {"/dev/fd/1", STDOUT_FILENO},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i].name) == 0)
			return names[i].fd;
	}
	return -1;
}

/* Non-blocking, or a FIFO without a reader would hold up the start. */
static int open_named(const char *name)
{
	return open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

static bool fail(char *reason, size_t reason_size, const char *name)
{
	snprintf(reason, reason_size, "failed to open '%s': %s (%d)", name, strerror(errno), errno);
	return false;
}

bool logfile_open(struct logfile *log, const char *name, char *reason, size_t reason_size)
{
	int standard = standard_fd(name);

	log->name = standard < 0 ? name : NULL;
	log->fd = standard < 0 ? open_named(name) : fcntl(standard, F_DUPFD_CLOEXEC, 3);
	return log->fd >= 0 || fail(reason, reason_size, name);
}

bool logfile_reopen(struct logfile *log, char *reason, size_t reason_size)
{
	int fd;
	bool ok;

	if (log->name == NULL)
		return true;
	fd = open_named(log->name);
	if (fd < 0)
		return fail(reason, reason_size, log->name);
	ok = dup3(fd, log->fd, O_CLOEXEC) >= 0 || fail(reason, reason_size, log->name);
	close(fd);
	return ok;
}

void logfile_close(struct logfile *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}

bool logfile_check(const char *name, char *reason, size_t reason_size)
{
	char parent[4096];
	char *slash;

	if (standard_fd(name) >= 0 || faccessat(AT_FDCWD, name, W_OK, AT_EACCESS) == 0)
		return true;
	if (errno == ENOENT && snprintf(parent, sizeof(parent), "%s", name) < (int)sizeof(parent)) {
		slash = strrchr(parent, '/');
		if (slash == NULL)
			snprintf(parent, sizeof(parent), ".");
		else
			slash[slash == parent ? 1 : 0] = '\0';
		if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0)
			return true;
	}
	return fail(reason, reason_size, name);
}

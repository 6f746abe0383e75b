#include "fpm/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Non-blocking, or a FIFO without a reader would hold up the start. */
enum { OPEN_FLAGS = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };

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

/* Where the link leads, if it is root's or our own. */
static bool read_link(int link, char target[PATH_MAX])
{
	struct stat st;
	ssize_t len = readlinkat(link, "", target, PATH_MAX - 1);

	if (len < 0 || fstat(link, &st) != 0)
		return false;
	target[len] = '\0';
	errno = EACCES;
	return st.st_uid == 0 || st.st_uid == geteuid();
}

static int open_target(const char *name, const char *target)
{
	const char *slash = strrchr(name, '/');
	char path[2 * PATH_MAX];

	if (target[0] == '/' || !slash)
		return open(target, OPEN_FLAGS, 0600);
	snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - name), name, target);
	return open(path, OPEN_FLAGS, 0600);
}

/* Whoever can write to the log's directory could have root append to any file
 * by a link of his; and by another one between a look at it and its use. */
static int open_link(const char *name)
{
	char target[PATH_MAX];
	struct statfs fs;
	int link = open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	bool is_proc = link >= 0 && fstatfs(link, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
	bool usable = link >= 0 && read_link(link, target);
	int error = errno;

	if (link >= 0)
		close(link);
	errno = error;
	if (!usable)
		return -1;
	return is_proc ? open(name, OPEN_FLAGS, 0600) : open_target(name, target);
}

static int open_named(const char *name)
{
	int fd = open(name, OPEN_FLAGS | O_NOFOLLOW, 0600);

	return fd < 0 && errno == ELOOP ? open_link(name) : fd;
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

#include "fpm/pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool pidfile_write(const char *path, char *reason, size_t reason_size)
{
	char temp[PATH_MAX];
	int n = snprintf(temp, sizeof(temp), "%s.%d.new", path, getpid());
	int fd = -1;
	bool ok;

	errno = ENAMETOOLONG;
	if (n > 0 && (size_t)n < sizeof(temp)) {
		unlink(temp); /* of a process that had our id and died here */
		fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	}
	ok = fd >= 0 && fchmod(fd, 0644) == 0 && dprintf(fd, "%d", getpid()) > 0;
	if (fd >= 0)
		ok = close(fd) == 0 && ok;
	ok = ok && rename(temp, path) == 0;
	if (!ok) {
		snprintf(reason, reason_size, "unable to write the PID file '%s': %s (%d)", path, strerror(errno),
			 errno);
		if (fd >= 0)
			unlink(temp);
	}
	return ok;
}

void pidfile_remove(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return;
	if (read(fd, text, sizeof(text) - 1) > 0 && strtol(text, NULL, 10) == (long)getpid())
		unlink(path);
	close(fd);
}

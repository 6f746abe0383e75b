#include "pool/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LABEL_BYTES = 4096 };

/* CAP_SYS_CHROOT was for us, not for scripts. */
static bool drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (geteuid() == 0)
		return true; /* the pool is meant to run as root */
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
	       syscall(SYS_capset, &header, none) == 0;
}

/* The directory must be given to chdir() too: the old one would be a way out. */
static const char *change_root(const struct confine *c)
{
	if (c->chroot && (chroot(c->chroot) != 0 || chdir("/") != 0))
		return "chroot";
	if (c->chroot && !drop_capabilities())
		return "the capabilities";
	if (c->chdir && chdir(c->chdir) != 0)
		return "chdir";
	return NULL;
}

static int open_label(const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/attr/apparmor/%s", name);
	int fd = open(path, flags | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof path, "/proc/self/attr/%s", name);
	return open(path, flags | O_CLOEXEC);
}

/* "profile (enforce)" → "profile" */
static bool read_profile(char *out, size_t size)
{
	int fd = open_label("current", O_RDONLY);
	ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	out[n] = '\0';
	out[strcspn(out, " \n")] = '\0';
	return true;
}

/* As php-fpm: a change to the profile "current//hat", for good. */
static bool put_on_hat(const char *hat, bool before_exec)
{
	char profile[LABEL_BYTES], order[2 * LABEL_BYTES];

	if (!read_profile(profile, sizeof profile))
		return false;
	int len = snprintf(order, sizeof order, "%s %s//%s", before_exec ? "exec" : "changeprofile", profile, hat);
	if (len < 0 || (size_t)len >= sizeof order) {
		errno = ENAMETOOLONG;
		return false;
	}
	int fd = open_label(before_exec ? "exec" : "current", O_WRONLY);
	bool ok = fd >= 0 && write(fd, order, (size_t)len) == len;
	int error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return ok;
}

static bool forbid_dumps(bool before_exec)
{
	const struct rlimit none = {0, 0};

	return before_exec ? setrlimit(RLIMIT_CORE, &none) == 0 : prctl(PR_SET_DUMPABLE, 0) == 0;
}

const char *confine_apply(const struct confine *c, bool before_exec)
{
	/* First what needs /proc, which a chroot may not have. */
	if (c->apparmor_hat && !put_on_hat(c->apparmor_hat, before_exec))
		return "apparmor_hat";
	const char *failed = change_root(c);
	if (failed)
		return failed;
	if (c->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return "process.no_new_privs";
	if (c->undumpable && !forbid_dumps(before_exec))
		return "process.dumpable";
	return NULL;
}

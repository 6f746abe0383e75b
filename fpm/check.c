#include "fpm/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fpm/conf_check.h"
#include "fpm/log.h"
#include "fpm/logfile.h"
#include "fpm/priv.h"

enum { REASON_BYTES = 512 };

/* Not root, a process can give its file to its own groups only. */
static void own_groups_only(const struct pool_settings *pool, struct listen_access *access)
{
	gid_t gid;

	if (pool->listen_group != NULL && priv_find_group(pool->listen_group, &gid) &&
	    (gid == getegid() || group_member(gid)))
		access->group = gid;
}

bool check_listen_access(const struct pool_settings *pool, struct listen_access *access, char *reason,
			 size_t reason_size)
{
	*access = (struct listen_access){(uid_t)-1, (gid_t)-1, (mode_t)pool->listen_mode};
	if (geteuid() != 0) {
		own_groups_only(pool, access);
		return true;
	}
	/* as in php-fpm an owner brings his group, unless another is named */
	if (pool->listen_owner != NULL && !priv_find_user(pool->listen_owner, &access->owner, &access->group)) {
		snprintf(reason, reason_size, "cannot get uid for listen.owner '%s'", pool->listen_owner);
		return false;
	}
	if (pool->listen_group != NULL && !priv_find_group(pool->listen_group, &access->group)) {
		snprintf(reason, reason_size, "cannot get gid for listen.group '%s'", pool->listen_group);
		return false;
	}
	return true;
}

/* With the place of the section: which of its lines it is only the file's
 * reader knew. */
static void tell(const struct pool_settings *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const struct pool_settings *pool, const char *format, ...)
{
	char text[2 * REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error("%s:%d: [pool %s] %s", pool->conf_file, pool->conf_line, pool->name, text);
}

static bool check_directory(const struct pool_settings *pool, const char *directive, const char *path, int mode)
{
	if (path == NULL || faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0)
		return true;
	tell(pool, "%s '%s' cannot be used by uid %u: %s (%d)", directive, path, geteuid(), strerror(errno), errno);
	return false;
}

/* Where a worker begins: seen from within its root, if it gets one. */
static bool check_start_directory(const struct pool_settings *pool, const char *root)
{
	int fd = conf_check_open_directory_in(root, pool->chdir);
	bool ok = fd >= 0 && faccessat(fd, ".", X_OK, AT_EACCESS) == 0;

	if (!ok)
		tell(pool, "chdir '%s'%s%s%s cannot be used by uid %u: %s (%d)", pool->chdir,
		     root != NULL ? " within chroot '" : "", root != NULL ? root : "", root != NULL ? "'" : "",
		     geteuid(), strerror(errno), errno);
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool check_directories(const struct pool_settings *pool, const char *root)
{
	bool ok = check_directory(pool, "chroot", root, X_OK);

	if (ok && pool->chdir != NULL)
		ok = check_start_directory(pool, root);
	return check_directory(pool, "request.spool_dir", pool->request_spool_dir, W_OK | X_OK) && ok;
}

/* In a process that has become the pool's user for the purpose: what root may
 * do says nothing. It also shows that the privileges can be dropped. */
static bool check_as_user(const struct pool_settings *pool, const struct priv_identity *who)
{
	char reason[REASON_BYTES];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (!priv_drop(who, reason, sizeof(reason))) {
			tell(pool, "%s", reason);
			_exit(1);
		}
		_exit(check_directories(pool, pool->chroot) ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		tell(pool, "cannot check as its user: %s (%d)", strerror(errno), errno);
		return false;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool check_user_as_root(const struct pool_settings *pool, bool allow_root)
{
	struct priv_identity who;
	char reason[REASON_BYTES];

	if (!priv_resolve(&who, pool->user, pool->group, reason, sizeof(reason))) {
		tell(pool, "%s", reason);
		return false;
	}
	if (!allow_root && pool->user == NULL) {
		tell(pool, "user has not been defined; to run the pool as root, start with -R");
		return false;
	}
	if (!allow_root && (who.uid == 0 || who.gid == 0)) {
		tell(pool, "please specify user and group other than root, or start with -R");
		return false;
	}
	return check_as_user(pool, &who);
}

static void tell_ignored(const struct pool_settings *pool, const char *directive, const char *value)
{
	if (value != NULL)
		log_notice("[pool %s] '%s' directive is ignored when FPM is not running as root", pool->name, directive);
}

static bool check_user(const struct pool_settings *pool, bool allow_root)
{
	struct listen_access access = {(uid_t)-1, (gid_t)-1, 0};

	if (geteuid() == 0)
		return check_user_as_root(pool, allow_root);
	own_groups_only(pool, &access);
	tell_ignored(pool, "user", pool->user);
	tell_ignored(pool, "group", pool->group);
	tell_ignored(pool, "chroot", pool->chroot);
	tell_ignored(pool, "process.priority", pool->process_priority != PRIORITY_UNSET ? "" : NULL);
	if (pool->listen[0] == '/') {
		tell_ignored(pool, "listen.owner", pool->listen_owner);
		if (access.group == (gid_t)-1)
			tell_ignored(pool, "listen.group", pool->listen_group);
	}
	return check_directories(pool, NULL);
}

/* Without AppArmor its hat would protect from nothing, unnoticed. */
static bool check_apparmor(const struct pool_settings *pool)
{
	char enabled = 'N';
	int fd;

	if (pool->apparmor_hat == NULL)
		return true;
	fd = open("/sys/module/apparmor/parameters/enabled", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (read(fd, &enabled, 1) != 1)
			enabled = 'N';
		close(fd);
	}
	if (enabled == 'Y')
		return true;
	tell(pool, "apparmor_hat '%s' cannot be worn: the kernel has no AppArmor, or it is switched off",
	     pool->apparmor_hat);
	return false;
}

static bool check_pool(const struct pool_settings *pool, bool allow_root)
{
	struct listen_address address;
	struct listen_access access;
	char reason[REASON_BYTES];
	bool ok = check_user(pool, allow_root);

	ok = check_apparmor(pool) && ok;
	if (!listen_parse(&address, pool->listen, reason, sizeof(reason))) {
		tell(pool, "listen: %s", reason);
		ok = false;
	}
	if (!check_listen_access(pool, &access, reason, sizeof(reason))) {
		tell(pool, "%s", reason);
		ok = false;
	}
	if (pool->access_log != NULL && !logfile_check(pool->access_log, reason, sizeof(reason))) {
		tell(pool, "access.log: %s", reason);
		ok = false;
	}
	return ok;
}

static bool check_global(const struct conf *conf)
{
	char reason[REASON_BYTES];
	bool ok = true;

	if (conf->global.error_log != NULL && !logfile_check(conf->global.error_log, reason, sizeof(reason))) {
		log_error("%s: error_log: %s", conf->file, reason);
		ok = false;
	}
	if (conf->global.pid != NULL && !logfile_check(conf->global.pid, reason, sizeof(reason))) {
		log_error("%s: pid: %s", conf->file, reason);
		ok = false;
	}
	return ok;
}

bool check_all(struct conf *conf, bool allow_root, bool strict)
{
	bool ok = check_global(conf);

	for (size_t i = 0; i < conf->pool_count;) {
		if (check_pool(conf->pools[i], allow_root)) {
			i++;
		} else if (strict) {
			ok = false;
			i++;
		} else {
			tell(conf->pools[i], "is left out: see above");
			conf_leave_out(conf, i);
		}
	}
	if (conf->pool_count > 0)
		return ok;
	log_error("%s: no pool is left", conf->file);
	return false;
}

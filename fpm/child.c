#include "fpm/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "fpm/conf.h"
#include "fpm/limits.h"
#include "fpm/listen.h"
#include "fpm/log.h"
#include "fpm/orphan.h"
#include "fpm/priv.h"
#include "pool/link.h"
#include "pool/pool.h"

enum { DEATH_SIGNAL = 3 }; /* above SIGRTMIN: the master is gone */

/* Every source is first moved above all targets, else putting one in place
 * could overwrite another that is still to be moved. */
static bool place(const struct child_plan *plan, int null)
{
	int fds[LINK_FD_LISTEN + LISTEN_MAX] = {
		null, null, plan->detached ? null : STDERR_FILENO, plan->link, plan->settings, plan->log,
		plan->access_log,
	};
	int count = LINK_FD_LISTEN + plan->listener_count;

	memcpy(fds + LINK_FD_LISTEN, plan->listeners, sizeof(fds[0]) * (size_t)plan->listener_count);
	for (int i = 0; i < count; i++) {
		fds[i] = fcntl(fds[i], F_DUPFD, count);
		if (fds[i] < 0)
			return false;
	}
	for (int i = 0; i < count; i++) {
		if (dup2(fds[i], i) < 0)
			return false;
	}
	return close_range((unsigned)count, ~0U, 0) == 0;
}

static void reset_signals(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL); /* KILL, STOP and libc's own refuse: no matter */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn static void become_pool(const struct child_plan *plan)
{
	char title[128];
	char option[] = CHILD_OPTION;
	char count[16];
	char *argv[] = {title, option, count, NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	snprintf(title, sizeof(title), "h2fpm: pool %s", plan->name);
	snprintf(count, sizeof(count), "%d", plan->listener_count);
	setpgid(0, 0); /* a terminal's Ctrl-C is for the master alone */
	reset_signals();
	if (null < 0 || !place(plan, null)) {
		log_error("[pool %s] cannot put the descriptors in place: %s (%d)", plan->name, strerror(errno), errno);
		_exit(EX_SOFTWARE);
	}
	log_to(LINK_FD_LOG);
	execv("/proc/self/exe", argv);
	log_error("[pool %s] cannot execute /proc/self/exe: %s (%d)", plan->name, strerror(errno), errno);
	_exit(EX_SOFTWARE);
}

/* Signals are blocked meanwhile: one that comes before the child has given up
 * the master's handlers would be swallowed by them. */
pid_t child_start(const struct child_plan *plan)
{
	sigset_t all;
	sigset_t before;
	pid_t pid;
	int error;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	error = errno;
	if (pid == 0)
		become_pool(plan);
	if (pid > 0)
		setpgid(pid, pid); /* whichever of the two comes first */
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return pid;
}

void child_kill(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
}

void child_sweep(pid_t pid)
{
	kill(-pid, SIGKILL);
}

/* In the new process */

/* The master may have died before the kernel was told: whoever made the link
 * must be the parent still. */
static bool is_bound(void)
{
	struct ucred master;
	socklen_t len = sizeof(master);

	return getsockopt(LINK_FD_LINK, SOL_SOCKET, SO_PEERCRED, &master, &len) == 0 && master.pid == getppid();
}

/* Runs even where the loop hangs. Anybody may send the signal: the parent says
 * whether it is true. A fork that has not executed yet is not the leader and
 * leaves it alone. */
static void on_master_death(int sig)
{
	int error = errno;

	(void)sig;
	if (getpgrp() == getpid() && !is_bound()) {
		orphan_kill_all(); /* NOLINT(bugprone-signal-handler,cert-sig30-c): made for it */
		kill(0, SIGKILL);
	}
	errno = error;
}

/* Not simply SIGKILL: what scripts have started is to go too, and the kernel
 * tells a process's children only. */
static bool bind_to_master(void)
{
	struct sigaction action = {.sa_handler = on_master_death, .sa_flags = SA_RESTART};
	int death = SIGRTMIN + DEATH_SIGNAL;

	sigfillset(&action.sa_mask);
	return sigaction(death, &action, NULL) == 0 && prctl(PR_SET_PDEATHSIG, death) == 0 && is_bound();
}

static void on_settings_error(void *context, const char *line)
{
	(void)context;
	log_error("%s", line);
}

/* By offset: the descriptor's own position is shared with every process that
 * was started before. What the master could read and cannot be read any more
 * has changed behind it: a directory that is gone, say. */
static int read_settings(const char *name, struct conf **conf)
{
	struct stat st;
	int status = EX_SOFTWARE;
	char *text;

	*conf = NULL;
	text = fstat(LINK_FD_SETTINGS, &st) == 0 && st.st_size > 0 ? malloc((size_t)st.st_size) : NULL;
	if (text != NULL && pread(LINK_FD_SETTINGS, text, (size_t)st.st_size, 0) == st.st_size) {
		*conf = conf_parse(name, text, (size_t)st.st_size, on_settings_error, NULL);
		status = *conf != NULL && (*conf)->pool_count == 1 ? EX_OK : EX_CONFIG;
	}
	free(text);
	if (status != EX_OK)
		log_error("the settings that the master gave cannot be used");
	return status;
}

/* Workers are to inherit nothing unless the pool means it. */
static void close_on_exec(int count)
{
	for (int fd = LINK_FD_LINK; fd < count; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static bool has_chroot(const struct pool_settings *pool)
{
	struct stat st;

	if (pool->chroot == NULL)
		return true;
	if (stat(pool->chroot, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return true;
		errno = ENOTDIR;
	}
	log_error("the chroot '%s' cannot be used: %s (%d)", pool->chroot, strerror(errno), errno);
	return false;
}

static int become_user(const struct pool_settings *pool)
{
	struct priv_identity who;
	char reason[256];

	if (!priv_resolve(&who, pool->user, pool->group, reason, sizeof(reason))) {
		log_error("%s", reason);
		return EX_CONFIG;
	}
	if (!has_chroot(pool))
		return EX_CONFIG;
	who.keeps_chroot = pool->chroot != NULL;
	if (!priv_drop(&who, reason, sizeof(reason))) {
		log_error("%s", reason);
		return EX_SOFTWARE;
	}
	return EX_OK;
}

/* What only root may do; anybody else's pool goes without. */
static int use_root(struct pool_settings *pool)
{
	if (geteuid() != 0) {
		free(pool->chroot);
		pool->chroot = NULL;
		return EX_OK;
	}
	pool->was_root = true;
	return become_user(pool);
}

/* All that is decided before the user changes. */
static void fill_in(struct pool_settings *pool, const struct global_settings *global)
{
	pool->asks_master = global->process_max > 0;
	pool->emergency_restart_threshold = global->emergency_restart_threshold;
	pool->emergency_restart_interval_ms = global->emergency_restart_interval_ms;
	pool->worker_nice = limits_set_priority_for(pool);
	limits_raise_for(pool);
}

static int run_pool(const struct conf *conf, int listen_count)
{
	struct pool_settings *pool = conf->pools[0];
	char scope[128];
	int status;

	snprintf(scope, sizeof(scope), "pool %s", pool->name);
	log_set_scope(scope);
	log_set_level((enum log_level)conf->global.log_level);
	fill_in(pool, &conf->global);
	status = use_root(pool);
	if (status != EX_OK)
		return status;
	if (!bind_to_master()) { /* again: a change of user has undone it */
		log_error("the master has gone");
		return EX_SOFTWARE;
	}
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
		log_error("cannot become a subreaper: %s (%d)", strerror(errno), errno);
		return EX_SOFTWARE;
	}
	status = pool_main(pool, listen_count);
	/* The master does it, too, unless it is dying: its link is closed before
	 * the kernel tells us, and we may have ended in between. */
	orphan_kill_all();
	return status;
}

int child_main(int argc, char **argv)
{
	int listen_count = argc == 3 ? (int)strtol(argv[2], NULL, 10) : 0;
	struct conf *conf;
	int status;

	if (listen_count < 1 || listen_count > LISTEN_MAX || !bind_to_master()) {
		log_error(CHILD_OPTION " is for the master alone");
		return EX_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGUSR1, SIG_IGN); /* meant for the master: who rotates logs may signal all by name, */
	signal(SIGUSR2, SIG_IGN); /* or renews the workers */
	prctl(PR_SET_NAME, "h2fpm"); /* after an exec of /proc/self/exe it would be "exe" */
	log_to(LINK_FD_LOG);
	close_on_exec(LINK_FD_LISTEN + listen_count);
	status = read_settings(argv[0], &conf);
	/* "h2fpm: pool www" is all that ps shows */
	memset(argv[1], 0, strlen(argv[1]));
	memset(argv[2], 0, strlen(argv[2]));
	if (status == EX_OK)
		status = run_pool(conf, listen_count);
	conf_free(conf);
	return status;
}

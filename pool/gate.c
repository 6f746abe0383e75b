/* The gate: a small library that is preloaded into php-cgi and makes a zygote
 * of it. libc and confine.c only.
 *
 * Started with PHP_FCGI_CHILDREN, php-cgi sets PHP up, calls setsid() and then
 * fork()s its children in a loop. Here the first fork() after that setsid()
 * never returns in the parent: it waits for orders, each with the listening
 * socket that a new worker is to own, and forks for each; only the worker
 * returns from it, as php-cgi's child. Any fork() before (a preload script's,
 * opcache's) and after (a script's) is libc's own.
 *
 * A worker must be the broker's child, to be waited for. It is born to a
 * process in between that ends at once, and so comes to the broker, which is
 * a subreaper. The one in between shares the zygote's memory (vfork), so that
 * only the worker itself costs a copy of it; and the worker is made by libc's
 * fork(), with all that this sets right in a child.
 *
 * A worker that is to go spends many times the cost of a request on taking down
 * all that PHP has set up, page by page of memory that it shared before. It is
 * spared that when it has opened no connection or file and started no thread
 * that outlives a request: there is nothing to take leave of then. It goes from
 * accept(), where no request can be lost.
 *
 * In a program that is no php-cgi, a shell before it, say, it does nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "pool/confine.h"
#include "pool/gate_proto.h"

enum {
	ADOPTION_TRIES = 100000,
	ADOPTION_WAIT_US = 20,
	DIRENT_LEN_AT = 16, /* d_reclen in struct linux_dirent64 */
};

struct order {
	struct gate_packet packet;
	int listen_fd;
	int err_fd;
};

static struct gate {
	char name[16]; /* the process's own, for the workers */
	bool open;  /* this is a php-cgi that a broker started */
	bool armed; /* the next fork() is the prefork */
	pid_t self; /* children that a preload script forks are none of ours */
	pid_t broker;
	struct confine confine;
	int fds; /* a worker's, when it was born; -1: unknown */
	volatile sig_atomic_t is_accepting;
	volatile sig_atomic_t is_leaving;
} gate;

/* ---- the link ---- */

/* False: nobody listens any more. */
static bool say(enum gate_kind kind, uint32_t order, int error)
{
	const struct gate_packet packet = {.kind = kind, .order = order, .error = error};

	return send(GATE_FD_LINK, &packet, sizeof packet, MSG_NOSIGNAL) == (ssize_t)sizeof packet;
}

static bool take_fds(const struct msghdr *message, struct order *order)
{
	int fds[2];
	const struct cmsghdr *c = CMSG_FIRSTHDR(message);

	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof fds))
		return false;
	memcpy(fds, CMSG_DATA(c), sizeof fds);
	order->listen_fd = fds[0];
	order->err_fd = fds[1];
	return true;
}

/* Without a broker, or with one that talks otherwise, there is no use for us. */
static void await_order(struct order *order)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = &order->packet, .iov_len = sizeof order->packet};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;

	do {
		message.msg_control = control.space;
		message.msg_controllen = sizeof control.space;
		n = recvmsg(GATE_FD_LINK, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof order->packet || order->packet.kind != GATE_SPAWN || !take_fds(&message, order))
		_exit(EX_OK);
}

/* ---- the worker ---- */

/* Until the process in between has ended. Whoever else adopts us, the broker
 * is gone. */
static void await_adoption(pid_t between)
{
	for (int i = 0; i < ADOPTION_TRIES && getppid() == between; i++) {
		if (i > 0)
			usleep(ADOPTION_WAIT_US);
		else
			sched_yield();
	}
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != gate.broker)
		_exit(EX_SOFTWARE);
}

static void forget_environment(void)
{
	unsetenv("PHP_FCGI_CHILDREN");
	unsetenv("PHP_FCGI_MAX_REQUESTS");
}

/* What PHP has found out about paths while it started is about other files. */
static void forget_paths(void)
{
	void (*clean)(void);
	void *found = dlsym(RTLD_DEFAULT, "realpath_cache_clean");

	if (!found)
		return;
	memcpy(&clean, &found, sizeof clean);
	clean();
}

/* ---- leaving ---- */

/* All that is open, this look included. May be called in a signal handler. */
static int count_fds(void)
{
	char entries[4096];
	int count = 0;
	long n;
	int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while ((n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
		for (long at = 0; at < n; count++) {
			unsigned short len;
			memcpy(&len, entries + at + DIRENT_LEN_AT, sizeof len);
			at += len;
		}
	}
	close(fd);
	return n < 0 ? -1 : count;
}

static bool is_alone(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) == 0 && st.st_nlink == 3; /* . and .. and one thread */
}

static void leave(void)
{
	if (gate.fds > 0 && count_fds() == gate.fds && is_alone())
		_exit(0);
	raise(SIGTERM);
}

static void on_leave(int signal)
{
	int error = errno;

	(void)signal;
	if (gate.is_accepting)
		leave();
	else
		gate.is_leaving = true;
	errno = error;
}

static void prepare_to_leave(void)
{
	struct sigaction action = {.sa_handler = on_leave}; /* accept() must not go on after SIGTERM */

	sigemptyset(&action.sa_mask);
	sigaction(GATE_LEAVE_SIGNAL, &action, NULL);
}

static void be_born(const struct order *order, pid_t between)
{
	await_adoption(between);
	prepare_to_leave();
	if (!say(GATE_BORN, order->packet.order, 0))
		_exit(EX_UNAVAILABLE); /* the zygote was given up, and with it the order */
	if (dup2(order->listen_fd, STDIN_FILENO) < 0 || dup2(order->err_fd, STDERR_FILENO) < 0)
		_exit(EX_SOFTWARE);
	close(order->listen_fd);
	close(order->err_fd);
	close(GATE_FD_LINK);
	/* If it fails, we stay in the zygote's, which is the root directory. */
	(void)!fchdir(GATE_FD_CWD);
	close(GATE_FD_CWD);
	forget_environment();
	prctl(PR_SET_NAME, gate.name);
	const char *failed = confine_apply(&gate.confine, false);
	if (failed) {
		dprintf(STDERR_FILENO, "%s: %s\n", failed, strerror(errno));
		_exit(EX_CONFIG);
	}
	if (gate.confine.chroot)
		forget_paths();
	gate.fds = count_fds();
}

/* ---- the zygote ---- */

/* NOLINTBEGIN(clang-analyzer-*): what follows vfork() is meant so. */

/* Runs on the zygote's stack while the zygote stands still: only the worker
 * leaves it. */
static void bear_between(const struct order *order, pid_t (*real_fork)(void))
{
	pid_t between = getpid();
	pid_t pid = real_fork();

	if (pid == 0) {
		be_born(order, between);
		return;
	}
	if (pid < 0)
		(void)say(GATE_FAILED, order->packet.order, errno);
	_exit(0);
}

/* Whatever else a preload script has left behind is waited for, too. Whoever was
 * in between and did not get to its end has left the order open. (If there is a
 * worker all the same, the broker ends it.) */
static void await_between(pid_t between, uint32_t order)
{
	int status = -1;
	pid_t ended;

	do {
		ended = wait(&status);
	} while (ended != between && (ended > 0 || errno == EINTR));
	if (ended != between || status != 0)
		(void)say(GATE_FAILED, order, ECHILD);
}

/* True in the new worker. */
static bool bear(const struct order *order, pid_t (*real_fork)(void))
{
	pid_t between = vfork();

	if (between == 0) {
		bear_between(order, real_fork);
		return true;
	}
	if (between < 0)
		(void)say(GATE_FAILED, order->packet.order, errno);
	else
		await_between(between, order->packet.order);
	return false;
}

/* NOLINTEND(clang-analyzer-*) */

/* php-cgi's own handlers would end its process group, which is the broker's. */
static void reset_signals(void)
{
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
}

static void serve(pid_t (*real_fork)(void))
{
	struct order order = {.listen_fd = -1, .err_fd = -1};

	reset_signals();
	prctl(PR_GET_NAME, gate.name);
	prctl(PR_SET_NAME, "php-zygote"); /* what ps and top show */
	(void)say(GATE_READY, 0, 0);
	for (;;) {
		await_order(&order);
		if (bear(&order, real_fork))
			return;
		close(order.listen_fd);
		close(order.err_fd);
	}
}

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		_exit(EX_SOFTWARE);
	return found;
}

pid_t fork(void)
{
	pid_t (*real_fork)(void);
	void *found = next("fork");

	memcpy(&real_fork, &found, sizeof real_fork); /* ISO C has no such cast */
	if (!gate.armed || getpid() != gate.self)
		return real_fork();
	gate.armed = false;
	serve(real_fork);
	return 0;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's are reserved */
int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict len)
{
	int (*real_accept)(int, struct sockaddr *restrict, socklen_t *restrict);
	void *found = next("accept");

	memcpy(&real_accept, &found, sizeof real_accept);
	if (gate.fds == 0 || fd != STDIN_FILENO)
		return real_accept(fd, address, len);
	gate.is_accepting = true;
	if (gate.is_leaving) {
		leave();
		gate.is_accepting = false;
		errno = EINTR;
		return -1;
	}
	int got = real_accept(fd, address, len);
	gate.is_accepting = false;
	return got;
}

/* The zygote stays in the pool's process group and session, so that it and its
 * workers go when the pool goes. */
pid_t setsid(void)
{
	pid_t (*real_setsid)(void);
	void *found = next("setsid");

	memcpy(&real_setsid, &found, sizeof real_setsid);
	if (!gate.open || getpid() != gate.self)
		return real_setsid();
	gate.open = false;
	gate.armed = true;
	return getpid();
}

/* ---- the start ---- */

/* From /proc/self/environ, too, which shows the bytes that the program was
 * started with. */
static void wipe(const char *name)
{
	char *value = getenv(name);

	if (!value)
		return;
	unsetenv(name);
	explicit_bzero(value, strlen(value));
	explicit_bzero(value - strlen(name) - 1, strlen(name) + 1);
}

/* Takes a variable out of the environment; NULL: it is not there. The copy
 * lives as long as the process. */
static char *take(const char *name)
{
	const char *value = getenv(name);
	char *copy = value ? strdup(value) : NULL;

	wipe(name);
	return copy;
}

static bool take_flag(const char *name)
{
	bool is_set = getenv(name) != NULL;

	wipe(name);
	return is_set;
}

static void restore_preload(void)
{
	char *preload = take(GATE_ENV_PRELOAD);

	wipe("LD_PRELOAD");
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	free(preload);
}

/* A shell that waits for it may have been killed, which tells it nothing. And
 * whoever may trace the zygote has all workers to come. */
static void protect(void)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || (gate.confine.undumpable && prctl(PR_SET_DUMPABLE, 0) != 0))
		_exit(EX_SOFTWARE);
}

__attribute__((constructor)) static void gate_load(void)
{
	const char *broker = getenv(GATE_ENV);

	if (!broker || !dlsym(RTLD_DEFAULT, "php_module_startup") || !dlsym(RTLD_DEFAULT, "executor_globals"))
		return;
	gate.broker = (pid_t)strtol(broker, NULL, 10);
	gate.confine = (struct confine){
		.chroot = take(GATE_ENV_CHROOT),
		.chdir = take(GATE_ENV_CHDIR),
		.apparmor_hat = take(GATE_ENV_HAT),
		.undumpable = take_flag(GATE_ENV_UNDUMPABLE),
		.no_new_privs = take_flag(GATE_ENV_NO_NEW_PRIVS),
	};
	wipe(GATE_ENV);
	wipe("PHP_FCGI_MAX_REQUESTS");
	restore_preload();
	setenv("PHP_FCGI_CHILDREN", "1", 1);
	setenv("PHP_FCGI_MAX_REQUESTS", "0", 1);
	close(GATE_FD_IMAGE);
	fcntl(GATE_FD_LINK, F_SETFD, FD_CLOEXEC);
	fcntl(GATE_FD_CWD, F_SETFD, FD_CLOEXEC);
	protect();
	gate.self = getpid();
	gate.open = true;
	(void)say(GATE_LOADED, 0, 0);
}

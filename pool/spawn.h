/* Starts one process by fork + exec: a worker, or a zygote. A worker owns a listening Unix
 * socket on descriptor 0 that has no name any more: its inode is kept open
 * with O_PATH, and connect() to /proc/self/fd/N reaches it. So there is
 * nothing to guess, to leave behind or to clean up in the file system. */
#ifndef H2FPM_POOL_SPAWN_H
#define H2FPM_POOL_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "pool/phpini.h"
#include "pool/settings.h"

/* What is to be started; borrowed. */
struct spawn_plan {
	const struct pool_settings *settings;
	char **argv;
	char **envp;
	struct rlimit nofile; /* unless rlimit_files says otherwise */
	int gate_link;  /* a zygote's (see gate_proto.h); -1: it is a worker, */
	int gate_image; /* which is confined before the exec */
};

struct spawn_result {
	pid_t pid;
	int socket_fd; /* owned by the caller */
	int err_fd;    /* owned by the caller; non-blocking */
};

/* Builds the program's arguments (worker.command split, then those of phpini)
 * and its environment; NULL: out of memory or an unbalanced quote. The
 * environment has env[], USER and HOME of the process's user as in
 * php-fpm, and without clear_env the rest of its own. Free both with
 * spawn_strings_free(). */
char **spawn_argv(const struct pool_settings *settings, const struct phpini *ini);
char **spawn_envp(const struct pool_settings *settings);
void spawn_strings_free(char **strings);

/* The same with what the gate is to know; see gate_proto.h. */
char **spawn_zygote_envp(const struct pool_settings *settings);

/* A worker's ends, close-on-exec: its listening socket, the way there, and a
 * pipe for its standard error. All are the caller's. */
struct spawn_ends {
	int listen_fd;
	int socket_fd; /* O_PATH */
	int err_fd;    /* non-blocking */
	int err_write_fd;
};
bool spawn_ends_open(struct spawn_ends *ends, const struct pool_settings *settings) __attribute__((warn_unused_result));

/* False with errno set: nothing was started. */
bool spawn_worker(const struct spawn_plan *plan, struct spawn_result *out) __attribute__((warn_unused_result));
/* A connection to the worker's socket, non-blocking; -1 with errno set. */
int spawn_connect(int socket_fd);

#endif

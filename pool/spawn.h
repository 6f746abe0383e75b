/* Starts one worker process by fork + exec. The worker owns a listening Unix
 * socket on descriptor 0 that has no name any more: its inode is kept open
 * with O_PATH, and connect() to /proc/self/fd/N reaches it. So there is
 * nothing to guess, to leave behind or to clean up in the file system. */
#ifndef H2FPM_POOL_SPAWN_H
#define H2FPM_POOL_SPAWN_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "pool/phpini.h"
#include "pool/settings.h"

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

/* False with errno set: nothing was started. */
bool spawn_worker(const struct pool_settings *settings, char **argv, char **envp, const struct rlimit *nofile,
		  struct spawn_result *out) __attribute__((warn_unused_result));
/* A connection to the worker's socket, non-blocking; -1 with errno set. */
int spawn_connect(int socket_fd);

#endif

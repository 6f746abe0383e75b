/* Starts a pool process, both halves: in the master fork, descriptors put in
 * place as pool/link.h says, exec of this same program; in the new process
 * settings read back, privileges dropped, pool_main() called. Fails by a return
 * value or, in the child, by a line in the log and exit status 78 where the
 * configuration is to blame, so that trying again is of little use, else 70.
 * Once it runs it does not outlive the master, and with it goes all that it or
 * its scripts have started. */
#ifndef H2FPM_FPM_CHILD_H
#define H2FPM_FPM_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_OPTION "--pool-process"

struct child_plan {
	const char *name; /* the pool's */
	int link;
	int settings;
	int log;
	int access_log;
	const int *listeners;
	int listener_count;
	bool detached; /* no terminal: standard error is /dev/null */
};

/* The new process's id, or -1 with errno. It leads its own process group. */
pid_t child_start(const struct child_plan *plan);

/* Kills the process and its whole group at once. */
void child_kill(pid_t pid);
/* Kills what a process that has been waited for left of its group. */
void child_sweep(pid_t pid);

/* The new process's half: what main() does when started with CHILD_OPTION.
 * Returns the exit status. */
int child_main(int argc, char **argv);

#endif

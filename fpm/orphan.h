/* Processes that came to us because their parents died: we are a subreaper.
 * Found in the kernel's list of our children; where the kernel has none
 * (CONFIG_PROC_CHILDREN) nobody is found, and nobody is killed. Nothing is
 * allocated and only system calls are made, so that a signal handler may. */
#ifndef H2FPM_FPM_ORPHAN_H
#define H2FPM_FPM_ORPHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Calls act for each child of this thread. False: there is no such list. */
bool orphan_each_child(void (*act)(void *context, pid_t child), void *context);

/* What the master knows of them. Strangers would come to a container's first
 * process too, and to one that had children when it began, which executed it
 * from a script, say: these leave everybody alone. */
struct orphans {
	bool ours;    /* nobody but what a dead pool process left comes to us */
	size_t count; /* killed and not waited for, as last seen */
};

/* Before the first child is started. */
void orphans_adopt(struct orphans *orphans);
/* Kills all that came, but for the children that are known. To be called again
 * when one of them has ended: its own children come next. */
void orphans_sweep(struct orphans *orphans, bool (*is_known)(void *context, pid_t child), void *context);

/* Kills all of our descendants: the children, then those that come to us when
 * their parents are gone, and so on. Gives up after a second. The caller has
 * no child that is to live. */
void orphan_kill_all(void);

#endif

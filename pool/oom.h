/* Whether the kernel's out-of-memory killer was at work: a counter that only
 * it moves. Where it is read: the oom_kill line of memory.events of our own
 * cgroup (version 2), else of memory.oom_control (version 1), else, in the
 * root cgroup, of /proc/vmstat. Opened once, so that it works after a chroot;
 * never blocks, never fails: without a counter it never says yes. */
#ifndef H2FPM_POOL_OOM_H
#define H2FPM_POOL_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oom {
	int fd; /* owned; -1: no counter */
	int64_t count; /* when it was last read */
	int64_t unclaimed; /* kills that no death has been laid to */
};

void oom_init(struct oom *oom);
void oom_fini(struct oom *oom);
/* How often it has killed since the last call (or since oom_init()). */
int64_t oom_news(struct oom *oom);

/* A process died of a SIGKILL that is not ours: was it this killer? Each of its
 * kills explains one death, whatever their order. (It counts before it kills, so
 * whoever has waited for the process sees it.) */
bool oom_claim(struct oom *oom);
/* Once in a while, such as at each heartbeat: forgets the kills that were known
 * at the last call and that no death of ours explained, such as one of a command
 * that a script ran. Else they would be laid to the next SIGKILL, days later. */
void oom_tick(struct oom *oom);

/* Pure, for the tests. The number behind "oom_kill " at a line's start in such
 * a file's text; -1: none. */
int64_t oom_parse_count(const char *text, size_t len);
/* From the text of /proc/self/cgroup and the cgroup mount points that the
 * text of /proc/self/mountinfo names: the path of the file, in out. False:
 * there is none (no such mount, or a path that does not fit). */
bool oom_find_file(const char *cgroup, const char *mountinfo, char *out, size_t size);

#endif

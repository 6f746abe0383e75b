/* Who a pool runs as: names and numbers looked up, privileges dropped for
 * good, but for the one capability that a pool with a chroot needs: it puts its
 * workers there itself. Every failure is told as a text; a drop that cannot be
 * proven to be one counts as failed. */
#ifndef H2FPM_FPM_PRIV_H
#define H2FPM_FPM_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PRIV_NAME_BYTES = 256 };

struct priv_identity {
	uid_t uid;
	gid_t gid;
	char name[PRIV_NAME_BYTES]; /* for the supplementary groups; "": the user is a bare number */
	bool keeps_chroot;          /* false as resolved; true: CAP_SYS_CHROOT stays, also through exec */
};

/* Numbers are taken as they are. A user's own group where he has one, else
 * (gid_t)-1 for a number that nobody has. NULL for gid: not asked. */
bool priv_find_user(const char *user, uid_t *uid, gid_t *gid) __attribute__((warn_unused_result));
bool priv_find_group(const char *group, gid_t *gid) __attribute__((warn_unused_result));

/* user and group as the pool's section has them; an unset user is the process's own, an
 * unset group the user's own. False: reason says what is wrong. */
bool priv_resolve(struct priv_identity *who, const char *user, const char *group, char *reason, size_t reason_size)
	__attribute__((warn_unused_result));

/* Becomes who, wholly and irrevocably, with no capability but perhaps that one
 * (root as the pool's user keeps what root has). False: reason says what failed, and
 * the process is in between and must exit. */
bool priv_drop(const struct priv_identity *who, char *reason, size_t reason_size) __attribute__((warn_unused_result));

#endif

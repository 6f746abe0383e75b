/* What becomes of a new worker before it runs anything of a client's: the
 * change of root and directory, AppArmor's hat, core dumps, privileges. Used
 * by the gate inside php-cgi (after its fork) and by spawn.c (before exec), so
 * it needs libc only. It takes away, and what it cannot take away is an error
 * with which the caller must end the process. */
#ifndef H2FPM_POOL_CONFINE_H
#define H2FPM_POOL_CONFINE_H

#include <stdbool.h>

struct confine {
	const char *chroot;       /* NULL: none. Needs CAP_SYS_CHROOT, which is given up afterwards */
	const char *chdir;        /* NULL: none, or / after a chroot */
	const char *apparmor_hat; /* NULL: none */
	bool undumpable;          /* no core, no ptrace by the same user */
	bool no_new_privs;
};

/* before_exec: the hat is put on by the exec that follows, and "undumpable",
 * which an exec undoes, becomes a core limit of 0. NULL, or what failed, with
 * errno set. */
const char *confine_apply(const struct confine *c, bool before_exec);

#endif

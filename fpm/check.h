/* What of a configuration only the system can tell: whether users, groups,
 * directories and log files are there and usable by who is to use them. Every
 * problem is logged as an error; no file is made or changed. */
#ifndef H2FPM_FPM_CHECK_H
#define H2FPM_FPM_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "fpm/conf.h"
#include "fpm/listen.h"

/* A pool with a problem is left out of conf, which is told. False when the
 * problem is not one pool's, when no pool is left, or, strict, when there is
 * any. */
bool check_all(struct conf *conf, bool allow_root, bool strict) __attribute__((warn_unused_result));

/* Who owns a pool's Unix socket, looked up. Not root, an owner is ignored, and
 * so is a group that is not ours. */
bool check_listen_access(const struct pool_settings *pool, struct listen_access *access, char *reason,
			 size_t reason_size) __attribute__((warn_unused_result));

#endif

/* What of a configuration only the system can tell: whether users, groups,
 * directories and log files are there and usable by who is to use them. Every
 * problem is logged as an error; nothing is made or changed. */
#ifndef H2FPM_FPM_CHECK_H
#define H2FPM_FPM_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "fpm/conf.h"
#include "fpm/listen.h"

bool check_all(const struct conf *conf, bool allow_root) __attribute__((warn_unused_result));

/* Who owns a pool's Unix socket, looked up. Not root, an owner is ignored, and
 * so is a group that is not ours. */
bool check_listen_access(const struct pool_settings *pool, struct listen_access *access, char *reason,
			 size_t reason_size) __attribute__((warn_unused_result));

#endif

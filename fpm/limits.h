/* rlimit_files, rlimit_core and process.priority: the master's own, and what a
 * pool process needs so that it can give its workers theirs. */
#ifndef H2FPM_FPM_LIMITS_H
#define H2FPM_FPM_LIMITS_H

#include <stdbool.h>

#include "fpm/conf.h"

/* To the master itself, as php-fpm: what fails is logged and ends the start. */
bool limits_apply(const struct global_settings *global) __attribute__((warn_unused_result));

/* Raises the hard limits to what the pool's workers are to have, which only root
 * may. What fails is logged, and the pool's settings are lowered to what there
 * is: as in php-fpm that ends nothing. */
void limits_raise_for(struct pool_settings *pool);

/* Puts the pool process, as far as it may, ahead of its workers. Returns the
 * workers' nice value. */
int limits_set_priority_for(const struct pool_settings *pool);

#endif

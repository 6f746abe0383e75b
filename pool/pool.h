/* The public face of a pool process: fpm/ starts it and includes nothing else
 * of pool/ but this, settings.h and link.h. */
#ifndef H2FPM_POOL_POOL_H
#define H2FPM_POOL_POOL_H

#include "pool/settings.h"

/* Runs the pool to its end: the descriptors of link.h are in place, privileges
 * are dropped, listeners are listening. Returns the process's exit status:
 * 0 after a drain or a stop, 70 on an internal error. */
int pool_main(const struct pool_settings *settings, int listen_count);

#endif

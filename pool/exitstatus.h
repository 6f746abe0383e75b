/* How a process ended, in php-fpm's words; for workers and pool processes. */
#ifndef H2FPM_POOL_EXITSTATUS_H
#define H2FPM_POOL_EXITSTATUS_H

#include <stddef.h>
#include <stdint.h>

/* "exited on signal 9 (SIGKILL) after 12.345 seconds from start" for a status
 * of wait(2); returns out. */
const char *exitstatus_explain(char *out, size_t size, int status, int64_t age_ms);

#endif

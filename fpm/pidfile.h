/* The file with the master's process id: it appears whole or not at all, and
 * is removed only while it still holds our own id. */
#ifndef H2FPM_FPM_PIDFILE_H
#define H2FPM_FPM_PIDFILE_H

#include <stdbool.h>
#include <stddef.h>

bool pidfile_write(const char *path, char *reason, size_t reason_size) __attribute__((warn_unused_result));
void pidfile_remove(const char *path);

#endif

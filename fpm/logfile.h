/* A log file that is opened by name and can be reopened by name. The standard
 * streams, by any of their names, are the descriptors already open: they are
 * never reopened. Owns its descriptor, whose number stays the same over a
 * reopening, so that whoever has been told it need not be told again. */
#ifndef H2FPM_FPM_LOGFILE_H
#define H2FPM_FPM_LOGFILE_H

#include <stdbool.h>
#include <stddef.h>

struct logfile {
	const char *name; /* not owned; NULL: a descriptor that has no file of ours */
	int fd;
};

/* Appends to the file, which is made with mode 0600 when it is not there. A
 * symbolic link is followed if it is root's or our own. */
bool logfile_open(struct logfile *log, const char *name, char *reason, size_t reason_size)
	__attribute__((warn_unused_result));
/* False: reason says why, and the old file stays in use. */
bool logfile_reopen(struct logfile *log, char *reason, size_t reason_size) __attribute__((warn_unused_result));
void logfile_close(struct logfile *log);

/* Whether the file could be opened, without making it. */
bool logfile_check(const char *name, char *reason, size_t reason_size) __attribute__((warn_unused_result));

#endif

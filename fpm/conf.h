/* The configuration: one table of directives (name, type, place, default,
 * range, one-line description) drives parsing, defaults, checks, the dump and
 * the documentation test. The file's syntax is conf_ini's business.
 *
 * Ownership: struct conf owns everything in it; conf_free() gives it back.
 * Errors: every problem is reported through the error callback as one line
 * (file:line: what, and what would be right); loading goes on to the end of
 * the file so that all are told. */
#ifndef H2FPM_FPM_CONF_H
#define H2FPM_FPM_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pool/settings.h"

struct global_settings {
	char *error_log;   /* NULL: stderr. "syslog" is refused by name */
	int64_t log_level; /* enum log_level */
	char *pid;
	bool daemonize;
	int64_t process_control_timeout_ms; /* 0: a graceful stop waits as long as it takes */
	int64_t watchdog_timeout_ms;        /* ours: a pool process without a heartbeat for so long is killed */
	int64_t process_max;                /* workers over all pools; 0: any number */
	int64_t process_priority;           /* nice value of the master, or PRIORITY_UNSET */
	int64_t rlimit_files;               /* of the master, or RLIMIT_UNSET */
	int64_t rlimit_core;                /* bytes, RLIMIT_UNSET or RLIMIT_UNLIMITED */
	int64_t emergency_restart_threshold;
	int64_t emergency_restart_interval_ms;
};

struct conf {
	char *file;
	struct global_settings global;
	struct pool_settings **pools; /* those without a problem */
	size_t pool_count;
	size_t broken_count; /* pools that were told of and left out */
};

/* Told of each problem: the whole line, without a newline. (A function type
 * has no other name than a typedef's.) */
typedef void conf_error_fn(void *context, const char *line);

/* Reads a file; applies defaults, checks. All that is wrong has been told. A
 * pool with a problem is left out, which is told too (broken_count). NULL when
 * the problem is not one pool's (whatever stands in its section is its own,
 * and of two that clash the later one is wrong), when no pool is left, or,
 * strict, when there is any. */
struct conf *conf_load(const char *file, bool strict, conf_error_fn *error, void *context);
/* The same for a text, which is called name in messages: strict, and not. */
struct conf *conf_parse(const char *name, const char *text, size_t len, conf_error_fn *error, void *context);
struct conf *conf_parse_lenient(const char *name, const char *text, size_t len, conf_error_fn *error, void *context);
/* For a problem that shows later: frees the pool and counts it as broken. */
void conf_leave_out(struct conf *conf, size_t i);
void conf_free(struct conf *conf);

/* Writes the [global] section and one pool (NULL: all of them) as INI that
 * conf_parse reads back to the same values: how a pool process is told. */
bool conf_dump(const struct conf *conf, const struct pool_settings *pool, FILE *out)
        __attribute__((warn_unused_result));

/* The table, for the man page and its test: i from 0 until NULL. */
struct conf_description {
	const char *section; /* "global" or "pool" */
	const char *name;    /* "pm.max_children", "env[]" */
	const char *type;    /* "size", "time", … */
	const char *default_text;
	const char *description;
};
const struct conf_description *conf_describe(size_t i);

#endif

/* The error log, for the master and the pool processes alike: one line a
 * message, written with one write() so that lines of several processes never
 * mix, in php-fpm's form:
 *     [30-Nov-2026 15:18:00] WARNING: [pool www] child 12 exited …
 * A leaf: it includes nothing of the project. It never blocks on a pipe whose
 * reader is stuck (the line is dropped and counted) and never fails. */
#ifndef H2FPM_FPM_LOG_H
#define H2FPM_FPM_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* php-fpm's levels and their names in lines and in log_level. */
enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_NOTICE, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR, LOG_LEVEL_ALERT };

/* Sends lines to fd (not owned; 2 until set) from this level on. */
void log_to(int fd);
int log_fd(void);
/* Warnings and worse go to fd too, as long as somebody still waits there for
 * the start's outcome; -1: no more. */
void log_echo(int fd);
void log_set_level(enum log_level level);
/* "pool www" put in brackets in front of every message; NULL: none. Copied. */
void log_set_scope(const char *scope);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_notice(...) log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_alert(...) log_write(LOG_LEVEL_ALERT, __VA_ARGS__)

/* A message that may come often: at most one line in interval_ms, which then
 * says how many were left out. Zero-initialised; one for each kind. */
struct log_gate {
	int64_t open_at_ms;
	uint64_t suppressed;
};
void log_limited(struct log_gate *gate, int64_t interval_ms, enum log_level level, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Lines that could not be written since the start. */
uint64_t log_dropped(void);

/* Copies text to out (size ≥ 1, always terminated, cut where it does not fit)
 * with control bytes and bytes over 0x7e as \xHH, so that nothing a client or
 * a worker sends can forge a line. Returns out. */
const char *log_escape(char *out, size_t size, const void *text, size_t len);

/* Writes all of a ready-made chunk of whole lines to fd as log_write does
 * (poll before a pipe; dropped when stuck): for access logs. False: dropped. */
bool log_raw(int fd, const void *lines, size_t len);

#endif

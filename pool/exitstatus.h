/* How a process ended, in words of the log. Pure. */
#ifndef H2FPM_POOL_EXITSTATUS_H
#define H2FPM_POOL_EXITSTATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "exited on signal 11 (SIGSEGV - core dumped) after 3.012 seconds from start"
 * or "exited with code 1 after ...", php-fpm's words. Returns out, always
 * terminated. status: as from waitpid(). */
const char *exitstatus_explain(char *out, size_t size, int status, int64_t age_ms);

/* All that is known of a worker's death. */
struct death {
	int status; /* as from waitpid() */
	int64_t age_ms;
	uint64_t requests;     /* answered */
	int64_t peak_bytes;    /* most resident memory (ru_maxrss); 0: unknown */
	bool out_of_memory;    /* the kernel's killer did it, as far as can be known */
	const char *running;   /* the request that it had, escaped; empty: none */
	const char *last_words; /* its last lines on standard error, escaped; empty: none */
};

/* One line: exitstatus_explain's words, then each part that is known, as
 *   exited on signal 9 (SIGKILL) after 12.004 seconds from start, killed by
 *   the kernel for want of memory, 57 requests served, 34.2 MiB resident at
 *   its peak, while it ran RUNNING; its last words: WORDS
 * Where it does not fit the last words are cut. Returns out. */
const char *exitstatus_explain_death(char *out, size_t size, const struct death *death);

#endif

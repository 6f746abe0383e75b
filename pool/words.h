/* What a worker writes to its standard error: read line by line, logged where
 * catch_workers_output says so, and the last line kept for the day it dies.
 * Owns the descriptor. */
#ifndef H2FPM_POOL_WORDS_H
#define H2FPM_POOL_WORDS_H

#include <ev.h>
#include <stddef.h>
#include <sys/types.h>

struct broker;

enum { WORDS_MAX = 512 }; /* bytes of a line; longer ones are cut into several */

struct words {
	struct broker *broker;
	pid_t pid;
	int fd;
	struct ev_io io;
	char last[WORDS_MAX]; /* escaped; empty: it has said nothing */
	char line[WORDS_MAX]; /* the one being read */
	size_t line_len;
};

/* fd must be non-blocking. */
void words_init(struct words *words, struct broker *b, pid_t pid, int fd);
/* Reads what is still there and closes. */
void words_fini(struct words *words);

#endif

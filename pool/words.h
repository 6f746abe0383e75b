/* What a worker writes to its standard error: read line by line, logged where
 * catch_workers_output says so, and the last few lines kept for the day it dies
 * (one that is said again and again only once). Owns the descriptor. */
#ifndef H2FPM_POOL_WORDS_H
#define H2FPM_POOL_WORDS_H

#include <ev.h>
#include <stddef.h>
#include <sys/types.h>

struct broker;

enum {
	WORDS_MAX = 512, /* bytes of a line; longer ones are cut into several */
	WORDS_KEPT_LINES = 5,
	WORDS_KEPT_BYTES = 1024, /* in all; the oldest lines go first */
};

struct words {
	struct broker *broker;
	pid_t pid;
	int fd;
	struct ev_io io;
	char last[WORDS_KEPT_BYTES]; /* the lines kept, escaped, " | " between them; empty: none */
	size_t kept_len[WORDS_KEPT_LINES]; /* of each */
	size_t kept;
	char line[WORDS_MAX]; /* the one being read */
	size_t line_len;
};

/* fd must be non-blocking. */
void words_init(struct words *words, struct broker *b, pid_t pid, int fd);
/* Reads what is still there and closes. */
void words_fini(struct words *words);
/* Its last lines as one: ready for the log, empty when it has said nothing. */
static inline const char *words_last(const struct words *words)
{
	return words->last;
}
/* What it has said so far is not about what comes now. */
static inline void words_clear(struct words *words)
{
	words->last[0] = '\0';
}

#endif

/* What there is of a request's answer for its client: whole records, in memory
 * or, past that, in a nameless file, for a client that is slow while others
 * want the worker. Bytes leave in the order they came:
 *
 *     head (memory, what is written to the client) ◄── file ◄── tail (memory)
 *
 * Outside of a spill there is the head alone. Owns its memory and descriptor. */
#ifndef H2FPM_POOL_ANSWER_H
#define H2FPM_POOL_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "pool/spool.h"
#include "protocol/buf.h"
#include "protocol/list.h"

struct answer {
	struct list turn; /* on output.ready while there is something to write */
	struct buf head;
	size_t cut; /* bytes of head that are the rest of a record already begun */
	struct spool file;
	int64_t file_read; /* bytes of it that have left */
	struct buf tail;
	bool spilling;  /* what comes goes to tail and file */
	bool no_room;   /* the file takes nothing for now: tail waits */
};

void answer_init(struct answer *a);
void answer_fini(struct answer *a);
/* Empties it for the next request; keeps at most keep_bytes of memory. */
void answer_reset(struct answer *a, size_t keep_bytes);

/* Where the next whole records are to be appended. */
struct buf *answer_sink(struct answer *a);
/* Bytes in memory; and in all. */
size_t answer_memory(const struct answer *a);
bool answer_is_empty(const struct answer *a);

/* What is there, but for a turn, and what comes is put into a file in dir. False
 * with errno set: there is no room, and nothing has changed. */
bool answer_spill(struct answer *a, const char *dir) __attribute__((warn_unused_result));
/* After records were appended, the last ones or not: moves them to the file.
 * False with errno set: there is no room any more, and they stay in memory
 * (answer_is_full() until what is in the file has left). */
bool answer_settle(struct answer *a, const char *dir, bool last) __attribute__((warn_unused_result));
/* True when no more should be appended now. */
bool answer_is_full(const struct answer *a, size_t memory_bytes, int64_t file_bytes);
/* Drops what was not begun to be written. */
void answer_drop(struct answer *a);

/* What can be written in one turn: the rest of a begun record, or else whole
 * records up to max_bytes, at least one. */
struct iovec answer_turn(const struct answer *a, size_t max_bytes);
/* n bytes of that were written. False with errno set: what follows cannot be
 * read back. */
bool answer_wrote(struct answer *a, size_t n) __attribute__((warn_unused_result));

#endif

/* A request's body: in memory up to a limit, then whole in an unlinked file.
 * Owns its memory and its descriptor. */
#ifndef H2FPM_POOL_SPOOL_H
#define H2FPM_POOL_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/buf.h"

struct spool {
	struct buf memory;
	int fd; /* -1: all of it is in memory */
	int64_t size_bytes;
};

void spool_init(struct spool *s);
void spool_fini(struct spool *s);
/* Empties it for the next request; keeps at most keep_bytes of memory. */
void spool_reset(struct spool *s, size_t keep_bytes);
/* False with errno set: no memory, no room on the disk, no descriptor. What
 * was in it before is still there, and nothing else. */
bool spool_append(struct spool *s, const void *data, size_t len, size_t memory_bytes, const char *dir)
	__attribute__((warn_unused_result));
/* Reads len bytes at offset, which must be there. False with errno set. */
bool spool_read(const struct spool *s, int64_t offset, void *out, size_t len) __attribute__((warn_unused_result));

#endif

/* The access log's lines, by php-fpm's access.format: %X or %{argument}X.
 * One addition: %W, the time that the request waited in the queue, with the
 * units of %d. Pure: what is logged comes in a structure. */
#ifndef H2FPM_POOL_ACCESS_H
#define H2FPM_POOL_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "pool/meta.h"
#include "protocol/buf.h"

#define ACCESS_DEFAULT_FORMAT "%R - %u %t \"%m %r\" %s"

struct access_record {
	const struct meta *meta;
	const void *params; /* the whole block, for %{NAME}e */
	size_t params_len;
	const char *pool;
	pid_t pid;        /* the worker's; 0: none was needed */
	pid_t parent_pid; /* the broker's */
	int status;
	int64_t content_length; /* of the request's body */
	int64_t wait_us;
	int64_t run_us;
	time_t begun;
	time_t written;
};

/* NULL when the format can be used, else what is wrong: a constant text. */
const char *access_format_check(const char *format);
/* Appends one line with its newline. Bytes that could forge a line are
 * escaped. False: out of memory; out may then end in a part of a line. */
bool access_append(struct buf *out, const char *format, const struct access_record *record)
	__attribute__((warn_unused_result));

#endif

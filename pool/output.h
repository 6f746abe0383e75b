/* What goes out on a front end's connection: the answers of its requests in
 * turns, a few whole records each, so that none waits for more than a turn of
 * every other; and the records that belong to no answer. Knows no descriptor:
 * gather with output_plan(), write, and tell with output_wrote(). Order:
 *
 *     the rest of a record that was begun │ ctl │ each ready answer's turn … */
#ifndef H2FPM_POOL_OUTPUT_H
#define H2FPM_POOL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "pool/answer.h"
#include "protocol/buf.h"
#include "protocol/list.h"

enum {
	OUTPUT_TURN_BYTES = 8192 + 8, /* of an answer beside others: a record */
	OUTPUT_ALONE_BYTES = 262144,  /* of one that is alone */
	OUTPUT_PARTS = 64,
};

struct output {
	struct buf ctl;    /* whole records: management, refusals, ends of the aborted */
	bool ctl_cut;      /* some of it is written: the rest goes first */
	struct list ready; /* answers with something to write, whose turn it is first */
};

struct output_plan {
	struct iovec parts[OUTPUT_PARTS];
	struct answer *answers[OUTPUT_PARTS]; /* NULL: ctl */
	int count;
	size_t bytes;
};

/* Told of each answer that something was written of; it may be on its list
 * again or not. ok: false with errno set when what follows cannot be read. */
typedef void output_wrote_fn(void *context, struct answer *a, bool ok);

void output_init(struct output *o);
void output_fini(struct output *o);
/* The answer has something to write (no harm if it has not, or is known). */
void output_offer(struct output *o, struct answer *a);
bool output_is_empty(const struct output *o);
void output_plan(const struct output *o, struct output_plan *plan);
/* n bytes of the plan were written. */
void output_wrote(struct output *o, const struct output_plan *plan, size_t n, output_wrote_fn *on_wrote, void *context);

#endif

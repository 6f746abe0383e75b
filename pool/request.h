/* One request, from BEGIN_REQUEST to its access-log line. intake.c is what
 * happens in RECEIVING; request.c follows the rest from top to bottom.
 *
 *    RECEIVING ──complete──► QUEUED ──dispatch──► RUNNING ──answer complete──► DRAINING ──flushed──► DEAD
 *        │                     │  ▲                 │  │                          ▲
 *        │                     │  └──worker lost────┘  └──no answer possible──────┤
 *        └─────────────────────┴──answered without a worker (4xx, 5xx, ping)──────┘
 *    From any of them a client that leaves means DEAD; its worker is then the
 *    worker's own business (FREEING), since nobody waits for it any more.
 *
 * A request is on exactly one of the broker's lists, named by its state (the
 * queue for QUEUED); request_move() is the only one to change it. It belongs
 * to its client's connection until the client has gone, and has a worker
 * while RUNNING. DEAD ones are recycled at the end of the turn. */
#ifndef H2FPM_POOL_REQUEST_H
#define H2FPM_POOL_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "pool/answer.h"
#include "pool/meta.h"
#include "pool/queue.h"
#include "pool/reply.h"
#include "pool/spool.h"
#include "protocol/buf.h"
#include "protocol/list.h"
#include "protocol/mux.h"

struct broker;
struct conn;
struct worker;

enum request_state {
	REQUEST_RECEIVING,
	REQUEST_QUEUED,
	REQUEST_RUNNING,
	REQUEST_DRAINING,
	REQUEST_DEAD,
	REQUEST_STATES,
};

struct request {
	struct queue_entry place; /* its node is on the list of the state */
	enum request_state state;
	struct broker *broker;
	struct conn *conn; /* NULL once the client has gone */
	struct list of_conn;
	struct worker *worker;
	struct mux_stream stream;

	struct buf params; /* the name-value block as it came */
	struct meta meta;  /* points into params */
	struct slice path_info; /* what PHP must get as PATH_INFO; absent: as sent */
	struct spool body;
	struct answer answer; /* on its way to the client */
	int64_t answer_bytes; /* that have come from its worker */
	size_t held_bytes; /* its part of conn.held_bytes */
	bool has_answer_file; /* and that one of broker.spool_count */

	uint8_t attempts;    /* times that a worker was given it */
	uint8_t undelivered; /* times that one could not take it */
	bool params_done;   /* meta is valid */
	bool hides_translated; /* PATH_TRANSLATED is not passed on */
	bool answering;     /* bytes of the answer have come from a worker */
	bool ended;         /* END_REQUEST is in the answer, or none will be: failed */
	bool failed;        /* the answer could not be completed */
	int16_t status;     /* of the answer; 0: not yet known */
	pid_t worker_pid;   /* who answered, for the access log */
	int64_t queue_length; /* how many were waiting before it */
	int64_t begun_us, queued_us, dispatched_us;
	int64_t progress_us; /* RECEIVING: begun, or the last bytes of its body came */
	int64_t lost_us; /* when its worker was lost; valid with attempts > 0 */
	time_t begun;
};

/* A new request in RECEIVING; NULL: out of memory. */
struct request *request_new(struct broker *b, struct conn *conn, uint16_t id);

/* It is complete: waits for a worker, or is refused where that is in vain. */
void request_enqueue(struct request *r);
/* FCGI_ABORT_REQUEST: it is ended at once, whatever was still to be sent. */
void request_on_abort(struct request *r);
/* The connection is closed; r is no longer on it afterwards. */
void request_on_client_gone(struct request *r);

/* Answers without a worker; before any byte of an answer was sent. */
void request_reply(struct request *r, enum reply reply);
/* headers: with the empty line behind them. */
void request_reply_with(struct request *r, int status, const char *headers, const char *body);
/* The same if nothing was sent yet; else the request is marked as failed, or
 * the connection closed: a short answer must never look complete. */
void request_fail(struct request *r, enum reply reply);

/* The queue's first request goes to an idle worker: writes all of what
 * precedes the body to out. False: out of memory or too long a parameter. */
bool request_frame(struct request *r, struct buf *out, uint16_t id) __attribute__((warn_unused_result));
/* How many bytes of the body the worker gets. */
int64_t request_body_bytes(const struct request *r);
void request_on_dispatch(struct request *r, struct worker *w);

/* What the worker sends while the request is RUNNING. */
void request_on_stdout(struct request *r, const uint8_t *data, size_t len);
void request_on_stderr(struct request *r, const uint8_t *data, size_t len);
void request_on_end(struct request *r, uint32_t app_status);
/* The worker did not take the request (nothing of it was run). */
void request_on_undelivered(struct request *r);
/* The worker is gone in mid-request. */
void request_on_worker_lost(struct request *r);

/* All of the answer has been written, or its rest cannot be read back from its
 * file: called by the connection. */
void request_on_flushed(struct request *r);
void request_on_unreadable(struct request *r);
/* True while the worker must not be read from: the client is slow. */
bool request_output_full(const struct request *r);
/* True while the worker should be read from slowly: it sends much, and others
 * on the same connection have yet to get the first byte of theirs. */
bool request_yields(const struct request *r);
/* Others want its worker: what comes goes to a file. False: that may not be. */
bool request_spill(struct request *r);
/* It is its turn in the queue, but its connection takes nothing and has answers
 * in files already: true, and it waits on, so that these cannot become any number. */
bool request_waits_for_reader(struct request *r);
/* Its memory has changed. */
void request_account(struct request *r);
/* Bytes of its body have come. */
void request_on_progress(struct request *r);

/* The queue's time limit, and that of RECEIVING. */
void request_on_queue_timer(struct broker *b);
void request_on_receive_timer(struct broker *b);
/* Some of those that were held back may go on. */
void request_on_hold_timer(struct broker *b);
/* Answers all that wait. */
void request_refuse_queued(struct broker *b, enum reply reply);
/* Recycles what died in this turn. */
void request_collect(struct broker *b);
void request_free_all(struct broker *b);

#endif

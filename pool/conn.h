/* One connection of a front end: reads records into requests, writes their
 * answers in turns, pauses where the peer is slow. It carries up to
 * mpxs.max_requests requests at one time; what a peer sends in error closes
 * that connection alone.
 *
 *    OPEN ──last answer flushed, input not at its end──► LINGERING ──end of file or 2 s──► CLOSED
 *      └──────────────────client left, error, bad bytes, all done──────────────────────────►
 */
#ifndef H2FPM_POOL_CONN_H
#define H2FPM_POOL_CONN_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "pool/output.h"
#include "protocol/buf.h"
#include "protocol/list.h"
#include "protocol/mux.h"

struct broker;

enum conn_state { CONN_OPEN, CONN_LINGERING, CONN_CLOSED };

struct conn {
	struct list node; /* on broker.conns, .lingering or .retired_conns */
	enum conn_state state;
	struct broker *broker;
	int fd;
	struct ev_io read_io;
	struct ev_io write_io;
	struct mux mux;
	struct output output;
	struct buf held;      /* input that was read, but has to wait */
	struct list dirty;    /* on broker.dirty_conns: to be flushed in this turn */
	struct list requests; /* in order of arrival */
	size_t held_bytes;    /* memory of all of them: see request_account() */
	int64_t spilled_count; /* those with an answer in a file */
	struct list blocked;  /* on broker.blocked_conns while output waits for room */
	int64_t progress_us;  /* when its peer last took something, while it does */
	int unsent_bytes;     /* what was in the kernel at the last look; -1: none since then */
	int64_t linger_until_us;
	uint64_t number;  /* of the pool's connections */
	bool is_unix;
	bool closing;     /* to be closed when all are done: FCGI_KEEP_CONN was clear, or one failed */
	bool used;        /* a request was begun on it */
	bool half_closed; /* the peer will send nothing more, but reads */
	bool unread;      /* a request was answered before all of its input came */
	bool shared;      /* several requests: see conn_is_shared() */
	bool paused;      /* some worker may have been paused since its answer waits */
};

/* Takes the descriptor over; closes it when there is no memory. */
void conn_new(struct broker *b, int fd, const struct sockaddr_storage *peer);
/* Reads once and acts on it; may close the connection. */
void conn_read(struct conn *c);
/* Writes what there is for the client; may close the connection. */
void conn_flush(struct conn *c);
/* The same at the end of the turn, when workers have got their next requests:
 * whoever is woken by a write may take the processor from us at once. */
void conn_flush_soon(struct conn *c);
void conn_flush_dirty(struct broker *b);
/* Whether its peer puts several requests on it. */
bool conn_is_shared(const struct conn *c);
/* Whether it takes nothing now, and has enough answers in files. */
bool conn_is_stuffed(const struct conn *c);
/* It as a flow of resets.h. */
uint32_t conn_flow(const struct conn *c);
/* Whether its requests together had more than their memory, with so much more;
 * and more than the half of it, past which what can be in a file or can wait is
 * not to be in memory: there is to be room for others' parameters. */
bool conn_is_over_memory(const struct conn *c, size_t more_bytes);
bool conn_is_short_of_memory(const struct conn *c, size_t more_bytes);
/* Closes at once; its requests are told. reason: a constant text. */
void conn_close(struct conn *c, const char *reason);
/* For a peer that half-closed: whether it has gone altogether since. */
bool conn_peer_gone(const struct conn *c);
/* Frees what closed in this turn. */
void conn_collect(struct broker *b);
void conn_init_lists(struct broker *b);
/* All of them, at the pool's end. */
void conn_close_all(struct broker *b);

#endif

#include "protocol/mux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/params.h"

enum {
	BEGIN_LEN = 8,
	VALUES_MAX_BYTES = 4096, /* many times what there is to ask */
	BUCKET_STREAMS = 4,      /* on average, before there are more buckets */
};

/* What a handler of pieces says when the piece is nothing to tell about. */
#define QUIET MUX_NEED_MORE

/* The variables of GET_VALUES that are known. */
enum value { VALUE_MAX_CONNS, VALUE_MAX_REQS, VALUE_MPXS_CONNS, VALUE_COUNT };

static const char *const value_names[VALUE_COUNT] = {
        [VALUE_MAX_CONNS] = FCGI_MAX_CONNS,
        [VALUE_MAX_REQS] = FCGI_MAX_REQS,
        [VALUE_MPXS_CONNS] = FCGI_MPXS_CONNS,
};

struct asked {
	enum value order[VALUE_COUNT];
	unsigned count;
};

void mux_init(struct mux *m, const struct mux_limits *limits)
{
	*m = (struct mux){.limits = limits};
	record_reader_init(&m->reader);
	list_init(&m->bucket);
	buf_init(&m->values);
}

/* ---- the streams by id ---- */

static struct list *bucket_at(struct mux *m, uint32_t i)
{
	return m->buckets ? &m->buckets[i] : &m->bucket;
}

static struct list *bucket_of(const struct mux *m, uint16_t id)
{
	return bucket_at((struct mux *)m, id & m->bucket_mask);
}

static void move_streams(struct mux *m, struct list *from)
{
	struct list *node;

	while ((node = list_first(from)) != NULL) {
		list_remove(node);
		list_add_head(bucket_of(m, container_of(node, struct mux_stream, node)->id), node);
	}
}

/* Without memory for them the chains grow longer, and nothing else happens. */
static void add_buckets(struct mux *m)
{
	uint32_t old_count = m->bucket_mask + 1, count = old_count * 8;
	struct list *old = m->buckets;
	struct list *buckets = calloc(count, sizeof(*buckets));

	if (!buckets)
		return;
	for (uint32_t i = 0; i < count; i++)
		list_init(&buckets[i]);
	m->buckets = buckets;
	m->bucket_mask = count - 1;
	if (!old)
		move_streams(m, &m->bucket);
	for (uint32_t i = 0; old && i < old_count; i++)
		move_streams(m, &old[i]);
	free(old);
}

void mux_fini(struct mux *m)
{
	struct list *node;

	for (uint32_t i = 0; i <= m->bucket_mask; i++) {
		while ((node = list_first(bucket_at(m, i))) != NULL)
			list_remove(node);
	}
	free(m->buckets);
	m->buckets = NULL;
	m->bucket_mask = 0;
	m->stream_count = 0;
	m->waiting = false;
	buf_fini(&m->values);
}

void mux_open(struct mux *m, struct mux_stream *stream, uint16_t id)
{
	stream->id = id;
	stream->input = MUX_INPUT_PARAMS;
	list_init(&stream->node);
	/* The newest first: most of what comes is for it. */
	list_add_head(bucket_of(m, id), &stream->node);
	if (++m->stream_count > 1 || id != 1)
		m->multiplexes = true;
	if (m->stream_count > (m->bucket_mask + 1) * BUCKET_STREAMS)
		add_buckets(m);
}

void mux_answered(struct mux_stream *stream)
{
	stream->input = MUX_INPUT_ANSWERED;
}

void mux_finish(struct mux *m, struct mux_stream *stream)
{
	/* A zeroed stream was never opened. */
	if (!stream->node.next || list_empty(&stream->node))
		return;
	list_remove(&stream->node);
	m->stream_count--;
}

bool mux_idle(const struct mux *m)
{
	return m->stream_count == 0 && !m->waiting && record_reader_at_border(&m->reader);
}

static struct mux_stream *find_stream(const struct mux *m, uint16_t id)
{
	struct list *node, *tmp;

	list_each(node, tmp, bucket_of(m, id))
	{
		struct mux_stream *stream = container_of(node, struct mux_stream, node);

		if (stream->id == id)
			return stream;
	}
	return NULL;
}

bool mux_is_waiting(const struct mux *m)
{
	return m->waiting && find_stream(m, m->waiting_id);
}

static enum mux_event bad(struct mux_item *item, const char *reason)
{
	item->reason = reason;
	return MUX_BAD;
}

static enum mux_event refuse(uint8_t protocol_status, struct buf *out, struct mux_item *item)
{
	if (!record_append_end(out, item->id, 0, protocol_status))
		return bad(item, "out of memory");
	item->status = protocol_status;
	return MUX_REFUSED;
}

static enum mux_event admit(struct mux *m, struct buf *out, struct mux_item *item)
{
	struct record_begin begin;

	record_begin_decode(m->begin, &begin);
	item->keep_conn = begin.flags & FCGI_KEEP_CONN;
	if (begin.role != FCGI_RESPONDER)
		return refuse(FCGI_UNKNOWN_ROLE, out, item);
	if (m->stream_count >= m->limits->max_streams)
		return refuse(m->limits->max_streams == 1 ? FCGI_CANT_MPX_CONN : FCGI_OVERLOADED, out, item);
	return MUX_BEGIN;
}

static enum mux_event on_begin(struct mux *m, const struct record_piece *piece, struct buf *out, struct mux_item *item)
{
	const struct mux_stream *stream;

	if (piece->header.content_len != BEGIN_LEN)
		return bad(item, "BEGIN_REQUEST body is not 8 bytes");
	stream = find_stream(m, item->id);
	if (stream && stream->input != MUX_INPUT_ANSWERED)
		return bad(item, "BEGIN_REQUEST for an id that is open");
	if (piece->first)
		m->begin_have = 0;
	memcpy(m->begin + m->begin_have, piece->data, piece->len);
	m->begin_have += (uint8_t)piece->len;
	if (!piece->last)
		return QUIET;
	m->waiting = stream != NULL;
	m->waiting_id = item->id;
	return stream ? MUX_WAIT : admit(m, out, item);
}

/* A BEGIN_REQUEST that had to wait for its id. */
static enum mux_event on_waiting(struct mux *m, struct buf *out, struct mux_item *item)
{
	*item = (struct mux_item){.id = m->waiting_id};
	if (find_stream(m, m->waiting_id))
		return MUX_WAIT;
	m->waiting = false;
	return admit(m, out, item);
}

static enum mux_event on_params(struct mux *m, const struct record_piece *piece, struct mux_item *item)
{
	struct mux_stream *stream = find_stream(m, item->id);
	bool empty = piece->header.content_len == 0;

	if (!stream || stream->input == MUX_INPUT_ANSWERED)
		return QUIET;
	if (stream->input != MUX_INPUT_PARAMS)
		return empty ? QUIET : bad(item, "PARAMS after their end");
	item->stream = stream;
	if (empty) {
		stream->input = MUX_INPUT_STDIN;
		return MUX_PARAMS_END;
	}
	item->data = piece->data;
	item->len = piece->len;
	return MUX_PARAMS;
}

static enum mux_event on_stdin(struct mux *m, const struct record_piece *piece, struct mux_item *item)
{
	struct mux_stream *stream = find_stream(m, item->id);
	bool empty = piece->header.content_len == 0;

	if (!stream || stream->input == MUX_INPUT_ANSWERED)
		return QUIET;
	if (stream->input == MUX_INPUT_PARAMS)
		return bad(item, "STDIN before the end of PARAMS");
	if (stream->input == MUX_INPUT_CLOSED)
		return empty ? QUIET : bad(item, "STDIN after its end");
	item->stream = stream;
	if (empty) {
		stream->input = MUX_INPUT_CLOSED;
		return MUX_STDIN_END;
	}
	item->data = piece->data;
	item->len = piece->len;
	return MUX_STDIN;
}

static enum mux_event on_abort(struct mux *m, const struct record_piece *piece, struct mux_item *item)
{
	struct mux_stream *stream = find_stream(m, item->id);

	if (!piece->first)
		return QUIET;
	if (!stream) {
		m->late_aborts++;
		return QUIET;
	}
	item->stream = stream;
	return MUX_ABORT;
}

static bool is_name(const struct param *p, const char *name)
{
	return p->name_len == strlen(name) && memcmp(p->name, name, p->name_len) == 0;
}

static bool asks(const struct asked *asked, enum value v)
{
	for (unsigned i = 0; i < asked->count; i++)
		if (asked->order[i] == v)
			return true;
	return false;
}

static void ask(struct asked *asked, const struct param *p)
{
	for (enum value v = 0; v < VALUE_COUNT; v++) {
		if (!is_name(p, value_names[v]))
			continue;
		if (!asks(asked, v))
			asked->order[asked->count++] = v;
	}
}

static bool parse_values(const uint8_t *block, size_t len, struct asked *asked)
{
	struct params_iter it;
	struct param p;
	enum params_result result;

	asked->count = 0;
	params_iter_init(&it, block, len);
	while ((result = params_next(&it, &p)) == PARAMS_PAIR)
		ask(asked, &p);
	return result == PARAMS_END;
}

static uint32_t value_of(const struct mux_limits *limits, enum value v)
{
	switch (v) {
	case VALUE_MAX_CONNS:
		return limits->max_conns;
	case VALUE_MAX_REQS:
		return limits->max_reqs;
	default:
		return limits->max_streams > 1;
	}
}

static bool append_values(const struct mux_limits *limits, const struct asked *asked, struct buf *content)
{
	for (unsigned i = 0; i < asked->count; i++) {
		const char *name = value_names[asked->order[i]];
		char value[16];
		int len = snprintf(value, sizeof(value), "%u", value_of(limits, asked->order[i]));

		if (!params_append(content, name, strlen(name), value, (size_t)len))
			return false;
	}
	return true;
}

/* Uses values as room for the answer's content, once the question is read. */
static bool answer_values(struct mux *m, const struct asked *asked, struct buf *out)
{
	buf_reset(&m->values, RECORD_MAX_CONTENT);
	if (!append_values(m->limits, asked, &m->values))
		return false;
	if (buf_len(&m->values) == 0)
		return record_append_stream_end(out, FCGI_GET_VALUES_RESULT, FCGI_NULL_REQUEST_ID);
	return record_append_stream(out, FCGI_GET_VALUES_RESULT, FCGI_NULL_REQUEST_ID, buf_head(&m->values),
	                            buf_len(&m->values));
}

static enum mux_event on_get_values(struct mux *m, const struct record_piece *piece, struct buf *out,
                                    struct mux_item *item)
{
	const uint8_t *block = piece->data;
	size_t len = piece->len;
	struct asked asked;
	bool answered;

	if (item->id != FCGI_NULL_REQUEST_ID)
		return bad(item, "GET_VALUES with a request id");
	if (piece->header.content_len > VALUES_MAX_BYTES)
		return bad(item, "GET_VALUES asks for too much");
	if (!piece->first || !piece->last) {
		if (!buf_append(&m->values, piece->data, piece->len))
			return bad(item, "out of memory");
		if (!piece->last)
			return QUIET;
		block = buf_head(&m->values);
		len = buf_len(&m->values);
	}
	if (!parse_values(block, len, &asked))
		return bad(item, "malformed pairs in GET_VALUES");
	if (asks(&asked, VALUE_MPXS_CONNS))
		m->multiplexes = true;
	answered = answer_values(m, &asked, out);
	buf_fini(&m->values);
	return answered ? MUX_REPLIED : bad(item, "out of memory");
}

static enum mux_event on_unknown(const struct record_piece *piece, struct buf *out, struct mux_item *item)
{
	uint8_t body[8] = {piece->header.type};

	if (!piece->first)
		return QUIET;
	if (!record_append_stream(out, FCGI_UNKNOWN_TYPE, FCGI_NULL_REQUEST_ID, body, sizeof(body)))
		return bad(item, "out of memory");
	return MUX_REPLIED;
}

static enum mux_event on_piece(struct mux *m, const struct record_piece *piece, struct buf *out, struct mux_item *item)
{
	uint8_t type = piece->header.type;

	if (type >= FCGI_BEGIN_REQUEST && type <= FCGI_DATA && item->id == FCGI_NULL_REQUEST_ID)
		return bad(item, "request id 0 on an application record");
	switch (type) {
	case FCGI_BEGIN_REQUEST:
		return on_begin(m, piece, out, item);
	case FCGI_PARAMS:
		return on_params(m, piece, item);
	case FCGI_STDIN:
		return on_stdin(m, piece, item);
	case FCGI_ABORT_REQUEST:
		return on_abort(m, piece, item);
	case FCGI_DATA: /* for filters, and there are none */
		return QUIET;
	case FCGI_GET_VALUES:
		return on_get_values(m, piece, out, item);
	case FCGI_END_REQUEST:
	case FCGI_STDOUT:
	case FCGI_STDERR:
	case FCGI_GET_VALUES_RESULT:
	case FCGI_UNKNOWN_TYPE:
		return bad(item, "a response record from a client");
	default:
		return on_unknown(piece, out, item);
	}
}

enum mux_event mux_next(struct mux *m, const uint8_t **in, size_t *len, struct buf *out, struct mux_item *item)
{
	struct record_piece piece;
	enum record_result result;

	if (m->waiting)
		return on_waiting(m, out, item);
	while ((result = record_reader_next(&m->reader, in, len, &piece)) == RECORD_PIECE) {
		enum mux_event event;

		*item = (struct mux_item){.id = piece.header.id};
		event = on_piece(m, &piece, out, item);
		if (event != QUIET)
			return event;
	}
	/* Nothing of a piece that was passed over may be taken for an event's. */
	*item = (struct mux_item){0};
	if (result == RECORD_BAD_VERSION)
		return bad(item, "not FastCGI version 1");
	return MUX_NEED_MORE;
}

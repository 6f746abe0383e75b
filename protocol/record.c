#include "protocol/record.h"

#include <string.h>

/* The bodies of BEGIN_REQUEST and END_REQUEST are as long as a header. */
enum { BODY_LEN = 8 };

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)((unsigned)p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

bool record_header_decode(const uint8_t in[RECORD_HEADER_LEN], struct record_header *out)
{
	if (in[0] != FCGI_VERSION_1)
		return false;
	out->type = in[1];
	out->id = get16(in + 2);
	out->content_len = get16(in + 4);
	out->padding_len = in[6];
	return true;
}

void record_header_encode(uint8_t out[RECORD_HEADER_LEN], const struct record_header *h)
{
	out[0] = FCGI_VERSION_1;
	out[1] = h->type;
	put16(out + 2, h->id);
	put16(out + 4, h->content_len);
	out[6] = h->padding_len;
	out[7] = 0;
}

void record_begin_decode(const uint8_t in[8], struct record_begin *out)
{
	out->role = get16(in);
	out->flags = in[2];
}

void record_end_decode(const uint8_t in[8], struct record_end *out)
{
	out->app_status = (uint32_t)get16(in) << 16 | get16(in + 2);
	out->protocol_status = in[4];
}

static bool append_body(struct buf *b, uint8_t type, uint16_t id, const uint8_t body[BODY_LEN])
{
	struct record_header h = {.type = type, .id = id, .content_len = BODY_LEN};

	if (!buf_reserve(b, RECORD_HEADER_LEN + BODY_LEN))
		return false;
	record_header_encode(buf_tail(b), &h);
	memcpy(buf_tail(b) + RECORD_HEADER_LEN, body, BODY_LEN);
	buf_commit(b, RECORD_HEADER_LEN + BODY_LEN);
	return true;
}

bool record_append_begin(struct buf *b, uint16_t id, uint16_t role, uint8_t flags)
{
	uint8_t body[BODY_LEN] = {0};

	put16(body, role);
	body[2] = flags;
	return append_body(b, FCGI_BEGIN_REQUEST, id, body);
}

bool record_append_end(struct buf *b, uint16_t id, uint32_t app_status, uint8_t protocol_status)
{
	uint8_t body[BODY_LEN] = {0};

	put16(body, (uint16_t)(app_status >> 16));
	put16(body + 2, (uint16_t)app_status);
	body[4] = protocol_status;
	return append_body(b, FCGI_END_REQUEST, id, body);
}

/* One record; the room is reserved already. */
static void put_record(struct buf *b, uint8_t type, uint16_t id, const uint8_t *data, uint16_t len)
{
	struct record_header h = {.type = type, .id = id, .content_len = len};

	record_header_encode(buf_tail(b), &h);
	if (len > 0)
		memcpy(buf_tail(b) + RECORD_HEADER_LEN, data, len);
	buf_commit(b, RECORD_HEADER_LEN + (size_t)len);
}

bool record_append_stream(struct buf *b, uint8_t type, uint16_t id, const void *data, size_t len)
{
	const uint8_t *at = data;
	size_t records = len / RECORD_MAX_CONTENT + (len % RECORD_MAX_CONTENT != 0);

	if (len > SIZE_MAX - records * RECORD_HEADER_LEN)
		return false;
	if (!buf_reserve(b, len + records * RECORD_HEADER_LEN))
		return false;
	while (len > 0) {
		size_t n = len < RECORD_MAX_CONTENT ? len : RECORD_MAX_CONTENT;

		put_record(b, type, id, at, (uint16_t)n);
		at += n;
		len -= n;
	}
	return true;
}

bool record_append_stream_end(struct buf *b, uint8_t type, uint16_t id)
{
	if (!buf_reserve(b, RECORD_HEADER_LEN))
		return false;
	put_record(b, type, id, NULL, 0);
	return true;
}

void record_reader_init(struct record_reader *r)
{
	*r = (struct record_reader){0};
}

static void advance(const uint8_t **in, size_t *len, size_t n)
{
	*in += n;
	*len -= n;
}

static void skip_padding(struct record_reader *r, const uint8_t **in, size_t *len)
{
	size_t n = r->padding_left < *len ? r->padding_left : *len;

	r->padding_left -= (uint32_t)n;
	advance(in, len, n);
}

/* The next header's bytes: in the input where it is whole there, else
 * gathered; NULL while some are missing. */
static const uint8_t *gather_header(struct record_reader *r, const uint8_t **in, size_t *len)
{
	const uint8_t *whole = *in;
	size_t n = RECORD_HEADER_LEN - r->header_have;

	if (r->header_have == 0 && *len >= RECORD_HEADER_LEN) {
		advance(in, len, RECORD_HEADER_LEN);
		return whole;
	}
	if (n > *len)
		n = *len;
	memcpy(r->header + r->header_have, *in, n);
	r->header_have += (uint8_t)n;
	advance(in, len, n);
	if (r->header_have < RECORD_HEADER_LEN)
		return NULL;
	r->header_have = 0;
	return r->header;
}

static void give_piece(struct record_reader *r, const uint8_t **in, size_t *len, struct record_piece *piece)
{
	size_t n = r->content_left < *len ? r->content_left : *len;

	piece->header = r->current;
	piece->data = *in;
	piece->len = n;
	piece->first = !r->started;
	piece->last = n == r->content_left;
	r->content_left -= (uint32_t)n;
	r->started = true;
	r->in_content = !piece->last;
	advance(in, len, n);
}

enum record_result record_reader_next(struct record_reader *r, const uint8_t **in, size_t *len,
                                      struct record_piece *piece)
{
	if (!r->in_content) {
		const uint8_t *header;

		if (r->padding_left > 0 && *len > 0)
			skip_padding(r, in, len);
		if (*len == 0)
			return RECORD_NEED_MORE;
		header = gather_header(r, in, len);
		if (!header)
			return RECORD_NEED_MORE;
		if (!record_header_decode(header, &r->current))
			return RECORD_BAD_VERSION;
		r->content_left = r->current.content_len;
		r->padding_left = r->current.padding_len;
		r->in_content = true;
		r->started = false;
	}
	if (*len == 0 && r->content_left > 0)
		return RECORD_NEED_MORE;
	give_piece(r, in, len, piece);
	return RECORD_PIECE;
}

bool record_reader_at_border(const struct record_reader *r)
{
	return !r->in_content && r->padding_left == 0 && r->header_have == 0;
}

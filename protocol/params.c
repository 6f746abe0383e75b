#include "protocol/params.h"

#include <assert.h>
#include <string.h>

#include "protocol/record.h"

enum {
	SHORT_MAX = 127, /* the longest length that takes one byte */
	LONG_FLAG = 0x80,
};

void params_iter_init(struct params_iter *it, const void *block, size_t len)
{
	it->at = block;
	it->left = len;
}

static bool take_len(struct params_iter *it, size_t *out)
{
	const uint8_t *p = it->at;

	if (it->left < 1)
		return false;
	if (p[0] <= SHORT_MAX) {
		*out = p[0];
		it->at += 1;
		it->left -= 1;
		return true;
	}
	if (it->left < 4)
		return false;
	*out = (size_t)(p[0] & ~(unsigned)LONG_FLAG) << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
	it->at += 4;
	it->left -= 4;
	return true;
}

enum params_result params_next(struct params_iter *it, struct param *out)
{
	if (it->left == 0)
		return PARAMS_END;
	if (!take_len(it, &out->name_len) || !take_len(it, &out->value_len))
		return PARAMS_TRUNCATED;
	/* Compared one by one: their sum could wrap where size_t has 32 bits. */
	if (out->name_len > it->left || out->value_len > it->left - out->name_len)
		return PARAMS_TRUNCATED;
	out->name = it->at;
	out->value = it->at + out->name_len;
	it->at += out->name_len + out->value_len;
	it->left -= out->name_len + out->value_len;
	return PARAMS_PAIR;
}

static size_t len_bytes(size_t len)
{
	return len <= SHORT_MAX ? 1 : 4;
}

size_t params_pair_len(size_t name_len, size_t value_len)
{
	return len_bytes(name_len) + len_bytes(value_len) + name_len + value_len;
}

static uint8_t *put_len(uint8_t *p, size_t len)
{
	if (len <= SHORT_MAX) {
		*p = (uint8_t)len;
		return p + 1;
	}
	p[0] = (uint8_t)(len >> 24 | LONG_FLAG);
	p[1] = (uint8_t)(len >> 16);
	p[2] = (uint8_t)(len >> 8);
	p[3] = (uint8_t)len;
	return p + 4;
}

static uint8_t *put_bytes(uint8_t *p, const void *src, size_t len)
{
	if (len > 0)
		memcpy(p, src, len);
	return p + len;
}

bool params_append(struct buf *b, const void *name, size_t name_len, const void *value, size_t value_len)
{
	size_t len = params_pair_len(name_len, value_len);
	uint8_t *p;

	assert(name_len <= INT32_MAX && value_len <= INT32_MAX);
	if (!buf_reserve(b, len))
		return false;
	p = put_len(buf_tail(b), name_len);
	p = put_len(p, value_len);
	p = put_bytes(p, name, name_len);
	put_bytes(p, value, value_len);
	buf_commit(b, len);
	return true;
}

void params_writer_init(struct params_writer *w, struct buf *out, uint16_t id)
{
	w->out = out;
	w->id = id;
	w->record_len = 0;
}

/* The open record's header is rewritten with every pair, so that out holds
 * whole records at any time and a pair that fails leaves nothing behind. */
static void write_header(struct params_writer *w)
{
	struct record_header h = {.type = FCGI_PARAMS, .id = w->id, .content_len = (uint16_t)w->record_len};

	record_header_encode(buf_tail(w->out) - w->record_len - RECORD_HEADER_LEN, &h);
}

bool params_writer_add(struct params_writer *w, const void *name, size_t name_len, const void *value, size_t value_len)
{
	size_t len;

	if (name_len > RECORD_MAX_CONTENT || value_len > RECORD_MAX_CONTENT)
		return false;
	len = params_pair_len(name_len, value_len);
	if (len > RECORD_MAX_CONTENT || !buf_reserve(w->out, RECORD_HEADER_LEN + len))
		return false;
	if (w->record_len == 0 || w->record_len + len > RECORD_MAX_CONTENT) {
		buf_commit(w->out, RECORD_HEADER_LEN);
		w->record_len = 0;
	}
	if (!params_append(w->out, name, name_len, value, value_len))
		return false; /* cannot be: the room is reserved */
	w->record_len += len;
	write_header(w);
	return true;
}

bool params_writer_end(struct params_writer *w)
{
	w->record_len = 0;
	return record_append_stream_end(w->out, FCGI_PARAMS, w->id);
}

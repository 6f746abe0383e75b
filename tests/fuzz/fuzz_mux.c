/* The server's side of a connection: the same bytes whole, chopped as the
 * input's first bytes say, and byte by byte give the same events and answers,
 * whatever the caller opens and finishes; and the answers are whole records
 * of the types that a server may send. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "protocol/mux.h"
#include "tests/fuzz/check.h"
#include "tests/unit/mux_log.h"

enum { CHOICES_LEN = 4 };

/* 0: max_streams, and at what a stream is answered; 1: what finishes a stream;
 * 2: an id that is not opened; 3: sizes of the parts that the input is chopped
 * into. */
static void start(struct mux_log *l, const uint8_t choices[CHOICES_LEN])
{
	static const unsigned finishers[] = {MUX_PARAMS, MUX_PARAMS_END, MUX_STDIN, MUX_STDIN_END, MUX_ABORT};

	mux_log_init(l, 1 + choices[0] % MUX_LOG_STREAMS);
	for (unsigned i = 0; i < sizeof(finishers) / sizeof(*finishers); i++)
		if (choices[1] & 1u << i)
			l->finish_on |= 1u << finishers[i];
	if (choices[0] & 0x40)
		l->answer_on |= 1u << MUX_PARAMS_END;
	if (choices[0] & 0x80)
		l->answer_on |= 1u << MUX_STDIN_END;
	l->not_opened = choices[2];
}

static void feed_chopped(struct mux_log *l, const uint8_t *data, size_t size, unsigned seed)
{
	while (size > 0) {
		size_t n = 1 + seed % 29;

		if (n > size)
			n = size;
		mux_log_feed(l, data, n);
		data += n;
		size -= n;
		seed = seed * 5 + 3;
	}
}

static void check_answers(const struct mux_log *l)
{
	const uint8_t *in = l->out.data;
	size_t len = buf_len(&l->out);
	struct record_reader reader;
	struct record_piece piece;

	record_reader_init(&reader);
	while (len > 0) {
		CHECK(record_reader_next(&reader, &in, &len, &piece) == RECORD_PIECE);
		CHECK(piece.first && piece.last && piece.header.padding_len == 0);
		switch (piece.header.type) {
		case FCGI_END_REQUEST:
			CHECK(piece.header.id != 0 && piece.len == 8);
			break;
		case FCGI_UNKNOWN_TYPE:
			CHECK(piece.header.id == 0 && piece.len == 8);
			break;
		default:
			CHECK(piece.header.type == FCGI_GET_VALUES_RESULT && piece.header.id == 0);
		}
	}
	CHECK(record_reader_at_border(&reader));
}

static bool same_bytes(const struct buf *a, const struct buf *b)
{
	return buf_len(a) == buf_len(b) && (buf_len(a) == 0 || !memcmp(a->data, b->data, buf_len(a)));
}

static void check_same(const struct mux_log *a, const struct mux_log *b)
{
	CHECK(same_bytes(&a->text, &b->text));
	CHECK(same_bytes(&a->out, &b->out));
	CHECK(a->bad == b->bad);
	/* Where in a bad record the mux stopped depends on the cuts. */
	CHECK(a->bad || mux_idle(&a->mux) == mux_idle(&b->mux));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mux_log whole, chopped, bytes;
	const uint8_t *choices = data;

	if (size < CHOICES_LEN)
		return 0;
	data += CHOICES_LEN;
	size -= CHOICES_LEN;
	start(&whole, choices);
	start(&chopped, choices);
	start(&bytes, choices);
	mux_log_feed(&whole, data, size);
	feed_chopped(&chopped, data, size, choices[3]);
	for (size_t i = 0; i < size; i++)
		mux_log_feed(&bytes, data + i, 1);
	check_same(&whole, &chopped);
	check_same(&whole, &bytes);
	check_answers(&whole);
	CHECK(whole.mux.stream_count <= whole.limits.max_streams);
	mux_log_fini(&whole);
	mux_log_fini(&chopped);
	mux_log_fini(&bytes);
	return 0;
}

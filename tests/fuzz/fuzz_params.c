/* Name-value pairs: what is read lies inside the block and in order; written
 * again it reads the same; and re-framed into records, no pair straddles two
 * of them and none is lost. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "protocol/params.h"
#include "protocol/record.h"
#include "tests/fuzz/check.h"

static void check_inside(const struct param *p, const uint8_t *block, size_t len)
{
	CHECK(p->name >= block && p->name_len <= len);
	CHECK(p->value == p->name + p->name_len);
	CHECK(p->value + p->value_len <= block + len);
}

static bool same_param(const struct param *a, const struct param *b)
{
	return a->name_len == b->name_len && a->value_len == b->value_len && !memcmp(a->name, b->name, a->name_len) &&
	       !memcmp(a->value, b->value, a->value_len);
}

static void check_same_pairs(const uint8_t *a, size_t a_len, const struct buf *b)
{
	struct params_iter ia, ib;
	struct param pa, pb;

	params_iter_init(&ia, a, a_len);
	params_iter_init(&ib, b->data, buf_len(b));
	while (params_next(&ia, &pa) == PARAMS_PAIR) {
		CHECK(params_next(&ib, &pb) == PARAMS_PAIR);
		CHECK(same_param(&pa, &pb));
	}
	CHECK(params_next(&ib, &pb) == PARAMS_END);
}

/* Joins the contents of the records; each must hold whole pairs. */
static void unframe(const struct buf *framed, struct buf *pairs)
{
	const uint8_t *in = framed->data;
	size_t len = buf_len(framed);
	struct record_reader reader;
	struct record_piece piece = {.len = 1};

	record_reader_init(&reader);
	while (len > 0) {
		struct params_iter it;
		struct param p;
		enum params_result result;

		CHECK(piece.len > 0); /* only the last record is empty */
		CHECK(record_reader_next(&reader, &in, &len, &piece) == RECORD_PIECE);
		CHECK(piece.first && piece.last);
		CHECK(piece.header.type == FCGI_PARAMS && piece.header.id == 7 && piece.header.padding_len == 0);
		params_iter_init(&it, piece.data, piece.len);
		while ((result = params_next(&it, &p)) == PARAMS_PAIR)
			;
		CHECK(result == PARAMS_END);
		CHECK(buf_append(pairs, piece.data, piece.len));
	}
	CHECK(piece.len == 0);
}

/* Every pair is written copies times, so that small inputs fill records. */
static void check_pairs(const uint8_t *data, size_t size, unsigned copies)
{
	struct buf plain = {0}, framed = {0}, repeated = {0}, unframed = {0};
	struct params_writer w;
	struct params_iter it;
	struct param p;
	enum params_result result;

	params_writer_init(&w, &framed, 7);
	params_iter_init(&it, data, size);
	while ((result = params_next(&it, &p)) == PARAMS_PAIR) {
		bool fits = params_pair_len(p.name_len, p.value_len) <= RECORD_MAX_CONTENT;

		check_inside(&p, data, size);
		CHECK(params_append(&plain, p.name, p.name_len, p.value, p.value_len));
		for (unsigned i = 0; i < copies; i++) {
			CHECK(params_writer_add(&w, p.name, p.name_len, p.value, p.value_len) == fits);
			if (fits)
				CHECK(params_append(&repeated, p.name, p.name_len, p.value, p.value_len));
		}
	}
	CHECK(result == PARAMS_TRUNCATED || it.left == 0);
	CHECK(params_writer_end(&w));
	check_same_pairs(data, size, &plain);
	unframe(&framed, &unframed);
	CHECK(buf_len(&unframed) == buf_len(&repeated));
	CHECK(buf_len(&unframed) == 0 || !memcmp(unframed.data, repeated.data, buf_len(&unframed)));
	buf_fini(&plain);
	buf_fini(&framed);
	buf_fini(&repeated);
	buf_fini(&unframed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (size < 1)
		return 0;
	copy = malloc(size);
	CHECK(copy);
	memcpy(copy, data + 1, size - 1);
	/* Rarely, since it is slow. */
	check_pairs(copy, size - 1, data[0] % 8 == 7 ? 1 + 140000 / (unsigned)size : 1);
	free(copy);
	return 0;
}

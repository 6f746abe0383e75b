/* What goes out on a connection: turns, begun records, spilled answers. The
 * other side is played by a reader of records; whatever parts are written, it
 * must see whole records, and each answer's bytes complete and in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/output.h"
#include "protocol/record.h"
#include "tests/unit/dice.h"

enum { ANSWERS = 9, CTL_ID = 1000, STEPS = 4000, ROUNDS = 40 };

struct world {
	struct output output;
	struct answer answers[ANSWERS + 1]; /* by id, from 1 */
	struct buf said[ANSWERS + 1];       /* contents that were appended */
	struct buf seen[ANSWERS + 1];       /* and that came out */
	struct buf wire;
	uint64_t ctl_said, ctl_seen;
	uint64_t dice;
	char dir[32];
	const char *spill_dir;
	bool unreadable;
};

static uint32_t roll(struct world *w, uint32_t sides)
{
	return dice_roll(&w->dice, sides);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);

	output_init(&w->output);
	for (int i = 1; i <= ANSWERS; i++)
		answer_init(&w->answers[i]);
	strcpy(w->dir, "/tmp/h2fpm-output-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->spill_dir = w->dir;
	w->dice = 88172645463325252u;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (int i = 1; i <= ANSWERS; i++) {
		answer_fini(&w->answers[i]);
		buf_fini(&w->said[i]);
		buf_fini(&w->seen[i]);
	}
	output_fini(&w->output);
	buf_fini(&w->wire);
	assert_int_equal(rmdir(w->dir), 0); /* a spill leaves no name */
	free(w);
	return 0;
}

static bool say(struct world *w, int id, size_t len)
{
	static uint8_t data[RECORD_MAX_CONTENT];
	struct answer *a = &w->answers[id];

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)roll(w, 256);
	assert_true(buf_append(&w->said[id], data, len));
	assert_true(record_append_stream(answer_sink(a), FCGI_STDOUT, (uint16_t)id, data, len));
	bool stored = answer_settle(a, w->spill_dir, roll(w, 3) == 0);
	output_offer(&w->output, a);
	return stored;
}

static void say_ctl(struct world *w)
{
	assert_true(record_append_end(&w->output.ctl, CTL_ID, (uint32_t)w->ctl_said++, 0));
}

static void on_wrote(void *context, struct answer *a, bool ok)
{
	struct world *w = context;

	(void)a;
	w->unreadable |= !ok;
}

static size_t write_some(struct world *w, size_t most)
{
	struct output_plan plan;
	size_t n, left;

	output_plan(&w->output, &plan);
	n = left = plan.bytes < most ? plan.bytes : most;
	for (int i = 0; i < plan.count && left > 0; i++) {
		size_t part = left < plan.parts[i].iov_len ? left : plan.parts[i].iov_len;
		assert_true(buf_append(&w->wire, plan.parts[i].iov_base, part));
		left -= part;
	}
	output_wrote(&w->output, &plan, n, on_wrote, w);
	return n;
}

static void write_all(struct world *w)
{
	while (!output_is_empty(&w->output))
		assert_true(write_some(w, SIZE_MAX) > 0);
}

/* Sorts the wire's bytes by id; all of them must be whole records. */
static void read_wire(struct world *w)
{
	const uint8_t *in = buf_head(&w->wire);
	size_t len = buf_len(&w->wire);
	struct record_reader reader;
	struct record_piece piece;

	record_reader_init(&reader);
	while (len > 0) {
		assert_int_equal(record_reader_next(&reader, &in, &len, &piece), RECORD_PIECE);
		assert_true(piece.first && piece.last);
		if (piece.header.id == CTL_ID) {
			struct record_end end;
			record_end_decode(piece.data, &end);
			assert_int_equal(end.app_status, w->ctl_seen++);
		} else {
			assert_in_range(piece.header.id, 1, ANSWERS);
			assert_true(buf_append(&w->seen[piece.header.id], piece.data, piece.len));
		}
	}
	assert_true(record_reader_at_border(&reader));
	buf_reset(&w->wire, SIZE_MAX);
}

static void check_all_seen(struct world *w)
{
	write_all(w);
	read_wire(w);
	assert_int_equal(w->ctl_seen, w->ctl_said);
	for (int i = 1; i <= ANSWERS; i++) {
		assert_true(answer_is_empty(&w->answers[i]));
		assert_int_equal(buf_len(&w->seen[i]), buf_len(&w->said[i]));
		if (buf_len(&w->said[i]) > 0)
			assert_memory_equal(buf_head(&w->seen[i]), buf_head(&w->said[i]), buf_len(&w->said[i]));
		buf_reset(&w->seen[i], SIZE_MAX);
		buf_reset(&w->said[i], SIZE_MAX);
	}
}

/* Whose record is at which place of the wire. */
static void turns(struct world *w, char *text)
{
	const uint8_t *in = buf_head(&w->wire);
	size_t at = 0;

	while (at < buf_len(&w->wire)) {
		struct record_header h;
		assert_true(record_header_decode(in + at, &h));
		*text++ = h.id == CTL_ID ? 'c' : (char)('0' + h.id);
		at += RECORD_HEADER_LEN + (size_t)h.content_len;
	}
	*text = '\0';
}

static void test_turns_are_fair(void **state)
{
	struct world *w = *state;
	char text[64];

	for (int i = 0; i < 4; i++)
		for (int id = 1; id <= 3; id++)
			if (id != 2 || i < 2)
				(void)say(w, id, 8192);
	write_some(w, SIZE_MAX);
	(void)say(w, 4, 10);
	(void)say(w, 4, 10);
	say_ctl(w);
	for (int i = 0; i < 4; i++)
		write_some(w, SIZE_MAX);
	turns(w, text);
	assert_string_equal(text, "123c1234413" "13"); /* two small ones are one turn */
	check_all_seen(w);
}

static void test_alone_is_not_held_up(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 20; i++)
		(void)say(w, 1, 8192);
	assert_int_equal(write_some(w, SIZE_MAX), 20 * 8200);
	check_all_seen(w);
}

/* A record longer than a turn is a turn. */
static void test_large_records(void **state)
{
	struct world *w = *state;
	char text[64];

	for (int i = 0; i < 2; i++)
		for (int id = 1; id <= 2; id++)
			(void)say(w, id, RECORD_MAX_CONTENT);
	write_some(w, SIZE_MAX);
	turns(w, text);
	assert_string_equal(text, "12");
	check_all_seen(w);
}

/* After any number of bytes the begun record goes on, then ctl, then others. */
static void test_every_cut(void **state)
{
	struct world *w = *state;

	for (size_t n = 0; n <= 3 * 108 + 16; n++) {
		for (int i = 0; i < 2; i++)
			for (int id = 1; id <= 3; id++)
				(void)say(w, id, i ? 100 : 30);
		if (n % 2)
			say_ctl(w);
		write_some(w, n);
		say_ctl(w);
		write_some(w, n / 3);
		(void)say(w, 4, 50);
		check_all_seen(w);
	}
}

/* Nothing but the rest of a begun record follows a drop. */
static void test_drop_at_every_cut(void **state)
{
	struct world *w = *state;

	for (size_t n = 0; n <= 250; n++) {
		struct answer *a = &w->answers[1];
		(void)say(w, 1, 100);
		(void)say(w, 1, 120);
		(void)say(w, 2, 50);
		write_some(w, n);
		answer_drop(a);
		assert_int_equal(buf_len(&a->head), a->cut);
		if (answer_is_empty(a))
			list_remove(&a->turn);
		say_ctl(w);
		write_all(w);
		read_wire(w);
		assert_true(buf_len(&w->seen[1]) == 0 || buf_len(&w->seen[1]) == 100 || buf_len(&w->seen[1]) == 220);
		buf_reset(&w->said[1], SIZE_MAX);
		buf_reset(&w->seen[1], SIZE_MAX);
		check_all_seen(w);
	}
}

static void test_more_than_a_plan_holds(void **state)
{
	static struct answer many[200];
	struct world *w = *state;
	struct output_plan plan;

	for (int i = 0; i < 200; i++) {
		answer_init(&many[i]);
		assert_true(record_append_stream(answer_sink(&many[i]), FCGI_STDOUT, 1, "x", 1));
		output_offer(&w->output, &many[i]);
		output_offer(&w->output, &many[i]); /* no harm */
	}
	say_ctl(w);
	output_plan(&w->output, &plan);
	assert_true(plan.count <= OUTPUT_PARTS && plan.count > OUTPUT_PARTS / 2);
	write_all(w);
	assert_int_equal(buf_len(&w->wire), 200 * 9 + 16);
	for (int i = 0; i < 200; i++)
		answer_fini(&many[i]);
}

/* ---- spilling ---- */

/* A large answer, of which the first record is in memory. */
static void spill_some(struct world *w)
{
	(void)say(w, 1, 60000);
	assert_true(answer_spill(&w->answers[1], w->spill_dir));
	for (int i = 0; i < 30; i++)
		assert_true(say(w, 1, 8000));
}

static void test_spill_and_back(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	(void)say(w, 1, 60000);
	assert_true(answer_is_full(a, 60000, 1 << 20));
	assert_false(answer_is_full(a, 70000, 1 << 20));
	assert_true(answer_spill(a, w->spill_dir));
	assert_false(answer_is_full(a, 60000, 1 << 20));
	for (int i = 0; i < 100; i++)
		assert_true(say(w, 1, 8000));
	assert_true(a->file.fd >= 0);
	assert_true(answer_memory(a) < 250000);
	assert_true(answer_is_full(a, 60000, 500000)); /* of the file */
	while (a->spilling)
		write_some(w, 5000);
	assert_true(a->file.fd < 0);
	(void)say(w, 1, 100);
	assert_int_equal(buf_len(&a->tail), 0);
	check_all_seen(w);
}

static void test_spill_of_an_answer_that_is_all_written(void **state)
{
	struct world *w = *state;

	assert_true(answer_spill(&w->answers[1], w->spill_dir));
	assert_true(say(w, 1, 10));
	check_all_seen(w);
}

static void test_no_room_changes_nothing(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	w->spill_dir = "/nonexistent";
	(void)say(w, 1, 30000);
	(void)say(w, 1, 30000);
	assert_false(answer_spill(a, w->spill_dir));
	assert_false(a->spilling);
	assert_true(answer_is_full(a, 60000, INT64_MAX));
	check_all_seen(w);
}

/* Many may be in files at one time: of each little stays in memory. */
static void test_spilled_one_is_small(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	for (int i = 0; i < 40; i++)
		(void)say(w, 1, 8192);
	assert_true(a->head.cap > 300000);
	write_some(w, 100); /* a record is begun */
	assert_true(answer_spill(a, w->spill_dir));
	assert_int_equal(buf_len(&a->head), 8100);
	for (int i = 0; i < 100; i++)
		assert_true(say(w, 1, 8192));
	assert_true(answer_settle(a, w->spill_dir, true));
	assert_true(a->head.cap + a->tail.cap <= 3 * 16384);
	for (int i = 0; i < 50; i++) {
		write_some(w, 5000);
		assert_true(a->head.cap <= 4 * 16384);
	}
	check_all_seen(w);
}

/* The disk fills up in the middle, and what is in the file comes first. */
static void test_no_room_any_more(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	spill_some(w);
	int fd = a->file.fd, read_only;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	FILE *again = fopen(path, "r");
	assert_non_null(again);
	read_only = dup(fileno(again));
	fclose(again);
	assert_int_equal(dup2(read_only, fd), fd); /* writing to it fails from now on */
	close(read_only);
	for (int i = 0; i < 30; i++)
		if (!say(w, 1, 8000))
			break;
	assert_true(a->no_room);
	check_all_seen(w);
}

static void test_file_that_cannot_be_read_back(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	spill_some(w);
	assert_int_equal(ftruncate(a->file.fd, 10), 0);
	while (!w->unreadable)
		assert_true(write_some(w, 10000) > 0);
	answer_drop(a);
	list_remove(&a->turn);
	assert_true(answer_is_empty(a));
	read_wire(w);
}

static void test_drop_of_a_spilled_one(void **state)
{
	struct world *w = *state;
	struct answer *a = &w->answers[1];

	spill_some(w);
	write_some(w, SIZE_MAX);
	assert_int_equal(write_some(w, 4), 4);
	answer_drop(a);
	assert_true(a->file.fd < 0);
	assert_int_equal(answer_memory(a), a->cut);
	write_all(w);
	read_wire(w);
	assert_int_equal(buf_len(&w->seen[1]), 60000 + 8000);
}

/* ---- all at random ---- */

static void step(struct world *w)
{
	int id = 1 + (int)roll(w, ANSWERS);
	struct answer *a = &w->answers[id];

	switch (roll(w, 8)) {
	case 0:
	case 1:
	case 2:
		if (!answer_is_full(a, 100000, 400000))
			(void)say(w, id, 1 + roll(w, roll(w, 10) ? 8192 : RECORD_MAX_CONTENT));
		break;
	case 3:
		if (roll(w, 20) == 0 && !a->spilling && answer_spill(a, w->spill_dir))
			assert_true(a->spilling);
		break;
	case 4:
		if (roll(w, 4) == 0)
			say_ctl(w);
		break;
	default:
		write_some(w, roll(w, roll(w, 3) ? 3000 : 100000));
	}
}

static void test_at_random(void **state)
{
	struct world *w = *state;

	for (int round = 0; round < ROUNDS; round++) {
		w->spill_dir = round % 4 ? w->dir : "/nonexistent";
		for (int i = 0; i < STEPS; i++)
			step(w);
		check_all_seen(w);
		assert_false(w->unreadable);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_turns_are_fair),
		TEST(test_alone_is_not_held_up),
		TEST(test_large_records),
		TEST(test_every_cut),
		TEST(test_drop_at_every_cut),
		TEST(test_more_than_a_plan_holds),
		TEST(test_spill_and_back),
		TEST(test_spill_of_an_answer_that_is_all_written),
		TEST(test_no_room_changes_nothing),
		TEST(test_spilled_one_is_small),
		TEST(test_no_room_any_more),
		TEST(test_file_that_cannot_be_read_back),
		TEST(test_drop_of_a_spilled_one),
		TEST(test_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

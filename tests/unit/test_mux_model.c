/* Random interleavings of valid conversations, cut at random, beside a model
 * that knows the records' meanings and not their bytes: the same events, the
 * same answers. And each of some conversations cut at every byte and closed
 * there: what was told until then is what the whole one begins with.
 *
 *     MUX_SEED=n plays another set; a failure says which one it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "protocol/mux.h"
#include "protocol/params.h"
#include "tests/unit/dice.h"
#include "tests/unit/mux_log.h"

enum { ROUNDS = 3000, RECORDS = 80, IDS = 12, CUT_ROUNDS = 40 };

enum state { CLOSED, IN_PARAMS, IN_STDIN, ALL_IN, ANSWERED };

/* What is asked of the mux between two records. */
enum deed { NOTHING, ANSWER, FINISH };

struct script {
	struct buf bytes;
	struct { size_t end; enum deed deed; uint16_t id; } marks[RECORDS]; /* behind each record */
	int count;
};

struct model {
	uint64_t dice;
	uint32_t max_streams, open;
	uint16_t ids[IDS];
	enum state states[IDS];
	struct script script;
	struct buf text, out;
	enum mux_event last;
	uint16_t last_id;
	uint32_t late_aborts;
	bool multiplexes;
};

static uint32_t roll(struct model *m, uint32_t sides)
{
	return dice_roll(&m->dice, sides);
}

/* ---- what is expected ---- */

static void tell(struct model *m, enum mux_event event, uint16_t id, const char *format, ...)
{
	char line[64];
	va_list args;

	va_start(args, format);
	int len = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	assert_true(buf_append(&m->text, line, (size_t)len));
	m->last = event;
	m->last_id = id;
}

static void tell_data(struct model *m, enum mux_event event, uint16_t id, const uint8_t *data, size_t len)
{
	if (m->last != event || m->last_id != id)
		tell(m, event, id, "%s %u|", event == MUX_PARAMS ? "params" : "stdin", id);
	assert_true(buf_append(&m->text, data, len));
}

static void expect_begin(struct model *m, int i, uint16_t role, bool keep)
{
	uint16_t id = m->ids[i];
	const char *flag = keep ? " keep" : "";

	if (m->states[i] == ANSWERED) {
		tell(m, MUX_WAIT, id, "wait %u|", id);
		m->states[i] = CLOSED;
		m->open--;
	}
	if (role != FCGI_RESPONDER || m->open >= m->max_streams) {
		uint8_t status = role != FCGI_RESPONDER ? FCGI_UNKNOWN_ROLE
		                 : m->max_streams == 1  ? FCGI_CANT_MPX_CONN
		                                        : FCGI_OVERLOADED;
		assert_true(record_append_end(&m->out, id, 0, status));
		tell(m, MUX_REFUSED, id, "refused %u%s|", id, flag);
		return;
	}
	tell(m, MUX_BEGIN, id, "begin %u%s|", id, flag);
	m->states[i] = IN_PARAMS;
	m->multiplexes |= ++m->open > 1 || id != 1;
}

static void expect_stream(struct model *m, int i, uint8_t type, const uint8_t *data, size_t len)
{
	bool params = type == FCGI_PARAMS;

	if (m->states[i] != (params ? IN_PARAMS : IN_STDIN))
		return;
	if (len > 0) {
		tell_data(m, params ? MUX_PARAMS : MUX_STDIN, m->ids[i], data, len);
		return;
	}
	tell(m, params ? MUX_PARAMS_END : MUX_STDIN_END, m->ids[i], params ? "params-end %u|" : "stdin-end %u|", m->ids[i]);
	m->states[i] = params ? IN_STDIN : ALL_IN;
}

static void expect_abort(struct model *m, int i)
{
	if (m->states[i] == CLOSED)
		m->late_aborts++;
	else
		tell(m, MUX_ABORT, m->ids[i], "abort %u|", m->ids[i]);
}

/* ---- what is said ---- */

static void say(struct model *m, uint8_t type, uint16_t id, const uint8_t *content, size_t len)
{
	static const uint8_t padding[RECORD_MAX_PADDING] = {1, 0, 1};
	struct record_header h = {type, id, (uint16_t)len, roll(m, 3) ? 0 : (uint8_t)roll(m, RECORD_MAX_PADDING)};
	uint8_t wire[RECORD_HEADER_LEN];

	record_header_encode(wire, &h);
	assert_true(buf_append(&m->script.bytes, wire, sizeof wire));
	assert_true(buf_append(&m->script.bytes, content, len));
	assert_true(buf_append(&m->script.bytes, padding, h.padding_len));
}

static void say_begin(struct model *m, int i)
{
	uint16_t role = roll(m, 12) ? FCGI_RESPONDER : (uint16_t)roll(m, 5);
	bool keep = roll(m, 2);
	uint8_t body[8] = {0, (uint8_t)role, keep ? FCGI_KEEP_CONN : 0};

	say(m, FCGI_BEGIN_REQUEST, m->ids[i], body, sizeof body);
	expect_begin(m, i, role, keep);
}

static void say_stream(struct model *m, int i, uint8_t type)
{
	uint8_t data[300] = {0};
	size_t len = roll(m, 3) ? roll(m, sizeof data) : 0;

	/* Out of their order is an error, but for empty ones. */
	if ((m->states[i] == IN_PARAMS && type == FCGI_STDIN) || (m->states[i] == IN_STDIN && type == FCGI_PARAMS) ||
	    m->states[i] == ALL_IN)
		return;
	for (size_t at = 0; at < len; at++)
		data[at] = (uint8_t)roll(m, 256);
	say(m, type, m->ids[i], data, len);
	expect_stream(m, i, type, data, len);
}

static void say_values(struct model *m)
{
	struct buf question = {0}, answer = {0};
	bool mpxs = roll(m, 2);
	char value[16];

	snprintf(value, sizeof value, "%u", mpxs ? m->max_streams > 1 : 77);
	assert_true(params_append(&question, "NONE", 4, "", 0));
	assert_true(params_append(&question, mpxs ? FCGI_MPXS_CONNS : FCGI_MAX_REQS, mpxs ? 15 : 13, "", 0));
	assert_true(params_append(&answer, mpxs ? FCGI_MPXS_CONNS : FCGI_MAX_REQS, mpxs ? 15 : 13, value, strlen(value)));
	say(m, FCGI_GET_VALUES, 0, question.data, buf_len(&question));
	assert_true(record_append_stream(&m->out, FCGI_GET_VALUES_RESULT, 0, answer.data, buf_len(&answer)));
	m->multiplexes |= mpxs;
	tell(m, MUX_REPLIED, 0, "reply %zu|", buf_len(&m->out));
	buf_fini(&question);
	buf_fini(&answer);
}

static void say_unknown(struct model *m)
{
	uint8_t body[8] = {(uint8_t)(12 + roll(m, 244))}, content[40] = {0};

	say(m, body[0], (uint16_t)roll(m, 65536), content, roll(m, sizeof content));
	assert_true(record_append_stream(&m->out, FCGI_UNKNOWN_TYPE, 0, body, sizeof body));
	tell(m, MUX_REPLIED, 0, "reply %zu|", buf_len(&m->out));
}

static void say_something(struct model *m)
{
	int i = (int)roll(m, IDS);

	switch (roll(m, 16)) {
	case 0:
		say_values(m);
		break;
	case 1:
		say_unknown(m);
		break;
	case 2:
		say(m, FCGI_ABORT_REQUEST, m->ids[i], (const uint8_t *)"abc", roll(m, 3));
		expect_abort(m, i);
		break;
	case 3:
		say(m, FCGI_DATA, m->ids[i], (const uint8_t *)"data", roll(m, 5));
		break;
	default:
		if ((m->states[i] == CLOSED || m->states[i] == ANSWERED) && roll(m, 4))
			say_begin(m, i);
		else
			say_stream(m, i, m->states[i] == IN_PARAMS ? FCGI_PARAMS : roll(m, 4) ? FCGI_STDIN : FCGI_PARAMS);
	}
}

static void do_something(struct model *m)
{
	struct script *s = &m->script;
	int i = (int)roll(m, IDS);

	s->marks[s->count].end = buf_len(&s->bytes);
	s->marks[s->count].deed = NOTHING;
	s->marks[s->count].id = m->ids[i];
	if (m->states[i] != CLOSED && roll(m, 4) == 0) {
		bool finish = m->states[i] == ANSWERED || roll(m, 2);
		s->marks[s->count].deed = finish ? FINISH : ANSWER;
		m->states[i] = finish ? CLOSED : ANSWERED;
		m->open -= finish;
	}
	s->count++;
}

static void invent(struct model *m, uint64_t seed)
{
	*m = (struct model){.dice = seed * 2654435761u + 88172645463325252u, .last = MUX_NEED_MORE};
	m->max_streams = 1 + roll(m, MUX_LOG_STREAMS);
	for (int i = 0; i < IDS; i++)
		m->ids[i] = (uint16_t)(1 + (roll(m, 65535 / IDS)) * IDS + (uint32_t)i); /* all different */
	if (roll(m, 2))
		m->ids[0] = 1;
	for (int i = 0; i < RECORDS; i++) {
		say_something(m);
		do_something(m);
	}
}

static void forget(struct model *m)
{
	buf_fini(&m->script.bytes);
	buf_fini(&m->text);
	buf_fini(&m->out);
}

/* ---- what comes of it ---- */

static void do_deed(struct mux_log *l, enum deed deed, uint16_t id)
{
	for (int i = 0; deed != NOTHING && i < MUX_LOG_STREAMS; i++) {
		if (list_empty(&l->streams[i].node) || l->streams[i].id != id)
			continue;
		if (deed == ANSWER)
			mux_answered(&l->streams[i]);
		else
			mux_finish(&l->mux, &l->streams[i]);
		return;
	}
}

static void start(const struct model *m, struct mux_log *l)
{
	mux_log_init(l, m->max_streams);
	l->limits.max_reqs = 77;
}

/* Plays it up to a byte, in parts of random or of full size. */
static void play(struct model *m, struct mux_log *l, size_t until, uint32_t part_max)
{
	const uint8_t *bytes = buf_head(&m->script.bytes);
	size_t at = 0;

	for (int i = 0; i < m->script.count && at < until; i++) {
		size_t end = m->script.marks[i].end < until ? m->script.marks[i].end : until;
		while (at < end) {
			size_t n = part_max ? 1 + roll(m, part_max) : end - at;
			n = n < end - at ? n : end - at;
			mux_log_feed(l, bytes + at, n);
			at += n;
		}
		if (at == m->script.marks[i].end)
			do_deed(l, m->script.marks[i].deed, m->script.marks[i].id);
	}
}

static bool same(const struct buf *a, const struct buf *b)
{
	return buf_len(a) == buf_len(b) && (buf_len(a) == 0 || memcmp(buf_head(a), buf_head(b), buf_len(a)) == 0);
}

static uint64_t first_seed(void)
{
	const char *text = getenv("MUX_SEED");

	return text ? strtoull(text, NULL, 10) : 1;
}

static void check_round(struct model *m, uint64_t seed, uint32_t part_max)
{
	struct mux_log l;

	start(m, &l);
	play(m, &l, SIZE_MAX, part_max);
	if (l.bad || !same(&l.text, &m->text) || !same(&l.out, &m->out) || l.mux.stream_count != m->open ||
	    l.mux.late_aborts != m->late_aborts || l.mux.multiplexes != m->multiplexes ||
	    mux_idle(&l.mux) != (m->open == 0)) {
		mux_log_text(&l, "", 1);
		assert_true(buf_append(&m->text, "", 1));
		fail_msg("MUX_SEED=%llu: told\n%s\nwanted\n%s", (unsigned long long)seed, (char *)buf_head(&l.text),
		         (char *)buf_head(&m->text));
	}
	mux_log_fini(&l);
}

static void test_beside_a_model(void **state)
{
	static const uint32_t parts[] = {0, 1, 7, 40, 600};

	(void)state;
	for (uint64_t seed = first_seed(), end = seed + ROUNDS; seed < end; seed++) {
		struct model m;
		invent(&m, seed);
		check_round(&m, seed, parts[seed % (sizeof parts / sizeof *parts)]);
		forget(&m);
	}
}

static void test_cut_at_every_byte_and_closed(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed(), end = seed + CUT_ROUNDS; seed < end; seed++) {
		struct model m;
		invent(&m, seed);
		for (size_t cut = 0; cut <= buf_len(&m.script.bytes); cut++) {
			struct mux_log l;
			start(&m, &l);
			play(&m, &l, cut, 0);
			assert_false(l.bad);
			assert_true(buf_len(&l.text) <= buf_len(&m.text));
			if (buf_len(&l.text) > 0)
				assert_memory_equal(buf_head(&l.text), buf_head(&m.text), buf_len(&l.text));
			if (buf_len(&l.out) > 0)
				assert_memory_equal(buf_head(&l.out), buf_head(&m.out), buf_len(&l.out));
			mux_log_fini(&l); /* checks that no stream is left on it */
		}
		forget(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_a_model),
		cmocka_unit_test(test_cut_at_every_byte_and_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

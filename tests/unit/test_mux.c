/* Every rule of the server's side of a connection, each under every cut: a
 * conversation is fed whole, in two parts cut at every byte, and byte by
 * byte, and must give the same events and the same answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "protocol/mux.h"
#include "protocol/params.h"
#include "tests/unit/mux_log.h"

/* A conversation, the caller's ways, and what must come of it. */
struct talk {
	struct buf in;
	struct buf out; /* expected answers */
	uint32_t max_streams;
	unsigned finish_on;
	unsigned answer_on;
	uint16_t not_opened;
};

static int setup(void **state)
{
	struct talk *t = calloc(1, sizeof(*t));

	t->max_streams = 1;
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct talk *t = *state;

	buf_fini(&t->in);
	buf_fini(&t->out);
	free(t);
	return 0;
}

static void say_bytes(struct talk *t, struct record_header h, const void *content)
{
	static const uint8_t padding[RECORD_MAX_PADDING] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	uint8_t wire[RECORD_HEADER_LEN];

	record_header_encode(wire, &h);
	assert_true(buf_append(&t->in, wire, sizeof(wire)));
	assert_true(buf_append(&t->in, content, h.content_len));
	assert_true(buf_append(&t->in, padding, h.padding_len));
}

/* Says a record with the text as content and some padding behind a text. */
static void say(struct talk *t, uint8_t type, uint16_t id, const char *text)
{
	size_t len = strlen(text);

	say_bytes(t, (struct record_header){type, id, (uint16_t)len, (uint8_t)(len % 4)}, text);
}

static void say_begin(struct talk *t, uint16_t id, uint8_t flags)
{
	assert_true(record_append_begin(&t->in, id, FCGI_RESPONDER, flags));
}

static void say_request(struct talk *t, uint16_t id)
{
	say_begin(t, id, FCGI_KEEP_CONN);
	say(t, FCGI_PARAMS, id, "pp");
	say(t, FCGI_PARAMS, id, "");
	say(t, FCGI_STDIN, id, "in");
	say(t, FCGI_STDIN, id, "");
}

static void start(const struct talk *t, struct mux_log *l)
{
	mux_log_init(l, t->max_streams);
	l->finish_on = t->finish_on;
	l->answer_on = t->answer_on;
	l->not_opened = t->not_opened;
}

static void check(const struct talk *t, struct mux_log *l, const char *text)
{
	mux_log_text(l, "", 1);
	assert_string_equal((char *)buf_head(&l->text), text);
	assert_int_equal(buf_len(&l->out), buf_len(&t->out));
	if (buf_len(&t->out) > 0)
		assert_memory_equal(buf_head(&l->out), buf_head(&t->out), buf_len(&t->out));
	mux_log_fini(l);
}

static void expect(const struct talk *t, const char *text)
{
	const uint8_t *in = buf_head(&t->in);
	size_t len = buf_len(&t->in);
	struct mux_log l;

	for (size_t cut = 0; cut < len; cut++) {
		start(t, &l);
		mux_log_feed(&l, in, cut);
		mux_log_feed(&l, in + cut, len - cut);
		check(t, &l, text);
	}
	start(t, &l);
	for (size_t i = 0; i < len; i++)
		mux_log_feed(&l, in + i, 1);
	check(t, &l, text);
}

static void test_one_request(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, FCGI_KEEP_CONN);
	say(t, FCGI_PARAMS, 1, "first");
	say(t, FCGI_PARAMS, 1, "second");
	say(t, FCGI_PARAMS, 1, "");
	say(t, FCGI_STDIN, 1, "body");
	say(t, FCGI_STDIN, 1, "");
	expect(t, "begin 1 keep|params 1|firstsecondparams-end 1|stdin 1|bodystdin-end 1|");
}

static void test_no_keep_conn(void **state)
{
	struct talk *t = *state;

	say_begin(t, 65535, 0xfe); /* every flag but KEEP_CONN */
	say(t, FCGI_PARAMS, 65535, "");
	say(t, FCGI_STDIN, 65535, "");
	expect(t, "begin 65535|params-end 65535|stdin-end 65535|");
}

static void test_streams_interleave(void **state)
{
	struct talk *t = *state;

	t->max_streams = 2;
	say_begin(t, 1, 1);
	say(t, FCGI_PARAMS, 1, "a");
	say_begin(t, 2, 1);
	say(t, FCGI_PARAMS, 2, "b");
	say(t, FCGI_PARAMS, 1, "");
	say(t, FCGI_STDIN, 1, "x");
	say(t, FCGI_PARAMS, 2, "c");
	say(t, FCGI_STDIN, 1, "");
	say(t, FCGI_PARAMS, 2, "");
	expect(t,
	       "begin 1 keep|params 1|abegin 2 keep|params 2|bparams-end 1|stdin 1|xparams 2|cstdin-end 1|params-end "
	       "2|");
}

static void test_version(void **state)
{
	struct talk *t = *state;

	say_request(t, 1);
	buf_head(&t->in)[16] = 2; /* the first PARAMS record's version */
	expect(t, "begin 1 keep|bad: not FastCGI version 1|");
}

static void test_http_is_not_fastcgi(void **state)
{
	struct talk *t = *state;

	assert_true(buf_append(&t->in, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27));
	expect(t, "bad: not FastCGI version 1|");
}

static void test_id_0(void **state)
{
	struct talk *t = *state;

	for (uint8_t type = FCGI_BEGIN_REQUEST; type <= FCGI_DATA; type++) {
		buf_reset(&t->in, SIZE_MAX);
		say(t, type, 0, "12345678");
		expect(t, "bad: request id 0 on an application record|");
		buf_reset(&t->in, SIZE_MAX);
		say(t, type, 0, "");
		expect(t, "bad: request id 0 on an application record|");
	}
}

static void test_begin_length(void **state)
{
	static const char *const bodies[] = {"", "1234567", "123456789", "1234567812345678"};
	struct talk *t = *state;

	for (int i = 0; i < 4; i++) {
		buf_reset(&t->in, SIZE_MAX);
		say(t, FCGI_BEGIN_REQUEST, 1, bodies[i]);
		expect(t, "bad: BEGIN_REQUEST body is not 8 bytes|");
	}
}

static void test_begin_twice(void **state)
{
	struct talk *t = *state;

	t->max_streams = 3;
	say_begin(t, 7, 1);
	say_begin(t, 8, 1);
	say_begin(t, 7, 1);
	expect(t, "begin 7 keep|begin 8 keep|bad: BEGIN_REQUEST for an id that is open|");
}

/* A request that the server ended may be followed by one of the same id. */
static void test_begin_again_after_finish(void **state)
{
	struct talk *t = *state;

	t->finish_on = 1u << MUX_STDIN_END;
	say_request(t, 1);
	say_request(t, 1);
	expect(t, "begin 1 keep|params 1|ppparams-end 1|stdin 1|instdin-end 1|"
	          "begin 1 keep|params 1|ppparams-end 1|stdin 1|instdin-end 1|");
}

static void test_roles(void **state)
{
	static const uint16_t roles[] = {0, FCGI_AUTHORIZER, FCGI_FILTER, 256 + FCGI_RESPONDER, 65535};
	struct talk *t = *state;

	for (int i = 0; i < 5; i++) {
		buf_reset(&t->in, SIZE_MAX);
		buf_reset(&t->out, SIZE_MAX);
		assert_true(record_append_begin(&t->in, 5, roles[i], FCGI_KEEP_CONN));
		say(t, FCGI_PARAMS, 5, "ignored");
		say(t, FCGI_STDIN, 5, "ignored");
		assert_true(record_append_begin(&t->in, 6, roles[i], 0));
		say_begin(t, 5, 1);
		assert_true(record_append_end(&t->out, 5, 0, FCGI_UNKNOWN_ROLE));
		assert_true(record_append_end(&t->out, 6, 0, FCGI_UNKNOWN_ROLE));
		expect(t, "refused 5 keep|refused 6|begin 5 keep|");
	}
}

static void test_one_stream_at_once(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say_request(t, 2);
	say(t, FCGI_PARAMS, 1, "p");
	assert_true(record_append_end(&t->out, 2, 0, FCGI_CANT_MPX_CONN));
	expect(t, "begin 1 keep|refused 2 keep|params 1|p");
}

static void test_stream_limit(void **state)
{
	struct talk *t = *state;

	t->max_streams = 3;
	t->finish_on = 1u << MUX_STDIN_END;
	say_begin(t, 1, 1);
	say_begin(t, 2, 1);
	say_begin(t, 3, 1);
	say_begin(t, 4, 0);
	say(t, FCGI_PARAMS, 2, "");
	say(t, FCGI_STDIN, 2, "");
	say_begin(t, 4, 1);
	assert_true(record_append_end(&t->out, 4, 0, FCGI_OVERLOADED));
	expect(t, "begin 1 keep|begin 2 keep|begin 3 keep|refused 4|params-end 2|stdin-end 2|begin 4 keep|");
}

static void test_ids_not_open(void **state)
{
	struct talk *t = *state;

	for (uint16_t id = 2; id < 5; id++) {
		say(t, FCGI_PARAMS, id, "p");
		say(t, FCGI_PARAMS, id, "");
		say(t, FCGI_STDIN, id, "in");
		say(t, FCGI_STDIN, id, "");
		say(t, FCGI_DATA, id, "data");
		say(t, FCGI_ABORT_REQUEST, id, "");
	}
	say_begin(t, 1, 1);
	say(t, FCGI_STDIN, 2, "in");
	expect(t, "begin 1 keep|");
}

static void test_caller_does_not_open(void **state)
{
	struct talk *t = *state;

	t->not_opened = 3;
	say_request(t, 3);
	say_begin(t, 3, 0);
	say_begin(t, 4, 1);
	expect(t, "begin 3 keep|begin 3|begin 4 keep|");
}

static void test_params_after_end(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_PARAMS, 1, "");
	say(t, FCGI_PARAMS, 1, ""); /* ignored */
	say(t, FCGI_STDIN, 1, "in");
	say(t, FCGI_PARAMS, 1, ""); /* ignored */
	say(t, FCGI_STDIN, 1, "");
	say(t, FCGI_PARAMS, 1, ""); /* ignored */
	say(t, FCGI_PARAMS, 1, "p");
	expect(t, "begin 1 keep|params-end 1|stdin 1|instdin-end 1|bad: PARAMS after their end|");
}

static void test_params_during_stdin(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_PARAMS, 1, "");
	say(t, FCGI_PARAMS, 1, "p");
	expect(t, "begin 1 keep|params-end 1|bad: PARAMS after their end|");
}

static void test_stdin_before_params_end(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_PARAMS, 1, "p");
	say(t, FCGI_STDIN, 1, "in");
	expect(t, "begin 1 keep|params 1|pbad: STDIN before the end of PARAMS|");
	buf_reset(&t->in, SIZE_MAX);
	say_begin(t, 1, 1);
	say(t, FCGI_STDIN, 1, "");
	expect(t, "begin 1 keep|bad: STDIN before the end of PARAMS|");
}

static void test_stdin_after_end(void **state)
{
	struct talk *t = *state;

	say_request(t, 1);
	say(t, FCGI_STDIN, 1, ""); /* ignored */
	say(t, FCGI_STDIN, 1, "more");
	expect(t, "begin 1 keep|params 1|ppparams-end 1|stdin 1|instdin-end 1|bad: STDIN after its end|");
}

static void test_data_is_ignored(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_DATA, 1, "data");
	say(t, FCGI_PARAMS, 1, "p");
	say(t, FCGI_DATA, 1, "");
	say(t, FCGI_PARAMS, 1, "");
	expect(t, "begin 1 keep|params 1|pparams-end 1|");
}

static void test_abort(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_ABORT_REQUEST, 1, "");
	say(t, FCGI_PARAMS, 1, "p");                      /* still open: the caller decides */
	say(t, FCGI_ABORT_REQUEST, 1, "content, though"); /* told once */
	expect(t, "begin 1 keep|abort 1|params 1|pabort 1|");
	t->finish_on = 1u << MUX_ABORT;
	expect(t, "begin 1 keep|abort 1|");
}

/* What was passed over leaves nothing in the item of the next event. */
static void test_bad_version_after_an_abort(void **state)
{
	struct talk *t = *state;

	say_begin(t, 1, 1);
	say(t, FCGI_ABORT_REQUEST, 1, "content");
	assert_true(buf_append(&t->in, "\2\0\0\0\0\0\0", 8));
	expect(t, "begin 1 keep|abort 1|bad: not FastCGI version 1|");
}

static void test_responses_from_a_client(void **state)
{
	static const uint8_t types[] = {FCGI_END_REQUEST, FCGI_STDOUT, FCGI_STDERR, FCGI_GET_VALUES_RESULT,
	                                FCGI_UNKNOWN_TYPE};
	struct talk *t = *state;

	for (int i = 0; i < 10; i++) {
		buf_reset(&t->in, SIZE_MAX);
		say_begin(t, 1, 1);
		say(t, types[i / 2], i / 2 < 3 ? 1 : 0, i % 2 ? "12345678" : "");
		expect(t, "begin 1 keep|bad: a response record from a client|");
	}
}

static void test_unknown_types(void **state)
{
	static const uint8_t types[] = {0, 12, 128, 255};
	struct talk *t = *state;

	for (int i = 0; i < 4; i++) {
		const uint8_t body[8] = {types[i]};

		say(t, types[i], i % 2 ? 77 : 0, i < 2 ? "content to skip" : "");
		assert_true(record_append_stream(&t->out, FCGI_UNKNOWN_TYPE, 0, body, 8));
	}
	say_begin(t, 1, 1);
	expect(t, "reply 16|reply 32|reply 48|reply 64|begin 1 keep|");
}

/* A finished stream's record is ignored to its end, wherever it was cut. */
static void test_finish_inside_a_record(void **state)
{
	struct talk *t = *state;

	t->finish_on = 1u << MUX_PARAMS;
	say_request(t, 1);
	expect(t, "begin 1 keep|params 1|");
	t->finish_on = 1u << MUX_STDIN;
	expect(t, "begin 1 keep|params 1|ppparams-end 1|stdin 1|");
}

static void ask(struct buf *b, const char *name, const char *value)
{
	assert_true(params_append(b, name, strlen(name), value, strlen(value)));
}

static void say_values(struct talk *t, uint16_t id, struct buf *pairs)
{
	say_bytes(t, (struct record_header){FCGI_GET_VALUES, id, (uint16_t)buf_len(pairs), 5}, pairs->data);
	buf_fini(pairs);
}

static void answer_values(struct talk *t, struct buf *pairs)
{
	const struct record_header h = {FCGI_GET_VALUES_RESULT, 0, (uint16_t)buf_len(pairs), 0};
	uint8_t wire[RECORD_HEADER_LEN];

	record_header_encode(wire, &h);
	assert_true(buf_append(&t->out, wire, sizeof(wire)));
	assert_true(buf_append(&t->out, pairs->data, buf_len(pairs)));
	buf_fini(pairs);
}

static void test_get_values(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	ask(&pairs, FCGI_MPXS_CONNS, "");
	ask(&pairs, "FCGI_MAX_CONNSX", "");
	ask(&pairs, FCGI_MAX_REQS, "a value is not looked at");
	ask(&pairs, "", "");
	ask(&pairs, FCGI_MPXS_CONNS, ""); /* answered once */
	ask(&pairs, FCGI_MAX_CONNS, "");
	ask(&pairs, "fcgi_max_conns", "");
	ask(&pairs, FCGI_MAX_REQS, "");
	say_values(t, 0, &pairs);
	ask(&pairs, FCGI_MPXS_CONNS, "0");
	ask(&pairs, FCGI_MAX_REQS, "4000000000");
	ask(&pairs, FCGI_MAX_CONNS, "1000");
	answer_values(t, &pairs);
	expect(t, "reply 71|");
}

static void test_get_values_told_of_multiplexing(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	t->max_streams = 2;
	ask(&pairs, FCGI_MPXS_CONNS, "");
	say_values(t, 0, &pairs);
	ask(&pairs, FCGI_MPXS_CONNS, "1");
	answer_values(t, &pairs);
	say_begin(t, 1, 1);
	expect(t, "reply 26|begin 1 keep|");
}

static void test_get_values_of_nothing_known(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	say_values(t, 0, &pairs);
	answer_values(t, &pairs);
	ask(&pairs, "FCGI_SOMETHING", "");
	say_values(t, 0, &pairs);
	answer_values(t, &pairs);
	expect(t, "reply 8|reply 16|");
}

static void test_get_values_malformed(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	ask(&pairs, FCGI_MAX_CONNS, "");
	assert_true(buf_append(&pairs, "\x0e", 1));
	say_values(t, 0, &pairs);
	expect(t, "bad: malformed pairs in GET_VALUES|");
}

static void test_get_values_with_an_id(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	ask(&pairs, FCGI_MAX_CONNS, "");
	say_values(t, 1, &pairs);
	say_values(t, 1, &pairs);
	expect(t, "bad: GET_VALUES with a request id|");
}

static void test_get_values_too_large(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	for (int i = 0; i < 820; i++)
		ask(&pairs, "abc", "");
	say_values(t, 0, &pairs);
	expect(t, "bad: GET_VALUES asks for too much|");
}

/* The largest question, and that its memory is given back. */
static void test_get_values_memory(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};
	struct mux_log l;

	for (int i = 0; i < 819; i++)
		ask(&pairs, "abc", "");
	assert_int_equal(buf_len(&pairs), 4095);
	say_values(t, 0, &pairs);
	answer_values(t, &pairs);
	start(t, &l);
	mux_log_feed(&l, buf_head(&t->in), 4000);
	assert_true(l.mux.values.cap >= 4000 - RECORD_HEADER_LEN);
	mux_log_feed(&l, buf_head(&t->in) + 4000, buf_len(&t->in) - 4000);
	assert_null(l.mux.values.data);
	assert_int_equal(l.mux.values.cap, 0);
	buf_reset(&t->in, SIZE_MAX);
	ask(&pairs, FCGI_MAX_CONNS, "");
	say_values(t, 0, &pairs);
	ask(&pairs, FCGI_MAX_CONNS, "1000");
	answer_values(t, &pairs);
	mux_log_feed(&l, buf_head(&t->in), buf_len(&t->in));
	assert_null(l.mux.values.data);
	check(t, &l, "reply 8|reply 36|");
}

static void test_idle(void **state)
{
	struct talk *t = *state;
	struct mux_log l;

	t->finish_on = 1u << MUX_STDIN_END;
	say_request(t, 1);
	say(t, FCGI_STDIN, 1, "padded");
	start(t, &l);
	assert_true(mux_idle(&l.mux));
	for (size_t i = 0; i < buf_len(&t->in); i++) {
		/* Finished with the last byte of the empty STDIN. */
		assert_int_equal(mux_idle(&l.mux), i == 0 || i == buf_len(&t->in) - 16);
		mux_log_feed(&l, buf_head(&t->in) + i, 1);
	}
	assert_true(mux_idle(&l.mux));
	mux_log_fini(&l);
}

static void test_largest_record(void **state)
{
	struct talk *t = *state;
	char *content = calloc(1, RECORD_MAX_CONTENT);
	struct mux_log l;

	assert_non_null(content);
	memset(content, 'x', RECORD_MAX_CONTENT);
	say_begin(t, 1, 1);
	say(t, FCGI_PARAMS, 1, "");
	say_bytes(t, (struct record_header){FCGI_STDIN, 1, RECORD_MAX_CONTENT, RECORD_MAX_PADDING}, content);
	say(t, FCGI_STDIN, 1, "");
	start(t, &l);
	for (size_t at = 0; at < buf_len(&t->in); at += 4093)
		mux_log_feed(&l, buf_head(&t->in) + at, buf_len(&t->in) - at < 4093 ? buf_len(&t->in) - at : 4093);
	assert_int_equal(buf_len(&l.text),
	                 strlen("begin 1 keep|params-end 1|stdin 1|stdin-end 1|") + RECORD_MAX_CONTENT);
	mux_log_fini(&l);
	free(content);
}

static enum mux_event last_event(const struct talk *t, struct buf *out, const char **reason)
{
	const struct mux_limits limits = {.max_streams = 1};
	const uint8_t *in = buf_head(&t->in);
	size_t len = buf_len(&t->in);
	struct mux_item item;
	enum mux_event event;
	struct mux m;

	mux_init(&m, &limits);
	event = mux_next(&m, &in, &len, out, &item);
	*reason = item.reason;
	mux_fini(&m);
	return event;
}

static void test_out_of_memory(void **state)
{
	const struct buf full = {.end = SIZE_MAX, .cap = SIZE_MAX};
	struct talk *t = *state;
	struct buf out = full, pairs = {0};
	const char *reason;

	for (int i = 0; i < 4; i++) {
		buf_reset(&t->in, SIZE_MAX);
		if (i == 0)
			assert_true(record_append_begin(&t->in, 1, FCGI_FILTER, 0));
		else if (i == 1)
			say(t, 99, 0, "");
		else if (i == 2)
			ask(&pairs, FCGI_MAX_CONNS, "");
		if (i >= 2)
			say_values(t, 0, &pairs);
		assert_int_equal(last_event(t, &out, &reason), MUX_BAD);
		assert_string_equal(reason, "out of memory");
		assert_memory_equal(&out, &full, sizeof(out));
	}
}

/* What comes for an answered one is passed over, but for an abort. */
static void test_answered(void **state)
{
	struct talk *t = *state;

	t->max_streams = 3;
	t->answer_on = 1u << MUX_PARAMS_END;
	say_begin(t, 7, FCGI_KEEP_CONN);
	say(t, FCGI_PARAMS, 7, "pp");
	say(t, FCGI_PARAMS, 7, "");
	say(t, FCGI_PARAMS, 7, "late");
	say(t, FCGI_STDIN, 7, "body");
	say(t, FCGI_STDIN, 7, "");
	say(t, FCGI_STDIN, 7, "more");
	say(t, FCGI_ABORT_REQUEST, 7, "");
	expect(t, "begin 7 keep|params 7|pp" "params-end 7|abort 7|");
}

static void test_begin_waits_for_an_answered_id(void **state)
{
	struct talk *t = *state;

	t->max_streams = 2;
	t->answer_on = 1u << MUX_STDIN_END;
	say_request(t, 7);
	say_request(t, 7);
	say_begin(t, 9, 0);
	say_begin(t, 7, 0);
	expect(t, "begin 7 keep|params 7|pp" "params-end 7|stdin 7|in" "stdin-end 7|"
	          "wait 7|begin 7 keep|params 7|pp" "params-end 7|stdin 7|in" "stdin-end 7|"
	          "begin 9|wait 7|begin 7|");
}

/* The limit counts those that are answered and not yet all sent. */
static void test_answered_ones_count(void **state)
{
	struct talk *t = *state;

	t->max_streams = 1;
	t->answer_on = 1u << MUX_PARAMS_END;
	say_begin(t, 1, FCGI_KEEP_CONN);
	say(t, FCGI_PARAMS, 1, "");
	say_begin(t, 2, FCGI_KEEP_CONN);
	assert_true(record_append_end(&t->out, 2, 0, FCGI_CANT_MPX_CONN));
	expect(t, "begin 1 keep|params-end 1|refused 2 keep|");
}

static bool multiplexes(const struct talk *t)
{
	struct mux_log l;

	start(t, &l);
	mux_log_feed(&l, buf_head(&t->in), buf_len(&t->in));
	bool found = l.mux.multiplexes;
	mux_log_fini(&l);
	return found;
}

static void test_signs_of_multiplexing(void **state)
{
	struct talk *t = *state;
	struct buf pairs = {0};

	t->max_streams = 2;
	t->finish_on = 1u << MUX_STDIN_END;
	say_request(t, 1);
	say_request(t, 1);
	ask(&pairs, FCGI_MAX_CONNS, "");
	say_values(t, 0, &pairs); /* empties pairs */
	assert_false(multiplexes(t));
	say_request(t, 2);
	assert_true(multiplexes(t));
	buf_reset(&t->in, SIZE_MAX);
	say_begin(t, 1, 0);
	say_begin(t, 300, 0);
	assert_true(multiplexes(t));
	buf_reset(&t->in, SIZE_MAX);
	ask(&pairs, FCGI_MPXS_CONNS, "");
	say_values(t, 0, &pairs);
	assert_true(multiplexes(t));
	buf_fini(&pairs);
}

static void test_late_aborts_are_counted(void **state)
{
	const struct mux_limits limits = {.max_streams = 2};
	struct talk *t = *state;
	struct mux m;
	struct mux_item item;

	say(t, FCGI_ABORT_REQUEST, 5, "xx");
	say(t, FCGI_ABORT_REQUEST, 6, "");
	mux_init(&m, &limits);
	for (size_t i = 0; i < buf_len(&t->in); i++) {
		const uint8_t *in = buf_head(&t->in) + i;
		size_t len = 1;
		assert_int_equal(mux_next(&m, &in, &len, &t->out, &item), MUX_NEED_MORE);
	}
	assert_int_equal(m.late_aborts, 2);
	mux_fini(&m);
}

/* All ids open, found and closed in another order. */
static void test_every_id_at_one_time(void **state)
{
	enum { STEP = 40501 }; /* prime to 65535: every id once */
	const struct mux_limits limits = {.max_streams = 65535};
	struct mux_stream *streams = calloc(65536, sizeof *streams);
	struct talk *t = *state;
	struct mux_item item;
	struct mux m;

	mux_init(&m, &limits);
	for (uint32_t i = 0, id = 1; i < 65535; i++, id = (id + STEP - 1) % 65535 + 1) {
		assert_null(streams[id].node.next);
		mux_open(&m, &streams[id], (uint16_t)id);
	}
	assert_int_equal(m.stream_count, 65535);
	for (uint32_t id = 65535; id > 0; id--) {
		buf_reset(&t->in, SIZE_MAX);
		say(t, FCGI_ABORT_REQUEST, (uint16_t)id, "");
		const uint8_t *in = buf_head(&t->in);
		size_t len = buf_len(&t->in);
		assert_int_equal(mux_next(&m, &in, &len, &t->out, &item), MUX_ABORT);
		assert_ptr_equal(item.stream, &streams[id]);
		mux_finish(&m, item.stream);
	}
	assert_true(mux_idle(&m));
	mux_open(&m, &streams[9], 9);
	mux_fini(&m);
	assert_true(list_empty(&streams[9].node));
	free(streams);
}

static void test_finish_is_harmless_when_closed(void **state)
{
	const struct mux_limits limits = {.max_streams = 2};
	struct mux_stream never = {0}, a, b;
	struct mux m;

	(void)state;
	mux_init(&m, &limits);
	mux_finish(&m, &never);
	mux_open(&m, &a, 1);
	mux_open(&m, &b, 2);
	assert_int_equal(m.stream_count, 2);
	mux_finish(&m, &a);
	mux_finish(&m, &a);
	assert_int_equal(m.stream_count, 1);
	assert_false(mux_idle(&m));
	mux_fini(&m);
	assert_int_equal(m.stream_count, 0);
	mux_finish(&m, &b); /* forgotten by fini */
	assert_int_equal(m.stream_count, 0);
}

#define TALK(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TALK(test_one_request),
	        TALK(test_no_keep_conn),
	        TALK(test_streams_interleave),
	        TALK(test_version),
	        TALK(test_http_is_not_fastcgi),
	        TALK(test_id_0),
	        TALK(test_begin_length),
	        TALK(test_begin_twice),
	        TALK(test_begin_again_after_finish),
	        TALK(test_roles),
	        TALK(test_one_stream_at_once),
	        TALK(test_stream_limit),
	        TALK(test_ids_not_open),
	        TALK(test_caller_does_not_open),
	        TALK(test_params_after_end),
	        TALK(test_params_during_stdin),
	        TALK(test_stdin_before_params_end),
	        TALK(test_stdin_after_end),
	        TALK(test_data_is_ignored),
	        TALK(test_abort),
	        TALK(test_bad_version_after_an_abort),
	        TALK(test_responses_from_a_client),
	        TALK(test_unknown_types),
	        TALK(test_finish_inside_a_record),
	        TALK(test_get_values),
	        TALK(test_get_values_told_of_multiplexing),
	        TALK(test_get_values_of_nothing_known),
	        TALK(test_get_values_malformed),
	        TALK(test_get_values_with_an_id),
	        TALK(test_get_values_too_large),
	        TALK(test_get_values_memory),
	        TALK(test_idle),
	        TALK(test_largest_record),
	        TALK(test_out_of_memory),
	        TALK(test_answered),
	        TALK(test_begin_waits_for_an_answered_id),
	        TALK(test_answered_ones_count),
	        TALK(test_signs_of_multiplexing),
	        TALK(test_late_aborts_are_counted),
	        TALK(test_every_id_at_one_time),
	        cmocka_unit_test(test_finish_is_harmless_when_closed),
	};

	return cmocka_run_group_tests_name("mux", tests, NULL, NULL);
}

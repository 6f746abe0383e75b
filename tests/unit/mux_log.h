/* Drives a mux over bytes cut anywhere and writes what it said as text in
 * which the cuts cannot be seen: runs of data of one stream are joined. The
 * unit test compares such logs with expectations, the fuzz target compares
 * those of the same bytes cut differently. Every check is an abort(). */
#ifndef H2FPM_TESTS_MUX_LOG_H
#define H2FPM_TESTS_MUX_LOG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/mux.h"

enum { MUX_LOG_STREAMS = 8 };

struct mux_log {
	struct mux mux;
	struct mux_limits limits;
	struct mux_stream streams[MUX_LOG_STREAMS];
	struct buf out;
	struct buf text;
	/* The caller that is played: finishes a stream at these events (bits of
	 * 1u << enum mux_event), and does not open this id. */
	unsigned finish_on;
	/* The same for events at which it is answered; it is then finished when
	 * another one waits for its id. Not for those of data. */
	unsigned answer_on;
	uint16_t not_opened;
	bool bad;
	enum mux_event last;
	uint16_t last_id;
};

#define MUX_LOG_CHECK(cond)                                                                                            \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                     \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static void mux_log_init(struct mux_log *l, uint32_t max_streams)
{
	*l = (struct mux_log){.limits = {.max_conns = 1000, .max_reqs = 4000000000, .max_streams = max_streams}};
	MUX_LOG_CHECK(max_streams <= MUX_LOG_STREAMS);
	mux_init(&l->mux, &l->limits);
	for (int i = 0; i < MUX_LOG_STREAMS; i++)
		list_init(&l->streams[i].node);
}

static void mux_log_fini(struct mux_log *l)
{
	mux_fini(&l->mux);
	for (int i = 0; i < MUX_LOG_STREAMS; i++)
		MUX_LOG_CHECK(list_empty(&l->streams[i].node));
	buf_fini(&l->out);
	buf_fini(&l->text);
}

static void mux_log_text(struct mux_log *l, const void *data, size_t len)
{
	MUX_LOG_CHECK(buf_append(&l->text, data, len));
}

static void mux_log_entry(struct mux_log *l, enum mux_event event, const struct mux_item *item)
{
	static const char *const names[] = {"",          "begin", "params", "params-end", "stdin",
	                                    "stdin-end", "abort", "reply",  "refused",    "wait", "bad"};
	char line[160];

	if (event == MUX_BAD)
		snprintf(line, sizeof(line), "bad: %s|", item->reason);
	else if (event == MUX_REPLIED)
		snprintf(line, sizeof(line), "reply %zu|", buf_len(&l->out));
	else
		snprintf(line, sizeof(line), "%s %u%s|", names[event], item->id, item->keep_conn ? " keep" : "");
	mux_log_text(l, line, strlen(line));
}

static void mux_log_data(struct mux_log *l, enum mux_event event, const struct mux_item *item)
{
	if (l->last != event || l->last_id != item->id)
		mux_log_entry(l, event, item);
	/* How much came before the stream was finished depends on the cuts. */
	if (!(l->finish_on & 1u << event))
		mux_log_text(l, item->data, item->len);
}

static void mux_log_open(struct mux_log *l, uint16_t id)
{
	int i = 0;

	if (id == l->not_opened)
		return;
	while (!list_empty(&l->streams[i].node)) {
		i++;
		MUX_LOG_CHECK(i < MUX_LOG_STREAMS);
	}
	mux_open(&l->mux, &l->streams[i], id);
}

/* It comes until the stream that it waits for is finished. */
static void mux_log_wait(struct mux_log *l, uint16_t id)
{
	struct mux_item item;
	const uint8_t *in = NULL;
	size_t len = 0;
	int i = 0;

	MUX_LOG_CHECK(mux_is_waiting(&l->mux) && !mux_idle(&l->mux));
	MUX_LOG_CHECK(mux_next(&l->mux, &in, &len, &l->out, &item) == MUX_WAIT && item.id == id);
	while (list_empty(&l->streams[i].node) || l->streams[i].id != id)
		i++;
	MUX_LOG_CHECK(l->streams[i].input == MUX_INPUT_ANSWERED);
	mux_finish(&l->mux, &l->streams[i]);
	MUX_LOG_CHECK(!mux_is_waiting(&l->mux));
}

static void mux_log_event(struct mux_log *l, enum mux_event event, const struct mux_item *item)
{
	bool is_data = event == MUX_PARAMS || event == MUX_STDIN;
	bool has_stream = event >= MUX_PARAMS && event <= MUX_ABORT;

	MUX_LOG_CHECK(has_stream == (item->stream != NULL));
	MUX_LOG_CHECK(!has_stream || item->stream->id == item->id);
	MUX_LOG_CHECK(is_data == (item->len > 0));
	if (is_data)
		mux_log_data(l, event, item);
	else
		mux_log_entry(l, event, item);
	l->last = event;
	l->last_id = item->id;
	if (event == MUX_BEGIN)
		mux_log_open(l, item->id);
	if (has_stream && l->finish_on & 1u << event) {
		mux_finish(&l->mux, item->stream);
		mux_finish(&l->mux, item->stream);
	} else if (has_stream && l->answer_on & 1u << event) {
		mux_answered(item->stream);
	}
	if (event == MUX_WAIT)
		mux_log_wait(l, item->id);
	l->bad = event == MUX_BAD;
}

/* Feeds a copy of exactly len bytes, so that a sanitizer sees reads past it. */
static void mux_log_feed(struct mux_log *l, const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	const uint8_t *in = copy;
	struct mux_item item;
	enum mux_event event;
	size_t left = len;

	MUX_LOG_CHECK(copy);
	if (len > 0)
		memcpy(copy, data, len);
	while (!l->bad && (event = mux_next(&l->mux, &in, &left, &l->out, &item)) != MUX_NEED_MORE) {
		MUX_LOG_CHECK(in + left == copy + len);
		MUX_LOG_CHECK(item.len == 0 || (item.data >= copy && item.data + item.len == in));
		mux_log_event(l, event, &item);
	}
	MUX_LOG_CHECK(l->bad || left == 0);
	free(copy);
}

#endif

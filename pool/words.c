#include "pool/words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/broker.h"
#include "protocol/list.h"

/* At a time: one that talks without end, in lines of a byte each, must not keep
 * the others waiting. And at the end as much as a pipe holds. */
enum { READ_BYTES = 2048, LAST_READS = 65536 / READ_BYTES };

/* Each byte of a line may become \xHH. */
enum { ESCAPED_MAX = 4 * WORDS_MAX + 1 };

static const char between[] = " | ";
enum { BETWEEN_LEN = sizeof between - 1 };

/* ---- the lines kept ---- */

static void drop_oldest(struct words *words)
{
	size_t used = strlen(words->last);
	size_t gone = words->kept > 1 ? words->kept_len[0] + BETWEEN_LEN : used;

	memmove(words->last, words->last + gone, used - gone + 1);
	words->kept--;
	memmove(words->kept_len, words->kept_len + 1, words->kept * sizeof *words->kept_len);
}

static bool is_repeated(const struct words *words, const char *text, size_t len)
{
	return words->kept > 0 && words->kept_len[words->kept - 1] == len &&
	       memcmp(words->last + strlen(words->last) - len, text, len) == 0;
}

static void keep(struct words *words, const char *text)
{
	size_t len = strnlen(text, sizeof words->last - 1);

	if (!words->last[0])
		words->kept = 0; /* it has been cleared */
	if (len == 0 || is_repeated(words, text, len))
		return;
	while (words->kept == WORDS_KEPT_LINES ||
	       (words->kept > 0 && strlen(words->last) + BETWEEN_LEN + len >= sizeof words->last))
		drop_oldest(words);
	size_t used = strlen(words->last);
	snprintf(words->last + used, sizeof words->last - used, "%s%.*s", words->kept > 0 ? between : "", (int)len,
		 text);
	words->kept_len[words->kept++] = len;
}

/* ---- what is read ---- */

static void log_undecorated(const char *text)
{
	char line[ESCAPED_MAX + 1];
	int len = snprintf(line, sizeof line, "%s\n", text);
	(void)log_raw(log_fd(), line, (size_t)len);
}

static void on_line(struct words *words)
{
	const struct pool_settings *s = words->broker->settings;
	char text[ESCAPED_MAX];

	log_escape(text, sizeof text, words->line, words->line_len);
	words->line_len = 0;
	keep(words, text);
	if (!s->catch_workers_output || !text[0])
		return;
	if (s->decorate_workers_output)
		log_warning("child %d said into stderr: \"%s\"", (int)words->pid, text);
	else
		log_undecorated(text);
}

static void on_bytes(struct words *words, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n' || words->line_len == sizeof words->line)
			on_line(words);
		if (data[i] != '\n')
			words->line[words->line_len++] = (char)data[i];
	}
}

/* False: nothing more now. */
static bool read_some(struct words *words)
{
	struct broker *b = words->broker;
	ssize_t n = read(words->fd, b->scratch, READ_BYTES);

	if (n > 0)
		on_bytes(words, b->scratch, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		ev_io_stop(b->loop, &words->io);
	return n > 0;
}

static void on_words_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	(void)loop, (void)events;
	(void)read_some(container_of(io, struct words, io));
}

void words_init(struct words *words, struct broker *b, pid_t pid, int fd)
{
	words->broker = b;
	words->pid = pid;
	words->fd = fd;
	words_clear(words);
	words->kept = 0;
	words->line_len = 0;
	ev_io_init(&words->io, on_words_readable, fd, EV_READ);
	ev_io_start(b->loop, &words->io);
}

void words_fini(struct words *words)
{
	/* A descendant may hold the pipe and go on writing: read what is there now. */
	for (int i = 0; i < LAST_READS && ev_is_active(&words->io) && read_some(words); i++) {
	}
	if (words->line_len > 0)
		on_line(words);
	ev_io_stop(words->broker->loop, &words->io);
	close(words->fd);
}

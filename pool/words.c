#include "pool/words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "pool/broker.h"
#include "protocol/list.h"

/* At a time: one that talks without end, in lines of a byte each, must not keep
 * the others waiting. And at the end as much as a pipe holds. */
enum { READ_BYTES = 2048, LAST_READS = 65536 / READ_BYTES };

static void log_undecorated(const char *text)
{
	char line[WORDS_MAX + 2];
	int len = snprintf(line, sizeof line, "%s\n", text);
	(void)log_raw(log_fd(), line, (size_t)len);
}

static void on_line(struct words *words)
{
	const struct pool_settings *s = words->broker->settings;

	log_escape(words->last, sizeof words->last, words->line, words->line_len);
	words->line_len = 0;
	if (!s->catch_workers_output || !words->last[0])
		return;
	if (s->decorate_workers_output)
		log_warning("child %d said into stderr: \"%s\"", (int)words->pid, words->last);
	else
		log_undecorated(words->last);
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
	words->last[0] = '\0';
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

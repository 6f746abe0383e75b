#include "fpm/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A line with its newline is at most PIPE_BUF bytes: the kernel never mixes
 * such a write with another process's, and after POLLOUT a pipe takes it. */
enum { LINE_MAX_BYTES = 4096, SCOPE_MAX_BYTES = 128 };

static struct {
	int fd;
	int echo_fd;
	enum log_level level;
	char scope[SCOPE_MAX_BYTES];
	uint64_t dropped;
} state = {.fd = STDERR_FILENO, .echo_fd = -1, .level = LOG_LEVEL_NOTICE};

static const char *const level_names[] = {
	[LOG_LEVEL_DEBUG] = "DEBUG", [LOG_LEVEL_NOTICE] = "NOTICE", [LOG_LEVEL_WARNING] = "WARNING",
	[LOG_LEVEL_ERROR] = "ERROR", [LOG_LEVEL_ALERT] = "ALERT",
};

void log_to(int fd)
{
	state.fd = fd;
}

int log_fd(void)
{
	return state.fd;
}

void log_echo(int fd)
{
	state.echo_fd = fd;
}

void log_set_level(enum log_level level)
{
	state.level = level;
}

void log_set_scope(const char *scope)
{
	snprintf(state.scope, sizeof(state.scope), "%s", scope != NULL ? scope : "");
}

uint64_t log_dropped(void)
{
	return state.dropped;
}

/* Regular files are always writable, so asking costs them one cheap call. */
static bool can_write(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) == POLLOUT;
}

static bool write_whole(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n;

		if (!can_write(fd))
			return false;
		n = write(fd, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* How much of the chunk goes into one write: whole lines while they fit. */
static size_t raw_step(const char *lines, size_t len)
{
	const char *end;

	if (len <= LINE_MAX_BYTES)
		return len;
	end = memrchr(lines, '\n', LINE_MAX_BYTES);
	return end != NULL ? (size_t)(end - lines) + 1 : LINE_MAX_BYTES;
}

bool log_raw(int fd, const void *lines, size_t len)
{
	const char *at = lines;

	while (len > 0) {
		size_t step = raw_step(at, len);

		if (!write_whole(fd, at, step)) {
			state.dropped++;
			return false;
		}
		at += step;
		len -= step;
	}
	return true;
}

static size_t put_prefix(char *line, size_t size, enum log_level level)
{
	time_t now = time(NULL);
	struct tm tm;
	size_t len = 0;
	int n;

	if (localtime_r(&now, &tm) != NULL)
		len = strftime(line, size, "[%d-%b-%Y %H:%M:%S] ", &tm);
	n = snprintf(line + len, size - len, "%s: %s%s%s", level_names[level], state.scope[0] ? "[" : "", state.scope,
		     state.scope[0] ? "] " : "");
	return len + (n > 0 ? (size_t)n : 0);
}

/* A message is one line, whatever is in it. */
static void flatten(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\n' || text[i] == '\r')
			text[i] = ' ';
	}
}

__attribute__((format(printf, 3, 0))) static void write_line(enum log_level level, const char *suffix,
							     const char *format, va_list args)
{
	char line[LINE_MAX_BYTES + 1];
	size_t prefix = put_prefix(line, sizeof(line), level);
	/* the newline and the suffix come behind whatever is cut */
	size_t room = LINE_MAX_BYTES - 1 - strlen(suffix) - prefix;
	int n = vsnprintf(line + prefix, room + 1, format, args);
	size_t len = n > 0 ? (size_t)n : 0;

	if (len > room) {
		len = room;
		memcpy(line + prefix + len - 3, "...", 3);
	}
	flatten(line + prefix, len);
	len += prefix;
	len += (size_t)snprintf(line + len, sizeof(line) - len, "%s\n", suffix);
	if (!write_whole(state.fd, line, len))
		state.dropped++;
	if (state.echo_fd >= 0 && level >= LOG_LEVEL_WARNING && !write_whole(state.echo_fd, line, len))
		state.dropped++;
}

void log_write(enum log_level level, const char *format, ...)
{
	int saved_errno = errno;
	va_list args;

	if (level < state.level)
		return;
	va_start(args, format);
	write_line(level, "", format, args);
	va_end(args);
	errno = saved_errno;
}

static int64_t monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void log_limited(struct log_gate *gate, int64_t interval_ms, enum log_level level, const char *format, ...)
{
	int saved_errno = errno;
	int64_t now_ms;
	char suffix[64] = "";
	va_list args;

	if (level < state.level)
		return;
	now_ms = monotonic_ms();
	if (now_ms < gate->open_at_ms) {
		gate->suppressed++;
		return;
	}
	if (gate->suppressed > 0)
		snprintf(suffix, sizeof(suffix), " (%" PRIu64 " more like this left out)", gate->suppressed);
	gate->suppressed = 0;
	gate->open_at_ms = now_ms + interval_ms;
	va_start(args, format);
	write_line(level, suffix, format, args);
	va_end(args);
	errno = saved_errno;
}

const char *log_escape(char *out, size_t size, const void *text, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *in = text;
	size_t at = 0;

	for (size_t i = 0; i < len; i++) {
		/* A backslash too, else "\x0a" typed and "\n" sent look alike. */
		bool plain = in[i] >= 0x20 && in[i] <= 0x7e && in[i] != '\\';

		if (at + (plain ? 1 : 4) >= size)
			break;
		if (plain) {
			out[at++] = (char)in[i];
			continue;
		}
		out[at++] = '\\';
		out[at++] = 'x';
		out[at++] = hex[in[i] >> 4];
		out[at++] = hex[in[i] & 15];
	}
	out[at] = '\0';
	return out;
}

/* A worker that speaks FastCGI as bytes on descriptor 0's listening socket,
 * for what libfcgi is too polite to do. It answers GET_VALUES as a worker
 * must (unless its mode is to be silent), reads one whole request, and then
 * misbehaves as argv[1] says:
 *     good          "good" and END_REQUEST, the connection stays open
 *     close         closes without a byte
 *     exit          exits with status 3 without a byte
 *     half          the first bytes of an answer's record, then closes
 *     halfheader    four bytes of a header, then closes
 *     garbage       bytes that are no FastCGI
 *     version       a record of FastCGI version 2
 *     endonly       END_REQUEST without a STDOUT record
 *     short         an answer without END_REQUEST, then closes
 *     otherid       an answer for another request id
 *     overloaded    END_REQUEST with FCGI_OVERLOADED
 *     lingering     ends STDOUT, lives on, ends the request a second later
 *     pieces        a good answer, one byte a write
 *     padded        a good answer in records with padding
 *     early         answers and ends before it has read the request
 *     chatty        a good answer, then records nobody asked for
 *     lastwords     stops itself; when it goes on the same, and exits at once
 *     mute          answers no probe and no request
 *     deaf          answers the probe, never a request
 * A mode with "-once" behind it misbehaves only while the file argv[2] does not
 * exist, which it makes: in one answer of one worker, and is good from then on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fastcgi.h>

struct script {
	const char *mode;
	const char *flag_file;
	bool once;
};

struct record {
	uint8_t type;
	uint16_t id;
	uint16_t content_len;
	uint8_t content[65535 + 255];
};

static bool read_all(int fd, void *to, size_t len)
{
	uint8_t *at = to;

	while (len > 0) {
		ssize_t n = read(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t len)
{
	const uint8_t *at = from;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool read_record(int fd, struct record *r)
{
	uint8_t h[8];

	if (!read_all(fd, h, sizeof(h)))
		return false;
	r->type = h[1];
	r->id = (uint16_t)(h[2] << 8 | h[3]);
	r->content_len = (uint16_t)(h[4] << 8 | h[5]);
	return read_all(fd, r->content, (size_t)r->content_len + h[6]);
}

static size_t put_record(uint8_t *to, uint8_t type, uint16_t id, const void *content, uint16_t len, uint8_t padding)
{
	const uint8_t h[8] = { 1, type, (uint8_t)(id >> 8), (uint8_t)id, (uint8_t)(len >> 8), (uint8_t)len, padding, 0 };

	memcpy(to, h, sizeof(h));
	if (len > 0)
		memcpy(to + sizeof(h), content, len);
	memset(to + sizeof(h) + len, 0, padding);
	return sizeof(h) + len + padding;
}

/* A whole answer with END_REQUEST; returns its length. */
static size_t put_answer(uint8_t *to, uint16_t id, const char *text, uint8_t padding)
{
	const uint8_t end[8] = { 0 };
	size_t len = put_record(to, FCGI_STDOUT, id, text, (uint16_t)strlen(text), padding);

	len += put_record(to + len, FCGI_STDOUT, id, NULL, 0, padding);
	return len + put_record(to + len, FCGI_END_REQUEST, id, end, sizeof(end), padding);
}

static const char good_text[] = "Content-Type: text/plain\r\n\r\ngood";

static bool send_values(int fd)
{
	static const char pairs[] = "\017\001FCGI_MPXS_CONNS0";
	uint8_t out[64];

	return write_all(fd, out, put_record(out, FCGI_GET_VALUES_RESULT, 0, pairs, sizeof(pairs) - 1, 0));
}

static bool answer_in_pieces(int fd, uint16_t id)
{
	uint8_t out[256];
	size_t len = put_answer(out, id, good_text, 3);

	for (size_t i = 0; i < len; i++)
		if (!write_all(fd, out + i, 1) || usleep(200) != 0)
			return false;
	return true;
}

static bool linger(int fd, uint16_t id)
{
	static const uint8_t end[8] = { 0 };
	uint8_t out[256];
	size_t len = put_record(out, FCGI_STDOUT, id, good_text, sizeof(good_text) - 1, 0);

	len += put_record(out + len, FCGI_STDOUT, id, NULL, 0, 0);
	if (!write_all(fd, out, len))
		return false;
	sleep(1);
	return write_all(fd, out, put_record(out, FCGI_END_REQUEST, id, end, sizeof(end), 0));
}

/* Answers as the mode says; false: the connection is to be closed. */
static bool answer(int fd, uint16_t id, const char *mode)
{
	static const uint8_t end[8] = { 0 };
	static const uint8_t overloaded[8] = { 0, 0, 0, 0, FCGI_OVERLOADED };
	uint8_t out[2048];
	size_t len;

	if (strcmp(mode, "close") == 0)
		return false;
	if (strcmp(mode, "exit") == 0)
		exit(3);
	if (strcmp(mode, "deaf") == 0)
		return pause() == 0;
	if (strcmp(mode, "pieces") == 0)
		return answer_in_pieces(fd, id);
	if (strcmp(mode, "lingering") == 0)
		return linger(fd, id);
	if (strcmp(mode, "lastwords") == 0)
		raise(SIGSTOP);

	len = put_answer(out, id, good_text, strcmp(mode, "padded") == 0 ? 255 : 0);
	if (strcmp(mode, "half") == 0)
		return write_all(fd, out, 20) && false;
	if (strcmp(mode, "halfheader") == 0)
		return write_all(fd, out, 4) && false;
	if (strcmp(mode, "short") == 0)
		return write_all(fd, out, len - 24) && false;
	if (strcmp(mode, "garbage") == 0)
		memset(out, 0xee, len);
	else if (strcmp(mode, "version") == 0)
		out[0] = 2;
	else if (strcmp(mode, "endonly") == 0)
		len = put_record(out, FCGI_END_REQUEST, id, end, sizeof(end), 0);
	else if (strcmp(mode, "overloaded") == 0)
		len = put_record(out, FCGI_END_REQUEST, id, overloaded, sizeof(overloaded), 0);
	else if (strcmp(mode, "otherid") == 0)
		len = put_answer(out, (uint16_t)(id + 1), good_text, 0);
	else if (strcmp(mode, "chatty") == 0 || strcmp(mode, "lastwords") == 0)
		len += put_answer(out + len, id, "unasked", 0);
	if (!write_all(fd, out, len))
		return false;
	if (strcmp(mode, "lastwords") == 0)
		exit(3);
	return true;
}

/* The mode for this time: "good" when it is to misbehave once and did. */
static const char *mode_now(const struct script *script)
{
	int fd;

	if (!script->once)
		return script->mode;
	fd = open(script->flag_file, O_CREAT | O_EXCL | O_WRONLY, 0600);
	if (fd < 0)
		return "good";
	close(fd);
	return script->mode;
}

static void serve(int fd, const struct script *script)
{
	static struct record r;
	const bool early = strcmp(script->mode, "early") == 0;

	while (read_record(fd, &r)) {
		const uint8_t when = early ? FCGI_BEGIN_REQUEST : FCGI_STDIN;

		if (r.type == FCGI_GET_VALUES && !send_values(fd))
			return;
		if (r.type == when && (early || r.content_len == 0) && !answer(fd, r.id, mode_now(script)))
			return;
	}
}

/* Answers nothing for ever, but in a later process of "mute-once". */
static void be_mute(const struct script *script)
{
	if (strcmp(mode_now(script), "mute") == 0)
		for (;;)
			pause();
}

int main(int argc, char **argv)
{
	struct script script;
	char *once;

	if (argc < 3) {
		fprintf(stderr, "usage: raw MODE FLAG-FILE\n");
		return 64;
	}
	signal(SIGPIPE, SIG_IGN);
	once = strstr(argv[1], "-once");
	script = (struct script){ .mode = argv[1], .flag_file = argv[2], .once = once != NULL };
	if (once != NULL)
		*once = '\0';
	if (strcmp(script.mode, "mute") == 0)
		be_mute(&script);
	for (;;) {
		int fd = accept(0, NULL, NULL);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			return 1;
		}
		serve(fd, &script);
		close(fd);
	}
}

/* A crowd of clients: many multiplexed FastCGI connections, on each many
 * requests at one time, with random ids, bodies and aborts, their records
 * interleaved at random. Every request carries a mark, and its answer (from
 * www/crowd.php) must be of that mark alone, whole, and in order. Whatever is
 * lost, doubled, mixed up, or against FastCGI 1.0 ends it with a message and
 * status 1; else it says in one line of JSON what it did.
 *
 *     crowd -a SOCKET|HOST:PORT -s SCRIPT [-c CONNECTIONS] [-m STREAMS] [-n REQUESTS]
 *           [-A ABORTED_PERCENT] [-B BODY_PERCENT] [-z ANSWER_BYTES] [-S SEED] */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <fastcgi.h>

enum {
	HEADER = 8,
	OUT_BYTES = 1 << 17,
	OUT_ENOUGH = 1 << 15, /* written ahead */
	IN_BYTES = 1 << 18,
	BLOCK_BYTES = 2048,
	BODY_MAX = 200000,
	PIECE_MAX = 30000,
	HEADERS_MAX = 512,
	MARK = 16, /* digits */
	STALL_MS = 60000,
};

enum phase { BEGIN, PARAMS, BODY, SENT };
enum abort_when { NEVER, AFTER_BEGIN, AFTER_PARAMS, AFTER_BODY, AFTER_ANSWER, ABORTS };

struct stream {
	uint16_t id;
	enum phase phase;
	enum abort_when abort_when;
	bool aborted;
	char mark[MARK + 1];
	uint8_t block[BLOCK_BYTES];
	size_t block_len, block_sent, body_len, body_sent, size;
	uint32_t body_crc;
	bool saw_end; /* of STDOUT */
	char head[HEADERS_MAX];
	size_t head_len;
	bool in_body;
	size_t answer_at; /* bytes of the answer's body so far */
	char line[80];
	size_t line_len;
	double began;
};

struct conn {
	int fd;
	struct stream **open; /* in any order */
	int open_count;
	struct stream *by_id[65536];
	uint8_t out[OUT_BYTES];
	size_t out_start, out_end;
	uint8_t in[IN_BYTES];
	size_t in_len;
};

static const char *address, *script;
static int conn_count = 4, stream_max = 32, abort_percent, body_percent;
static long total = 1000, begun, answered, aborted;
static size_t size_max = 2000;
static uint64_t dice = 88172645463325252u;
static float *times_ms;
static uint32_t crc_table[256];

static uint32_t roll(uint32_t sides)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)(dice >> 32) % sides;
}

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- requests ---- */

static void put_pair(struct stream *s, const char *name, const char *value)
{
	size_t name_len = strlen(name), value_len = strlen(value);
	uint8_t *at = s->block + s->block_len;

	if (s->block_len + name_len + value_len + 8 > sizeof s->block)
		fail("the parameters do not fit");
	*at++ = (uint8_t)name_len;
	if (value_len > 127) {
		*at++ = (uint8_t)(value_len >> 24 | 0x80);
		*at++ = (uint8_t)(value_len >> 16);
		*at++ = (uint8_t)(value_len >> 8);
	}
	*at++ = (uint8_t)value_len;
	memcpy(at, name, name_len);
	memcpy(at + name_len, value, value_len);
	s->block_len = (size_t)(at + name_len + value_len - s->block);
}

static uint32_t crc32_of_mark(const char *mark, size_t len)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < len; i++)
		crc = crc_table[(crc ^ (uint8_t)mark[i % MARK]) & 0xff] ^ crc >> 8;
	return crc ^ 0xffffffffu;
}

static void put_params(struct stream *s)
{
	char query[80], length[24], uri[128];

	snprintf(query, sizeof query, "m=%s&n=%zu", s->mark, s->size);
	snprintf(uri, sizeof uri, "/crowd.php?%s", query);
	snprintf(length, sizeof length, "%zu", s->body_len);
	put_pair(s, "REQUEST_METHOD", s->body_len > 0 ? "POST" : "GET");
	put_pair(s, "SCRIPT_FILENAME", script);
	put_pair(s, "SCRIPT_NAME", "/crowd.php");
	put_pair(s, "REQUEST_URI", uri);
	put_pair(s, "QUERY_STRING", query);
	put_pair(s, "REMOTE_ADDR", "127.0.0.1");
	put_pair(s, "SERVER_PROTOCOL", "HTTP/2.0");
	if (s->body_len > 0) {
		put_pair(s, "CONTENT_LENGTH", length);
		put_pair(s, "CONTENT_TYPE", "application/octet-stream");
	}
}

static void open_stream(struct conn *c)
{
	struct stream *s = calloc(1, sizeof *s);

	if (!s)
		fail("no memory");
	do
		s->id = (uint16_t)(1 + roll(65535));
	while (c->by_id[s->id]);
	snprintf(s->mark, sizeof s->mark, "%08x%08lx", roll(UINT32_MAX), (unsigned long)(begun++ & 0xffffffff));
	s->size = roll((uint32_t)size_max + 1);
	if ((int)roll(100) < body_percent)
		s->body_len = 1 + roll(BODY_MAX);
	if ((int)roll(1000) < abort_percent * 10)
		s->abort_when = (enum abort_when)(1 + roll(ABORTS - 1));
	s->body_crc = crc32_of_mark(s->mark, s->body_len);
	s->line_len = (size_t)snprintf(s->line, sizeof s->line, "%s %zu %zu %08x\n", s->mark, s->size, s->body_len,
				       s->body_crc);
	put_params(s);
	s->began = now();
	c->by_id[s->id] = s;
	c->open[c->open_count++] = s;
}

static uint8_t *put_header(struct conn *c, uint8_t type, uint16_t id, size_t len)
{
	uint8_t *at = c->out + c->out_end;
	uint8_t padding = len > 0 && roll(4) == 0 ? (uint8_t)roll(8) : 0;

	if (c->out_end + HEADER + len + padding > OUT_BYTES)
		fail("the output is too small");
	memcpy(at, (uint8_t[]){1, type, (uint8_t)(id >> 8), (uint8_t)id, (uint8_t)(len >> 8), (uint8_t)len, padding, 0},
	       HEADER);
	memset(at + HEADER + len, 0, padding);
	c->out_end += HEADER + len + padding;
	return at + HEADER;
}

static void send_abort(struct conn *c, struct stream *s)
{
	put_header(c, FCGI_ABORT_REQUEST, s->id, 0);
	s->aborted = true;
	s->phase = SENT;
}

static size_t piece(size_t left)
{
	size_t n = 1 + roll(roll(4) ? PIECE_MAX : 40);
	return n < left ? n : left;
}

static void enter(struct conn *c, struct stream *s, enum phase phase, enum abort_when abort_when)
{
	s->phase = phase;
	if (s->abort_when == abort_when)
		send_abort(c, s);
}

static void send_record(struct conn *c, struct stream *s)
{
	size_t n;

	switch (s->phase) {
	case BEGIN:
		memcpy(put_header(c, FCGI_BEGIN_REQUEST, s->id, 8), (uint8_t[8]){0, FCGI_RESPONDER, FCGI_KEEP_CONN}, 8);
		enter(c, s, PARAMS, AFTER_BEGIN);
		break;
	case PARAMS:
		n = piece(s->block_len - s->block_sent);
		memcpy(put_header(c, FCGI_PARAMS, s->id, n), s->block + s->block_sent, n);
		s->block_sent += n;
		if (n == 0)
			enter(c, s, BODY, AFTER_PARAMS);
		break;
	case BODY: {
		n = piece(s->body_len - s->body_sent);
		uint8_t *at = put_header(c, FCGI_STDIN, s->id, n);
		for (size_t i = 0; i < n; i++)
			at[i] = (uint8_t)s->mark[(s->body_sent + i) % MARK];
		s->body_sent += n;
		if (n == 0)
			enter(c, s, SENT, AFTER_BODY);
		break;
	}
	default:
		break;
	}
}

/* One that has something to send, any of them; NULL: none has. */
static struct stream *pick(const struct conn *c)
{
	uint32_t first = roll((uint32_t)c->open_count);

	for (int i = 0; i < c->open_count; i++) {
		struct stream *s = c->open[(first + (uint32_t)i) % (uint32_t)c->open_count];
		if (s->phase != SENT)
			return s;
	}
	return NULL;
}

/* Some records of some streams, as much as may be written ahead. */
static void fill(struct conn *c)
{
	struct stream *s = NULL;

	if (c->out_start == c->out_end)
		c->out_start = c->out_end = 0;
	while (c->out_end < OUT_ENOUGH) {
		bool may_open = c->open_count < stream_max && begun < total;
		if (may_open && (!s || roll(3) == 0))
			open_stream(c);
		s = c->open_count > 0 ? pick(c) : NULL;
		if (!s && (c->open_count == stream_max || begun == total))
			return;
		if (s)
			send_record(c, s);
	}
}

/* ---- answers ---- */

static void check_body(const struct stream *s, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		size_t at = s->answer_at + i;
		char wanted = at < s->line_len ? s->line[at] : s->mark[(at - s->line_len) % MARK];
		if ((char)data[i] != wanted)
			fail("id %u, mark %s: a wrong byte at %zu", s->id, s->mark, at);
	}
	if (s->answer_at + len > s->line_len + s->size)
		fail("id %u, mark %s: too long an answer", s->id, s->mark);
}

static void on_stdout(struct stream *s, const uint8_t *data, size_t len)
{
	if (s->saw_end)
		fail("id %u: STDOUT after its end", s->id);
	if (len == 0)
		s->saw_end = true;
	while (!s->in_body && len > 0) {
		if (s->head_len == sizeof s->head - 1)
			fail("id %u: too long a header", s->id);
		s->head[s->head_len++] = (char)*data++;
		len--;
		s->in_body = s->head_len >= 4 && memcmp(s->head + s->head_len - 4, "\r\n\r\n", 4) == 0;
	}
	if (s->in_body && strncasecmp(s->head, "Status:", 7) == 0)
		fail("id %u, mark %s: %.60s", s->id, s->mark, s->head);
	check_body(s, data, len);
	s->answer_at += len;
}

static void close_stream(struct conn *c, struct stream *s)
{
	int i = 0;

	while (c->open[i] != s)
		i++;
	c->open[i] = c->open[--c->open_count];
	c->by_id[s->id] = NULL;
	free(s);
}

static void on_end(struct conn *c, struct stream *s, const uint8_t *body, size_t len)
{
	static const uint8_t good[8];
	bool whole = s->saw_end && s->in_body && s->answer_at == s->line_len + s->size;

	if (len != 8 || memcmp(body, good, 5) != 0)
		fail("id %u, mark %s: END_REQUEST says %u", s->id, s->mark, len == 8 ? body[4] : 99);
	if (!whole && !s->aborted)
		fail("id %u, mark %s: %zu of %zu bytes, then END_REQUEST", s->id, s->mark, s->answer_at,
		     s->line_len + s->size);
	if (whole)
		times_ms[answered++] = (float)((now() - s->began) * 1e3);
	else
		aborted++;
	close_stream(c, s);
}

static void on_record(struct conn *c, const uint8_t *r, size_t len)
{
	uint16_t id = (uint16_t)(r[2] << 8 | r[3]);
	struct stream *s = c->by_id[id];

	if (!s || s->phase == BEGIN)
		fail("a record of type %u for id %u, which is not open", r[1], id);
	if (r[1] == FCGI_STDOUT) {
		on_stdout(s, r + HEADER, len);
		if (s->abort_when == AFTER_ANSWER && !s->aborted && s->phase == SENT)
			send_abort(c, s);
	} else if (r[1] == FCGI_END_REQUEST) {
		on_end(c, s, r + HEADER, len);
	} else {
		fail("a record of type %u", r[1]);
	}
}

static void take(struct conn *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_len, IN_BYTES - c->in_len, MSG_DONTWAIT);
	size_t at = 0;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		fail("the connection was closed with %d requests open", c->open_count);
	c->in_len += (size_t)n;
	while (c->in_len - at >= HEADER) {
		const uint8_t *r = c->in + at;
		size_t len = (size_t)(r[4] << 8 | r[5]);
		if (r[0] != 1)
			fail("a record of version %u", r[0]);
		if (c->in_len - at < HEADER + len + r[6])
			break;
		on_record(c, r, len);
		at += HEADER + len + r[6];
	}
	c->in_len -= at;
	memmove(c->in, c->in + at, c->in_len);
}

/* True when all was taken. */
static bool give(struct conn *c)
{
	ssize_t n = send(c->fd, c->out + c->out_start, c->out_end - c->out_start, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN)
		fail("cannot send: %s", strerror(errno));
	if (n > 0)
		c->out_start += (size_t)n;
	return c->out_start == c->out_end;
}

/* ---- all of them ---- */

static int connect_to(void)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in inet = {.sin_family = AF_INET};
	const char *colon = strrchr(address, ':');
	bool is_path = address[0] == '/';
	int fd = socket(is_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int bad;

	if (is_path) {
		snprintf(local.sun_path, sizeof local.sun_path, "%s", address);
		bad = connect(fd, (struct sockaddr *)&local, sizeof local);
	} else {
		inet.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : ""));
		inet_pton(AF_INET, "127.0.0.1", &inet.sin_addr);
		bad = connect(fd, (struct sockaddr *)&inet, sizeof inet);
	}
	if (bad)
		fail("cannot connect to %s: %s", address, strerror(errno));
	return fd;
}

static bool turn(struct conn **conns, struct pollfd *polls)
{
	bool any = false;

	for (int i = 0; i < conn_count; i++) {
		struct conn *c = conns[i];
		fill(c);
		while (c->out_start < c->out_end && give(c))
			fill(c);
		polls[i] = (struct pollfd){.fd = c->fd, .events = POLLIN};
		if (c->out_start < c->out_end)
			polls[i].events |= POLLOUT;
		any |= c->open_count > 0 || c->out_start < c->out_end;
	}
	if (!any)
		return false;
	if (poll(polls, (nfds_t)conn_count, STALL_MS) == 0)
		fail("nothing came for a minute; %ld requests begun, %ld answered, %ld aborted", begun, answered, aborted);
	for (int i = 0; i < conn_count; i++)
		if (polls[i].revents & ~POLLOUT)
			take(conns[i]);
	return true;
}

static int by_time(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void options(int argc, char **argv)
{
	for (int option; (option = getopt(argc, argv, "a:s:c:m:n:A:B:z:S:")) != -1;) {
		long n = optarg ? atol(optarg) : 0;
		switch (option) {
		case 'a': address = optarg; break;
		case 's': script = optarg; break;
		case 'c': conn_count = (int)n; break;
		case 'm': stream_max = (int)n; break;
		case 'n': total = n; break;
		case 'A': abort_percent = (int)n; break;
		case 'B': body_percent = (int)n; break;
		case 'z': size_max = (size_t)n; break;
		case 'S': dice += (uint64_t)n << 1; break;
		default: exit(64);
		}
	}
	if (!address || !script || conn_count < 1 || stream_max < 1 || total < 1)
		fail("usage: see the head of this file");
}

int main(int argc, char **argv)
{
	struct conn **conns;
	struct pollfd *polls;

	options(argc, argv);
	for (uint32_t i = 0; i < 256; i++) {
		crc_table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0xedb88320u : 0);
	}
	conns = calloc((size_t)conn_count, sizeof *conns);
	polls = calloc((size_t)conn_count, sizeof *polls);
	times_ms = calloc((size_t)total, sizeof *times_ms);
	for (int i = 0; i < conn_count; i++) {
		conns[i] = calloc(1, sizeof **conns);
		conns[i]->open = calloc((size_t)stream_max, sizeof *conns[i]->open);
		conns[i]->fd = connect_to();
	}
	double began = now();
	while (turn(conns, polls)) {
	}
	double seconds = now() - began;
	if (answered + aborted != total)
		fail("%ld answered and %ld aborted of %ld", answered, aborted, total);
	qsort(times_ms, (size_t)answered, sizeof *times_ms, by_time);
	printf("{\"requests\": %ld, \"answered\": %ld, \"aborted\": %ld, \"seconds\": %.3f, \"req_s\": %.0f, "
	       "\"median_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n",
	       total, answered, aborted, seconds, (double)total / seconds, (double)times_ms[answered / 2],
	       (double)times_ms[answered * 99 / 100], (double)times_ms[answered > 0 ? answered - 1 : 0]);
	return 0;
}

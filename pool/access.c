#include "pool/access.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fpm/log.h"

/* One element of a format: a literal byte, or %{argument}code. */
struct element {
	char code; /* 0: literal */
	char literal;
	struct slice argument;
};

/* Parses the element at *at and advances; NULL or what is wrong. */
static const char *next_element(const char **at, struct element *e)
{
	*e = (struct element){0};
	if (**at != '%') {
		e->literal = *(*at)++;
		return NULL;
	}
	(*at)++;
	if (**at == '{') {
		const char *end = strchr(*at, '}');
		if (!end)
			return "'%{' without '}'";
		e->argument = (struct slice){*at + 1, (size_t)(end - *at - 1)};
		*at = end + 1;
	}
	if (!**at)
		return "it ends in '%'";
	e->code = *(*at)++;
	return NULL;
}

/* php-fpm's names of units, in any case of letters. */
static bool unit_is(struct slice unit, const char *name)
{
	return unit.len == strlen(name) && strncasecmp(unit.at, name, unit.len) == 0;
}

static bool is_milliseconds(struct slice unit)
{
	return unit_is(unit, "milliseconds") || unit_is(unit, "milli") || unit_is(unit, "mili");
}

static bool is_microseconds(struct slice unit)
{
	return unit_is(unit, "microseconds") || unit_is(unit, "micro");
}

static bool known_unit(struct slice unit)
{
	return unit.len == 0 || unit_is(unit, "seconds") || is_milliseconds(unit) || is_microseconds(unit);
}

static const char *check_element(const struct element *e)
{
	switch (e->code) {
	case 'C':
	case 'M':
	case 'o':
		return "%C, %M and %{}o are not supported by this version";
	case 'd':
	case 'W':
		return known_unit(e->argument) ? NULL : "%d and %W take seconds, milliseconds or microseconds";
	case 'e':
		return e->argument.at && e->argument.len ? NULL : "%e needs a name: %{NAME}e";
	case 't':
	case 'T':
		return e->argument.len < 128 ? NULL : "the time format is too long";
	default:
		if (e->code && !strchr("%flmnpPqQrRsu", e->code))
			return "unknown code (see h2fpm.conf(5))";
		return e->argument.at ? "only %d, %W, %e, %t and %T take {}" : NULL;
	}
}

const char *access_format_check(const char *format)
{
	struct element e;
	const char *wrong = NULL;

	while (*format && !wrong) {
		wrong = next_element(&format, &e);
		if (!wrong)
			wrong = check_element(&e);
	}
	return wrong;
}

static bool append_slice(struct buf *out, struct slice s, const char *absent)
{
	char escaped[2048];

	if (!s.at || s.len == 0)
		return buf_append(out, absent, strlen(absent));
	log_escape(escaped, sizeof escaped, s.at, s.len);
	return buf_append(out, escaped, strlen(escaped));
}

static bool append_number(struct buf *out, int64_t n)
{
	char text[32];
	return buf_append(out, text, (size_t)snprintf(text, sizeof text, "%" PRId64, n));
}

/* php-fpm writes three decimals, whatever the unit; micro- without any. */
static bool append_duration(struct buf *out, int64_t us, struct slice unit)
{
	char text[48];
	int len;

	if (is_microseconds(unit))
		len = snprintf(text, sizeof text, "%" PRId64, us);
	else if (is_milliseconds(unit))
		len = snprintf(text, sizeof text, "%.3f", (double)us / 1e3);
	else
		len = snprintf(text, sizeof text, "%.3f", (double)us / 1e6);
	return buf_append(out, text, (size_t)len);
}

static bool append_time(struct buf *out, time_t when, struct slice argument)
{
	char format[128], text[256];
	struct tm tm;

	if (argument.len > 0)
		snprintf(format, sizeof format, "%.*s", (int)argument.len, argument.at);
	else
		strcpy(format, "%d/%b/%Y:%H:%M:%S %z");
	localtime_r(&when, &tm);
	size_t len = strftime(text, sizeof text, format, &tm);
	return append_slice(out, (struct slice){text, len}, "");
}

static struct slice find_param(const struct access_record *r, struct slice name)
{
	struct params_iter it;
	struct param p;
	struct slice found = {0};

	params_iter_init(&it, r->params, r->params_len);
	while (params_next(&it, &p) == PARAMS_PAIR) {
		if (name.len > 0 && p.name_len == name.len && memcmp(p.name, name.at, name.len) == 0)
			found = (struct slice){(const char *)p.value, p.value_len};
	}
	return found;
}

static int base64_digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* The user's name of "Basic …" credentials, read as leniently as PHP does.
 * Absent where there is no such header, or no colon behind the name. */
static struct slice basic_user(struct slice header, char *out, size_t size)
{
	unsigned bits = 0, count = 0;
	size_t len = 0;

	if (header.len < 6 || strncasecmp(header.at, "Basic ", 6) != 0)
		return (struct slice){0};
	for (size_t i = 6; i < header.len && len < size; i++) {
		int digit = base64_digit(header.at[i]);
		if (digit < 0)
			continue;
		bits = bits << 6 | (unsigned)digit;
		count += 6;
		if (count < 8)
			continue;
		count -= 8;
		out[len] = (char)(bits >> count & 0xff);
		if (out[len] == ':')
			return (struct slice){out, len};
		len++;
	}
	return (struct slice){0};
}

/* php-fpm knows the user of Basic credentials alone. What the front end says
 * comes first: it has checked. */
static bool append_user(struct buf *out, const struct access_record *r)
{
	static const struct slice authorization = {"HTTP_AUTHORIZATION", 18};
	struct slice user = r->meta->of[META_REMOTE_USER];
	char decoded[512];

	if (user.len == 0)
		user = basic_user(find_param(r, authorization), decoded, sizeof decoded);
	return append_slice(out, user, "");
}

static bool append_element(struct buf *out, const struct element *e, const struct access_record *r)
{
	const struct slice *of = r->meta->of;

	switch (e->code) {
	case 0:
		return buf_append(out, &e->literal, 1);
	case '%':
		return buf_append(out, "%", 1);
	case 'd':
		return append_duration(out, r->run_us, e->argument);
	case 'W':
		return append_duration(out, r->wait_us, e->argument);
	case 'e':
		return append_slice(out, find_param(r, e->argument), "-");
	case 'f':
		return append_slice(out, of[META_SCRIPT_FILENAME], "-");
	case 'l':
		return append_number(out, r->content_length);
	case 'm':
		return append_slice(out, of[META_REQUEST_METHOD], "-");
	case 'n':
		return buf_append(out, r->pool, strlen(r->pool));
	case 'p':
		return append_number(out, r->pid);
	case 'P':
		return append_number(out, r->parent_pid);
	case 'q':
		return append_slice(out, of[META_QUERY_STRING], "");
	case 'Q':
		return buf_append(out, "?", of[META_QUERY_STRING].len ? 1 : 0);
	case 'r':
		return append_slice(out, of[META_SCRIPT_NAME], "");
	case 'R':
		return append_slice(out, of[META_REMOTE_ADDR], "-");
	case 's':
		return append_number(out, r->status);
	case 't':
		return append_time(out, r->begun, e->argument);
	case 'T':
		return append_time(out, r->written, e->argument);
	case 'u':
		return append_user(out, r);
	default:
		return true; /* refused by access_format_check() */
	}
}

bool access_append(struct buf *out, const char *format, const struct access_record *record)
{
	struct element e;

	while (*format) {
		if (next_element(&format, &e))
			break;
		if (!append_element(out, &e, record))
			return false;
	}
	return buf_append(out, "\n", 1);
}

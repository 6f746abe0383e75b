#include "fpm/conf_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct text {
	const char *at; /* the raw value not yet read */
	const char *pool;
	const char *problem;
	struct conf_text *result;
	char *out;
	size_t len;
	size_t cap;
	size_t keep; /* bytes that trimming must leave */
};

static bool fail(struct text *t, const char *problem)
{
	t->problem = problem;
	return false;
}

static bool append(struct text *t, const char *bytes, size_t n)
{
	if (n > CONF_TEXT_MAX - t->len)
		return fail(t, "the value is longer than 64 KiB");
	if (t->len + n + 1 > t->cap) {
		size_t cap = 2 * (t->len + n) + 64;
		char *out = realloc(t->out, cap);
		if (!out)
			return fail(t, "out of memory");
		t->out = out;
		t->cap = cap;
	}
	memcpy(t->out + t->len, bytes, n);
	t->len += n;
	t->out[t->len] = '\0';
	return true;
}

static bool append_kept(struct text *t, const char *bytes, size_t n)
{
	if (!append(t, bytes, n))
		return false;
	t->keep = t->len;
	return true;
}

/* ${NAME} or ${NAME:-default}; as in php-fpm (and unlike a shell) the default
 * is for an undefined NAME, not for an empty one. */
static bool read_variable(struct text *t)
{
	const char *name = t->at + 2;
	const char *end = strchr(name, '}');
	char key[128];

	if (!end)
		return fail(t, "the } of ${ is missing");
	size_t name_len = strcspn(name, ":}");
	const char *fallback = name + name_len;
	size_t fallback_len = 0;
	if (*fallback == ':') {
		if (fallback[1] != '-')
			return fail(t, "a variable is written ${NAME} or ${NAME:-default}");
		fallback += 2;
		fallback_len = (size_t)(end - fallback);
	}
	if (!name_len || name_len >= sizeof(key))
		return fail(t, "a variable is written ${NAME} or ${NAME:-default}");
	memcpy(key, name, name_len);
	key[name_len] = '\0';
	t->at = end + 1;
	const char *value = getenv(key);
	if (!value)
		return append_kept(t, fallback, fallback_len);
	return append_kept(t, value, strlen(value));
}

static bool read_dollar(struct text *t)
{
	if (t->at[1] == '{')
		return read_variable(t);
	if (t->pool && strncmp(t->at, "$pool", 5) == 0) {
		t->at += 5;
		return append_kept(t, t->pool, strlen(t->pool));
	}
	return append_kept(t, t->at++, 1);
}

static bool read_single(struct text *t)
{
	const char *start = t->at + 1;
	const char *end = strchr(start, '\'');

	if (!end)
		return fail(t, "the closing ' is missing");
	t->at = end + 1;
	t->result->quoted = true;
	t->result->verbatim = true;
	return append_kept(t, start, (size_t)(end - start));
}

static bool read_double(struct text *t)
{
	t->at++;
	t->result->quoted = true;
	while (*t->at != '"') {
		bool ok;
		if (!*t->at)
			return fail(t, "the closing \" is missing");
		if (*t->at == '\\' && t->at[1] && strchr("\"\\$", t->at[1])) {
			ok = append_kept(t, t->at + 1, 1);
			t->at += 2;
		} else if (*t->at == '$') {
			ok = read_dollar(t);
		} else {
			ok = append_kept(t, t->at++, 1);
		}
		if (!ok)
			return false;
	}
	t->at++;
	t->keep = t->len;
	return true;
}

static bool read_piece(struct text *t, bool in_word)
{
	char c = *t->at;

	if (c == '"')
		return read_double(t);
	if (c == '\'' && !in_word) /* it's is no opening quote */
		return read_single(t);
	if (c == '$')
		return read_dollar(t);
	t->at++;
	if (!isspace((unsigned char)c))
		return append_kept(t, &c, 1);
	return t->len == 0 && !t->result->quoted ? true : append(t, &c, 1);
}

static bool read_pieces(struct text *t)
{
	bool in_word = false;

	while (*t->at && *t->at != ';') {
		char c = *t->at;
		if (!read_piece(t, in_word))
			return false;
		in_word = c != '"' && !(c == '\'' && !in_word) && !isspace((unsigned char)c);
	}
	t->len = t->keep;
	return append(t, "", 0);
}

static bool has_control(const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return true;
	}
	return false;
}

bool conf_text_read(const char *raw, const char *pool, struct conf_text *out, const char **problem)
{
	struct text t = {.at = raw, .pool = pool, .result = out};

	memset(out, 0, sizeof(*out));
	if (read_pieces(&t)) {
		if (has_control(t.out))
			t.problem = "the value holds a control character";
	}
	if (t.problem) {
		free(t.out);
		*problem = t.problem;
		return false;
	}
	out->value = t.out;
	return true;
}

/* Single quotes keep everything but themselves; those go between double
 * quotes, beside the rest: 'it'"'"'s'. */
void conf_text_write(const char *value, FILE *out)
{
	if (!*value)
		fputs("''", out);
	while (*value) {
		char quote = *value == '\'' ? '"' : '\'';
		size_t n = quote == '"' ? strspn(value, "'") : strcspn(value, "'");

		fprintf(out, "%c%.*s%c", quote, (int)n, value, quote);
		value += n;
	}
}

#include "fpm/conf_ini.h"

#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const struct conf_ini_visitor *visitor;
	const char *at; /* the text not yet read */
	size_t left;
	int line;
	/* What inih is given next: pieces of the current line, checked. */
	const char *ready;
	size_t ready_left;
	bool end_line; /* a newline follows the piece */
	bool mark;     /* then the entry without a name that marks a new section */
	char header[CONF_INI_SECTION_MAX + 4];
};

static void complain(struct reader *r, const char *what)
{
	r->visitor->problem(r->visitor->context, r->line, what);
}

static bool is_blank(char c)
{
	return isspace((unsigned char)c) != 0;
}

static void trim(const char **at, size_t *len)
{
	while (*len && is_blank(**at)) {
		(*at)++;
		(*len)--;
	}
	while (*len && is_blank((*at)[*len - 1]))
		(*len)--;
}

/* The section is opened under the best name there is whatever is wrong with
 * its line, so that the entries below are not taken for another section's. */
static void offer_section(struct reader *r, const char *at, size_t len)
{
	const char *close = memchr(at, ']', len);
	const char *name = at + 1;
	size_t name_len = (close ? (size_t)(close - at) : len) - 1;

	trim(&name, &name_len);
	if (!close) {
		complain(r, "the section's closing ] is missing");
	} else {
		const char *rest = close + 1;
		size_t rest_len = len - (size_t)(rest - at);
		trim(&rest, &rest_len);
		if (rest_len && *rest != ';')
			complain(r, "text after the section's closing ]");
	}
	if (!name_len) {
		complain(r, "a section without a name");
		name = "?";
		name_len = 1;
	} else if (name_len > CONF_INI_SECTION_MAX) {
		complain(r, "the section's name is longer than 48 bytes");
		name_len = CONF_INI_SECTION_MAX;
	}
	r->header[0] = '[';
	memcpy(r->header + 1, name, name_len);
	r->header[name_len + 1] = ']';
	r->ready = r->header;
	r->ready_left = name_len + 2;
	r->end_line = true;
	r->mark = true;
}

static void offer_entry(struct reader *r, const char *at, size_t len)
{
	size_t name_len = 0;
	bool colon = false;

	while (name_len < len && at[name_len] != '=' && at[name_len] != ';') {
		colon = colon || at[name_len] == ':';
		name_len++;
	}
	if (name_len == len || at[name_len] == ';') {
		complain(r, "no '=' in this line: a directive is name = value");
	} else if (name_len == 0) {
		complain(r, "no name before the '='");
	} else if (name_len > CONF_INI_NAME_MAX) {
		complain(r, "the name before the '=' is longer than 256 bytes");
	} else if (colon) {
		complain(r, "a name cannot hold ':' (a directive is name = value)");
	} else {
		r->ready = at;
		r->ready_left = len;
		r->end_line = true;
	}
}

/* Looks at one line; leaves nothing ready when inih need not see it. */
static void offer_line(struct reader *r, const char *at, size_t len)
{
	if (memchr(at, '\0', len)) {
		complain(r, "a NUL byte in this line");
		return;
	}
	if (len > CONF_INI_LINE_MAX) {
		complain(r, "this line is longer than 1 MiB");
		return;
	}
	trim(&at, &len);
	if (!len || *at == ';' || *at == '#')
		return;
	if (*at == '[')
		offer_section(r, at, len);
	else
		offer_entry(r, at, len);
}

static bool next_line(struct reader *r)
{
	while (!r->ready_left && !r->end_line) {
		if (!r->left)
			return false;
		const char *at = r->at;
		const char *newline = memchr(at, '\n', r->left);
		size_t len = newline ? (size_t)(newline - at) : r->left;
		size_t used = newline ? len + 1 : len;

		r->at += used;
		r->left -= used;
		r->line++;
		offer_line(r, at, len);
	}
	return true;
}

/* inih's fgets. It is asked for one line at a time and the handler is called
 * before the next, so r->line is the handler's line too. */
static char *on_read(char *out, int size, void *context)
{
	struct reader *r = context;

	if (size < 2 || !next_line(r))
		return NULL;
	size_t n = (size_t)size - 1 < r->ready_left ? (size_t)size - 1 : r->ready_left;
	memcpy(out, r->ready, n);
	r->ready += n;
	r->ready_left -= n;
	if (!r->ready_left && n < (size_t)size - 1) {
		out[n++] = '\n';
		r->end_line = r->mark;
		if (r->mark) {
			r->ready = "=";
			r->ready_left = 1;
			r->mark = false;
		}
	}
	out[n] = '\0';
	return out;
}

static int on_entry(void *context, const char *section, const char *name, const char *value)
{
	struct reader *r = context;

	if (*name)
		r->visitor->entry(r->visitor->context, r->line, name, value);
	else
		r->visitor->section(r->visitor->context, r->line, section);
	return 1;
}

int conf_ini_read(const char *text, size_t len, const struct conf_ini_visitor *visitor)
{
	struct reader r = {.visitor = visitor, .at = text, .left = len};

	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		r.at += 3;
		r.left -= 3;
	}
	ini_use_stack = false;
	ini_allow_realloc = true;
	ini_max_line = CONF_INI_LINE_MAX + 4;
	ini_allow_inline_comments = false;
	ini_allow_multiline = false;
	if (ini_parse_stream(on_read, &r, on_entry, &r) == -2)
		return -1;
	return r.line;
}

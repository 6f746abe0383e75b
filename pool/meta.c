#include "pool/meta.h"

#include <stdio.h>
#include <string.h>

#include "fpm/log.h"

static const char *const names[META_COUNT] = {
	[META_REQUEST_METHOD] = "REQUEST_METHOD",
	[META_REQUEST_URI] = "REQUEST_URI",
	[META_SCRIPT_NAME] = "SCRIPT_NAME",
	[META_SCRIPT_FILENAME] = "SCRIPT_FILENAME",
	[META_PATH_TRANSLATED] = "PATH_TRANSLATED",
	[META_PATH_INFO] = "PATH_INFO",
	[META_REDIRECT_URL] = "REDIRECT_URL",
	[META_QUERY_STRING] = "QUERY_STRING",
	[META_CONTENT_LENGTH] = "CONTENT_LENGTH",
	[META_REMOTE_ADDR] = "REMOTE_ADDR",
	[META_REMOTE_PORT] = "REMOTE_PORT",
	[META_REMOTE_USER] = "REMOTE_USER",
};

static bool name_is(const struct param *p, const char *name, size_t len)
{
	return p->name_len == len && memcmp(p->name, name, len) == 0;
}

static int meta_find(const struct param *p)
{
	if (p->name_len < 9 || p->name_len > 15) /* the shortest and the longest of names */
		return -1;
	for (int i = 0; i < META_COUNT; i++) {
		if (p->name[0] == (uint8_t)names[i][0] && name_is(p, names[i], strlen(names[i])))
			return i;
	}
	return -1;
}

/* As php-cgi's atol() would read it, but garbage is refused. */
static const char *parse_length(struct meta *meta)
{
	struct slice s = meta->of[META_CONTENT_LENGTH];

	meta->content_length = -1;
	if (!s.at || s.len == 0)
		return NULL;
	if (s.len > 18)
		return "CONTENT_LENGTH is too long";
	int64_t value = 0;
	for (size_t i = 0; i < s.len; i++) {
		if (s.at[i] < '0' || s.at[i] > '9')
			return "CONTENT_LENGTH is not a number";
		value = value * 10 + (s.at[i] - '0');
	}
	meta->content_length = value;
	return NULL;
}

const char *meta_parse(struct meta *meta, const void *block, size_t len)
{
	struct params_iter it;
	struct param p;
	enum params_result result;

	memset(meta, 0, sizeof *meta);
	params_iter_init(&it, block, len);
	while ((result = params_next(&it, &p)) == PARAMS_PAIR) {
		int i = meta_find(&p);
		if (i < 0)
			continue;
		/* PHP sees a C string: what follows a NUL would be judged, but not run. */
		if (memchr(p.value, 0, p.value_len))
			return "a parameter holds a NUL byte";
		meta->of[i] = (struct slice){(const char *)p.value, p.value_len};
	}
	if (result == PARAMS_TRUNCATED)
		return "the parameters end inside a name-value pair";
	return parse_length(meta);
}

bool slice_is(struct slice s, const char *text)
{
	return s.at && s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

bool meta_is_reserved(const struct param *p)
{
	switch (p->name_len ? p->name[0] : 0) {
	case 'H':
		return name_is(p, "HTTP_PROXY", 10) || (p->name_len >= 6 && memcmp(p->name, "H2FPM_", 6) == 0);
	case 'P':
		return name_is(p, "PHP_VALUE", 9) || name_is(p, "PHP_ADMIN_VALUE", 15);
	default:
		return false;
	}
}

bool meta_is_safe_method(const struct meta *meta)
{
	struct slice method = meta->of[META_REQUEST_METHOD];
	return slice_is(method, "GET") || slice_is(method, "HEAD") || slice_is(method, "OPTIONS");
}

const char *meta_describe(const struct meta *meta, char *out, size_t size)
{
	char method[32], uri[512];
	struct slice m = meta->of[META_REQUEST_METHOD];
	struct slice u = meta->of[META_REQUEST_URI];

	if (!u.at)
		u = meta->of[META_SCRIPT_NAME];
	snprintf(out, size, "%s %s", log_escape(method, sizeof method, m.at ? m.at : "-", m.at ? m.len : 1),
		 log_escape(uri, sizeof uri, u.at ? u.at : "-", u.at ? u.len : 1));
	return out;
}

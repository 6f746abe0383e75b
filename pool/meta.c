#include "pool/meta.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

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

/* As php-cgi's atol() would read it, but garbage is refused. Caddy says -1 where
 * the browser has not told. */
static const char *parse_length(struct meta *meta)
{
	struct slice s = meta->of[META_CONTENT_LENGTH];

	meta->content_length = -1;
	if (!s.at || s.len == 0 || slice_is(s, "-1"))
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

static struct slice slice_from(struct slice s, size_t start)
{
	return (struct slice){s.at + start, s.len - start};
}

/* Apache's "proxy:fcgi://host:port/path?query", read as php-fpm reads it: it is
 * the path that is run. */
static void cut_proxy_url(struct meta *meta)
{
	static const char *const schemes[] = {"proxy:fcgi://", "proxy:balancer://"};
	struct slice *file = &meta->of[META_SCRIPT_FILENAME];

	for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
		size_t len = strlen(schemes[i]);
		if (file->len < len || strncasecmp(file->at, schemes[i], len) != 0)
			continue;
		const char *path = memchr(file->at + len, '/', file->len - len);
		meta->by_apache = path != NULL;
		if (path)
			*file = slice_from(*file, (size_t)(path - file->at));
		const char *query = memchr(file->at, '?', file->len);
		if (query)
			file->len = (size_t)(query - file->at);
		return;
	}
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
	cut_proxy_url(meta);
	return parse_length(meta);
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)((at - digits) % 16) : -1;
}

/* Where s ends in what the percent-encoded tail means, that part's length in s; else 0. */
static size_t decoded_tail(struct slice s, struct slice tail)
{
	size_t left = s.len;

	for (size_t i = tail.len; i > 0; i--, left--) {
		char c = tail.at[i - 1];
		int high = i > 2 && tail.at[i - 3] == '%' ? hex_digit(tail.at[i - 2]) : -1;
		int low = hex_digit(c);
		if (high >= 0 && low >= 0) {
			c = (char)(high << 4 | low);
			i -= 2;
		}
		if (left == 0 || s.at[left - 1] != c)
			return 0;
	}
	return s.len - left;
}

static bool ends_in(struct slice s, struct slice tail)
{
	return s.len >= tail.len && memcmp(s.at + s.len - tail.len, tail.at, tail.len) == 0;
}

/* Apache decodes SCRIPT_NAME, but not what ProxyPass makes of SCRIPT_FILENAME. */
void meta_cut_script_name(struct meta *meta, struct slice path_info)
{
	struct slice *name = &meta->of[META_SCRIPT_NAME];
	size_t cut;

	if (!name->at || !path_info.at)
		return;
	cut = ends_in(*name, path_info) ? path_info.len : decoded_tail(*name, path_info);
	if (cut < name->len)
		name->len -= cut;
}

bool meta_is_script(const struct param *p)
{
	return name_is(p, "SCRIPT_FILENAME", 15);
}

struct param meta_amended(const struct meta *meta, const struct param *p)
{
	const struct slice *s = NULL;

	if (meta->by_apache && meta_is_script(p))
		s = &meta->of[META_SCRIPT_FILENAME];
	if (meta->by_apache && name_is(p, "SCRIPT_NAME", 11))
		s = &meta->of[META_SCRIPT_NAME];
	return s ? (struct param){p->name, p->name_len, (const uint8_t *)s->at, s->len} : *p;
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

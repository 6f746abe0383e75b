/* What the broker itself needs of a request's parameters, found in one walk.
 * As in php-fpm, the last of several parameters of one name counts. Slices
 * point into the parameter block, which must stay in place. Pure. */
#ifndef H2FPM_POOL_META_H
#define H2FPM_POOL_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/params.h"

struct slice {
	const char *at; /* NULL: the parameter is absent. Not terminated. */
	size_t len;
};

enum meta_name {
	META_REQUEST_METHOD,
	META_REQUEST_URI,
	META_SCRIPT_NAME,
	META_SCRIPT_FILENAME,
	META_PATH_TRANSLATED,
	META_PATH_INFO,
	META_REDIRECT_URL,
	META_QUERY_STRING,
	META_CONTENT_LENGTH,
	META_REMOTE_ADDR,
	META_REMOTE_PORT,
	META_REMOTE_USER,
	META_COUNT,
};

struct meta {
	struct slice of[META_COUNT];
	bool by_apache; /* its mod_proxy put a URL in front of SCRIPT_FILENAME, which is cut off here */
	struct slice script_tail; /* what is written behind SCRIPT_FILENAME for PHP to cut off again */
	int64_t content_length; /* -1: absent, empty or -1 */
};

/* NULL, or what is wrong with the block: a constant text. */
const char *meta_parse(struct meta *meta, const void *block, size_t len) __attribute__((warn_unused_result));
bool slice_is(struct slice s, const char *text);
/* With by_apache: the script was found without the last part of its name, which
 * is its PATH_INFO; what ProxyPass sends has it in SCRIPT_NAME, too. */
void meta_cut_script_name(struct meta *meta, struct slice path_info);
/* What is to be passed on of a parameter: with by_apache SCRIPT_FILENAME and
 * SCRIPT_NAME are as in meta, not as in the block. */
struct param meta_amended(const struct meta *meta, const struct param *param);
bool meta_is_script(const struct param *param);
/* True for a parameter that a worker must not get from a front end:
 * HTTP_PROXY (the header that would redirect a script's own requests),
 * PHP_VALUE and PHP_ADMIN_VALUE, and the names that the broker sets. */
bool meta_is_reserved(const struct param *param);
/* GET, HEAD, OPTIONS: may be run a second time (RFC 9110, section 9.2.1). */
bool meta_is_safe_method(const struct meta *meta);
/* "GET /uri" for logs, escaped and terminated; returns out. */
const char *meta_describe(const struct meta *meta, char *out, size_t size);

#endif

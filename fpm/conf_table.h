/* The table of directives: every fact about each one, once. Reading, checking,
 * dumping, the man page and the documentation test all walk it. A constant. */
#ifndef H2FPM_FPM_CONF_TABLE_H
#define H2FPM_FPM_CONF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fpm/conf.h"

enum conf_type {
	CONF_STRING,
	CONF_BOOL,
	CONF_INT,
	CONF_SIZE,  /* bytes */
	CONF_TIME,  /* milliseconds */
	CONF_MODE,  /* octal */
	CONF_WORD,  /* one of words[] */
	CONF_PAIRS, /* name[key] = value */
	CONF_FLAGS, /* the same with a boolean value, kept as 1 or 0 */
};

enum conf_flag {
	CONF_MANDATORY = 1,
	CONF_EMPTY_COUNTS = 2, /* an empty string is a value; elsewhere it means unset */
	CONF_ADMIN = 4,        /* pairs: php_admin_* */
	CONF_PHP = 8,          /* pairs: PHP's settings rather than the environment */
	CONF_CAN_BE_UNSET = 16, /* numbers: without a default; the field is "unset" then */
};

enum { CONF_TABLE_MAX = 96 }; /* directives, at most */

struct conf_word {
	const char *word; /* NULL ends the list */
	int value;
};

/* NULL, or a constant text that says what would be right. */
typedef const char *conf_check_fn(const char *value);

struct conf_directive {
	struct conf_description text;
	enum conf_type type;
	size_t offset; /* in struct global_settings or struct pool_settings */
	int64_t min;
	int64_t max;
	int64_t unset;
	unsigned int flags; /* enum conf_flag */
	const struct conf_word *words; /* also for numbers: what is accepted beside them */
	conf_check_fn *check; /* strings only */
};

/* i from 0 until NULL. */
const struct conf_directive *conf_table_get(size_t i);
size_t conf_table_count(void);
bool conf_table_is_global(const struct conf_directive *d);
/* name is without a [key]; NULL: there is none in that section. */
const struct conf_directive *conf_table_find(bool global, const char *name);
/* True for what php-fpm knows and this version does not. */
bool conf_table_is_later(const char *name);
/* The name in the section that a mistyped one is nearest to, or NULL
 * (conf_suggest.c). */
const char *conf_table_suggest(bool global, const char *name);
/* Whether a section's name could be a mistyped "global". */
bool conf_table_is_near_global(const char *section);

#endif

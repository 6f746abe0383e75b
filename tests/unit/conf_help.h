/* What the tests of the configuration share: problems collected as lines, and
 * a comparison of two configurations value by value. */
#ifndef H2FPM_TESTS_CONF_HELP_H
#define H2FPM_TESTS_CONF_HELP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fpm/conf.h"
#include "fpm/conf_table.h"

struct told {
	char text[65536]; /* each line with a newline behind it */
	size_t len;
};

static inline void told_add(void *context, const char *line)
{
	struct told *told = context;
	int n = snprintf(told->text + told->len, sizeof(told->text) - told->len, "%s\n", line);

	if (n > 0 && (size_t)n < sizeof(told->text) - told->len)
		told->len += (size_t)n;
}

static inline bool strings_equal(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static inline bool pairs_equal(const struct setting_pairs *a, const struct setting_pairs *b)
{
	bool equal = a->count == b->count;

	for (size_t i = 0; equal && i < a->count; i++)
		equal = strings_equal(a->items[i].name, b->items[i].name) &&
		        strings_equal(a->items[i].value, b->items[i].value) && a->items[i].admin == b->items[i].admin;
	return equal;
}

static inline bool fields_equal(const struct conf_directive *d, const void *a, const void *b)
{
	const void *left = (const char *)a + d->offset;
	const void *right = (const char *)b + d->offset;

	switch (d->type) {
	case CONF_STRING:
		return strings_equal(*(char *const *)left, *(char *const *)right);
	case CONF_BOOL:
		return *(const bool *)left == *(const bool *)right;
	case CONF_PAIRS:
	case CONF_FLAGS:
		return pairs_equal(left, right);
	default:
		return memcmp(left, right, sizeof(int64_t)) == 0;
	}
}

/* The name of the first directive whose values differ; NULL: none. */
static inline const char *conf_difference(const struct conf *a, const struct conf *b)
{
	const struct conf_directive *d;

	if (a->pool_count != b->pool_count)
		return "the number of pools";
	for (size_t i = 0; (d = conf_table_get(i)); i++) {
		if (conf_table_is_global(d)) {
			if (!fields_equal(d, &a->global, &b->global))
				return d->text.name;
			continue;
		}
		for (size_t p = 0; p < a->pool_count; p++)
			if (!fields_equal(d, a->pools[p], b->pools[p]))
				return d->text.name;
	}
	for (size_t p = 0; p < a->pool_count; p++)
		if (!strings_equal(a->pools[p]->name, b->pools[p]->name))
			return "a pool's name";
	return NULL;
}

/* Writes conf (pool: one of it, NULL: all) and reads that again. */
static inline struct conf *conf_reread(const struct conf *conf, const struct pool_settings *pool, struct told *told)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	struct conf *again = NULL;

	if (!out)
		abort();
	bool written = conf_dump(conf, pool, out);
	if (fclose(out) == 0 && written)
		again = conf_parse("dump", text, len, told_add, told);
	free(text);
	return again;
}

#endif

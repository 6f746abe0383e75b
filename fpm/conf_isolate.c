#include "fpm/conf_isolate.h"

#include <stdlib.h>

bool conf_sections_add(struct conf_sections *s, int line, size_t pool)
{
	if (s->count == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		struct conf_section *items = realloc(s->items, cap * sizeof(*items));
		if (!items)
			return false;
		s->items = items;
		s->cap = cap;
	}
	s->items[s->count++] = (struct conf_section){line, pool};
	return true;
}

void conf_sections_fini(struct conf_sections *s)
{
	free(s->items);
	*s = (struct conf_sections){NULL, 0, 0};
}

static size_t pool_at(const struct conf_sections *s, int line)
{
	size_t low = 0;
	size_t high = s->count; /* the first that begins behind the line */

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (s->items[middle].line <= line)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? s->items[low - 1].pool : CONF_NO_POOL;
}

/* Pools that have a problem; CONF_NO_POOL: so has the file. Sorted problems of
 * one pool stand one behind the other, as its lines do. */
static size_t count_broken(const struct conf_sections *s, const struct conf_problems *problems)
{
	size_t last = CONF_NO_POOL;
	size_t broken = 0;

	for (size_t i = 0; i < problems->count; i++) {
		size_t pool = pool_at(s, problems->items[i].line);
		if (pool == CONF_NO_POOL)
			return CONF_NO_POOL;
		broken += pool != last;
		last = pool;
	}
	return broken;
}

/* From the last to the first, so that the numbers of those before stay. */
static void leave_out(struct conf *conf, const struct conf_sections *s, struct conf_problems *problems)
{
	for (size_t end = problems->count; end > 0;) {
		int line = problems->items[end - 1].line;
		size_t pool = pool_at(s, line);
		size_t start = end - 1;
		while (start > 0 && pool_at(s, problems->items[start - 1].line) == pool)
			start--;
		conf_problems_add(problems, line, "[pool %s] is left out: %zu problem%s told above",
		                  conf->pools[pool]->name, end - start, end - start == 1 ? "" : "s");
		conf_leave_out(conf, pool);
		end = start;
	}
}

bool conf_isolate(struct conf *conf, const struct conf_sections *s, struct conf_problems *problems, int last_line)
{
	size_t broken;

	if (problems->out_of_memory)
		return false;
	conf_problems_sort(problems);
	broken = count_broken(s, problems);
	if (broken == CONF_NO_POOL)
		return false;
	if (broken == conf->pool_count) {
		conf_problems_add(problems, last_line, "no pool is left");
		return false;
	}
	leave_out(conf, s, problems);
	return !problems->out_of_memory;
}

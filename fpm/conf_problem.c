#include "fpm/conf_problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024 };

void conf_problems_init(struct conf_problems *p)
{
	memset(p, 0, sizeof(*p));
}

void conf_problems_fini(struct conf_problems *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->items[i].text);
	free(p->items);
	conf_problems_init(p);
}

static bool reserve_one(struct conf_problems *p)
{
	if (p->count < p->cap)
		return true;
	size_t cap = p->cap ? 2 * p->cap : 16;
	struct conf_problem *items = realloc(p->items, cap * sizeof(*items));
	if (!items)
		return false;
	p->items = items;
	p->cap = cap;
	return true;
}

void conf_problems_add(struct conf_problems *p, int line, const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);

	char *copy = strdup(text);
	if (!copy || !reserve_one(p)) {
		free(copy);
		p->out_of_memory = true;
		return;
	}
	p->items[p->count] = (struct conf_problem){.line = line, .order = p->count, .text = copy};
	p->count++;
}

bool conf_problems_any(const struct conf_problems *p)
{
	return p->count > 0 || p->out_of_memory;
}

static int by_line(const void *left, const void *right)
{
	const struct conf_problem *a = left;
	const struct conf_problem *b = right;

	if (a->line != b->line)
		return a->line < b->line ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* The file's own bytes are quoted in messages: none may break the line. */
static void hide_controls(char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == 0x7f)
			*text = '?';
	}
}

static void tell_one(const char *file, int line, const char *text, conf_error_fn *error, void *context)
{
	char out[LINE_MAX_BYTES + 512];

	if (line > 0)
		snprintf(out, sizeof(out), "%s:%d: %s", file, line, text);
	else
		snprintf(out, sizeof(out), "%s: %s", file, text);
	hide_controls(out);
	error(context, out);
}

void conf_problems_sort(struct conf_problems *p)
{
	if (p->count > 1)
		qsort(p->items, p->count, sizeof(*p->items), by_line);
}

void conf_problems_tell(struct conf_problems *p, const char *file, conf_error_fn *error, void *context)
{
	conf_problems_sort(p);
	for (size_t i = 0; i < p->count; i++)
		tell_one(file, p->items[i].line, p->items[i].text, error, context);
	if (p->out_of_memory)
		tell_one(file, 0, "out of memory", error, context);
}

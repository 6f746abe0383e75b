/* The problems found in a configuration, collected while it is read and told
 * at the end in the order of their lines, so that a check which can only run
 * later (an unset directive, a doubled address) still reads in its place.
 * Memory running out is itself remembered and told as the last problem. */
#ifndef H2FPM_FPM_CONF_PROBLEM_H
#define H2FPM_FPM_CONF_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>

#include "fpm/conf.h"

struct conf_problem {
	int line;
	size_t order; /* keeps problems of one line in the order they were found */
	char *text;
};

struct conf_problems {
	struct conf_problem *items;
	size_t count;
	size_t cap;
	bool out_of_memory;
};

void conf_problems_init(struct conf_problems *p);
void conf_problems_fini(struct conf_problems *p);
void conf_problems_add(struct conf_problems *p, int line, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* By their lines; those of one line as they were found. */
void conf_problems_sort(struct conf_problems *p);
bool conf_problems_any(const struct conf_problems *p);
/* Tells each one as "file:line: text", without control characters. */
void conf_problems_tell(struct conf_problems *p, const char *file, conf_error_fn *error, void *context);

#endif

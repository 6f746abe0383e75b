/* Whose a problem is: that of the section whose line it stands on. So one
 * pool's mistake costs that pool alone. */
#ifndef H2FPM_FPM_CONF_ISOLATE_H
#define H2FPM_FPM_CONF_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fpm/conf_problem.h"

#define CONF_NO_POOL SIZE_MAX /* problems of such a section are the whole file's */

struct conf_section {
	int line;
	size_t pool; /* or CONF_NO_POOL */
};

/* In the order of their lines. Owns its items; all zero is empty. */
struct conf_sections {
	struct conf_section *items;
	size_t count;
	size_t cap;
};

/* False: out of memory. */
bool conf_sections_add(struct conf_sections *s, int line, size_t pool) __attribute__((warn_unused_result));
void conf_sections_fini(struct conf_sections *s);

/* Leaves out the pools that have a problem, and adds a line that says so for
 * each. False: a problem is the file's as a whole, or no pool would be left;
 * no pool is left out then. */
bool conf_isolate(struct conf *conf, const struct conf_sections *s, struct conf_problems *problems, int last_line)
        __attribute__((warn_unused_result));

#endif

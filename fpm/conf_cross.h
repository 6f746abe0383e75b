/* Checks that take more than one directive, of one pool or of several. The
 * problems stand on the line of the directive that is to be changed. */
#ifndef H2FPM_FPM_CONF_CROSS_H
#define H2FPM_FPM_CONF_CROSS_H

#include <stdbool.h>

#include "fpm/conf_problem.h"
#include "fpm/conf_table.h"

/* What the file said of one pool, by the table's order. */
struct conf_said {
	int line[CONF_TABLE_MAX];   /* where a directive was last set; 0: nowhere */
	bool wrong[CONF_TABLE_MAX]; /* and refused once: told already */
};

/* Also fills in a default that depends on others (pm.start_servers). */
void conf_cross_pool(struct pool_settings *pool, const struct conf_said *said, struct conf_problems *problems);
/* No two pools listen at the same address: the later one's problem. */
void conf_cross_addresses(const struct conf *conf, const struct conf_said *said, struct conf_problems *problems);

#endif

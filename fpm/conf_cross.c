#include "fpm/conf_cross.h"

#include <inttypes.h>
#include <string.h>

#include "fpm/conf_check.h"

/* One of the numbers of workers, and how it is called. */
struct figure {
	const char *name;
	int64_t value;
};

static size_t index_of(const char *name)
{
	return (size_t)(conf_table_find(false, name) - conf_table_get(0));
}

/* Where it was set, else where the pool begins. */
static int line_of(const struct pool_settings *pool, const struct conf_said *said, const char *name)
{
	int line = said->line[index_of(name)];

	return line ? line : pool->conf_line;
}

static bool is_in_range(const struct figure *f, const struct figure *low, const struct figure *high, int line,
                        struct conf_problems *problems)
{
	char low_name[64] = "";

	if (f->value >= low->value && f->value <= high->value)
		return true;
	if (low->name)
		snprintf(low_name, sizeof(low_name), " (%s)", low->name);
	conf_problems_add(problems, line, "%s = %" PRId64 ": give a whole number from %" PRId64 "%s to %" PRId64 " (%s)",
	                  f->name, f->value, low->value, low_name, high->value, high->name);
	return false;
}

static bool is_set(const struct pool_settings *pool, const struct conf_said *said, const struct figure *f,
                   struct conf_problems *problems)
{
	if (said->line[index_of(f->name)])
		return true;
	conf_problems_add(problems, line_of(pool, said, "pm"), "pm = dynamic: %s must be set", f->name);
	return false;
}

static bool are_readable(const struct conf_said *said)
{
	static const char *const names[] = {"pm", "pm.max_children", "pm.start_servers", "pm.min_spare_servers",
	                                    "pm.max_spare_servers"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (said->wrong[index_of(names[i])])
			return false;
	return said->line[index_of("pm.max_children")] != 0;
}

/* The other modes ignore these figures, as php-fpm does. */
static void check_dynamic(struct pool_settings *pool, const struct conf_said *said, struct conf_problems *problems)
{
	const struct figure one = {NULL, 1};
	const struct figure children = {"pm.max_children", pool->pm_max_children};
	const struct figure min = {"pm.min_spare_servers", pool->pm_min_spare_servers};
	const struct figure max = {"pm.max_spare_servers", pool->pm_max_spare_servers};
	const struct figure start = {"pm.start_servers", pool->pm_start_servers};

	if (pool->pm != PM_DYNAMIC || !are_readable(said))
		return;
	bool min_set = is_set(pool, said, &min, problems);
	bool max_set = is_set(pool, said, &max, problems);
	bool min_right = min_set && is_in_range(&min, &one, &children, line_of(pool, said, min.name), problems);
	bool max_right = max_set && is_in_range(&max, min_right ? &min : &one, &children,
	                                        line_of(pool, said, max.name), problems);
	if (!min_right || !max_right)
		return;
	if (start.value == 0) /* unset, as in php-fpm */
		pool->pm_start_servers = min.value + (max.value - min.value) / 2;
	else
		(void)is_in_range(&start, &min, &max, line_of(pool, said, start.name), problems);
}

static void check_directories(const struct pool_settings *pool, const struct conf_said *said,
                              struct conf_problems *problems)
{
	const char *wrong;

	if (!pool->chdir || said->wrong[index_of("chroot")] || said->wrong[index_of("chdir")])
		return;
	wrong = conf_check_directory_in(pool->chroot, pool->chdir);
	if (wrong && pool->chroot)
		conf_problems_add(problems, line_of(pool, said, "chdir"), "chdir = %.128s: within chroot = %.128s %s",
		                  pool->chdir, pool->chroot, wrong);
	else if (wrong)
		conf_problems_add(problems, line_of(pool, said, "chdir"), "chdir = %.128s: %s", pool->chdir, wrong);
}

/* A zygote is started outside of chroot, by exec each worker inside. */
static void check_program(const struct pool_settings *pool, const struct conf_said *said,
                          struct conf_problems *problems)
{
	const char *wrong;

	if (!pool->worker_command || said->wrong[index_of("worker.command")] || said->wrong[index_of("chroot")])
		return;
	wrong = conf_check_program_in(NULL, pool->worker_command);
	if (wrong && (!pool->chroot || conf_check_program_in(pool->chroot, pool->worker_command)))
		conf_problems_add(problems, line_of(pool, said, "worker.command"), "worker.command = %.128s%s: %s",
		                  pool->worker_command, said->line[index_of("worker.command")] ? "" : " (the default)",
		                  wrong);
}

void conf_cross_pool(struct pool_settings *pool, const struct conf_said *said, struct conf_problems *problems)
{
	check_dynamic(pool, said, problems);
	check_directories(pool, said, problems);
	check_program(pool, said, problems);
}

void conf_cross_addresses(const struct conf *conf, const struct conf_said *said, struct conf_problems *problems)
{
	char mine[CONF_LISTEN_MAX];
	char other[CONF_LISTEN_MAX];

	for (size_t i = 1; i < conf->pool_count; i++) {
		const struct pool_settings *pool = conf->pools[i];
		for (size_t j = 0; pool->listen && j < i; j++) {
			if (!conf->pools[j]->listen)
				continue;
			conf_check_canonical_listen(pool->listen, mine, sizeof(mine));
			conf_check_canonical_listen(conf->pools[j]->listen, other, sizeof(other));
			if (strcmp(mine, other) == 0) {
				conf_problems_add(problems, line_of(pool, &said[i], "listen"),
				                  "listen = %s: pool %s listens there already", pool->listen,
				                  conf->pools[j]->name);
				break;
			}
		}
	}
}

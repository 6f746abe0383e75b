#include "fpm/limits.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fpm/log.h"

enum { NICE_LEAD = 10, NICE_LEAST = -20 };

static rlim_t limit_of(int64_t setting)
{
	return setting == RLIMIT_UNLIMITED ? RLIM_INFINITY : (rlim_t)setting;
}

static bool set_limit(__rlimit_resource_t resource, const char *directive, int64_t setting)
{
	const struct rlimit limit = {limit_of(setting), limit_of(setting)};

	if (setting == RLIMIT_UNSET || setrlimit(resource, &limit) == 0)
		return true;
	log_error("failed to set %s. Please check your system limits or decrease %s: %s (%d)", directive, directive,
		  strerror(errno), errno);
	return false;
}

static bool set_priority(int64_t priority)
{
	if (priority == PRIORITY_UNSET)
		return true;
	if (geteuid() != 0) {
		log_notice("'process.priority' directive is ignored when FPM is not running as root");
		return true;
	}
	if (setpriority(PRIO_PROCESS, 0, (int)priority) == 0)
		return true;
	log_error("Unable to set priority for the master process: %s (%d)", strerror(errno), errno);
	return false;
}

bool limits_apply(const struct global_settings *global)
{
	bool ok = set_limit(RLIMIT_NOFILE, "rlimit_files", global->rlimit_files);

	ok = set_limit(RLIMIT_CORE, "rlimit_core", global->rlimit_core) && ok;
	return set_priority(global->process_priority) && ok;
}

/* The soft limit is the process's own business. */
static void raise_limit(__rlimit_resource_t resource, const char *directive, int64_t *setting)
{
	struct rlimit limit;
	rlim_t before;

	if (*setting == RLIMIT_UNSET || getrlimit(resource, &limit) != 0 || limit.rlim_max >= limit_of(*setting))
		return;
	before = limit.rlim_max;
	limit.rlim_max = limit_of(*setting);
	if (setrlimit(resource, &limit) == 0)
		return;
	log_warning("unable to raise %s for this pool to more than %llu. Please check your system limits or decrease "
		    "%s: %s (%d)",
		    directive, (unsigned long long)before, directive, strerror(errno), errno);
	*setting = (int64_t)before;
}

void limits_raise_for(struct pool_settings *pool)
{
	raise_limit(RLIMIT_NOFILE, "rlimit_files", &pool->rlimit_files);
	raise_limit(RLIMIT_CORE, "rlimit_core", &pool->rlimit_core);
}

/* What the pool process does is short and all of its workers wait for it: it
 * must not queue for a processor behind them. Only root may do that. */
int limits_set_priority_for(const struct pool_settings *pool)
{
	bool chosen = geteuid() == 0 && pool->process_priority != PRIORITY_UNSET;
	int workers = chosen ? (int)pool->process_priority : getpriority(PRIO_PROCESS, 0);
	int ahead = workers - NICE_LEAD > NICE_LEAST ? workers - NICE_LEAD : NICE_LEAST;

	(void)setpriority(PRIO_PROCESS, 0, ahead);
	return workers;
}

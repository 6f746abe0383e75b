#include "fpm/conf_table.h"

#include <string.h>

#include "fpm/conf_check.h"
#include "fpm/log.h"

#define KIB ((int64_t)1024)
#define GIB (KIB * KIB * KIB)
#define SECOND_MS ((int64_t)1000)
#define DAY_MS (86400 * SECOND_MS)
#define PIB (GIB * 1024 * 1024)

static const struct conf_word log_levels[] = {
        {"alert", LOG_LEVEL_ALERT},   {"error", LOG_LEVEL_ERROR}, {"warning", LOG_LEVEL_WARNING},
        {"notice", LOG_LEVEL_NOTICE}, {"debug", LOG_LEVEL_DEBUG}, {NULL, 0},
};

static const struct conf_word pm_modes[] = {
        {"static", PM_STATIC},
        {"dynamic", PM_DYNAMIC},
        {"ondemand", PM_ONDEMAND},
        {NULL, 0},
};

static const struct conf_word spawn_words[] = {
        {"auto", WORKER_SPAWN_AUTO},
        {"zygote", WORKER_SPAWN_ZYGOTE},
        {"exec", WORKER_SPAWN_EXEC},
        {NULL, 0},
};

/* php-fpm takes 20 too, for which the kernel takes 19. */
static const struct conf_word nice_words[] = {{"20", 19}, {NULL, 0}};
/* To php-fpm, 0 is unset; no process could work with such a limit. */
static const struct conf_word file_limit_words[] = {{"0", RLIMIT_UNSET}, {NULL, 0}};
static const struct conf_word core_limit_words[] = {{"unlimited", RLIMIT_UNLIMITED}, {NULL, 0}};

#define GLOBAL(field) offsetof(struct global_settings, field)
#define POOL(field) offsetof(struct pool_settings, field)

static const struct conf_directive table[] = {
        {{"global", "error_log", "file", NULL, "Where messages go; unset, to stderr."},
         .type = CONF_STRING,
         .offset = GLOBAL(error_log),
         .check = conf_check_log},
        {{"global", "log_level", "word", "notice",
          "The least urgent messages logged: alert, error, warning, notice or debug."},
         .type = CONF_WORD,
         .offset = GLOBAL(log_level),
         .words = log_levels},
        {{"global", "pid", "file", NULL, "A file for the master's process id."},
         .type = CONF_STRING,
         .offset = GLOBAL(pid)},
        {{"global", "daemonize", "boolean", "yes", "Go to the background once the pools are started."},
         .type = CONF_BOOL,
         .offset = GLOBAL(daemonize)},
        {{"global", "process_control_timeout", "time", "0",
          "How long a graceful stop waits for running requests; 0: as long as they take."},
         .type = CONF_TIME,
         .offset = GLOBAL(process_control_timeout_ms),
         .max = 366 * DAY_MS},
        {{"global", "process.max", "integer", "0", "The most workers over all pools; 0: any number."},
         .type = CONF_INT,
         .offset = GLOBAL(process_max),
         .max = INT32_MAX},
        {{"global", "process.priority", "integer", NULL,
          "The nice value of the master, and of workers whose pool has none of its own; unset, as when started."},
         .type = CONF_INT,
         .offset = GLOBAL(process_priority),
         .min = -20,
         .max = 19,
         .flags = CONF_CAN_BE_UNSET,
         .unset = PRIORITY_UNSET,
         .words = nice_words},
        {{"global", "rlimit_files", "integer", NULL,
          "How many files the master may have open; unset, as many as when started."},
         .type = CONF_INT,
         .offset = GLOBAL(rlimit_files),
         .min = 1,
         .max = INT32_MAX,
         .flags = CONF_CAN_BE_UNSET,
         .unset = RLIMIT_UNSET,
         .words = file_limit_words},
        {{"global", "rlimit_core", "size", NULL,
          "The largest core dump of the master, or unlimited; unset, as when started."},
         .type = CONF_SIZE,
         .offset = GLOBAL(rlimit_core),
         .max = PIB,
         .flags = CONF_CAN_BE_UNSET,
         .unset = RLIMIT_UNSET,
         .words = core_limit_words},
        {{"global", "emergency_restart_threshold", "integer", "0",
          "After so many crashes within emergency_restart_interval all workers of a pool are replaced; 0: never."},
         .type = CONF_INT,
         .offset = GLOBAL(emergency_restart_threshold),
         .max = INT32_MAX},
        {{"global", "emergency_restart_interval", "time", "0",
          "The time within which crashes are counted for emergency_restart_threshold; 0: none are."},
         .type = CONF_TIME,
         .offset = GLOBAL(emergency_restart_interval_ms),
         .max = 366 * DAY_MS},
        {{"global", "watchdog.timeout", "time", "10s",
          "A pool process that gives no sign of life for so long is killed and started again."},
         .type = CONF_TIME,
         .offset = GLOBAL(watchdog_timeout_ms),
         .min = 2 * SECOND_MS,
         .max = DAY_MS},

        {{"pool", "user", "string", NULL,
          "The user, by name or number, that the pool runs as; used only when started by root."},
         .type = CONF_STRING,
         .offset = POOL(user)},
        {{"pool", "group", "string", NULL, "The group that the pool runs as; unset, the user's own."},
         .type = CONF_STRING,
         .offset = POOL(group)},
        {{"pool", "listen", "address", NULL,
          "Where FastCGI requests come in: a socket's path, a port, ip:port or [ipv6]:port."},
         .type = CONF_STRING,
         .offset = POOL(listen),
         .flags = CONF_MANDATORY,
         .check = conf_check_listen},
        {{"pool", "listen.owner", "string", NULL, "The owner of the socket's file; unset, the running user."},
         .type = CONF_STRING,
         .offset = POOL(listen_owner)},
        {{"pool", "listen.group", "string", NULL, "The group of the socket's file; unset, the running user's."},
         .type = CONF_STRING,
         .offset = POOL(listen_group)},
        {{"pool", "listen.mode", "mode", "0660", "The permissions of the socket's file, in octal."},
         .type = CONF_MODE,
         .offset = POOL(listen_mode),
         .max = 0777},
        {{"pool", "listen.backlog", "integer", "-1",
          "Connections that may wait to be accepted; -1: as many as the kernel allows."},
         .type = CONF_INT,
         .offset = POOL(listen_backlog),
         .min = -1,
         .max = INT32_MAX},
        {{"pool", "listen.allowed_clients", "addresses", NULL,
          "The IP addresses, with commas between, that may connect over TCP; unset, any."},
         .type = CONF_STRING,
         .offset = POOL(listen_allowed_clients),
         .check = conf_check_clients},
        {{"pool", "pm", "word", NULL,
          "How the number of workers is chosen: static, always pm.max_children; dynamic, as many as are busy and "
          "some to spare; ondemand, none until there are requests."},
         .type = CONF_WORD,
         .offset = POOL(pm),
         .flags = CONF_MANDATORY,
         .words = pm_modes},
        {{"pool", "pm.max_children", "integer", NULL, "The most workers; while one is replaced, up to a tenth more."},
         .type = CONF_INT,
         .offset = POOL(pm_max_children),
         .flags = CONF_MANDATORY,
         .min = 1,
         .max = 10000},
        {{"pool", "pm.start_servers", "integer", NULL,
          "dynamic: workers at the start; unset, halfway between the next two."},
         .type = CONF_INT,
         .offset = POOL(pm_start_servers),
         .max = 10000},
        {{"pool", "pm.min_spare_servers", "integer", NULL, "dynamic: idle workers that there are at least."},
         .type = CONF_INT,
         .offset = POOL(pm_min_spare_servers),
         .max = 10000},
        {{"pool", "pm.max_spare_servers", "integer", NULL,
          "dynamic: idle workers past which the longest idle retire."},
         .type = CONF_INT,
         .offset = POOL(pm_max_spare_servers),
         .max = 10000},
        {{"pool", "pm.max_spawn_rate", "integer", "32", "Workers that may be starting at one time."},
         .type = CONF_INT,
         .offset = POOL(pm_max_spawn_rate),
         .min = 1,
         .max = INT32_MAX},
        {{"pool", "pm.process_idle_timeout", "time", "10s",
          "How long a worker is idle before it retires: in ondemand any, in dynamic one over pm.max_spare_servers."},
         .type = CONF_TIME,
         .offset = POOL(pm_process_idle_timeout_ms),
         .min = 1,
         .max = 366 * DAY_MS},
        {{"pool", "pm.max_requests", "integer", "0",
          "The most requests that a worker is given, up to a tenth fewer, before it is replaced; 0: any number."},
         .type = CONF_INT,
         .offset = POOL(pm_max_requests),
         .max = INT32_MAX},
        {{"pool", "request_terminate_timeout", "time", "0",
          "How long one request may run before its worker is ended; 0: as long as it likes."},
         .type = CONF_TIME,
         .offset = POOL(request_terminate_timeout_ms),
         .max = 366 * DAY_MS},
        {{"pool", "request_terminate_timeout_track_finished", "boolean", "no",
          "Go on counting after fastcgi_finish_request() has ended the answer."},
         .type = CONF_BOOL,
         .offset = POOL(request_terminate_timeout_track_finished)},
        {{"pool", "catch_workers_output", "boolean", "no",
          "Log what workers write to stdout and stderr outside a request."},
         .type = CONF_BOOL,
         .offset = POOL(catch_workers_output)},
        {{"pool", "decorate_workers_output", "boolean", "yes",
          "Put the time, the pool and the worker in front of such output."},
         .type = CONF_BOOL,
         .offset = POOL(decorate_workers_output)},
        {{"pool", "clear_env", "boolean", "yes", "Start workers with env[] alone, without the master's environment."},
         .type = CONF_BOOL,
         .offset = POOL(clear_env)},
        {{"pool", "chroot", "directory", NULL,
          "The directory that workers have as their root; only when started by root."},
         .type = CONF_STRING,
         .offset = POOL(chroot),
         .check = conf_check_directory},
        {{"pool", "chdir", "directory", NULL,
          "The directory that workers start in, inside chroot where that is set."},
         .type = CONF_STRING,
         .offset = POOL(chdir),
         .check = conf_check_absolute},
        {{"pool", "process.priority", "integer", NULL,
          "The nice value of the pool's workers; unset, the master's."},
         .type = CONF_INT,
         .offset = POOL(process_priority),
         .min = -20,
         .max = 19,
         .flags = CONF_CAN_BE_UNSET,
         .unset = PRIORITY_UNSET,
         .words = nice_words},
        {{"pool", "process.dumpable", "boolean", "no",
          "Let workers dump core and be traced by processes of their user."},
         .type = CONF_BOOL,
         .offset = POOL(process_dumpable)},
        {{"pool", "process.no_new_privs", "boolean", "no",
          "Let workers gain no privileges from setuid or setgid programs."},
         .type = CONF_BOOL,
         .offset = POOL(process_no_new_privs)},
        {{"pool", "rlimit_files", "integer", NULL,
          "How many files a worker may have open; unset, as many as when started."},
         .type = CONF_INT,
         .offset = POOL(rlimit_files),
         .min = 1,
         .max = INT32_MAX,
         .flags = CONF_CAN_BE_UNSET,
         .unset = RLIMIT_UNSET,
         .words = file_limit_words},
        {{"pool", "rlimit_core", "size", NULL,
          "The largest core dump of a worker, or unlimited; unset, as when started."},
         .type = CONF_SIZE,
         .offset = POOL(rlimit_core),
         .max = PIB,
         .flags = CONF_CAN_BE_UNSET,
         .unset = RLIMIT_UNSET,
         .words = core_limit_words},
        {{"pool", "apparmor_hat", "string", NULL, "The AppArmor hat that workers wear."},
         .type = CONF_STRING,
         .offset = POOL(apparmor_hat)},
        {{"pool", "access.log", "file", NULL, "A line for each request goes there; unset, none is written."},
         .type = CONF_STRING,
         .offset = POOL(access_log),
         .check = conf_check_log},
        {{"pool", "access.format", "format", "%R - %u %t \"%m %r\" %s", "What such a line says."},
         .type = CONF_STRING,
         .offset = POOL(access_format),
         .check = conf_check_access_format},
        {{"pool", "ping.path", "string", NULL,
          "A request for this path is answered without a worker; unset, none is."},
         .type = CONF_STRING,
         .offset = POOL(ping_path),
         .check = conf_check_ping_path},
        {{"pool", "ping.response", "string", "pong", "The answer to it."},
         .type = CONF_STRING,
         .offset = POOL(ping_response)},
        {{"pool", "security.limit_extensions", "extensions", ".php .phar",
          "The extensions that a script may have, with spaces between; empty, any."},
         .type = CONF_STRING,
         .offset = POOL(limit_extensions),
         .flags = CONF_EMPTY_COUNTS,
         .check = conf_check_extensions},
        {{"pool", "env[]", "pairs", NULL, "env[NAME] = value: a variable in the workers' environment."},
         .type = CONF_PAIRS,
         .offset = POOL(env)},
        {{"pool", "php_value[]", "pairs", NULL, "php_value[name] = value: a setting of PHP's."},
         .type = CONF_PAIRS,
         .offset = POOL(php_values),
         .flags = CONF_PHP},
        {{"pool", "php_flag[]", "pairs", NULL, "php_flag[name] = boolean: a setting of PHP's that is on or off."},
         .type = CONF_FLAGS,
         .offset = POOL(php_values),
         .flags = CONF_PHP},
        {{"pool", "php_admin_value[]", "pairs", NULL,
          "php_admin_value[name] = value: the same, and no php_value or script takes its place."},
         .type = CONF_PAIRS,
         .offset = POOL(php_values),
         .flags = CONF_PHP | CONF_ADMIN},
        {{"pool", "php_admin_flag[]", "pairs", NULL,
          "php_admin_flag[name] = boolean: the same, and no php_flag or script takes its place."},
         .type = CONF_FLAGS,
         .offset = POOL(php_values),
         .flags = CONF_PHP | CONF_ADMIN},
        {{"pool", "worker.command", "command", "php-cgi", "The FastCGI program that workers run."},
         .type = CONF_STRING,
         .offset = POOL(worker_command),
         .check = conf_check_command},
        {{"pool", "worker.spawn", "word", "auto",
          "How workers are made: zygote, forked from one php-cgi; exec, each on its own; auto, whichever fits."},
         .type = CONF_WORD,
         .offset = POOL(worker_spawn),
         .words = spawn_words},
        {{"pool", "worker.max_memory", "size", "0",
          "A worker that has more memory of its own after a request is replaced; 0: never."},
         .type = CONF_SIZE,
         .offset = POOL(worker_max_memory_bytes),
         .max = PIB},
        {{"pool", "worker.max_lifetime", "time", "0",
          "A worker that has lived for so long, or up to a tenth less, is replaced; 0: never."},
         .type = CONF_TIME,
         .offset = POOL(worker_max_lifetime_ms),
         .max = 366 * DAY_MS},
        {{"pool", "worker.start_timeout", "time", "30s",
          "How long a new worker may take until it accepts connections, before it is ended and started anew."},
         .type = CONF_TIME,
         .offset = POOL(worker_start_timeout_ms),
         .min = 100,
         .max = 366 * DAY_MS},
        {{"pool", "queue.max", "integer", "16384", "Requests that may wait for a worker; one more is answered 503."},
         .type = CONF_INT,
         .offset = POOL(queue_max),
         .min = 1,
         .max = 10000000},
        {{"pool", "queue.timeout", "time", "30s",
          "How long a request may wait for a worker before it is answered 503; 0: as long as it takes."},
         .type = CONF_TIME,
         .offset = POOL(queue_timeout_ms),
         .max = 366 * DAY_MS},
        {{"pool", "request.buffer_size", "size", "64K",
          "A request body up to this size is kept in memory, a larger one in a file."},
         .type = CONF_SIZE,
         .offset = POOL(request_buffer_bytes),
         .min = KIB,
         .max = GIB},
        {{"pool", "request.max_params", "size", "256K",
          "The most that a request's parameters may take; past that the answer is 431."},
         .type = CONF_SIZE,
         .offset = POOL(request_max_params_bytes),
         .min = KIB,
         .max = GIB},
        {{"pool", "request.max_body", "size", "1G",
          "The largest request body; past that the answer is 413; 0: any size."},
         .type = CONF_SIZE,
         .offset = POOL(request_max_body_bytes),
         .max = PIB},
        {{"pool", "request.spool_dir", "directory", "/tmp",
          "Where large request bodies wait, in files without a name."},
         .type = CONF_STRING,
         .offset = POOL(request_spool_dir),
         .check = conf_check_directory},
        {{"pool", "response.buffer_size", "size", "256K",
          "How much of an answer is taken from a worker ahead of a slow reader."},
         .type = CONF_SIZE,
         .offset = POOL(response_buffer_bytes),
         .min = 8 * KIB,
         .max = GIB},
};

/* php-fpm's names that this version refuses by name, in either section. */
static const char *const later[] = {
        "log_limit",
        "log_buffering",
        "syslog.facility",
        "syslog.ident",
        "events.mechanism",
        "systemd_interval",
        "include",
        "prefix",
        "listen.acl_users",
        "listen.acl_groups",
        "listen.setfib",
        "pm.status_path",
        "pm.status_listen",
        "access.suppress_path",
        "slowlog",
        "request_slowlog_timeout",
        "request_slowlog_trace_depth",
};

_Static_assert(sizeof(table) / sizeof(*table) <= CONF_TABLE_MAX, "raise CONF_TABLE_MAX");

size_t conf_table_count(void)
{
	return sizeof(table) / sizeof(*table);
}

const struct conf_directive *conf_table_get(size_t i)
{
	return i < conf_table_count() ? &table[i] : NULL;
}

const struct conf_description *conf_describe(size_t i)
{
	return i < conf_table_count() ? &table[i].text : NULL;
}

bool conf_table_is_global(const struct conf_directive *d)
{
	return d->text.section[0] == 'g';
}

/* The table's "env[]" without its brackets. */
static size_t bare_len(const char *name)
{
	return strcspn(name, "[");
}

const struct conf_directive *conf_table_find(bool global, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < conf_table_count(); i++) {
		const struct conf_directive *d = &table[i];
		if (conf_table_is_global(d) == global && bare_len(d->text.name) == len &&
		    memcmp(d->text.name, name, len) == 0)
			return d;
	}
	return NULL;
}

bool conf_table_is_later(const char *name)
{
	for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++)
		if (strcmp(later[i], name) == 0)
			return true;
	return false;
}

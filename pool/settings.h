/* What one [pool] section says, filled in by fpm/conf (which owns the table
 * of names, defaults and checks) and read by the pool process. Strings are
 * owned by the structure; an unset string is NULL. Sizes are bytes, times are
 * milliseconds, 0 means "no limit" or "off" where nothing else is said. */
#ifndef H2FPM_POOL_SETTINGS_H
#define H2FPM_POOL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pm_mode { PM_STATIC, PM_DYNAMIC, PM_ONDEMAND };

/* How a worker comes to be: as a fork of a php-cgi that was started once
 * (zygote.h), or by fork + exec of the command for each. AUTO: the former
 * where the command is a php-cgi and the gate works. */
enum worker_spawn { WORKER_SPAWN_AUTO, WORKER_SPAWN_ZYGOTE, WORKER_SPAWN_EXEC };

enum {
	PRIORITY_UNSET = 100, /* no nice value */
	RLIMIT_UNSET = -1,
	RLIMIT_UNLIMITED = -2, /* rlimit_core = unlimited */
};

/* env[NAME] = value and php_*[name] = value, in the file's order. */
struct setting_pair {
	char *name;
	char *value;
	bool admin; /* a php_admin_ one; these stand behind all others, so that they win */
};

struct setting_pairs {
	struct setting_pair *items;
	size_t count;
};

struct pool_settings {
	char *name; /* the section's name */
	char *conf_file;
	int conf_line; /* of the section, for messages */

	char *user;
	char *group;
	char *listen;
	char *listen_owner;
	char *listen_group;
	int64_t listen_mode; /* 0660 */
	int64_t listen_backlog;
	char *listen_allowed_clients; /* comma-separated addresses; NULL: any */

	int64_t pm; /* enum pm_mode */
	int64_t pm_max_children;
	int64_t pm_start_servers;     /* dynamic only, as the next two; always a number there */
	int64_t pm_min_spare_servers;
	int64_t pm_max_spare_servers;
	int64_t pm_max_spawn_rate;    /* workers that may be starting at one time */
	int64_t pm_process_idle_timeout_ms;
	int64_t pm_max_requests;

	int64_t request_terminate_timeout_ms;
	bool request_terminate_timeout_track_finished;
	bool catch_workers_output;
	bool decorate_workers_output;
	bool clear_env;
	char *chroot;
	char *chdir; /* inside chroot, where there is one */
	int64_t process_priority; /* nice value of the workers, or PRIORITY_UNSET */
	bool process_dumpable;
	bool process_no_new_privs; /* ours */
	int64_t rlimit_files; /* of the workers, or RLIMIT_UNSET */
	int64_t rlimit_core;  /* bytes, RLIMIT_UNSET or RLIMIT_UNLIMITED */
	char *apparmor_hat;
	char *access_log;
	char *access_format;
	char *ping_path;
	char *ping_response;
	char *limit_extensions; /* space-separated; empty: any script */

	struct setting_pairs env;
	struct setting_pairs php_values; /* all four kinds, flags already 1 or 0 */

	/* ours */
	char *worker_command;
	int64_t worker_spawn;            /* enum worker_spawn */
	int64_t worker_max_memory_bytes; /* anonymous resident memory; 0: any */
	int64_t worker_max_lifetime_ms;
	int64_t worker_start_timeout_ms;
	int64_t queue_max;
	int64_t queue_timeout_ms;
	int64_t request_buffer_bytes;
	int64_t request_max_params_bytes;
	int64_t request_max_body_bytes;
	int64_t request_receive_timeout_ms;
	char *request_spool_dir;
	int64_t response_buffer_bytes;
	int64_t response_send_timeout_ms;
	int64_t response_spool_bytes; /* of an answer, in a file; 0: none is put there */
	int64_t mpxs_max_requests;    /* open at one time on a connection */
	int64_t mpxs_buffer_bytes;    /* in memory for all of these */

	/* No directives of a pool: filled in by the pool process (fpm/child.c). */
	int worker_nice;        /* process.priority, or the nice value that the master has */
	bool was_root;          /* privileges have been dropped */
	bool asks_master;       /* process.max is set: each worker needs the master's leave (link.h) */
	int64_t emergency_restart_threshold; /* [global] */
	int64_t emergency_restart_interval_ms;
};

#endif

/* What one [pool] section says, filled in by fpm/conf (which owns the table
 * of names, defaults and checks) and read by the pool process. Strings are
 * owned by the structure; an unset string is NULL. Sizes are bytes, times are
 * milliseconds, 0 means "no limit" or "off" where nothing else is said. */
#ifndef H2FPM_POOL_SETTINGS_H
#define H2FPM_POOL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pm_mode { PM_STATIC }; /* dynamic and ondemand are refused by name */

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
	int64_t pm_max_requests;

	int64_t request_terminate_timeout_ms;
	bool catch_workers_output;
	bool decorate_workers_output;
	bool clear_env;
	char *chdir;
	char *access_log;
	char *access_format;
	char *ping_path;
	char *ping_response;
	char *limit_extensions; /* space-separated; empty: any script */

	struct setting_pairs env;
	struct setting_pairs php_values; /* all four kinds, flags already 1 or 0 */

	/* ours */
	char *worker_command;
	int worker_nice; /* no directive: the nice value that the master has */
	int64_t worker_start_timeout_ms;
	int64_t queue_max;
	int64_t queue_timeout_ms;
	int64_t request_buffer_bytes;
	int64_t request_max_params_bytes;
	int64_t request_max_body_bytes;
	char *request_spool_dir;
	int64_t response_buffer_bytes;
};

#endif

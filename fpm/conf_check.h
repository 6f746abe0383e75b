/* Checks of single string values, for the table: each returns NULL when the
 * value is right, else a constant text that says what would be. Those that
 * look at the file system refuse only what is certainly not there: a pool
 * process reads its settings again as another user, who may see less. */
#ifndef H2FPM_FPM_CONF_CHECK_H
#define H2FPM_FPM_CONF_CHECK_H

#include <stdbool.h>
#include <stddef.h>

const char *conf_check_log(const char *value);
const char *conf_check_listen(const char *value);
const char *conf_check_clients(const char *value);
const char *conf_check_directory(const char *value);
const char *conf_check_absolute(const char *value);
const char *conf_check_access_format(const char *value);
const char *conf_check_ping_path(const char *value);
const char *conf_check_extensions(const char *value);
const char *conf_check_command(const char *value);
const char *conf_check_env_name(const char *name);
const char *conf_check_php_name(const char *name);

/* A directory as it is seen from within root (NULL: /), whose own symbolic
 * links lead nowhere else. */
const char *conf_check_directory_in(const char *root, const char *dir);
/* The program of a worker.command, by path or found in PATH, the same way. */
const char *conf_check_program_in(const char *root, const char *command);
/* A directory, the same way, to hold on to with O_PATH; -1 with errno set. */
int conf_check_open_directory_in(const char *root, const char *dir);

enum { CONF_LISTEN_MAX = 300 }; /* bytes of an address in that spelling */

/* The one spelling of an address that conf_check_listen accepts, so that two
 * of them can be compared: 9000 and [::]:9000 are the same. */
void conf_check_canonical_listen(const char *value, char *out, size_t size);

#endif

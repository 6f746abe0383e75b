/* php-cgi's command-line settings, and the protection of php_admin_ ones.
 *
 * Each php_ setting is a "-d name=value". PHP's own way to keep a script from
 * changing one is a [PATH=/dir] section of php.ini: what it holds is set anew
 * for each script below /dir, as the system's (PHP_INI_SYSTEM), so that
 * ini_set() and .user.ini cannot change it. One more -d, the last, whose raw
 * text goes on with such sections for every directory of the root directory
 * brings them in without a file. [PATH=/] does not exist, so for a script
 * below none of the known directories the broker writes its name as /./name,
 * which the section [PATH=/.] covers; a relative one is covered by [PATH=.].
 * A name with ".." in it, or none, is covered by nothing: php-cgi runs no file
 * by it but with doc_root, so the judge refuses it (is_strict in script.h).
 * Where the sections do not fit into one argument, these two are all. */
#ifndef H2FPM_POOL_PHPINI_H
#define H2FPM_POOL_PHPINI_H

#include <stdbool.h>
#include <stddef.h>

#include "pool/meta.h"
#include "pool/settings.h"

struct phpini {
	char **args;  /* "-d", "name=value", …; NULL-terminated, owned */
	char **roots; /* the first-level directories with a section: "/var"; sorted, owned; NULL: nothing is protected */
	size_t root_count;
};

/* Reads the root directory (of settings->chroot, if set). False: out of memory;
 * to be finished all the same. */
bool phpini_init(struct phpini *ini, const struct pool_settings *settings) __attribute__((warn_unused_result));
void phpini_fini(struct phpini *ini);
/* Whether this SCRIPT_FILENAME or PATH_TRANSLATED must be written with "/."
 * (an absolute path) or "./" (a relative one) in front to be covered; NULL: it
 * is covered as it is, or nothing is protected. A constant. */
const char *phpini_prefix(const struct phpini *ini, const char *path, size_t len);
/* The same for any of a request's parameters: NULL for those that do not name
 * the script. DOCUMENT_ROOT goes with SCRIPT_FILENAME where that begins with it. */
const char *phpini_param_prefix(const struct phpini *ini, const struct meta *meta, const struct param *param);

#endif

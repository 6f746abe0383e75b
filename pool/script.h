/* security.limit_extensions, judged on the file that PHP would really run.
 * php-cgi (cgi.fix_pathinfo = 1) takes SCRIPT_FILENAME, or PATH_TRANSLATED
 * after an Apache redirect, and where that is no existing file walks up its
 * components to the first regular file: /up/evil.jpg/x.php runs evil.jpg. Where
 * nothing is found nothing is let through: by the time that a worker looks,
 * somebody may have put a file there. Nor is a name with ".." in it, which
 * php-cgi knows no file by: with doc_root it would run another one then, without
 * the php_admin_ settings (phpini.h; is_strict).
 * Looks at the file system as the workers see it: where they are in a chroot,
 * no link and no ".." leads out of it. Allowed scripts are remembered for a
 * second, so that a busy script is not looked up for each request. */
#ifndef H2FPM_POOL_SCRIPT_H
#define H2FPM_POOL_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/meta.h"

enum script_verdict {
	SCRIPT_ALLOWED,
	SCRIPT_DENIED,  /* 403 "Access denied.", as php-fpm */
	SCRIPT_MISSING, /* 404 "No input file specified.", as php-cgi */
	SCRIPT_TOO_LONG,
};

enum { SCRIPT_CACHE_SLOTS = 64, SCRIPT_CACHE_MS = 1000, SCRIPT_PATH_MAX = 4096 };

struct script_cache_slot {
	char *path;
	size_t len;
	int64_t until_us;
};

struct script_judge {
	char **extensions; /* NULL-terminated; none: every script is allowed */
	int dir;           /* what relative names are relative to: the workers' directory; in a chroot: it */
	char *chdir;       /* in a chroot: the workers' directory below it; NULL: none, or no chroot */
	bool in_chroot;
	bool is_strict; /* a name that PHP would find no file by is refused, whatever may be run */
	struct script_cache_slot cache[SCRIPT_CACHE_SLOTS];
};

/* extensions: separated by spaces; chroot and chdir (inside it): NULL or a
 * directory. False with errno set. */
bool script_judge_init(struct script_judge *judge, const char *extensions, const char *chroot, const char *chdir)
	__attribute__((warn_unused_result));
void script_judge_fini(struct script_judge *judge);

/* path_info gets the part of the name behind the script where PHP would find
 * it by walking up (pointing into meta's block), else an absent slice. */
enum script_verdict script_judge(struct script_judge *judge, const struct meta *meta, int64_t now_us,
				 struct slice *path_info);
/* True when PATH_TRANSLATED must not reach a worker: it is not what was judged,
 * and it may not be run, or php-fpm would not run it; or, with is_strict, PHP
 * would find no file by it. */
bool script_hides_translated(const struct script_judge *judge, const struct meta *meta);
/* php-cgi, other than php-fpm, drops PATH_INFO where Apache's mod_rewrite has
 * set REDIRECT_URL, unless PATH_INFO also stands behind the script's name: what
 * is to be written there, where script_judge() has found a file by the whole of
 * its name. */
struct slice script_tail(struct script_judge *judge, const struct meta *meta, int64_t now_us);

#endif

/* security.limit_extensions against real files: what is judged must be the
 * file that PHP would run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/script.h"

#define CACHE_US (SCRIPT_CACHE_MS * INT64_C(1000))

static char dir[] = "/tmp/h2fpm-test-script-XXXXXX";
static struct script_judge judge;
static struct slice path_info;
static int64_t now_us = 1000000;

static const char *in_dir(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void make_file(const char *name)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static const char *const files[] = {"a.php", "b.phar",   "evil.jpg",  "up/evil.jpg", "up/ok.php",
                                    "A.PHP", "sub/.php", "x.php.jpg", "c.php5",      "back\\evil.jpg", "dir.php/inner.jpg"};

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	assert_int_equal(mkdir(in_dir("up"), 0700), 0);
	assert_int_equal(mkdir(in_dir("sub"), 0700), 0);
	assert_int_equal(mkdir(in_dir("dir.php"), 0700), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		make_file(files[i]);
	assert_int_equal(symlink("/nonexistent/x.php", in_dir("dangling.php")), 0);
	assert_int_equal(symlink("nowhere", in_dir("dangling.jpg")), 0);
	assert_int_equal(symlink("a.php", in_dir("link.php")), 0);
	assert_int_equal(symlink("a.php", in_dir("link.txt")), 0);
	assert_int_equal(symlink("loop.php", in_dir("loop.php")), 0);
	return 0;
}

static int teardown(void **state)
{
	static const char *const others[] = {"dangling.php", "dangling.jpg", "link.php", "link.txt", "loop.php"};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		unlink(in_dir(files[i]));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		unlink(in_dir(others[i]));
	rmdir(in_dir("up"));
	rmdir(in_dir("sub"));
	rmdir(in_dir("dir.php"));
	return rmdir(dir);
}

static int judge_setup(void **state)
{
	(void)state;
	return script_judge_init(&judge, ".php .phar", NULL, NULL) ? 0 : -1;
}

static int judge_teardown(void **state)
{
	(void)state;
	script_judge_fini(&judge);
	return 0;
}

static struct slice text(const char *s)
{
	return (struct slice){s, s ? strlen(s) : 0};
}

static enum script_verdict judge_full(const char *file, const char *translated, const char *redirect)
{
	struct meta meta = {0};

	meta.of[META_SCRIPT_FILENAME] = text(file);
	meta.of[META_PATH_TRANSLATED] = text(translated);
	meta.of[META_REDIRECT_URL] = text(redirect);
	path_info = text("left over");
	return script_judge(&judge, &meta, now_us, &path_info);
}

static enum script_verdict judged(const char *name)
{
	return judge_full(in_dir(name), NULL, NULL);
}

static void check(const char *name, enum script_verdict verdict, const char *info)
{
	enum script_verdict got = judged(name);

	if (got != verdict)
		print_error("%s: verdict %d\n", name, got);
	assert_int_equal(got, verdict);
	if (info)
		assert_true(slice_is(path_info, info));
	else
		assert_null(path_info.at);
}

static void test_files(void **state)
{
	(void)state;
	check("a.php", SCRIPT_ALLOWED, NULL);
	check("b.phar", SCRIPT_ALLOWED, NULL);
	check("evil.jpg", SCRIPT_DENIED, NULL);
	check("x.php.jpg", SCRIPT_DENIED, NULL);
	check("c.php5", SCRIPT_DENIED, NULL);
	check("A.PHP", SCRIPT_DENIED, NULL); /* as php-fpm: case counts */
	check("link.php", SCRIPT_ALLOWED, NULL);
	check("link.txt", SCRIPT_DENIED, NULL); /* by the name, not the target's */
	check("up/../a.php", SCRIPT_ALLOWED, NULL);
	check("./a.php", SCRIPT_ALLOWED, NULL);
	check("sub/.php", SCRIPT_ALLOWED, NULL); /* something stands before the ending */
}

static void test_directories(void **state)
{
	(void)state;
	check("up", SCRIPT_DENIED, NULL);
	check("dir.php", SCRIPT_ALLOWED, NULL); /* php-cgi says that it is no file */
	check("up/", SCRIPT_MISSING, NULL);
	check("dir.php/x", SCRIPT_MISSING, NULL);
}

/* The hole that the directive is for: PHP runs the picture. */
static void test_walk_up(void **state)
{
	(void)state;
	check("up/evil.jpg/x.php", SCRIPT_DENIED, "/x.php");
	check("up/evil.jpg/", SCRIPT_DENIED, "/");
	check("up/evil.jpg//x.php", SCRIPT_DENIED, "//x.php");
	check("up/evil.jpg/a/b/c.php", SCRIPT_DENIED, "/a/b/c.php");
	check("evil.jpg/../a.php", SCRIPT_DENIED, "/../a.php");
	check("a.php/", SCRIPT_ALLOWED, "/");
	check("a.php/info", SCRIPT_ALLOWED, "/info");
	check("up/ok.php/info/x.jpg", SCRIPT_ALLOWED, "/info/x.jpg");
	check("a.php/evil.jpg", SCRIPT_ALLOWED, "/evil.jpg"); /* a.php runs */
	check("link.txt/x.php", SCRIPT_DENIED, "/x.php");
	check("dir.php/evil.jpg/x.php", SCRIPT_MISSING, NULL);
}

static void test_missing(void **state)
{
	(void)state;
	check("none.php", SCRIPT_MISSING, NULL); /* there may be one when a worker looks */
	check("none.txt", SCRIPT_MISSING, NULL);
	check("none.txt/none.php", SCRIPT_MISSING, NULL);
	check("none.php/", SCRIPT_MISSING, NULL);
	check("dangling.php", SCRIPT_MISSING, NULL);
	check("dangling.jpg", SCRIPT_MISSING, NULL);
	check("loop.php", SCRIPT_MISSING, NULL);
	assert_int_equal(judge_full(NULL, NULL, NULL), SCRIPT_MISSING);
	assert_int_equal(judge_full("", NULL, NULL), SCRIPT_MISSING);
	assert_int_equal(judge_full("/", NULL, NULL), SCRIPT_MISSING);
	assert_int_equal(judge_full("\\", NULL, NULL), SCRIPT_MISSING);
	assert_int_equal(judge_full(".php", NULL, NULL), SCRIPT_MISSING); /* an ending, and no name */
}

/* Slashes are cut first, all of them; only then backslashes are. */
static void test_backslashes(void **state)
{
	int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_true(here >= 0);
	check("back\\evil.jpg", SCRIPT_DENIED, NULL);
	check("back\\evil.jpg/x.php", SCRIPT_DENIED, "/x.php");
	check("evil.jpg\\x.php", SCRIPT_MISSING, NULL); /* php-cgi looks for it alike */
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(judge_full("evil.jpg\\x.php", NULL, NULL), SCRIPT_DENIED);
	assert_true(slice_is(path_info, "\\x.php"));
	assert_int_equal(judge_full("back\\evil.jpg\\x.php", NULL, NULL), SCRIPT_DENIED);
	assert_int_equal(fchdir(here), 0);
	close(here);
}

static void test_redirected(void **state)
{
	char php[512], jpg[512];

	(void)state;
	strcpy(php, in_dir("a.php"));
	strcpy(jpg, in_dir("evil.jpg"));
	assert_int_equal(judge_full(php, jpg, "/r"), SCRIPT_DENIED); /* PHP runs PATH_TRANSLATED */
	assert_int_equal(judge_full(php, jpg, ""), SCRIPT_DENIED);
	assert_int_equal(judge_full(php, jpg, NULL), SCRIPT_ALLOWED);
	assert_int_equal(judge_full(jpg, php, "/r"), SCRIPT_ALLOWED);
	assert_int_equal(judge_full(jpg, php, NULL), SCRIPT_DENIED);
	assert_int_equal(judge_full(jpg, jpg, "/r"), SCRIPT_DENIED);
	assert_int_equal(judge_full(NULL, jpg, NULL), SCRIPT_DENIED);
	assert_int_equal(judge_full(NULL, php, NULL), SCRIPT_ALLOWED);
}

static bool hidden(const char *file, const char *translated, const char *redirect)
{
	struct meta meta = {0};

	meta.of[META_SCRIPT_FILENAME] = text(file);
	meta.of[META_PATH_TRANSLATED] = text(translated);
	meta.of[META_REDIRECT_URL] = text(redirect);
	return script_hides_translated(&judge, &meta);
}

/* What is not judged is not shown, unless it could be run as well. */
static void test_hidden_translated(void **state)
{
	(void)state;
	assert_true(hidden("/w/a.php", "/w/evil.jpg", NULL));
	assert_true(hidden("/w/a.php", "/w", NULL));
	assert_true(hidden("", "/w/evil.jpg", NULL));
	assert_false(hidden("/w/a.php", "/w/b.php", NULL));
	assert_false(hidden("/w/a.php", NULL, NULL));
	assert_false(hidden("/w/a.php", "/w/evil.jpg", "/r")); /* this is what was judged */
	assert_false(hidden(NULL, "/w/evil.jpg", NULL));
}

static struct meta apache_meta(const char *file, const char *info)
{
	struct meta meta = {.by_apache = true};

	meta.of[META_SCRIPT_FILENAME] = text(file);
	meta.of[META_PATH_INFO] = text(info);
	meta.of[META_REDIRECT_URL] = text("/r");
	return meta;
}

/* As php-fpm: what SCRIPT_FILENAME names is run. */
static void test_redirected_by_apache(void **state)
{
	struct meta meta = apache_meta(in_dir("a.php"), NULL);

	(void)state;
	meta.of[META_PATH_TRANSLATED] = text(in_dir("evil.jpg"));
	assert_int_equal(script_judge(&judge, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	assert_true(script_hides_translated(&judge, &meta));
	meta.of[META_PATH_TRANSLATED] = text(in_dir("up/ok.php"));
	assert_true(script_hides_translated(&judge, &meta));
	meta.of[META_SCRIPT_FILENAME] = text(in_dir("evil.jpg"));
	assert_int_equal(script_judge(&judge, &meta, now_us, &path_info), SCRIPT_DENIED);
	meta.of[META_REDIRECT_URL] = text(NULL);
	assert_false(script_hides_translated(&judge, &meta));
	meta.of[META_PATH_TRANSLATED] = text(NULL);
	meta.of[META_REDIRECT_URL] = text("/r");
	assert_false(script_hides_translated(&judge, &meta));
}

static bool has_tail(const char *file, const char *info)
{
	struct meta meta = apache_meta(in_dir(file), info);
	struct slice tail = script_tail(&judge, &meta, now_us);

	assert_true(!tail.at || (tail.at == info && tail.len == strlen(info)));
	return tail.at != NULL;
}

static void test_tail(void **state)
{
	struct meta meta;

	(void)state;
	assert_true(has_tail("a.php", "/info"));
	assert_true(has_tail("a.php", "/"));
	assert_true(has_tail("link.php", "/more/..info/info..")); /* no ".." */
	assert_false(has_tail("a.php", ""));
	assert_false(has_tail("a.php", NULL));
	assert_false(has_tail("a.php", "info"));
	assert_false(has_tail("a.php", "/../evil.jpg"));
	assert_false(has_tail("a.php", "/x/.."));
	assert_false(has_tail("dir.php", "/inner.jpg")); /* would be another file */
	assert_false(has_tail("dir.php", "/none"));
	assert_false(has_tail("up", "/evil.jpg"));
	assert_false(has_tail("up", "/ok.php"));
	assert_false(has_tail("none.php", "/info"));
	meta = apache_meta(in_dir("a.php"), "/info");
	assert_non_null(script_tail(&judge, &meta, now_us).at);
	meta.of[META_REDIRECT_URL] = text(NULL);
	assert_null(script_tail(&judge, &meta, now_us).at);
	meta.of[META_REDIRECT_URL] = text("");
	meta.by_apache = false;
	assert_null(script_tail(&judge, &meta, now_us).at);
}

static void test_length_of_tail(void **state)
{
	static char info[SCRIPT_PATH_MAX];
	struct meta meta = apache_meta(in_dir("a.php"), "/");
	size_t left = SCRIPT_PATH_MAX - meta.of[META_SCRIPT_FILENAME].len;

	(void)state;
	memset(info, 'x', sizeof(info));
	info[0] = '/';
	meta.of[META_PATH_INFO] = (struct slice){info, left};
	assert_null(script_tail(&judge, &meta, now_us).at);
	for (size_t i = 0; i < left; i += 200) /* a name of 255 bytes at the most */
		info[i] = '/';
	meta.of[META_PATH_INFO].len--;
	assert_ptr_equal(script_tail(&judge, &meta, now_us).at, info);
}

static void test_length(void **state)
{
	char name[SCRIPT_PATH_MAX + 2];

	(void)state;
	memset(name, '/', sizeof(name));
	memcpy(name + SCRIPT_PATH_MAX - 5, ".php", 5); /* 4,095 bytes */
	assert_int_equal(judge_full(name, NULL, NULL), SCRIPT_MISSING);
	memset(name, '/', sizeof(name));
	memcpy(name + SCRIPT_PATH_MAX - 4, ".php", 5);
	assert_int_equal(judge_full(name, NULL, NULL), SCRIPT_TOO_LONG);
	memset(name, 'x', sizeof(name));
	name[SCRIPT_PATH_MAX - 1] = '\0'; /* a component over NAME_MAX */
	assert_int_equal(judge_full(name, NULL, NULL), SCRIPT_MISSING);
}

/* What lies behind the slice's end is none of its business. */
static void test_unterminated(void **state)
{
	char name[512];
	struct meta meta = {0};

	(void)state;
	snprintf(name, sizeof(name), "%s.phpXXX", in_dir("evil.jpg/x"));
	meta.of[META_SCRIPT_FILENAME] = (struct slice){name, strlen(name) - 3};
	assert_int_equal(script_judge(&judge, &meta, now_us, &path_info), SCRIPT_DENIED);
	assert_true(slice_is(path_info, "/x.php"));
	snprintf(name, sizeof(name), "%s", in_dir("a.php.jpg"));
	meta.of[META_SCRIPT_FILENAME] = (struct slice){name, strlen(name) - 4};
	assert_int_equal(script_judge(&judge, &meta, now_us, &path_info), SCRIPT_ALLOWED);
}

static void test_relative_to_chdir(void **state)
{
	struct script_judge relative;
	struct meta meta = {0};

	(void)state;
	assert_true(script_judge_init(&relative, ".php", NULL, dir));
	meta.of[META_SCRIPT_FILENAME] = text("a.php/info");
	assert_int_equal(script_judge(&relative, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	assert_true(slice_is(path_info, "/info"));
	meta.of[META_SCRIPT_FILENAME] = text("up/evil.jpg/x.php");
	assert_int_equal(script_judge(&relative, &meta, now_us, &path_info), SCRIPT_DENIED);
	meta.of[META_SCRIPT_FILENAME] = text(in_dir("evil.jpg"));
	assert_int_equal(script_judge(&relative, &meta, now_us, &path_info), SCRIPT_DENIED);
	script_judge_fini(&relative);
	errno = 0;
	assert_false(script_judge_init(&relative, ".php", NULL, in_dir("missing")));
	assert_int_equal(errno, ENOENT);
	script_judge_fini(&relative);
	assert_false(script_judge_init(&relative, ".php", NULL, in_dir("a.php")));
	assert_int_equal(errno, ENOTDIR);
	script_judge_fini(&relative);
}

/* ---- in a chroot ---- */

static const char *const links[][2] = {
        {"inside.php", "/up/evil.jpg"}, /* absolute, and yet inside */
        {"outside.php", "/proc/self/status"},
        {"above.php", "../../../../../../../../proc/self/status"},
        {"climbs.php", "../../../../../../../../a.php"},
        {"dir", "/up"},
        {"outdir", "/proc"},
};

static int chroot_setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		if (symlink(links[i][1], in_dir(links[i][0])) != 0)
			return -1;
	}
	return script_judge_init(&judge, ".php .phar", dir, NULL) ? 0 : -1;
}

static int chroot_teardown(void **state)
{
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		unlink(in_dir(links[i][0]));
	return judge_teardown(state);
}

static void check_inside(const char *name, enum script_verdict verdict, const char *info)
{
	enum script_verdict got = judge_full(name, NULL, NULL);

	if (got != verdict)
		print_error("%s: verdict %d\n", name, got);
	assert_int_equal(got, verdict);
	if (info)
		assert_true(slice_is(path_info, info));
	else
		assert_null(path_info.at);
}

static void test_chroot(void **state)
{
	(void)state;
	check_inside("/a.php", SCRIPT_ALLOWED, NULL);
	check_inside("/up/ok.php/info", SCRIPT_ALLOWED, "/info");
	check_inside("/up/evil.jpg/x.php", SCRIPT_DENIED, "/x.php");
	check_inside("/../../a.php", SCRIPT_ALLOWED, NULL);
	check_inside("a.php", SCRIPT_ALLOWED, NULL); /* workers are in the new root */
	check_inside("/proc/self/status", SCRIPT_MISSING, NULL);
	check_inside("/../../proc/self/status/x.php", SCRIPT_MISSING, NULL);
	assert_int_equal(judged("a.php"), SCRIPT_MISSING); /* its name outside */
}

static void test_chroot_links(void **state)
{
	(void)state;
	check_inside("/inside.php", SCRIPT_ALLOWED, NULL);
	check_inside("/inside.php/x", SCRIPT_ALLOWED, "/x");
	check_inside("/outside.php", SCRIPT_MISSING, NULL);
	check_inside("/outside.php/x", SCRIPT_MISSING, NULL);
	check_inside("/above.php", SCRIPT_MISSING, NULL);
	check_inside("/climbs.php", SCRIPT_ALLOWED, NULL);
	check_inside("/dir/ok.php", SCRIPT_ALLOWED, NULL);
	check_inside("/dir/evil.jpg/x.php", SCRIPT_DENIED, "/x.php");
	check_inside("/outdir/self/status/x.php", SCRIPT_MISSING, NULL);
	check_inside("/link.php/x", SCRIPT_ALLOWED, "/x");
	check_inside("/loop.php", SCRIPT_MISSING, NULL);
}

static void check_chdir(const char *chdir_to)
{
	struct script_judge inner;
	struct meta meta = {0};

	assert_true(script_judge_init(&inner, ".php", dir, chdir_to));
	meta.of[META_SCRIPT_FILENAME] = text("ok.php/info");
	assert_int_equal(script_judge(&inner, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	assert_true(slice_is(path_info, "/info"));
	meta.of[META_SCRIPT_FILENAME] = text("evil.jpg/x.php");
	assert_int_equal(script_judge(&inner, &meta, now_us, &path_info), SCRIPT_DENIED);
	meta.of[META_SCRIPT_FILENAME] = text("../../../a.php");
	assert_int_equal(script_judge(&inner, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	meta.of[META_SCRIPT_FILENAME] = text("/up/ok.php");
	assert_int_equal(script_judge(&inner, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	meta.of[META_SCRIPT_FILENAME] = text("/ok.php");
	assert_int_equal(script_judge(&inner, &meta, now_us, &path_info), SCRIPT_MISSING);
	script_judge_fini(&inner);
}

static void check_refused(const char *chroot_to, const char *chdir_to, int error)
{
	struct script_judge refused;

	errno = 0;
	assert_false(script_judge_init(&refused, ".php", chroot_to, chdir_to));
	assert_int_equal(errno, error);
	script_judge_fini(&refused);
}

static void test_chdir_in_chroot(void **state)
{
	(void)state;
	check_chdir("/up");
	check_chdir("up");
	check_chdir("/dir");
	check_refused(dir, "/outdir", ENOENT);
	check_refused(dir, dir, ENOENT);
	check_refused(dir, "/a.php", ENOTDIR);
	check_refused(in_dir("missing"), NULL, ENOENT);
	check_refused(in_dir("a.php"), NULL, ENOTDIR);
}

/* A name that PHP cannot open is refused, whatever may be run. */
static void test_no_limit_but_length(void **state)
{
	char name[SCRIPT_PATH_MAX + 1];
	struct script_judge any;
	struct meta meta = {0};

	(void)state;
	memset(name, 'x', sizeof(name));
	assert_true(script_judge_init(&any, NULL, NULL, NULL));
	meta.of[META_SCRIPT_FILENAME] = (struct slice){name, SCRIPT_PATH_MAX};
	assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_TOO_LONG);
	meta.of[META_SCRIPT_FILENAME].len--;
	assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	script_judge_fini(&any);
}

static void test_no_limit(void **state)
{
	static const char *const none[] = {NULL, "", "  \t "};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		struct script_judge any;
		struct meta meta = {0};

		assert_true(script_judge_init(&any, none[i], NULL, NULL));
		assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_ALLOWED);
		meta.of[META_SCRIPT_FILENAME] = text(in_dir("up/evil.jpg/x.php"));
		assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_ALLOWED);
		assert_null(path_info.at);
		/* a PATH_INFO is to be repaired, whatever may be run */
		meta.of[META_PATH_INFO] = text("");
		assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_ALLOWED);
		assert_true(slice_is(path_info, "/x.php"));
		meta.of[META_SCRIPT_FILENAME] = text(in_dir("none"));
		assert_int_equal(script_judge(&any, &meta, now_us, &path_info), SCRIPT_ALLOWED);
		assert_null(path_info.at);
		assert_false(script_hides_translated(&any, &meta));
		script_judge_fini(&any);
	}
}

/* What php-cgi finds no file by is refused, though any extension will do. */
static void test_strict(void **state)
{
	static const char *const climbing[] = {"..", "../a.php", "/..", "up/../a.php", "up/..", "/tmp/../tmp/a.php"};
	struct script_judge strict;
	struct meta meta = {0};

	(void)state;
	assert_true(script_judge_init(&strict, NULL, dir, NULL));
	strict.is_strict = true;
	for (size_t i = 0; i < sizeof(climbing) / sizeof(climbing[0]); i++) {
		meta.of[META_SCRIPT_FILENAME] = text(climbing[i]);
		assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_MISSING);
	}
	meta.of[META_SCRIPT_FILENAME] = (struct slice){"up/..\0/x", 8};
	assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_MISSING);
	meta.of[META_SCRIPT_FILENAME] = text("none");
	assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_MISSING);
	meta.of[META_SCRIPT_FILENAME] = text("");
	assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_MISSING);
	meta.of[META_SCRIPT_FILENAME] = text(NULL);
	assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_MISSING);
	meta.of[META_SCRIPT_FILENAME] = text("/up/evil.jpg/..x/x..");
	assert_int_equal(script_judge(&strict, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	assert_true(slice_is(path_info, "/..x/x.."));
	meta.of[META_PATH_TRANSLATED] = text("/a/..");
	assert_true(script_hides_translated(&strict, &meta));
	meta.of[META_PATH_TRANSLATED] = text("");
	assert_true(script_hides_translated(&strict, &meta));
	meta.of[META_PATH_TRANSLATED] = text("/a");
	assert_false(script_hides_translated(&strict, &meta));
	strict.is_strict = false;
	meta.of[META_PATH_TRANSLATED] = text("/a/..");
	assert_false(script_hides_translated(&strict, &meta));
	script_judge_fini(&strict);
}

static void test_list_of_extensions(void **state)
{
	struct script_judge spaced;
	struct meta meta = {0};

	(void)state;
	assert_true(script_judge_init(&spaced, "  .jpg\t .phar  ", NULL, NULL));
	meta.of[META_SCRIPT_FILENAME] = text(in_dir("evil.jpg"));
	assert_int_equal(script_judge(&spaced, &meta, now_us, &path_info), SCRIPT_ALLOWED);
	meta.of[META_SCRIPT_FILENAME] = text(in_dir("a.php"));
	assert_int_equal(script_judge(&spaced, &meta, now_us, &path_info), SCRIPT_DENIED);
	script_judge_fini(&spaced);
}

/* Seen by a file that goes away behind the judge's back. */
static void test_cache_ends(void **state)
{
	(void)state;
	check("a.php", SCRIPT_ALLOWED, NULL);
	assert_int_equal(rename(in_dir("a.php"), in_dir("a.away")), 0);
	now_us += CACHE_US - 1;
	check("a.php", SCRIPT_ALLOWED, NULL);
	assert_int_equal(judged("a.php/"), SCRIPT_MISSING); /* another name, not remembered */
	assert_int_equal(rename(in_dir("a.away"), in_dir("a.php")), 0);

	assert_int_equal(mkdir(in_dir("d"), 0700), 0);
	make_file("d/x.php");
	check("d/x.php", SCRIPT_ALLOWED, NULL);
	assert_int_equal(rename(in_dir("d/x.php"), in_dir("x")), 0);
	assert_int_equal(rmdir(in_dir("d")), 0);
	assert_int_equal(rename(in_dir("x"), in_dir("d")), 0); /* now d is a file without an extension */
	now_us += CACHE_US - 1;
	check("d/x.php", SCRIPT_ALLOWED, NULL); /* still remembered */
	now_us += 1;
	check("d/x.php", SCRIPT_DENIED, "/x.php");
	assert_int_equal(unlink(in_dir("d")), 0);
}

/* Whatever was asked before: a denied name stays denied, though names share
 * the cache's slots and a name's beginning is another's. */
static void test_cache_never_allows_the_denied(void **state)
{
	(void)state;
	for (int round = 0; round < 3; round++) {
		check("a.php", SCRIPT_ALLOWED, NULL);
		for (int i = 0; i < 20 * SCRIPT_CACHE_SLOTS; i++) {
			char name[64];

			snprintf(name, sizeof(name), "up/evil.jpg/%d.php", i);
			assert_int_equal(judged(name), SCRIPT_DENIED);
			snprintf(name, sizeof(name), "up/./%.*sok.php", i % 9 * 2, "./././././././././");
			assert_int_equal(judged(name), SCRIPT_ALLOWED);
			snprintf(name, sizeof(name), "%.*sevil.jpg", i % 9 * 2, "./././././././././");
			assert_int_equal(judged(name), SCRIPT_DENIED);
		}
		check("evil.jpg", SCRIPT_DENIED, NULL);
		check("up/evil.jpg/x.php", SCRIPT_DENIED, "/x.php");
		now_us += CACHE_US / 2;
	}
}

#define JUDGED(test) cmocka_unit_test_setup_teardown(test, judge_setup, judge_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        JUDGED(test_files),
	        JUDGED(test_directories),
	        JUDGED(test_walk_up),
	        JUDGED(test_missing),
	        JUDGED(test_backslashes),
	        JUDGED(test_redirected),
	        JUDGED(test_hidden_translated),
	        JUDGED(test_redirected_by_apache),
	        JUDGED(test_tail),
	        JUDGED(test_length_of_tail),
	        JUDGED(test_length),
	        JUDGED(test_unterminated),
	        cmocka_unit_test(test_relative_to_chdir),
	        cmocka_unit_test_setup_teardown(test_chroot, chroot_setup, chroot_teardown),
	        cmocka_unit_test_setup_teardown(test_chroot_links, chroot_setup, chroot_teardown),
	        cmocka_unit_test_setup_teardown(test_chdir_in_chroot, chroot_setup, chroot_teardown),
	        cmocka_unit_test(test_no_limit_but_length),
	        cmocka_unit_test(test_no_limit),
	        cmocka_unit_test(test_strict),
	        cmocka_unit_test(test_list_of_extensions),
	        JUDGED(test_cache_ends),
	        JUDGED(test_cache_never_allows_the_denied),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

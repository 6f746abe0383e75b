/* php-cgi's settings: what it makes of them, whether a script can change them,
 * and which names a script must have for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/phpini.h"

static char dir[] = "/tmp/h2fpm-test-phpini-XXXXXX";

static const char *in_dir(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

/* What a chroot's root directory may hold. */
static const char *const directories[] = {"var", "srv", "var-2", "odd name", "odd]name", "odd$name", ".hidden", "v"};
static const char *const links[][2] = {{"link", "/srv"}, {"tofile", "/file"}, {"outside", "/proc"}, {"loop", "loop"}};

static int setup(void **state)
{
	int fd;

	(void)state;
	if (!mkdtemp(dir))
		return -1;
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		assert_int_equal(mkdir(in_dir(directories[i]), 0700), 0);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		assert_int_equal(symlink(links[i][1], in_dir(links[i][0])), 0);
	fd = open(in_dir("file"), O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	close(fd);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		rmdir(in_dir(directories[i]));
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		unlink(in_dir(links[i][0]));
	unlink(in_dir("file"));
	return rmdir(dir); /* fails when something was left */
}

/* ---- the arguments ---- */

static size_t count_of(const struct phpini *ini)
{
	size_t count = 0;

	while (ini->args[count])
		count++;
	return count;
}

static void test_no_settings(void **state)
{
	struct pool_settings settings = {0};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	assert_int_equal(count_of(&ini), 0);
	assert_null(ini.roots);
	assert_null(phpini_prefix(&ini, "/x.php", 6));
	phpini_fini(&ini);
	phpini_fini(&ini);
}

/* Without an admin setting nothing is protected, and no name is changed. */
static void test_values_alone(void **state)
{
	struct setting_pair items[] = {{"memory_limit", "64M", false}, {"a.b", "it's", false}, {"c", "", false}};
	static const char *const want[] = {"-d", "memory_limit='64M'", "-d", "a.b=\"it's\"", "-d", "c=''"};
	struct pool_settings settings = {.php_values = {items, 3}};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	assert_int_equal(count_of(&ini), 6);
	for (size_t i = 0; i < 6; i++)
		assert_string_equal(ini.args[i], want[i]);
	assert_null(ini.roots);
	assert_null(phpini_prefix(&ini, "/x.php", 6));
	assert_null(phpini_prefix(&ini, "a/x.php", 7));
	phpini_fini(&ini);
}

static void test_sections(void **state)
{
	struct setting_pair items[] = {
	        {"user", "1", false}, {"a.b", "it's", true}, {"opcache.enable", "1", true}, {"c", "", true}};
	struct pool_settings settings = {.chroot = dir, .php_values = {items, 4}};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	assert_int_equal(count_of(&ini), 10);
	assert_string_equal(ini.args[3], "a.b=\"it's\"");
	assert_string_equal(ini.args[5], "opcache.enable='1'");
	assert_string_equal(ini.args[8], "-d");
#define LINES "a.b=\"it's\"\nc=''\n"
	assert_string_equal(ini.args[9],
	                    LINES "[PATH=.]\n" LINES "[PATH=/.]\n" LINES "[PATH=/link]\n" LINES "[PATH=/srv]\n" LINES
	                          "[PATH=/v]\n" LINES "[PATH=/var]\n" LINES "[PATH=/var-2]\n" LINES);
	assert_int_equal(ini.root_count, 5);
	phpini_fini(&ini);
}

/* Names that would do harm, or that php.ini's grammar reads as more. */
static void test_names_without_a_section(void **state)
{
	static const char *const names[] = {
	        "extension", "zend_extension",          "opcache.enable", "browscap", "a[b]", "a b", "a=b",
	        "",          "iconv.internal_encoding", "[PATH=/x]"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct setting_pair item = {(char *)(uintptr_t)names[i], "1", true};
		struct pool_settings settings = {.chroot = dir, .php_values = {&item, 1}};
		struct phpini ini;

		assert_true(phpini_init(&ini, &settings));
		assert_int_equal(count_of(&ini), 2);
		assert_null(ini.roots);
		phpini_fini(&ini);
	}
}

static void test_too_much_for_each_directory(void **state)
{
	static char value[30001];
	struct setting_pair item = {"a", value, true};
	struct pool_settings settings = {.chroot = dir, .php_values = {&item, 1}};
	struct phpini ini;

	(void)state;
	memset(value, 'x', sizeof(value) - 1);
	assert_true(phpini_init(&ini, &settings));
	assert_int_equal(count_of(&ini), 4);
	assert_true(strlen(ini.args[3]) > 90000 && strlen(ini.args[3]) < 102400);
	assert_non_null(strstr(ini.args[3], "[PATH=/.]"));
	assert_int_equal(ini.root_count, 0);
	assert_string_equal(phpini_prefix(&ini, "/var/x.php", 10), "/.");
	assert_null(phpini_prefix(&ini, "/./var/x.php", 12));
	phpini_fini(&ini);
}

static void test_no_root_directory(void **state)
{
	struct setting_pair item = {"a", "1", true};
	struct pool_settings settings = {.chroot = "/nonexistent", .php_values = {&item, 1}};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	assert_string_equal(ini.args[3], "a='1'\n[PATH=.]\na='1'\n[PATH=/.]\na='1'\n");
	assert_string_equal(phpini_prefix(&ini, "/var/x.php", 10), "/.");
	phpini_fini(&ini);
}

/* ---- names ---- */

static void check_prefix(const struct phpini *ini, const char *path, const char *want)
{
	/* where reading on would be noticed */
	size_t len = strlen(path);
	char *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, path, len);
	const char *got = phpini_prefix(ini, copy, len);
	free(copy);
	if ((got != NULL) != (want != NULL))
		print_error("%s: %s\n", path, got ? got : "none");
	if (want)
		assert_string_equal(got, want);
	else
		assert_null(got);
}

static void test_prefix(void **state)
{
	static const char *const covered[] = {
	        "/var/x.php", "/var/www/x.php", "/var//x.php", "/srv/",   "/var-2/x",  "/v/x", "/link/x",
	        "/./x.php",   "/.//x",          "x.php",       "./x.php", "./a/x.php", ".//x", ".",
	        "..",         "x\\y.php",       "/var/../x",   ""};
	static const char *const absolute[] = {
	        "/",    "/x.php",       "/var",        "/va/x",       "/vara/x",     "/var-/x",    "//var/x", "//",
	        "/.",   "/..",          "/../x",       "/file/x",     "/tofile/x",   "/outside/x", "/loop/x", "/new/x",
	        "/w/x", "/x.php/var/y", "/odd name/x", "/odd]name/x", "/odd$name/x", "/.hidden/x"};
	static const char *const relative[] = {"a/x.php",       "var/x.php", "../x.php", "x.php/", "memory_limit/x.php",
	                                       "phar:///var/x", "..a/",      "a./x"};
	struct setting_pair item = {"a", "1", true};
	struct pool_settings settings = {.chroot = dir, .php_values = {&item, 1}};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++)
		check_prefix(&ini, covered[i], NULL);
	for (size_t i = 0; i < sizeof(absolute) / sizeof(absolute[0]); i++)
		check_prefix(&ini, absolute[i], "/.");
	for (size_t i = 0; i < sizeof(relative) / sizeof(relative[0]); i++)
		check_prefix(&ini, relative[i], "./");
	/* PHP would see these end at the zero byte */
	assert_string_equal(phpini_prefix(&ini, "/var\0/x.php", 11), "/.");
	assert_string_equal(phpini_prefix(&ini, "/var\0xxxxx/x", 13), "/.");
	phpini_fini(&ini);
}

static const char *param_prefix(const struct phpini *ini, const char *script, const char *name, const char *value)
{
	struct meta meta = {0};
	struct param p = {(const uint8_t *)name, strlen(name), (const uint8_t *)value, strlen(value)};

	meta.of[META_SCRIPT_FILENAME] = (struct slice){script, script ? strlen(script) : 0};
	return phpini_param_prefix(ini, &meta, &p);
}

static void test_params(void **state)
{
	static const char script[] = "/new/www/x.php";
	struct setting_pair item = {"a", "1", true};
	struct pool_settings settings = {.chroot = dir, .php_values = {&item, 1}};
	struct phpini ini;

	(void)state;
	assert_true(phpini_init(&ini, &settings));
	assert_string_equal(param_prefix(&ini, script, "SCRIPT_FILENAME", script), "/.");
	assert_string_equal(param_prefix(&ini, script, "SCRIPT_FILENAME", "a/b"), "./");
	assert_string_equal(param_prefix(&ini, script, "PATH_TRANSLATED", "/new/www/y"), "/.");
	assert_null(param_prefix(&ini, script, "PATH_TRANSLATED", "/var/www/y"));
	assert_null(param_prefix(&ini, script, "SCRIPT_FILENAM", script));
	assert_null(param_prefix(&ini, script, "SCRIPT_FILENAMES", script));
	assert_null(param_prefix(&ini, script, "SCRIPT_FILENAMX", script));
	assert_null(param_prefix(&ini, script, "PATH_INFO", script));
	assert_null(param_prefix(&ini, script, "", script));
	assert_string_equal(param_prefix(&ini, script, "DOCUMENT_ROOT", "/new/www"), "/.");
	assert_null(param_prefix(&ini, script, "DOCUMENT_ROOT", "/"));
	assert_null(param_prefix(&ini, script, "DOCUMENT_ROOT", "/other"));
	assert_null(param_prefix(&ini, script, "DOCUMENT_ROOT", ""));
	assert_null(param_prefix(&ini, script, "DOCUMENT_ROOT", "/new/www/x.php/y"));
	assert_null(param_prefix(&ini, "/var/www/x.php", "DOCUMENT_ROOT", "/var"));
	assert_null(param_prefix(&ini, NULL, "DOCUMENT_ROOT", "/new"));
	phpini_fini(&ini);
	assert_true(phpini_init(&ini, &(struct pool_settings){0}));
	assert_null(param_prefix(&ini, script, "SCRIPT_FILENAME", script));
	phpini_fini(&ini);
}

/* ---- what php-cgi makes of them ---- */

static pid_t run_piped(char **argv, char **envp, int *out_fd)
{
	int out[2];
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0), dup2(out[1], 1), dup2(null, 2);
		execvpe(argv[0], argv, envp);
		_exit(127);
	}
	assert_true(pid > 0);
	close(out[1]);
	*out_fd = out[0];
	return pid;
}

static void run(char **argv, char **envp, char *said, size_t size)
{
	size_t len = 0;
	ssize_t n;
	int fd, status;
	pid_t pid = run_piped(argv, envp, &fd);

	while ((n = read(fd, said + len, size - len - 1)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Two settings, so that one value cannot reach into the next. The script says
 * what it sees, tries to change it and says what it sees then. */
static void check_value(const char *script, const char *value, bool admin)
{
	struct setting_pair items[] = {
	        {"user_agent", "not this one", false},
	        {"user_agent", (char *)(uintptr_t)value, admin},
	        {"error_prepend_string", "kept", true},
	};
	struct pool_settings settings = {.php_values = {items, 3}};
	char *env[] = {"SECRET=shown", NULL};
	char said[1024], want[1024];
	struct phpini ini;

	assert_true(phpini_init(&ini, &settings));
	size_t count = count_of(&ini);
	char **argv = calloc(count + 5, sizeof(*argv));
	assert_non_null(argv);
	argv[0] = "php-cgi";
	argv[1] = "-q";
	argv[2] = "-n";
	memcpy(argv + 3, ini.args, count * sizeof(*argv));
	argv[count + 3] = (char *)(uintptr_t)script;
	run(argv, env, said, sizeof(said));
	snprintf(want, sizeof(want), "<%s><%s><kept>", value, admin ? value : "changed");
	assert_string_equal(said, want);
	free(argv);
	phpini_fini(&ini);
}

static void test_values_arrive_as_they_are(void **state)
{
	static const char *const values[] = {
	        "",
	        "plain",
	        "on",
	        "off",
	        "yes",
	        "none",
	        "null",
	        "true",
	        "1",
	        "E_ALL",
	        " lead",
	        "trail ",
	        "a b",
	        "\t",
	        "it's",
	        "'",
	        "''",
	        "\"",
	        "\"\"",
	        "say \"x\"",
	        "both ' and \"",
	        "\"'\"'",
	        "$x",
	        "${SECRET}",
	        "'${SECRET}",
	        "'$SECRET",
	        "{$x}",
	        "'{$x}",
	        "$",
	        "'$",
	        "'$$x",
	        "\\",
	        "'\\",
	        "\\'",
	        "\\\\",
	        "'\\\\",
	        "a\\n'\\n",
	        "C:\\dir\\",
	        "'C:\\dir\\",
	        "'\\\"",
	        "\\\"'",
	        "'\\$x",
	        "'\\\\$x",
	        "a;b",
	        "';b",
	        "#x",
	        "'#x",
	        "[x]",
	        "'[x]",
	        "%d%s",
	        "'%d%s",
	        "a=b",
	        "'a=b",
	        "1|2",
	        "'1|2",
	        "!x",
	        "~1",
	        "&^",
	        "'!~&|^()",
	        "(x)",
	        "\xc3\xa9",
	        "'\xc3\xa9",
	        "\xff",
	        "SECRET",
	        "'SECRET",
	        "a\nb",
	        "'a\nb",
	        "\n[PATH=/]\nuser_agent=x",
	        "'\n[PATH=/tmp]\nuser_agent=x",
	};
	char script[128];
	FILE *f;

	(void)state;
	snprintf(script, sizeof(script), "%s/show.php", dir);
	f = fopen(script, "w");
	assert_non_null(f);
	assert_true(fputs("<?php echo '<', ini_get('user_agent'), '><'; ini_set('user_agent', 'changed');"
	                  "ini_set('error_prepend_string', 'changed');"
	                  "echo ini_get('user_agent'), '><', ini_get('error_prepend_string'), '>';",
	                  f) >= 0);
	assert_int_equal(fclose(f), 0);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		for (int admin = 0; admin < 2; admin++)
			check_value(script, values[i], admin);
	}
	unlink(script);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_no_settings),
	        cmocka_unit_test(test_values_alone),
	        cmocka_unit_test(test_sections),
	        cmocka_unit_test(test_names_without_a_section),
	        cmocka_unit_test(test_too_much_for_each_directory),
	        cmocka_unit_test(test_no_root_directory),
	        cmocka_unit_test(test_prefix),
	        cmocka_unit_test(test_params),
	        cmocka_unit_test(test_values_arrive_as_they_are),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

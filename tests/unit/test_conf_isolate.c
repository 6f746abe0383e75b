/* One pool's mistake costs that pool alone; the file's, and any where it is
 * strict, costs all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "conf_help.h"

#define REST "pm = static\npm.max_children = 1\nworker.command = /bin/sh\n"
#define GOOD "[good]\nlisten = 1\n" REST /* five lines */

static struct told told;

static struct conf *parse(const char *text)
{
	told.len = 0;
	told.text[0] = '\0';
	return conf_parse_lenient("t", text, strlen(text), told_add, &told);
}

/* The pools that are left, and how many are not. */
static void check_left(const char *text, const char *names, size_t broken, const char *lines)
{
	char left[256] = "";
	struct conf *conf = parse(text);

	assert_string_equal(told.text, lines);
	assert_non_null(conf);
	for (size_t i = 0; i < conf->pool_count; i++) {
		strcat(left, conf->pools[i]->name);
		strcat(left, " ");
	}
	assert_string_equal(left, names);
	assert_int_equal(conf->broken_count, broken);
	conf_free(conf);
	assert_null(conf_parse("t", text, strlen(text), told_add, &told)); /* which is strict */
}

static void check_fails(const char *text, const char *lines)
{
	assert_null(parse(text));
	assert_string_equal(told.text, lines);
}

static void test_good(void **state)
{
	(void)state;
	struct conf *conf = parse(GOOD "[other]\nlisten = 2\n" REST);

	assert_non_null(conf);
	assert_int_equal(told.len, 0);
	assert_int_equal(conf->pool_count, 2);
	assert_int_equal(conf->broken_count, 0);
	conf_free(conf);
}

static void test_a_pools_mistake(void **state)
{
	(void)state;
	check_left(GOOD "[bad]\nlisten = 2\nclear_env = maybe\n" REST, "good ", 1,
	           "t:8: clear_env = maybe: give yes or no\n"
	           "t:8: [pool bad] is left out: 1 problem told above\n");
	check_left("[bad]\nlisten = x\nno equals sign\n" GOOD, "good ", 1,
	           "t:1: [bad]: pm is not set and has no default\n"
	           "t:1: [bad]: pm.max_children is not set and has no default\n"
	           "t:2: listen = x: give a socket's path from / on, a port (1 to 65535), ip:port or [ipv6]:port\n"
	           "t:3: no '=' in this line: a directive is name = value\n"
	           "t:3: [pool bad] is left out: 4 problems told above\n");
	check_left(GOOD "[bad]\nlisten = 2\ndaemonize = no\n" REST "[last]\nlisten = 3\n" REST, "good last ", 1,
	           "t:8: daemonize belongs in the [global] section\n"
	           "t:8: [pool bad] is left out: 1 problem told above\n");
}

static void test_several(void **state)
{
	(void)state;
	check_left("[a]\nlisten = 2\nx = 1\n" REST "[b]\nlisten = 3\ny = 1\n" REST GOOD
	           "[global]\nlog_level = error\n[c]\nlisten = 4\nz = 1\n" REST "[d]\nlisten = 5\n" REST,
	           "good d ", 3,
	           "t:3: unknown directive x\n"
	           "t:3: [pool a] is left out: 1 problem told above\n"
	           "t:9: unknown directive y\n"
	           "t:9: [pool b] is left out: 1 problem told above\n"
	           "t:22: unknown directive z\n"
	           "t:22: [pool c] is left out: 1 problem told above\n");
}

static void test_the_later_of_two(void **state)
{
	(void)state;
	check_left(GOOD "[good]\nlisten = 2\n" REST, "good ", 1,
	           "t:6: [good]: there is a pool of this name already, on line 1\n"
	           "t:6: [pool good] is left out: 1 problem told above\n");
	check_left(GOOD "[late]\nlisten = 1\n" REST, "good ", 1,
	           "t:7: listen = 1: pool good listens there already\n"
	           "t:7: [pool late] is left out: 1 problem told above\n");
}

/* The section begins whatever is wrong with its line. */
static void test_headers(void **state)
{
	(void)state;
	check_left(GOOD "[bad\nlisten = 2\n" REST, "good ", 1,
	           "t:6: the section's closing ] is missing\n"
	           "t:6: [pool bad] is left out: 1 problem told above\n");
	check_left(GOOD "[a/b] x\nlisten = 2\n" REST, "good ", 1,
	           "t:6: text after the section's closing ]\n"
	           "t:6: [a/b]: a pool's name has letters, digits and - _ . @ + only\n"
	           "t:6: [pool a/b] is left out: 2 problems told above\n");
	check_fails(GOOD "[global\n", "t:6: the section's closing ] is missing\n");
}

static void test_the_files_mistake(void **state)
{
	(void)state;
	check_fails("x = 1\n" GOOD, "t:1: x stands outside a section\n");
	check_fails("nonsense\n" GOOD, "t:1: no '=' in this line: a directive is name = value\n");
	check_fails(GOOD "[global]\nlog_level = loud\n" "[bad]\nlisten = 2\nx = 1\n" REST,
	            "t:7: log_level = loud: give one of: alert, error, warning, notice, debug\n"
	            "t:10: unknown directive x\n");
	check_fails("[global]\n", "t:1: no pool is defined: at least one section such as [www] must be\n");
}

/* Settings of the master that it would not get; a pool may have such a name. */
static void test_mistyped_global(void **state)
{
	(void)state;
	check_fails("[Gloabl]\ndaemonize = no\n" GOOD, "t:1: [Gloabl]: listen is not set and has no default\n"
	                                                 "t:1: [Gloabl]: pm is not set and has no default\n"
	                                                 "t:1: [Gloabl]: pm.max_children is not set and has no default\n"
	                                                 "t:2: daemonize belongs in the [global] section\n");
	check_left("[globe]\nlisten = 2\nx = 1\n" REST GOOD, "good ", 1,
	           "t:3: unknown directive x\n"
	           "t:3: [pool globe] is left out: 1 problem told above\n");
}

static void test_no_pool_left(void **state)
{
	(void)state;
	check_fails("[a]\nlisten = 2\nx = 1\n" REST "[b]\nlisten = 3\ny = 1\n" REST,
	            "t:3: unknown directive x\n"
	            "t:9: unknown directive y\n"
	            "t:12: no pool is left\n");
}

static void test_too_many_pools(void **state)
{
	(void)state;
	char *text = malloc(200000);
	char expected[200];
	size_t len = 0;

	for (int i = 1; i <= 1001; i++)
		len += (size_t)sprintf(text + len, "[p%d]\nlisten = %d\n" REST, i, i);
	snprintf(expected, sizeof(expected), "t:5001: [p1001]: there are more than 1000 pools\n");
	check_fails(text, expected);
	free(text);
}

/* Where it is known later that a pool cannot be served. */
static void test_leave_out(void **state)
{
	(void)state;
	struct conf *conf = parse("[a]\nlisten = 2\n" REST "[b]\nlisten = 3\n" REST GOOD);

	assert_non_null(conf);
	conf_leave_out(conf, 1);
	assert_int_equal(conf->pool_count, 2);
	assert_int_equal(conf->broken_count, 1);
	assert_string_equal(conf->pools[1]->name, "good");
	conf_leave_out(conf, 1);
	assert_string_equal(conf->pools[0]->name, "a");
	assert_int_equal(conf->broken_count, 2);
	conf_free(conf);
}

static void test_load(void **state)
{
	(void)state;
	char file[] = "/tmp/h2fpm-conf-XXXXXX";
	static const char text[] = GOOD "[bad]\nx = 1\n";
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	close(fd);
	assert_null(conf_load(file, true, told_add, &told));
	struct conf *conf = conf_load(file, false, told_add, &told);
	assert_non_null(conf);
	assert_int_equal(conf->pool_count, 1);
	assert_int_equal(conf->broken_count, 1);
	conf_free(conf);
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_good),
	        cmocka_unit_test(test_a_pools_mistake),
	        cmocka_unit_test(test_several),
	        cmocka_unit_test(test_the_later_of_two),
	        cmocka_unit_test(test_headers),
	        cmocka_unit_test(test_the_files_mistake),
	        cmocka_unit_test(test_mistyped_global),
	        cmocka_unit_test(test_no_pool_left),
	        cmocka_unit_test(test_too_many_pools),
	        cmocka_unit_test(test_leave_out),
	        cmocka_unit_test(test_load),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

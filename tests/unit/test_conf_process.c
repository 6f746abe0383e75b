/* The directives of process management: defaults, ranges, what one says of
 * another, and the way through a dump. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf_help.h"

#define REST "worker.command = /bin/sh\n"
#define STATIC "[www]\nlisten = 9000\npm = static\npm.max_children = 5\n" REST
/* the sixth line and on are the test's */
#define DYNAMIC "[www]\nlisten = 9000\npm = dynamic\npm.max_children = 5\n" REST

static struct told told;

static struct conf *parse(const char *text)
{
	told.len = 0;
	told.text[0] = '\0';
	struct conf *conf = conf_parse("t", text, strlen(text), told_add, &told);
	if (!conf)
		fail_msg("refused:\n%s", told.text);
	return conf;
}

static void check_told(const char *text, const char *lines)
{
	told.len = 0;
	assert_null(conf_parse("t", text, strlen(text), told_add, &told));
	assert_string_equal(told.text, lines);
}

static void check_line(const char *line, const char *what)
{
	char text[512];
	char lines[1024];

	snprintf(text, sizeof(text), STATIC "%s\n", line);
	snprintf(lines, sizeof(lines), "t:6: %s: %s\n", line, what);
	check_told(text, lines);
}

static void test_defaults(void **state)
{
	(void)state;
	struct conf *conf = parse(STATIC);
	const struct pool_settings *pool = conf->pools[0];

	assert_int_equal(conf->broken_count, 0);
	assert_int_equal(conf->global.process_max, 0);
	assert_int_equal(conf->global.process_priority, PRIORITY_UNSET);
	assert_int_equal(conf->global.rlimit_files, RLIMIT_UNSET);
	assert_int_equal(conf->global.rlimit_core, RLIMIT_UNSET);
	assert_int_equal(conf->global.emergency_restart_threshold, 0);
	assert_int_equal(conf->global.emergency_restart_interval_ms, 0);
	assert_int_equal(pool->pm_max_spawn_rate, 32);
	assert_int_equal(pool->pm_process_idle_timeout_ms, 10000);
	assert_false(pool->request_terminate_timeout_track_finished);
	assert_null(pool->chroot);
	assert_null(pool->chdir);
	assert_int_equal(pool->process_priority, PRIORITY_UNSET);
	assert_false(pool->process_dumpable);
	assert_false(pool->process_no_new_privs);
	assert_int_equal(pool->rlimit_files, RLIMIT_UNSET);
	assert_int_equal(pool->rlimit_core, RLIMIT_UNSET);
	assert_null(pool->apparmor_hat);
	assert_int_equal(pool->worker_spawn, WORKER_SPAWN_AUTO);
	assert_int_equal(pool->worker_max_memory_bytes, 0);
	assert_int_equal(pool->worker_max_lifetime_ms, 0);
	conf_free(conf);
}

static const char every[] = "[global]\nprocess.max = 128\nprocess.priority = -19\nrlimit_files = 4096\n"
                            "rlimit_core = unlimited\nemergency_restart_threshold = 10\n"
                            "emergency_restart_interval = 1m\n"
                            "[www]\nlisten = 9000\npm = ondemand\npm.max_children = 5\n" REST
                            "pm.start_servers = 0\npm.min_spare_servers = 9\npm.max_spare_servers = 3\n"
                            "pm.max_spawn_rate = 1\npm.process_idle_timeout = 1ms\n"
                            "request_terminate_timeout_track_finished = yes\n"
                            "chroot = /usr\nchdir = /bin\nprocess.priority = 20\nprocess.dumpable = yes\n"
                            "process.no_new_privs = yes\nrlimit_files = 0\nrlimit_core = 0\napparmor_hat = hat\n"
                            "worker.spawn = zygote\nworker.max_memory = 64M\nworker.max_lifetime = 1h\n"
                            "[two]\nlisten = 9001\npm = dynamic\npm.max_children = 8\n" REST
                            "pm.min_spare_servers = 2\npm.max_spare_servers = 7\nprocess.priority = 0\n"
                            "rlimit_files = 1\nrlimit_core = 1K\nworker.spawn = exec\n";

static void test_values(void **state)
{
	(void)state;
	struct conf *conf = parse(every);
	const struct pool_settings *pool = conf->pools[0];
	const struct pool_settings *two = conf->pools[1];

	assert_int_equal(conf->global.process_max, 128);
	assert_int_equal(conf->global.process_priority, -19);
	assert_int_equal(conf->global.rlimit_files, 4096);
	assert_int_equal(conf->global.rlimit_core, RLIMIT_UNLIMITED);
	assert_int_equal(conf->global.emergency_restart_threshold, 10);
	assert_int_equal(conf->global.emergency_restart_interval_ms, 60000);
	assert_int_equal(pool->pm, PM_ONDEMAND);
	assert_int_equal(pool->pm_max_spawn_rate, 1);
	assert_int_equal(pool->pm_process_idle_timeout_ms, 1);
	assert_true(pool->request_terminate_timeout_track_finished);
	assert_string_equal(pool->chroot, "/usr");
	assert_string_equal(pool->chdir, "/bin");
	assert_int_equal(pool->process_priority, 19);
	assert_true(pool->process_dumpable);
	assert_true(pool->process_no_new_privs);
	assert_int_equal(pool->rlimit_files, RLIMIT_UNSET);
	assert_int_equal(pool->rlimit_core, 0);
	assert_string_equal(pool->apparmor_hat, "hat");
	assert_int_equal(pool->worker_spawn, WORKER_SPAWN_ZYGOTE);
	assert_int_equal(pool->worker_max_memory_bytes, 64 << 20);
	assert_int_equal(pool->worker_max_lifetime_ms, 3600000);
	assert_int_equal(two->pm, PM_DYNAMIC);
	assert_int_equal(two->process_priority, 0);
	assert_int_equal(two->rlimit_files, 1);
	assert_int_equal(two->rlimit_core, 1024);
	assert_int_equal(two->worker_spawn, WORKER_SPAWN_EXEC);
	conf_free(conf);
}

static void check_dump(const char *text)
{
	struct conf *conf = parse(text);

	told.len = 0;
	struct conf *again = conf_reread(conf, NULL, &told);
	if (!again)
		fail_msg("the dump is refused:\n%s", told.text);
	if (conf_difference(conf, again))
		fail_msg("%s is another after a dump", conf_difference(conf, again));
	conf_free(again);
	conf_free(conf);
}

static void test_dump(void **state)
{
	(void)state;
	check_dump(STATIC); /* what is unset stays so */
	check_dump(every);
	check_dump(STATIC "process.priority = 19\nrlimit_core = unlimited\nrlimit_files = 2147483647\n");
	check_dump(DYNAMIC "pm.min_spare_servers = 1\npm.max_spare_servers = 4\n");
}

static void test_ranges(void **state)
{
	(void)state;
	static const char nice[] = "give a whole number from -20 to 19";

	check_line("process.priority = -21", nice);
	check_line("process.priority = 21", nice);
	check_line("process.priority = ", nice);
	check_line("pm.max_spawn_rate = 0", "give a whole number from 1 to 2147483647");
	check_line("pm.process_idle_timeout = 0",
	           "give a time in seconds, or with ms, s, m, h or d behind it, from 1ms to 366d");
	check_line("pm.start_servers = -1", "give a whole number from 0 to 10000");
	check_line("rlimit_files = unlimited", "give a whole number from 1 to 2147483647");
	check_line("rlimit_files = -1", "give a whole number from 1 to 2147483647");
	check_line("rlimit_core = -1", "give a size in bytes, or with K, M or G behind it, from 0 to 1048576G, "
	                               "or unlimited");
	check_line("worker.spawn = fork", "give one of: auto, zygote, exec");
	check_line("process.dumpable = 2", "give yes or no");
	check_line("chroot = /no/such", "there is no such directory");
	check_line("chroot = relative", "give a directory's path from / on");
	check_line("chdir = relative", "give a directory's path from / on");
	check_line("chdir = /etc/passwd", "this is not a directory");
	check_told("[global]\nprocess.max = -1\nprocess.dumpable = no\nprocess.priority = x\n" STATIC,
	           "t:2: process.max = -1: give a whole number from 0 to 2147483647\n"
	           "t:3: process.dumpable belongs in a pool's section\n"
	           "t:4: process.priority = x: give a whole number from -20 to 19\n");
}

static void check_start(const char *more, int expected)
{
	char text[512];

	snprintf(text, sizeof(text), DYNAMIC "%s", more);
	struct conf *conf = parse(text);
	assert_int_equal(conf->pools[0]->pm_start_servers, expected);
	conf_free(conf);
}

static void test_start_servers(void **state)
{
	(void)state;
	check_start("pm.min_spare_servers = 1\npm.max_spare_servers = 4\n", 2);
	check_start("pm.start_servers = 0\npm.min_spare_servers = 1\npm.max_spare_servers = 4\n", 2);
	check_start("pm.min_spare_servers = 5\npm.max_spare_servers = 5\n", 5);
	check_start("pm.min_spare_servers = 1\npm.max_spare_servers = 5\n", 3);
	check_start("pm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 4\n", 1);
	check_start("pm.start_servers = 4\npm.min_spare_servers = 1\npm.max_spare_servers = 4\n", 4);
}

static void test_dynamic(void **state)
{
	(void)state;
	check_told(DYNAMIC, "t:3: pm = dynamic: pm.min_spare_servers must be set\n"
	                    "t:3: pm = dynamic: pm.max_spare_servers must be set\n");
	check_told(DYNAMIC "pm.min_spare_servers = 0\npm.max_spare_servers = 0\n",
	           "t:6: pm.min_spare_servers = 0: give a whole number from 1 to 5 (pm.max_children)\n"
	           "t:7: pm.max_spare_servers = 0: give a whole number from 1 to 5 (pm.max_children)\n");
	check_told(DYNAMIC "pm.max_spare_servers = 2\npm.min_spare_servers = 3\n",
	           "t:6: pm.max_spare_servers = 2: give a whole number from 3 (pm.min_spare_servers) to 5 "
	           "(pm.max_children)\n");
	check_told(DYNAMIC "pm.min_spare_servers = 6\npm.max_spare_servers = 6\n",
	           "t:6: pm.min_spare_servers = 6: give a whole number from 1 to 5 (pm.max_children)\n"
	           "t:7: pm.max_spare_servers = 6: give a whole number from 1 to 5 (pm.max_children)\n");
	for (int start = 1; start <= 5; start += 4) {
		char text[512];
		char lines[256];
		snprintf(text, sizeof(text),
		         DYNAMIC "pm.min_spare_servers = 2\npm.max_spare_servers = 4\npm.start_servers = %d\n", start);
		snprintf(lines, sizeof(lines),
		         "t:8: pm.start_servers = %d: give a whole number from 2 (pm.min_spare_servers) to 4 "
		         "(pm.max_spare_servers)\n",
		         start);
		check_told(text, lines);
	}
}

/* What is told already has no second line in its wake. */
static void test_dynamic_after_mistakes(void **state)
{
	(void)state;
	check_told(DYNAMIC "pm.min_spare_servers = many\npm.max_spare_servers = 4\n",
	           "t:6: pm.min_spare_servers = many: give a whole number from 0 to 10000\n");
	check_told("[www]\nlisten = 9000\npm = dynamic\n" REST,
	           "t:1: [www]: pm.max_children is not set and has no default\n");
	check_told(STATIC "chroot = /no/such\nchdir = /no/such\n",
	           "t:6: chroot = /no/such: there is no such directory\n");
}

/* dir/jail has in/ and a link "here" to /in; dir has out/. */
static void test_chdir_in_chroot(void **state)
{
	const char *dir = *state;
	char text[1024];
	char lines[1024];

	snprintf(text, sizeof(text), STATIC "chdir = /in\nchroot = %s/jail\n", dir);
	conf_free(parse(text));
	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nchdir = /here\n", dir);
	conf_free(parse(text));
	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nchdir = /../out\n", dir);
	snprintf(lines, sizeof(lines),
	         "t:7: chdir = /../out: within chroot = %s/jail there is no such directory\n", dir);
	check_told(text, lines);
	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nchdir = %s/out\n", dir, dir);
	snprintf(lines, sizeof(lines),
	         "t:7: chdir = %s/out: within chroot = %s/jail there is no such directory\n", dir, dir);
	check_told(text, lines);
}

/* By exec the program is inside; a zygote's is outside. */
static void test_command_in_chroot(void **state)
{
	const char *dir = *state;
	char text[1024];

	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nworker.command = /in/program --option\n", dir);
	conf_free(parse(text));
	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nworker.command = /bin/sh\n", dir);
	conf_free(parse(text));
	snprintf(text, sizeof(text), STATIC "chroot = %s/jail\nworker.command = /here/none\n", dir);
	check_told(text, "t:7: worker.command = /here/none: program not found, or not executable\n");
	check_told(STATIC "worker.command = /in/program\n",
	           "t:6: worker.command = /in/program: program not found, or not executable\n");
}

static const char *const directories[] = {"jail", "jail/in", "out"};

static int make_world(void **state)
{
	static char dir[] = "/tmp/h2fpm-conf-XXXXXX";
	char path[256];

	if (!mkdtemp(dir))
		return -1;
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, directories[i]);
		if (mkdir(path, 0755) != 0)
			return -1;
	}
	snprintf(path, sizeof(path), "%s/jail/in/program", dir);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	if (fd < 0)
		return -1;
	close(fd);
	snprintf(path, sizeof(path), "%s/jail/here", dir);
	*state = dir;
	return symlink("/in", path);
}

static int remove_world(void **state)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/jail/here", (const char *)*state);
	unlink(path);
	snprintf(path, sizeof(path), "%s/jail/in/program", (const char *)*state);
	unlink(path);
	for (size_t i = 3; i-- > 0;) {
		snprintf(path, sizeof(path), "%s/%s", (const char *)*state, directories[i]);
		rmdir(path);
	}
	return rmdir(*state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_values),
	        cmocka_unit_test(test_dump),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_start_servers),
	        cmocka_unit_test(test_dynamic),
	        cmocka_unit_test(test_dynamic_after_mistakes),
	        cmocka_unit_test(test_chdir_in_chroot),
	        cmocka_unit_test(test_command_in_chroot),
	};
	return cmocka_run_group_tests(tests, make_world, remove_world);
}

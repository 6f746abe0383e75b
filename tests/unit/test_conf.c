/* Whole configurations: values, defaults, problems with their lines, dumps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf_help.h"
#include "fpm/conf_ini.h"
#include "fpm/log.h"

#define POOL "[www]\nlisten = 9000\npm = static\npm.max_children = 2\n"

static struct told told;

static struct conf *parse_bytes(const char *text, size_t len)
{
	told.len = 0;
	told.text[0] = '\0';
	return conf_parse("t", text, len, told_add, &told);
}

static struct conf *parse(const char *text)
{
	struct conf *conf = parse_bytes(text, strlen(text));
	if (!conf)
		fail_msg("refused:\n%s", told.text);
	assert_int_equal(told.len, 0);
	return conf;
}

/* The problems, exactly. */
static void check_told(const char *text, const char *lines)
{
	assert_null(parse_bytes(text, strlen(text)));
	assert_string_equal(told.text, lines);
}

/* A pool with one more line (the fifth) is refused for that line alone. */
static void check_line(const char *line, const char *problem)
{
	char text[512];
	char lines[1024];

	snprintf(text, sizeof(text), POOL "%s\n", line);
	snprintf(lines, sizeof(lines), "t:5: %s\n", problem);
	check_told(text, lines);
}

static void check_accepted(const char *line)
{
	char text[512];

	snprintf(text, sizeof(text), POOL "%s\n", line);
	conf_free(parse(text));
}

static void test_defaults(void **state)
{
	(void)state;
	struct conf *conf = parse(POOL);
	const struct pool_settings *pool = conf->pools[0];

	assert_null(conf->global.error_log);
	assert_null(conf->global.pid);
	assert_int_equal(conf->global.log_level, LOG_LEVEL_NOTICE);
	assert_true(conf->global.daemonize);
	assert_int_equal(conf->global.process_control_timeout_ms, 0);
	assert_int_equal(conf->global.watchdog_timeout_ms, 10000);
	assert_int_equal(conf->pool_count, 1);
	assert_string_equal(pool->name, "www");
	assert_string_equal(pool->conf_file, "t");
	assert_int_equal(pool->conf_line, 1);
	assert_null(pool->user);
	assert_int_equal(pool->listen_mode, 0660);
	assert_int_equal(pool->listen_backlog, -1);
	assert_int_equal(pool->pm, PM_STATIC);
	assert_int_equal(pool->pm_max_children, 2);
	assert_int_equal(pool->pm_max_requests, 0);
	assert_int_equal(pool->request_terminate_timeout_ms, 0);
	assert_false(pool->catch_workers_output);
	assert_true(pool->decorate_workers_output);
	assert_true(pool->clear_env);
	assert_null(pool->access_log);
	assert_string_equal(pool->access_format, "%R - %u %t \"%m %r\" %s");
	assert_null(pool->ping_path);
	assert_string_equal(pool->ping_response, "pong");
	assert_string_equal(pool->limit_extensions, ".php .phar");
	assert_string_equal(pool->worker_command, "php-cgi");
	assert_int_equal(pool->worker_start_timeout_ms, 30000);
	assert_int_equal(pool->queue_max, 16384);
	assert_int_equal(pool->queue_timeout_ms, 30000);
	assert_int_equal(pool->request_buffer_bytes, 65536);
	assert_int_equal(pool->request_max_params_bytes, 262144);
	assert_int_equal(pool->request_max_body_bytes, 1 << 30);
	assert_string_equal(pool->request_spool_dir, "/tmp");
	assert_int_equal(pool->request_receive_timeout_ms, 60000);
	assert_int_equal(pool->response_buffer_bytes, 262144);
	assert_int_equal(pool->response_send_timeout_ms, 300000);
	assert_int_equal(pool->response_spool_bytes, 1 << 30);
	assert_int_equal(pool->mpxs_max_requests, 128);
	assert_int_equal(pool->mpxs_buffer_bytes, 8 << 20);
	conf_free(conf);
}

static void test_values(void **state)
{
	(void)state;
	struct conf *conf = parse("[Global]\nlog_level = debug\ndaemonize = Off\nprocess_control_timeout = 2m\n"
	                          "watchdog.timeout = 2500ms\npid = /run/x.pid\n"
	                          "[a]\nlisten = /run/$pool.sock\npm = static\npm.max_children = 10000\n"
	                          "listen.mode = 600\nqueue.timeout = 7\nrequest.max_body = 3g\n"
	                          "request.buffer_size=1M\nresponse.buffer_size = 8k\nrequest.max_params=2048\n"
	                          "request_terminate_timeout = 1d\nsecurity.limit_extensions =\nclear_env = 0\n"
	                          "catch_workers_output = TRUE\nworker.command = /bin/sh -x\n"
	                          "[b]\nlisten = [::1]:9000\npm = static\npm.max_children = 1\n"
	                          "pm.max_children = 4\nuser = x\nuser =\n");
	const struct pool_settings *a = conf->pools[0];

	assert_int_equal(conf->global.log_level, LOG_LEVEL_DEBUG);
	assert_false(conf->global.daemonize);
	assert_int_equal(conf->global.process_control_timeout_ms, 120000);
	assert_int_equal(conf->global.watchdog_timeout_ms, 2500);
	assert_string_equal(conf->global.pid, "/run/x.pid");
	assert_int_equal(conf->pool_count, 2);
	assert_string_equal(a->listen, "/run/a.sock");
	assert_int_equal(a->pm_max_children, 10000);
	assert_int_equal(a->listen_mode, 0600);
	assert_int_equal(a->queue_timeout_ms, 7000);
	assert_int_equal(a->request_max_body_bytes, 3LL << 30);
	assert_int_equal(a->request_buffer_bytes, 1 << 20);
	assert_int_equal(a->response_buffer_bytes, 8192);
	assert_int_equal(a->request_max_params_bytes, 2048);
	assert_int_equal(a->request_terminate_timeout_ms, 86400000);
	assert_string_equal(a->limit_extensions, "");
	assert_false(a->clear_env);
	assert_true(a->catch_workers_output);
	assert_string_equal(a->worker_command, "/bin/sh -x");
	assert_int_equal(conf->pools[1]->pm_max_children, 4);
	assert_int_equal(conf->pools[1]->conf_line, 22);
	assert_null(conf->pools[1]->user);
	conf_free(conf);
}

static void check_pair(const struct setting_pairs *pairs, size_t i, const char *name, const char *value, bool admin)
{
	assert_true(i < pairs->count);
	assert_string_equal(pairs->items[i].name, name);
	assert_string_equal(pairs->items[i].value, value);
	assert_int_equal(pairs->items[i].admin, admin);
}

static void test_pairs(void **state)
{
	(void)state;
	setenv("CONF_TEST", "from outside", 1);
	struct conf *conf = parse(POOL "env[A] = x\nenv[ B ] = \"a ; b\"\nenv[C] = $CONF_TEST\nenv[D] = '$CONF_TEST'\n"
	                               "env[E] = on\nenv[F] = 'on'\nenv[A] = y\nenv[G] = a=b\nenv[H] = off\n"
	                               "php_admin_flag[one] = Yes\nphp_value[two] = 128M\nphp_flag[three] = off\n"
	                               "php_admin_value[two] = 1M\nphp_value[four] = E_ALL & ~E_NOTICE\n");
	const struct setting_pairs *env = &conf->pools[0]->env;
	const struct setting_pairs *php = &conf->pools[0]->php_values;

	assert_int_equal(env->count, 8);
	check_pair(env, 0, "A", "y", false);
	check_pair(env, 1, "B", "a ; b", false);
	check_pair(env, 2, "C", "from outside", false);
	check_pair(env, 3, "D", "$CONF_TEST", false);
	check_pair(env, 4, "E", "1", false);
	check_pair(env, 5, "F", "on", false);
	check_pair(env, 6, "G", "a=b", false);
	check_pair(env, 7, "H", "", false);
	assert_int_equal(php->count, 5);
	check_pair(php, 0, "two", "128M", false);
	check_pair(php, 1, "three", "0", false);
	check_pair(php, 2, "four", "E_ALL & ~E_NOTICE", false);
	check_pair(php, 3, "one", "1", true);
	check_pair(php, 4, "two", "1M", true);
	conf_free(conf);
}

static void test_bad_names(void **state)
{
	(void)state;
	check_line("pm.max_childs = 1", "unknown directive pm.max_childs (did you mean pm.max_children?)");
	check_line("Listen.Mode = 1", "unknown directive Listen.Mode (did you mean listen.mode?)");
	check_line("php_admin_valu[x] = 1", "unknown directive php_admin_valu (did you mean php_admin_value[]?)");
	check_line("something.else = 1", "unknown directive something.else");
	check_line("pm.status_path = /s", "php-fpm's pm.status_path is not supported by this version");
	check_line("access.suppress_path[] = /s", "php-fpm's access.suppress_path is not supported by this version");
	check_line("include = *.conf", "php-fpm's include is not supported by this version");
	check_line("daemonize = no", "daemonize belongs in the [global] section");
	check_line("env = x", "env: write env[NAME] = value");
	check_line("env[] = x", "env[] = x: a variable's name starts with a letter or _");
	check_line("env[A = x", "env[A: the closing ] is missing");
	check_line("php_value[a b] = x", "php_value[a b] = x: a PHP setting's name has letters, digits and _ . - only");
	check_line("user[x] = x", "user takes no name in brackets");
	check_line("a\033[31m = 1", "a?[31m: the closing ] is missing");
	check_told("include = x\nuser = x\n" POOL, "t:1: php-fpm's include is not supported by this version\n"
	                                           "t:2: user stands outside a section\n");
	check_told("[global]\nlisten = 1\n" POOL, "t:2: listen belongs in a pool's section\n");
}

static void test_bad_values(void **state)
{
	(void)state;
	check_line("pm = stat", "pm = stat: give one of: static, dynamic, ondemand");
	check_line("pm.max_children = 0", "pm.max_children = 0: give a whole number from 1 to 10000");
	check_line("pm.max_children = 10001", "pm.max_children = 10001: give a whole number from 1 to 10000");
	check_line("pm.max_requests = 99999999999999999999",
	           "pm.max_requests = 99999999999999999999: give a whole number from 0 to 2147483647");
	check_line("queue.max = +5", "queue.max = +5: give a whole number from 1 to 10000000");
	check_line("clear_env = maybe", "clear_env = maybe: give yes or no");
	check_line("php_flag[x] = 2", "php_flag[x] = 2: give yes or no");
	check_line("listen.mode = 0668", "listen.mode = 0668: give permissions in octal, such as 0660");
	check_line("queue.timeout = 5 minutes",
	           "queue.timeout = 5 minutes: give a time in seconds, or with ms, s, m, h "
	           "or d behind it, from 0 to 366d");
	check_line("response.buffer_size = 8191",
	           "response.buffer_size = 8191: give a size in bytes, or with K, M or G "
	           "behind it, from 8K to 1G");
	check_line("request.max_body = 9007199254740993G",
	           "request.max_body = 9007199254740993G: give a size in bytes, "
	           "or with K, M or G behind it, from 0 to 1048576G");
	check_line("ping.path = ping", "ping.path = ping: it must start with /");
	check_line("access.format = %Z", "access.format = %Z: unknown code (see h2fpm.conf(5))");
	check_line("security.limit_extensions = php", "security.limit_extensions = php: each extension starts with a "
	                                              "dot, with spaces between: .php .phar");
	check_line("worker.command = no-such-program", "worker.command = no-such-program: program not found in PATH");
	check_line("worker.command = /etc/passwd",
	           "worker.command = /etc/passwd: program not found, or not executable");
	check_line("chdir = /no/such", "chdir = /no/such: there is no such directory");
	check_line("request.spool_dir = /etc/passwd", "request.spool_dir = /etc/passwd: this is not a directory");
	check_line("listen.allowed_clients = 127.0.0.1, nonsense",
	           "listen.allowed_clients = 127.0.0.1, nonsense: give IPv4 or IPv6 addresses with commas between");
	check_line("user = 'x", "user: the closing ' is missing");
	check_line("listen =", "listen = : it must not be empty");
	check_told("[global]\nerror_log = syslog\nwatchdog.timeout = 1s\n" POOL,
	           "t:2: error_log = syslog: php-fpm's syslog is not supported by this version: give a file's path\n"
	           "t:3: watchdog.timeout = 1s: give a time in seconds, or with ms, s, m, h or d behind it, from 2s to "
	           "1d\n");
}

static void test_addresses(void **state)
{
	(void)state;
	static const char *const wrong[] = {"0",       "65536",     "run/x.sock", "::1:9000", "127.0.0.300:9000",
	                                    "[::1]",   "[::z]:900", "127.0.0.1:", ":9000",    "127.0.0.1:9000x",
	                                    "a_b:9000"};
	char line[128];
	char problem[256];

	check_accepted("listen = 65535");
	check_accepted("listen = 127.0.0.1:9000");
	check_accepted("listen = localhost:9000");
	check_accepted("listen = [2001:db8::1]:1");
	check_accepted("listen = /run/a:b.sock");
	check_accepted("listen.allowed_clients = 127.0.0.1,::1 , 10.0.0.1");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(line, sizeof(line), "listen = %s", wrong[i]);
		snprintf(problem, sizeof(problem),
		         "%s: give a socket's path from / on, a port (1 to 65535), ip:port or [ipv6]:port", line);
		check_line(line, problem);
	}
}

static void test_doubled_address(void **state)
{
	(void)state;
#define REST "\npm = static\npm.max_children = 1\n"
	check_told("[a]\nlisten = 9000" REST "[b]\nlisten = 9001" REST "[c]" REST "listen = [0::0]:9000\n",
	           "t:12: listen = [0::0]:9000: pool a listens there already\n");
	conf_free(parse("[a]\nlisten = /x" REST "[b]\nlisten = /y" REST));
#undef REST
}

static void test_sections(void **state)
{
	(void)state;
	check_told("", "t:1: no pool is defined: at least one section such as [www] must be\n");
	check_told("[global]\n\n\n", "t:3: no pool is defined: at least one section such as [www] must be\n");
	check_told("\n[www]\n", "t:2: [www]: listen is not set and has no default\n"
	                        "t:2: [www]: pm is not set and has no default\n"
	                        "t:2: [www]: pm.max_children is not set and has no default\n");
	check_told(POOL "[www]\nlisten = 9001\npm = static\npm.max_children = 1\n",
	           "t:5: [www]: there is a pool of this name already, on line 1\n");
	check_told("[a/b]\nlisten = 9001\npm = static\npm.max_children = 1\n",
	           "t:1: [a/b]: a pool's name has letters, digits and - _ . @ + only\n");
	check_told("[]\nlisten = 9001\npm = static\npm.max_children = 1\n",
	           "t:1: a section without a name\n"
	           "t:1: [?]: a pool's name has letters, digits and - _ . @ + only\n");
}

/* All of them in the order of their lines, whenever they are found. */
static void test_all_problems_in_order(void **state)
{
	(void)state;
	check_told("x = 1\n"
	           "[global]\n"
	           "no equals sign\n"
	           "log_level : debug\n"
	           "[one\n"
	           "listen = 1.2.3.4:5\n"
	           "pm = dynamix\n"
	           "# a comment\n"
	           "  ; another\n"
	           "= 5\n"
	           "[two] x\n"
	           "listen = 1.2.3.4:5\n"
	           "bogus = 1\n",
	           "t:1: x stands outside a section\n"
	           "t:3: no '=' in this line: a directive is name = value\n"
	           "t:4: no '=' in this line: a directive is name = value\n"
	           "t:5: the section's closing ] is missing\n"
	           "t:5: [one]: pm.max_children is not set and has no default\n"
	           "t:7: pm = dynamix: give one of: static, dynamic, ondemand\n"
	           "t:10: no name before the '='\n"
	           "t:11: text after the section's closing ]\n"
	           "t:11: [two]: pm is not set and has no default\n"
	           "t:11: [two]: pm.max_children is not set and has no default\n"
	           "t:12: listen = 1.2.3.4:5: pool one listens there already\n"
	           "t:13: unknown directive bogus\n");
}

static void test_odd_bytes(void **state)
{
	(void)state;
	static const char with_nul[] = POOL "user = a\0b\nbogus = 1\n";
	char name[400];

	assert_null(parse_bytes(with_nul, sizeof(with_nul) - 1));
	assert_string_equal(told.text, "t:5: a NUL byte in this line\nt:6: unknown directive bogus\n");
	conf_free(parse("\xef\xbb\xbf[www]\r\nlisten = 9000 \r\npm = \"static\"\r\n\r\npm.max_children = 2"));
	memset(name, 'n', sizeof(name));
	memcpy(name + 300, " = 1", 5);
	check_line(name, "the name before the '=' is longer than 256 bytes");
	name[0] = '[';
	memcpy(name + 100, "]\nlisten = 1\npm = static\npm.max_children = 1\n", 46);
	check_told(name, "t:1: the section's name is longer than 48 bytes\n");
}

/* Long lines pass whole; one that is too long is told, and the next is read. */
static void test_long_lines(void **state)
{
	(void)state;
	size_t cap = CONF_INI_LINE_MAX + 1000;
	char *text = malloc(cap);

	for (size_t n = 150; n < 65000; n += n < 300 ? 1 : 6001) {
		int head = snprintf(text, cap, POOL "env[A] = ");
		memset(text + head, 'v', n);
		memcpy(text + (size_t)head + n, "\nuser = u\n", 11);
		struct conf *conf = parse(text);
		assert_int_equal(strlen(conf->pools[0]->env.items[0].value), n);
		assert_string_equal(conf->pools[0]->user, "u");
		conf_free(conf);
	}
	int head = snprintf(text, cap, POOL);
	memset(text + head, 'v', CONF_INI_LINE_MAX + 1);
	memcpy(text + head + CONF_INI_LINE_MAX + 1, "\nbogus = u\n", 12);
	check_told(text, "t:5: this line is longer than 1 MiB\nt:6: unknown directive bogus\n");
	free(text);
}

static void test_dump_reads_back(void **state)
{
	(void)state;
	struct conf *conf = parse("[global]\nerror_log = '/var/log/a;b \"c\".log'\npid = \"/run/it's\"\n"
	                          "log_level = alert\ndaemonize = no\nwatchdog.timeout = 2001ms\n"
	                          "[one]\nlisten = '/run/$pool.sock'\npm = static\npm.max_children = 3\n"
	                          "listen.mode = 0\nlisten.backlog = 5\nuser = ' leading'\ngroup = 'trailing '\n"
	                          "chdir = /\nping.path = /p\nping.response = \"\\$pool \\\\ \\\" ' ; \\${x\"\n"
	                          "security.limit_extensions = ''\nqueue.timeout = 1ms\nrequest.max_body = 0\n"
	                          "env[A] = \"it's; '\\\"' \\$HOME\"\nenv[B] = ''\nenv[C] = '$HOME'\nenv[D] = 'on'\n"
	                          "env[E] = '\\'\nenv[F] = \"''\"\nenv[G] = '#'\n"
	                          "php_value[a] = 'on'\nphp_flag[b] = off\nphp_admin_flag[c] = on\n"
	                          "php_admin_value[a] = ';'\ncatch_workers_output = yes\nclear_env = no\n"
	                          "[two]\nlisten = 127.0.0.1:9000\npm = static\npm.max_children = 1\n"
	                          "access.format = '%t \"%m\" ;%%'\naccess.log = /tmp/x\n");
	assert_string_equal(conf->pools[0]->listen, "/run/$pool.sock");
	assert_string_equal(conf->pools[0]->ping_response, "$pool \\ \" ' ; ${x");

	struct conf *again = conf_reread(conf, NULL, &told);
	if (!again)
		fail_msg("the dump is refused:\n%s", told.text);
	if (conf_difference(conf, again))
		fail_msg("%s is another after a dump", conf_difference(conf, again));
	conf_free(again);

	again = conf_reread(conf, conf->pools[1], &told);
	assert_non_null(again);
	assert_int_equal(again->pool_count, 1);
	assert_string_equal(again->pools[0]->name, "two");
	assert_string_equal(again->global.pid, "/run/it's");
	assert_string_equal(again->pools[0]->access_format, "%t \"%m\" ;%%");
	conf_free(again);
	conf_free(conf);
}

static void test_dump_tells_a_full_disk(void **state)
{
	(void)state;
	struct conf *conf = parse(POOL);
	FILE *full = fopen("/dev/full", "w");

	assert_non_null(full);
	assert_false(conf_dump(conf, NULL, full));
	fclose(full);
	conf_free(conf);
}

static void test_load(void **state)
{
	const char *dir = *state;
	char file[512];
	char expected[1024];

	told.len = 0;
	snprintf(file, sizeof(file), "%s/none.ini", dir);
	assert_null(conf_load(file, true, told_add, &told));
	snprintf(expected, sizeof(expected), "%s: cannot be read: No such file or directory\n", file);
	assert_string_equal(told.text, expected);
	told.len = 0;
	assert_null(conf_load(dir, true, told_add, &told));
	assert_non_null(strstr(told.text, "Is a directory"));

	snprintf(file, sizeof(file), "%s/good.ini", dir);
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	for (int i = 0; i < 5000; i++)
		fputs("; long enough for several reads\n", out);
	fputs(POOL, out);
	assert_int_equal(fclose(out), 0);
	told.len = 0;
	struct conf *conf = conf_load(file, true, told_add, &told);
	assert_non_null(conf);
	assert_string_equal(conf->file, file);
	assert_int_equal(conf->pools[0]->conf_line, 5001);
	conf_free(conf);
	unlink(file);
}

/* A php-cgi of our own, so that the default command is there everywhere. */
static int make_world(void **state)
{
	static char dir[] = "/tmp/h2fpm-conf-XXXXXX";
	char path[256];

	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/php-cgi", dir);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	if (fd < 0)
		return -1;
	close(fd);
	setenv("PATH", dir, 1);
	*state = dir;
	return 0;
}

static int remove_world(void **state)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/php-cgi", (const char *)*state);
	unlink(path);
	return rmdir(*state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_values),
	        cmocka_unit_test(test_pairs),
	        cmocka_unit_test(test_bad_names),
	        cmocka_unit_test(test_bad_values),
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_doubled_address),
	        cmocka_unit_test(test_sections),
	        cmocka_unit_test(test_all_problems_in_order),
	        cmocka_unit_test(test_odd_bytes),
	        cmocka_unit_test(test_long_lines),
	        cmocka_unit_test(test_dump_reads_back),
	        cmocka_unit_test(test_dump_tells_a_full_disk),
	        cmocka_unit_test(test_load),
	};
	return cmocka_run_group_tests(tests, make_world, remove_world);
}

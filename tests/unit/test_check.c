/* Pools that the system has no place for: each is left out by itself, or,
 * strict, ends the whole. Run by root and by others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conf_help.h"
#include "fpm/check.h"
#include "fpm/log.h"

#define REST "pm = static\npm.max_children = 1\nworker.command = /bin/sh\n"
#define GOOD "[good]\nlisten = 1\n" REST
#define BAD_LOG "[log]\nlisten = 2\naccess.log = /no/such/dir/x.log\n" REST
#define BAD_HAT "[hat]\nlisten = 3\napparmor_hat = x\n" REST

static struct told told;
static char messages[8192];

static struct conf *parse(const char *text)
{
	told.len = 0;
	struct conf *conf = conf_parse("t", text, strlen(text), told_add, &told);
	if (!conf)
		fail_msg("refused:\n%s", told.text);
	return conf;
}

/* What is logged meanwhile ends up in messages. */
static bool check(struct conf *conf, bool strict)
{
	int fd = memfd_create("messages", MFD_CLOEXEC);

	assert_true(fd >= 0);
	log_to(fd);
	bool ok = check_all(conf, true, strict);
	log_to(STDERR_FILENO);
	ssize_t n = pread(fd, messages, sizeof(messages) - 1, 0);
	assert_true(n >= 0);
	messages[n] = '\0';
	close(fd);
	return ok;
}

static void assert_told(const char *text)
{
	if (!strstr(messages, text))
		fail_msg("'%s' is not in:\n%s", text, messages);
}

static bool has_apparmor(void)
{
	char enabled = 'N';
	int fd = open("/sys/module/apparmor/parameters/enabled", O_RDONLY | O_CLOEXEC);
	bool has = fd >= 0 && read(fd, &enabled, 1) == 1 && enabled == 'Y';

	if (fd >= 0)
		close(fd);
	return has;
}

static void test_good(void **state)
{
	(void)state;
	struct conf *conf = parse(GOOD);

	assert_true(check(conf, true));
	assert_int_equal(conf->pool_count, 1);
	assert_int_equal(conf->broken_count, 0);
	conf_free(conf);
}

static void test_left_out(void **state)
{
	(void)state;
	struct conf *conf = parse(BAD_LOG GOOD);

	assert_true(check(conf, false));
	assert_int_equal(conf->pool_count, 1);
	assert_int_equal(conf->broken_count, 1);
	assert_string_equal(conf->pools[0]->name, "good");
	assert_told("t:1: [pool log] access.log: ");
	assert_told("t:1: [pool log] is left out: see above");
	conf_free(conf);
}

static void test_strict(void **state)
{
	(void)state;
	struct conf *conf = parse(BAD_LOG GOOD);

	assert_false(check(conf, true));
	assert_told("t:1: [pool log] access.log: ");
	assert_null(strstr(messages, "left out"));
	conf_free(conf);
}

static void test_no_pool_left(void **state)
{
	(void)state;
	struct conf *conf = parse(BAD_LOG);

	assert_false(check(conf, false));
	assert_told("t: no pool is left");
	conf_free(conf);
}

static void test_global(void **state)
{
	(void)state;
	struct conf *conf = parse("[global]\npid = /no/such/dir/x.pid\n" GOOD);

	assert_false(check(conf, false));
	assert_told("t: pid: ");
	conf_free(conf);
}

/* A hat that nobody can wear must not look like protection. */
static void test_apparmor(void **state)
{
	(void)state;
	struct conf *conf = parse(GOOD BAD_HAT);

	assert_true(check(conf, false));
	if (has_apparmor()) {
		assert_int_equal(conf->broken_count, 0);
	} else {
		assert_int_equal(conf->broken_count, 1);
		assert_told("t:6: [pool hat] apparmor_hat 'x' cannot be worn");
	}
	conf_free(conf);
}

/* Root's chroot is where the directory must be; other users have none, and it
 * must be there for them as it is. */
static void test_chdir(void **state)
{
	(void)state;
	struct conf *inside = parse(GOOD "[jail]\nlisten = 2\nchroot = /usr\nchdir = /share\n" REST);
	bool root = geteuid() == 0;

	assert_true(check(inside, false));
	assert_int_equal(inside->pool_count, root ? 2 : 1);
	assert_told(root ? "" : "[pool jail] 'chroot' directive is ignored when FPM is not running as root");
	conf_free(inside);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_good),         cmocka_unit_test(test_left_out), cmocka_unit_test(test_strict),
	        cmocka_unit_test(test_no_pool_left), cmocka_unit_test(test_global),   cmocka_unit_test(test_apparmor),
	        cmocka_unit_test(test_chdir),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

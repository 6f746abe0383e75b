/* Confinement, each time in a child of our own, which tells by its exit
 * status what it found. Half of it needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/confine.h"

enum { OTHER_ID = 54321 };

static char dir[] = "/tmp/h2fpm-test-confine-XXXXXX";
static char inside[sizeof dir + 16];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || chmod(dir, 0755) != 0)
		return -1;
	snprintf(inside, sizeof inside, "%s/inside", dir);
	return mkdir(inside, 0755);
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(inside) != 0 || rmdir(dir) != 0 ? -1 : 0;
}

/* Exit status 0: found as meant; else the line. */
#define CHECK(condition)              \
	do {                          \
		if (!(condition))     \
			_exit(__LINE__ % 250 + 1); \
	} while (0)

static void in_child(void (*check)(void))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		check();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) != 0)
		fail_msg("a check failed in line %d (modulo 250)", WEXITSTATUS(status) - 1);
}

static void in_child_of_root(void (*check)(void))
{
	if (geteuid() != 0)
		skip();
	in_child(check);
}

static bool is_cwd(const char *want)
{
	char cwd[4096];

	return getcwd(cwd, sizeof cwd) && strcmp(cwd, want) == 0;
}

static bool fails(const struct confine *c, const char *what, int error)
{
	const char *failed = confine_apply(c, false);

	return failed && strcmp(failed, what) == 0 && errno == error;
}

/* ---- without root ---- */

static void check_nothing(void)
{
	const struct confine none = {0};
	struct rlimit before, after;
	int was_dumpable = prctl(PR_GET_DUMPABLE);

	CHECK(chdir(dir) == 0 && getrlimit(RLIMIT_CORE, &before) == 0);
	CHECK(confine_apply(&none, false) == NULL && confine_apply(&none, true) == NULL);
	CHECK(is_cwd(dir) && getrlimit(RLIMIT_CORE, &after) == 0);
	CHECK(memcmp(&before, &after, sizeof before) == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == was_dumpable && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

static void test_nothing_asked_for(void **state)
{
	(void)state;
	in_child(check_nothing);
}

static void check_chdir(void)
{
	CHECK(confine_apply(&(struct confine){.chdir = inside}, false) == NULL);
	CHECK(is_cwd(inside));
	CHECK(fails(&(struct confine){.chdir = "/nowhere/at/all"}, "chdir", ENOENT));
}

static void test_chdir(void **state)
{
	(void)state;
	in_child(check_chdir);
}

static void check_no_new_privs(void)
{
	CHECK(confine_apply(&(struct confine){.no_new_privs = true}, false) == NULL);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

static void test_no_new_privs(void **state)
{
	(void)state;
	in_child(check_no_new_privs);
}

static void check_undumpable(void)
{
	struct rlimit before, after;

	CHECK(getrlimit(RLIMIT_CORE, &before) == 0);
	CHECK(confine_apply(&(struct confine){.undumpable = true}, false) == NULL);
	CHECK(prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &after) == 0);
	CHECK(memcmp(&before, &after, sizeof before) == 0);
}

static void check_undumpable_before_exec(void)
{
	struct rlimit core;

	CHECK(confine_apply(&(struct confine){.undumpable = true}, true) == NULL);
	CHECK(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0 && core.rlim_max == 0);
}

static void test_undumpable(void **state)
{
	(void)state;
	in_child(check_undumpable);
	in_child(check_undumpable_before_exec);
}

/* The rest is not done: the caller ends. */
static void check_hat(void)
{
	const struct confine c = {.apparmor_hat = "hat", .chdir = inside, .no_new_privs = true};

	CHECK(chdir("/") == 0);
	for (int before_exec = 0; before_exec <= 1; before_exec++) {
		const char *failed = confine_apply(&c, before_exec);
		CHECK(failed && strcmp(failed, "apparmor_hat") == 0 && errno != 0);
	}
	CHECK(is_cwd("/") && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

static void test_hat_without_apparmor(void **state)
{
	(void)state;
	if (access("/sys/module/apparmor", F_OK) == 0)
		skip();
	in_child(check_hat);
}

static void check_hat_too_long(void)
{
	static char hat[20000];

	memset(hat, 'h', sizeof hat - 1);
	CHECK(confine_apply(&(struct confine){.apparmor_hat = hat}, false) != NULL);
}

static void test_hat_too_long(void **state)
{
	(void)state;
	in_child(check_hat_too_long);
}

static void check_chroot_refused(void)
{
	CHECK(geteuid() != 0 || setresuid(OTHER_ID, OTHER_ID, OTHER_ID) == 0);
	CHECK(fails(&(struct confine){.chroot = dir}, "chroot", EPERM));
}

static void test_chroot_without_the_capability(void **state)
{
	(void)state;
	in_child(check_chroot_refused);
}

/* ---- with root ---- */

static bool get_capabilities(struct __user_cap_data_struct *data)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &header, data) == 0;
}

/* What fpm/priv.c makes of the pool process, and an exec of the zygote. */
static bool keep_chroot_alone(void)
{
	const uint32_t kept = 1U << CAP_SYS_CHROOT;
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{kept, kept, kept}};

	return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && setresgid(OTHER_ID, OTHER_ID, OTHER_ID) == 0 &&
	       setresuid(OTHER_ID, OTHER_ID, OTHER_ID) == 0 && syscall(SYS_capset, &header, caps) == 0 &&
	       prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_CHROOT, 0, 0) == 0;
}

static void check_chroot(void)
{
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	CHECK(keep_chroot_alone());
	CHECK(confine_apply(&(struct confine){.chroot = dir, .no_new_privs = true}, false) == NULL);
	CHECK(is_cwd("/") && access("/inside", F_OK) == 0);
	CHECK(chdir("..") == 0 && access("inside", F_OK) == 0);
	CHECK(get_capabilities(caps) && memcmp(caps, none, sizeof none) == 0);
	CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SYS_CHROOT, 0, 0) == 0);
	CHECK(chroot("/inside") != 0 && errno == EPERM);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

static void test_chroot(void **state)
{
	(void)state;
	in_child_of_root(check_chroot);
}

static void check_chdir_in_chroot(void)
{
	CHECK(keep_chroot_alone());
	CHECK(confine_apply(&(struct confine){.chroot = dir, .chdir = "/inside"}, true) == NULL);
	CHECK(is_cwd("/inside"));
}

static void check_chdir_outside_of_chroot(void)
{
	CHECK(fails(&(struct confine){.chroot = dir, .chdir = inside}, "chdir", ENOENT));
}

static void check_chroot_gone(void)
{
	CHECK(fails(&(struct confine){.chroot = "/nowhere"}, "chroot", ENOENT));
}

static void test_chroot_and_chdir(void **state)
{
	(void)state;
	in_child_of_root(check_chdir_in_chroot);
	in_child_of_root(check_chdir_outside_of_chroot);
	in_child_of_root(check_chroot_gone);
}

/* A pool that is meant to run as root stays it. */
static void check_root_stays_root(void)
{
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	CHECK(confine_apply(&(struct confine){.chroot = dir}, false) == NULL);
	CHECK(geteuid() == 0 && get_capabilities(caps) && caps[0].effective != 0);
}

static void test_root_stays_root(void **state)
{
	(void)state;
	in_child_of_root(check_root_stays_root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_asked_for),
		cmocka_unit_test(test_chdir),
		cmocka_unit_test(test_no_new_privs),
		cmocka_unit_test(test_undumpable),
		cmocka_unit_test(test_hat_without_apparmor),
		cmocka_unit_test(test_hat_too_long),
		cmocka_unit_test(test_chroot_without_the_capability),
		cmocka_unit_test(test_chroot),
		cmocka_unit_test(test_chroot_and_chdir),
		cmocka_unit_test(test_root_stays_root),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

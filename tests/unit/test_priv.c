#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fpm/priv.h"

static char reason[256];

static void test_find(void **context)
{
	uid_t uid;
	gid_t gid;

	(void)context;
	assert_true(priv_find_user("root", &uid, &gid));
	assert_int_equal(uid, 0);
	assert_int_equal(gid, 0);
	assert_true(priv_find_user("4000000123", &uid, &gid)); /* nobody's number */
	assert_int_equal(uid, 4000000123U);
	assert_int_equal(gid, (gid_t)-1);
	assert_true(priv_find_group("0", &gid));
	assert_int_equal(gid, 0);
	assert_false(priv_find_user("no such user", &uid, &gid));
	assert_false(priv_find_user("", &uid, &gid));
	assert_false(priv_find_group("no such group", &gid));
	/* the kernel takes it for "no change" */
	assert_false(priv_find_user("4294967295", &uid, &gid));
	assert_false(priv_find_group("4294967295", &gid));
	assert_false(priv_find_group("4294967296", &gid)); /* and this would wrap to root */
}

static void test_resolve(void **context)
{
	struct priv_identity who;
	const struct passwd *nobody = getpwnam("nobody");

	(void)context;
	assert_non_null(nobody);
	assert_true(priv_resolve(&who, "nobody", NULL, reason, sizeof(reason)));
	assert_int_equal(who.uid, nobody->pw_uid);
	assert_int_equal(who.gid, nobody->pw_gid);
	assert_string_equal(who.name, "nobody");
	assert_true(priv_resolve(&who, "nobody", "12345", reason, sizeof(reason)));
	assert_int_equal(who.gid, 12345);
	assert_true(priv_resolve(&who, NULL, NULL, reason, sizeof(reason)));
	assert_int_equal(who.uid, geteuid());
	assert_int_equal(who.gid, getegid());
	assert_false(priv_resolve(&who, "nosuch", NULL, reason, sizeof(reason)));
	assert_string_equal(reason, "cannot get uid for user 'nosuch'");
	assert_false(priv_resolve(&who, "nobody", "nosuch", reason, sizeof(reason)));
	assert_string_equal(reason, "cannot get gid for group 'nosuch'");
	assert_false(priv_resolve(&who, "4000000123", NULL, reason, sizeof(reason)));
	assert_non_null(strstr(reason, "please set group"));
	assert_true(priv_resolve(&who, "4000000123", "7", reason, sizeof(reason)));
	assert_string_equal(who.name, "");
}

static int run_dropped(const struct priv_identity *who)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		gid_t groups[64];
		int n;

		if (!priv_drop(who, reason, sizeof(reason)))
			_exit(1);
		n = getgroups(64, groups);
		for (int i = 0; i < n; i++) {
			if (groups[i] == 0)
				_exit(2); /* root's group is still there */
		}
		if (access("/etc/shadow", R_OK) == 0)
			_exit(3);
		_exit(setresuid((uid_t)-1, 0, (uid_t)-1) == 0 ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_drop(void **context)
{
	struct priv_identity who;

	(void)context;
	assert_true(priv_resolve(&who, "nobody", NULL, reason, sizeof(reason)));
	if (geteuid() != 0) {
		assert_int_equal(run_dropped(&who), 1); /* told, not ignored */
		return;
	}
	assert_int_equal(run_dropped(&who), 0);
	assert_true(priv_resolve(&who, "4000000123", "7", reason, sizeof(reason)));
	assert_int_equal(run_dropped(&who), 0);
}

/* Line "name:" of /proc/self/status, a hexadecimal number. */
static unsigned long long status_mask(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long long mask = ~0ULL;
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, name, strlen(name)) == 0)
			sscanf(line + strlen(name), ":%llx", &mask);
	}
	if (file != NULL)
		fclose(file);
	return mask;
}

/* Asked of a program that was executed, as php-cgi is: the ambient set counts. */
static int can_change_root_after_exec(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("chroot", "chroot", "/", "true", NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status) == 0;
}

static bool has_only(unsigned long long want)
{
	return status_mask("CapInh") == want && status_mask("CapPrm") == want && status_mask("CapEff") == want &&
	       status_mask("CapAmb") == want;
}

static int count_capabilities(const struct priv_identity *who)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (!priv_drop(who, reason, sizeof(reason)))
			_exit(1);
		if (!has_only(who->keeps_chroot ? 1ULL << CAP_SYS_CHROOT : 0))
			_exit(2);
		if (can_change_root_after_exec() != who->keeps_chroot)
			_exit(3);
		if (chroot("/") == 0 ? !who->keeps_chroot : who->keeps_chroot)
			_exit(4);
		if (setresuid((uid_t)-1, 0, (uid_t)-1) == 0 || setpriority(PRIO_PROCESS, 0, -20) == 0)
			_exit(5);
		_exit(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0) == 0 ? 0 : 6); /* else the next exec of ours would be odd */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_capabilities(void **context)
{
	struct priv_identity who;

	(void)context;
	assert_true(priv_resolve(&who, "nobody", NULL, reason, sizeof(reason)));
	assert_false(who.keeps_chroot);
	if (geteuid() != 0)
		return;
	assert_int_equal(count_capabilities(&who), 0);
	who.keeps_chroot = true;
	assert_int_equal(count_capabilities(&who), 0);
}

/* An ambient one that the master was given does not pass to a pool. */
static void test_ambient_one_is_not_passed_on(void **context)
{
	struct priv_identity who;
	int status;
	pid_t pid;

	(void)context;
	assert_true(priv_resolve(&who, "nobody", NULL, reason, sizeof(reason)));
	if (geteuid() != 0)
		return;
	pid = fork();
	if (pid == 0) {
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];

		if (syscall(SYS_capget, &header, words) != 0)
			_exit(10);
		words[0].inheritable = 1U << CAP_KILL;
		if (syscall(SYS_capset, &header, words) != 0 ||
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) != 0)
			_exit(11);
		_exit(count_capabilities(&who));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_ambient_one_is_not_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Where the kernel counts what its out-of-memory killer does, on all kinds of
 * systems, and reading the counter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/oom.h"

/* ---- where the file is ---- */

#define V2_MOUNT "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define ROOT_MOUNT "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
#define CPU_MOUNT "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
#define MEMORY_MOUNT "34 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory\n"
#define UNIFIED_MOUNT "40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
#define V1_LINES "9:name=systemd:/x\n4:memory:/pool/www\n1:cpu,cpuacct:/\n0::/elsewhere\n"

/* want NULL: there is none. */
static void check_file(const char *cgroup, const char *mountinfo, const char *want)
{
	char out[128];
	bool found = oom_find_file(cgroup, mountinfo, out, sizeof out);

	assert_string_equal(found ? out : "none", want ? want : "none");
}

static void test_version_2(void **state)
{
	(void)state;
	check_file("0::/system.slice/h2fpm.service\n", ROOT_MOUNT V2_MOUNT,
		   "/sys/fs/cgroup/system.slice/h2fpm.service/memory.events");
	check_file("0::/\n", ROOT_MOUNT V2_MOUNT, "/sys/fs/cgroup/memory.events");
	check_file("0::/a:b c", V2_MOUNT, "/sys/fs/cgroup/a:b c/memory.events");
	check_file("0::/a\\b\xff\n", V2_MOUNT, "/sys/fs/cgroup/a\\b\xff/memory.events");
}

static void test_version_1(void **state)
{
	(void)state;
	check_file("4:memory:/pool/www\n", CPU_MOUNT MEMORY_MOUNT, "/sys/fs/cgroup/memory/pool/www/memory.oom_control");
	check_file("3:cpu:/a\n4:memory:/\n", CPU_MOUNT MEMORY_MOUNT, "/sys/fs/cgroup/memory/memory.oom_control");
	/* with others in one hierarchy */
	check_file("4:hugetlb,memory,pids:/a\n", "1 2 0:3 / /cg rw - cgroup cgroup rw,hugetlb,memory,pids\n",
		   "/cg/a/memory.oom_control");
}

/* Both are mounted: the memory is where the controller is. */
static void test_hybrid(void **state)
{
	(void)state;
	check_file(V1_LINES, UNIFIED_MOUNT CPU_MOUNT MEMORY_MOUNT,
		   "/sys/fs/cgroup/memory/pool/www/memory.oom_control");
	check_file("0::/a\n9:name=memory:/x\n1:cpu,cpuacct:/\n", CPU_MOUNT UNIFIED_MOUNT,
		   "/sys/fs/cgroup/unified/a/memory.events");
	/* its hierarchy is not mounted: version 2's would never count */
	check_file(V1_LINES, CPU_MOUNT UNIFIED_MOUNT, NULL);
}

/* A container without a cgroup namespace sees its own part, under the whole path. */
static void test_mount_of_a_part(void **state)
{
	static const char docker[] =
		"50 40 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";

	(void)state;
	check_file("0::/docker/abc\n", docker, "/sys/fs/cgroup/memory.events");
	check_file("0::/docker/abc/\n", docker, "/sys/fs/cgroup/memory.events");
	check_file("0::/docker/abc/php\n", docker, "/sys/fs/cgroup/php/memory.events");
	check_file("0::/docker/abcd\n", docker, NULL);
	check_file("0::/docker\n", docker, NULL);
	check_file("0::/\n", docker, NULL);
	/* of several mounts the one that shows us */
	check_file("0::/docker/x\n",
		   "50 40 0:26 /docker/abc /one rw - cgroup2 cgroup rw\n51 40 0:26 /docker/x /two rw - cgroup2 cgroup rw\n",
		   "/two/memory.events");
}

/* Paths are relative to the namespace's root, in both files. */
static void test_cgroup_namespaces(void **state)
{
	static const char outer[] = "50 40 0:26 /../.. /cg rw - cgroup2 cgroup rw\n";

	(void)state;
	/* the mount begins above us, and nothing says with which names it goes on */
	check_file("0::/\n", outer, NULL);
	check_file("0::/own\n", outer, NULL);
	check_file("0::/../../other\n", outer, "/cg/other/memory.events");
	check_file("0::/../..\n", outer, "/cg/memory.events");
	check_file("0::/../../../x\n", outer, NULL);
	/* we were moved out of the namespace's root: what is mounted is not ours */
	check_file("0::/..\n", V2_MOUNT, NULL);
	check_file("0::/../x\n", V2_MOUNT, NULL);
	check_file("0::/a/../../x\n", V2_MOUNT, NULL);
	check_file("0::/..a/b..\n", V2_MOUNT, "/sys/fs/cgroup/..a/b../memory.events");
	/* a second mount, made inside */
	check_file("0::/\n", "50 40 0:26 /../.. /cg rw - cgroup2 cgroup rw\n" V2_MOUNT, "/sys/fs/cgroup/memory.events");
}

static void test_escapes(void **state)
{
	(void)state;
	check_file("0::/my pool\n", "1 2 0:3 /my\\040pool /a\\040b\\011c\\134d rw - cgroup2 x rw\n",
		   "/a b\tc\\d/memory.events");
	check_file("0::/a\\040b\n", "1 2 0:3 / /cg rw - cgroup2 x rw\n", "/cg/a\\040b/memory.events");
	/* no escapes at all */
	check_file("0::/\n", "1 2 0:3 / /a\\9\\04 rw - cgroup2 x rw\n", "/a\\9\\04/memory.events");
	check_file("0::/\n", "1 2 0:3 / /a\\777\\04 rw - cgroup2 x rw\n", "/a\\777\\04/memory.events");
	check_file("0::/\n", "1 2 0:3 / / rw - cgroup2 x rw\n", "/memory.events");
}

static void test_other_texts(void **state)
{
	static const char *const cgroups[] = {"", "\n", ":", "::", "0::\n", "0:/a\n", "00::/\n", "1::/\n", "\xff\xfe\n",
					      "0:cpu:/\n", "1:memory\n"};
	static const char *const mounts[] = {
		"", "\n\n", "-", " - cgroup2 x rw\n", "1 2 0:3 / rw - cgroup2 x rw\n", "1 2 0:3 / /cg rw cgroup2 x rw\n",
		"1 2 0:3 / /cg rw - cgroup2x x rw\n", "1 2 0:3 / /cg rw - cgroup x rw,memory2\n", "1 2 0:3 / /cg rw -",
		"1 2 0:3 / cg rw - cgroup2 x rw\n", "1 2 0:3  /cg rw - tmpfs - cgroup2 rw\n", "\xff \xfe \xfd \xfc \xfb\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof cgroups / sizeof *cgroups; i++)
		check_file(cgroups[i], V2_MOUNT, NULL);
	for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++)
		check_file("0::/\n", mounts[i], NULL);
	check_file("0::/\n", "1 2 0:3 / /cg rw - cgroup2  rw", "/cg/memory.events"); /* an empty source, no newline */
}

/* Never a byte too many, and never a part of a path. */
static void test_small_out(void **state)
{
	static const char want[] = "/cg/a/memory.events";
	char out[64];

	(void)state;
	for (size_t size = 1; size <= sizeof out; size++) {
		memset(out, 'x', sizeof out);
		bool found = oom_find_file("0::/a\n", "1 2 0:3 / /cg rw - cgroup2 x rw\n", out, size);
		assert_int_equal(found, size >= sizeof want);
		for (size_t i = size; i < sizeof out; i++)
			assert_int_equal(out[i], 'x');
	}
}

static void test_long_texts(void **state)
{
	static char cgroup[20000];
	static char mountinfo[20000];
	char out[64];

	(void)state;
	memset(cgroup, 'a', sizeof cgroup - 1);
	memcpy(cgroup, "0::/", 4);
	assert_false(oom_find_file(cgroup, V2_MOUNT, out, sizeof out));
	memset(mountinfo, 'b', sizeof mountinfo - 1);
	memcpy(mountinfo, "1 2 0:3 / /", 11);
	memcpy(mountinfo + sizeof mountinfo - 30, " rw - cgroup2 x rw\n", 19);
	assert_false(oom_find_file("0::/\n", mountinfo, out, sizeof out));
}

/* ---- the number ---- */

static int64_t count_of(const char *text)
{
	return oom_parse_count(text, strlen(text));
}

static void test_counts(void **state)
{
	(void)state;
	assert_int_equal(count_of("low 0\nhigh 0\nmax 5\noom 3\noom_kill 2\noom_group_kill 1\n"), 2);
	assert_int_equal(count_of("oom_kill_disable 1\nunder_oom 4\noom_kill 7\n"), 7);
	assert_int_equal(count_of("nr_free_pages 12\noom_kill 0\nnuma_hit 3\n"), 0);
	assert_int_equal(count_of("oom_kill 9223372036854775807\n"), INT64_MAX);
	assert_int_equal(count_of("oom_kill 9223372036854775808\n"), -1);
	assert_int_equal(count_of("oom_kill 99999999999999999999999\n"), -1);
	assert_int_equal(count_of("oom_kill_disable 1\nunder_oom 4\n"), -1);
	assert_int_equal(count_of("xoom_kill 4\n oom_kill 4\n"), -1);
	assert_int_equal(count_of("oom_kill\n"), -1);
	assert_int_equal(count_of("oom_kill \n"), -1);
	assert_int_equal(count_of("oom_kill -1\n"), -1);
	assert_int_equal(count_of("oom_kill 1x\n"), -1);
	assert_int_equal(count_of("oom_kill 12"), -1); /* or was it 123? */
	assert_int_equal(count_of(""), -1);
	assert_int_equal(oom_parse_count("oom_kill 12\n", 11), -1);
	assert_int_equal(oom_parse_count(NULL, 0), -1);
}

static void rewrite(int fd, const char *text)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void test_news(void **state)
{
	struct oom oom = {.fd = memfd_create("counter", MFD_CLOEXEC), .count = 3};

	(void)state;
	assert_true(oom.fd >= 0);
	rewrite(oom.fd, "oom 0\noom_kill 3\n");
	assert_int_equal(oom_news(&oom), 0);
	rewrite(oom.fd, "oom 0\noom_kill 5\n");
	assert_int_equal(oom_news(&oom), 2);
	assert_int_equal(oom_news(&oom), 0);
	rewrite(oom.fd, ""); /* it cannot be read for once */
	assert_int_equal(oom_news(&oom), 0);
	rewrite(oom.fd, "oom 0\noom_kill 6\n");
	assert_int_equal(oom_news(&oom), 1);
	rewrite(oom.fd, "oom_kill 1\n"); /* backwards: no news, and counted from there */
	assert_int_equal(oom_news(&oom), 0);
	rewrite(oom.fd, "oom_kill 2\n");
	assert_int_equal(oom_news(&oom), 1);
	oom_fini(&oom);
	assert_int_equal(oom.fd, -1);
	assert_int_equal(oom_news(&oom), 0);
	oom_fini(&oom);
}

/* Each kill explains one death, and none that comes much later. */
static void test_claims(void **state)
{
	struct oom oom = {.fd = memfd_create("counter", MFD_CLOEXEC), .count = 0};

	(void)state;
	rewrite(oom.fd, "oom_kill 0\n");
	assert_false(oom_claim(&oom));
	rewrite(oom.fd, "oom_kill 2\n");
	assert_true(oom_claim(&oom));
	assert_true(oom_claim(&oom));
	assert_false(oom_claim(&oom));
	rewrite(oom.fd, "oom_kill 3\n");
	oom_tick(&oom); /* it has not been reaped yet */
	assert_true(oom_claim(&oom));
	assert_false(oom_claim(&oom));
	rewrite(oom.fd, "oom_kill 5\n"); /* two that are none of ours */
	oom_tick(&oom);
	oom_tick(&oom);
	assert_false(oom_claim(&oom));
	oom_fini(&oom);
	oom_tick(&oom);
	assert_false(oom_claim(&oom));
}

/* As long as /proc/vmstat is: several pages. */
static void test_long_counter(void **state)
{
	struct oom oom = {.fd = memfd_create("counter", MFD_CLOEXEC), .count = 0};
	char text[12288];
	size_t len = 0;

	(void)state;
	while (len < sizeof text - 64)
		len += (size_t)snprintf(text + len, sizeof text - len, "nr_something %zu\n", len);
	snprintf(text + len, sizeof text - len, "oom_kill 1\n");
	rewrite(oom.fd, text);
	assert_int_equal(oom_news(&oom), 1);
	oom_fini(&oom);
}

static void test_vmstat(void **state)
{
	struct oom oom = {.fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC), .count = -1};

	(void)state;
	assert_true(oom.fd >= 0);
	assert_true(oom_news(&oom) >= 1);
	oom_fini(&oom);
}

/* Every Linux since 4.13 has one of the three. */
static void test_this_machine(void **state)
{
	struct oom oom;
	char path[64];
	char file[256];

	(void)state;
	oom_init(&oom);
	assert_true(oom.fd >= 0);
	assert_true(fcntl(oom.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(oom.count >= 0);
	assert_true(oom_news(&oom) >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", oom.fd);
	ssize_t n = readlink(path, file, sizeof file - 1);
	assert_true(n > 0);
	file[n] = '\0';
	print_message("counted in %s\n", file);
	oom_fini(&oom);
	assert_int_equal(oom.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_version_1),
		cmocka_unit_test(test_hybrid),
		cmocka_unit_test(test_mount_of_a_part),
		cmocka_unit_test(test_cgroup_namespaces),
		cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_other_texts),
		cmocka_unit_test(test_small_out),
		cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_news),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_long_counter),
		cmocka_unit_test(test_vmstat),
		cmocka_unit_test(test_this_machine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

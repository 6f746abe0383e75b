/* The words for how a process ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pool/exitstatus.h"

static void test_explain(void **context)
{
	char out[160];

	(void)context;
	/* the kernel's encoding: low 7 bits the signal, 0x80 a core, above the code */
	assert_string_equal(exitstatus_explain(out, sizeof(out), SIGKILL, 12345),
			    "exited on signal 9 (SIGKILL) after 12.345 seconds from start");
	assert_string_equal(exitstatus_explain(out, sizeof(out), SIGSEGV | 0x80, 7),
			    "exited on signal 11 (SIGSEGV - core dumped) after 0.007 seconds from start");
	assert_string_equal(exitstatus_explain(out, sizeof(out), 78 << 8, 60000),
			    "exited with code 78 after 60.000 seconds from start");
	assert_string_equal(exitstatus_explain(out, sizeof(out), 40, 0),
			    "exited on signal 40 (unknown) after 0.000 seconds from start");
}

static const struct death everything = {
	.status = SIGKILL,
	.age_ms = 12004,
	.requests = 57,
	.peak_bytes = 35861299,
	.out_of_memory = true,
	.running = "script '/a.php'",
	.last_words = "one | two",
};
static const char all_of_it[] = "exited on signal 9 (SIGKILL) after 12.004 seconds from start, "
				"killed by the kernel for want of memory, 57 requests served, "
				"34.2 MiB resident at its peak, while it ran script '/a.php'; its last words: one | two";

static void test_death(void **context)
{
	char out[400];
	struct death death = everything;

	(void)context;
	assert_string_equal(exitstatus_explain_death(out, sizeof(out), &death), all_of_it);
	death.out_of_memory = false;
	death.requests = 1;
	death.last_words = "";
	assert_string_equal(exitstatus_explain_death(out, sizeof(out), &death),
			    "exited on signal 9 (SIGKILL) after 12.004 seconds from start, 1 request served, "
			    "34.2 MiB resident at its peak, while it ran script '/a.php'");
	death = (struct death){.status = 3 << 8, .age_ms = 1, .last_words = "%s 100%n"};
	assert_string_equal(exitstatus_explain_death(out, sizeof(out), &death),
			    "exited with code 3 after 0.001 seconds from start, 0 requests served; "
			    "its last words: %s 100%n");
	death = (struct death){.status = 0, .requests = UINT64_MAX, .peak_bytes = 52429, .running = ""};
	assert_string_equal(exitstatus_explain_death(out, sizeof(out), &death),
			    "exited with code 0 after 0.000 seconds from start, 18446744073709551615 requests served, "
			    "0.1 MiB resident at its peak");
}

/* Whatever room there is: the beginning, terminated, and not a byte behind it. */
static void test_death_is_cut(void **context)
{
	char out[400];

	(void)context;
	for (size_t size = 1; size < sizeof(all_of_it); size++) {
		memset(out, 'x', sizeof(out));
		exitstatus_explain_death(out, size, &everything);
		assert_int_equal(strlen(out), size - 1);
		assert_memory_equal(out, all_of_it, size - 1);
		assert_int_equal(out[size], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_death_is_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

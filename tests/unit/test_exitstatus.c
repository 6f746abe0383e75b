/* The words for how a process ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_explain),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "pool/exitstatus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char *exitstatus_explain(char *out, size_t size, int status, int64_t age_ms)
{
	char how[64];

	if (WIFSIGNALED(status)) {
		const char *name = sigabbrev_np(WTERMSIG(status));

		snprintf(how, sizeof(how), "on signal %d (%s%s%s)", WTERMSIG(status), name != NULL ? "SIG" : "",
			 name != NULL ? name : "unknown", WCOREDUMP(status) ? " - core dumped" : "");
	} else {
		snprintf(how, sizeof(how), "with code %d", WEXITSTATUS(status));
	}
	snprintf(out, size, "exited %s after %" PRId64 ".%03d seconds from start", how, age_ms / 1000,
		 (int)(age_ms % 1000));
	return out;
}

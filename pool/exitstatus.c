#include "pool/exitstatus.h"

#include <inttypes.h>
#include <stdarg.h>
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

/* Behind what is there; cut where it does not fit. */
__attribute__((format(printf, 3, 4))) static void append(char *out, size_t size, const char *format, ...)
{
	size_t used = strnlen(out, size);
	va_list args;

	va_start(args, format);
	if (used < size)
		vsnprintf(out + used, size - used, format, args);
	va_end(args);
}

static bool is_told(const char *text)
{
	return text != NULL && *text != '\0';
}

const char *exitstatus_explain_death(char *out, size_t size, const struct death *death)
{
	exitstatus_explain(out, size, death->status, death->age_ms);
	if (death->out_of_memory)
		append(out, size, ", killed by the kernel for want of memory");
	append(out, size, ", %" PRIu64 " request%s served", death->requests, death->requests == 1 ? "" : "s");
	if (death->peak_bytes > 0)
		append(out, size, ", %.1f MiB resident at its peak", (double)death->peak_bytes / (1024 * 1024));
	if (is_told(death->running))
		append(out, size, ", while it ran %s", death->running);
	if (is_told(death->last_words))
		append(out, size, "; its last words: %s", death->last_words);
	return out;
}

#include "pool/backoff.h"

int64_t backoff_fail(struct backoff *b, uint32_t random)
{
	int64_t nominal_ms = BACKOFF_FIRST_MS;
	for (unsigned i = 0; i < b->failures && nominal_ms < BACKOFF_CAP_MS; i++)
		nominal_ms *= 2;
	if (nominal_ms > BACKOFF_CAP_MS)
		nominal_ms = BACKOFF_CAP_MS;
	b->failures++;
	int64_t delay_ms = nominal_ms * 3 / 4 + (int64_t)(random % 1024) * (nominal_ms / 2) / 1024;
	return delay_ms < BACKOFF_CAP_MS ? delay_ms : BACKOFF_CAP_MS;
}

void backoff_succeed(struct backoff *b)
{
	b->failures = 0;
}

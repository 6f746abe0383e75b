#include "pool/backoff.h"

#include <limits.h>

int64_t backoff_delay_ms(unsigned failures, uint32_t random)
{
	int64_t nominal_ms = BACKOFF_FIRST_MS;

	for (unsigned i = 1; i < failures && nominal_ms < BACKOFF_CAP_MS; i++)
		nominal_ms *= 2;
	if (nominal_ms > BACKOFF_CAP_MS)
		nominal_ms = BACKOFF_CAP_MS;
	int64_t delay_ms = nominal_ms - nominal_ms / 4 + random % (uint32_t)(nominal_ms / 2 + 1);
	return delay_ms < BACKOFF_CAP_MS ? delay_ms : BACKOFF_CAP_MS;
}

int64_t backoff_fail(struct backoff *b, uint32_t random)
{
	if (b->failures < UINT_MAX)
		b->failures++;
	return backoff_delay_ms(b->failures, random);
}

void backoff_succeed(struct backoff *b)
{
	b->failures = 0;
}

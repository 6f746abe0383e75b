#include "fpm/quota.h"

#include <assert.h>
#include <stdlib.h>

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

bool quota_init(struct quota *q, int64_t max, size_t pools)
{
	*q = (struct quota){.max = max > 0 ? max : 0, .count = pools};
	q->free = q->max;
	q->shares = calloc(pools > 0 ? pools : 1, sizeof(*q->shares));
	return q->shares != NULL;
}

void quota_fini(struct quota *q)
{
	free(q->shares);
	*q = (struct quota){0};
}

static struct quota_share *share_of(const struct quota *q, size_t pool)
{
	assert(pool < q->count);
	return &q->shares[pool];
}

void quota_want(struct quota *q, size_t pool, int64_t n)
{
	share_of(q, pool)->wanted = n > 0 ? n : 0;
}

static void give_back(struct quota *q, struct quota_share *share, int64_t n)
{
	share->held -= n;
	q->free += n;
	assert(share->held >= 0 && q->free <= q->max);
}

bool quota_return(struct quota *q, size_t pool, int64_t n)
{
	struct quota_share *share = share_of(q, pool);

	if (n < 0 || n > share->held)
		return false;
	give_back(q, share, n);
	return true;
}

void quota_reset(struct quota *q, size_t pool)
{
	struct quota_share *share = share_of(q, pool);

	give_back(q, share, share->held);
	share->wanted = 0;
}

void quota_leave(struct quota *q, size_t pool)
{
	share_of(q, pool)->absent = true;
}

static bool is_first(const struct quota_share *share)
{
	return share->held == 0 && !share->absent;
}

/* Places that pools which have none may still ask for. */
static int64_t kept_places(const struct quota *q)
{
	int64_t kept = 0;

	for (size_t i = 0; i < q->count; i++)
		kept += is_first(&q->shares[i]);
	return kept;
}

/* How many of the wanted ones a pool could be granted if it were alone. */
static int64_t grantable(const struct quota *q, const struct quota_share *share, int64_t kept)
{
	if (is_first(share))
		return lesser(lesser(share->wanted, 1), q->free);
	int64_t open = q->free - kept;
	return open > 0 ? lesser(share->wanted, open) : 0;
}

/* Whether others would have to do without what one pool takes. */
static bool is_scarce(const struct quota *q, int64_t kept)
{
	int64_t left = q->free - kept;

	for (size_t i = 0; i < q->count; i++) {
		int64_t more = q->shares[i].wanted - is_first(&q->shares[i]);
		if (more > left)
			return true;
		if (more > 0)
			left -= more;
	}
	return false;
}

/* All at once where there is enough for all, so that few messages do; else one
 * at a time, so that taking turns is fair. */
bool quota_next(struct quota *q, size_t *pool, int64_t *n)
{
	int64_t kept = kept_places(q);

	for (size_t i = 0; i < q->count; i++) {
		size_t at = (q->turn + i) % q->count;
		struct quota_share *share = &q->shares[at];
		int64_t grant = grantable(q, share, kept);
		if (grant <= 0)
			continue;
		if (grant > 1 && is_scarce(q, kept))
			grant = 1;
		share->held += grant;
		share->wanted -= grant;
		q->free -= grant;
		q->turn = (at + 1) % q->count;
		*pool = at;
		*n = grant;
		return true;
	}
	return false;
}

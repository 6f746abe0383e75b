#include "fpm/quota.h"

#include <assert.h>
#include <stdlib.h>

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

static bool may_have_one(const struct quota *q, const struct quota_share *share, int64_t kept)
{
	return share->wanted > 0 && q->free > (is_first(share) ? 0 : kept);
}

/* Whether there is less than all want together, beyond what is kept. */
static bool is_scarce(const struct quota *q, int64_t kept)
{
	int64_t left = q->free - kept;

	for (size_t i = 0; i < q->count; i++) {
		const struct quota_share *share = &q->shares[i];
		if (share->wanted == 0)
			continue;
		int64_t more = share->wanted - is_first(share);
		if (more > left)
			return true;
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
		if (!may_have_one(q, share, kept))
			continue;
		int64_t grant = is_scarce(q, kept) ? 1 : share->wanted;
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

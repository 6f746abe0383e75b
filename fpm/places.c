#include "fpm/places.h"

enum { FULL_INTERVAL_MS = 60000 };

static void pass_over(struct quota *quota, struct slot *slot, int64_t n)
{
	if (!quota_return(quota, slot->index, n))
		log_alert("process.max: %lld places are lost", (long long)n);
	slot->passed_over = quota->shares[slot->index].wanted + n;
	quota_want(quota, slot->index, 0);
}

static bool is_wanted_in_vain(const struct quota *quota)
{
	for (size_t i = 0; i < quota->count; i++) {
		if (quota->shares[i].wanted > 0)
			return true;
	}
	return false;
}

static void ask_again(struct quota *quota, struct slot *slots)
{
	for (size_t i = 0; i < quota->count; i++) {
		if (slots[i].passed_over > 0)
			quota_want(quota, i, slots[i].passed_over);
		slots[i].passed_over = 0;
	}
}

void places_grant(struct quota *quota, struct slot *slots, struct log_gate *gate)
{
	size_t at;
	int64_t n;

	while (quota_next(quota, &at, &n)) {
		if (!slot_grant(&slots[at], n))
			pass_over(quota, &slots[at], n);
	}
	if (is_wanted_in_vain(quota))
		log_limited(gate, FULL_INTERVAL_MS, LOG_LEVEL_WARNING,
			    "The maximum number of processes has been reached. Please review your configuration and "
			    "consider raising 'process.max'");
	ask_again(quota, slots);
}

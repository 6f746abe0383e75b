#include "pool/output.h"

#include <assert.h>

void output_init(struct output *o)
{
	buf_init(&o->ctl);
	o->ctl_cut = false;
	list_init(&o->ready);
}

void output_fini(struct output *o)
{
	struct list *node;

	while ((node = list_first(&o->ready)) != NULL)
		list_remove(node);
	buf_fini(&o->ctl);
}

void output_offer(struct output *o, struct answer *a)
{
	if (list_empty(&a->turn) && buf_len(&a->head) > 0)
		list_add_tail(&o->ready, &a->turn);
}

bool output_is_empty(const struct output *o)
{
	return buf_len(&o->ctl) == 0 && list_empty(&o->ready);
}

static void add_part(struct output_plan *plan, struct answer *a, struct iovec part)
{
	plan->answers[plan->count] = a;
	plan->parts[plan->count++] = part;
	plan->bytes += part.iov_len;
}

static void add_ctl(const struct output *o, struct output_plan *plan)
{
	if (buf_len(&o->ctl) > 0)
		add_part(plan, NULL, (struct iovec){buf_head(&o->ctl), buf_len(&o->ctl)});
}

/* The begun record is ctl's, or the first ready answer's, or there is none. */
void output_plan(const struct output *o, struct output_plan *plan)
{
	bool alone = o->ready.next == o->ready.prev;
	size_t turn_bytes = alone ? OUTPUT_ALONE_BYTES : OUTPUT_TURN_BYTES;
	bool ctl_done = false;

	plan->count = 0;
	plan->bytes = 0;
	if (o->ctl_cut) {
		add_ctl(o, plan);
		ctl_done = true;
	}
	for (struct list *node = o->ready.next; node != &o->ready && plan->count < OUTPUT_PARTS - 1; node = node->next) {
		struct answer *a = container_of(node, struct answer, turn);
		if (!ctl_done && a->cut == 0) {
			add_ctl(o, plan);
			ctl_done = true;
		}
		assert(a->cut == 0 || plan->count == 0);
		add_part(plan, a, answer_turn(a, turn_bytes));
	}
	if (!ctl_done)
		add_ctl(o, plan);
}

static void wrote_ctl(struct output *o, size_t n)
{
	buf_consume(&o->ctl, n);
	o->ctl_cut = n > 0 && buf_len(&o->ctl) > 0;
}

/* Its turn is over, but for a record that was begun: that goes on first. */
static bool wrote_answer(struct output *o, struct answer *a, size_t n)
{
	bool ok = answer_wrote(a, n);

	if (n == 0 || a->cut > 0)
		return ok;
	list_remove(&a->turn);
	output_offer(o, a);
	return ok;
}

void output_wrote(struct output *o, const struct output_plan *plan, size_t n, output_wrote_fn *on_wrote, void *context)
{
	assert(n <= plan->bytes);
	for (int i = 0; i < plan->count && n > 0; i++) {
		struct answer *a = plan->answers[i];
		size_t part = n < plan->parts[i].iov_len ? n : plan->parts[i].iov_len;

		n -= part;
		if (a)
			on_wrote(context, a, wrote_answer(o, a, part));
		else
			wrote_ctl(o, part);
	}
}

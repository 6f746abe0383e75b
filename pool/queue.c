#include "pool/queue.h"

#include <assert.h>

void queue_init(struct queue *q, int64_t max, int64_t timeout_us)
{
	list_init(&q->entries);
	list_init(&q->held);
	q->length = 0;
	q->held_length = 0;
	q->max = max;
	q->timeout_us = timeout_us;
}

bool queue_full(const struct queue *q)
{
	return q->length + q->held_length >= q->max;
}

void queue_push(struct queue *q, struct queue_entry *e, int64_t now_us)
{
	assert(!queue_full(q));
	e->since_us = now_us;
	e->held_until_us = 0;
	list_add_tail(&q->entries, &e->node);
	q->length++;
}

void queue_hold(struct queue *q, struct queue_entry *e, int64_t since_us, int64_t until_us)
{
	struct list *before = q->held.prev;

	assert(until_us > 0);
	e->since_us = since_us;
	e->held_until_us = until_us;
	while (before != &q->held && container_of(before, struct queue_entry, node)->held_until_us > until_us)
		before = before->prev;
	list_insert_after(before, &e->node);
	q->held_length++;
}

int64_t queue_release_us(const struct queue *q)
{
	const struct list *first = list_first(&q->held);
	return first ? container_of(first, struct queue_entry, node)->held_until_us : -1;
}

/* By its age among the others, of which few are younger. */
static void let_in(struct queue *q, struct queue_entry *e)
{
	struct list *before = q->entries.prev;

	while (before != &q->entries && container_of(before, struct queue_entry, node)->since_us > e->since_us)
		before = before->prev;
	e->held_until_us = 0;
	list_insert_after(before, &e->node);
	q->length++;
}

void queue_release(struct queue *q, int64_t now_us)
{
	struct list *first;

	while ((first = list_first(&q->held)) != NULL) {
		struct queue_entry *e = container_of(first, struct queue_entry, node);
		if (e->held_until_us > now_us)
			break;
		queue_remove(q, e);
		let_in(q, e);
	}
}

/* Two that come back may do so in any order: the oldest must stay the first,
 * else its time could be over unseen. All who wait longer came back, too. */
void queue_push_back_to_front(struct queue *q, struct queue_entry *e)
{
	struct list *before = &q->entries;

	while (before->next != &q->entries &&
	       container_of(before->next, struct queue_entry, node)->since_us < e->since_us)
		before = before->next;
	e->held_until_us = 0;
	list_insert_after(before, &e->node);
	q->length++;
}

void queue_remove(struct queue *q, struct queue_entry *e)
{
	int64_t *length = e->held_until_us ? &q->held_length : &q->length;

	assert(*length > 0 && !list_empty(&e->node));
	list_remove(&e->node);
	(*length)--;
}

struct queue_entry *queue_peek(const struct queue *q)
{
	struct list *first = list_first(&q->entries);
	return first ? container_of(first, struct queue_entry, node) : NULL;
}

int64_t queue_deadline_us(const struct queue *q)
{
	const struct queue_entry *oldest = queue_peek(q);
	return oldest && q->timeout_us > 0 ? oldest->since_us + q->timeout_us : -1;
}

struct queue_entry *queue_expired(const struct queue *q, int64_t now_us)
{
	int64_t deadline_us = queue_deadline_us(q);
	return deadline_us >= 0 && now_us >= deadline_us ? queue_peek(q) : NULL;
}

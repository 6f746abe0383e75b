#include "pool/queue.h"

#include <assert.h>

void queue_init(struct queue *q, int64_t max, int64_t timeout_us)
{
	list_init(&q->entries);
	q->length = 0;
	q->max = max;
	q->timeout_us = timeout_us;
}

bool queue_full(const struct queue *q)
{
	return q->length >= q->max;
}

void queue_push(struct queue *q, struct queue_entry *e, int64_t now_us)
{
	assert(!queue_full(q));
	e->since_us = now_us;
	list_add_tail(&q->entries, &e->node);
	q->length++;
}

/* Two that come back may do so in any order: the oldest must stay the first,
 * else its time could be over unseen. All who wait longer came back, too. */
void queue_push_back_to_front(struct queue *q, struct queue_entry *e)
{
	struct list *before = &q->entries;

	while (before->next != &q->entries &&
	       container_of(before->next, struct queue_entry, node)->since_us < e->since_us)
		before = before->next;
	list_insert_after(before, &e->node);
	q->length++;
}

void queue_remove(struct queue *q, struct queue_entry *e)
{
	assert(q->length > 0 && !list_empty(&e->node));
	list_remove(&e->node);
	q->length--;
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

/* The queue beside an array that does the same by brute force, over a hundred
 * thousand random steps of a virtual clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pool/queue.h"
#include "tests/unit/dice.h"

enum { ITEMS = 24, MAX = 12, STEPS = 100000, TIMEOUT_US = 1000 };

enum place { OUT, QUEUED, WITH_WORKER };

struct item {
	struct queue_entry entry;
	enum place place;
	int64_t since_us;
};

struct model {
	struct queue queue;
	struct item items[ITEMS];
	int64_t now_us;
	uint64_t arrivals;
	uint64_t dice;
};

static uint32_t roll(struct model *m, uint32_t sides)
{
	return dice_roll(&m->dice, sides);
}

static bool is_older(const struct item *a, const struct item *b)
{
	return a->since_us < b->since_us;
}

static int64_t queued_count(const struct model *m)
{
	int64_t count = 0;

	for (int i = 0; i < ITEMS; i++)
		count += m->items[i].place == QUEUED;
	return count;
}

/* NULL: none is queued. */
static const struct item *oldest(const struct model *m)
{
	const struct item *found = NULL;

	for (int i = 0; i < ITEMS; i++) {
		const struct item *item = &m->items[i];
		if (item->place == QUEUED && (!found || is_older(item, found)))
			found = item;
	}
	return found;
}

static struct item *pick(struct model *m, enum place place)
{
	uint32_t from = roll(m, ITEMS);

	for (uint32_t i = 0; i < ITEMS; i++) {
		struct item *item = &m->items[(from + i) % ITEMS];
		if (item->place == place)
			return item;
	}
	return NULL;
}

static struct item *item_of(struct queue_entry *e)
{
	return e ? container_of(e, struct item, entry) : NULL;
}

/* Oldest first, and first come first served among those that never left. */
static void check_order(const struct model *m)
{
	const struct item *last = NULL;
	int64_t count = 0;

	for (struct list *node = m->queue.entries.next; node != &m->queue.entries; node = node->next, count++) {
		const struct item *item = item_of(container_of(node, struct queue_entry, node));
		assert_int_equal(item->place, QUEUED);
		assert_int_equal(item->entry.since_us, item->since_us);
		if (last)
			assert_false(is_older(item, last));
		last = item;
	}
	assert_int_equal(count, queued_count(m));
}

static void check(const struct model *m)
{
	const struct item *first = oldest(m);
	const struct item *peeked = item_of(queue_peek(&m->queue));
	bool is_over = first && m->now_us - first->since_us >= TIMEOUT_US;

	assert_int_equal(m->queue.length, queued_count(m));
	assert_int_equal(queue_full(&m->queue), queued_count(m) >= MAX);
	assert_int_equal(peeked != NULL, first != NULL);
	if (first)
		assert_int_equal(peeked->since_us, first->since_us);
	assert_int_equal(queue_deadline_us(&m->queue), first ? first->since_us + TIMEOUT_US : -1);
	assert_ptr_equal(queue_expired(&m->queue, m->now_us), is_over ? queue_peek(&m->queue) : NULL);
	check_order(m);
}

static void push(struct model *m)
{
	struct item *item = pick(m, OUT);

	if (!item || queue_full(&m->queue))
		return;
	item->since_us = m->now_us;
	m->arrivals++;
	item->place = QUEUED;
	queue_push(&m->queue, &item->entry, m->now_us);
}

static void take(struct model *m, struct item *item, enum place place)
{
	if (!item)
		return;
	queue_remove(&m->queue, &item->entry);
	item->place = place;
}

/* A full queue takes one that comes back, too. */
static void come_back(struct model *m)
{
	struct item *item = pick(m, WITH_WORKER);

	if (!item)
		return;
	item->place = QUEUED;
	queue_push_back_to_front(&m->queue, &item->entry);
}

static void step(struct model *m)
{
	struct item *item;

	switch (roll(m, 8)) {
	case 0:
	case 1:
	case 2:
		push(m);
		break;
	case 3:
		take(m, item_of(queue_peek(&m->queue)), WITH_WORKER);
		break;
	case 4:
		take(m, pick(m, QUEUED), OUT); /* its client has gone */
		break;
	case 5:
		come_back(m);
		break;
	case 6:
		take(m, item_of(queue_expired(&m->queue, m->now_us)), OUT);
		item = roll(m, 2) ? pick(m, WITH_WORKER) : NULL;
		if (item)
			item->place = OUT; /* answered */
		break;
	default:
		m->now_us += roll(m, 3) ? roll(m, 100) : roll(m, TIMEOUT_US);
		break;
	}
}

static void test_beside_a_model(void **state)
{
	static struct model m;
	int64_t fullest = 0;

	(void)state;
	memset(&m, 0, sizeof(m));
	m.dice = 0x9e3779b97f4a7c15;
	queue_init(&m.queue, MAX, TIMEOUT_US);
	for (int i = 0; i < STEPS; i++) {
		step(&m);
		check(&m);
		fullest = m.queue.length > fullest ? m.queue.length : fullest;
	}
	assert_true(fullest > MAX); /* all of the states were there */
	assert_true(m.arrivals > 10000);
}

/* Among equals the place is kept as well. */
static void test_first_come_first_served(void **state)
{
	struct queue q;
	struct queue_entry e[100];

	(void)state;
	queue_init(&q, 100, 0);
	for (int i = 0; i < 100; i++)
		queue_push(&q, &e[i], 7);
	for (int i = 0; i < 100; i++) {
		assert_ptr_equal(queue_peek(&q), &e[i]);
		queue_remove(&q, &e[i]);
	}
	assert_null(queue_peek(&q));
}

static void test_front_keeps_waiting_time(void **state)
{
	struct queue q;
	struct queue_entry a, b, c;

	(void)state;
	queue_init(&q, 2, 100);
	queue_push(&q, &a, 10);
	queue_push(&q, &b, 10);
	queue_remove(&q, &a);
	queue_push(&q, &c, 40);
	assert_true(queue_full(&q));
	queue_push_back_to_front(&q, &a);
	assert_ptr_equal(queue_peek(&q), &a); /* before one of the same age that never left */
	assert_int_equal(q.length, 3);
	assert_null(queue_expired(&q, 109));
	assert_ptr_equal(queue_expired(&q, 110), &a);
}

/* Two workers are lost at once; the younger request comes back last. */
static void test_oldest_is_first_whatever_comes_back_when(void **state)
{
	struct queue q;
	struct queue_entry old, young, last;

	(void)state;
	queue_init(&q, 10, 100);
	queue_push(&q, &old, 10);
	queue_push(&q, &young, 50);
	queue_remove(&q, &old);
	queue_remove(&q, &young);
	queue_push(&q, &last, 60);
	queue_push_back_to_front(&q, &old);
	queue_push_back_to_front(&q, &young);
	assert_ptr_equal(queue_expired(&q, 110), &old);
	queue_remove(&q, &old);
	assert_ptr_equal(queue_peek(&q), &young);
}

static void test_no_timeout_and_no_room(void **state)
{
	struct queue q;
	struct queue_entry e;

	(void)state;
	queue_init(&q, 1, 0);
	queue_push(&q, &e, 0);
	assert_int_equal(queue_deadline_us(&q), -1);
	assert_null(queue_expired(&q, INT64_MAX));
	queue_init(&q, 0, 0);
	assert_true(queue_full(&q));
}

/* Held back ones are no demand, count for the limit, and come back by age. */
static void test_held_back(void **state)
{
	struct queue q;
	struct queue_entry slow, quick, other, gone;

	(void)state;
	queue_init(&q, 4, 100);
	assert_int_equal(queue_release_us(&q), -1);
	queue_hold(&q, &slow, 10, 60);
	queue_hold(&q, &gone, 11, 70);
	queue_hold(&q, &quick, 20, 40);
	queue_push(&q, &other, 30);
	assert_true(queue_full(&q));
	assert_int_equal(q.length, 1);
	assert_int_equal(q.held_length, 3);
	assert_int_equal(queue_release_us(&q), 40);
	queue_release(&q, 39);
	assert_ptr_equal(queue_peek(&q), &other);
	queue_release(&q, 40);
	assert_ptr_equal(queue_peek(&q), &quick);
	queue_remove(&q, &gone);
	queue_release(&q, INT64_MAX);
	assert_int_equal(q.held_length, 0);
	assert_int_equal(q.length, 3);
	assert_ptr_equal(queue_peek(&q), &slow);
	assert_ptr_equal(queue_expired(&q, 110), &slow);
	queue_remove(&q, &slow);
	queue_remove(&q, &quick);
	assert_ptr_equal(queue_peek(&q), &other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_beside_a_model),
	        cmocka_unit_test(test_first_come_first_served),
	        cmocka_unit_test(test_front_keeps_waiting_time),
	        cmocka_unit_test(test_oldest_is_first_whatever_comes_back_when),
	        cmocka_unit_test(test_no_timeout_and_no_room),
	        cmocka_unit_test(test_held_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The intrusive list: order, removal, and walking while removing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "protocol/list.h"

struct item {
	int before; /* so that the node is not at offset 0 */
	struct list node;
	int value;
};

static struct item *item_of(struct list *node)
{
	return container_of(node, struct item, node);
}

static void fill(struct list *head, struct item *items, int count)
{
	list_init(head);
	for (int i = 0; i < count; i++) {
		items[i].value = i;
		list_add_tail(head, &items[i].node);
	}
}

static void assert_values(struct list *head, const int *values, int count)
{
	struct list *node, *tmp;
	int seen = 0;

	list_each(node, tmp, head)
	{
		assert_true(seen < count);
		assert_int_equal(item_of(node)->value, values[seen]);
		assert_ptr_equal(node->next->prev, node);
		assert_ptr_equal(node->prev->next, node);
		seen++;
	}
	assert_int_equal(seen, count);
}

static void test_empty(void **state)
{
	struct list head;

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	assert_null(list_first(&head));
	assert_values(&head, NULL, 0);
}

static void test_order(void **state)
{
	struct list head;
	struct item items[3], first = {.value = 7}, between = {.value = 8};

	(void)state;
	fill(&head, items, 3);
	list_add_head(&head, &first.node);
	list_insert_after(&items[1].node, &between.node);
	assert_false(list_empty(&head));
	assert_ptr_equal(list_first(&head), &first.node);
	assert_values(&head, (const int[]){7, 0, 1, 8, 2}, 5);
}

static void test_remove(void **state)
{
	struct list head;
	struct item items[3];

	(void)state;
	fill(&head, items, 3);
	list_remove(&items[1].node);
	assert_values(&head, (const int[]){0, 2}, 2);
	assert_true(list_empty(&items[1].node));
	list_remove(&items[1].node); /* twice is harmless */
	assert_values(&head, (const int[]){0, 2}, 2);
	list_remove(&items[0].node);
	list_remove(&items[2].node);
	assert_true(list_empty(&head));
	list_add_head(&head, &items[1].node);
	assert_values(&head, (const int[]){1}, 1);
}

static void test_remove_while_walking(void **state)
{
	struct list head, *node, *tmp;
	struct item items[6];

	(void)state;
	fill(&head, items, 6);
	list_each(node, tmp, &head) if (item_of(node)->value % 2 == 0) list_remove(node);
	assert_values(&head, (const int[]){1, 3, 5}, 3);
	list_each(node, tmp, &head) list_remove(node);
	assert_true(list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_empty),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_remove),
	        cmocka_unit_test(test_remove_while_walking),
	};

	return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}

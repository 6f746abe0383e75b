/* Intrusive doubly linked lists. A list head and a member node are the same
 * structure; a node that is on no list points at itself, so that removing it
 * twice is harmless. Nothing is allocated and nothing can fail. */
#ifndef H2FPM_PROTOCOL_LIST_H
#define H2FPM_PROTOCOL_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct list {
	struct list *next;
	struct list *prev;
};

static inline void list_init(struct list *node)
{
	node->next = node;
	node->prev = node;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_insert_after(struct list *where, struct list *node)
{
	node->prev = where;
	node->next = where->next;
	where->next->prev = node;
	where->next = node;
}

static inline void list_add_head(struct list *head, struct list *node)
{
	list_insert_after(head, node);
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	list_insert_after(head->prev, node);
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The first node, or NULL when the list is empty. */
static inline struct list *list_first(const struct list *head)
{
	return list_empty(head) ? NULL : head->next;
}

/* The last node, or NULL when the list is empty. */
static inline struct list *list_last(const struct list *head)
{
	return list_empty(head) ? NULL : head->prev;
}

/* Walks the list; the body may remove the current node (and only it). */
#define list_each(node, tmp, head) \
	for ((node) = (head)->next, (tmp) = (node)->next; (node) != (head); (node) = (tmp), (tmp) = (node)->next)

#endif

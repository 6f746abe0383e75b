/* The master's end of a link (pool/link.h): one message is sent or received at
 * a time, nothing blocks. What comes in is gossip: its size is checked here,
 * its sense by the caller. */
#ifndef H2FPM_FPM_LINK_H
#define H2FPM_FPM_LINK_H

#include <stdbool.h>
#include <stdint.h>

enum link_result { LINK_GOT, LINK_EMPTY, LINK_CLOSED };

struct link_news {
	char kind;
	bool right_size;
	uint32_t n; /* of the kinds that have one */
};

enum link_result link_receive(int fd, struct link_news *news);

/* False, with errno: it did not fit, or nobody is there. fd -1: there is no link. */
bool link_send(int fd, char kind) __attribute__((warn_unused_result));
bool link_send_count(int fd, char kind, uint32_t n) __attribute__((warn_unused_result));
bool link_send_logs(int fd, int error_log, int access_log) __attribute__((warn_unused_result));

#endif

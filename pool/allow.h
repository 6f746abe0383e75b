/* listen.allowed_clients: which addresses may connect over TCP. Pure. */
#ifndef H2FPM_POOL_ALLOW_H
#define H2FPM_POOL_ALLOW_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct allow {
	bool any;
	struct in6_addr *addresses; /* IPv4 ones in mapped form */
	size_t count;
};

/* list: comma-separated addresses, NULL for any. False with *bad (a static
 * buffer's text) naming the entry that is no address. */
bool allow_init(struct allow *allow, const char *list, const char **bad) __attribute__((warn_unused_result));
void allow_fini(struct allow *allow);
/* Peers of unix sockets are always allowed, as in php-fpm. */
bool allow_check(const struct allow *allow, const struct sockaddr_storage *peer);

#endif

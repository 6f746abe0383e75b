/* A pool's listening sockets, opened by the master and kept open over any
 * number of pool processes, so that connections wait in the backlog while one
 * is started anew. Owns the descriptors and, for a Unix socket, the inode it
 * made: a path that has become something else is never removed. Every failure
 * is told as a text. */
#ifndef H2FPM_FPM_LISTEN_H
#define H2FPM_FPM_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { LISTEN_MAX = 8, LISTEN_BACKLOG_MAX = 65535 };

/* Where to listen: more than one address when a host name has several. */
struct listen_address {
	struct sockaddr_storage at[LISTEN_MAX];
	socklen_t len[LISTEN_MAX];
	int count;
	bool any; /* a bare port: IPv6 and IPv4 where the system has both */
};

/* Who may connect to a Unix socket; (uid_t)-1 and (gid_t)-1: left as made. */
struct listen_access {
	uid_t owner;
	gid_t group;
	mode_t mode;
};

struct listen_set {
	int fds[LISTEN_MAX];
	int count;
	char *path; /* the Unix socket's; NULL: TCP */
	dev_t dev;
	ino_t ino;
};

/* "path", "ip:port", "[v6]:port", "host:port" or "port". */
bool listen_parse(struct listen_address *address, const char *text, char *reason, size_t reason_size)
	__attribute__((warn_unused_result));

/* Non-blocking, close-on-exec, listening. backlog -1: as much as the kernel
 * allows. text names the address in reasons. False: nothing is left behind. */
bool listen_open(struct listen_set *set, const struct listen_address *address, const char *text, int backlog,
		 const struct listen_access *access, char *reason, size_t reason_size)
	__attribute__((warn_unused_result));

/* Closes all and removes the Unix socket if it still is ours. */
void listen_close(struct listen_set *set);

#endif

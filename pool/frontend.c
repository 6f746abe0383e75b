#include "pool/frontend.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/conn.h"
#include "pool/link.h"

enum {
	ACCEPT_BATCH = 256,        /* connections a listener and loop turn */
	BACKLOG_MAX = 65536,       /* no backlog is longer */
	ACCEPT_RETRY_MS = 100,     /* after the system refused a descriptor */
	DESCRIPTORS_OF_OURS = 16,  /* link, logs, epoll, signals, a spawn's transients */
	DESCRIPTORS_A_WORKER = 3,
};

/* ---- descriptors ---- */

bool frontend_has_descriptor(const struct broker *b)
{
	return b->conn_count + b->spool_count < b->descriptor_max;
}

/* An eighth is left for the bodies that come on the connections. */
static bool may_accept(const struct broker *b)
{
	return b->conn_count + b->spool_count < b->descriptor_max - b->descriptor_max / 8;
}

static void set_accepting(struct broker *b, bool on)
{
	if (on == b->accepting || b->phase != BROKER_SERVING)
		return;
	b->accepting = on;
	for (int i = 0; i < b->listener_count; i++) {
		if (on)
			ev_io_start(b->loop, &b->listeners[i]);
		else
			ev_io_stop(b->loop, &b->listeners[i]);
	}
}

void frontend_resume(struct broker *b)
{
	if (may_accept(b) && !ev_is_active(&b->accept_timer))
		set_accepting(b, true);
}

static void on_accept_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	frontend_resume(container_of(timer, struct broker, accept_timer));
}

/* The hard limit is ours to use; the workers get the old one back. */
static void raise_descriptor_limit(struct broker *b)
{
	struct rlimit limit;
	int64_t reserved = DESCRIPTORS_OF_OURS + b->listener_count +
			   DESCRIPTORS_A_WORKER * b->settings->pm_max_children;

	getrlimit(RLIMIT_NOFILE, &limit);
	b->worker_nofile = limit;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		limit = b->worker_nofile;
	b->descriptor_max = (int64_t)limit.rlim_cur - reserved;
	if (b->descriptor_max < 4) {
		log_warning("the descriptor limit of %lld is short for pm.max_children = %lld",
			    (long long)limit.rlim_cur, (long long)b->settings->pm_max_children);
		b->descriptor_max = 4;
	}
}

/* ---- accepting ---- */

/* php-fpm's words. */
static void log_denied(struct broker *b, const struct sockaddr_storage *peer)
{
	char address[INET6_ADDRSTRLEN] = "?";

	if (peer->ss_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)peer)->sin_addr, address, sizeof address);
	else
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)peer)->sin6_addr, address, sizeof address);
	log_limited(&b->client_gate, 1000, LOG_LEVEL_ERROR,
		    "Connection disallowed: IP address '%s' has been dropped.", address);
}

/* False: the backlog is empty, or nothing more may be accepted now. */
static bool accept_one(struct broker *b, int listener)
{
	struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof peer;

	if (!may_accept(b)) {
		long long used = b->conn_count + b->spool_count;
		set_accepting(b, false);
		log_limited(&b->descriptor_gate, 60000, LOG_LEVEL_WARNING,
			    "%lld descriptors are in use: further connections wait in the backlog", used);
		return false;
	}
	int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
		return true;
	if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
		log_limited(&b->accept_gate, 60000, LOG_LEVEL_WARNING, "cannot accept: %s", strerror(errno));
		set_accepting(b, false);
		broker_arm(b, &b->accept_timer, ACCEPT_RETRY_MS / 1e3);
	}
	if (fd < 0)
		return false;
	if (allow_check(&b->allow, &peer)) {
		conn_new(b, fd, &peer);
		return true;
	}
	b->counters.refused_clients++;
	log_denied(b, &peer);
	close(fd);
	return true;
}

static void on_listener_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	struct broker *b = io->data;

	(void)loop, (void)events;
	for (int i = 0; i < ACCEPT_BATCH && accept_one(b, io->fd); i++) {
	}
}

/* ---- start and end ---- */

bool frontend_init(struct broker *b, int listen_count)
{
	const char *bad = NULL;

	conn_init_lists(b);
	ev_timer_init(&b->accept_timer, on_accept_timer, 0., 0.);
	if (!allow_init(&b->allow, b->settings->listen_allowed_clients, &bad)) {
		log_error("listen.allowed_clients: '%s' is not an address", bad ? bad : "");
		return false;
	}
	b->listeners = calloc((size_t)listen_count + 1, sizeof *b->listeners);
	if (!b->listeners)
		return false;
	b->listener_count = listen_count;
	raise_descriptor_limit(b);
	b->limits = (struct mux_limits){.max_conns = (uint32_t)b->descriptor_max,
					.max_reqs = (uint32_t)b->settings->mpxs_max_requests,
					.max_streams = (uint32_t)b->settings->mpxs_max_requests};
	for (int i = 0; i < listen_count; i++) {
		ev_io_init(&b->listeners[i], on_listener_readable, LINK_FD_LISTEN + i, EV_READ);
		ev_set_priority(&b->listeners[i], 1); /* a burst must not fill the backlog */
		b->listeners[i].data = b;
	}
	set_accepting(b, true);
	return true;
}

void frontend_close_listeners(struct broker *b)
{
	for (int i = 0; i < b->listener_count; i++) {
		ev_io_stop(b->loop, &b->listeners[i]);
		close(b->listeners[i].fd);
	}
	b->listener_count = 0;
}

/* What was sent before the drain is taken: connections are accepted from the
 * backlog and read once. Kept-alive ones stay open meanwhile: what comes on
 * them later is answered 503, which a front end can act on, rather than a
 * reset, which it cannot. */
void frontend_drain(struct broker *b)
{
	struct list *node, *tmp;

	for (int i = 0; i < b->listener_count; i++) {
		for (int n = 0; n < BACKLOG_MAX && accept_one(b, b->listeners[i].fd); n++) {
		}
	}
	list_each(node, tmp, &b->conns)
		conn_read(container_of(node, struct conn, node));
	set_accepting(b, false);
	b->phase = BROKER_DRAINING;
	frontend_close_listeners(b);
}

void frontend_fini(struct broker *b)
{
	conn_close_all(b);
	frontend_close_listeners(b);
	ev_timer_stop(b->loop, &b->accept_timer);
	allow_fini(&b->allow);
	free(b->listeners);
}

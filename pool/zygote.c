#include "pool/zygote.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/crew.h"
#include "pool/exitstatus.h"
#include "pool/gate_proto.h"
#include "pool/spawn.h"
#include "pool/turnover.h"

enum {
	GOSSIP_INTERVAL_MS = 60000,
	START_INTERVAL_MS = 1000,
	EXIT_WAIT_S = 1,
	EXIT_CANNOT_RUN = 127, /* a shell's, ld.so's and our own */
	PACKETS_AT_ONCE = 4096, /* more than there can be orders */
	PACKETS_A_TURN = 64, /* who talks without end is not to keep the loop */
	ORDER_US = 500000, /* for a worker to be known, or to be missed */
};

/* One worker that was asked for. */
struct order {
	struct list node;
	uint32_t number;
	int socket_fd; /* O_PATH */
	int err_fd;
	int64_t since_us;
};

bool zygote_is_meant(const struct broker *b)
{
	const char *name = strrchr(b->worker_argv[0], '/');

	name = name ? name + 1 : b->worker_argv[0];
	if (b->settings->worker_spawn == WORKER_SPAWN_AUTO)
		return strstr(name, "php") != NULL;
	return b->settings->worker_spawn == WORKER_SPAWN_ZYGOTE;
}

/* ---- orders ---- */

static void order_free(struct order *order)
{
	list_remove(&order->node);
	close(order->socket_fd);
	close(order->err_fd);
	free(order);
}

static struct order *order_find(struct zygote *z, uint32_t number)
{
	struct list *node, *tmp;

	list_each(node, tmp, &z->orders) {
		struct order *order = container_of(node, struct order, node);
		if (order->number == number)
			return order;
	}
	return NULL;
}

static bool send_order(const struct zygote *z, uint32_t number, int listen_fd, int err_fd)
{
	const int fds[2] = {listen_fd, err_fd};
	struct gate_packet packet = {.kind = GATE_SPAWN, .order = number};
	struct iovec part = {.iov_base = &packet, .iov_len = sizeof packet};
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof fds)];
	} control = {.space = {0}};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	return sendmsg(z->link, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof packet;
}

bool zygote_order(struct zygote *z)
{
	struct spawn_ends ends;
	struct order *order;

	assert(z->state == ZYGOTE_READY);
	if (!spawn_ends_open(&ends, z->broker->settings))
		return false;
	order = calloc(1, sizeof *order);
	bool sent = order && send_order(z, z->last_order + 1, ends.listen_fd, ends.err_write_fd);
	int error = order ? errno : ENOMEM;
	close(ends.listen_fd);
	close(ends.err_write_fd);
	if (sent) {
		*order = (struct order){.number = ++z->last_order,
					.socket_fd = ends.socket_fd,
					.err_fd = ends.err_fd,
					.since_us = broker_now_us()};
		list_add_tail(&z->orders, &order->node);
		z->broker->births++;
		return true;
	}
	free(order);
	close(ends.socket_fd);
	close(ends.err_fd);
	errno = error;
	return false;
}

static void fail_orders(struct zygote *z)
{
	struct list *node, *tmp;

	list_each(node, tmp, &z->orders) {
		z->broker->births--;
		order_free(container_of(node, struct order, node));
	}
}

/* ---- ends ---- */

static bool read_packet(struct zygote *z);

/* A worker in birth ends itself if it cannot say any more that it is born; one
 * that has said it is ours, since it would be there for nobody else. */
static void hear_the_rest(struct zygote *z)
{
	if (z->link < 0)
		return;
	shutdown(z->link, SHUT_RD);
	while (read_packet(z)) {
	}
}

static void close_link(struct zygote *z)
{
	ev_io_stop(z->broker->loop, &z->io);
	ev_timer_stop(z->broker->loop, &z->timer);
	if (z->link >= 0)
		close(z->link);
	z->link = -1;
}

void zygote_end(struct zygote *z)
{
	if (z->state == ZYGOTE_ENDED)
		return;
	z->state = ZYGOTE_ENDED;
	hear_the_rest(z);
	close_link(z);
	fail_orders(z);
	if (!z->exited)
		kill(z->pid, SIGKILL);
}

/* It ended by itself, or is of no use. how: for the log. */
static void lose(struct zygote *z, const char *how)
{
	enum zygote_state was = z->state;

	if (was == ZYGOTE_ENDED)
		return;
	zygote_end(z);
	turnover_on_zygote_lost(z->broker, z, was, how);
}

static void on_zygote_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct zygote *z = container_of(timer, struct zygote, timer);

	(void)loop, (void)events;
	if (!ev_is_active(&z->io)) {
		lose(z, "it closed its link");
		return;
	}
	switch (z->state) {
	case ZYGOTE_LOADING:
		lose(z, "it did not load the gate: it is not php-cgi, or it is statically linked");
		break;
	default:
		lose(z, "it was not ready within worker.start_timeout");
	}
}

/* What may go better at the next start. A program that is no php-cgi may end in
 * peace; 127 says that it, or the gate in it, cannot be run at all. */
static bool has_failed(int status)
{
	return WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != EXIT_CANNOT_RUN);
}

bool zygote_on_exit(struct broker *b, pid_t pid, int status)
{
	struct list *node, *tmp;
	char how[WORDS_KEPT_BYTES + 256], exit[128];

	list_each(node, tmp, &b->zygotes) {
		struct zygote *z = container_of(node, struct zygote, node);
		if (z->pid != pid || z->exited)
			continue;
		z->exited = true;
		z->failed = z->state != ZYGOTE_ENDED && has_failed(status);
		words_fini(&z->words);
		exitstatus_explain(exit, sizeof exit, status, (broker_now_us() - z->started_us) / 1000);
		snprintf(how, sizeof how, "it %s%s%s", exit, z->words.last[0] ? "; its last words: " : "", z->words.last);
		lose(z, how);
		return true;
	}
	return false;
}

void zygote_collect(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->zygotes) {
		struct zygote *z = container_of(node, struct zygote, node);
		if (z->state == ZYGOTE_ENDED && z->exited) {
			list_remove(node);
			free(z);
		}
	}
}

/* ---- what it says ---- */

static bool is_our_child(pid_t pid)
{
	siginfo_t info;

	return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void on_stranger(const struct zygote *z, pid_t pid, bool is_ours)
{
	log_limited(&z->broker->gossip_gate, GOSSIP_INTERVAL_MS, LOG_LEVEL_WARNING,
		    "process %d claims to be a worker that nobody ordered", (int)pid);
	if (is_ours)
		kill(pid, SIGKILL);
}

static void on_born(struct zygote *z, uint32_t number, pid_t pid)
{
	struct order *order = order_find(z, number);
	bool is_known = pid == z->pid || worker_find(z->broker, pid);
	bool is_ours = is_our_child(pid) && !is_known;

	if (!order || !is_ours) {
		on_stranger(z, pid, is_ours);
		return;
	}
	z->broker->births--;
	struct worker *w = crew_on_birth(z->broker, pid, order->socket_fd, order->err_fd);
	if (!w) {
		order_free(order);
		return;
	}
	w->has_gate = true;
	list_remove(&order->node);
	free(order); /* the descriptors are the worker's now */
}

static void fail_order(struct zygote *z, struct order *order, const char *why)
{
	z->broker->births--;
	order_free(order);
	log_limited(&z->broker->start_gate, START_INTERVAL_MS, LOG_LEVEL_ERROR, "a worker cannot be started: %s", why);
	crew_on_start_failure(z->broker);
}

static void on_failed(struct zygote *z, const struct gate_packet *packet)
{
	struct order *order = order_find(z, packet->order);

	if (order)
		fail_order(z, order, packet->error == ECHILD ? "it died while it was forked" : strerror(packet->error));
}

/* Nobody else holds the other end of its standard error. */
static bool has_died(const struct order *order)
{
	struct pollfd end = {.fd = order->err_fd};

	return poll(&end, 1, 0) > 0 && (end.revents & POLLHUP);
}

static void check_orders(struct zygote *z, int64_t now_us)
{
	const int64_t patience_us = z->broker->settings->worker_start_timeout_ms * 1000;
	struct list *node, *tmp;

	list_each(node, tmp, &z->orders) {
		struct order *order = container_of(node, struct order, node);
		int64_t age_us = now_us - order->since_us;
		if (age_us > patience_us) {
			lose(z, "it carries out no orders");
			return;
		}
		if (age_us > ORDER_US && has_died(order))
			fail_order(z, order, "it died before it was known");
	}
}

void zygote_tick(struct broker *b)
{
	struct list *node, *tmp;

	zygote_listen(b);
	list_each(node, tmp, &b->zygotes)
		check_orders(container_of(node, struct zygote, node), broker_now_us());
}

static void on_packet(struct zygote *z, const struct gate_packet *packet, pid_t from)
{
	if (packet->kind == GATE_LOADED && z->state == ZYGOTE_LOADING) {
		z->state = ZYGOTE_STARTING;
		broker_arm(z->broker, &z->timer, (double)z->broker->settings->worker_start_timeout_ms / 1e3);
	} else if (packet->kind == GATE_READY && z->state == ZYGOTE_STARTING) {
		z->state = ZYGOTE_READY;
		ev_timer_stop(z->broker->loop, &z->timer);
		turnover_on_zygote_ready(z->broker, z);
	} else if (packet->kind == GATE_BORN) {
		on_born(z, packet->order, from);
	} else if (packet->kind == GATE_FAILED) {
		on_failed(z, packet);
	}
}

static pid_t sender(struct msghdr *message)
{
	struct ucred who = {.pid = 0};

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof who))
			memcpy(&who, CMSG_DATA(c), sizeof who);
	}
	return who.pid;
}

/* Its exit is about to tell more. */
static void on_link_closed(struct zygote *z)
{
	if (!ev_is_active(&z->io))
		return; /* known, and read once more all the same: it has its time already */
	ev_io_stop(z->broker->loop, &z->io);
	broker_arm(z->broker, &z->timer, EXIT_WAIT_S);
}

/* False: nothing more now. No room for descriptors: a kernel drops them. */
static bool read_packet(struct zygote *z)
{
	struct gate_packet packet = {0};
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec part = {.iov_base = &packet, .iov_len = sizeof packet};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	ssize_t n = recvmsg(z->link, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n == (ssize_t)sizeof packet)
		on_packet(z, &packet, sender(&message));
	else if (n > 0)
		log_limited(&z->broker->gossip_gate, GOSSIP_INTERVAL_MS, LOG_LEVEL_WARNING,
			    "php-cgi %d sent what no gate sends: %zd bytes", (int)z->pid, n);
	else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		on_link_closed(z);
	return n > 0 && z->link >= 0;
}

static void on_zygote_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	struct zygote *z = container_of(io, struct zygote, io);

	(void)loop, (void)events;
	for (int i = 0; i < PACKETS_A_TURN && z->link >= 0 && read_packet(z); i++) {
	}
}

void zygote_listen(struct broker *b)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->zygotes) {
		struct zygote *z = container_of(node, struct zygote, node);
		for (int i = 0; i < PACKETS_AT_ONCE && z->link >= 0 && read_packet(z); i++) {
		}
	}
}

/* ---- the start ---- */

static bool open_link(int ends[2])
{
	const int on = 1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	if (setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0)
		return true;
	int error = errno;
	close(ends[0]);
	close(ends[1]);
	errno = error;
	return false;
}

static bool spawn_zygote(struct broker *b, int link, struct spawn_result *out)
{
	const struct spawn_plan plan = {
		.settings = b->settings,
		.argv = b->worker_argv,
		.envp = b->zygote_envp,
		.nofile = b->worker_nofile,
		.gate_link = link,
		.gate_image = b->gate_image,
	};

	return spawn_worker(&plan, out);
}

static void zygote_init(struct zygote *z, struct broker *b, const struct spawn_result *spawned, int link)
{
	z->state = ZYGOTE_LOADING;
	z->broker = b;
	z->pid = spawned->pid;
	z->link = link;
	z->started_us = broker_now_us();
	list_init(&z->node);
	list_init(&z->orders);
	list_add_tail(&b->zygotes, &z->node);
	words_init(&z->words, b, z->pid, spawned->err_fd);
	ev_io_init(&z->io, on_zygote_readable, link, EV_READ);
	ev_io_start(b->loop, &z->io);
	ev_timer_init(&z->timer, on_zygote_timer, 0., 0.);
	int64_t patience_ms = b->settings->worker_start_timeout_ms;
	broker_arm(b, &z->timer, (double)(patience_ms < ZYGOTE_LOAD_MS ? patience_ms : ZYGOTE_LOAD_MS) / 1e3);
}

struct zygote *zygote_start(struct broker *b)
{
	int ends[2];
	struct spawn_result spawned;
	struct zygote *z = calloc(1, sizeof *z);

	if (!z || !open_link(ends)) {
		free(z);
		return NULL;
	}
	bool ok = spawn_zygote(b, ends[1], &spawned);
	int error = errno;
	close(ends[1]);
	if (!ok) {
		close(ends[0]);
		free(z);
		errno = error;
		return NULL;
	}
	close(spawned.socket_fd); /* nobody is to connect to the zygote */
	zygote_init(z, b, &spawned, ends[0]);
	log_debug("php-cgi %d started, to fork workers", (int)z->pid);
	return z;
}

#include "pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/crew.h"
#include "pool/conn.h"
#include "pool/frontend.h"
#include "pool/link.h"
#include "pool/request.h"
#include "pool/turnover.h"
#include "pool/worker.h"

enum {
	EXIT_INTERNAL = 70,
	STOP_KILL_MS = 500,          /* idle workers may end by themselves for so long */
	ACCESS_KEEP_BYTES = 65536,
	ACCESS_FLUSH_BYTES = 4096,   /* one write: whole on a pipe, too */
};

/* ---- stopping ---- */

static void stop_now(struct broker *b)
{
	if (b->phase == BROKER_STOPPING)
		return;
	b->phase = BROKER_STOPPING;
	frontend_close_listeners(b);
	crew_stop(b, false);
	request_refuse_queued(b, REPLY_DRAINING);
	broker_arm(b, &b->stop_timer, STOP_KILL_MS / 1e3);
}

static void on_stop_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	crew_stop(container_of(timer, struct broker, stop_timer), true);
}

static bool is_drained(const struct broker *b)
{
	return list_empty(&b->requests[REQUEST_RECEIVING]) && b->queue.length + b->queue.held_length == 0 &&
	       list_empty(&b->requests[REQUEST_RUNNING]) && list_empty(&b->requests[REQUEST_DRAINING]) &&
	       list_empty(&b->workers[WORKER_FREEING]);
}

static void drain(struct broker *b)
{
	if (b->phase == BROKER_SERVING)
		frontend_drain(b);
}

static void on_stop_signal(struct ev_loop *loop, struct ev_signal *signal, int events)
{
	(void)loop, (void)events;
	stop_now(signal->data);
}

static void on_quit_signal(struct ev_loop *loop, struct ev_signal *signal, int events)
{
	(void)loop, (void)events;
	drain(signal->data);
}

/* ---- the master's link ---- */

static void take_logs(const struct msghdr *message)
{
	int fds[2];
	struct cmsghdr *c = CMSG_FIRSTHDR(message);

	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof(int)))
		return;
	memcpy(fds, CMSG_DATA(c), c->cmsg_len == CMSG_LEN(sizeof fds) ? sizeof fds : sizeof(int));
	if (c->cmsg_len != CMSG_LEN(sizeof fds)) { /* no descriptor was free for the second */
		close(fds[0]);
		return;
	}
	dup3(fds[0], LINK_FD_LOG, O_CLOEXEC);
	dup3(fds[1], LINK_FD_ACCESS_LOG, O_CLOEXEC);
	close(fds[0]);
	close(fds[1]);
}

static void take_message(struct broker *b, const char *text, ssize_t len, const struct msghdr *message)
{
	uint32_t count;

	memcpy(&count, text + 1, sizeof count);
	if (len == 1 && *text == LINK_DRAIN)
		drain(b);
	else if (len == 1 && *text == LINK_LOGS)
		take_logs(message);
	else if (len == 1 && *text == LINK_RENEW)
		turnover_renew_on_command(b);
	else if (len == LINK_COUNTED_BYTES && *text == LINK_GRANT)
		crew_on_grant(b, count);
}

static void on_link_readable(struct ev_loop *loop, struct ev_io *io, int events)
{
	struct broker *b = io->data;
	char text[LINK_COUNTED_BYTES] = {0};
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = text, .iov_len = sizeof text};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof control.space};
	ssize_t n = recvmsg(io->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	(void)events;
	if (n > 0)
		take_message(b, text, n, &message);
	else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		log_alert("the master is gone: stopping");
		ev_io_stop(loop, io);
		stop_now(b);
	}
}

static void tell_master(enum link_message kind)
{
	char byte = (char)kind;
	(void)!send(LINK_FD_LINK, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_heartbeat(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct broker *b = container_of(timer, struct broker, heartbeat_timer);

	(void)loop, (void)events;
	oom_tick(&b->oom);
	zygote_tick(b);
	tell_master(LINK_HEARTBEAT);
}

/* ---- the loop's turn ---- */

static void on_hold_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	request_on_hold_timer(container_of(timer, struct broker, hold_timer));
}

static void on_receive_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	request_on_receive_timer(container_of(timer, struct broker, receive_timer));
}

static void on_pace_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	worker_on_pace_timer(container_of(timer, struct broker, pace_timer));
}

static void on_relief_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	worker_on_relief_timer(container_of(timer, struct broker, relief_timer));
}

static void on_queue_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)events;
	request_on_queue_timer(container_of(timer, struct broker, queue_timer));
}

/* What is neither a worker nor a zygote was started by a script, whose process
 * has ended before it. */
static void on_exit_of(struct broker *b, pid_t pid, int status, const struct rusage *usage)
{
	struct worker *w = worker_find(b, pid);

	if (w)
		worker_on_exit(w, status, usage);
	else if (!zygote_on_exit(b, pid, status))
		log_debug("process %d, which a script left behind, ended", (int)pid);
}

/* It is not waited for yet: 0, or a child that is dead. */
static pid_t next_dead(void)
{
	siginfo_t info = {.si_pid = 0};

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid : 0;
}

/* Not libev's own watcher: it does not tell what the process has used. Who is
 * unknown may have been born a moment ago, which counts while it is our child. */
static void on_child_signal(struct ev_loop *loop, struct ev_signal *signal, int events)
{
	struct broker *b = signal->data;
	struct rusage usage;
	int status;
	pid_t pid;

	(void)loop, (void)events;
	while ((pid = next_dead()) > 0) {
		if (!worker_find(b, pid))
			zygote_listen(b);
		if (wait4(pid, &status, WNOHANG, &usage) == pid)
			on_exit_of(b, pid, status, &usage);
	}
}

static void write_access_log(struct broker *b)
{
	struct buf *lines = &b->access_lines;

	while (buf_len(lines) > 0) {
		size_t len = buf_len(lines) < ACCESS_FLUSH_BYTES ? buf_len(lines) : ACCESS_FLUSH_BYTES;
		const uint8_t *end = memrchr(buf_head(lines), '\n', len);
		if (!end)
			end = memchr(buf_head(lines), '\n', buf_len(lines));
		len = (size_t)(end - buf_head(lines)) + 1;
		(void)log_raw(LINK_FD_ACCESS_LOG, buf_head(lines), len);
		buf_consume(lines, len);
	}
	buf_reset(lines, ACCESS_KEEP_BYTES);
}

/* Being active is all that it does. */
static void on_again(struct ev_loop *loop, struct ev_idle *idle, int events)
{
	(void)events;
	ev_idle_stop(loop, idle);
}

/* Before the loop sleeps: what the events of this turn made possible is done,
 * and what died in it is freed. */
static void on_turn(struct ev_loop *loop, struct ev_prepare *prepare, int events)
{
	struct broker *b = container_of(prepare, struct broker, turn);

	(void)events;
	ev_idle_stop(loop, &b->again);
	crew_turn(b);
	conn_flush_dirty(b);
	if (b->phase == BROKER_DRAINING && is_drained(b))
		stop_now(b);
	write_access_log(b);
	conn_collect(b);
	request_collect(b);
	worker_collect(b);
	zygote_collect(b);
	if (b->phase == BROKER_STOPPING && crew_is_empty(b))
		ev_break(loop, EVBREAK_ALL);
}

/* ---- building ---- */

static void init_requests(struct broker *b)
{
	for (int state = 0; state < REQUEST_STATES; state++)
		list_init(&b->requests[state]);
	list_init(&b->free_requests);
	queue_init(&b->queue, b->settings->queue_max, b->settings->queue_timeout_ms * 1000);
	ev_timer_init(&b->queue_timer, on_queue_timer, 0., 0.);
	ev_timer_init(&b->hold_timer, on_hold_timer, 0., 0.);
	resets_init(&b->resets);
	ev_timer_init(&b->receive_timer, on_receive_timer, 0., 0.);
	ev_timer_init(&b->pace_timer, on_pace_timer, 0., 0.);
	ev_timer_init(&b->relief_timer, on_relief_timer, 0., 0.);
	buf_init(&b->access_lines);
}

static void start_signal(struct broker *b, struct ev_signal *watcher, int signal,
			 void (*callback)(struct ev_loop *, struct ev_signal *, int))
{
	ev_signal_init(watcher, callback, signal);
	watcher->data = b;
	ev_signal_start(b->loop, watcher);
}

static void start_watchers(struct broker *b)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	start_signal(b, &b->term_signal, SIGTERM, on_stop_signal);
	start_signal(b, &b->int_signal, SIGINT, on_stop_signal);
	start_signal(b, &b->quit_signal, SIGQUIT, on_quit_signal);
	start_signal(b, &b->child_signal, SIGCHLD, on_child_signal);
	ev_io_init(&b->link_io, on_link_readable, LINK_FD_LINK, EV_READ);
	b->link_io.data = b;
	ev_io_start(b->loop, &b->link_io);
	ev_timer_init(&b->heartbeat_timer, on_heartbeat, LINK_HEARTBEAT_MS / 1e3, LINK_HEARTBEAT_MS / 1e3);
	ev_timer_start(b->loop, &b->heartbeat_timer);
	ev_timer_init(&b->stop_timer, on_stop_timer, 0., 0.);
	ev_prepare_init(&b->turn, on_turn);
	ev_prepare_start(b->loop, &b->turn);
	ev_idle_init(&b->again, on_again);
}

static bool broker_init(struct broker *b, const struct pool_settings *settings, int listen_count)
{
	b->loop = ev_loop_new(EVFLAG_AUTO);
	b->settings = settings;
	b->pid = getpid();
	srandom((unsigned)(b->pid ^ broker_now_us()));
	if (!b->loop) {
		log_alert("no event loop");
		return false;
	}
	init_requests(b);
	if (!script_judge_init(&b->judge, settings->limit_extensions, settings->chroot, settings->chdir)) {
		log_error("security.limit_extensions, chroot or chdir cannot be used: %s", strerror(errno));
		return false;
	}
	if (!crew_init(b) || !frontend_init(b, listen_count))
		return false;
	start_watchers(b);
	return true;
}

static void broker_fini(struct broker *b)
{
	frontend_fini(b);
	request_collect(b);
	write_access_log(b);
	worker_collect(b);
	crew_fini(b);
	script_judge_fini(&b->judge);
	request_free_all(b);
	buf_fini(&b->access_lines);
	ev_loop_destroy(b->loop);
}

int pool_main(const struct pool_settings *settings, int listen_count)
{
	struct broker *b = calloc(1, sizeof *b);

	if (!b || !broker_init(b, settings, listen_count)) {
		free(b);
		return EXIT_INTERNAL;
	}
	tell_master(LINK_READY);
	ev_run(b->loop, 0);
	const struct counters *c = &b->counters;
	log_debug("%llu connections, %llu requests, %llu finished, %llu answered without a worker, %llu cancelled, "
		  "%llu retried, %llu cut, %llu crashes",
		  (unsigned long long)c->connections, (unsigned long long)c->accepted, (unsigned long long)c->finished,
		  (unsigned long long)c->replied, (unsigned long long)(c->cancelled_queued + c->cancelled_running),
		  (unsigned long long)c->retried, (unsigned long long)c->cut, (unsigned long long)c->crashes);
	log_debug("refused: %llu by request.max_params, %llu by request.max_body, %llu by request.receive_timeout, "
		  "%llu by mpxs.max_requests, %llu by mpxs.buffer_size; %llu answers spilled, %llu requests held back, %llu connections stalled",
		  (unsigned long long)c->replies[REPLY_PARAMS_TOO_LARGE],
		  (unsigned long long)c->replies[REPLY_BODY_TOO_LARGE],
		  (unsigned long long)c->replies[REPLY_RECEIVE_TIMEOUT], (unsigned long long)c->overloaded,
		  (unsigned long long)c->replies[REPLY_NO_MEMORY], (unsigned long long)c->spilled,
		  (unsigned long long)c->held_back, (unsigned long long)c->send_timeouts);
	broker_fini(b);
	free(b);
	return 0;
}

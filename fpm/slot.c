#include "fpm/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "fpm/check.h"
#include "fpm/child.h"
#include "fpm/link.h"
#include "pool/exitstatus.h"
#include "pool/link.h"

enum {
	REASON_BYTES = 512,
	MESSAGES_PER_TURN = 32, /* a chatterer does not keep the master from its other pools */
	GOSSIP_INTERVAL_MS = 60000,
	LINK_LOST_GRACE_MS = 1000,
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Jitter only: a poor number does no harm. */
static uint32_t roll_dice(void)
{
	uint32_t dice;

	if (getrandom(&dice, sizeof(dice), GRND_NONBLOCK) != (ssize_t)sizeof(dice))
		dice = (uint32_t)now_ms() * 2654435761U;
	return dice;
}

static void set_timer(struct slot *slot, int64_t delay_ms)
{
	ev_timer_stop(slot->owner->loop, &slot->timer);
	/* a little late rather than a little early, which would be once more */
	ev_timer_set(&slot->timer, (double)(delay_ms + 1) / 1000, 0);
	ev_timer_start(slot->owner->loop, &slot->timer);
}

/* What stays */

static bool seal_settings(struct slot *slot, const char *text, size_t len)
{
	slot->settings_fd = memfd_create("h2fpm-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return slot->settings_fd >= 0 && write(slot->settings_fd, text, len) == (ssize_t)len &&
	       fcntl(slot->settings_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Written once and for all processes: they share it and must not change it. */
static bool write_settings(struct slot *slot, const struct conf *conf)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	bool ok = out != NULL && conf_dump(conf, slot->settings, out);

	if (out != NULL)
		ok = fclose(out) == 0 && ok;
	ok = ok && seal_settings(slot, text, len);
	free(text);
	if (!ok)
		log_error("[pool %s] cannot hold its settings: %s (%d)", slot->settings->name, strerror(errno), errno);
	return ok;
}

static bool open_sockets(struct slot *slot)
{
	const struct pool_settings *s = slot->settings;
	struct listen_address address;
	struct listen_access access;
	char reason[REASON_BYTES];

	if (listen_parse(&address, s->listen, reason, sizeof(reason)) &&
	    check_listen_access(s, &access, reason, sizeof(reason)) &&
	    listen_open(&slot->listen, &address, s->listen, (int)s->listen_backlog, &access, reason, sizeof(reason)))
		return true;
	log_error("[pool %s] %s", s->name, reason);
	return false;
}

static bool open_access_log(struct slot *slot)
{
	const char *name = slot->settings->access_log;
	char reason[REASON_BYTES];

	if (logfile_open(&slot->access_log, name != NULL ? name : "/dev/null", reason, sizeof(reason)))
		return true;
	log_error("[pool %s] access.log: %s", slot->settings->name, reason);
	return false;
}

bool slot_open(struct slot *slot, const struct conf *conf)
{
	bool ok = write_settings(slot, conf);

	ok = open_access_log(slot) && ok;
	return open_sockets(slot) && ok;
}

void slot_close(struct slot *slot)
{
	listen_close(&slot->listen);
	logfile_close(&slot->access_log);
	if (slot->settings_fd >= 0)
		close(slot->settings_fd);
	slot->settings_fd = -1;
}

/* The link */

static void close_link(struct slot *slot)
{
	ev_io_stop(slot->owner->loop, &slot->link_io);
	if (slot->link >= 0)
		close(slot->link);
	slot->link = -1;
}

static void become_ready(struct slot *slot)
{
	slot->ready = true;
	slot->proven = true;
	slot->tried = true;
	watch_ready(&slot->watch);
	slot->owner->changed(slot->owner, slot);
}

/* False: this makes no sense. */
static bool take_message(struct slot *slot, const struct link_news *news)
{
	struct quota *quota = slot->owner->quota;

	if (!news->right_size)
		return false;
	switch (news->kind) {
	case LINK_READY:
		become_ready(slot);
		return true;
	case LINK_HEARTBEAT:
		return true;
	case LINK_WANT:
		if (quota == NULL || news->n > slot->settings->pm_max_children)
			return false;
		quota_want(quota, slot->index, news->n);
		return true;
	case LINK_RETURN:
		return quota != NULL && quota_return(quota, slot->index, news->n);
	default:
		return false;
	}
}

static void take_news(struct slot *slot, const struct link_news *news)
{
	if (!take_message(slot, news))
		log_limited(&slot->gossip, GOSSIP_INTERVAL_MS, LOG_LEVEL_WARNING,
			    "[pool %s] process %d sent an unknown message (0x%02x)", slot->settings->name, slot->pid,
			    (unsigned char)news->kind);
	if (slot->ready) /* a loop that beats but is never ready is no better than none */
		watch_heard(&slot->watch, now_ms());
}

/* A process that has closed its end is dead or about to exit: give it the
 * time to do so with the status that it means to. */
static void lose_link(struct slot *slot)
{
	close_link(slot);
	if (slot->pid > 0)
		set_timer(slot, LINK_LOST_GRACE_MS);
}

static void read_link(struct slot *slot)
{
	for (int i = 0; i < MESSAGES_PER_TURN && slot->link >= 0; i++) {
		struct link_news news;
		enum link_result result = link_receive(slot->link, &news);

		if (result == LINK_EMPTY)
			break;
		if (result == LINK_GOT)
			take_news(slot, &news);
		else
			lose_link(slot);
	}
	slot->owner->places(slot->owner);
}

static void on_slot_link(struct ev_loop *loop, ev_io *io, int events)
{
	(void)loop;
	(void)events;
	read_link(io->data);
}

static void send_drain(struct slot *slot)
{
	if (link_send(slot->link, LINK_DRAIN))
		return;
	log_warning("[pool %s] process %d cannot be asked to finish: terminating it", slot->settings->name, slot->pid);
	kill(slot->pid, SIGTERM);
}

void slot_reopen_logs(struct slot *slot)
{
	char reason[REASON_BYTES];

	if (slot->state == SLOT_DISABLED)
		return;
	if (!logfile_reopen(&slot->access_log, reason, sizeof(reason)))
		log_error("[pool %s] access.log: %s; the old one stays in use", slot->settings->name, reason);
	if (slot->state == SLOT_RUNNING && !link_send_logs(slot->link, slot->owner->error_log->fd, slot->access_log.fd))
		log_warning("[pool %s] process %d cannot be given the new log files", slot->settings->name, slot->pid);
}

void slot_renew(struct slot *slot)
{
	if (slot->state == SLOT_RUNNING && !link_send(slot->link, LINK_RENEW))
		log_warning("[pool %s] process %d cannot be asked to renew its workers", slot->settings->name,
			    slot->pid);
}

bool slot_grant(struct slot *slot, int64_t n)
{
	return n > 0 && n <= UINT32_MAX && link_send_count(slot->link, LINK_GRANT, (uint32_t)n);
}

/* The process */

static void leave_quota(struct slot *slot)
{
	if (slot->owner->quota != NULL)
		quota_leave(slot->owner->quota, slot->index);
}

static void disable(struct slot *slot)
{
	slot->state = SLOT_DISABLED;
	ev_timer_stop(slot->owner->loop, &slot->timer);
	slot_close(slot);
	leave_quota(slot);
}

void slot_disable(struct slot *slot)
{
	disable(slot);
	log_warning("[pool %s] is disabled", slot->settings->name);
}

static void schedule_restart(struct slot *slot, bool hopeless)
{
	const char *name = slot->settings->name;
	int64_t delay_ms = watch_ended(&slot->watch, now_ms(), hopeless, roll_dice());

	if (delay_ms < 0) {
		disable(slot);
		log_error("[pool %s] is disabled: its configuration did not work %d times in a row; "
			  "mend it and start h2fpm again", name, WATCH_HOPELESS);
		return;
	}
	slot->state = SLOT_WAITING;
	if (hopeless)
		log_warning("[pool %s] its configuration does not work: next try in %.1f seconds", name,
			    (double)delay_ms / 1000);
	else if (delay_ms > 0)
		log_notice("[pool %s] starting again in %.1f seconds", name, (double)delay_ms / 1000);
	set_timer(slot, delay_ms);
}

static pid_t spawn(struct slot *slot, int pool_end)
{
	const struct child_plan plan = {
		.name = slot->settings->name,
		.link = pool_end,
		.settings = slot->settings_fd,
		.log = slot->owner->error_log->fd,
		.access_log = slot->access_log.fd,
		.listeners = slot->listen.fds,
		.listener_count = slot->listen.count,
		.detached = slot->owner->detached,
	};

	return child_start(&plan);
}

static void watch_process(struct slot *slot, int link)
{
	slot->state = SLOT_RUNNING;
	slot->ready = false;
	slot->link = link;
	ev_io_set(&slot->link_io, link, EV_READ);
	ev_io_start(slot->owner->loop, &slot->link_io);
	if (watch_patience_ms(&slot->watch, now_ms()) >= 0)
		set_timer(slot, watch_patience_ms(&slot->watch, now_ms()));
}

void slot_start(struct slot *slot)
{
	int ends[2] = {-1, -1};

	if (slot->state == SLOT_DISABLED)
		return;
	watch_started(&slot->watch, now_ms());
	slot->pid = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0)
		slot->pid = spawn(slot, ends[1]);
	if (slot->pid < 0) {
		log_error("[pool %s] cannot start a process: %s (%d)", slot->settings->name, strerror(errno), errno);
		if (ends[0] >= 0)
			close(ends[0]);
		schedule_restart(slot, false);
	} else {
		log_debug("[pool %s] process %d started", slot->settings->name, slot->pid);
		watch_process(slot, ends[0]);
	}
	if (ends[1] >= 0)
		close(ends[1]);
}

static void go_down(struct slot *slot)
{
	slot->state = SLOT_DOWN;
	ev_timer_stop(slot->owner->loop, &slot->timer);
}

/* While stopping, what was asked for is no news. */
static void report_end(const struct slot *slot, pid_t pid, int status)
{
	bool asked = (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		     (WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL));
	char how[160];

	exitstatus_explain(how, sizeof(how), status, watch_age_ms(&slot->watch, now_ms()));
	log_write(slot->stopping && asked ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "[pool %s] process %d %s",
		  slot->settings->name, pid, how);
}

void slot_ended(struct slot *slot, int status)
{
	pid_t pid = slot->pid;

	slot->pid = -1; /* the number is the kernel's again: no more signals to it */
	child_sweep(pid);
	if (slot->link >= 0)
		read_link(slot); /* its last words: it may have been ready before it died */
	close_link(slot);
	ev_timer_stop(slot->owner->loop, &slot->timer);
	report_end(slot, pid, status);
	slot->last_status = status;
	slot->tried = true;
	if (slot->owner->quota != NULL)
		quota_reset(slot->owner->quota, slot->index);
	if (slot->stopping)
		go_down(slot);
	else
		schedule_restart(slot, WIFEXITED(status) && WEXITSTATUS(status) == EX_CONFIG);
	slot->owner->changed(slot->owner, slot);
}

/* A heartbeat that has come but was not read yet counts: it may be us who
 * were late. */
static void judge(struct slot *slot)
{
	int64_t patience_ms;

	if (slot->link < 0) {
		log_warning("[pool %s] process %d lives on without its link: killing it", slot->settings->name,
			    slot->pid);
		child_kill(slot->pid);
		return;
	}
	read_link(slot);
	if (slot->link < 0)
		return;
	patience_ms = watch_patience_ms(&slot->watch, now_ms());
	if (patience_ms > 0) {
		set_timer(slot, patience_ms);
		return;
	}
	log_warning("[pool %s] process %d gave no sign of life for %.1f seconds: killing it", slot->settings->name,
		    slot->pid, (double)slot->watch.timeout_ms / 1000);
	child_kill(slot->pid);
}

static void on_slot_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct slot *slot = timer->data;

	(void)loop;
	(void)events;
	if (slot->state == SLOT_RUNNING)
		judge(slot);
	else if (slot->state == SLOT_WAITING)
		slot_start(slot);
}

/* Stopping */

static bool begin_stop(struct slot *slot)
{
	slot->stopping = true;
	listen_close(&slot->listen);
	leave_quota(slot);
	if (slot->state == SLOT_WAITING)
		go_down(slot);
	return slot->state == SLOT_RUNNING;
}

/* Asked before the socket's path goes: who sees it gone may rely on it. */
void slot_drain(struct slot *slot)
{
	if (slot->state == SLOT_RUNNING)
		send_drain(slot);
	(void)begin_stop(slot);
}

void slot_terminate(struct slot *slot)
{
	if (begin_stop(slot))
		kill(slot->pid, SIGTERM);
}

void slot_kill(struct slot *slot)
{
	if (begin_stop(slot))
		child_kill(slot->pid);
}

void slot_init(struct slot *slot, struct slot_owner *owner, size_t index, const struct pool_settings *settings,
	       int64_t watchdog_timeout_ms)
{
	memset(slot, 0, sizeof(*slot));
	slot->owner = owner;
	slot->index = index;
	slot->settings = settings;
	slot->access_log.fd = -1;
	slot->settings_fd = -1;
	slot->link = -1;
	slot->pid = -1;
	watch_init(&slot->watch, watchdog_timeout_ms);
	ev_io_init(&slot->link_io, on_slot_link, -1, EV_READ);
	slot->link_io.data = slot;
	ev_timer_init(&slot->timer, on_slot_timer, 0, 0);
	slot->timer.data = slot;
}

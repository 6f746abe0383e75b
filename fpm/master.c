#include "fpm/master.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fpm/daemon.h"
#include "fpm/limits.h"
#include "fpm/log.h"
#include "fpm/logfile.h"
#include "fpm/orphan.h"
#include "fpm/pidfile.h"
#include "fpm/places.h"
#include "fpm/quota.h"
#include "fpm/slot.h"

enum {
	REASON_BYTES = 512,
	TERMINATE_MS = 2000, /* then what is left is killed */
	ORPHANS_MS = 1000,   /* so long are killed orphans waited for at the end */
};

enum master_state { MASTER_STARTING, MASTER_RUNNING, MASTER_DRAINING, MASTER_TERMINATING, MASTER_KILLING, MASTER_ENDING };

static const int signals[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGHUP};
enum { SIGNAL_COUNT = sizeof(signals) / sizeof(signals[0]) };

struct master {
	const struct conf *conf;
	struct ev_loop *loop;
	struct slot_owner owner;
	struct slot *slots; /* conf->pool_count of them */
	struct quota quota; /* with process.max */
	struct log_gate places_gate;
	struct logfile error_log;
	enum master_state state;
	int waiting_fd; /* of the process that waits for our start; -1: none */
	int exit_status;
	bool has_pidfile;
	bool strict;
	struct orphans orphans;
	ev_signal signal_watchers[SIGNAL_COUNT];
	ev_child child;
	ev_timer stop_timer;
};

static void each_slot(struct master *m, void (*act)(struct slot *slot))
{
	for (size_t i = 0; i < m->conf->pool_count; i++)
		act(&m->slots[i]);
}

/* Stopping */

static void set_stop_timer(struct master *m, int64_t delay_ms)
{
	ev_timer_stop(m->loop, &m->stop_timer);
	if (delay_ms <= 0)
		return;
	ev_timer_set(&m->stop_timer, (double)delay_ms / 1000, 0);
	ev_timer_start(m->loop, &m->stop_timer);
}

static bool are_all_down(const struct master *m)
{
	for (size_t i = 0; i < m->conf->pool_count; i++) {
		if (m->slots[i].state != SLOT_DOWN && m->slots[i].state != SLOT_DISABLED)
			return false;
	}
	return true;
}

static void end_if_all_down(struct master *m)
{
	if (m->state < MASTER_DRAINING || !are_all_down(m))
		return;
	if (m->orphans.count == 0)
		ev_break(m->loop, EVBREAK_ALL);
	else if (m->state != MASTER_ENDING)
		set_stop_timer(m, ORPHANS_MS);
	m->state = MASTER_ENDING;
}

static void kill_all(struct master *m)
{
	m->state = MASTER_KILLING;
	set_stop_timer(m, 0);
	each_slot(m, slot_kill);
	end_if_all_down(m);
}

static void terminate(struct master *m)
{
	if (m->state == MASTER_ENDING)
		return;
	if (m->state >= MASTER_TERMINATING) {
		kill_all(m);
		return;
	}
	log_notice("Terminating ...");
	m->state = MASTER_TERMINATING;
	set_stop_timer(m, TERMINATE_MS);
	each_slot(m, slot_terminate);
	end_if_all_down(m);
}

static void finish(struct master *m)
{
	if (m->state >= MASTER_DRAINING)
		return;
	m->state = MASTER_DRAINING;
	set_stop_timer(m, m->conf->global.process_control_timeout_ms);
	each_slot(m, slot_drain);
	log_notice("Finishing ..."); /* said once it is so */
	end_if_all_down(m);
}

static void on_master_stop_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct master *m = timer->data;

	(void)events;
	if (m->state == MASTER_ENDING) {
		ev_break(loop, EVBREAK_ALL);
		return;
	}
	if (m->state == MASTER_DRAINING)
		log_warning("process_control_timeout is over and requests are still running");
	terminate(m);
}

/* Signals */

static void reopen_logs(struct master *m)
{
	char reason[REASON_BYTES];

	log_notice("reopening log files");
	if (!logfile_reopen(&m->error_log, reason, sizeof(reason)))
		log_error("%s; the old one stays in use", reason);
	else if (m->error_log.name != NULL)
		log_notice("error log file re-opened");
	each_slot(m, slot_reopen_logs);
}

/* Until there is a reload. */
static void renew_workers(struct master *m)
{
	if (m->state >= MASTER_DRAINING)
		return;
	log_notice("workers are renewed: php.ini is read again; the configuration file is not");
	each_slot(m, slot_renew);
}

static void on_master_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
	struct master *m = watcher->data;

	(void)loop;
	(void)events;
	switch (watcher->signum) {
	case SIGQUIT:
		finish(m);
		break;
	case SIGUSR1:
		reopen_logs(m);
		break;
	case SIGUSR2:
		renew_workers(m);
		break;
	case SIGHUP:
		if (!m->conf->global.daemonize)
			terminate(m);
		break;
	default:
		terminate(m);
	}
}

/* Blocked until there is somebody to take them: one that comes during the
 * start waits for the loop. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (int i = 0; i < SIGNAL_COUNT; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a log that may not grow must not end the service */
}

static void take_signals(struct master *m)
{
	sigset_t none;

	for (int i = 0; i < SIGNAL_COUNT; i++) {
		ev_signal_init(&m->signal_watchers[i], on_master_signal, signals[i]);
		m->signal_watchers[i].data = m;
		ev_signal_start(m->loop, &m->signal_watchers[i]);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Pools */

static struct slot *find_slot(struct master *m, pid_t pid)
{
	for (size_t i = 0; i < m->conf->pool_count; i++) {
		if (m->slots[i].pid == pid)
			return &m->slots[i];
	}
	return NULL;
}

static bool is_slots_process(void *master, pid_t child)
{
	return find_slot(master, child) != NULL;
}

static void on_master_child(struct ev_loop *loop, ev_child *watcher, int events)
{
	struct master *m = watcher->data;
	struct slot *slot = find_slot(m, watcher->rpid);

	(void)loop;
	(void)events;
	orphans_sweep(&m->orphans, is_slots_process, m);
	if (slot != NULL)
		slot_ended(slot, watcher->rstatus);
	else
		log_debug("process %d, which is no pool's, ended", watcher->rpid);
	end_if_all_down(m);
}

static void on_slot_places(struct slot_owner *owner)
{
	struct master *m = owner->master;

	if (owner->quota != NULL)
		places_grant(owner->quota, m->slots, &m->places_gate);
}

static void launched(struct master *m)
{
	m->state = MASTER_RUNNING;
	log_notice("ready to handle connections");
	if (m->conf->broken_count > 0)
		log_warning("%zu of %zu pools are left out: h2fpm -t tells why", m->conf->broken_count,
			    m->conf->broken_count + m->conf->pool_count);
	log_echo(-1);
	if (m->waiting_fd >= 0)
		daemon_ready(m->waiting_fd);
	m->waiting_fd = -1;
}

static void give_up_start(struct master *m, const struct slot *slot)
{
	log_error("[pool %s] did not start", slot->settings->name);
	m->exit_status = EX_SOFTWARE;
	if (WIFEXITED(slot->last_status) && WEXITSTATUS(slot->last_status) == EX_CONFIG)
		m->exit_status = EX_CONFIG;
	terminate(m);
}

/* Whoever waits for a start in the background is told of a failed one; in the
 * foreground trying again is what a supervisor is for. */
static void judge_start(struct master *m)
{
	const struct slot *failed = NULL;
	size_t ready = 0;
	size_t untried = 0;

	for (size_t i = 0; i < m->conf->pool_count; i++) {
		const struct slot *slot = &m->slots[i];

		if (slot->proven)
			ready++;
		else if (slot->tried)
			failed = slot;
		else if (slot->state != SLOT_DISABLED)
			untried++;
	}
	if (failed != NULL && (m->strict || (m->waiting_fd >= 0 && ready + untried == 0)))
		give_up_start(m, failed);
	else if (ready > 0 && untried == 0)
		launched(m);
}

static size_t count_enabled(const struct master *m)
{
	size_t count = 0;

	for (size_t i = 0; i < m->conf->pool_count; i++)
		count += m->slots[i].state != SLOT_DISABLED;
	return count;
}

static void on_slot_changed(struct slot_owner *owner, struct slot *slot)
{
	struct master *m = owner->master;

	(void)slot;
	on_slot_places(owner);
	if (m->state < MASTER_DRAINING && count_enabled(m) == 0) {
		log_error("no pool is left that can be served");
		m->exit_status = EX_CONFIG;
		terminate(m);
	} else if (m->state == MASTER_STARTING) {
		judge_start(m);
	}
}

/* Start and end */

/* As php-fpm: a person in front of a terminal is to see the log there. */
static bool uses_error_log(const struct master *m, const struct master_options *options)
{
	if (m->conf->global.error_log == NULL)
		return false;
	return m->conf->global.daemonize || (!options->force_stderr && !isatty(STDERR_FILENO));
}

static bool open_error_log(struct master *m, const struct master_options *options)
{
	const char *name = uses_error_log(m, options) ? m->conf->global.error_log : "/dev/stderr";
	char reason[REASON_BYTES];

	if (!logfile_open(&m->error_log, name, reason, sizeof(reason))) {
		log_error("error_log: %s", reason);
		return false;
	}
	log_to(m->error_log.fd);
	if (m->error_log.name != NULL)
		log_echo(STDERR_FILENO);
	return true;
}

static bool write_pidfile(struct master *m)
{
	char reason[REASON_BYTES];

	if (m->conf->global.pid == NULL)
		return true;
	m->has_pidfile = pidfile_write(m->conf->global.pid, reason, sizeof(reason));
	if (!m->has_pidfile)
		log_error("%s", reason);
	return m->has_pidfile;
}

/* All that can be wrong is told before anything is started. */
static bool open_pools(struct master *m)
{
	bool all = true;

	for (size_t i = 0; i < m->conf->pool_count; i++) {
		bool opened = slot_open(&m->slots[i], m->conf);

		if (!opened && !m->strict)
			slot_disable(&m->slots[i]);
		all = all && opened;
	}
	if (count_enabled(m) == 0)
		log_error("no pool can be served");
	return m->strict ? all : count_enabled(m) > 0;
}

static bool open_all(struct master *m, const struct master_options *options)
{
	bool ok = open_error_log(m, options);

	ok = limits_apply(&m->conf->global) && ok;
	ok = open_pools(m) && ok;
	return ok && write_pidfile(m);
}

static void close_all(struct master *m)
{
	if (m->slots != NULL)
		each_slot(m, slot_close);
	if (m->has_pidfile)
		pidfile_remove(m->conf->global.pid);
	free(m->slots);
	quota_fini(&m->quota);
	ev_loop_destroy(m->loop);
}

static void run(struct master *m)
{
	if (!m->conf->global.daemonize)
		log_echo(-1);
	log_notice("fpm is running, pid %d", getpid());
	orphans_adopt(&m->orphans);
	ev_child_start(m->loop, &m->child);
	each_slot(m, slot_start);
	take_signals(m);
	ev_run(m->loop, 0);
	log_notice("exiting, bye-bye!");
}

static void init_watchers(struct master *m)
{
	ev_child_init(&m->child, on_master_child, 0, 0);
	m->child.data = m;
	ev_timer_init(&m->stop_timer, on_master_stop_timer, 0, 0);
	m->stop_timer.data = m;
}

static bool init(struct master *m, const struct conf *conf, const struct master_options *options)
{
	const struct global_settings *global = &conf->global;

	m->conf = conf;
	m->strict = options->strict;
	m->error_log.fd = -1;
	m->loop = ev_default_loop(EVFLAG_AUTO);
	m->slots = calloc(conf->pool_count + 1, sizeof(*m->slots));
	if (m->loop == NULL || m->slots == NULL ||
	    (global->process_max > 0 && !quota_init(&m->quota, global->process_max, conf->pool_count)))
		return false;
	m->owner = (struct slot_owner){
		.loop = m->loop,
		.error_log = &m->error_log,
		.detached = global->daemonize,
		.quota = global->process_max > 0 ? &m->quota : NULL,
		.changed = on_slot_changed,
		.places = on_slot_places,
		.master = m,
	};
	for (size_t i = 0; i < conf->pool_count; i++)
		slot_init(&m->slots[i], &m->owner, i, conf->pools[i], global->watchdog_timeout_ms);
	init_watchers(m);
	return true;
}

int master_run(const struct conf *conf, const struct master_options *options)
{
	struct master m = {.waiting_fd = -1};

	block_signals();
	if (conf->global.daemonize && (m.waiting_fd = daemon_detach()) < 0) {
		log_error("cannot go to the background: %s (%d)", strerror(errno), errno);
		return EX_SOFTWARE;
	}
	if (!init(&m, conf, options)) {
		log_error("cannot begin: %s (%d)", strerror(errno), errno);
		free(m.slots);
		return EX_SOFTWARE;
	}
	if (open_all(&m, options)) {
		run(&m);
	} else {
		log_error("FPM initialization failed");
		m.exit_status = EX_CONFIG;
	}
	close_all(&m);
	logfile_close(&m.error_log);
	return m.exit_status;
}

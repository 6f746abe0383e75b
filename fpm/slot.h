/* One pool's place in the master: its listening sockets and log, which stay,
 * and its process, which comes and goes.
 *
 *     DOWN ──slot_start──► RUNNING ──exit──► WAITING ──backoff──► RUNNING
 *      ▲                      │ exit while stopping  │ stopping
 *      └──────────────────────┴──────────────────────┘
 *
 * and from any of these, for good, to DISABLED: nobody listens there any more,
 * so that front ends are refused at once instead of waiting for nobody. So ends
 * a slot whose processes say again and again that the configuration is wrong.
 *
 * Owns descriptors, watchers and the process. What the process says on the
 * link is gossip: an unknown message is counted in the log, silence and a
 * closed link end it. The owner is told by changed() of READY, of an end and of
 * being disabled, and by places() when something was said that may change who
 * is granted what. */
#ifndef H2FPM_FPM_SLOT_H
#define H2FPM_FPM_SLOT_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fpm/conf.h"
#include "fpm/listen.h"
#include "fpm/log.h"
#include "fpm/logfile.h"
#include "fpm/quota.h"
#include "fpm/watch.h"

enum slot_state { SLOT_DOWN, SLOT_WAITING, SLOT_RUNNING, SLOT_DISABLED };

struct slot;
/* What all slots of a master share. */
struct slot_owner {
	struct ev_loop *loop;
	const struct logfile *error_log;
	bool detached; /* no terminal */
	struct quota *quota; /* NULL: process.max is not set */
	void (*changed)(struct slot_owner *owner, struct slot *slot);
	void (*places)(struct slot_owner *owner);
	void *master; /* for these two */
};

struct slot {
	struct slot_owner *owner;
	const struct pool_settings *settings;
	size_t index;        /* in the quota */
	int64_t passed_over; /* wanted places that it could not be told of: the owner's note */
	struct listen_set listen;
	struct logfile access_log;
	int settings_fd;

	enum slot_state state;
	bool stopping;
	bool ready;  /* this process has said so */
	bool proven; /* one of its processes has */
	bool tried;  /* one of its processes has been ready or has ended */
	pid_t pid;
	int last_status; /* of the latest process that ended */
	int link;
	ev_io link_io;
	ev_timer timer; /* RUNNING: its lateness; WAITING: the next start */
	struct watch watch;
	struct log_gate gossip;
};

void slot_init(struct slot *slot, struct slot_owner *owner, size_t index,
	       const struct pool_settings *settings, int64_t watchdog_timeout_ms);
/* Opens all that stays; each problem is logged. */
bool slot_open(struct slot *slot, const struct conf *conf) __attribute__((warn_unused_result));
/* Before anything was started: the others do without it. */
void slot_disable(struct slot *slot);
/* Unless it is disabled. */
void slot_start(struct slot *slot);

/* The process was waited for. */
void slot_ended(struct slot *slot, int status);

/* Stopping, ever harder. The sockets are closed: nobody new is to wait here. */
void slot_drain(struct slot *slot);
void slot_terminate(struct slot *slot);
void slot_kill(struct slot *slot);

/* To the running process; where there is none, nothing. */
void slot_reopen_logs(struct slot *slot);
void slot_renew(struct slot *slot);
/* False: it cannot be told now. */
bool slot_grant(struct slot *slot, int64_t n) __attribute__((warn_unused_result));

/* Nothing may be running any more. Gives everything back. */
void slot_close(struct slot *slot);

#endif

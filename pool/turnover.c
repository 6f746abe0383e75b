#include "pool/turnover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/broker.h"
#include "pool/crew.h"
#include "pool/recycle.h"
#include "pool/scaler.h"
#include "pool/worker.h"
#include "pool/zygote.h"

enum {
	YOUNG_ZYGOTE_US = 1000000,
	FAULTS_MAX = 100000, /* remembered, at most */
	PLACE_US = 500000, /* so long is waited for a place for a replacement */
};

/* ---- one worker's time ---- */

static void set_leaving(struct worker *w, enum worker_leaving leaving)
{
	struct broker *b = w->broker;

	b->due_count += (leaving == WORKER_DUE) - (w->leaving == WORKER_DUE);
	b->recycling_counts[w->state] += (leaving == WORKER_RECYCLING) - (w->leaving == WORKER_RECYCLING);
	w->leaving = leaving;
}

/* Anonymous memory: what opcache and other workers share does not count.
 * 0 where it cannot be read. */
static int64_t memory_bytes(const struct worker *w)
{
	char text[128];
	long long resident, shared;
	ssize_t n = w->statm_fd >= 0 ? pread(w->statm_fd, text, sizeof text - 1, 0) : -1;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%*s %lld %lld", &resident, &shared) != 2)
		return 0;
	return (resident - shared) * sysconf(_SC_PAGESIZE);
}

static int open_statm(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void turnover_check(struct worker *w)
{
	const char *reason = "php.ini is read anew";

	if (w->leaving != WORKER_STAYS || w->state == WORKER_STOPPING || w->state == WORKER_DEAD)
		return;
	if (w->generation == w->broker->generation)
		reason = recycle_due(&w->recycle, w->given, broker_now_us(), w->requests > 0 ? memory_bytes(w) : 0);
	if (!reason)
		return;
	log_debug("child %d is to be replaced: %s", (int)w->pid, reason);
	set_leaving(w, WORKER_DUE);
}

void turnover_forget(struct worker *w)
{
	set_leaving(w, WORKER_STAYS);
	if (w->statm_fd >= 0)
		close(w->statm_fd);
	w->statm_fd = -1;
}

/* ---- idle ones that may go ---- */

/* Of the idle ones, in the order of the list: the longest idle last. */
struct idle_ones {
	int64_t over;         /* have been idle for the timeout */
	struct worker *next;  /* whose time decides when one more may go */
};

/* max_spare of those that have been idle for long may stay, so the one after
 * these is who decides. */
static struct idle_ones look_at_idle(const struct broker *b, int64_t now_us)
{
	const struct list *head = &b->workers[WORKER_IDLE];
	struct idle_ones found = {0, NULL};
	int64_t seen = 0;

	for (struct list *node = head->prev; node != head && !found.next; node = node->prev) {
		struct worker *w = container_of(node, struct worker, node);
		if (w->leaving == WORKER_RECYCLING)
			continue;
		if (scaler_idle_deadline_us(&b->scaler, w->idle_since_us) <= now_us)
			found.over++;
		else if (seen >= b->scaler.max_spare)
			found.next = w;
		seen++;
	}
	return found;
}

static void stop_longest_idle(struct broker *b, int64_t n)
{
	struct list *head = &b->workers[WORKER_IDLE], *before;

	for (struct list *node = head->prev; node != head && n > 0; node = before) {
		struct worker *w = container_of(node, struct worker, node);
		before = node->prev;
		if (w->leaving == WORKER_RECYCLING)
			continue;
		worker_stop(w, "it has been idle for pm.process_idle_timeout");
		backoff_succeed(&b->start_backoff); /* it did not die, however short that is */
		n--;
	}
}

/* The timer is not moved while it runs: it may fire for nothing. */
void turnover_let_go(struct broker *b)
{
	if (b->scaler.mode == PM_STATIC || ev_is_active(&b->retire_timer) || b->phase == BROKER_STOPPING ||
	    list_empty(&b->workers[WORKER_IDLE]))
		return;
	int64_t now_us = broker_now_us();
	struct scaler_view v = crew_view(b);
	struct idle_ones found = look_at_idle(b, now_us);
	v.idle = found.over;
	stop_longest_idle(b, scaler_spare(&b->scaler, &v));
	if (found.next)
		broker_arm(b, &b->retire_timer,
			   (double)(scaler_idle_deadline_us(&b->scaler, found.next->idle_since_us) - now_us) / 1e6 +
				   1e-3);
}

static void on_retire_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	(void)loop, (void)timer, (void)events; /* the turn's end does it */
}

/* ---- replacing those that have served their time ---- */

static void promote(struct broker *b, enum worker_state state, int64_t *room)
{
	struct list *node, *tmp;

	list_each(node, tmp, &b->workers[state]) {
		struct worker *w = container_of(node, struct worker, node);
		if (*room > 0 && w->leaving == WORKER_DUE) {
			set_leaving(w, WORKER_RECYCLING);
			b->counters.recycled++;
			(*room)--;
		}
	}
}

static void promote_due(struct broker *b)
{
	int64_t room = recycle_cap(b->settings->pm_max_children) - crew_recycling(b);

	if (b->due_count == 0)
		return;
	promote(b, WORKER_IDLE, &room);
	promote(b, WORKER_FREEING, &room);
	promote(b, WORKER_BUSY, &room);
}

/* Once there are as many others as there should be. */
static void retire_replaced(struct broker *b)
{
	const struct scaler_view v = crew_view(b);
	struct list *node, *tmp;

	if (b->recycling_counts[WORKER_IDLE] == 0 || v.idle + v.busy < scaler_wanted(&b->scaler, &v))
		return;
	list_each(node, tmp, &b->workers[WORKER_IDLE]) {
		struct worker *w = container_of(node, struct worker, node);
		if (w->leaving == WORKER_RECYCLING)
			worker_stop(w, "it has been replaced");
	}
}

/* Where process.max leaves no place for a replacement, the old one makes way
 * for it: else it would stay for ever. One at a time. */
static void make_way(struct broker *b)
{
	struct list *node, *tmp;

	if (b->recycling_counts[WORKER_IDLE] == 0 || b->worker_counts[WORKER_STOPPING] > 0 ||
	    b->lacking_since_us == 0 || broker_now_us() - b->lacking_since_us < PLACE_US)
		return;
	list_each(node, tmp, &b->workers[WORKER_IDLE]) {
		struct worker *w = container_of(node, struct worker, node);
		if (w->leaving != WORKER_RECYCLING)
			continue;
		worker_stop(w, "process.max leaves no place for its replacement");
		return;
	}
}

void turnover_replace(struct broker *b)
{
	promote_due(b);
	retire_replaced(b);
	make_way(b);
}

static void check_all_due(struct broker *b)
{
	struct list *node, *tmp;

	for (int state = WORKER_IDLE; state < WORKER_STOPPING; state++)
		list_each(node, tmp, &b->workers[state])
			turnover_check(container_of(node, struct worker, node));
}

/* For whose time comes first. */
static void arm_lifetime_timer(struct broker *b, const struct worker *w)
{
	double seconds = (double)(w->recycle.due_us - broker_now_us()) / 1e6 + 1e-3;

	if (w->recycle.due_us == INT64_MAX ||
	    (ev_is_active(&b->lifetime_timer) && ev_timer_remaining(b->loop, &b->lifetime_timer) <= seconds))
		return;
	broker_arm(b, &b->lifetime_timer, seconds);
}

static void on_lifetime_timer(struct ev_loop *loop, struct ev_timer *timer, int events)
{
	struct broker *b = container_of(timer, struct broker, lifetime_timer);
	struct list *node, *tmp;

	(void)loop, (void)events;
	check_all_due(b);
	for (int state = 0; state < WORKER_STOPPING; state++) {
		list_each(node, tmp, &b->workers[state]) {
			struct worker *w = container_of(node, struct worker, node);
			if (w->leaving == WORKER_STAYS && broker_now_us() < w->recycle.due_us)
				arm_lifetime_timer(b, w);
		}
	}
}

void turnover_on_birth(struct worker *w)
{
	struct broker *b = w->broker;

	w->generation = b->generation;
	recycle_init(&w->recycle, b->settings, w->started_us, (uint32_t)random());
	w->statm_fd = b->settings->worker_max_memory_bytes > 0 ? open_statm(w->pid) : -1;
	arm_lifetime_timer(b, w);
}

static void begin_generation(struct broker *b)
{
	b->generation++;
	if (b->hopeful)
		ev_timer_stop(b->loop, &b->start_timer);
	b->hopeful = false;
	check_all_due(b);
}

void turnover_renew(struct broker *b, const char *reason)
{
	if (b->phase != BROKER_SERVING)
		return;
	if (b->next_zygote) {
		b->renew_again = true;
		return;
	}
	log_notice("new workers take the place of all: %s", reason);
	if (!zygote_is_meant(b) || b->gate_image < 0) {
		begin_generation(b);
		return;
	}
	b->next_zygote = zygote_start(b);
	if (!b->next_zygote)
		log_error("php-cgi cannot be started: %s; the old workers go on", strerror(errno));
}

void turnover_renew_on_command(struct broker *b)
{
	b->hopeful = true;
	turnover_renew(b, "the master asks for it");
}

void turnover_on_fault(struct broker *b)
{
	int64_t threshold = b->settings->emergency_restart_threshold, now_us = broker_now_us();

	if (!b->faults)
		return;
	if (threshold > FAULTS_MAX)
		threshold = FAULTS_MAX;
	b->faults[b->fault_count++ % threshold] = now_us;
	bool is_emergency = b->fault_count >= threshold && now_us - b->faults[b->fault_count % threshold] <=
								     b->settings->emergency_restart_interval_ms * 1000;
	if (!is_emergency)
		return;
	b->fault_count = 0;
	log_warning("failed processes threshold (%lld in %lld sec) is reached, initiating reload",
		    (long long)b->settings->emergency_restart_threshold,
		    (long long)b->settings->emergency_restart_interval_ms / 1000);
	turnover_renew(b, "emergency_restart_threshold");
}

/* ---- zygotes ---- */

/* Whatever became of the one that was being started: it may have read what has
 * been changed since. */
static void renew_once_more(struct broker *b)
{
	bool again = b->renew_again;

	b->renew_again = false;
	if (again)
		turnover_renew(b, "asked for again meanwhile");
}

void turnover_on_zygote_ready(struct broker *b, struct zygote *z)
{
	if (z == b->next_zygote) {
		if (b->zygote)
			zygote_end(b->zygote);
		b->zygote = z;
		b->next_zygote = NULL;
		b->uses_zygote = true;
	}
	log_debug("php-cgi %d forks the workers from now on", (int)z->pid);
	begin_generation(b);
	renew_once_more(b);
}

static bool has_no_gate(const struct zygote *z, enum zygote_state was)
{
	return was == ZYGOTE_LOADING && !z->failed;
}

static void on_renewal_failed(struct broker *b, const struct zygote *z, enum zygote_state was, const char *how)
{
	b->next_zygote = NULL;
	if (has_no_gate(z, was) && !b->uses_zygote)
		begin_generation(b); /* each reads php.ini for itself */
	else
		log_error("the new php-cgi did not start: %s; the old workers go on", how);
	renew_once_more(b);
}

void turnover_on_zygote_lost(struct broker *b, struct zygote *z, enum zygote_state was, const char *how)
{
	if (z == b->next_zygote)
		on_renewal_failed(b, z, was, how);
	if (z != b->zygote)
		return;
	b->zygote = NULL;
	if (b->phase == BROKER_STOPPING)
		return;
	if (has_no_gate(z, was)) {
		log_warning("workers share no memory, since php-cgi cannot be made to fork them (worker.spawn): %s", how);
		b->uses_zygote = false;
	} else if (was == ZYGOTE_READY) {
		log_warning("php-cgi %d, which forks the workers, is lost: %s", (int)z->pid, how);
		if (broker_now_us() - z->started_us < YOUNG_ZYGOTE_US)
			crew_on_start_failure(b);
	} else {
		log_error("php-cgi %d did not start: %s", (int)z->pid, how);
		crew_on_start_failure(b);
	}
}

/* ---- building ---- */

static bool init_faults(struct broker *b)
{
	int64_t threshold = b->settings->emergency_restart_threshold;

	if (threshold <= 0 || b->settings->emergency_restart_interval_ms <= 0)
		return true;
	b->faults = calloc((size_t)(threshold < FAULTS_MAX ? threshold : FAULTS_MAX), sizeof *b->faults);
	return b->faults != NULL;
}

bool turnover_init(struct broker *b)
{
	ev_timer_init(&b->retire_timer, on_retire_timer, 0., 0.);
	ev_timer_init(&b->lifetime_timer, on_lifetime_timer, 0., 0.);
	return init_faults(b);
}

void turnover_stop(struct broker *b)
{
	ev_timer_stop(b->loop, &b->retire_timer);
	ev_timer_stop(b->loop, &b->lifetime_timer);
}

void turnover_fini(struct broker *b)
{
	free(b->faults);
}

/* A slot's process is /proc/self/exe, which is this test: started so, it does
 * what FATE says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fpm/child.h"
#include "fpm/log.h"
#include "fpm/places.h"
#include "fpm/slot.h"
#include "pool/link.h"

/* In the process */

static bool say(char kind, uint32_t n, size_t len)
{
	char bytes[16] = {kind};

	memcpy(bytes + 1, &n, sizeof(n));
	return send(LINK_FD_LINK, bytes, len, 0) == (ssize_t)len;
}

/* Asks for three places, gives two back, and exits with what it was granted. */
static int use_places(void)
{
	char bytes[16];
	struct pollfd link = {.fd = LINK_FD_LINK, .events = POLLIN};
	uint32_t n;

	if (!say(LINK_READY, 0, 1) || !say(LINK_WANT, 3, LINK_COUNTED_BYTES) || poll(&link, 1, 20000) != 1 ||
	    recv(LINK_FD_LINK, bytes, sizeof(bytes), 0) != LINK_COUNTED_BYTES || bytes[0] != LINK_GRANT)
		return 100;
	memcpy(&n, bytes + 1, sizeof(n));
	return say(LINK_RETURN, 2, LINK_COUNTED_BYTES) ? (int)n : 100;
}

static int talk_nonsense(void)
{
	bool said = say(LINK_READY, 0, 2) && say(LINK_WANT, 1, 1) && say(LINK_WANT, 1, 9) &&
		    say(LINK_WANT, 5, LINK_COUNTED_BYTES) && say(LINK_WANT, UINT32_MAX, LINK_COUNTED_BYTES) &&
		    say(LINK_RETURN, 1, LINK_COUNTED_BYTES) && say(LINK_GRANT, 1, LINK_COUNTED_BYTES) && say('?', 0, 1);

	return said ? 0 : 100;
}

static int be_process(void)
{
	const char *fate = getenv("FATE");

	if (fate == NULL)
		return 101;
	if (strcmp(fate, "places") == 0)
		return use_places();
	if (strcmp(fate, "nonsense") == 0)
		return talk_nonsense();
	if (strcmp(fate, "ready") == 0)
		return say(LINK_READY, 0, 1) ? EX_SOFTWARE : 100;
	return atoi(fate);
}

/* In the test */

struct stage {
	struct ev_loop *loop;
	struct conf *conf;
	struct logfile error_log;
	struct slot_owner owner;
	struct quota quota;
	struct log_gate gate;
	struct slot slot;
	ev_child child;
	char dir[32];
	char socket[64];
	int changes;
};

static void on_changed(struct slot_owner *owner, struct slot *slot)
{
	struct stage *stage = owner->master;

	(void)slot;
	stage->changes++;
}

static void on_places(struct slot_owner *owner)
{
	struct stage *stage = owner->master;

	places_grant(&stage->quota, &stage->slot, &stage->gate);
}

static void on_error(void *context, const char *line)
{
	(void)context;
	fail_msg("%s", line);
}

static void on_child(struct ev_loop *loop, ev_child *watcher, int events)
{
	struct stage *stage = watcher->data;

	(void)loop;
	(void)events;
	if (watcher->rpid == stage->slot.pid)
		slot_ended(&stage->slot, watcher->rstatus);
}

static int set_up(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));
	char text[512];

	assert_non_null(stage);
	strcpy(stage->dir, "/tmp/h2fpm-slot-XXXXXX");
	assert_non_null(mkdtemp(stage->dir));
	snprintf(stage->socket, sizeof(stage->socket), "%s/s", stage->dir);
	snprintf(text, sizeof(text), "[www]\nlisten = %s\npm = static\npm.max_children = 4\n", stage->socket);
	stage->conf = conf_parse("test", text, strlen(text), on_error, NULL);
	assert_non_null(stage->conf);
	stage->loop = ev_default_loop(EVFLAG_AUTO);
	stage->error_log.fd = STDERR_FILENO;
	assert_true(quota_init(&stage->quota, 4, 1));
	stage->owner = (struct slot_owner){.loop = stage->loop,
					   .error_log = &stage->error_log,
					   .quota = &stage->quota,
					   .changed = on_changed,
					   .places = on_places,
					   .master = stage};
	slot_init(&stage->slot, &stage->owner, 0, stage->conf->pools[0], 0);
	ev_child_init(&stage->child, on_child, 0, 0);
	stage->child.data = stage;
	ev_child_start(stage->loop, &stage->child);
	*state = stage;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;

	slot_close(&stage->slot);
	quota_fini(&stage->quota);
	conf_free(stage->conf);
	ev_timer_stop(stage->loop, &stage->slot.timer);
	ev_child_stop(stage->loop, &stage->child);
	ev_loop_destroy(stage->loop);
	rmdir(stage->dir);
	free(stage);
	return 0;
}

static int connect_error(const struct stage *stage)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int error;

	strcpy(address.sun_path, stage->socket);
	error = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
	close(fd);
	return error;
}

/* Starts a process and runs the loop until it was waited for. */
static void live_and_die(struct stage *stage, const char *fate)
{
	assert_int_equal(setenv("FATE", fate, 1), 0);
	ev_timer_stop(stage->loop, &stage->slot.timer); /* as if it had come */
	slot_start(&stage->slot);
	assert_int_equal(stage->slot.state, SLOT_RUNNING);
	while (stage->slot.state == SLOT_RUNNING)
		ev_run(stage->loop, EVRUN_ONCE);
}

static void test_wrong_configuration_disables_after_some_tries(void **state)
{
	struct stage *stage = *state;
	struct slot *slot = &stage->slot;

	assert_true(slot_open(slot, stage->conf));
	for (int i = 1; i < WATCH_HOPELESS; i++) {
		live_and_die(stage, "78");
		assert_int_equal(slot->state, SLOT_WAITING);
		assert_true(ev_timer_remaining(stage->loop, &slot->timer) > 20);
		assert_int_equal(connect_error(stage), 0); /* it may yet be mended */
	}
	live_and_die(stage, "78");
	assert_int_equal(slot->state, SLOT_DISABLED);
	assert_int_equal(connect_error(stage), ENOENT);
	assert_false(ev_is_active(&slot->timer));
	assert_int_equal(stage->changes, WATCH_HOPELESS);
	assert_true(stage->quota.shares[0].absent);
	/* nothing brings it back or trips over it */
	slot_start(slot);
	slot_renew(slot);
	slot_reopen_logs(slot);
	slot_drain(slot);
	slot_terminate(slot);
	slot_kill(slot);
	assert_int_equal(slot->state, SLOT_DISABLED);
}

static void test_other_failures_are_tried_for_ever(void **state)
{
	struct stage *stage = *state;

	assert_true(slot_open(&stage->slot, stage->conf));
	for (int i = 0; i < 3 * WATCH_HOPELESS; i++) {
		live_and_die(stage, "70");
		assert_int_equal(stage->slot.state, SLOT_WAITING);
	}
	assert_true(stage->slot.tried);
	assert_false(stage->slot.proven);
	assert_true(ev_timer_remaining(stage->loop, &stage->slot.timer) > 20);
}

static void test_ready_one_is_started_again_soon(void **state)
{
	struct stage *stage = *state;

	assert_true(slot_open(&stage->slot, stage->conf));
	for (int i = 0; i <= WATCH_BURST; i++) {
		live_and_die(stage, "ready");
		assert_int_equal(stage->slot.state, SLOT_WAITING);
		assert_true(stage->slot.proven);
		assert_true(ev_timer_remaining(stage->loop, &stage->slot.timer) < (i < WATCH_BURST ? 0.01 : 1.01));
	}
}

static void test_address_in_use_disables(void **state)
{
	struct stage *stage = *state;
	struct slot second;

	assert_true(slot_open(&stage->slot, stage->conf));
	slot_init(&second, &stage->owner, 0, stage->conf->pools[0], 0);
	assert_false(slot_open(&second, stage->conf));
	slot_disable(&second);
	assert_int_equal(second.state, SLOT_DISABLED);
	assert_int_equal(connect_error(stage), 0); /* the first one's socket is untouched */
	slot_close(&second);
}

static void test_places_are_granted_returned_and_free_again(void **state)
{
	struct stage *stage = *state;

	assert_true(slot_open(&stage->slot, stage->conf));
	live_and_die(stage, "places");
	assert_true(WIFEXITED(stage->slot.last_status));
	assert_int_equal(WEXITSTATUS(stage->slot.last_status), 3);
	assert_int_equal(stage->quota.free, 4);
	assert_int_equal(stage->quota.shares[0].held, 0);
	assert_int_equal(stage->quota.shares[0].wanted, 0);
}

static void test_nonsense_changes_nothing(void **state)
{
	struct stage *stage = *state;

	assert_true(slot_open(&stage->slot, stage->conf));
	live_and_die(stage, "nonsense");
	assert_int_equal(WEXITSTATUS(stage->slot.last_status), 0);
	assert_false(stage->slot.proven);
	assert_int_equal(stage->quota.free, 4);
	assert_int_equal(stage->slot.gossip.suppressed, 7); /* the first of eight was told */
}

/* Its link is full: the places stay free and are granted at the next occasion. */
static void test_grant_that_cannot_be_sent_is_taken_back(void **state)
{
	struct stage *stage = *state;
	char bytes[16];
	int ends[2];
	int stuffed = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	stage->slot.link = ends[0];
	while (send(ends[0], "x", 1, 0) == 1)
		stuffed++;
	quota_want(&stage->quota, 0, 3);
	for (int i = 0; i < 3; i++) {
		places_grant(&stage->quota, &stage->slot, &stage->gate);
		assert_int_equal(stage->quota.free, 4);
		assert_int_equal(stage->quota.shares[0].held, 0);
		assert_int_equal(stage->quota.shares[0].wanted, 3);
	}
	assert_int_equal(stage->gate.open_at_ms, 0); /* no word of a maximum that has been reached */
	while (stuffed-- > 0)
		assert_int_equal(recv(ends[1], bytes, sizeof(bytes), 0), 1);
	places_grant(&stage->quota, &stage->slot, &stage->gate);
	assert_int_equal(recv(ends[1], bytes, sizeof(bytes), 0), LINK_COUNTED_BYTES);
	assert_int_equal(stage->quota.free, 1);
	quota_want(&stage->quota, 0, 2);
	places_grant(&stage->quota, &stage->slot, &stage->gate);
	assert_true(stage->gate.open_at_ms > 0); /* now it was told */
	stage->slot.link = -1;
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_wrong_configuration_disables_after_some_tries, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_failures_are_tried_for_ever, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_ready_one_is_started_again_soon, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_address_in_use_disables, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_places_are_granted_returned_and_free_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nonsense_changes_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grant_that_cannot_be_sent_is_taken_back, set_up, tear_down),
	};

	if (argc > 1 && strcmp(argv[1], CHILD_OPTION) == 0)
		return be_process();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

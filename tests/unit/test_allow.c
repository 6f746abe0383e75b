/* Which peers may connect, and what is no list of addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>
#include <sys/un.h>

#include "pool/allow.h"

static bool allows(const struct allow *allow, const char *address)
{
	struct sockaddr_storage peer = {0};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&peer;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&peer;

	if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
		peer.ss_family = AF_INET;
		v4->sin_port = htons(12345);
	} else {
		assert_int_equal(inet_pton(AF_INET6, address, &v6->sin6_addr), 1);
		peer.ss_family = AF_INET6;
		v6->sin6_port = htons(12345);
		v6->sin6_scope_id = 1;
	}
	return allow_check(allow, &peer);
}

static void init(struct allow *allow, const char *list)
{
	const char *bad = NULL;

	assert_true(allow_init(allow, list, &bad));
	assert_null(bad);
}

static void test_addresses(void **state)
{
	struct allow allow;

	(void)state;
	init(&allow, "127.0.0.1,10.1.2.3,::1,2001:db8::5,::ffff:192.0.2.9");
	assert_int_equal(allow.count, 5);
	assert_true(allows(&allow, "127.0.0.1"));
	assert_true(allows(&allow, "10.1.2.3"));
	assert_true(allows(&allow, "::1"));
	assert_true(allows(&allow, "2001:db8::5"));
	assert_true(allows(&allow, "::ffff:10.1.2.3")); /* as a socket for both families shows it */
	assert_true(allows(&allow, "192.0.2.9"));
	assert_true(allows(&allow, "::ffff:192.0.2.9"));
	assert_false(allows(&allow, "127.0.0.2"));
	assert_false(allows(&allow, "3.2.1.10"));
	assert_false(allows(&allow, "::2"));
	assert_false(allows(&allow, "::"));
	assert_false(allows(&allow, "::127.0.0.1")); /* "compatible" is not mapped */
	assert_false(allows(&allow, "2001:db8::6"));
	allow_fini(&allow);
}

static void test_any_and_none(void **state)
{
	struct allow allow;

	(void)state;
	init(&allow, NULL);
	assert_true(allows(&allow, "203.0.113.1"));
	assert_true(allows(&allow, "2001:db8::1"));
	allow_fini(&allow);
	assert_false(allows(&allow, "203.0.113.1")); /* after its end nobody is let in */
	init(&allow, " , ,\t");
	assert_false(allows(&allow, "127.0.0.1"));
	allow_fini(&allow);
	init(&allow, "");
	assert_false(allows(&allow, "127.0.0.1"));
	allow_fini(&allow);
}

static void test_unix_peers_are_allowed(void **state)
{
	struct sockaddr_storage peer = {.ss_family = AF_UNIX};
	struct allow allow;

	(void)state;
	init(&allow, "10.0.0.1");
	assert_true(allow_check(&allow, &peer));
	allow_fini(&allow);
}

static void test_list_syntax(void **state)
{
	static const char *const lists[] = {
	        "10.0.0.1,::1", " 10.0.0.1 , ::1 ",   ",,10.0.0.1,,::1,",
	        "10.0.0.1 ::1", "\t10.0.0.1,\t::1\t", "::1,10.0.0.1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		struct allow allow;

		init(&allow, lists[i]);
		assert_int_equal(allow.count, 2);
		assert_true(allows(&allow, "10.0.0.1"));
		assert_true(allows(&allow, "::1"));
		assert_false(allows(&allow, "10.0.0.2"));
		allow_fini(&allow);
	}
}

static void test_bad_entry_is_named(void **state)
{
	static const char *const entries[] = {
	        "localhost", "10.0.0", "10.0.0.256", "10.0.0.1/8", "10.0.0.1:80",     "[::1]",
	        "::1%lo",    ":::",    "1",          "any",        "2001:db8::12345", "010.0.0.1.1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		char list[128] = "127.0.0.1, ";
		struct allow allow;
		const char *bad = NULL;

		strcat(strcat(list, entries[i]), " ,::1");
		assert_false(allow_init(&allow, list, &bad));
		assert_string_equal(bad, entries[i]);
		assert_null(allow.addresses); /* nothing is left to free */
		assert_false(allows(&allow, "127.0.0.1"));
	}
}

/* And named by its beginning. */
static void test_long_entry_is_refused(void **state)
{
	char list[512];
	struct allow allow;
	const char *bad = NULL;

	(void)state;
	memset(list, '0', sizeof(list));
	memcpy(list, "::1,", 4);
	list[sizeof(list) - 1] = '\0';
	assert_false(allow_init(&allow, list, &bad));
	assert_memory_equal(bad, "0000000000", 10);
	assert_true(strlen(bad) < 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_any_and_none),
	        cmocka_unit_test(test_unix_peers_are_allowed),
	        cmocka_unit_test(test_list_syntax),
	        cmocka_unit_test(test_bad_entry_is_named),
	        cmocka_unit_test(test_long_entry_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

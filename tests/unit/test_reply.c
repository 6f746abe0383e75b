/* The broker's own answers, taken apart as a front end does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/reply.h"

static const int statuses[REPLY_COUNT] = {400, 403, 404, 408, 413, 431, 502, 503,
					    503, 503, 503, 503, 503, 504};

static const char *body_of(const struct reply_text *r)
{
	const char *end = strstr(r->text, "\r\n\r\n");

	assert_non_null(end);
	return end + 4;
}

static void test_head(void **state)
{
	(void)state;
	for (int i = 0; i < REPLY_COUNT; i++) {
		const struct reply_text *r = reply_text((enum reply)i);
		const char *body = body_of(r);
		int status = 0, name_len = 0;

		assert_int_equal(r->status, statuses[i]);
		assert_int_equal(sscanf(r->text, "Status: %3d %*[A-Z]%n", &status, &name_len), 1);
		assert_int_equal(status, r->status);
		assert_true(name_len > 0); /* RFC 3875: with a phrase */
		assert_true(r->reason[0]);
		assert_true(body[0] && body[strlen(body) - 1] == '\n');
		assert_non_null(strstr(r->text, "\r\nContent-Type: text/"));
		for (const char *c = r->text; c < body; c++)
			assert_true(*c == '\r' ? c[1] == '\n' : *c == '\n' ? c[-1] == '\r' : *c >= 0x20);
	}
}

static void test_busy_says_when_to_return(void **state)
{
	(void)state;
	for (int i = 0; i < REPLY_COUNT; i++) {
		const struct reply_text *r = reply_text((enum reply)i);
		assert_int_equal(strstr(r->text, "\r\nRetry-After: 1\r\n") != NULL, r->status == 503);
	}
}

static void test_texts_that_users_know(void **state)
{
	(void)state;
	assert_string_equal(body_of(reply_text(REPLY_DENIED)), "Access denied.\n");
	assert_string_equal(body_of(reply_text(REPLY_NO_FILE)), "No input file specified.\n");
}

static void test_no_two_are_alike(void **state)
{
	(void)state;
	for (int i = 0; i < REPLY_COUNT; i++) {
		for (int j = 0; j < i; j++) {
			assert_string_not_equal(reply_text((enum reply)i)->text, reply_text((enum reply)j)->text);
			assert_string_not_equal(reply_text((enum reply)i)->reason, reply_text((enum reply)j)->reason);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_head),
	        cmocka_unit_test(test_busy_says_when_to_return),
	        cmocka_unit_test(test_texts_that_users_know),
	        cmocka_unit_test(test_no_two_are_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

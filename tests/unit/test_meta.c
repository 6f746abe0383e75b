/* What the broker reads of a request's parameters, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pool/meta.h"
#include "protocol/buf.h"

static struct buf block;
static struct meta meta;

static void add_bytes(const char *name, const void *value, size_t len)
{
	assert_true(params_append(&block, name, strlen(name), value, len));
}

static void add(const char *name, const char *value)
{
	add_bytes(name, value, strlen(value));
}

static const char *parse(void)
{
	return meta_parse(&meta, buf_head(&block), buf_len(&block));
}

static int setup(void **state)
{
	(void)state;
	buf_init(&block);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	buf_fini(&block);
	return 0;
}

static void test_every_name_is_found(void **state)
{
	static const char *const names[META_COUNT] = {
	        "REQUEST_METHOD", "REQUEST_URI",  "SCRIPT_NAME",    "SCRIPT_FILENAME", "PATH_TRANSLATED", "PATH_INFO",
	        "REDIRECT_URL",   "QUERY_STRING", "CONTENT_LENGTH", "REMOTE_ADDR",     "REMOTE_PORT", "REMOTE_USER",
	};

	(void)state;
	for (int i = 0; i < META_COUNT; i++)
		add(names[i], i == META_CONTENT_LENGTH ? "17" : names[i]);
	add("SERVER_NAME", "x");
	add("QUERY_STRINGS", "x");
	add("QUERY_STRIN", "x");
	add("query_string", "x");
	assert_null(parse());
	for (int i = 0; i < META_COUNT; i++)
		assert_true(slice_is(meta.of[i], i == META_CONTENT_LENGTH ? "17" : names[i]));
	assert_int_equal(meta.content_length, 17);
}

static void test_nothing_is_there(void **state)
{
	(void)state;
	assert_null(parse());
	for (int i = 0; i < META_COUNT; i++)
		assert_null(meta.of[i].at);
	assert_int_equal(meta.content_length, -1);
	assert_false(slice_is(meta.of[META_REQUEST_METHOD], ""));
}

static void test_last_of_several_counts(void **state)
{
	(void)state;
	add("SCRIPT_FILENAME", "/a.php");
	add("CONTENT_LENGTH", "5");
	add("SCRIPT_FILENAME", "/b.php");
	add("CONTENT_LENGTH", "6");
	add("QUERY_STRING", "x");
	add("QUERY_STRING", "");
	assert_null(parse());
	assert_true(slice_is(meta.of[META_SCRIPT_FILENAME], "/b.php"));
	assert_int_equal(meta.content_length, 6);
	assert_non_null(meta.of[META_QUERY_STRING].at); /* empty is not absent */
	assert_true(slice_is(meta.of[META_QUERY_STRING], ""));
}

static void test_nul_is_refused(void **state)
{
	static const char evil[] = "/evil.jpg\0.php";

	(void)state;
	add_bytes("HTTP_X", "a\0b", 3); /* a script's own affair */
	assert_null(parse());
	add_bytes("SCRIPT_FILENAME", evil, sizeof(evil) - 1);
	add("SCRIPT_FILENAME", "/good.php"); /* repaired too late */
	assert_string_equal(parse(), "a parameter holds a NUL byte");
}

/* At every length but that of a pair's end the block is refused. */
static void test_cut_block(void **state)
{
	size_t first_len;

	(void)state;
	add("REQUEST_METHOD", "GET");
	first_len = buf_len(&block);
	add("REQUEST_URI", "/x");
	for (size_t len = 0; len <= buf_len(&block); len++) {
		uint8_t *copy = malloc(len ? len : 1);
		const char *wrong;

		assert_non_null(copy);
		memcpy(copy, buf_head(&block), len);
		wrong = meta_parse(&meta, copy, len);
		free(copy);
		if (len == 0 || len == first_len || len == buf_len(&block))
			assert_null(wrong);
		else
			assert_string_equal(wrong, "the parameters end inside a name-value pair");
	}
}

static const char *parse_length(const char *text)
{
	buf_reset(&block, 4096);
	add("CONTENT_LENGTH", text);
	return parse();
}

static void test_content_length(void **state)
{
	static const char *const garbage[] = {"-2",  "+1",  "-", "-1 ", "-01", " 1",  "1 ", "0x10",
	                                      "1e3", "1.0", "1,1", "x",  "9223372036854775807x"};

	(void)state;
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		assert_non_null(parse_length(garbage[i]));
		assert_int_equal(meta.content_length, -1);
	}
	assert_string_equal(parse_length("-2"), "CONTENT_LENGTH is not a number");
	assert_null(parse_length("-1"));
	assert_int_equal(meta.content_length, -1);
	assert_null(parse_length(""));
	assert_int_equal(meta.content_length, -1);
	assert_null(parse_length("0"));
	assert_int_equal(meta.content_length, 0);
	assert_null(parse_length("007"));
	assert_int_equal(meta.content_length, 7);
	assert_null(parse_length("999999999999999999"));
	assert_int_equal(meta.content_length, INT64_C(999999999999999999));
	assert_string_equal(parse_length("9223372036854775808"), "CONTENT_LENGTH is too long");
	assert_string_equal(parse_length("18446744073709551617"), "CONTENT_LENGTH is too long");
}

static bool reserved(const char *name)
{
	struct param p = {.name = (const uint8_t *)name, .name_len = strlen(name), .value = NULL};
	return meta_is_reserved(&p);
}

static void test_reserved_names(void **state)
{
	static const char *const kept[] = {
	        "HTTP_PROX",
	        "HTTP_PROXY_",
	        "http_proxy",
	        "HTTP_PROXY_CONNECTION",
	        "PHP_VALUES",
	        "PHP_SELF",
	        "PHP_VALU",
	        "PHP_ADMIN_VALU",
	        "PHP_ADMIN_VALUE_",
	        "H2FPM",
	        "HTTP_H2FPM_X",
	        "",
	        "H",
	        "P",
	        "SCRIPT_FILENAME",
	};

	(void)state;
	assert_true(reserved("HTTP_PROXY"));
	assert_true(reserved("PHP_VALUE"));
	assert_true(reserved("PHP_ADMIN_VALUE"));
	assert_true(reserved("H2FPM_"));
	assert_true(reserved("H2FPM_QUEUE_US"));
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		assert_false(reserved(kept[i]));
}

static void test_safe_methods(void **state)
{
	static const char *const unsafe[] = {"POST", "PUT",  "DELETE", "PATCH", "TRACE",
	                                     "get",  "GETS", "GE",     "",      "CONNECT"};
	static const char *const safe[] = {"GET", "HEAD", "OPTIONS"};

	(void)state;
	assert_null(parse());
	assert_false(meta_is_safe_method(&meta)); /* absent */
	for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++) {
		add("REQUEST_METHOD", unsafe[i]);
		assert_null(parse());
		assert_false(meta_is_safe_method(&meta));
	}
	for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++) {
		add("REQUEST_METHOD", safe[i]);
		assert_null(parse());
		assert_true(meta_is_safe_method(&meta));
	}
}

static const char *describe(void)
{
	static char out[640];

	assert_null(parse());
	return meta_describe(&meta, out, sizeof(out));
}

static void test_description(void **state)
{
	char every[255], small[8];

	(void)state;
	assert_string_equal(describe(), "- -");
	add("REQUEST_METHOD", "GET");
	add("SCRIPT_NAME", "/a.php");
	assert_string_equal(describe(), "GET /a.php");
	add("REQUEST_URI", "/a\r\n[x] ALERT: forged\x1b[2J\x7f\xff?b=c d");
	assert_string_equal(describe(), "GET /a\\x0d\\x0a[x] ALERT: forged\\x1b[2J\\x7f\\xff?b=c d");
	for (int i = 0; i < 255; i++)
		every[i] = (char)(i + 1);
	add_bytes("REQUEST_URI", every, sizeof(every));
	for (const char *c = describe(); *c; c++)
		assert_in_range((unsigned char)*c, 0x20, 0x7e);
	assert_string_equal(meta_describe(&meta, small, sizeof(small)), "GET \\x0");
}

static const char *script_of(const char *name)
{
	static char out[128];

	buf_fini(&block);
	buf_init(&block);
	add("SCRIPT_FILENAME", name);
	assert_null(parse());
	struct slice file = meta.of[META_SCRIPT_FILENAME];
	assert_in_range(file.len, 0, sizeof(out) - 1);
	memcpy(out, file.at, file.len);
	out[file.len] = '\0';
	return out;
}

static void check_apache(const char *name, const char *path)
{
	assert_string_equal(script_of(name), path);
	assert_true(meta.by_apache);
}

static void check_plain(const char *name, const char *path)
{
	assert_string_equal(script_of(name), path);
	assert_false(meta.by_apache);
}

/* What php-fpm 8.2 makes of each. */
static void test_proxy_url(void **state)
{
	(void)state;
	check_apache("proxy:fcgi://localhost/w/a.php", "/w/a.php");
	check_apache("proxy:fcgi://localhost:9000/w/a.php/info", "/w/a.php/info");
	check_apache("proxy:fcgi://localhost//w/a.php", "//w/a.php");
	check_apache("Proxy:FCGI://[::1]:9000/w/a.php?x=/y?z", "/w/a.php");
	check_apache("proxy:balancer://b/w/a.php?x", "/w/a.php");
	check_apache("proxy:fcgi:///w/a.php", "/w/a.php");
	check_apache("proxy:fcgi://h/", "/");
	check_apache("proxy:fcgi://h/%61.php", "/%61.php");
	check_apache("proxy:fcgi://h/proxy:fcgi://h/a.php", "/proxy:fcgi://h/a.php");
	check_plain("proxy:fcgi://localhost", "proxy:fcgi://localhost");
	check_plain("proxy:fcgi://localhost?x", "proxy:fcgi://localhost");
	check_plain("proxy:fcgi://", "proxy:fcgi://");
	check_plain("proxy:fcgi:/h/a.php", "proxy:fcgi:/h/a.php");
	check_plain("proxy:http://h/a.php", "proxy:http://h/a.php");
	check_plain("/w/proxy:fcgi://h/a.php?x", "/w/proxy:fcgi://h/a.php?x");
	check_plain("", "");
}

static void check_cut(const char *name, const char *info, const char *left)
{
	meta.of[META_SCRIPT_NAME] = (struct slice){name, strlen(name)};
	meta_cut_script_name(&meta, (struct slice){info, strlen(info)});
	assert_true(slice_is(meta.of[META_SCRIPT_NAME], left));
}

static void test_script_name_is_cut(void **state)
{
	(void)state;
	check_cut("/p/a.php/in/fo", "/in/fo", "/p/a.php");
	check_cut("/a.php/", "/", "/a.php");
	check_cut("/a.php/x y\xff", "/x%20y%fF", "/a.php");
	check_cut("/a.php/x%20y", "/x%20y", "/a.php");
	check_cut("/a.php/%", "/%25", "/a.php");
	check_cut("/a.php/%2", "/%2", "/a.php");
	check_cut("/a.php/x y", "/x%2y", "/a.php/x y");
	check_cut("/a.php/x", "/y", "/a.php/x");
	check_cut("/info", "/info", "/info");
	check_cut("/ ", "/%20", "/ ");
	check_cut("fo", "/info", "fo");
	check_cut("", "/info", "");
	check_cut("%20", "%20%20", "%20");
	meta.of[META_SCRIPT_NAME] = (struct slice){0};
	meta_cut_script_name(&meta, (struct slice){"/info", 5});
	assert_null(meta.of[META_SCRIPT_NAME].at);
}

static bool passed_on_as(const char *name, const char *value, const char *expected)
{
	struct param p = {(const uint8_t *)name, strlen(name), (const uint8_t *)value, strlen(value)};
	struct param v = meta_amended(&meta, &p);

	assert_int_equal(meta_is_script(&p), strcmp(name, "SCRIPT_FILENAME") == 0);
	assert_true(v.name == p.name && v.name_len == p.name_len);
	return v.value_len == strlen(expected) && memcmp(v.value, expected, v.value_len) == 0;
}

static void test_what_is_passed_on(void **state)
{
	(void)state;
	add("SCRIPT_NAME", "/a.php/info");
	add("SCRIPT_FILENAME", "proxy:fcgi://h/w/a.php/info?x");
	assert_null(parse());
	meta_cut_script_name(&meta, (struct slice){"/info", 5});
	assert_true(passed_on_as("SCRIPT_FILENAME", "proxy:fcgi://h/w/a.php/info?x", "/w/a.php/info"));
	assert_true(passed_on_as("SCRIPT_FILENAME", "/an/earlier/one", "/w/a.php/info"));
	assert_true(passed_on_as("SCRIPT_NAME", "/a.php/info", "/a.php"));
	assert_true(passed_on_as("PATH_INFO", "proxy:fcgi://h/x", "proxy:fcgi://h/x"));
	meta.by_apache = false;
	assert_true(passed_on_as("SCRIPT_FILENAME", "/w/b.php", "/w/b.php"));
	assert_true(passed_on_as("SCRIPT_NAME", "/b.php", "/b.php"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_every_name_is_found, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_nothing_is_there, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_last_of_several_counts, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_nul_is_refused, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_cut_block, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_content_length, setup, teardown),
	        cmocka_unit_test(test_reserved_names),
	        cmocka_unit_test_setup_teardown(test_safe_methods, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_description, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_proxy_url, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_script_name_is_cut, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_what_is_passed_on, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

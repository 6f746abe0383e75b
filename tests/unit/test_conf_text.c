/* Quotes, comments and variables of single values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fpm/conf_text.h"

static void check_value(const char *raw, const char *value)
{
	struct conf_text text;
	const char *problem = NULL;

	if (!conf_text_read(raw, "www", &text, &problem))
		fail_msg("%s: %s", raw, problem);
	if (strcmp(text.value, value) != 0)
		fail_msg("%s gave '%s' and not '%s'", raw, text.value, value);
	free(text.value);
}

static void check_problem(const char *raw, const char *part)
{
	struct conf_text text;
	const char *problem = NULL;

	assert_false(conf_text_read(raw, "www", &text, &problem));
	if (!strstr(problem, part))
		fail_msg("%s: '%s' does not say '%s'", raw, problem, part);
}

static void test_bare(void **state)
{
	(void)state;
	check_value("", "");
	check_value("  a b\t", "a b");
	check_value("a ; comment", "a");
	check_value("; comment", "");
	check_value("a;b", "a");
	check_value("it's", "it's");
	check_value("a=b", "a=b");
	check_value("back\\slash\\", "back\\slash\\");
	check_value("5\xc2\xb5s", "5\xc2\xb5s");
}

static void test_quotes(void **state)
{
	(void)state;
	check_value("\"a ; b\" ; c", "a ; b");
	check_value("\"  a \"", "  a ");
	check_value("\"a\\\"b\\\\c\\$pool\\n\"", "a\"b\\c$pool\\n");
	check_value("\"\\\\\"", "\\");
	check_value("'a\"b\\'", "a\"b\\");
	check_value("'$pool ${HOME} ; x'", "$pool ${HOME} ; x");
	check_value("\"a\"'b'\"c\"", "abc");
	check_value("'a' 'b'", "a b");
	check_value("''", "");
	check_value("\"\"", "");
	check_value("'  '  ", "  ");
}

static void test_variables(void **state)
{
	(void)state;
	setenv("CONF_TEST", "va;l'ue ", 1);
	setenv("CONF_EMPTY", "", 1);
	unsetenv("CONF_NONE");
	check_value("${CONF_TEST}", "va;l'ue ");
	check_value("\"<${CONF_TEST}>\"", "<va;l'ue >");
	check_value("<${CONF_NONE}>", "<>");
	check_value("${CONF_NONE:-a b}/c", "a b/c");
	check_value("${CONF_NONE:-}", "");
	check_value("${CONF_EMPTY:-x}", "");
	check_value("${CONF_TEST:-x}", "va;l'ue ");
	check_value("/run/$pool.sock", "/run/www.sock");
	check_value("$pools$pool", "wwwswww");
	check_value("$5 $", "$5 $");
}

static void test_problems(void **state)
{
	(void)state;
	setenv("CONF_CONTROL", "a\nb", 1);
	check_problem("\"a", "closing \"");
	check_problem("\"a\\\"", "closing \"");
	check_problem("'a", "closing '");
	check_problem("${A", "}");
	check_problem("${}", "${NAME}");
	check_problem("${A:b}", "${NAME:-default}");
	check_problem("a\001b", "control character");
	check_problem("${CONF_CONTROL}", "control character");
}

static void test_too_long(void **state)
{
	(void)state;
	char *raw = malloc(CONF_TEXT_MAX + 2);
	struct conf_text text;
	const char *problem = NULL;

	memset(raw, 'x', CONF_TEXT_MAX + 1);
	raw[CONF_TEXT_MAX] = '\0';
	assert_true(conf_text_read(raw, NULL, &text, &problem));
	assert_int_equal(strlen(text.value), CONF_TEXT_MAX);
	free(text.value);
	raw[CONF_TEXT_MAX] = 'x';
	raw[CONF_TEXT_MAX + 1] = '\0';
	assert_false(conf_text_read(raw, NULL, &text, &problem));
	assert_non_null(strstr(problem, "64 KiB"));
	free(raw);
}

/* Every string over an alphabet of the awkward characters. */
static void test_write_reads_back(void **state)
{
	(void)state;
	static const char awkward[] = "'\"\\;$ ={}#p";
	enum { LETTERS = sizeof(awkward) - 1, LENGTH = 4 };

	for (unsigned int n = 0; n < LETTERS * LETTERS * LETTERS * LETTERS; n++) {
		char value[LENGTH + 1] = "";
		unsigned int rest = n;
		for (size_t i = 0; i < LENGTH; i++, rest /= LETTERS)
			value[i] = awkward[rest % LETTERS];
		char *raw = NULL;
		size_t len = 0;
		FILE *out = open_memstream(&raw, &len);
		conf_text_write(value, out);
		fclose(out);
		check_value(raw, value);
		free(raw);
	}
	check_value("''", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bare),      cmocka_unit_test(test_quotes),
	        cmocka_unit_test(test_variables), cmocka_unit_test(test_problems),
	        cmocka_unit_test(test_too_long),  cmocka_unit_test(test_write_reads_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

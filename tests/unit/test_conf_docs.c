/* No directive is undocumented: each one of the table is in pool.ini and in
 * h2fpm.conf(5), with its default; and neither knows one that is not. Files
 * are read from H2FPM_TOP, or from where the test is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>

#include "conf_help.h"

static char *read_text(const char *name)
{
	const char *top = getenv("H2FPM_TOP");
	char path[4096];
	size_t cap = 1 << 20;
	char *text = calloc(1, cap);

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", name);
	FILE *in = fopen(path, "r");
	if (!in)
		fail_msg("%s: %s (set H2FPM_TOP)", path, strerror(errno));
	text[0] = '\n'; /* so that every line begins behind one */
	assert_true(fread(text + 1, 1, cap - 2, in) > 0);
	fclose(in);
	return text;
}

/* name without the table's brackets */
static int bare(const struct conf_description *d)
{
	return (int)strcspn(d->name, "[");
}

/* Where to look for it: some names are in both sections. */
static const char *section(const char *text, const struct conf_description *d, const char *global, const char *pool)
{
	const char *at = strstr(text, strcmp(d->section, "global") == 0 ? global : pool);

	assert_non_null(at);
	return at;
}

/* A line "name = …", "name[…", or the same behind the ; of a comment. */
static const char *find_in_ini(const char *text, const struct conf_description *d)
{
	static const char *const heads[] = {"\n", "\n;"};
	char line[128];

	text = section(text, d, "\n[global]\n", "\n[www]\n");

	for (size_t i = 0; i < 2; i++) {
		snprintf(line, sizeof(line), "%s%.*s%s", heads[i], bare(d), d->name, d->name[bare(d)] ? "[" : " = ");
		const char *found = strstr(text, line);
		if (found)
			return found + strlen(line);
	}
	return NULL;
}

static void test_ini_has_all(void **state)
{
	(void)state;
	char *text = read_text("pool.ini");
	const struct conf_description *d;

	for (size_t i = 0; (d = conf_describe(i)); i++)
		if (!find_in_ini(text, d))
			fail_msg("%s is not in pool.ini", d->name);
	free(text);
}

/* A commented line shows the default wherever there is one. */
static void test_ini_shows_defaults(void **state)
{
	(void)state;
	char *text = read_text("pool.ini");
	const struct conf_description *d;
	char line[256];

	for (size_t i = 0; (d = conf_describe(i)); i++) {
		snprintf(line, sizeof(line), "\n;%s = ", d->name);
		const char *at = strstr(section(text, d, "\n[global]\n", "\n[www]\n"), line);
		if (!at || !d->default_text)
			continue;
		snprintf(line, sizeof(line), "\n;%s = %s\n", d->name, d->default_text);
		if (strncmp(at, line, strlen(line)) != 0)
			fail_msg("pool.ini shows another default of %s than %s", d->name, d->default_text);
	}
	free(text);
}

static void test_man_has_all(void **state)
{
	(void)state;
	char *text = read_text("etc/man/h2fpm.conf.5");
	const struct conf_description *d;
	char line[256];
	size_t count = 0;
	size_t items = 0;

	for (size_t i = 0; (d = conf_describe(i)); i++, count++) {
		snprintf(line, sizeof(line), "\n.It Ic %s Pq %s", d->name, d->type);
		const char *at = strstr(
		        section(text, d, "\n.Sh GLOBAL DIRECTIVES\n", "\n.Sh POOL DIRECTIVES\n"), line);
		if (!at)
			fail_msg("h2fpm.conf(5) has no '%s'", line + 1);
		const char *end = strchr(at + 1, '\n');
		/* mdoc doubles quotes: the format is looked at by its start */
		int len = d->default_text ? (int)strcspn(d->default_text, "\"-") : 0;
		snprintf(line, sizeof(line), "%.*s", len, d->default_text ? d->default_text : "");
		const char *shown = strstr(at, line);
		if (!shown || shown > end)
			fail_msg("h2fpm.conf(5) does not show %s's default %s", d->name, d->default_text);
	}
	for (const char *at = text; (at = strstr(at, "\n.It Ic ")); at++)
		items++;
	assert_int_equal(items, count);
	free(text);
}

static void test_descriptions(void **state)
{
	(void)state;
	const struct conf_description *d;

	assert_non_null(conf_describe(0));
	for (size_t i = 0; (d = conf_describe(i)); i++) {
		size_t len = strlen(d->description);
		assert_true(len > 10 && d->description[len - 1] == '.');
		assert_true(isalpha((unsigned char)*d->name) && strlen(d->type) > 0);
		for (size_t j = 0; j < i; j++)
			if (strcmp(conf_describe(j)->name, d->name) == 0 &&
			    strcmp(conf_describe(j)->section, d->section) == 0)
				fail_msg("%s is in the table twice", d->name);
	}
}

/* pool.ini as it is, with a program that is everywhere. */
static void test_ini_is_good(void **state)
{
	(void)state;
	char *text = read_text("pool.ini");
	static struct told told;

	setenv("H2FPM_RUN", "/tmp/run", 1);
	setenv("H2FPM_ACCESS_LOG", "/tmp/access.log", 1);
	strcat(text, "\nworker.command = /bin/sh\n");
	struct conf *conf = conf_parse("pool.ini", text, strlen(text), told_add, &told);
	if (!conf)
		fail_msg("%s", told.text);
	assert_string_equal(conf->pools[0]->listen, "/tmp/run/www.sock");
	assert_string_equal(conf->pools[0]->access_log, "/tmp/access.log");
	assert_int_equal(conf->pools[0]->pm_max_children, 8);
	conf_free(conf);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ini_has_all), cmocka_unit_test(test_ini_shows_defaults),
	        cmocka_unit_test(test_man_has_all), cmocka_unit_test(test_descriptions),
	        cmocka_unit_test(test_ini_is_good),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

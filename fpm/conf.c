#include "fpm/conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fpm/conf_check.h"
#include "fpm/conf_cross.h"
#include "fpm/conf_ini.h"
#include "fpm/conf_isolate.h"
#include "fpm/conf_problem.h"
#include "fpm/conf_table.h"
#include "fpm/conf_text.h"
#include "fpm/conf_value.h"

enum {
	FILE_MAX_BYTES = 16 << 20,
	POOLS_MAX = 1000,
};

enum where { IN_NOTHING, IN_GLOBAL, IN_POOL, IN_EXCESS };

struct build {
	struct conf *conf;
	struct conf_problems problems;
	enum where where;
	struct conf_said *said;   /* one for each pool */
	struct conf_sections sections;
	int last_line;
};

static struct pool_settings *current_pool(struct build *b)
{
	return b->conf->pools[b->conf->pool_count - 1];
}

static void pool_free(struct pool_settings *pool)
{
	const struct conf_directive *d;

	for (size_t i = 0; (d = conf_table_get(i)); i++)
		if (!conf_table_is_global(d))
			conf_value_free(d, pool);
	free(pool->name);
	free(pool->conf_file);
	free(pool);
}

void conf_free(struct conf *conf)
{
	const struct conf_directive *d;

	if (!conf)
		return;
	for (size_t i = 0; (d = conf_table_get(i)); i++)
		if (conf_table_is_global(d))
			conf_value_free(d, &conf->global);
	for (size_t i = 0; i < conf->pool_count; i++)
		pool_free(conf->pools[i]);
	free(conf->pools);
	free(conf->file);
	free(conf);
}

void conf_leave_out(struct conf *conf, size_t i)
{
	pool_free(conf->pools[i]);
	conf->pool_count--;
	conf->broken_count++;
	memmove(&conf->pools[i], &conf->pools[i + 1], (conf->pool_count - i) * sizeof(struct pool_settings *));
}

/* Everything is in place before the pool is counted. */
static bool add_pool(struct build *b, int line, const char *name)
{
	struct conf *conf = b->conf;
	struct pool_settings **pools = realloc(conf->pools, (conf->pool_count + 1) * sizeof(struct pool_settings *));
	if (!pools)
		return false;
	conf->pools = pools;
	struct conf_said *said = realloc(b->said, (conf->pool_count + 1) * sizeof(*said));
	if (!said)
		return false;
	b->said = said;
	memset(&said[conf->pool_count], 0, sizeof(*said));
	struct pool_settings *pool = calloc(1, sizeof(*pool));
	if (!pool)
		return false;
	pool->name = strdup(name);
	pool->conf_file = strdup(conf->file);
	pool->conf_line = line;
	pools[conf->pool_count++] = pool;
	return pool->name && pool->conf_file;
}

static const char *pool_name_wrong(const char *name)
{
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("-_.@+", *c))
			return "a pool's name has letters, digits and - _ . @ + only";
	return *name == '.' || *name == '-' ? "a pool's name does not start with . or -" : NULL;
}

static void begin_pool(struct build *b, int line, const char *name)
{
	const char *wrong = pool_name_wrong(name);

	if (b->conf->pool_count == POOLS_MAX) {
		if (b->where != IN_EXCESS)
			conf_problems_add(&b->problems, line, "[%s]: there are more than %d pools", name, POOLS_MAX);
		b->where = IN_EXCESS;
		return;
	}
	if (wrong)
		conf_problems_add(&b->problems, line, "[%s]: %s", name, wrong);
	for (size_t i = 0; i < b->conf->pool_count; i++)
		if (strcmp(b->conf->pools[i]->name, name) == 0) {
			conf_problems_add(&b->problems, line, "[%s]: there is a pool of this name already, on line %d",
			                  name, b->conf->pools[i]->conf_line);
			break;
		}
	b->where = IN_POOL;
	if (!add_pool(b, line, name)) {
		b->problems.out_of_memory = true;
		b->where = IN_EXCESS;
	}
}

static void on_section(void *context, int line, const char *name)
{
	struct build *b = context;

	if (strcasecmp(name, "global") == 0)
		b->where = IN_GLOBAL;
	else
		begin_pool(b, line, name);
	if (!conf_sections_add(&b->sections, line, b->where == IN_POOL ? b->conf->pool_count - 1 : CONF_NO_POOL))
		b->problems.out_of_memory = true;
}

/* Cuts "env[ NAME ]" into name and key; key is NULL without brackets. False:
 * something is wrong with the brackets. */
static bool split_key(char *name, char **key)
{
	char *open = strchr(name, '[');
	char *end = name + strlen(name);

	*key = NULL;
	if (!open)
		return true;
	if (end[-1] != ']')
		return false;
	end[-1] = '\0';
	for (end--; end > open + 1 && isspace((unsigned char)end[-1]);)
		*--end = '\0';
	*open++ = '\0';
	*key = open + strspn(open, " \t");
	return true;
}

/* A master without its settings is worse than none: what a mistyped [global]
 * holds is no pool's problem. */
static void blame_mistyped_global(struct build *b)
{
	if (b->where == IN_POOL && b->sections.count > 0 && conf_table_is_near_global(current_pool(b)->name))
		b->sections.items[b->sections.count - 1].pool = CONF_NO_POOL;
}

static void report_unknown(struct build *b, int line, const char *name)
{
	bool global = b->where == IN_GLOBAL;
	const char *near = conf_table_suggest(global, name);

	if (conf_table_is_later(name)) {
		conf_problems_add(&b->problems, line, "php-fpm's %s is not supported by this version", name);
	} else if (conf_table_find(!global, name)) {
		conf_problems_add(&b->problems, line, "%s belongs in %s", name,
		                  global ? "a pool's section" : "the [global] section");
		blame_mistyped_global(b);
	} else if (near) {
		conf_problems_add(&b->problems, line, "unknown directive %s (did you mean %s?)", name, near);
	} else {
		conf_problems_add(&b->problems, line, "unknown directive %s", name);
	}
}

/* What php-fpm's INI reader makes of bare words and of env[X] = $NAME. */
static const char *php_reading(const struct conf_directive *d, const struct conf_text *text)
{
	const char *value = text->value;
	bool on;

	if (!text->verbatim && !(d->flags & CONF_PHP) && value[0] == '$' && !conf_check_env_name(value + 1)) {
		value = getenv(value + 1);
		return value ? value : "";
	}
	if (!text->quoted && isalpha((unsigned char)*value) && conf_value_bool(value, &on))
		return on ? "1" : "";
	return value;
}

/* False: a problem has been told. */
static bool set_directive(struct build *b, int line, const struct conf_directive *d, const char *key, const char *raw)
{
	bool global = b->where == IN_GLOBAL;
	void *base = global ? (void *)&b->conf->global : (void *)current_pool(b);
	const char *problem;
	struct conf_text text;
	char why[CONF_WHY_MAX];
	bool ok;

	if (!conf_text_read(raw, global ? NULL : current_pool(b)->name, &text, &problem)) {
		conf_problems_add(&b->problems, line, "%s: %s", d->text.name, problem);
		return false;
	}
	if (d->type == CONF_PAIRS)
		ok = conf_value_set_pair(d, base, key, php_reading(d, &text), why);
	else if (d->type == CONF_FLAGS)
		ok = conf_value_set_pair(d, base, key, text.value, why);
	else
		ok = conf_value_set(d, base, text.value, why);
	if (!ok && key)
		conf_problems_add(&b->problems, line, "%.*s[%.64s] = %.128s: %s", (int)strcspn(d->text.name, "["),
		                  d->text.name, key, text.value, why);
	else if (!ok)
		conf_problems_add(&b->problems, line, "%s = %.128s: %s", d->text.name, text.value, why);
	free(text.value);
	return ok;
}

static size_t table_index(const struct conf_directive *d)
{
	return (size_t)(d - conf_table_get(0));
}

static void on_entry(void *context, int line, const char *full_name, const char *raw)
{
	struct build *b = context;
	char name[CONF_INI_NAME_MAX + 1];
	char *key;

	if (b->where == IN_EXCESS)
		return;
	snprintf(name, sizeof(name), "%s", full_name);
	if (!split_key(name, &key)) {
		conf_problems_add(&b->problems, line, "%s: the closing ] is missing", full_name);
		return;
	}
	if (b->where == IN_NOTHING) {
		if (conf_table_is_later(name))
			conf_problems_add(&b->problems, line, "php-fpm's %s is not supported by this version", name);
		else
			conf_problems_add(&b->problems, line, "%s stands outside a section", full_name);
		return;
	}
	const struct conf_directive *d = conf_table_find(b->where == IN_GLOBAL, name);
	if (!d) {
		report_unknown(b, line, name);
		return;
	}
	bool takes_key = d->type == CONF_PAIRS || d->type == CONF_FLAGS;
	bool ok = false;
	if (takes_key && !key)
		conf_problems_add(&b->problems, line, "%s: write %s[NAME] = value", name, name);
	else if (!takes_key && key)
		conf_problems_add(&b->problems, line, "%s takes no name in brackets", name);
	else
		ok = set_directive(b, line, d, key, raw);
	if (b->where == IN_POOL) {
		struct conf_said *said = &b->said[b->conf->pool_count - 1];
		said->line[table_index(d)] = line;
		said->wrong[table_index(d)] |= !ok;
	}
}

static void on_problem(void *context, int line, const char *what)
{
	struct build *b = context;

	conf_problems_add(&b->problems, line, "%s", what);
}

static void apply_default(struct build *b, const struct conf_directive *d, void *base, int line)
{
	char why[CONF_WHY_MAX];

	if (!conf_value_set_default(d, base, why))
		conf_problems_add(&b->problems, line, "%s = %s (the default): %s", d->text.name, d->text.default_text,
		                  why);
}

/* Defaults go in before the file is read; a pool's, which may fail on the
 * machine at hand (no php-cgi), only where the file said nothing. */
static void apply_global_defaults(struct build *b)
{
	const struct conf_directive *d;

	for (size_t i = 0; (d = conf_table_get(i)); i++)
		if (conf_table_is_global(d))
			apply_default(b, d, &b->conf->global, 0);
}

static void complete_pool(struct build *b, size_t n)
{
	struct pool_settings *pool = b->conf->pools[n];
	const struct conf_directive *d;

	for (size_t i = 0; (d = conf_table_get(i)); i++) {
		if (conf_table_is_global(d) || b->said[n].line[i])
			continue;
		if (d->flags & CONF_MANDATORY)
			conf_problems_add(&b->problems, pool->conf_line, "[%s]: %s is not set and has no default",
			                  pool->name, d->text.name);
		else
			apply_default(b, d, pool, pool->conf_line);
	}
	conf_cross_pool(pool, &b->said[n], &b->problems);
}

static void read_all(struct build *b, const char *text, size_t len)
{
	const struct conf_ini_visitor visitor = {
	        .context = b, .section = on_section, .entry = on_entry, .problem = on_problem};

	apply_global_defaults(b);
	b->last_line = conf_ini_read(text, len, &visitor);
	if (b->last_line < 0) {
		b->problems.out_of_memory = true;
		return;
	}
	for (size_t i = 0; i < b->conf->pool_count; i++)
		complete_pool(b, i);
	conf_cross_addresses(b->conf, b->said, &b->problems);
	if (!b->conf->pool_count)
		conf_problems_add(&b->problems, b->last_line ? b->last_line : 1,
		                  "no pool is defined: at least one section such as [www] must be");
}

static struct conf *parse(const char *name, const char *text, size_t len, bool strict, conf_error_fn *error,
                          void *context)
{
	struct build b = {.where = IN_NOTHING};

	conf_problems_init(&b.problems);
	b.conf = calloc(1, sizeof(*b.conf));
	if (b.conf)
		b.conf->file = strdup(name);
	if (b.conf && b.conf->file)
		read_all(&b, text, len);
	else
		b.problems.out_of_memory = true;
	bool bad = conf_problems_any(&b.problems) && (strict || !conf_isolate(b.conf, &b.sections, &b.problems, b.last_line));
	conf_problems_tell(&b.problems, name, error, context);
	conf_problems_fini(&b.problems);
	free(b.said);
	conf_sections_fini(&b.sections);
	if (bad) {
		conf_free(b.conf);
		return NULL;
	}
	return b.conf;
}

struct conf *conf_parse(const char *name, const char *text, size_t len, conf_error_fn *error, void *context)
{
	return parse(name, text, len, true, error, context);
}

struct conf *conf_parse_lenient(const char *name, const char *text, size_t len, conf_error_fn *error, void *context)
{
	return parse(name, text, len, false, error, context);
}

/* All of the file; NULL with errno otherwise. */
static char *read_file(const char *file, size_t *len)
{
	FILE *in = fopen(file, "re");
	size_t cap = 0;
	char *text = NULL;

	*len = 0;
	while (in && !feof(in) && !ferror(in) && *len < FILE_MAX_BYTES) {
		if (*len == cap) {
			char *more = realloc(text, cap = cap ? 2 * cap : 8192);
			if (!more)
				break;
			text = more;
		}
		*len += fread(text + *len, 1, cap - *len, in);
	}
	if (in && feof(in) && !ferror(in)) {
		fclose(in);
		return text;
	}
	int saved = in && *len >= FILE_MAX_BYTES ? EFBIG : errno;
	if (in)
		fclose(in);
	free(text);
	errno = saved;
	return NULL;
}

struct conf *conf_load(const char *file, bool strict, conf_error_fn *error, void *context)
{
	size_t len;
	char *text = read_file(file, &len);

	if (!text) {
		char line[512];
		snprintf(line, sizeof(line), "%.300s: cannot be read: %s", file, strerror(errno));
		error(context, line);
		return NULL;
	}
	struct conf *conf = parse(file, text, len, strict, error, context);
	free(text);
	return conf;
}

static void dump_section(const char *name, bool global, const void *base, FILE *out)
{
	const struct conf_directive *d;

	fprintf(out, "[%s]\n", name);
	for (size_t i = 0; (d = conf_table_get(i)); i++)
		if (conf_table_is_global(d) == global)
			conf_value_write(d, base, out);
}

bool conf_dump(const struct conf *conf, const struct pool_settings *pool, FILE *out)
{
	dump_section("global", true, &conf->global, out);
	for (size_t i = 0; i < conf->pool_count; i++)
		if (!pool || pool == conf->pools[i]) {
			fputc('\n', out);
			dump_section(conf->pools[i]->name, false, conf->pools[i], out);
		}
	return fflush(out) == 0 && !ferror(out);
}

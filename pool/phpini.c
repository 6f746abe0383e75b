#include "pool/phpini.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel takes no argument over 128 KiB. */
enum { SECTIONS_MAX_BYTES = 100 * 1024 };

/* ---- one setting ---- */

static char *quote(const char *value)
{
	char *quoted = malloc(2 * strlen(value) + 3), *out = quoted;

	if (!quoted)
		return NULL;
	if (!strchr(value, '\'')) {
		sprintf(quoted, "'%s'", value);
		return quoted;
	}
	*out++ = '"';
	for (const char *p = value; *p; p++) {
		if (*p == '"' || *p == '\\' || *p == '$')
			*out++ = '\\';
		*out++ = *p;
	}
	strcpy(out, "\"");
	return quoted;
}

/* -d takes a line of php.ini: quoted so that the value arrives as it is. */
static char *define(const struct setting_pair *pair)
{
	char *quoted = quote(pair->value);
	char *line = NULL;

	if (quoted && asprintf(&line, "%s=%s", pair->name, quoted) < 0)
		line = NULL;
	free(quoted);
	return line;
}

/* Nothing in it that php.ini's grammar could take for more than a name. */
static bool is_plain(const char *name)
{
	for (const char *p = name; *p; p++) {
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", *p))
			return false;
	}
	return name[0] != '\0' && name[0] != '.';
}

/* Found by trying them all: what PHP complains about where it is set for each
 * request (opcache.enable and the encodings), would load a second time (the
 * extensions) or read anew for each request (browscap). */
static bool is_for_start_only(const char *name)
{
	static const char *const names[] = {
		"browscap",
		"extension",
		"iconv.input_encoding",
		"iconv.internal_encoding",
		"iconv.output_encoding",
		"mbstring.http_input",
		"mbstring.http_output",
		"mbstring.internal_encoding",
		"opcache.enable",
		"zend_extension",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

static bool is_protected(const struct setting_pair *pair)
{
	return pair->admin && is_plain(pair->name) && !is_for_start_only(pair->name);
}

/* ---- the root directory ---- */

/* Followed where it is a link: the way that a worker sees it. */
static bool is_directory(int root, const char *name)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	long fd = syscall(SYS_openat2, root, name, &how, sizeof how);

	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

static bool add_root(struct phpini *ini, const char *name)
{
	char **grown = realloc(ini->roots, (ini->root_count + 1) * sizeof *grown);

	if (!grown)
		return false;
	ini->roots = grown;
	if (asprintf(&grown[ini->root_count], "/%s", name) < 0)
		return false;
	ini->root_count++;
	return true;
}

static int compare_roots(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A directory that cannot be read has none: every name gets its prefix. */
static bool read_roots(struct phpini *ini, const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool added = true;

	while (dir && added && (entry = readdir(dir)) != NULL) {
		if (is_plain(entry->d_name) && is_directory(dirfd(dir), entry->d_name))
			added = add_root(ini, entry->d_name);
	}
	if (dir)
		closedir(dir);
	if (ini->root_count > 0)
		qsort(ini->roots, ini->root_count, sizeof *ini->roots, compare_roots);
	return added;
}

static void forget_roots(struct phpini *ini)
{
	while (ini->root_count > 0)
		free(ini->roots[--ini->root_count]);
}

/* ---- the sections ---- */

static bool write_lines(FILE *out, const struct pool_settings *settings)
{
	for (size_t i = 0; i < settings->php_values.count; i++) {
		const struct setting_pair *pair = &settings->php_values.items[i];
		char *line = is_protected(pair) ? define(pair) : NULL;
		if (is_protected(pair) && !line)
			return false;
		if (line)
			fprintf(out, "%s\n", line);
		free(line);
	}
	return true;
}

/* The lines that each section holds; the first of them begins with a name and
 * a quote, which makes php-cgi take the text of its -d as it is. */
static char *protected_lines(const struct pool_settings *settings)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	bool written = out && write_lines(out, settings);

	if (out && fclose(out) == 0 && written)
		return text;
	free(text);
	return NULL;
}

static char *sections(const struct phpini *ini, const char *lines)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fprintf(out, "%s[PATH=.]\n%s[PATH=/.]\n%s", lines, lines, lines);
	for (size_t i = 0; i < ini->root_count; i++)
		fprintf(out, "[PATH=%s]\n%s", ini->roots[i], lines);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static char *sections_that_fit(struct phpini *ini, const char *lines)
{
	char *text = sections(ini, lines);

	if (!text || strlen(text) <= SECTIONS_MAX_BYTES)
		return text;
	free(text);
	forget_roots(ini);
	return sections(ini, lines);
}

/* ---- the whole ---- */

/* Takes the string over; false where there is none. */
static bool add_define(struct phpini *ini, size_t *count, char *text)
{
	char *option = text ? strdup("-d") : NULL;

	if (!option) {
		free(text);
		return false;
	}
	ini->args[(*count)++] = option;
	ini->args[(*count)++] = text;
	return true;
}

static bool add_sections(struct phpini *ini, size_t *count, const struct pool_settings *settings)
{
	char *lines = protected_lines(settings);
	bool added = false;

	if (lines && *lines == '\0') {
		free(lines);
		return true;
	}
	ini->roots = calloc(1, sizeof *ini->roots);
	if (lines && ini->roots && read_roots(ini, settings->chroot ? settings->chroot : "/"))
		added = add_define(ini, count, sections_that_fit(ini, lines));
	free(lines);
	return added;
}

bool phpini_init(struct phpini *ini, const struct pool_settings *settings)
{
	const struct setting_pairs *values = &settings->php_values;
	size_t count = 0;

	memset(ini, 0, sizeof *ini);
	ini->args = calloc(2 * values->count + 3, sizeof *ini->args);
	if (!ini->args)
		return false;
	for (size_t i = 0; i < values->count; i++) {
		if (!add_define(ini, &count, define(&values->items[i])))
			return false;
	}
	return add_sections(ini, &count, settings);
}

void phpini_fini(struct phpini *ini)
{
	for (size_t i = 0; ini->args && ini->args[i]; i++)
		free(ini->args[i]);
	free(ini->args);
	forget_roots(ini);
	free(ini->roots);
	memset(ini, 0, sizeof *ini);
}

/* ---- a script's name ---- */

static bool is_root(const struct phpini *ini, const char *name, size_t len)
{
	size_t low = 0, high = ini->root_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		size_t root_len = strlen(ini->roots[mid]);
		int order = memcmp(ini->roots[mid], name, root_len < len ? root_len : len);
		if (order == 0 && root_len == len)
			return true;
		if (order < 0 || (order == 0 && root_len < len))
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

/* PHP looks a section up for each part of the name that ends before a slash,
 * the first byte's aside; the first one decides here. Without any slash it is
 * "." that PHP looks up. */
const char *phpini_prefix(const struct phpini *ini, const char *path, size_t len)
{
	const char *slash = len > 1 ? memchr(path + 1, '/', len - 1) : NULL;
	size_t first = slash ? (size_t)(slash - path) : 0;

	if (!ini->roots || len == 0)
		return NULL;
	if (path[0] != '/')
		return !slash || (first == 1 && path[0] == '.') ? NULL : "./";
	if (slash && ((first == 2 && path[1] == '.') || is_root(ini, path, first)))
		return NULL;
	return "/.";
}

static bool is_named(const struct param *p, const char *name)
{
	return p->name_len == strlen(name) && memcmp(p->name, name, p->name_len) == 0;
}

/* PHP looks for .user.ini from the document root on only where the script's
 * name begins with it. */
static const char *document_root_prefix(const struct phpini *ini, struct slice script, const struct param *p)
{
	bool is_above = p->value_len > 1 && script.len > p->value_len && memcmp(script.at, p->value, p->value_len) == 0;
	return is_above ? phpini_prefix(ini, script.at, script.len) : NULL;
}

const char *phpini_param_prefix(const struct phpini *ini, const struct meta *meta, const struct param *p)
{
	if (!ini->roots)
		return NULL;
	if (is_named(p, "SCRIPT_FILENAME") || is_named(p, "PATH_TRANSLATED"))
		return phpini_prefix(ini, (const char *)p->value, p->value_len);
	if (is_named(p, "DOCUMENT_ROOT"))
		return document_root_prefix(ini, meta->of[META_SCRIPT_FILENAME], p);
	return NULL;
}

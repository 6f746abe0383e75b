/* What was meant by a mistyped name. */
#include "fpm/conf_table.h"

#include <ctype.h>
#include <string.h>

enum { SUGGEST_MAX_LEN = 48 };

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t least = a < b ? a : b;
	return least < c ? least : c;
}

/* Characters to add, drop or change (either case counts the same). */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t row[SUGGEST_MAX_LEN + 1];

	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t above = row[j];
			bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1));
			diagonal = above;
		}
	}
	return row[b_len];
}

const char *conf_table_suggest(bool global, const char *name)
{
	size_t len = strlen(name);
	size_t best = len / 3 < 3 ? len / 3 + 1 : 4; /* must be nearer than this */
	const char *found = NULL;

	if (len > SUGGEST_MAX_LEN)
		return NULL;
	const struct conf_directive *d;
	for (size_t i = 0; (d = conf_table_get(i)); i++) {
		size_t d_len = strcspn(d->text.name, "[");
		if (conf_table_is_global(d) != global || d_len > SUGGEST_MAX_LEN)
			continue;
		size_t away = distance(name, len, d->text.name, d_len);
		if (away < best) {
			best = away;
			found = d->text.name;
		}
	}
	return found;
}

bool conf_table_is_near_global(const char *section)
{
	static const char global[] = "global";
	size_t len = strlen(section);

	return len <= SUGGEST_MAX_LEN && distance(section, len, global, sizeof(global) - 1) <= 2;
}

#include "fpm/conf_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fpm/conf_check.h"
#include "fpm/conf_text.h"

struct unit {
	const char *suffix;
	int64_t factor;
};

static const struct unit size_units[] = {
        {"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0},
};

static const struct unit time_units[] = {
        {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};

static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static void *place(const struct conf_directive *d, void *base)
{
	return (char *)base + d->offset;
}

static const void *place_const(const struct conf_directive *d, const void *base)
{
	return (const char *)base + d->offset;
}

bool conf_value_bool(const char *text, bool *out)
{
	static const char *const words[][2] = {{"no", "yes"}, {"off", "on"}, {"false", "true"}, {"0", "1"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		for (int b = 0; b < 2; b++)
			if (strcasecmp(text, words[i][b]) == 0) {
				*out = b;
				return true;
			}
	return false;
}

/* Digits and a unit. False: not a number, no such unit, or beyond 64 bits. */
static bool read_number(const char *text, const struct unit *units, bool any_case, int64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)text[*text == '-']))
		return false;
	errno = 0;
	long long number = strtoll(text, &end, 10);
	if (errno)
		return false;
	for (; units->suffix; units++)
		if ((any_case ? strcasecmp(end, units->suffix) : strcmp(end, units->suffix)) == 0)
			return !__builtin_mul_overflow(number, units->factor, out);
	return false;
}

/* A limit in the largest unit that divides it. */
static const char *show(char *out, size_t size, int64_t number, const struct unit *units)
{
	const struct unit *best = &units[0];

	if (units == time_units)
		best = &units[1];
	for (const struct unit *u = units; u->suffix; u++)
		if (number && *u->suffix && number % u->factor == 0 && u->factor >= best->factor)
			best = u;
	if (number == 0)
		best = &no_units[0];
	snprintf(out, size, "%" PRId64 "%s", number / best->factor, best->suffix);
	return out;
}

/* The field takes the word's value. */
static bool find_word(const struct conf_directive *d, void *base, const char *text)
{
	for (const struct conf_word *w = d->words; w && w->word; w++)
		if (strcasecmp(text, w->word) == 0) {
			int64_t value = w->value;
			memcpy(place(d, base), &value, sizeof(value));
			return true;
		}
	return false;
}

/* Those that are words: a number's other spellings need no mention. */
static void list_words(const struct conf_word *words, const char *between, char *out, size_t size)
{
	size_t used = 0;

	*out = '\0';
	for (; words && words->word; words++)
		if (isalpha((unsigned char)*words->word) && used < size)
			used += (size_t)snprintf(out + used, size - used, "%s%s", used ? between : "", words->word);
}

static bool set_number(const struct conf_directive *d, void *base, const char *text, char *why)
{
	const struct unit *units = no_units;
	const char *kind = "a whole number";
	char min[32];
	char max[32];
	char words[64];
	int64_t number;

	if (find_word(d, base, text))
		return true;

	if (d->type == CONF_SIZE) {
		units = size_units;
		kind = "a size in bytes, or with K, M or G behind it,";
	} else if (d->type == CONF_TIME) {
		units = time_units;
		kind = "a time in seconds, or with ms, s, m, h or d behind it,";
	}
	if (read_number(text, units, d->type == CONF_SIZE, &number) && number >= d->min && number <= d->max) {
		memcpy(place(d, base), &number, sizeof(number));
		return true;
	}
	list_words(d->words, " or ", words, sizeof(words));
	snprintf(why, CONF_WHY_MAX, "give %s from %s to %s%s%s", kind, show(min, sizeof(min), d->min, units),
	         show(max, sizeof(max), d->max, units), *words ? ", or " : "", words);
	return false;
}

static bool set_mode(const struct conf_directive *d, void *base, const char *text, char *why)
{
	size_t len = strspn(text, "01234567");
	int64_t mode = len && len <= 6 && !text[len] ? strtol(text, NULL, 8) : -1;

	if (mode < d->min || mode > d->max) {
		snprintf(why, CONF_WHY_MAX, "give permissions in octal, such as 0660");
		return false;
	}
	memcpy(place(d, base), &mode, sizeof(mode));
	return true;
}

static bool set_word(const struct conf_directive *d, void *base, const char *text, char *why)
{
	char list[128];

	if (find_word(d, base, text))
		return true;
	list_words(d->words, ", ", list, sizeof(list));
	snprintf(why, CONF_WHY_MAX, "give one of: %s", list);
	return false;
}

static bool set_string(const struct conf_directive *d, void *base, const char *text, char *why)
{
	char **at = place(d, base);
	const char *wrong = NULL;

	if (!*text && !(d->flags & CONF_EMPTY_COUNTS))
		text = d->text.default_text;
	if (!text && (d->flags & CONF_MANDATORY))
		wrong = "it must not be empty";
	else if (text && d->check)
		wrong = d->check(text);
	if (wrong) {
		snprintf(why, CONF_WHY_MAX, "%s", wrong);
		return false;
	}
	char *copy = text ? strdup(text) : NULL;
	if (text && !copy) {
		snprintf(why, CONF_WHY_MAX, "out of memory");
		return false;
	}
	free(*at);
	*at = copy;
	return true;
}

static bool set_bool(const struct conf_directive *d, void *base, const char *text, char *why)
{
	if (conf_value_bool(text, place(d, base)))
		return true;
	snprintf(why, CONF_WHY_MAX, "give yes or no");
	return false;
}

bool conf_value_set(const struct conf_directive *d, void *base, const char *text, char why[CONF_WHY_MAX])
{
	switch (d->type) {
	case CONF_STRING:
		return set_string(d, base, text, why);
	case CONF_BOOL:
		return set_bool(d, base, text, why);
	case CONF_MODE:
		return set_mode(d, base, text, why);
	case CONF_WORD:
		return set_word(d, base, text, why);
	case CONF_INT:
	case CONF_SIZE:
	case CONF_TIME:
		return set_number(d, base, text, why);
	case CONF_PAIRS:
	case CONF_FLAGS:
		break;
	}
	snprintf(why, CONF_WHY_MAX, "it needs a name in brackets");
	return false;
}

static bool is_admin(const struct conf_directive *d)
{
	return (d->flags & CONF_ADMIN) != 0;
}

bool conf_value_set_default(const struct conf_directive *d, void *base, char why[CONF_WHY_MAX])
{
	if (d->text.default_text)
		return conf_value_set(d, base, d->text.default_text, why);
	if (d->flags & CONF_CAN_BE_UNSET)
		memcpy(place(d, base), &d->unset, sizeof(d->unset));
	return true;
}

static struct setting_pair *find_pair(struct setting_pairs *pairs, const char *key, bool admin)
{
	for (size_t i = 0; i < pairs->count; i++)
		if (pairs->items[i].admin == admin && strcmp(pairs->items[i].name, key) == 0)
			return &pairs->items[i];
	return NULL;
}

/* php-fpm applies php_admin_* after the others, so they stand behind them. */
static bool add_pair(struct setting_pairs *pairs, const char *key, char *value, bool admin)
{
	struct setting_pair *items = realloc(pairs->items, (pairs->count + 1) * sizeof(*items));
	if (!items)
		return false;
	pairs->items = items;
	char *name = strdup(key);
	if (!name)
		return false;
	size_t at = pairs->count;
	while (!admin && at > 0 && items[at - 1].admin)
		at--;
	memmove(&items[at + 1], &items[at], (pairs->count - at) * sizeof(*items));
	items[at] = (struct setting_pair){.name = name, .value = value, .admin = admin};
	pairs->count++;
	return true;
}

static bool store_pair(const struct conf_directive *d, void *base, const char *key, const char *text)
{
	struct setting_pairs *pairs = place(d, base);
	struct setting_pair *old = find_pair(pairs, key, is_admin(d));
	char *value = strdup(text);

	if (!value)
		return false;
	if (old) {
		free(old->value);
		old->value = value;
		return true;
	}
	if (add_pair(pairs, key, value, is_admin(d)))
		return true;
	free(value);
	return false;
}

bool conf_value_set_pair(const struct conf_directive *d, void *base, const char *key, const char *text,
                         char why[CONF_WHY_MAX])
{
	const char *wrong = d->flags & CONF_PHP ? conf_check_php_name(key) : conf_check_env_name(key);
	bool on;

	if (!wrong && d->type == CONF_FLAGS) {
		if (conf_value_bool(text, &on))
			text = on ? "1" : "0";
		else
			wrong = "give yes or no";
	}
	if (!wrong && !store_pair(d, base, key, text))
		wrong = "out of memory";
	if (!wrong)
		return true;
	snprintf(why, CONF_WHY_MAX, "%s", wrong);
	return false;
}

static void free_pairs(struct setting_pairs *pairs)
{
	for (size_t i = 0; i < pairs->count; i++) {
		free(pairs->items[i].name);
		free(pairs->items[i].value);
	}
	free(pairs->items);
	*pairs = (struct setting_pairs){NULL, 0};
}

/* Harmless when done twice: php_value[] and its kin share one list. */
void conf_value_free(const struct conf_directive *d, void *base)
{
	if (d->type == CONF_STRING) {
		char **at = place(d, base);
		free(*at);
		*at = NULL;
	} else if (d->type == CONF_PAIRS || d->type == CONF_FLAGS) {
		free_pairs(place(d, base));
	}
}

/* Flags are 1 or 0 by now and are written as values, by the value's kind. */
static void write_pairs(const struct conf_directive *d, const void *base, FILE *out)
{
	const struct setting_pairs *pairs = place_const(d, base);
	int bare_len = (int)strcspn(d->text.name, "[");

	for (size_t i = 0; d->type == CONF_PAIRS && i < pairs->count; i++) {
		const struct setting_pair *pair = &pairs->items[i];
		if (pair->admin != is_admin(d))
			continue;
		fprintf(out, "%.*s[%s] = ", bare_len, d->text.name, pair->name);
		conf_text_write(pair->value, out);
		fputc('\n', out);
	}
}

static void write_string(const struct conf_directive *d, const void *base, FILE *out)
{
	char *const *at = place_const(d, base);

	if (!*at)
		return;
	fprintf(out, "%s = ", d->text.name);
	conf_text_write(*at, out);
	fputc('\n', out);
}

static void write_number(const struct conf_directive *d, const void *base, FILE *out)
{
	const struct conf_word *word = d->words;
	int64_t number;

	memcpy(&number, place_const(d, base), sizeof(number));
	if ((d->flags & CONF_CAN_BE_UNSET) && number == d->unset)
		return;
	while (word && word->word && (word->value != number || isdigit((unsigned char)*word->word)))
		word++;
	if (word && word->word)
		fprintf(out, "%s = %s\n", d->text.name, word->word);
	else if (d->type == CONF_MODE)
		fprintf(out, "%s = %04" PRIo64 "\n", d->text.name, (uint64_t)number);
	else
		fprintf(out, "%s = %" PRId64 "%s\n", d->text.name, number, d->type == CONF_TIME ? "ms" : "");
}

void conf_value_write(const struct conf_directive *d, const void *base, FILE *out)
{
	if (d->type == CONF_STRING)
		write_string(d, base, out);
	else if (d->type == CONF_PAIRS || d->type == CONF_FLAGS)
		write_pairs(d, base, out);
	else if (d->type == CONF_BOOL)
		fprintf(out, "%s = %s\n", d->text.name, *(const bool *)place_const(d, base) ? "yes" : "no");
	else
		write_number(d, base, out);
}

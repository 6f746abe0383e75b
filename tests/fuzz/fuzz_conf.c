/* The configuration: what is refused is told, one clean line each, in the
 * order of lines; what is accepted, or left where one pool's mistake costs that
 * pool alone, reads back the same when written out. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/check.h"
#include "tests/unit/conf_help.h"

struct audit {
	size_t count;
	long line;
};

static void on_told(void *context, const char *line)
{
	struct audit *audit = context;
	long number;

	audit->count++;
	CHECK(strncmp(line, "fuzz:", 5) == 0);
	for (const char *c = line; *c; c++)
		CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
	number = strtol(line + 5, NULL, 10);
	CHECK(number >= audit->line && number >= 1);
	audit->line = number;
}

static void check_reread(const struct conf *conf, const struct pool_settings *pool)
{
	static struct told told;

	told.len = 0;
	struct conf *again = conf_reread(conf, pool, &told);
	if (!again)
		fputs(told.text, stderr);
	CHECK(again);
	CHECK(told.len == 0);
	if (pool) {
		CHECK(again->pool_count == 1 && strings_equal(again->pools[0]->name, pool->name));
	} else {
		const char *difference = conf_difference(conf, again);
		if (difference)
			fprintf(stderr, "%s differs\n", difference);
		CHECK(!difference);
	}
	conf_free(again);
}

static void check_pools(const struct conf *conf)
{
	CHECK(conf->pool_count > 0);
	check_reread(conf, NULL);
	check_reread(conf, conf->pools[conf->pool_count - 1]);
}

/* One pool's mistake costs that pool alone: what is left is right. */
static void check_lenient(const char *text, size_t size, const struct conf *strict)
{
	struct audit audit = {0, 0};
	struct conf *conf = conf_parse_lenient("fuzz", text, size, on_told, &audit);

	CHECK(!strict || (conf && conf->pool_count == strict->pool_count));
	CHECK(conf ? (audit.count == 0) == (conf->broken_count == 0) : audit.count > 0);
	if (conf && !strict)
		check_pools(conf);
	conf_free(conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct audit audit = {0, 0};

	setenv("F", "it's \"a\"; $b \\", 1);
	struct conf *conf = conf_parse("fuzz", (const char *)data, size, on_told, &audit);
	CHECK(conf ? audit.count == 0 : audit.count > 0);
	check_lenient((const char *)data, size, conf);
	if (conf)
		check_pools(conf);
	conf_free(conf);
	return 0;
}

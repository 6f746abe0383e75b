/* The adapter to inih: it walks a text line by line and tells of sections,
 * of entries with their values still raw (quotes, comment and variables are
 * conf_text's business), and of lines that are not INI, each with its number.
 * inih alone would cut long lines, tell only the first bad line, take ':' for
 * '=', and stay silent about a section without entries. Holds nothing. */
#ifndef H2FPM_FPM_CONF_INI_H
#define H2FPM_FPM_CONF_INI_H

#include <stdbool.h>
#include <stddef.h>

enum {
	CONF_INI_LINE_MAX = 1 << 20, /* bytes of one line */
	CONF_INI_NAME_MAX = 256,     /* bytes of a directive's name */
	CONF_INI_SECTION_MAX = 48,   /* bytes of a section's name: inih keeps no more */
};

struct conf_ini_visitor {
	void *context;
	/* A section begins; also after a complaint about its line. */
	void (*section)(void *context, int line, const char *name);
	void (*entry)(void *context, int line, const char *name, const char *raw_value);
	void (*problem)(void *context, int line, const char *what);
};

/* Returns the number of the last line; -1: out of memory. */
int conf_ini_read(const char *text, size_t len, const struct conf_ini_visitor *visitor)
        __attribute__((warn_unused_result));

#endif

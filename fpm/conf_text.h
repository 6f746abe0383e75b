/* A value's text as php-fpm's INI files write it: pieces in double quotes
 * (with \" \\ and \$), in single quotes (verbatim) or bare (trimmed), put
 * together; a ';' outside quotes starts a comment; $pool and ${NAME} and
 * ${NAME:-default} are replaced outside single quotes. Also the way back. */
#ifndef H2FPM_FPM_CONF_TEXT_H
#define H2FPM_FPM_CONF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CONF_TEXT_MAX = 65536 }; /* bytes of a value after replacing variables */

struct conf_text {
	char *value;   /* owned by the caller after conf_text_read */
	bool quoted;   /* some of it was in quotes */
	bool verbatim; /* some of it was in single quotes */
};

/* pool: what $pool stands for (NULL: itself). False: *problem says why. */
bool conf_text_read(const char *raw, const char *pool, struct conf_text *out, const char **problem)
        __attribute__((warn_unused_result));
/* Writes the value so that conf_text_read gives it back byte for byte. */
void conf_text_write(const char *value, FILE *out);

#endif

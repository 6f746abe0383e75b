/* Typed values between their text in the file and their place in the
 * settings. Text in: already without quotes and variables. A failure changes
 * nothing and says in one line what would be right. */
#ifndef H2FPM_FPM_CONF_VALUE_H
#define H2FPM_FPM_CONF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "fpm/conf_table.h"

enum { CONF_WHY_MAX = 512 };

/* yes/no, on/off, true/false, 1/0 in any case. */
bool conf_value_bool(const char *text, bool *out) __attribute__((warn_unused_result));

/* Not for pairs. base is the settings that the directive's offset counts from. */
bool conf_value_set(const struct conf_directive *d, void *base, const char *text, char why[CONF_WHY_MAX])
        __attribute__((warn_unused_result));
/* The default, or the value that stands for "unset". */
bool conf_value_set_default(const struct conf_directive *d, void *base, char why[CONF_WHY_MAX])
        __attribute__((warn_unused_result));
/* Sets the pair named key; where it is there already, its value is replaced. */
bool conf_value_set_pair(const struct conf_directive *d, void *base, const char *key, const char *text,
                         char why[CONF_WHY_MAX]) __attribute__((warn_unused_result));
void conf_value_free(const struct conf_directive *d, void *base);
/* "name = value" lines that read back the same; nothing for what is unset. */
void conf_value_write(const struct conf_directive *d, const void *base, FILE *out);

#endif

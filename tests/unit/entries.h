/* What is in a test's directory: a test that leaves nothing counts none.
 * Include behind cmocka.h. */
#ifndef H2FPM_TESTS_UNIT_ENTRIES_H
#define H2FPM_TESTS_UNIT_ENTRIES_H

#include <dirent.h>

static inline int entries_in(const char *dir)
{
	DIR *d = opendir(dir);
	int count = 0;

	assert_non_null(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count - 2; /* . and .. */
}

#endif

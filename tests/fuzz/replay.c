/* Stands in for libFuzzer's main where the compiler has none: runs every file
 * given, and every file in every directory given, through the target. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fail(const char *path)
{
	perror(path);
	return -1;
}

/* How many files were run (1), or -1. The copy is exactly as long as the
 * file, so that a sanitizer sees reads past it. */
static int run_file(const char *path, size_t size)
{
	uint8_t *data = malloc(size > 0 ? size : 1);
	FILE *f = fopen(path, "rb");
	size_t got = 0;

	if (data && f)
		got = fread(data, 1, size, f);
	if (f)
		fclose(f);
	if (!data || !f || got != size) {
		free(data);
		return fail(path);
	}
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 1;
}

static int run_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (!dir)
		return fail(path);
	while (count >= 0 && (entry = readdir(dir))) {
		char file[PATH_MAX];
		struct stat st;
		int len = snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);

		if (len < 0 || (size_t)len >= sizeof(file) || stat(file, &st) < 0)
			count = fail(entry->d_name);
		else if (S_ISREG(st.st_mode))
			count = run_file(file, (size_t)st.st_size) < 0 ? -1 : count + 1;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;
		int count;

		if (stat(argv[i], &st) < 0)
			count = fail(argv[i]);
		else
			count = S_ISDIR(st.st_mode) ? run_dir(argv[i]) : run_file(argv[i], (size_t)st.st_size);
		if (count < 0)
			return 1;
		total += count;
	}
	printf("%s: %d inputs replayed\n", argv[0], total);
	/* An empty corpus would be a test that cannot fail. */
	return total > 0 ? 0 : 1;
}

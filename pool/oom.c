#include "pool/oom.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Part of a text: not terminated. */
struct part {
	const char *at;
	size_t len;
};

/* ---- the two texts ---- */

/* What comes before the separator; rest goes on behind it. */
static struct part cut(struct part *rest, char separator)
{
	const char *found = rest->len > 0 ? memchr(rest->at, separator, rest->len) : NULL;
	struct part head = {rest->at, found ? (size_t)(found - rest->at) : rest->len};
	size_t used = head.len + (found ? 1 : 0);

	rest->at += used;
	rest->len -= used;
	return head;
}

static bool equals(struct part part, const char *word)
{
	return part.len == strlen(word) && memcmp(part.at, word, part.len) == 0;
}

static bool lists(struct part list, const char *word)
{
	while (list.len > 0)
		if (equals(cut(&list, ','), word))
			return true;
	return false;
}

/* Where our memory is accounted: a controller is in one hierarchy only, so if
 * one of version 1 has it, version 2's is of no use. */
struct place {
	bool v1;
	struct part path;
};

/* Lines "4:memory:/path", or "0::/path" for version 2. */
static bool find_place(const char *cgroup, struct place *out)
{
	struct part rest = {cgroup, strlen(cgroup)};
	bool found = false;

	while (rest.len > 0) {
		struct part line = cut(&rest, '\n');
		struct part id = cut(&line, ':');
		struct part controllers = cut(&line, ':');
		if (lists(controllers, "memory")) {
			*out = (struct place){true, line};
			return true;
		}
		if (equals(id, "0") && controllers.len == 0 && line.len > 0) {
			*out = (struct place){false, line};
			found = true;
		}
	}
	return found;
}

struct mount {
	struct part root; /* the directory of the hierarchy that is mounted */
	struct part point; /* both with octal escapes */
};

/* "34 30 0:31 ROOT POINT rw,… shared:1 … - TYPE SOURCE rw,memory". False: it
 * is no mount of that hierarchy. */
static bool parse_mount(struct part line, bool v1, struct mount *out)
{
	for (int i = 0; i < 3; i++)
		(void)cut(&line, ' ');
	out->root = cut(&line, ' ');
	out->point = cut(&line, ' ');
	while (line.len > 0 && !equals(cut(&line, ' '), "-")) {
	}
	struct part type = cut(&line, ' ');
	(void)cut(&line, ' '); /* its source, which may be empty */
	return v1 ? equals(type, "cgroup") && lists(line, "memory") : equals(type, "cgroup2");
}

static bool is_octal(const char *at)
{
	return at[0] >= '0' && at[0] <= '3' && at[1] >= '0' && at[1] <= '7' && at[2] >= '0' && at[2] <= '7';
}

/* False: it does not fit. */
static bool unescape(struct part from, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < from.len; i++) {
		char c = from.at[i];
		if (c == '\\' && from.len - i > 3 && is_octal(from.at + i + 1)) {
			c = (char)((from.at[i + 1] - '0') * 64 + (from.at[i + 2] - '0') * 8 + from.at[i + 3] - '0');
			i += 3;
		}
		if (used + 1 >= size)
			return false;
		out[used++] = c;
	}
	out[used] = '\0';
	return true;
}

/* A ".." leads out of our cgroup namespace, where names are not to be had. */
static bool leads_out(struct part path)
{
	while (path.len > 0)
		if (equals(cut(&path, '/'), ".."))
			return true;
	return false;
}

/* The path as seen from the mount's root; false: it is not below it. */
static bool below(struct part *path, const char *root)
{
	size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);

	if (path->len < len || memcmp(path->at, root, len) != 0 || (path->len > len && path->at[len] != '/'))
		return false;
	path->at += len;
	path->len -= len;
	if (path->len == 1)
		path->len = 0; /* the root itself */
	return !leads_out(*path);
}

static bool compose(const struct mount *mount, const struct place *place, char *out, size_t size)
{
	char text[PATH_MAX];
	struct part path = place->path;

	if (!unescape(mount->root, text, sizeof text) || !below(&path, text))
		return false;
	if (!unescape(mount->point, text, sizeof text) || text[0] != '/')
		return false;
	int n = snprintf(out, size, "%s%.*s/%s", text[1] ? text : "", (int)path.len, path.at,
			 place->v1 ? "memory.oom_control" : "memory.events");
	return n > 0 && (size_t)n < size;
}

bool oom_find_file(const char *cgroup, const char *mountinfo, char *out, size_t size)
{
	struct place place;
	struct mount mount;
	struct part rest = {mountinfo, strlen(mountinfo)};

	if (!find_place(cgroup, &place) || place.path.len > PATH_MAX)
		return false;
	while (rest.len > 0)
		if (parse_mount(cut(&rest, '\n'), place.v1, &mount) && compose(&mount, &place, out, size))
			return true;
	return false;
}

/* ---- the counter ---- */

static int64_t parse_number(struct part digits)
{
	int64_t value = 0;

	if (digits.len == 0)
		return -1;
	for (size_t i = 0; i < digits.len; i++) {
		int digit = digits.at[i] - '0';
		if (digit < 0 || digit > 9 || value > (INT64_MAX - digit) / 10)
			return -1;
		value = value * 10 + digit;
	}
	return value;
}

/* A line without its end was cut, and so may be its number. */
int64_t oom_parse_count(const char *text, size_t len)
{
	struct part rest = {text, len};

	while (rest.len > 0) {
		struct part line = cut(&rest, '\n');
		bool whole = line.at + line.len < text + len;
		if (equals(cut(&line, ' '), "oom_kill") && whole)
			return parse_number(line);
	}
	return -1;
}

/* From the start: the kernel makes such a text anew then. It gives /proc/vmstat
 * a page at a time. */
static int64_t read_count(int fd)
{
	char text[16384];
	size_t len = 0;

	while (fd >= 0 && len < sizeof text) {
		ssize_t n = pread(fd, text + len, sizeof text - len, (off_t)len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	return oom_parse_count(text, len);
}

/* False: it cannot be read or does not count (kernels before 4.13). */
static bool open_counter(struct oom *oom, const char *path)
{
	oom->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	oom->count = read_count(oom->fd);
	if (oom->count >= 0)
		return true;
	oom_fini(oom);
	return false;
}

/* The whole file; the caller frees it. NULL: none. */
static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!file)
		return NULL;
	if (getdelim(&text, &size, '\0', file) < 0) {
		free(text);
		text = NULL;
	}
	(void)fclose(file);
	return text;
}

void oom_init(struct oom *oom)
{
	char path[PATH_MAX];
	char *cgroup = read_text("/proc/self/cgroup");
	char *mountinfo = read_text("/proc/self/mountinfo");
	bool found = cgroup && mountinfo && oom_find_file(cgroup, mountinfo, path, sizeof path);

	free(cgroup);
	free(mountinfo);
	oom->unclaimed = 0;
	if (!found || !open_counter(oom, path))
		(void)open_counter(oom, "/proc/vmstat");
}

void oom_fini(struct oom *oom)
{
	if (oom->fd >= 0)
		close(oom->fd);
	*oom = (struct oom){.fd = -1};
}

int64_t oom_news(struct oom *oom)
{
	int64_t now = read_count(oom->fd);
	int64_t news = now > oom->count ? now - oom->count : 0;

	if (now >= 0)
		oom->count = now;
	return news;
}

bool oom_claim(struct oom *oom)
{
	oom->unclaimed += oom_news(oom);
	if (oom->unclaimed == 0)
		return false;
	oom->unclaimed--;
	return true;
}

/* What is news now may be of a process that is still busy dying. */
void oom_tick(struct oom *oom)
{
	oom->unclaimed = oom_news(oom);
}

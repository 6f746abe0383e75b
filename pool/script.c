#include "pool/script.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROOT_TRIES = 8 };

static bool add_extension(struct script_judge *judge, size_t count, const char *at, size_t len)
{
	char **grown = realloc(judge->extensions, (count + 2) * sizeof *grown);

	if (!grown)
		return false;
	judge->extensions = grown;
	grown[count] = strndup(at, len);
	grown[count + 1] = NULL;
	return grown[count] != NULL;
}

/* O_PATH's descriptor of what the chrooted worker would find under the name. */
static int open_in_chroot(int root, const char *path, uint64_t flags)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags, .resolve = RESOLVE_IN_ROOT};
	long fd;

	/* Where a directory is moved meanwhile the kernel cannot be sure of "..". */
	for (int tries = 0; tries < ROOT_TRIES; tries++) {
		fd = syscall(SYS_openat2, root, path, &how, sizeof how);
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return (int)fd;
}

static bool enter_chroot(struct script_judge *judge, const char *chroot, const char *chdir)
{
	judge->in_chroot = true;
	judge->dir = open(chroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (judge->dir < 0)
		return false;
	int fd = open_in_chroot(judge->dir, chdir ? chdir : "/", O_DIRECTORY);
	if (fd < 0)
		return false;
	close(fd);
	judge->chdir = chdir ? strdup(chdir) : NULL;
	return judge->chdir || !chdir;
}

bool script_judge_init(struct script_judge *judge, const char *extensions, const char *chroot, const char *chdir)
{
	size_t count = 0;

	memset(judge, 0, sizeof *judge);
	judge->dir = AT_FDCWD;
	for (const char *at = extensions ? extensions : ""; *at;) {
		size_t len = strcspn(at, " \t");
		if (len > 0 && !add_extension(judge, count++, at, len))
			return false;
		at += len + strspn(at + len, " \t");
	}
	if (chroot)
		return enter_chroot(judge, chroot, chdir);
	if (chdir && (judge->dir = open(chdir, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
		return false;
	return true;
}

void script_judge_fini(struct script_judge *judge)
{
	for (size_t i = 0; judge->extensions && judge->extensions[i]; i++)
		free(judge->extensions[i]);
	free(judge->extensions);
	for (size_t i = 0; i < SCRIPT_CACHE_SLOTS; i++)
		free(judge->cache[i].path);
	free(judge->chdir);
	if (judge->dir >= 0)
		close(judge->dir);
	memset(judge, 0, sizeof *judge);
	judge->dir = AT_FDCWD;
}

/* As php-fpm compares: the name's end, and something must stand before it. */
static bool extension_allowed(const struct script_judge *judge, const char *path, size_t len)
{
	for (char **ext = judge->extensions; ext && *ext; ext++) {
		size_t ext_len = strlen(*ext);
		if (len > ext_len && memcmp(path + len - ext_len, *ext, ext_len) == 0)
			return true;
	}
	return !judge->extensions;
}

static struct script_cache_slot *cache_slot(struct script_judge *judge, struct slice path)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < path.len; i++)
		hash = (hash ^ (uint8_t)path.at[i]) * 16777619u;
	return &judge->cache[hash % SCRIPT_CACHE_SLOTS];
}

static bool cache_has(const struct script_cache_slot *slot, struct slice path, int64_t now_us)
{
	return slot->path && now_us < slot->until_us && slot->len == path.len &&
	       memcmp(slot->path, path.at, path.len) == 0;
}

static void cache_put(struct script_cache_slot *slot, struct slice path, int64_t now_us)
{
	if (!slot->path || slot->len != path.len || memcmp(slot->path, path.at, path.len) != 0) {
		free(slot->path);
		slot->path = strndup(path.at, path.len);
		slot->len = path.len;
	}
	slot->until_us = now_us + SCRIPT_CACHE_MS * INT64_C(1000);
}

/* Which parameter php-cgi would take the script's name from. */
static struct slice script_name(const struct meta *meta)
{
	struct slice file = meta->of[META_SCRIPT_FILENAME];
	struct slice translated = meta->of[META_PATH_TRANSLATED];

	if (!file.at)
		return translated;
	if (meta->by_apache)
		return file;
	if (translated.at && meta->of[META_REDIRECT_URL].at &&
	    (translated.len != file.len || memcmp(translated.at, file.at, file.len) != 0))
		return translated;
	return file;
}

/* Cuts path at its last separator as php-cgi does: backslashes only once no
 * slash is left. False when nothing is left to cut. */
static bool cut_component(char *path)
{
	char *cut = strrchr(path, '/');

	if (!cut)
		cut = strrchr(path, '\\');
	if (!cut)
		return false;
	*cut = '\0';
	return true;
}

static bool find_in_chroot(const struct script_judge *judge, const char *path, struct stat *st)
{
	char whole[2 * SCRIPT_PATH_MAX];

	if (path[0] != '/' && judge->chdir) {
		if ((size_t)snprintf(whole, sizeof whole, "%s/%s", judge->chdir, path) >= sizeof whole)
			return false;
		path = whole;
	}
	int fd = open_in_chroot(judge->dir, path, 0);
	if (fd < 0)
		return false;
	bool found = fstat(fd, st) == 0;
	close(fd);
	return found;
}

static bool find(const struct script_judge *judge, const char *path, struct stat *st)
{
	return judge->in_chroot ? find_in_chroot(judge, path, st) : fstatat(judge->dir, path, st, 0) == 0;
}

/* Walks up to the first regular file; its length, or 0. */
static size_t walk_up(const struct script_judge *judge, char *path)
{
	struct stat st;

	while (cut_component(path)) {
		if (*path && find(judge, path, &st) && S_ISREG(st.st_mode))
			return strlen(path);
	}
	return 0;
}

/* Whether a part of the name is "..": PHP reads up to a zero byte. */
static bool climbs(struct slice name)
{
	size_t start = 0;

	for (size_t i = 0; i <= name.len; i++) {
		bool at_end = i == name.len || name.at[i] == '\0';
		if (!at_end && name.at[i] != '/')
			continue;
		if (i - start == 2 && memcmp(name.at + start, "..", 2) == 0)
			return true;
		if (at_end)
			return false;
		start = i + 1;
	}
	return false;
}

/* With cgi.fix_pathinfo = 0, which only php.ini may know, PHP would run
 * PATH_TRANSLATED although there is a SCRIPT_FILENAME. */
bool script_hides_translated(const struct script_judge *judge, const struct meta *meta)
{
	struct slice translated = meta->of[META_PATH_TRANSLATED];

	if (!translated.at || script_name(meta).at == translated.at)
		return false;
	if (meta->by_apache && meta->of[META_REDIRECT_URL].at)
		return true;
	return !extension_allowed(judge, translated.at, translated.len) ||
	       (judge->is_strict && (translated.len == 0 || climbs(translated)));
}

enum script_verdict script_judge(struct script_judge *judge, const struct meta *meta, int64_t now_us,
				 struct slice *path_info)
{
	char path[SCRIPT_PATH_MAX];
	struct stat st;
	struct slice name = script_name(meta);
	enum script_verdict unfound = judge->extensions || judge->is_strict ? SCRIPT_MISSING : SCRIPT_ALLOWED;

	*path_info = (struct slice){0};
	if (name.len >= sizeof path)
		return SCRIPT_TOO_LONG;
	if (unfound == SCRIPT_ALLOWED && !meta->of[META_PATH_INFO].at)
		return SCRIPT_ALLOWED;
	if (!name.at || name.len == 0)
		return unfound;
	if (judge->is_strict && climbs(name))
		return SCRIPT_MISSING;
	struct script_cache_slot *slot = cache_slot(judge, name);
	if (cache_has(slot, name, now_us))
		return SCRIPT_ALLOWED;
	memcpy(path, name.at, name.len);
	path[name.len] = '\0';
	if (path[name.len - 1] != '/' && find(judge, path, &st)) {
		if (!extension_allowed(judge, path, name.len))
			return SCRIPT_DENIED;
		cache_put(slot, name, now_us);
		return SCRIPT_ALLOWED;
	}
	size_t len = walk_up(judge, path);
	if (len == 0)
		return unfound;
	*path_info = (struct slice){name.at + len, name.len - len};
	return extension_allowed(judge, path, len) ? SCRIPT_ALLOWED : SCRIPT_DENIED;
}

/* The whole is judged as what it is then: a name that is to be walked up. PHP
 * might find another file than that by a "..". */
struct slice script_tail(struct script_judge *judge, const struct meta *meta, int64_t now_us)
{
	char name[SCRIPT_PATH_MAX];
	struct slice file = meta->of[META_SCRIPT_FILENAME], info = meta->of[META_PATH_INFO], found;
	struct meta whole = *meta;

	if (!meta->by_apache || !meta->of[META_REDIRECT_URL].at || info.len == 0 || info.at[0] != '/' ||
	    file.len + info.len >= sizeof name || climbs(info))
		return (struct slice){0};
	memcpy(name, file.at, file.len);
	memcpy(name + file.len, info.at, info.len);
	whole.of[META_SCRIPT_FILENAME] = (struct slice){name, file.len + info.len};
	if (script_judge(judge, &whole, now_us, &found) != SCRIPT_ALLOWED || found.len != info.len)
		return (struct slice){0};
	return info;
}

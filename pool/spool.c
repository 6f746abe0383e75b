#include "pool/spool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void spool_init(struct spool *s)
{
	buf_init(&s->memory);
	s->fd = -1;
	s->size_bytes = 0;
}

void spool_reset(struct spool *s, size_t keep_bytes)
{
	buf_reset(&s->memory, keep_bytes);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->size_bytes = 0;
}

void spool_fini(struct spool *s)
{
	spool_reset(s, 0);
	buf_fini(&s->memory);
}

/* Some file systems have no O_TMPFILE: there the name lives for a moment. */
static int open_unlinked(const char *dir)
{
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd;
	if ((size_t)snprintf(path, sizeof path, "%s/h2fpm-body-XXXXXX", dir) >= sizeof path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* At an offset, so that what a failed write left is written over. */
static bool write_all(int fd, int64_t offset, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, at, len, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? ENOSPC : errno;
			return false;
		}
		at += n;
		offset += n;
		len -= (size_t)n;
	}
	return true;
}

static bool move_to_file(struct spool *s, const char *dir)
{
	int fd = open_unlinked(dir);

	if (fd < 0)
		return false;
	if (s->size_bytes > 0 && !write_all(fd, 0, buf_head(&s->memory), buf_len(&s->memory))) {
		int error = errno;
		close(fd);
		errno = error;
		return false;
	}
	buf_fini(&s->memory);
	s->fd = fd;
	return true;
}

bool spool_append(struct spool *s, const void *data, size_t len, size_t memory_bytes, const char *dir)
{
	if (s->fd < 0 && (size_t)s->size_bytes + len <= memory_bytes) {
		if (!buf_append(&s->memory, data, len)) {
			errno = ENOMEM;
			return false;
		}
	} else {
		if (s->fd < 0 && !move_to_file(s, dir))
			return false;
		if (!write_all(s->fd, s->size_bytes, data, len))
			return false;
	}
	s->size_bytes += (int64_t)len;
	return true;
}

bool spool_read(const struct spool *s, int64_t offset, void *out, size_t len)
{
	char *at = out;

	assert(offset >= 0 && offset + (int64_t)len <= s->size_bytes);
	if (s->fd < 0) {
		if (len > 0) /* else there may be no memory at all */
			memcpy(out, buf_head(&s->memory) + offset, len);
		return true;
	}
	while (len > 0) {
		ssize_t n = pread(s->fd, at, len, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? EIO : errno;
			return false;
		}
		at += n;
		offset += n;
		len -= (size_t)n;
	}
	return true;
}

#include "fpm/link.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "pool/link.h"

static bool has_count(char kind)
{
	return kind == LINK_WANT || kind == LINK_RETURN;
}

enum link_result link_receive(int fd, struct link_news *news)
{
	char bytes[LINK_COUNTED_BYTES];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return LINK_EMPTY;
	if (n <= 0)
		return LINK_CLOSED;
	*news = (struct link_news){.kind = bytes[0]};
	news->right_size = n == (has_count(news->kind) ? LINK_COUNTED_BYTES : 1);
	if (news->right_size && has_count(news->kind))
		memcpy(&news->n, bytes + 1, sizeof(news->n));
	return LINK_GOT;
}

static bool send_bytes(int fd, const char *bytes, size_t len)
{
	return send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

bool link_send(int fd, char kind)
{
	return send_bytes(fd, &kind, 1);
}

bool link_send_count(int fd, char kind, uint32_t n)
{
	char bytes[LINK_COUNTED_BYTES] = {kind};

	memcpy(bytes + 1, &n, sizeof(n));
	return send_bytes(fd, bytes, sizeof(bytes));
}

bool link_send_logs(int fd, int error_log, int access_log)
{
	const int fds[2] = {error_log, access_log};
	char kind = LINK_LOGS;
	struct iovec data = {.iov_base = &kind, .iov_len = 1};
	union {
		char bytes[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control = {.bytes = {0}};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

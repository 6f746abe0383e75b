#include "fpm/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Addresses */

static bool parse_port(const char *text, in_port_t *port)
{
	size_t digits = strspn(text, "0123456789");
	long value;

	if (digits == 0 || digits > 5 || text[digits] != '\0')
		return false;
	value = strtol(text, NULL, 10);
	*port = htons((in_port_t)value);
	return value >= 1 && value <= 65535;
}

static bool parse_any(struct listen_address *address, const char *text)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};

	if (!parse_port(text, &any.sin6_port))
		return false;
	memcpy(&address->at[0], &any, sizeof(any));
	address->len[0] = sizeof(any);
	address->count = 1;
	address->any = true;
	return true;
}

static bool parse_path(struct listen_address *address, const char *text, char *reason, size_t reason_size)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	size_t len = strlen(text);

	if (len >= sizeof(un.sun_path)) {
		snprintf(reason, reason_size, "the socket's path is %zu bytes long, at most %zu are possible", len,
			 sizeof(un.sun_path) - 1);
		return false;
	}
	memcpy(un.sun_path, text, len + 1);
	memcpy(&address->at[0], &un, sizeof(un));
	address->len[0] = sizeof(un);
	address->count = 1;
	return true;
}

/* Cuts "[v6]:port" or "host:port" apart; host has room for text. */
static bool split_host(const char *text, char *host, const char **port)
{
	const char *colon = strrchr(text, ':');
	size_t len;

	if (colon == NULL || colon == text)
		return false;
	*port = colon + 1;
	len = (size_t)(colon - text);
	if (text[0] == '[') {
		if (len < 3 || text[len - 1] != ']')
			return false;
		text++;
		len -= 2;
	} else if (memchr(text, ':', len) != NULL) {
		return false; /* a v6 address without brackets: where does the port begin? */
	}
	memcpy(host, text, len);
	host[len] = '\0';
	return true;
}

static bool resolve(struct listen_address *address, const char *host, const char *port, char *reason,
		    size_t reason_size)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	int error = getaddrinfo(host, port, &hints, &found);

	if (error != 0) {
		snprintf(reason, reason_size, "cannot find the address '%s': %s", host, gai_strerror(error));
		return false;
	}
	for (const struct addrinfo *ai = found; ai != NULL && address->count < LISTEN_MAX; ai = ai->ai_next) {
		memcpy(&address->at[address->count], ai->ai_addr, ai->ai_addrlen);
		address->len[address->count++] = ai->ai_addrlen;
	}
	freeaddrinfo(found);
	return true;
}

bool listen_parse(struct listen_address *address, const char *text, char *reason, size_t reason_size)
{
	char host[256];
	const char *port;
	in_port_t number;

	memset(address, 0, sizeof(*address));
	if (strchr(text, '/') != NULL)
		return parse_path(address, text, reason, reason_size);
	if (parse_any(address, text))
		return true;
	if (strlen(text) < sizeof(host) && split_host(text, host, &port) && parse_port(port, &number))
		return resolve(address, host, port, reason, reason_size);
	/* php-fpm takes any other word for a path; a mistyped port must not become a file */
	if (text[0] != '\0' && strchr(text, ':') == NULL && strspn(text, "0123456789") < strlen(text))
		return parse_path(address, text, reason, reason_size);
	snprintf(reason, reason_size, "'%s' is no path, ip:port, [v6]:port or port (1 to 65535)", text);
	return false;
}

/* Sockets */

/* What the steps of one listen_open() share. */
struct opening {
	struct listen_set *set;
	const char *text;
	int backlog;
	const struct listen_access *access;
	char *reason;
	size_t reason_size;
};

/* For an errno; which stays as it was. */
static bool fail(const struct opening *o, const char *what)
{
	int error = errno;

	snprintf(o->reason, o->reason_size, "%s '%s': %s (%d)", what, o->text, strerror(error), error);
	errno = error;
	return false;
}

static int new_socket(int family)
{
	return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* A socket on which nobody answers is what a killed process left behind. */
static bool remove_stale(const struct opening *o, const struct sockaddr_un *un)
{
	struct stat st;
	int fd;
	int error;

	if (lstat(un->sun_path, &st) != 0)
		return errno == ENOENT || fail(o, "cannot look at");
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(o->reason, o->reason_size, "'%s' exists and is not a socket: not removed", un->sun_path);
		return false;
	}
	fd = new_socket(AF_UNIX);
	if (fd < 0)
		return fail(o, "cannot make a socket for");
	error = connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0 ? 0 : errno;
	close(fd);
	if (error == 0 || error == EAGAIN || error == EPROTOTYPE) {
		snprintf(o->reason, o->reason_size, "another process already listens on '%s'", un->sun_path);
		return false;
	}
	errno = error;
	if (error != ECONNREFUSED)
		return fail(o, "cannot tell whether somebody listens on");
	return unlink(un->sun_path) == 0 || fail(o, "cannot remove the stale socket");
}

/* Works on the inode that was opened, not on whatever the path names by then. */
static bool set_access(const struct opening *o, int path_fd)
{
	const struct listen_access *a = o->access;
	char proc[64];
	struct stat st;

	if (fstat(path_fd, &st) != 0 || !S_ISSOCK(st.st_mode))
		return fail(o, "cannot look at the new socket");
	o->set->dev = st.st_dev;
	o->set->ino = st.st_ino;
	if ((a->owner != (uid_t)-1 || a->group != (gid_t)-1) &&
	    fchownat(path_fd, "", a->owner, a->group, AT_EMPTY_PATH) != 0)
		return fail(o, "failed to chown() the socket");
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	return chmod(proc, a->mode) == 0 || fail(o, "failed to chmod() the socket");
}

/* Bound with no permission at all; the mode comes once the owner is right. */
static bool bind_unix(const struct opening *o, int fd, const struct sockaddr_un *un)
{
	mode_t before;
	int result;
	int path_fd;
	bool ok;

	if (!remove_stale(o, un))
		return false;
	before = umask(0777);
	result = bind(fd, (const struct sockaddr *)un, sizeof(*un));
	umask(before);
	if (result != 0)
		return fail(o, "unable to bind listening socket for address");
	o->set->path = strdup(un->sun_path);
	path_fd = o->set->path != NULL ? open(un->sun_path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (path_fd < 0)
		return fail(o, "cannot look at the new socket");
	ok = set_access(o, path_fd);
	close(path_fd);
	return ok;
}

static int bind_tcp(int fd, const struct sockaddr_storage *at, socklen_t len, bool any)
{
	int on = 1;
	int off = 0;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
		return -1;
	if (any && at->ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0)
		return -1;
	return bind(fd, (const struct sockaddr *)at, len);
}

static bool open_one(const struct opening *o, const struct sockaddr_storage *at, socklen_t len, bool any)
{
	int fd = new_socket(at->ss_family);

	if (fd < 0)
		return fail(o, "unable to bind listening socket for address");
	o->set->fds[o->set->count++] = fd;
	if (at->ss_family == AF_UNIX) {
		struct sockaddr_un un;

		memcpy(&un, at, sizeof(un));
		if (!bind_unix(o, fd, &un))
			return false;
	} else if (bind_tcp(fd, at, len, any) != 0) {
		return fail(o, "unable to bind listening socket for address");
	}
	/* a port that was bound twice is found out only here */
	return listen(fd, o->backlog) == 0 || fail(o, "unable to listen on address");
}

/* A system without IPv6 still has all its IPv4 addresses. */
static bool open_any(const struct opening *o, const struct listen_address *address)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_storage at;

	if (open_one(o, &address->at[0], address->len[0], true))
		return true;
	if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)
		return false;
	listen_close(o->set);
	memcpy(&v6, &address->at[0], sizeof(v6));
	v4.sin_port = v6.sin6_port;
	memset(&at, 0, sizeof(at));
	memcpy(&at, &v4, sizeof(v4));
	return open_one(o, &at, sizeof(v4), true);
}

bool listen_open(struct listen_set *set, const struct listen_address *address, const char *text, int backlog,
		 const struct listen_access *access, char *reason, size_t reason_size)
{
	struct opening o = {set, text, backlog, access, reason, reason_size};
	bool ok = true;

	memset(set, 0, sizeof(*set));
	if (backlog < 0 || backlog > LISTEN_BACKLOG_MAX)
		o.backlog = LISTEN_BACKLOG_MAX;
	if (address->any)
		ok = open_any(&o, address);
	for (int i = 0; ok && !address->any && i < address->count; i++)
		ok = open_one(&o, &address->at[i], address->len[i], false);
	if (!ok)
		listen_close(set);
	return ok;
}

static bool is_ours(const struct listen_set *set)
{
	struct stat st;

	return set->path != NULL && lstat(set->path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == set->dev &&
	       st.st_ino == set->ino;
}

void listen_close(struct listen_set *set)
{
	if (is_ours(set))
		unlink(set->path);
	for (int i = 0; i < set->count; i++)
		close(set->fds[i]);
	free(set->path);
	memset(set, 0, sizeof(*set));
}

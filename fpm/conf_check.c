#include "fpm/conf_check.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "pool/access.h"

enum { HOST_MAX = 254, PROGRAM_MAX = 4096 };

const char *conf_check_log(const char *value)
{
	if (strcmp(value, "syslog") == 0)
		return "php-fpm's syslog is not supported by this version: give a file's path";
	return NULL;
}

static bool is_port(const char *text)
{
	size_t len = strspn(text, "0123456789");

	return len > 0 && len <= 5 && !text[len] && *text != '0' && atoi(text) <= 65535;
}

/* Splits ip:port or [ipv6]:port; host is "" for a port alone. */
static bool split_address(const char *value, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(value, ':');

	*host = '\0';
	*port = value;
	if (!colon)
		return true;
	size_t len = (size_t)(colon - value);
	*port = colon + 1;
	if (len >= 2 && value[0] == '[' && value[len - 1] == ']') {
		value++;
		len -= 2;
	} else if (memchr(value, ':', len)) {
		return false; /* an IPv6 address needs its brackets */
	}
	if (!len || len >= size)
		return false;
	memcpy(host, value, len);
	host[len] = '\0';
	return true;
}

static bool is_ip(const char *text)
{
	struct in6_addr address;

	return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* A name to be looked up when the socket is opened; 1.2.3.400 is none. */
static bool is_host_name(const char *text)
{
	bool letter = false;

	for (; *text; text++) {
		letter = letter || isalpha((unsigned char)*text);
		if (!isalnum((unsigned char)*text) && *text != '-' && *text != '.')
			return false;
	}
	return letter;
}

const char *conf_check_listen(const char *value)
{
	char host[HOST_MAX];
	const char *port;

	if (*value == '/')
		return strlen(value) < sizeof(((struct sockaddr_un *)NULL)->sun_path)
		               ? NULL
		               : "a socket's path has at most 107 bytes";
	if (!split_address(value, host, sizeof(host), &port) || (*host && !is_ip(host) && !is_host_name(host)) ||
	    !is_port(port))
		return "give a socket's path from / on, a port (1 to 65535), ip:port or [ipv6]:port";
	return NULL;
}

void conf_check_canonical_listen(const char *value, char *out, size_t size)
{
	char host[HOST_MAX];
	struct in6_addr address;
	const char *port;

	if (*value == '/' || !split_address(value, host, sizeof(host), &port)) {
		snprintf(out, size, "%s", value);
		return;
	}
	if (!*host)
		strcpy(host, "::");
	else if (inet_pton(AF_INET6, host, &address) == 1)
		inet_ntop(AF_INET6, &address, host, sizeof(host));
	snprintf(out, size, "[%s]:%s", host, port);
}

const char *conf_check_clients(const char *value)
{
	char address[INET6_ADDRSTRLEN];

	while (true) {
		value += strspn(value, " \t");
		size_t len = strcspn(value, ", \t");
		if (!len || len >= sizeof(address))
			break;
		memcpy(address, value, len);
		address[len] = '\0';
		if (!is_ip(address))
			break;
		value += len;
		value += strspn(value, " \t");
		if (!*value)
			return NULL;
		if (*value++ != ',')
			break;
	}
	return "give IPv4 or IPv6 addresses with commas between";
}

const char *conf_check_absolute(const char *value)
{
	return *value == '/' ? NULL : "give a directory's path from / on";
}

static int open_in(const char *root, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT};

	if (!root)
		return open(path, flags | O_CLOEXEC);
	int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -1;
	int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	int error = errno;
	close(root_fd);
	errno = error;
	return fd;
}

int conf_check_open_directory_in(const char *root, const char *dir)
{
	return open_in(root, dir, O_PATH | O_DIRECTORY);
}

const char *conf_check_directory_in(const char *root, const char *dir)
{
	int fd = conf_check_open_directory_in(root, dir);

	if (fd >= 0) {
		close(fd);
		return NULL;
	}
	if (errno == ENOTDIR)
		return "this is not a directory";
	return errno == ENOENT || errno == ELOOP || errno == ENAMETOOLONG ? "there is no such directory" : NULL;
}

const char *conf_check_directory(const char *value)
{
	const char *wrong = conf_check_absolute(value);

	return wrong ? wrong : conf_check_directory_in(NULL, value);
}

const char *conf_check_access_format(const char *value)
{
	return access_format_check(value);
}

const char *conf_check_ping_path(const char *value)
{
	if (*value != '/')
		return "it must start with /";
	if (!value[1])
		return "it needs more than the /";
	for (; *value; value++)
		if (!isalnum((unsigned char)*value) && !strchr("/-_.~", *value))
			return "only letters, digits and / - _ . ~ may be in it";
	return NULL;
}

const char *conf_check_extensions(const char *value)
{
	while (*(value += strspn(value, " \t"))) {
		size_t len = strcspn(value, " \t");
		if (*value != '.' || len < 2 || memchr(value, ',', len))
			return "each extension starts with a dot, with spaces between: .php .phar";
		value += len;
	}
	return NULL;
}

const char *conf_check_command(const char *value)
{
	size_t len = strcspn(value, " \t");

	return len && len < PROGRAM_MAX ? NULL : "give a program, by name or path";
}

/* False with errno EACCES: nobody can tell. */
static bool is_program(const char *root, const char *path)
{
	struct stat st;
	int fd = open_in(root, path, O_PATH);
	bool found = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111);
	int error = fd >= 0 ? 0 : errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return found;
}

static bool is_in_path(const char *root, const char *name)
{
	const char *path = getenv("PATH");
	char file[PROGRAM_MAX];

	for (path = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"; *path;) {
		size_t len = strcspn(path, ":");
		int n = snprintf(file, sizeof(file), "%.*s/%s", (int)len, path, name);
		if (len && n > 0 && (size_t)n < sizeof(file) && is_program(root, file))
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

/* The program is the first word; the rest are its arguments. */
const char *conf_check_program_in(const char *root, const char *command)
{
	char name[PROGRAM_MAX];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(command, " \t"), command);
	if (!strchr(name, '/'))
		return is_in_path(root, name) ? NULL : "program not found in PATH";
	return is_program(root, name) || errno == EACCES ? NULL : "program not found, or not executable";
}

const char *conf_check_env_name(const char *name)
{
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return "a variable's name has letters, digits and _ only";
	return *name && !isdigit((unsigned char)*name) ? NULL : "a variable's name starts with a letter or _";
}

const char *conf_check_php_name(const char *name)
{
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
			return "a PHP setting's name has letters, digits and _ . - only";
	return *name ? NULL : "a PHP setting's name is missing between the [ ]";
}

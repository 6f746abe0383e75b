#include "pool/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORKER_BACKLOG = 8, EXIT_NOT_STARTED = 127 };

extern char **environ;

/* ---- arguments and environment ---- */

struct strings {
	char **items;
	size_t count;
	bool failed;
};

/* Takes the string over; NULL marks a failure. */
static void strings_add(struct strings *s, char *item)
{
	char **grown = item ? realloc(s->items, (s->count + 2) * sizeof *grown) : NULL;

	if (!grown) {
		free(item);
		s->failed = true;
		return;
	}
	s->items = grown;
	grown[s->count++] = item;
	grown[s->count] = NULL;
}

void spawn_strings_free(char **strings)
{
	for (size_t i = 0; strings && strings[i]; i++)
		free(strings[i]);
	free(strings);
}

static char **strings_take(struct strings *s)
{
	if (!s->failed)
		return s->items;
	spawn_strings_free(s->items);
	return NULL;
}

static char *format(const char *form, const char *a, const char *b)
{
	char *text;
	return asprintf(&text, form, a, b) < 0 ? NULL : text;
}

/* One word of a command: spaces separate, quotes of both kinds keep them.
 * NULL at the end, or with *at NULL where a quote is not closed. */
static char *next_word(const char **at)
{
	char quote = 0;
	const char *p = *at + strspn(*at, " \t");
	char *word = *p ? malloc(strlen(p) + 1) : NULL, *out = word;

	for (; word && *p && (quote || (*p != ' ' && *p != '\t')); p++) {
		if (*p == quote)
			quote = 0;
		else if (!quote && (*p == '"' || *p == '\''))
			quote = *p;
		else
			*out++ = *p;
	}
	if (word)
		*out = '\0';
	*at = quote ? NULL : p;
	return word;
}

char **spawn_argv(const struct pool_settings *settings, const struct phpini *ini)
{
	struct strings s = {0};
	const char *at = settings->worker_command;
	char *word;

	while (at && (word = next_word(&at)) != NULL)
		strings_add(&s, word);
	if (!at || *at || s.count == 0) /* not closed, out of memory, no word */
		s.failed = true;
	for (char **arg = ini->args; arg && *arg; arg++)
		strings_add(&s, strdup(*arg));
	return strings_take(&s);
}

static bool is_set(const struct pool_settings *settings, const char *name, size_t len)
{
	for (size_t i = 0; i < settings->env.count; i++) {
		const char *other = settings->env.items[i].name;
		if (strlen(other) == len && memcmp(other, name, len) == 0)
			return true;
	}
	return false;
}

/* php-cgi must neither fork by itself nor count its requests. */
static bool is_php_fcgi(const char *variable)
{
	return strncmp(variable, "PHP_FCGI_", 9) == 0;
}

/* Of the account that the worker runs as, whatever was inherited. */
static void add_account(struct strings *s, const struct pool_settings *settings, const struct passwd *account)
{
	if (account && !is_set(settings, "USER", 4))
		strings_add(s, format("%s=%s", "USER", account->pw_name));
	if (account && !is_set(settings, "HOME", 4))
		strings_add(s, format("%s=%s", "HOME", account->pw_dir));
}

static bool is_inherited(const struct pool_settings *settings, const char *variable, bool has_account)
{
	size_t len = strcspn(variable, "=");

	if (has_account && len == 4 && (memcmp(variable, "USER", 4) == 0 || memcmp(variable, "HOME", 4) == 0))
		return false;
	return !is_php_fcgi(variable) && !is_set(settings, variable, len);
}

char **spawn_envp(const struct pool_settings *settings)
{
	struct strings s = {0};
	const struct passwd *account = getpwuid(geteuid());

	for (char **e = environ; !settings->clear_env && *e; e++) {
		if (is_inherited(settings, *e, account != NULL))
			strings_add(&s, strdup(*e));
	}
	for (size_t i = 0; i < settings->env.count; i++) {
		const struct setting_pair *pair = &settings->env.items[i];
		if (!is_php_fcgi(pair->name))
			strings_add(&s, format("%s=%s", pair->name, pair->value));
	}
	add_account(&s, settings, account);
	strings_add(&s, strdup("PHP_FCGI_MAX_REQUESTS=0"));
	return strings_take(&s);
}

/* ---- the private socket ---- */

static int bind_in(const char *dir)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool bound = false;

	if (fd >= 0 && dir_fd >= 0) {
		/* Through the descriptor, so that no directory is too long for it. */
		snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/s", dir_fd);
		bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, WORKER_BACKLOG) == 0;
	}
	int error = errno;
	if (dir_fd >= 0)
		close(dir_fd);
	if (bound)
		return fd;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}

static int private_socket_in(const char *parent, int *path_fd)
{
	char dir[4096], path[4200];

	if ((size_t)snprintf(dir, sizeof dir, "%s/h2fpm-XXXXXX", parent) >= sizeof dir) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/s", dir);
	int fd = bind_in(dir);
	*path_fd = fd >= 0 ? open(path, O_PATH | O_CLOEXEC) : -1;
	int error = errno;
	unlink(path);
	rmdir(dir);
	if (fd >= 0 && *path_fd < 0) {
		close(fd);
		fd = -1;
	}
	errno = error;
	return fd;
}

/* A listening socket whose name is gone again, and its inode in *path_fd. In
 * memory where possible: a full disk must not keep workers from starting. */
static int private_socket(const struct pool_settings *settings, int *path_fd)
{
	const char *const parents[] = {"/dev/shm", settings->request_spool_dir, "/tmp"};
	int fd = -1;

	for (size_t i = 0; i < sizeof parents / sizeof parents[0] && fd < 0; i++)
		fd = private_socket_in(parents[i], path_fd);
	return fd;
}

int spawn_connect(int socket_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", socket_fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* ---- the child ---- */

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void fail(const char *what)
{
	dprintf(2, "%s: %s\n", what, strerror(errno));
	_exit(EXIT_NOT_STARTED);
}

static void run_child(const struct pool_settings *settings, char **argv, char **envp, const struct rlimit *nofile,
		      int listen_fd, int err_fd, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(EXIT_NOT_STARTED);
	reset_signals();
	int null_fd = open("/dev/null", O_WRONLY);
	if (dup2(listen_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(err_fd, 2) < 0)
		_exit(EXIT_NOT_STARTED);
	close_range(3, ~0U, 0);
	setrlimit(RLIMIT_NOFILE, nofile);
	setpriority(PRIO_PROCESS, 0, settings->worker_nice);
	if (settings->chdir && chdir(settings->chdir) != 0)
		fail(settings->chdir);
	execvpe(argv[0], argv, envp); /* looked up in the broker's PATH */
	fail(argv[0]);
}

static pid_t fork_child(const struct pool_settings *settings, char **argv, char **envp, const struct rlimit *nofile,
			int listen_fd, int err_fd)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0)
		run_child(settings, argv, envp, nofile, listen_fd, err_fd, parent);
	return pid;
}

bool spawn_worker(const struct pool_settings *settings, char **argv, char **envp, const struct rlimit *nofile,
		  struct spawn_result *out)
{
	int err[2];
	int listen_fd = private_socket(settings, &out->socket_fd);

	if (listen_fd < 0)
		return false;
	out->pid = -1;
	if (pipe2(err, O_CLOEXEC) == 0) {
		out->err_fd = err[0];
		fcntl(err[0], F_SETFL, O_NONBLOCK);
		out->pid = fork_child(settings, argv, envp, nofile, listen_fd, err[1]);
		int error = errno;
		close(err[1]);
		if (out->pid < 0)
			close(err[0]);
		errno = error;
	}
	int error = errno;
	close(listen_fd);
	if (out->pid < 0)
		close(out->socket_fd);
	errno = error;
	return out->pid > 0;
}

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

#include "pool/confine.h"
#include "pool/gate_proto.h"

enum { WORKER_BACKLOG = 8, EXIT_NOT_STARTED = 127 };

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

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

static void add_environment(struct strings *s, const struct pool_settings *settings)
{
	const struct passwd *account = getpwuid(geteuid());

	for (char **e = environ; !settings->clear_env && *e; e++) {
		if (is_inherited(settings, *e, account != NULL))
			strings_add(s, strdup(*e));
	}
	for (size_t i = 0; i < settings->env.count; i++) {
		const struct setting_pair *pair = &settings->env.items[i];
		if (!is_php_fcgi(pair->name))
			strings_add(s, format("%s=%s", pair->name, pair->value));
	}
	add_account(s, settings, account);
	strings_add(s, strdup("PHP_FCGI_MAX_REQUESTS=0"));
}

char **spawn_envp(const struct pool_settings *settings)
{
	struct strings s = {0};

	add_environment(&s, settings);
	return strings_take(&s);
}

static void add_optional(struct strings *s, const char *name, const char *value)
{
	if (value)
		strings_add(s, format("%s=%s", name, value));
}

static struct confine confinement(const struct pool_settings *settings)
{
	return (struct confine){
		.chroot = settings->was_root ? settings->chroot : NULL,
		.chdir = settings->chdir,
		.apparmor_hat = settings->apparmor_hat,
		/* As in php-fpm, where it is the change of user that forbids it. */
		.undumpable = settings->was_root && !settings->process_dumpable,
		.no_new_privs = settings->process_no_new_privs,
	};
}

/* The gate comes first; what the pool means to preload comes with it. */
static bool add_preload(struct strings *s)
{
	for (size_t i = 0; i < s->count; i++) {
		if (strncmp(s->items[i], "LD_PRELOAD=", 11) != 0)
			continue;
		char *both = NULL, *theirs = format("%s=%s", GATE_ENV_PRELOAD, s->items[i] + 11);
		if (asprintf(&both, "LD_PRELOAD=/proc/self/fd/%d:%s", GATE_FD_IMAGE, s->items[i] + 11) < 0)
			both = NULL;
		strings_add(s, theirs);
		if (!both)
			return false;
		free(s->items[i]);
		s->items[i] = both;
		return true;
	}
	char *ours = NULL;
	if (asprintf(&ours, "LD_PRELOAD=/proc/self/fd/%d", GATE_FD_IMAGE) < 0)
		ours = NULL;
	strings_add(s, ours);
	return true;
}

char **spawn_zygote_envp(const struct pool_settings *settings)
{
	struct strings s = {0};
	const struct confine c = confinement(settings);
	char *pid = NULL;

	add_environment(&s, settings);
	if (!s.failed && !add_preload(&s))
		s.failed = true;
	if (asprintf(&pid, "%s=%d", GATE_ENV, (int)getpid()) < 0)
		pid = NULL;
	strings_add(&s, pid);
	add_optional(&s, GATE_ENV_CHROOT, c.chroot);
	add_optional(&s, GATE_ENV_CHDIR, c.chdir);
	add_optional(&s, GATE_ENV_HAT, c.apparmor_hat);
	add_optional(&s, GATE_ENV_UNDUMPABLE, c.undumpable ? "1" : NULL);
	add_optional(&s, GATE_ENV_NO_NEW_PRIVS, c.no_new_privs ? "1" : NULL);
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

_Noreturn static void fail(const char *what)
{
	dprintf(2, "%s: %s\n", what, strerror(errno));
	_exit(EXIT_NOT_STARTED);
}

/* The limits and the nice value are inherited by what a zygote forks. */
static void set_limits(const struct spawn_plan *plan)
{
	const struct pool_settings *s = plan->settings;
	struct rlimit nofile = plan->nofile;

	if (s->rlimit_files >= 0)
		nofile.rlim_cur = nofile.rlim_max = (rlim_t)s->rlimit_files;
	if (setrlimit(RLIMIT_NOFILE, &nofile) != 0)
		fail("rlimit_files");
	if (s->rlimit_core != RLIMIT_UNSET) {
		rlim_t bytes = s->rlimit_core == RLIMIT_UNLIMITED ? RLIM_INFINITY : (rlim_t)s->rlimit_core;
		if (setrlimit(RLIMIT_CORE, &(struct rlimit){bytes, bytes}) != 0)
			fail("rlimit_core");
	}
	setpriority(PRIO_PROCESS, 0, s->worker_nice);
}

/* Copies first: a source may stand where a target is to be. */
static bool place_gate(const struct spawn_plan *plan)
{
	int link = fcntl(plan->gate_link, F_DUPFD, 2 * GATE_FD_IMAGE);
	int image = fcntl(plan->gate_image, F_DUPFD, 2 * GATE_FD_IMAGE);

	return link >= 0 && image >= 0 && dup2(link, GATE_FD_LINK) >= 0 && dup2(image, GATE_FD_IMAGE) >= 0;
}

/* For the workers to come back to; where they may not be, they stay in the root
 * directory. */
static void leave_directory(void)
{
	int fd = open(".", O_PATH | O_DIRECTORY);

	if (fd < 0)
		fd = open("/", O_PATH | O_DIRECTORY);
	if (fd < 0 || dup2(fd, GATE_FD_CWD) < 0 || chdir("/") != 0)
		fail("chdir");
	if (fd != GATE_FD_CWD)
		close(fd);
}

/* A zygote is not confined, its workers are: what it is to load may lie outside
 * of their root. */
static void confine(const struct pool_settings *settings, bool is_zygote)
{
	const struct confine c = confinement(settings);
	const char *failed = is_zygote ? NULL : confine_apply(&c, true);

	if (failed)
		fail(failed);
	if (is_zygote && !c.chroot && c.chdir && chdir(c.chdir) != 0)
		fail("chdir");
	if (is_zygote)
		leave_directory();
}

/* Looked up in the broker's PATH, as execvpe() does; but that would have a shell
 * run what is no program, a half-copied php-cgi, say, line by line. */
_Noreturn static void execute(const struct spawn_plan *plan)
{
	const char *name = plan->argv[0], *path = strchr(name, '/') ? NULL : getenv("PATH");
	char file[4096];
	int error = ENOENT;

	if (strchr(name, '/')) {
		execve(name, plan->argv, plan->envp);
		fail(name);
	}
	for (path = path && *path ? path : DEFAULT_PATH; *path;) {
		size_t len = strcspn(path, ":");
		if (len > 0 && (size_t)snprintf(file, sizeof file, "%.*s/%s", (int)len, path, name) < sizeof file)
			execve(file, plan->argv, plan->envp);
		if (errno != ENOENT && errno != ENOTDIR)
			error = errno;
		if (error != ENOENT && error != EACCES)
			break;
		path += len + (path[len] == ':');
	}
	errno = error;
	fail(name);
}

_Noreturn static void run_child(const struct spawn_plan *plan, int listen_fd, int err_fd, pid_t parent)
{
	bool is_zygote = plan->gate_link >= 0;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(EXIT_NOT_STARTED);
	reset_signals();
	int null_fd = open("/dev/null", O_WRONLY);
	if (dup2(listen_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(err_fd, 2) < 0 || (is_zygote && !place_gate(plan)))
		_exit(EXIT_NOT_STARTED);
	close_range(is_zygote ? GATE_FD_IMAGE + 1 : 3, ~0U, 0);
	set_limits(plan);
	confine(plan->settings, is_zygote);
	execute(plan);
}

static pid_t fork_child(const struct spawn_plan *plan, const struct spawn_ends *ends)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0)
		run_child(plan, ends->listen_fd, ends->err_write_fd, parent);
	return pid;
}

bool spawn_ends_open(struct spawn_ends *ends, const struct pool_settings *settings)
{
	int err[2];

	ends->listen_fd = private_socket(settings, &ends->socket_fd);
	if (ends->listen_fd < 0)
		return false;
	if (pipe2(err, O_CLOEXEC) == 0) {
		ends->err_fd = err[0];
		ends->err_write_fd = err[1];
		fcntl(err[0], F_SETFL, O_NONBLOCK);
		return true;
	}
	int error = errno;
	close(ends->listen_fd);
	close(ends->socket_fd);
	errno = error;
	return false;
}

bool spawn_worker(const struct spawn_plan *plan, struct spawn_result *out)
{
	struct spawn_ends ends;

	if (!spawn_ends_open(&ends, plan->settings))
		return false;
	out->pid = fork_child(plan, &ends);
	out->socket_fd = ends.socket_fd;
	out->err_fd = ends.err_fd;
	int error = errno;
	close(ends.listen_fd);
	close(ends.err_write_fd);
	if (out->pid < 0) {
		close(ends.socket_fd);
		close(ends.err_fd);
	}
	errno = error;
	return out->pid > 0;
}

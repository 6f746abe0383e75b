/* The command line: options as php-fpm's, and which of the program's faces is
 * meant: the master, a pool process that a master starts, or a test. */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "fpm/check.h"
#include "fpm/child.h"
#include "fpm/conf.h"
#include "fpm/log.h"
#include "fpm/master.h"

#ifndef H2FPM_VERSION
#define H2FPM_VERSION "0.1.0"
#endif
#define DEFAULT_CONF "/etc/h2fpm/pool.ini"

enum daemonize { DAEMONIZE_AS_CONFIGURED, DAEMONIZE_YES, DAEMONIZE_NO };

struct options {
	const char *conf_file;
	int test; /* how often -t was given */
	enum daemonize daemonize;
	bool allow_root;
	struct master_options master;
};

enum { OPTION_STRICT = 256 }; /* has no short form */

static const struct option long_options[] = {
	{"fpm-config", required_argument, NULL, 'y'},
	{"test", no_argument, NULL, 't'},
	{"nodaemonize", no_argument, NULL, 'F'},
	{"daemonize", no_argument, NULL, 'D'},
	{"allow-to-run-as-root", no_argument, NULL, 'R'},
	{"force-stderr", no_argument, NULL, 'O'},
	{"version", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"strict", no_argument, NULL, OPTION_STRICT},
	{NULL, 0, NULL, 0},
};

static void print_usage(FILE *out)
{
	fputs("Usage: h2fpm [-h] [-v] [-t] [-y FILE] [-D] [-F [-O]] [-R] [--strict]\n"
	      "Runs PHP (or any FastCGI program) behind a web server in php-fpm's place.\n"
	      "\n"
	      "  -y, --fpm-config FILE        configuration file (default: " DEFAULT_CONF ")\n"
	      "  -t, --test                   check the configuration and exit; -tt also prints it\n"
	      "  -D, --daemonize              run in the background, whatever the configuration says\n"
	      "  -F, --nodaemonize            stay in the foreground, whatever the configuration says\n"
	      "  -O, --force-stderr           in the foreground, log to stderr even if it is not a terminal\n"
	      "  -R, --allow-to-run-as-root   allow a pool to run as root\n"
	      "      --strict                 a mistake in one pool ends the start; without it, the others are served\n"
	      "  -v, --version                print the version and exit\n"
	      "  -h, --help                   print this and exit\n",
	      out);
}

static int refuse_usage(void)
{
	fputs("Try 'h2fpm --help' for the options.\n", stderr);
	return EX_USAGE;
}

static void apply_option(struct options *o, int option)
{
	switch (option) {
	case 'y':
		o->conf_file = optarg;
		break;
	case 't':
		o->test++;
		break;
	case 'F':
		o->daemonize = DAEMONIZE_NO;
		break;
	case 'D':
		o->daemonize = DAEMONIZE_YES;
		break;
	case 'R':
		o->allow_root = true;
		break;
	case OPTION_STRICT:
		o->master.strict = true;
		break;
	default:
		o->master.force_stderr = true;
	}
}

/* False: the program is to end with *status. */
static bool parse_options(struct options *o, int argc, char **argv, int *status)
{
	int option;

	*status = EX_OK;
	while ((option = getopt_long(argc, argv, "y:tFDROvh", long_options, NULL)) != -1) {
		switch (option) {
		case 'h':
			print_usage(stdout);
			return false;
		case 'v':
			puts("h2fpm " H2FPM_VERSION);
			return false;
		case '?':
			*status = refuse_usage();
			return false;
		default:
			apply_option(o, option);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "h2fpm: unexpected argument '%s'\n", argv[optind]);
		*status = refuse_usage();
		return false;
	}
	return true;
}

static void on_conf_error(void *context, const char *line)
{
	(void)context;
	log_error("%s", line);
}

/* Else a socket or a log could get their numbers, and what is printed. */
static void keep_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* What would end us by default and is only a wish: the master takes these
 * once it runs. INT and TERM end a start that hangs. */
static void defer_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGCHLD, SIG_DFL); /* ignored, as some starters leave it, nobody could be waited for */
}

static int test(const struct conf *conf, const struct options *o)
{
	if (o->test > 1 && (!conf_dump(conf, NULL, stdout) || fflush(stdout) != 0))
		return EX_SOFTWARE;
	log_notice("configuration file %s test is successful", o->conf_file);
	return EX_OK;
}

static int run(const struct options *o)
{
	bool strict = o->master.strict || o->test > 0;
	struct conf *conf = conf_load(o->conf_file, strict, on_conf_error, NULL);
	int status = EX_CONFIG;

	if (conf != NULL && o->daemonize != DAEMONIZE_AS_CONFIGURED)
		conf->global.daemonize = o->daemonize == DAEMONIZE_YES;
	if (conf != NULL && o->test == 0) /* a test's outcome is told at any level */
		log_set_level((enum log_level)conf->global.log_level);
	if (conf == NULL || !check_all(conf, o->allow_root, strict)) {
		log_error("FPM initialization failed");
	} else {
		status = o->test > 0 ? test(conf, o) : master_run(conf, &o->master);
	}
	conf_free(conf);
	return status;
}

int main(int argc, char **argv)
{
	struct options options = {.conf_file = DEFAULT_CONF};
	int status;

	keep_standard_fds();
	if (argc > 1 && strcmp(argv[1], CHILD_OPTION) == 0)
		return child_main(argc, argv);
	if (!parse_options(&options, argc, argv, &status))
		return status;
	defer_signals();
	return run(&options);
}

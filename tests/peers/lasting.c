/* A worker made with libfcgi for the tests of process management. Each answer
 * begins with its process id and how many requests it has had.
 * QUERY_STRING says what else it does:
 *     leak=N      keeps N MiB for ever
 *     crash       dies of SIGSEGV
 *     work=FILE   ends its answer, works on for three seconds and a file says
 *                 that it is through
 *     environ     writes its environment, a variable a line
 *     hold=FILE   makes FILE.started.PID and answers when there is FILE */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcgiapp.h>

enum { TICK_US = 10000, WORK_TICKS = 300, HOLD_TICKS = 6000 };

extern char **environ;

static void leak(size_t mib)
{
	size_t bytes = mib << 20;
	char *kept = malloc(bytes);

	for (size_t i = 0; kept != NULL && i < bytes; i += 1024)
		((volatile char *)kept)[i] = 1;
}

static void touch(const char *file)
{
	FILE *f = fopen(file, "w");

	if (f != NULL)
		fclose(f);
}

static void work(const char *file)
{
	for (int i = 0; i < WORK_TICKS; i++)
		usleep(TICK_US);
	touch(file);
}

static void hold(const char *file)
{
	char started[4096];

	snprintf(started, sizeof(started), "%s.started.%d", file, (int)getpid());
	touch(started);
	for (int i = 0; i < HOLD_TICKS && access(file, F_OK) != 0; i++)
		usleep(TICK_US);
}

static void answer(FCGX_Request *request, const char *query, int count)
{
	if (strncmp(query, "leak=", 5) == 0)
		leak((size_t)atol(query + 5));
	else if (strncmp(query, "hold=", 5) == 0)
		hold(query + 5);
	else if (strcmp(query, "crash") == 0)
		raise(SIGSEGV);
	FCGX_FPrintF(request->out, "Content-Type: text/plain\r\n\r\n%d %d\n", (int)getpid(), count);
	for (char **e = environ; strcmp(query, "environ") == 0 && *e != NULL; e++)
		FCGX_FPrintF(request->out, "%s\n", *e);
}

int main(void)
{
	FCGX_Request request;

	if (FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0)
		return 1;
	for (int count = 1; FCGX_Accept_r(&request) == 0; count++) {
		const char *param = FCGX_GetParam("QUERY_STRING", request.envp);
		char *query = strdup(param != NULL ? param : "");

		answer(&request, query, count);
		FCGX_Finish_r(&request);
		if (strncmp(query, "work=", 5) == 0)
			work(query + 5);
		free(query);
	}
	return 0;
}

/* A worker made with libfcgi, as any FastCGI program in C is: it shows that
 * worker.command need not be php-cgi. QUERY_STRING says what it does:
 *     params    writes the parameters, one a line
 *     body      writes the number of bytes of the body and their sum
 *     stderr=N  N lines to the error stream, then an answer
 *     big=N     an answer of N bytes
 *     finish    closes its output, lives on for a second, then ends
 *     status    ends with the application status 7
 *     nothing   ends without a byte of output */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcgiapp.h>

static void show_params(FCGX_Request *request)
{
	for (char **env = request->envp; *env != NULL; env++)
		FCGX_FPrintF(request->out, "%s\n", *env);
}

static void count_body(FCGX_Request *request)
{
	long bytes = 0;
	long sum = 0;

	for (int c = FCGX_GetChar(request->in); c >= 0; c = FCGX_GetChar(request->in)) {
		bytes++;
		sum += c;
	}
	FCGX_FPrintF(request->out, "%d %d", (int)bytes, (int)sum);
}

static void write_stderr(FCGX_Request *request, int lines)
{
	for (int i = 0; i < lines; i++)
		FCGX_FPrintF(request->err, "line %d of the error stream\n", i);
	FCGX_PutS("logged", request->out);
}

static void write_big(FCGX_Request *request, long bytes)
{
	static char block[8192];

	memset(block, 'B', sizeof(block));
	while (bytes > 0) {
		int part = bytes > (long)sizeof(block) ? (int)sizeof(block) : (int)bytes;

		if (FCGX_PutStr(block, part, request->out) < part)
			return;
		bytes -= part;
	}
}

static void answer(FCGX_Request *request)
{
	const char *query = FCGX_GetParam("QUERY_STRING", request->envp);

	if (query != NULL && strcmp(query, "nothing") == 0)
		return;
	FCGX_SetExitStatus(0, request->out); /* libfcgi keeps the last request's */
	FCGX_PutS("Content-Type: text/plain\r\n\r\n", request->out);
	if (query == NULL || strcmp(query, "params") == 0) {
		show_params(request);
	} else if (strcmp(query, "body") == 0) {
		count_body(request);
	} else if (strncmp(query, "stderr=", 7) == 0) {
		write_stderr(request, atoi(query + 7));
	} else if (strncmp(query, "big=", 4) == 0) {
		write_big(request, atol(query + 4));
	} else if (strcmp(query, "finish") == 0) {
		FCGX_PutS("finished", request->out);
		FCGX_FClose(request->out);
		sleep(1);
	} else if (strcmp(query, "status") == 0) {
		FCGX_PutS("seven", request->out);
		FCGX_SetExitStatus(7, request->out);
	}
}

int main(void)
{
	FCGX_Request request;

	if (FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0)
		return 1;
	while (FCGX_Accept_r(&request) == 0) {
		answer(&request);
		FCGX_Finish_r(&request);
	}
	return 0;
}

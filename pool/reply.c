#include "pool/reply.h"

#define PLAIN "Content-Type: text/plain; charset=UTF-8\r\nCache-Control: no-store\r\n"
#define TEXT(status, line, reason, headers, body)                                                                      \
	{                                                                                                              \
		(status), (reason), "Status: " line "\r\n" headers "\r\n" body                                        \
	}
#define BUSY(reason, body)                                                                                             \
	TEXT(503, "503 Service Unavailable", reason, PLAIN "Retry-After: 1\r\n", "503 Service Unavailable: " body "\n")

static const struct reply_text texts[REPLY_COUNT] = {
	[REPLY_BAD_REQUEST] =
		TEXT(400, "400 Bad Request", "bad parameters", PLAIN, "400 Bad Request: malformed request parameters.\n"),
	[REPLY_DENIED] = TEXT(403, "403 Forbidden", "extension not allowed", "Content-Type: text/html; charset=UTF-8\r\n",
			      "Access denied.\n"),
	[REPLY_NO_FILE] = TEXT(404, "404 Not Found", "no such script", "Content-Type: text/html; charset=UTF-8\r\n",
			       "No input file specified.\n"),
	[REPLY_RECEIVE_TIMEOUT] = TEXT(408, "408 Request Timeout", "request.receive_timeout", PLAIN,
				       "408 Request Timeout: the request did not come in time.\n"),
	[REPLY_BODY_TOO_LARGE] = TEXT(413, "413 Content Too Large", "request.max_body", PLAIN,
				      "413 Content Too Large: the request body is over the limit.\n"),
	[REPLY_PARAMS_TOO_LARGE] =
		TEXT(431, "431 Request Header Fields Too Large", "request.max_params", PLAIN,
		     "431 Request Header Fields Too Large: the request parameters are over the limit.\n"),
	[REPLY_WORKER_LOST] = TEXT(502, "502 Bad Gateway", "worker lost", PLAIN,
				   "502 Bad Gateway: the script's process ended before it answered.\n"),
	[REPLY_QUEUE_FULL] = BUSY("queue.max", "too many requests are waiting."),
	[REPLY_QUEUE_TIMEOUT] = BUSY("queue.timeout", "no worker became free in time."),
	[REPLY_DRAINING] = BUSY("draining", "the service is stopping."),
	[REPLY_NO_WORKER] = BUSY("no worker starts", "no worker can be started."),
	[REPLY_NO_SPACE] = BUSY("request.spool_dir", "the request body cannot be stored."),
	[REPLY_NO_MEMORY] = BUSY("mpxs.buffer_size", "this connection has too much to hold."),
	[REPLY_TERMINATE_TIMEOUT] = TEXT(504, "504 Gateway Timeout", "request_terminate_timeout", PLAIN,
					 "504 Gateway Timeout: the script ran for too long.\n"),
};

const struct reply_text *reply_text(enum reply reply)
{
	return &texts[reply];
}

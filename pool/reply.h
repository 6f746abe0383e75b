/* The answers that the broker gives without a worker: CGI response text
 * (RFC 3875, section 6) for the front end to pass on. Constant data. */
#ifndef H2FPM_POOL_REPLY_H
#define H2FPM_POOL_REPLY_H

enum reply {
	REPLY_BAD_REQUEST,       /* 400 */
	REPLY_DENIED,            /* 403, php-fpm's text */
	REPLY_NO_FILE,           /* 404, php-cgi's text */
	REPLY_RECEIVE_TIMEOUT,   /* 408 */
	REPLY_BODY_TOO_LARGE,    /* 413 */
	REPLY_PARAMS_TOO_LARGE,  /* 431 */
	REPLY_WORKER_LOST,       /* 502 */
	REPLY_QUEUE_FULL,        /* 503 */
	REPLY_QUEUE_TIMEOUT,     /* 503 */
	REPLY_DRAINING,          /* 503 */
	REPLY_NO_WORKER,         /* 503: none starts */
	REPLY_NO_SPACE,          /* 503: the body cannot be stored */
	REPLY_NO_MEMORY,         /* 503: mpxs.buffer_size */
	REPLY_TERMINATE_TIMEOUT, /* 504 */
	REPLY_COUNT,
};

struct reply_text {
	int status;
	const char *reason; /* for the log */
	const char *text;
};

const struct reply_text *reply_text(enum reply reply);

#endif

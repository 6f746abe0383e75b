/* A request while it is RECEIVING: its parameters and body are taken in,
 * within their limits, and it is judged whether it may run. Ends with
 * request_enqueue(), or with an answer that needs no worker. */
#ifndef H2FPM_POOL_INTAKE_H
#define H2FPM_POOL_INTAKE_H

#include <stddef.h>
#include <stdint.h>

struct request;

/* What the client sends, in this order; any of them may end the request, and
 * even its connection. Ignored once the request is past RECEIVING. */
void intake_params(struct request *r, const uint8_t *data, size_t len);
void intake_params_end(struct request *r);
void intake_stdin(struct request *r, const uint8_t *data, size_t len);
void intake_stdin_end(struct request *r);

#endif

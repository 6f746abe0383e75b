/* Where front ends come in: the listening sockets, and the account of
 * descriptors. Accepts only as many connections as leave the workers and the
 * spool files theirs; the rest wait in the backlog. */
#ifndef H2FPM_POOL_FRONTEND_H
#define H2FPM_POOL_FRONTEND_H

#include <stdbool.h>

struct broker;

bool frontend_init(struct broker *b, int listen_count) __attribute__((warn_unused_result));
void frontend_fini(struct broker *b);
void frontend_close_listeners(struct broker *b);
/* Takes what waits in the backlog and closes the listeners. */
void frontend_drain(struct broker *b);

/* Whether a spool file may be opened without taking a worker's descriptor. */
bool frontend_has_descriptor(const struct broker *b);
/* A descriptor became free: accepting may go on. */
void frontend_resume(struct broker *b);

#endif

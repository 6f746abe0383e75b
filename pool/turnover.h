/* Which workers leave, and when: idle ones that are too many, those that have
 * served their time (recycle.h), and all of them when php.ini is to be read
 * anew, the last by way of a fresh zygote. Whoever is replaced serves until
 * somebody else is there. crew.c starts the new ones. */
#ifndef H2FPM_POOL_TURNOVER_H
#define H2FPM_POOL_TURNOVER_H

#include <stdbool.h>

#include "pool/zygote.h"

struct broker;
struct worker;

bool turnover_init(struct broker *b) __attribute__((warn_unused_result));
void turnover_fini(struct broker *b);
/* The pool is stopping. */
void turnover_stop(struct broker *b);

/* At the end of a loop turn: before requests are dispatched, those that have
 * been replaced go and the next ones' turn comes; */
void turnover_replace(struct broker *b);
/* and after it, those that have been idle for too long go. */
void turnover_let_go(struct broker *b);

void turnover_on_birth(struct worker *w);
/* Looks whether it has become due to be replaced: to be called when it was
 * given a request, and when it has answered one. */
void turnover_check(struct worker *w);
/* It ends, whatever its time. */
void turnover_forget(struct worker *w);
/* One died of SIGSEGV or SIGBUS (emergency_restart_threshold). */
void turnover_on_fault(struct broker *b);
/* All workers are replaced by new ones that read php.ini anew; the old ones
 * serve until then, and on if no new ones can be had. */
void turnover_renew(struct broker *b, const char *reason);

/* The same because a person wants it: if starts fail, the next one does not wait. */
void turnover_renew_on_command(struct broker *b);

/* A zygote reports. */
void turnover_on_zygote_ready(struct broker *b, struct zygote *z);
/* It has ended, in the state that it was in. how: for the log. */
void turnover_on_zygote_lost(struct broker *b, struct zygote *z, enum zygote_state was, const char *how);

#endif

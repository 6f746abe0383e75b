/* The master: supervises the pools, handles signals, owns log and pid files.
 *
 *     STARTING ──all pools ready──► RUNNING ──QUIT──► DRAINING ──┐
 *         │                            │                 │ TERM  │ all down
 *         └──────────TERM, INT─────────┴──► TERMINATING ◄┘       ▼
 *                                               │ 2 s, TERM     gone
 *                                               └──► KILLING ────┘
 *
 * It parses no byte of a request. What fails before anything was started ends
 * it with 78 and the reason; later it ends only when told to. */
#ifndef H2FPM_FPM_MASTER_H
#define H2FPM_FPM_MASTER_H

#include <stdbool.h>

#include "fpm/conf.h"

struct master_options {
	bool force_stderr; /* in the foreground, log there whatever error_log says */
	bool strict; /* --strict: one pool that cannot be served ends the start */
};

/* Runs to the end; conf has been checked. Returns the exit status. In the
 * background (conf says so) only the new process returns. */
int master_run(const struct conf *conf, const struct master_options *options);

#endif

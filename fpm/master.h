/* The master: supervises the pools, handles signals, owns log and pid files.
 *
 *     STARTING ──pools are ready──► RUNNING ──QUIT──► DRAINING ──┐
 *         │                            │                 │ TERM  │ all down
 *         └──────────TERM, INT─────────┴──► TERMINATING ◄┘       ▼
 *                                               │ 2 s, TERM     gone
 *                                               └──► KILLING ────┘
 *
 * It parses no byte of a request. A pool that cannot be served costs the others
 * nothing: the start has succeeded when one pool is ready and each other one has
 * been tried, or is disabled (--strict: when all are ready). What fails before
 * anything was started, or leaves no pool, ends the master with 78 and the
 * reason; else it ends only when told to.
 *
 * What a dead pool process leaves behind comes to the master, a subreaper, and
 * is killed, unless strangers may come to it too: as a container's first process
 * or one that had children when it began. */
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

/* Going to the background: whoever started us waits until the start has
 * succeeded or failed, and exits accordingly. */
#ifndef H2FPM_FPM_DAEMON_H
#define H2FPM_FPM_DAEMON_H

/* Returns in the new session only, with what daemon_ready() is to be given;
 * the old process never returns from it. -1: it failed, with errno. */
int daemon_detach(void);
/* Lets the waiting process exit with 0 and lets go of the standard streams. */
void daemon_ready(int waiting_fd);

#endif

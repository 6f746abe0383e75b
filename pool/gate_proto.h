/* What the broker and the gate inside php-cgi say to each other, over a
 * SOCK_SEQPACKET pair: one struct gate_packet is one packet. Both are built
 * together, on one machine. */
#ifndef H2FPM_POOL_GATE_PROTO_H
#define H2FPM_POOL_GATE_PROTO_H

#include <signal.h>
#include <stdint.h>

/* The zygote's descriptors: they survive an exec, so that a shell script may
 * stand before php-cgi. The gate takes all of them away. GATE_FD_CWD is the workers'
 * directory: php-cgi takes a php.ini from where it is started, which is not to
 * be where a site's owner writes. */
enum { GATE_FD_LINK = 3, GATE_FD_IMAGE = 4, GATE_FD_CWD = 5 };

/* The zygote's environment. The gate removes all of it from what PHP sees. */
#define GATE_ENV "H2FPM_GATE"                 /* the broker's process id */
#define GATE_ENV_PRELOAD "H2FPM_PRELOAD"      /* LD_PRELOAD as it is to be seen; unset: none */
#define GATE_ENV_CHROOT "H2FPM_CHROOT"        /* struct confine, see confine.h */
#define GATE_ENV_CHDIR "H2FPM_CHDIR"
#define GATE_ENV_HAT "H2FPM_HAT"
#define GATE_ENV_UNDUMPABLE "H2FPM_UNDUMPABLE"
#define GATE_ENV_NO_NEW_PRIVS "H2FPM_NO_NEW_PRIVS"

/* Tells a worker that is idle to go: at once, where it holds nothing that PHP's
 * own end would take leave of, else as SIGTERM does. */
#define GATE_LEAVE_SIGNAL (SIGRTMIN + 5)

enum gate_kind {
	/* gate → broker */
	GATE_LOADED = 'L', /* this is a php-cgi, and PHP begins to start */
	GATE_READY = 'R',  /* it has started and waits for orders */
	GATE_BORN = 'B',   /* from the new worker itself: the kernel tells who (SCM_CREDENTIALS) */
	GATE_FAILED = 'F', /* no worker: error is an errno */
	/* broker → gate */
	GATE_SPAWN = 'S', /* with two descriptors: the worker's 0, a listening socket, and its 2 */
};

struct gate_packet {
	uint32_t kind;
	uint32_t order; /* GATE_SPAWN, and what answers it */
	int32_t error;
};

#endif

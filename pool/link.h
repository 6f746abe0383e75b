/* What the master and a pool process say to each other, and the descriptors
 * that a pool process is started with. The link is a SOCK_SEQPACKET pair: one
 * message is one packet: its first byte is the kind, and where "n" stands a
 * uint32_t follows in the machine's byte order, LINK_COUNTED_BYTES in all.
 * Each side treats the other's end of file as the other's death, and anything
 * else that it does not know as gossip. */
#ifndef H2FPM_POOL_LINK_H
#define H2FPM_POOL_LINK_H

/* Fixed descriptors of a pool process; listeners follow from LINK_FD_LISTEN
 * on, one for each address. 0 and 1 are /dev/null, 2 is the master's. */
enum {
	LINK_FD_LINK = 3,
	LINK_FD_SETTINGS = 4, /* a memfd: the pool's section and its [global] as INI */
	LINK_FD_LOG = 5,
	LINK_FD_ACCESS_LOG = 6, /* /dev/null when the pool has none */
	LINK_FD_LISTEN = 7,
};

enum link_message {
	/* master → pool */
	LINK_DRAIN = 'D', /* stop accepting, finish what is here, exit 0 */
	LINK_LOGS = 'L',  /* SCM_RIGHTS: the reopened error log and access log */
	LINK_RENEW = 'N', /* replace all workers by new ones that read php.ini anew; nothing is lost */
	LINK_GRANT = 'G', /* n: so many more workers may be started (only with process.max) */
	/* pool → master */
	LINK_READY = 'R',     /* the loop runs and the workers are being started */
	LINK_HEARTBEAT = 'H', /* every LINK_HEARTBEAT_MS */
	LINK_WANT = 'W',      /* n: how many more it would start now; replaces the number that it said before */
	LINK_RETURN = 'B',    /* n: so many of its granted places are free again */
};

enum { LINK_HEARTBEAT_MS = 1000, LINK_COUNTED_BYTES = 5 };

#endif

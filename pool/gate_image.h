/* The gate as a file: the shared library that gate.c is built into, carried
 * inside the program, so that there is none to install, to miss or to mix up
 * with another version's. */
#ifndef H2FPM_POOL_GATE_IMAGE_H
#define H2FPM_POOL_GATE_IMAGE_H

/* A sealed memfd with it, close-on-exec, the caller's; -1 with errno set. */
int gate_image_open(void);

#endif

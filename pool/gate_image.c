#include "pool/gate_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef GATE_FILE
#define GATE_FILE "build/gate.so" /* for who reads this file alone; the Makefile says which */
#endif

__asm__(".pushsection .rodata\n"
	"gate_image_start:\n"
	".incbin \"" GATE_FILE "\"\n"
	"gate_image_end:\n"
	".balign 8\n"
	"gate_image_bytes:\n"
	".quad gate_image_end - gate_image_start\n"
	".popsection\n");
extern const char gate_image_start[];
extern const uint64_t gate_image_bytes;

int gate_image_open(void)
{
	size_t len = (size_t)gate_image_bytes;
	int fd = memfd_create("h2fpm-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (write(fd, gate_image_start, len) == (ssize_t)len &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Numbers that look random and are the same in every run (xorshift). */
#ifndef H2FPM_TESTS_DICE_H
#define H2FPM_TESTS_DICE_H

#include <stdint.h>

enum { DICE_SEED = 88172645 };

/* 0 to sides - 1; *dice must not be 0. */
static inline uint32_t dice_roll(uint64_t *dice, uint32_t sides)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (uint32_t)(*dice >> 32) % sides;
}

#endif

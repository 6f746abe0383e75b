/* process.max at work: tells the slots' processes what the quota grants them. */
#ifndef H2FPM_FPM_PLACES_H
#define H2FPM_FPM_PLACES_H

#include "fpm/log.h"
#include "fpm/quota.h"
#include "fpm/slot.h"

/* Grants all that can be granted now. slots: quota->count of them. A slot that
 * cannot be told is passed over, and what it wants is kept for the next call.
 * What is wanted in vain is logged, through the gate. */
void places_grant(struct quota *quota, struct slot *slots, struct log_gate *gate);

#endif

/* Where one thread waits for another: a word that says whether somebody is parked, and the means to sleep on it. Each thread has a place of
 * its own, so that to wake one disturbs no other: a futex on Linux, a mutex and a condition elsewhere. */
#ifndef COTANGENT_CORE_PARKING_H
#define COTANGENT_CORE_PARKING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct ct_parking {
    _Atomic int parked;
#ifndef __linux__
    pthread_mutex_t lock;
    pthread_cond_t wake;
#endif
} ct_parking;

void ct__parking_init(ct_parking *place);
/* The owner parks in three steps: it announces, looks once more for work, then sleeps until another calls ct__unpark, or takes the
 * announcement back. Either the one who brings work sees the announcement, or the owner sees the work. */
void ct__park_announce(ct_parking *place);
void ct__park_cancel(ct_parking *place);
void ct__park_sleep(ct_parking *place);
bool ct__is_parked(ct_parking *place);
bool ct__unpark(ct_parking *place); /* whether somebody was parked, whom this call and no other has woken */

#endif

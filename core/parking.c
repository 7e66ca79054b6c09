/* Parking of threads, see the header. */
#include "core/parking.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

void ct__parking_init(ct_parking *place) {
    atomic_store(&place->parked, 0);
#ifndef __linux__
    pthread_mutex_init(&place->lock, NULL);
    pthread_cond_init(&place->wake, NULL);
#endif
}

void ct__park_announce(ct_parking *place) { atomic_store(&place->parked, 1); }

void ct__park_cancel(ct_parking *place) { atomic_store(&place->parked, 0); }

bool ct__is_parked(ct_parking *place) { return atomic_load(&place->parked); }

void ct__park_sleep(ct_parking *place) {
#ifdef __linux__
    while (atomic_load(&place->parked)) syscall(SYS_futex, &place->parked, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
#else
    pthread_mutex_lock(&place->lock);
    while (atomic_load(&place->parked)) pthread_cond_wait(&place->wake, &place->lock);
    pthread_mutex_unlock(&place->lock);
#endif
}

bool ct__unpark(ct_parking *place) {
    if (!atomic_exchange(&place->parked, 0)) return false;
#ifdef __linux__
    syscall(SYS_futex, &place->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
#else
    pthread_mutex_lock(&place->lock);
    pthread_cond_signal(&place->wake);
    pthread_mutex_unlock(&place->lock);
#endif
    return true;
}

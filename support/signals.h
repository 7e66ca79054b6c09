/* Threads that the library starts take no signals: those are for the threads of the program. */
#ifndef COTANGENT_SUPPORT_SIGNALS_H
#define COTANGENT_SUPPORT_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* For a thread that is started now; *before is set again afterwards. What a thread's own fault raises is not blocked: it would end the
 * process past the handler that the program has for it. */
static inline void ct__signals_block(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

#endif

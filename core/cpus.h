/* The processors that this process may use, in the order in which threads are best placed on them. */
#ifndef COTANGENT_CORE_CPUS_H
#define COTANGENT_CORE_CPUS_H

#include <pthread.h>

int ct__cpu_count(void);   /* that the process may use, at least 1 */
int ct__cpu_current(void); /* where the calling thread runs; -1: not known */
/* The processors that the process may use, one of every core before any second one; how many there are, 0 where that is not known or they are
 * more than `most`. */
int ct__cpu_order(int *cpus, int most);
void ct__cpu_pin(pthread_t thread, int cpu);

#endif

/* Which processors there are, and which of them share a core: threads that are fewer than the processors are to have a core each. */
#include "core/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__

int ct__cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

int ct__cpu_current(void) { return sched_getcpu(); }

/* The first processor of the core that this one belongs to: itself where the system does not say. */
static int first_of_core(int cpu) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    int first = cpu;
    if (file && fscanf(file, "%d", &first) != 1) first = cpu;
    if (file) fclose(file);
    return first;
}

/* Whether this is a virtual machine. */
static bool is_virtual(void) {
    FILE *info = fopen("/proc/cpuinfo", "r");
    char line[4096];
    bool found = false;
    while (info && !found && fgets(line, sizeof line, info)) found = strstr(line, " hypervisor") != NULL;
    if (info) fclose(info);
    return found;
}

/* A virtual machine seldom says which of its processors share a core; where it does not, two that follow one another mostly do, so every other
 * one comes first. */
int ct__cpu_order(int *cpus, int most) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) > most) return 0;
    int count = 0;
    bool second[CPU_SETSIZE] = {false}, told = false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask)) told |= second[cpu] = first_of_core(cpu) != cpu;
    const bool guess = !told && is_virtual();
    for (int pass = 0; pass < 2; pass++)
        for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &mask) && (guess ? at++ % 2 : second[cpu]) == pass) cpus[count++] = cpu;
    return count;
}

void ct__cpu_pin(pthread_t thread, int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

#else

int ct__cpu_count(void) {
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

int ct__cpu_current(void) { return -1; }

int ct__cpu_order(int *cpus, int most) { return (void)cpus, (void)most, 0; }

void ct__cpu_pin(pthread_t thread, int cpu) { (void)thread, (void)cpu; }

#endif

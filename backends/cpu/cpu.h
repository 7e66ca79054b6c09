/* The CPU backend as the core sees it. */
#ifndef COTANGENT_BACKENDS_CPU_H
#define COTANGENT_BACKENDS_CPU_H

#include <cotangent/backend.h>

extern const ct_backend ct__cpu_backend;

/* The address of a view's first element. */
static inline void *ct__address(const ct_view *view, size_t element_size) {
    return (char *)view->buffer + view->offset * (int64_t)element_size;
}

/* Where its scratch begins. */
static inline void *ct__scratch(const ct_call *call) { return (char *)call->scratch.buffer + call->scratch.offset; }

/* Raise the error for a wrong value of an argument of the call (ct_fail_value): of an index, which has to be below count (-1:
 * 0 or more); of a number of things; of a real number. Always false. */
bool ct__wrong_index(const ct_call *call, int argument, int64_t position, int64_t value, int64_t count);
bool ct__wrong_count(const ct_call *call, int argument, const char *what, int64_t position, int64_t value, int64_t low,
                     int64_t high);
bool ct__wrong_real(const ct_call *call, int argument, const char *what, int64_t position, double value, double low,
                    double high);

#endif

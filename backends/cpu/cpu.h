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

#endif

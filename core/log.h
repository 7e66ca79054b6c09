/* The log of calls: what CT_LOG=dispatch prints. */
#ifndef COTANGENT_CORE_LOG_H
#define COTANGENT_CORE_LOG_H

#include <cotangent/backend.h>
#include <stdatomic.h>

extern _Atomic int ct__log_wanted; /* -1: CT_LOG has not been looked at yet */
bool ct__log_look(void);
static inline bool ct__log_dispatch(void) { /* whether the log is on */
    const int on = atomic_load_explicit(&ct__log_wanted, memory_order_relaxed);
    return on < 0 ? ct__log_look() : on;
}
uint64_t ct__log_now(void);                                  /* nanoseconds */
void ct__log_line(const char *line);                         /* where the log is on */
void ct__log_handed(const ct_infer *infer, const ct_op *to); /* a call that goes on as one of another op */
void ct__log_call(const ct_call *call, const char *kernel, const char *refusals, uint64_t start);

#endif

/* The logs: what CT_LOG=dispatch prints for each call, CT_LOG=capture for a captured graph, and CT_LOG=replay for its replays. */
#ifndef COTANGENT_CORE_LOG_H
#define COTANGENT_CORE_LOG_H

#include <cotangent/backend.h>
#include <stdatomic.h>

extern _Atomic int ct__log_wanted; /* -1: CT_LOG has not been looked at yet */
enum { CT__LOG_DISPATCH = 1, CT__LOG_CAPTURE = 2, CT__LOG_REPLAY = 4 };
int ct__log_look(void);
static inline bool ct__log_on(int log) {
    const int on = atomic_load_explicit(&ct__log_wanted, memory_order_relaxed);
    return (on < 0 ? ct__log_look() : on) & log;
}
static inline bool ct__log_dispatch(void) { return ct__log_on(CT__LOG_DISPATCH); }
uint64_t ct__log_now(void);                                  /* nanoseconds */
void ct__log_line(const char *line);                         /* where that of calls is on */
void ct__log_put(const char *line);                          /* in any case */
void ct__log_handed(const ct_infer *infer, const ct_op *to); /* a call that goes on as one of another op */
void ct__log_call(const ct_call *call, const char *kernel, const char *refusals, uint64_t start);

#endif

/* The log of calls: what CT_LOG=dispatch prints. */
#ifndef COTANGENT_CORE_LOG_H
#define COTANGENT_CORE_LOG_H

#include <cotangent/backend.h>

bool ct__log_dispatch(void);
uint64_t ct__log_now(void);                                  /* nanoseconds */
void ct__log_line(const char *line);                         /* where the log is on */
void ct__log_handed(const ct_infer *infer, const ct_op *to); /* a call that goes on as one of another op */
void ct__log_call(const ct_call *call, const char *kernel, const char *refusals, uint64_t start);

#endif

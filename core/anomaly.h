/* Anomaly mode: where was the first NaN born? */
#ifndef COTANGENT_CORE_ANOMALY_H
#define COTANGENT_CORE_ANOMALY_H

#include "core/node.h"

extern bool ct__anomaly_usual;                 /* CT_ANOMALY=1: of threads that have said nothing; set at the start */
extern _Thread_local bool ct__anomaly_unusual; /* this thread has chosen the other one */
static inline bool ct__anomaly(void) { return ct__anomaly_usual != ct__anomaly_unusual; }

/* False, with an error, if some output holds a NaN and no input does. */
bool ct__anomaly_check_call(const ct_op *op, ct_tensor *const *in, int n_in, ct_tensor *const *out, int n_out);
bool ct__anomaly_check_grads(const ct_op *op, ct_tensor *const *cot, int n_cot, ct_tensor *const *grad, int n_grad);

#endif

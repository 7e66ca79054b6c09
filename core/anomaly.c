/* Anomaly mode: every result is searched for NaN; slow, and only for finding out. */
#include "core/anomaly.h"

#include "core/error.h"
#include "core/registry.h"

bool ct__anomaly_usual;
_Thread_local bool ct__anomaly_unusual;

bool ct_set_anomaly(bool on) {
    ct__registry_start(); /* which reads the environment */
    bool before = ct__anomaly();
    ct__anomaly_unusual = on != ct__anomaly_usual;
    return before;
}

static bool has_nan(ct_tensor *const *list, int n) {
    bool found = false, before = ct_set_grad_enabled(false);
    ct_set_anomaly(false); /* the search is no subject of itself */
    for (int i = 0; i < n && !found; i++) {
        if (!list[i] || !list[i]->storage || !ct_dtype_is_float(list[i]->view.dtype)) continue;
        ct_scope {
            found = ct_item(ct_any(ct_isnan(list[i]))) != 0;
        }
    }
    ct_set_anomaly(true);
    ct_set_grad_enabled(before);
    return found;
}

bool ct__anomaly_check_call(const ct_op *op, ct_tensor *const *in, int n_in, ct_tensor *const *out, int n_out) {
    if ((op->flags & CT_OP_VIEW) || !has_nan(out, n_out) || has_nan(in, n_in)) return true;
    return ct_fail(CT_ERR_VALUE, op->name, "anomaly: the first NaN was born here, from %s",
                   n_in && in[0] ? ct_view_text(&in[0]->view) : "no input");
}

bool ct__anomaly_check_grads(const ct_op *op, ct_tensor *const *cot, int n_cot, ct_tensor *const *grad, int n_grad) {
    if (!has_nan(grad, n_grad) || has_nan(cot, n_cot)) return true;
    return ct_fail(CT_ERR_GRAD, op->name,
                   "anomaly: the first NaN of the backward pass was born in the gradient of this op");
}

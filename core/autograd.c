/* The public face of autograd: leaves, modes, hooks, backward and grad. */
#include "core/alloc.h"
#include "core/backward.h"
#include "core/error.h"

_Thread_local bool ct__grad_mode = true;
_Thread_local ct_dtype ct__autocast = CT_F32;

ct_dtype ct_set_autocast(ct_dtype dtype) {
    ct_dtype before = ct__autocast;
    if (dtype == CT_F32 || dtype == CT_F16 || dtype == CT_BF16) ct__autocast = dtype;
    else ct_fail(CT_ERR_DTYPE, "set_autocast", "the dtype is %s; it can be bf16, f16 or f32", ct_dtype_name(dtype));
    return before;
}

bool ct_grad_enabled(void) { return ct__grad_mode; }

bool ct_set_grad_enabled(bool enabled) {
    bool before = ct__grad_mode;
    ct__grad_mode = enabled;
    return before;
}

static ct_tensor *want_grad(ct_tensor *x) {
    if (x->node) return x; /* a leaf already, or computed from one */
    if (!ct_dtype_is_float(x->view.dtype)) {
        ct_fail(CT_ERR_DTYPE, "set_requires_grad", "x is %s; only floating tensors have gradients",
                ct_view_text(&x->view));
        return NULL;
    }
    if (x->unwanted && x->unwanted->grad) { /* what arrived while it was not wanted */
        ct__tensor_release(x->unwanted->grad);
        x->unwanted->grad = NULL;
    }
    x->node = x->unwanted ? x->unwanted : ct__node_leaf(x);
    x->unwanted = NULL;
    x->node_output = 0;
    return x->node ? x : NULL;
}

static bool forget_grad(ct_tensor *x) {
    if (!x->node) return true;
    if (x->node->op)
        return ct_fail(CT_ERR_GRAD, "set_requires_grad", "x, %s, is computed from others; ct_detach cuts it from them",
                       ct_view_text(&x->view));
    if (x->node->grad) ct__tensor_release(x->node->grad);
    x->node->grad = NULL;
    x->unwanted = x->node; /* a graph that was recorded with it leads to it still, should it be wanted again */
    x->node = NULL;
    return true;
}

ct_tensor *ct_set_requires_grad(ct_tensor *x, bool on) {
    if (!ct__valid(x, "set_requires_grad", "x")) return NULL;
    if (on) return want_grad(x);
    return !ct__pending() && forget_grad(x) ? x : NULL;
}

bool ct_requires_grad(const ct_tensor *x) { return x && x->node; }
bool ct_is_leaf(const ct_tensor *x) { return x && (!x->node || !x->node->op); }

ct_tensor *ct_detach(ct_tensor *x) {
    if (!ct__valid(x, "detach", "x")) return NULL;
    return ct__scope_adopt(ct__tensor_new(&x->view, x->storage));
}

ct_tensor *ct_grad_of(const ct_tensor *leaf) {
    if (!leaf || !leaf->node || leaf->node->op) return NULL;
    return leaf->node->grad;
}

bool ct_set_grad(ct_tensor *leaf, ct_tensor *grad) {
    if (ct__pending() || !ct__valid(leaf, "set_grad", "leaf")) return false;
    if (!leaf->node || leaf->node->op) return ct_fail(CT_ERR_GRAD, "set_grad", "x is no leaf that requires grad");
    if (grad && !ct__valid(grad, "set_grad", "grad")) return false;
    if (grad && (grad->view.dtype != leaf->view.dtype || !ct__view_same_shape(&grad->view, &leaf->view)))
        return ct_fail(CT_ERR_SHAPE, "set_grad", "the gradient is %s, the leaf %s", ct_view_text(&grad->view),
                       ct_view_text(&leaf->view));
    if (grad) ct__tensor_retain(grad);
    ct__tensor_release(leaf->node->grad);
    leaf->node->grad = grad;
    return true;
}

bool ct_hook(ct_tensor *x, ct_hook_fn fn, void *context, void (*release)(void *context)) {
    bool ok = !ct__pending() && ct__valid(x, "hook", "x") && (fn || ct__fail_null("hook", "fn"));
    if (ok && !x->node) ok = ct_fail(CT_ERR_GRAD, "hook", "x does not require grad, so no gradient will come by");
    ct_hook_entry *hook = ok ? ct__alloc(sizeof *hook) : NULL;
    if (!hook) {
        if (ok) ct__fail_memory("hook", sizeof *hook);
        if (release) release(context);
        return false;
    }
    *hook = (ct_hook_entry){.output = x->node_output, .fn = fn, .context = context, .release = release};
    ct_hook_entry **last = &x->node->hooks; /* in order of registration */
    while (*last) last = &(*last)->next;
    *last = hook;
    if (!x->node->op) atomic_fetch_add(&ct__leaf_hooks, 1);
    return true;
}

bool ct_backward_from(ct_tensor *y, ct_tensor *cotangent, unsigned flags) {
    if (ct__pending() || !ct__valid(y, "backward", "y")) return false;
    if (!y->node)
        return ct_fail(CT_ERR_GRAD, "backward",
                       "y is %s and depends on no tensor that requires grad (was it computed under ct_no_grad, or from "
                       "detached tensors?)",
                       ct_view_text(&y->view));
    return ct__backward_pass("backward", &y, 1, cotangent ? &cotangent : NULL, NULL, 0, NULL, flags);
}

bool ct_backward(ct_tensor *loss) { return ct_backward_from(loss, NULL, 0); }

bool ct_grad(ct_tensor *const *ys, int ny, ct_tensor *const *cotangents, ct_tensor *const *xs, int nx,
             ct_tensor **grads, unsigned flags) {
    if (ct__pending()) return false;
    if (!ys || !xs || !grads) return ct__fail_null("grad", !ys ? "ys" : !xs ? "xs" : "grads");
    if (ny < 1 || nx < 1)
        return ct_fail(CT_ERR_VALUE, "grad", "it takes at least one y and one x, not %d and %d", ny, nx);
    for (int i = 0; i < ny; i++)
        if (!ct__valid(ys[i], "grad", "ys[i]")) return false;
    for (int i = 0; i < nx; i++) {
        if (!ct__valid(xs[i], "grad", "xs[i]")) return false;
        if (!xs[i]->node)
            return ct_fail(CT_ERR_GRAD, "grad",
                           "x %d, %s, does not require grad; call ct_set_requires_grad before computing with it", i,
                           ct_view_text(&xs[i]->view));
    }
    for (int i = 0; i < nx; i++) grads[i] = NULL;
    bool ok = ct__backward_pass("grad", ys, ny, cotangents, xs, nx, grads, flags);
    for (int i = 0; i < nx; i++) {
        if (!ok) {
            ct__tensor_release(grads[i]);
            grads[i] = NULL;
        } else if (grads[i]) {
            ok = (grads[i] = ct__scope_adopt(grads[i])) != NULL;
        } else {
            ok = (grads[i] = ct_zeros(ct_shape(xs[i]), .dtype = xs[i]->view.dtype, .device = ct_device_of(xs[i]))) !=
                 NULL;
        }
    }
    for (int i = 0; i < nx && !ok; i++) grads[i] = NULL; /* all or none; those adopted are the scope's */
    return ok;
}

/* Numbers among the arguments of an op. */
#include "core/number.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/error.h"

static void set(ct_tensor *place, ct_dtype dtype, double value) {
    place->magic = CT__ALIVE;
    atomic_init(&place->refs, 0); /* in a caller's place: nobody may hold it */
    place->view.buffer = place->number;
    place->view.origin = 0;
    place->view.offset = 0;
    place->view.dtype = dtype;
    place->view.ndim = 0;
    place->storage = NULL;
    place->node = place->unwanted = NULL;
    place->user = NULL;
    place->node_output = 0;
    place->base = NULL;
    place->changes = 0;
    memset(place->number, 0, sizeof place->number);
    ct__dtype_put(dtype, place->number, value);
}

ct_tensor *ct__number(ct_tensor *place, const ct_tensor *x, double value, const char *op) {
    if (!ct__valid(x, op, "x")) return NULL;
    const ct_dtype dtype = x->view.dtype;
    if (!ct_dtype_is_float(dtype) && (value != floor(value) || isinf(value))) {
        ct_fail(CT_ERR_DTYPE, op, "the scalar %g does not fit the dtype of x, %s; convert it first: ct_cast(x, CT_F32)",
                value, ct_view_text(&x->view));
        return NULL;
    }
    set(place, dtype, value);
    return place;
}

static ct_tensor *copied(const ct_tensor *number) {
    ct_tensor *x = ct__tensor_new(&number->view, NULL);
    if (!x) return NULL;
    memcpy(x->number, number->number, sizeof x->number);
    x->view.buffer = x->number;
    return x;
}

ct_tensor *ct__number_hold(ct_tensor *number) {
    return atomic_load_explicit(&number->refs, memory_order_relaxed) ? ct__tensor_retain(number) : copied(number);
}

ct_tensor *ct__scalar_for(const ct_tensor *x, double value, const char *op) {
    ct_tensor place;
    ct_tensor *made = ct__number(&place, x, value, op) ? copied(&place) : NULL;
    return made ? ct__scope_adopt(made) : NULL;
}

ct_tensor *ct__number_cast(const ct_tensor *number, ct_dtype dtype) {
    ct_tensor place;
    set(&place, dtype, ct__dtype_get(number->view.dtype, number->number));
    ct_tensor *made = copied(&place);
    return made ? ct__scope_adopt(made) : NULL;
}

ct_tensor *ct__number_tensor(const ct_tensor *number) {
    return ct_scalar(ct__dtype_get(number->view.dtype, number->number), number->view.dtype);
}

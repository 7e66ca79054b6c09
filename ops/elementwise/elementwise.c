/* infer of the elementwise ops. Dispatch has broadcast and promoted the inputs by then, so the result has the shape
 * of any input and the dtype of the first that is not a mask; what remains is whether the op takes that dtype. */
#include "ops/elementwise/elementwise.h"

#include <math.h>
#include <string.h>

#include "core/hot.h"
#include "core/tensor.h"

typedef enum { FLOATS, NUMBERS, ALL, INTEGERS } dtype_class;

static bool takes(dtype_class class, ct_dtype dtype) {
    switch (class) {
    case FLOATS: return ct_dtype_is_float(dtype);
    case NUMBERS: return ct_dtype_is_float(dtype) || ct_dtype_is_int(dtype);
    case ALL: return ct_dtype_is_float(dtype) || ct_dtype_is_int(dtype) || dtype == CT_BOOL;
    case INTEGERS: return ct_dtype_is_int(dtype) || dtype == CT_BOOL;
    }
    return false;
}

/* Integers among the options are small: formulas compute with them in double, and count up to them. */
static bool moderate_integers(const ct_infer *infer) {
    const int64_t limit = (int64_t)1 << 30;
    for (const ct_attr *attr = infer->op->attrs; attr && attr->name; attr++) {
        int64_t value;
        if (attr->type != CT_ATTR_INT) continue;
        memcpy(&value, (const char *)infer->attrs + attr->offset, sizeof value);
        if (value < -limit || value > limit)
            return ct_infer_fail(infer, CT_ERR_VALUE, "%s is %lld; it has to be from -2^30 to 2^30", attr->name,
                                 (long long)value);
    }
    return true;
}

/* A C number keeps the tensor's dtype, so a fraction does not go with integers. Infinities saturate. */
static bool whole_numbers(const ct_infer *infer, const ct_view *x) {
    for (const ct_attr *attr = infer->op->attrs; attr && attr->name; attr++) {
        const char *at = (const char *)infer->attrs + attr->offset;
        double value = 0;
        if (attr->type == CT_ATTR_DOUBLE) memcpy(&value, at, sizeof value);
        else if (attr->type == CT_ATTR_OPT && ((const ct_opt *)(const void *)at)->set)
            value = ((const ct_opt *)(const void *)at)->value;
        if (isinf(value) || value == floor(value)) continue;
        return ct_infer_fail(infer, CT_ERR_VALUE, "%s = %g is no integer, but x is %s; ct_cast(x, CT_F32) first",
                             attr->name, value, ct_view_text(x));
    }
    return true;
}

CT__HOT static bool infer_class(ct_infer *infer, dtype_class class, bool to_bool) {
    static const char *const wanted[] = {"floats", "numbers", "numbers or bool", "integers or bool"};
    const ct_arg *args = infer->op->inputs;
    const ct_view *typed = NULL;
    for (int i = 0; i < infer->n_in; i++) {
        const ct_view *x = infer->in[i];
        if (args[i].flags & CT_ARG_BOOL) continue;
        if (!takes(class, x->dtype))
            return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; expected %s", args[i].name, ct_view_text(x),
                                 wanted[class]);
        if (!typed) typed = x;
    }
    if (!moderate_integers(infer) || (!ct_dtype_is_float(typed->dtype) && !whole_numbers(infer, typed))) return false;
    ct_view *out = &infer->out[0];
    out->dtype = to_bool ? CT_BOOL : typed->dtype;
    out->ndim = typed->ndim;
    ct__copy_dims(out->dims, typed->dims, typed->ndim);
    return true;
}

bool ct__infer_float(ct_infer *infer) { return infer_class(infer, FLOATS, false); }
bool ct__infer_num(ct_infer *infer) { return infer_class(infer, NUMBERS, false); }
bool ct__infer_all(ct_infer *infer) { return infer_class(infer, ALL, false); }
bool ct__infer_int(ct_infer *infer) { return infer_class(infer, INTEGERS, false); }
bool ct__infer_float_to_bool(ct_infer *infer) { return infer_class(infer, FLOATS, true); }
bool ct__infer_num_to_bool(ct_infer *infer) { return infer_class(infer, NUMBERS, true); }
bool ct__infer_all_to_bool(ct_infer *infer) { return infer_class(infer, ALL, true); }
bool ct__infer_int_to_bool(ct_infer *infer) { return infer_class(infer, INTEGERS, true); }

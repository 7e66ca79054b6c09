/* Shape checks and a helper that gather, scatter and their relatives share. */
#include "ops/index/fit.h"

#include "ops/op_impl.h"

static bool ranks_agree(const ct_infer *infer, const ct_view *x, const ct_view *index, const char *name) {
    if (x->ndim == index->ndim || (x->ndim <= 1 && index->ndim <= 1)) return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s and index %s: they have to have as many dimensions", name,
                         ct_view_text(x), ct_view_text(index));
}

/* index must not be larger than x, except along axis (-1: there is no exception). */
bool ct__index_fits(const ct_infer *infer, const ct_view *x, const ct_view *index, int axis, const char *name) {
    if (!ranks_agree(infer, x, index, name)) return false;
    for (int i = 0; i < index->ndim && i < x->ndim; i++)
        if (i != axis && index->dims[i] > x->dims[i])
            return ct_infer_fail(infer, CT_ERR_SHAPE, "index is %s, larger in dimension %d than %s, which is %s",
                                 ct_view_text(index), i, name, ct_view_text(x));
    return true;
}

bool ct__has_arithmetic(const ct_infer *infer, const ct_view *x, const char *name) {
    if (ct_dtype_is_float(x->dtype) || ct_dtype_is_int(x->dtype) || x->dtype == CT_BOOL) return true;
    return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; there is no arithmetic on %s, cast it first", name,
                         ct_view_text(x), ct_dtype_name(x->dtype));
}

/* Zeros around g, which src was larger than. */
ct_tensor *ct__grown(ct_tensor *g, const ct_tensor *src) {
    const ct_dims small = ct_shape(g), large = ct_shape(src);
    ct_dims pads = {.n = 2 * large.n};
    bool grows = false;
    if (small.n != large.n) return reshape(g, large);
    for (int i = 0; i < large.n; i++) {
        pads.d[2 * i + 1] = large.d[i] - small.d[i];
        grows |= pads.d[2 * i + 1] != 0;
    }
    return grows ? pad_constant(g, pads, 0) : g;
}

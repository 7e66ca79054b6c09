/* Kernels of resample_axis and its gradient: the matrix, or its transposed, as a compressed sparse one in scratch, times
 * bundles of lines. Every element of the result is one sum in a fixed order. */
#include "ops/reduce/cpu/elements.h"
#include "ops/resample/taps.h"
#include "ops/scan/cpu/lines.h"

#include "gen/resample.attrs.h"

/* Row r has the elements at[start[r]] to at[start[r + 1] - 1]. */
typedef struct sparse {
    int64_t rows;
    int64_t *start; /* (rows + 1) */
    int64_t *at;    /* (entries) */
    double *weight; /* (entries) */
} sparse;

static int64_t entries_of(const ct_taps *t) { return t->out * ct__taps_most(t); }

static size_t scratch_of(const ct_taps *t) {
    int64_t longest = ct__max64(t->in, t->out);
    return (size_t)(longest + 2 + 4 * entries_of(t)) * sizeof(int64_t);
}

static sparse build(const ct_taps *t, bool transposed, void *scratch) {
    const int64_t most = entries_of(t), longest = ct__max64(t->in, t->out);
    sparse s = {.rows = transposed ? t->in : t->out, .start = scratch};
    s.at = s.start + longest + 2;
    s.weight = (double *)(s.at + most);
    int64_t *element = (int64_t *)(s.weight + most); /* of one row, then of all of them */
    double *weight = (double *)(element + most);
    int64_t n = 0;
    if (!transposed) {
        for (int64_t o = 0; o < t->out; o++) {
            s.start[o] = n;
            n += ct__taps_at(t, o, s.at + n, s.weight + n);
        }
        s.start[t->out] = n;
        return s;
    }
    /* count the entries of each column, then put them in their places, in order of o */
    for (int64_t i = 0; i <= t->in + 1; i++) s.start[i] = 0;
    for (int64_t o = 0; o < t->out; o++) {
        int taps = ct__taps_at(t, o, element, weight);
        for (int k = 0; k < taps; k++) s.start[element[k] + 2]++;
    }
    for (int64_t i = 0; i < t->in; i++) s.start[i + 2] += s.start[i + 1];
    for (int64_t o = 0; o < t->out; o++) {
        int taps = ct__taps_at(t, o, element, weight);
        for (int k = 0; k < taps; k++) {
            int64_t place = s.start[element[k] + 1]++;
            s.at[place] = o;
            s.weight[place] = weight[k];
        }
    }
    return s;
}

#define D f32
#define V vf32
#include "ops/resample/cpu/resample_lines.h"
#define D f64
#define V vf64
#include "ops/resample/cpu/resample_lines.h"
#define D f16
#define V vf32
#include "ops/resample/cpu/resample_lines.h"
#define D bf16
#define V vf32
#include "ops/resample/cpu/resample_lines.h"

static const ct_bundle_fn bundles[CT_DTYPE_COUNT] = {
    [CT_F32] = f32_bundle, [CT_F64] = f64_bundle, [CT_F16] = f16_bundle, [CT_BF16] = bf16_bundle};

static int axis_of(const ct_view *x, int64_t axis) { return (int)(axis < 0 ? axis + x->ndim : axis); }

static bool run(const ct_call *call, const ct_taps *t, int axis, bool transposed) {
    enum { NARROW = 16, WIDE = 1024 };
    const ct_view *views[] = {call->in[0], call->out[0]};
    for (int i = 0; i < views[0]->ndim; i++)
        if (views[0]->dims[i] == 0) return true;
    sparse s = build(t, transposed, ct__scratch(call));
    ct__lines(views, 2, axis, -1, NARROW, WIDE, s.start[s.rows] + s.rows, bundles[views[0]->dtype], &s);
    return true;
}

static ct_taps taps_of(const ct_call *call, int *axis) {
    const resample_axis_attrs *a = call->attrs;
    *axis = axis_of(call->in[0], a->axis);
    return ct__taps(a->mode, call->in[0]->dims[*axis], a->size, a->align_corners, a->scale);
}

static ct_taps taps_of_grad(const ct_call *call, int *axis) {
    const resample_axis_grad_attrs *a = call->attrs;
    *axis = axis_of(call->in[0], a->axis);
    return ct__taps(a->mode, a->size, call->in[0]->dims[*axis], a->align_corners, a->scale);
}

#define RESAMPLE_FUNCTIONS(op, taps_of, transposed)                \
    static size_t op##_scratch(const ct_call *call) {              \
        int axis;                                                  \
        ct_taps t = taps_of(call, &axis);                          \
        return scratch_of(&t);                                     \
    }                                                              \
    static bool op##_run(const ct_call *call, ct_stream *stream) { \
        int axis;                                                  \
        ct_taps t = taps_of(call, &axis);                          \
        (void)stream;                                              \
        return run(call, &t, axis, transposed);                    \
    }
RESAMPLE_FUNCTIONS(resample_axis, taps_of, false)
RESAMPLE_FUNCTIONS(resample_axis_grad, taps_of_grad, true)

CT_KERNELS(resample_resample) = {
    CT_CANDIDATES(resample_axis, {"resample_axis_lines", NULL, resample_axis_scratch, resample_axis_run}),
    CT_CANDIDATES(resample_axis_grad,
                  {"resample_axis_grad_lines", NULL, resample_axis_grad_scratch, resample_axis_grad_run}),
    {0},
};

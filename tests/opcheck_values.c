/* Results: each kernel against the op computed another way, in f64.
 *
 * The reference is `lower` run in f64 on the very numbers that the kernel saw (rounded to its dtype first), by the CPU at the
 * base level; an op without `lower` is compared with its own f64 kernel on dense memory. Integers are compared with i64, of
 * `lower` too where there is one, modulo their width, and the i64 kernel with f64 where numbers are small enough to be exact.
 * What is random, and what is made of options alone, is compared with `lower` in the same dtype: it depends on it.
 *
 * The tolerance is what a backward-stable algorithm may do. Let u be the unit roundoff of the dtype the op computes in
 * (f32 for f32, f16 and bf16), and L the length of the longest sum, at most the number of elements of the largest
 * input (1 for elementwise ops). Rounding errors of a sum of L terms behave like a random walk: the error is at most
 * lambda sqrt(L) u times the size of the partial sums, except with probability 2 exp(-lambda^2 / 2) (Higham and Mary,
 * SIAM J. Sci. Comput. 41, 2019). Partial sums grow like the result (terms of one sign) or like the root of the sum of
 * squares of the terms (signs that cancel). The first is |y|. The second is what y moves by when every input element
 * is changed by a random amount relative to itself, D = |sum_j dy/dx_j x_j w_j| with normal w, which is measured in f64
 * with a small change and a few draws of w. (An elementwise op has one term for each input: D = sum_j |dy/dx_j x_j|.)
 * Hence
 *     |computed - y| <= lambda sqrt(L) u (|y| + D) + v |y| + smallest
 * where v is the unit roundoff of a half result (one rounding at the end) and smallest its least positive number. D is
 * also the componentwise condition, so functions near their zeros and poles need no exceptions. lambda = 8 leaves room
 * for vector functions that are right to 2 units in the last place. Where terms are rounded to a half type themselves, each on its own, that adds
 * lambda v (|y| + D). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor.h"
#include "tests/opcheck.h"

enum { DRAWS = 6, LAMBDA = 8, LARGE = 4096 };

static const char *const levels[] = {"base", "avx2", "avx512", "avx512bf16", "avx512amx", "neon", "neonbf16"};
enum { LEVELS = sizeof levels / sizeof *levels };

int64_t (*opcheck_trapped)(void);

/* ---- Dtypes ---- */

double opcheck_unit(ct_dtype dtype) {
    switch (dtype) {
    case CT_F64: return 0x1p-52;
    case CT_F32: return 0x1p-23;
    case CT_F16: return 0x1p-10;
    case CT_BF16: return 0x1p-7;
    default: return 0;
    }
}

double opcheck_largest(ct_dtype dtype) {
    switch (dtype) {
    case CT_F32: return 0x1.fffffep127;
    case CT_F16: return 65504;
    case CT_BF16: return 0x1.fep127;
    default: return INFINITY;
    }
}

double opcheck_smallest(ct_dtype dtype) {
    switch (dtype) {
    case CT_F64: return 0x1p-1022; /* results below the normal numbers may be flushed or lose digits */
    case CT_F32: return 0x1p-126;
    case CT_F16: return 0x1p-24;
    case CT_BF16: return 0x1p-126;
    default: return 0;
    }
}

static bool is_narrow(ct_dtype dtype) { return ct_dtype_size(dtype) < 4 || dtype == CT_I32; }
static bool is_whole(ct_dtype dtype) { return ct_dtype_is_int(dtype) || dtype == CT_BOOL; }

/* An integer of another width, or of bool. */
static int64_t wrap(ct_dtype dtype, int64_t value) {
    switch (dtype) {
    case CT_I8: return (int8_t)value;
    case CT_I16: return (int16_t)value;
    case CT_I32: return (int32_t)value;
    case CT_U8: return (uint8_t)value;
    case CT_BOOL: return value != 0;
    default: return value;
    }
}

/* ---- Results on the host ---- */

typedef struct result {
    ct_dtype dtype;
    ct_dims shape;
    int64_t count;
    double *y;      /* of floats */
    int64_t *whole; /* of integers and bool */
    double *moved;  /* D of the head comment; NULL: none */
} result;

static void free_results(result *results, int n) {
    for (int i = 0; i < n; i++) {
        free(results[i].y);
        free(results[i].whole);
        free(results[i].moved);
    }
}

static int64_t *read_whole(ct_tensor *x) {
    int64_t count = ct_numel(x), *values = malloc(((size_t)count + 1) * sizeof *values);
    size_t size = ct_dtype_size(ct_dtype_of(x));
    char *raw = malloc((size_t)count * size + 1);
    bool ok = ct_read(x, raw, (size_t)count * size);
    for (int64_t i = 0; ok && i < count; i++) {
        const char *at = raw + (size_t)i * size;
        int16_t i16;
        int32_t i32;
        switch (ct_dtype_of(x)) {
        case CT_I8: values[i] = *(const int8_t *)at; break;
        case CT_I16: memcpy(&i16, at, 2), values[i] = i16; break;
        case CT_I32: memcpy(&i32, at, 4), values[i] = i32; break;
        case CT_I64: memcpy(&values[i], at, 8); break;
        default: values[i] = *(const uint8_t *)at; break;
        }
    }
    free(raw);
    return values;
}

static result take(ct_tensor *x) {
    result r = {.dtype = ct_dtype_of(x), .shape = ct_shape(x), .count = ct_numel(x)};
    if (is_whole(r.dtype)) r.whole = read_whole(x);
    else r.y = opcheck_read(x);
    return r;
}

/* ---- Running ---- */

/* Values of all inputs of a sample, and the dtype that those without a fixed one take. */
typedef struct input_set {
    double *values[OPCHECK_INPUTS];
    ct_dtype dtype;
    bool integer;
} input_set;

static bool takes_dtype(const opcheck_input *input, bool integer) {
    return !opcheck_is_index(input) && (integer || strcmp(input->domain, "i64") != 0);
}

static ct_dtype dtype_of_input(const opcheck_input *input, ct_dtype dtype, bool integer) {
    if (strcmp(input->domain, "bool") == 0) return CT_BOOL;
    if (opcheck_is_index(input))
        return dtype == CT_F16 || dtype == CT_I16 ? CT_I32 : CT_I64; /* both kinds get their turn */
    return takes_dtype(input, integer) ? dtype : CT_I64;
}

static void fill_all(const opcheck_sample *sample, input_set *set) {
    for (int i = 0; i < sample->n_in; i++) {
        const opcheck_input *input = &sample->in[i];
        if (input->skipped) continue;
        int64_t count = opcheck_count(input->shape);
        set->values[i] = malloc(((size_t)count + 1) * sizeof(double));
        opcheck_fill(input, i, set->integer && takes_dtype(input, true), set->values[i], count);
        for (int64_t k = 0;
             (set->dtype == CT_U8 || set->dtype == CT_BOOL) && takes_dtype(input, set->integer) && k < count; k++)
            set->values[i][k] = set->dtype == CT_BOOL ? set->values[i][k] > 0 : fabs(set->values[i][k]);
    }
}

static void free_all(input_set *set) {
    for (int i = 0; i < OPCHECK_INPUTS; i++) free(set->values[i]);
}

/* The layout of one input: with OPCHECK_MIXED they take turns; what the op changes has no stride 0. */
static opcheck_layout layout_of(const opcheck_input *input, int position, opcheck_layout layout) {
    static const opcheck_layout turns[] = {OPCHECK_STEP, OPCHECK_DENSE, OPCHECK_TRANSPOSED, OPCHECK_SLICE,
                                           OPCHECK_BACKWARDS};
    if (layout == OPCHECK_MIXED) return turns[position % 5];
    return opcheck_repeats(layout) && (input->flags & CT_ARG_MUTATED) ? OPCHECK_DENSE : layout;
}

/* A change of the inputs that take a dtype, relative to their size: the same for every element of one input (`only`), or
 * normal random numbers. */
typedef struct change {
    double amount;
    unsigned draw;
    int only; /* -1: all inputs, at random */
} change;

static double *changed_values(const double *values, int64_t count, const change *how, uint64_t *state) {
    double *changed = malloc(((size_t)count + 1) * sizeof *changed);
    for (int64_t k = 0; k < count; k++) {
        double w = how->only >= 0; /* else close to normal: a sum of uniform numbers */
        for (int s = 0; s < 6 && how->only < 0; s++) {
            *state = *state * 6364136223846793005u + 1442695040888963407u;
            w += ((double)(*state >> 33) * 0x1p-31 - 0.5) * 1.4142135623730951;
        }
        changed[k] = values[k] * (1 + how->amount * w);
    }
    return changed;
}

/* The inputs as tensors of `dtype` in a layout, changed if `how` says so. */
static bool place_all(const opcheck_sample *sample, input_set *set, ct_dtype dtype, opcheck_layout layout,
                      const change *how, ct_tensor **in) {
    uint64_t state = how ? how->draw * 7919u + 17u : 0;
    for (int i = 0; i < sample->n_in; i++) {
        const opcheck_input *input = &sample->in[i];
        in[i] = NULL;
        if (input->skipped) continue;
        bool changes = how && takes_dtype(input, set->integer) && (how->only < 0 || how->only == i);
        double *changed = changes ? changed_values(set->values[i], opcheck_count(input->shape), how, &state) : NULL;
        in[i] = opcheck_place(dtype_of_input(input, dtype, set->integer), input->shape,
                              changes ? changed : set->values[i], layout_of(input, i, layout));
        free(changed);
        if (!in[i]) return false;
    }
    return true;
}

/* Runs fn and collects its results; those inputs that the op changes count as results too. */
static bool run(const opcheck_sample *sample, opcheck_function fn, ct_tensor *const *in, ct_tensor **out, int *n) {
    if (!fn(sample, in, out)) return false;
    *n = sample->n_out;
    for (int i = 0; i < sample->n_in && *n < OPCHECK_OUTPUTS; i++)
        if (in[i] && (sample->in[i].flags & CT_ARG_MUTATED)) out[(*n)++] = in[i];
    return true;
}

static bool run_results(const opcheck_sample *sample, opcheck_function fn, input_set *set, ct_dtype dtype,
                        opcheck_layout layout, const change *how, result *results, int *n) {
    bool ok = false;
    *n = 0;
    const ct_device device = dtype == CT_F64 ? opcheck_begin_f64() : ct_get_device();
    ct_scope {
        ct_tensor *in[OPCHECK_INPUTS], *out[OPCHECK_OUTPUTS];
        ok = place_all(sample, set, dtype, layout, how, in) && run(sample, fn, in, out, n);
        for (int i = 0; ok && i < *n; i++) results[i] = take(out[i]);
    }
    if (dtype == CT_F64) opcheck_end_f64(device);
    return ok;
}

/* ---- The reference ---- */

typedef struct reference {
    int n;
    result of[OPCHECK_OUTPUTS];
} reference;

/* D: how far the result moves when the inputs are changed relatively by 1, extrapolated from a small change. An element of an
 * elementwise op depends on one element of each input, so there the inputs are changed one after the other, and the
 * moves added; for others a few draws of random changes stand for the root of a sum of squares. */
static void measure_moves(const opcheck_sample *sample, opcheck_function fn, input_set *set, reference *ref) {
    const double amount = 0x1p-20;
    bool pointwise = sample->op->flags & CT_OP_ELEMENTWISE;
    for (int i = 0; i < ref->n; i++)
        if (ref->of[i].y) ref->of[i].moved = calloc((size_t)ref->of[i].count + 1, sizeof(double));
    for (int draw = 0; draw < (pointwise ? sample->n_in : DRAWS); draw++) {
        result other[OPCHECK_OUTPUTS];
        int n;
        change how = {.amount = amount, .draw = (unsigned)draw, .only = pointwise ? draw : -1};
        if (!run_results(sample, fn, set, CT_F64, OPCHECK_DENSE, &how, other, &n)) {
            ct_error_clear(); /* a changed value may leave the domain: then this draw tells nothing */
            continue;
        }
        for (int i = 0; i < n && i < ref->n; i++) {
            result *of = &ref->of[i];
            for (int64_t k = 0; of->moved && other[i].y && other[i].count == of->count && k < of->count; k++) {
                double move = fabs(other[i].y[k] - of->y[k]) / amount;
                if (!isfinite(move)) continue;
                if (pointwise) of->moved[k] += move;
                else if (move > of->moved[k]) of->moved[k] = move;
            }
        }
        free_results(other, n);
    }
}

static bool has_float(const reference *ref) {
    for (int i = 0; i < ref->n; i++)
        if (ref->of[i].y) return true;
    return false;
}

/* The same of a random op that has no inputs: what it computes on its way is of the size of its options. */
static void measure_options(const opcheck_sample *sample, reference *ref) {
    double size = 0;
    for (const ct_attr *attr = sample->op->attrs; attr && attr->name; attr++) {
        const double *option = (const double *)(const void *)((const char *)sample->attrs + attr->offset);
        if (attr->type == CT_ATTR_DOUBLE && isfinite(*option)) size += fabs(*option);
    }
    for (int i = 0; i < ref->n; i++) {
        if (!ref->of[i].y) continue;
        ref->of[i].moved = calloc((size_t)ref->of[i].count + 1, sizeof(double));
        for (int64_t k = 0; k < ref->of[i].count; k++) ref->of[i].moved[k] = size;
    }
}

static bool run_reference(const opcheck_sample *sample, input_set *set, reference *ref) {
    const ct_op *op = sample->op;
    bool itself = (op->flags & CT_OP_RANDOM) || sample->n_in == 0;
    opcheck_function fn = op->lower ? opcheck_lower : opcheck_apply;
    ct_set_isa("base");
    if (set->integer) {
        /* bool has an arithmetic of its own (or, and, not): there the levels are compared with each other */
        ct_dtype wide = set->dtype == CT_BOOL ? CT_BOOL : CT_I64;
        if (!run_results(sample, fn, set, wide, OPCHECK_DENSE, NULL, ref->of, &ref->n)) return false;
        if (!has_float(ref)) return true;
        free_results(ref->of, ref->n); /* a float of integers: the same in f64 */
    }
    if (!run_results(sample, fn, set, itself ? set->dtype : CT_F64, OPCHECK_DENSE, NULL, ref->of, &ref->n))
        return false;
    /* A random op that is lowered draws what it draws and goes on with functions of its inputs. */
    if (!itself || (op->lower && sample->n_in > 0)) measure_moves(sample, fn, set, ref);
    else if (op->flags & CT_OP_RANDOM) measure_options(sample, ref);
    return true;
}

/* Of a device without f64 all of it comes from the CPU: one random stream, one integer arithmetic. */
static bool make_reference(const opcheck_sample *sample, input_set *set, reference *ref) {
    const ct_device device = opcheck_begin_f64();
    const bool ok = run_reference(sample, set, ref);
    opcheck_end_f64(device);
    return ok;
}

/* ---- Comparing ---- */

/* Attention of halves on a device other than the CPU: Tensor Cores take the weights, and of the gradient the differences that are multiplied, in
 * the dtype of the inputs, one rounding each. */
static bool rounds_weights(const ct_op *op) {
    static const char *const names[] = {"sdpa", "sdpa_grad", "scaled_dot_product_attention", "multi_head_attention",
                                        NULL};
    for (int i = 0; names[i] && ct_get_device().type != CT_CPU; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

static double tolerance_at(const opcheck_sample *sample, const result *got, const result *ref, int64_t k) {
    double y = fabs(ref->y[k]), moved = ref->moved ? ref->moved[k] : 0;
    bool pointwise = sample->op->flags & (CT_OP_ELEMENTWISE | CT_OP_VIEW);
    double length = pointwise || sample->largest < 1 ? 1 : (double)sample->largest;
    double computing = opcheck_unit(got->dtype == CT_F64 ? CT_F64 : CT_F32) / 2;
    double tolerance = LAMBDA * sqrt(length) * computing * (y + moved) + opcheck_flushed(got->dtype);
    if (got->dtype == CT_F16 || got->dtype == CT_BF16) {
        if (rounds_weights(sample->op)) tolerance += LAMBDA * opcheck_unit(got->dtype) / 2 * (y + moved);
        tolerance += opcheck_unit(got->dtype) / 2 * (y + tolerance);
    }
    if (ref->dtype != CT_F64)
        tolerance += opcheck_unit(ref->dtype) / 2 * y; /* an attribute fixes the dtype: both round */
    return tolerance;
}

static bool near(double got, double y, double tolerance, double largest) {
    if (isnan(got) && isfinite(y) && fabs(y) >= largest) return true; /* of parts that overflow, one from the other */
    if (isnan(got) || isnan(y)) return isnan(got) && isnan(y);
    if (got == y) return true;
    if (fabs(y) + tolerance >= largest && fabs(got) >= largest * (1 - 0x1p-7) && signbit(got) == signbit(y))
        return true; /* overflow */
    return fabs(got - y) <= tolerance;
}

/* Compares one result; says at most one thing about it. */
static void compare(opcheck *check, const opcheck_sample *sample, int index, const result *got, const result *ref,
                    ct_dtype dtype, const char *level, const char *layout) {
    bool shapes =
        got->shape.n == ref->shape.n && memcmp(got->shape.d, ref->shape.d, (size_t)got->shape.n * sizeof(int64_t)) == 0;
    if (!opcheck_expect(check, shapes, "%s %s %s: result %d is %s%s, the reference %s", ct_dtype_name(dtype), level,
                        layout, index, ct_dtype_name(got->dtype), ct_dims_text(got->shape), ct_dims_text(ref->shape)))
        return;
    if (!opcheck_expect(check, (got->whole != NULL) == (ref->whole != NULL),
                        "%s %s %s: result %d is of %s, the reference of %s", ct_dtype_name(dtype), level, layout, index,
                        ct_dtype_name(got->dtype), ct_dtype_name(ref->dtype)))
        return;
    if (opcheck_is_unset(sample->op)) return;
    double largest = opcheck_largest(got->dtype), worst = 0;
    int64_t wrong = -1, count = 0;
    for (int64_t k = 0; k < got->count; k++) {
        if (got->whole) {
            if (got->whole[k] != wrap(got->dtype, ref->whole[k])) {
                if (wrong < 0) wrong = k;
                count++;
            }
            continue;
        }
        if (got->y[k] == ref->y[k]) continue;
        double tolerance = tolerance_at(sample, got, ref, k);
        if (near(got->y[k], ref->y[k], tolerance, largest)) continue;
        count++;
        double excess = fabs(got->y[k] - ref->y[k]) / tolerance;
        if (wrong < 0 || !(excess <= worst)) worst = excess, wrong = k;
    }
    if (got->whole)
        opcheck_expect(check, wrong < 0, "%s %s %s: result %d at %lld is %lld, not %lld (%lld of %lld are wrong)",
                       ct_dtype_name(dtype), level, layout, index, (long long)wrong,
                       wrong < 0 ? 0ll : (long long)got->whole[wrong],
                       wrong < 0 ? 0ll : (long long)wrap(got->dtype, ref->whole[wrong]), (long long)count,
                       (long long)got->count);
    else
        opcheck_expect(check, wrong < 0,
                       "%s %s %s: result %d at %lld is %.9g, not %.9g (tolerance %.2g; %lld of %lld are off)",
                       ct_dtype_name(dtype), level, layout, index, (long long)wrong, wrong < 0 ? 0 : got->y[wrong],
                       wrong < 0 ? 0 : ref->y[wrong], wrong < 0 ? 0 : tolerance_at(sample, got, ref, wrong),
                       (long long)count, (long long)got->count);
}

/* ---- Variants ---- */

static bool may_refuse(ct_code code) { return code == CT_ERR_DTYPE || code == CT_ERR_UNSUPPORTED; }

/* The views behind reshape and as_strided are for the strides that those choose: others they refuse, or do not see. */
static bool takes_layout(const ct_op *op, opcheck_layout layout) {
    return layout == OPCHECK_DENSE ||
           (strcmp(op->name, "reshape_view") != 0 && strcmp(op->name, "as_strided_view") != 0);
}

static void check_layout(opcheck *check, const opcheck_sample *sample, input_set *set, const reference *ref,
                         const char *level, opcheck_layout layout) {
    result got[OPCHECK_OUTPUTS];
    int n;
    if (!takes_layout(sample->op, layout)) return;
    bool ok = run_results(sample, opcheck_apply, set, set->dtype, layout, NULL, got, &n);
    opcheck_expect(check, ok, "%s %s %s: %s", ct_dtype_name(set->dtype), level, opcheck_layout_name(layout),
                   ct_error());
    ct_error_clear();
    if (!ok) return;
    for (int i = 0; i < n; i++)
        compare(check, sample, i, &got[i], &ref->of[i], set->dtype, level, opcheck_layout_name(layout));
    free_results(got, n);
}

/* The first result written into a strided home (ct_into). */
static void check_home(opcheck *check, const opcheck_sample *sample, input_set *set, const reference *ref,
                       const char *level) {
    const ct_op *op = sample->op;
    if (op->flags & (CT_OP_VIEW | CT_OP_MUTATES) || op->outputs[0].flags & CT_ARG_LIST) return;
    for (int layout = OPCHECK_TRANSPOSED; layout <= OPCHECK_BACKWARDS; layout++) {
        ct_scope {
            const result *of = &ref->of[0];
            char name[32];
            snprintf(name, sizeof name, "into %s", opcheck_layout_name((opcheck_layout)layout));
            ct_tensor *in[OPCHECK_INPUTS], *out[OPCHECK_OUTPUTS], *first = NULL;
            bool ok = place_all(sample, set, set->dtype, OPCHECK_DENSE, NULL, in) && opcheck_apply(sample, in, out);
            ct_dtype dtype = ok ? ct_dtype_of(out[0]) : CT_F32;
            double *zeros = calloc((size_t)of->count + 1, sizeof *zeros);
            ct_tensor *home = ok ? opcheck_place(dtype, of->shape, zeros, (opcheck_layout)layout) : NULL;
            free(zeros);
            ok = home && ct_into(home) && opcheck_apply(sample, in, out) && (first = out[0]) == home;
            opcheck_expect(check, ok, "%s %s %s: %s", ct_dtype_name(set->dtype), level, name,
                           first != home ? "the result is elsewhere" : ct_error());
            if (ok) {
                result got = take(home);
                compare(check, sample, 0, &got, of, set->dtype, level, name);
                free_results(&got, 1);
            }
            ct_error_clear();
        }
    }
}

/* The layouts that are looked at: all for small floats; for large samples and for integers a choice. */
static bool wants_layout(const opcheck_sample *sample, bool integer, opcheck_layout layout) {
    if (layout == OPCHECK_DENSE) return true;
    if (sample->n_in == 0) return false;
    if (layout == OPCHECK_MIXED) return sample->n_in > 1 && !integer;
    if (sample->largest > LARGE) return layout == OPCHECK_TRANSPOSED || layout == OPCHECK_BACKWARDS;
    return !integer || layout == OPCHECK_SLICE || layout == OPCHECK_BACKWARDS;
}

/* An op may refuse an integer dtype. */
static bool is_refused(opcheck *check, const opcheck_sample *sample, input_set *set) {
    result got[OPCHECK_OUTPUTS];
    int n;
    if (run_results(sample, opcheck_apply, set, set->dtype, OPCHECK_DENSE, NULL, got, &n)) {
        free_results(got, n);
        return false;
    }
    opcheck_expect(check, may_refuse(ct_error_code()), "%s: %s", ct_dtype_name(set->dtype), ct_error());
    ct_error_clear();
    return true;
}

static bool is_in_amx(ct_dtype dtype) { return dtype == CT_BF16 || dtype == CT_I8 || dtype == CT_U8; }

/* The layouts with these values: all that do not change them, or the one that has made them. */
static void check_levels(opcheck *check, opcheck_sample *sample, input_set *set, const reference *ref,
                         opcheck_layout values, const char *only) {
    const bool repeats = opcheck_repeats(values);
    for (int level = 0; level < LEVELS; level++) {
        const char *name = only ? "device" : levels[level];
        const bool trapped = opcheck_trapped && strcmp(levels[level], "avx512amx") == 0;
        const int64_t before = trapped ? opcheck_trapped() : 0;
        if (only && strcmp(levels[level], only) != 0) continue;
        /* only products differ between avx512 or neon and what is above it */
        if (!only && (sample->op->flags & CT_OP_ELEMENTWISE) &&
            (strstr(levels[level], "bf16") || strstr(levels[level], "amx")))
            continue;
        if (trapped && !is_in_amx(set->dtype)) continue;
        if (!ct_set_isa(levels[level])) {
            ct_error_clear(); /* a level that this machine lacks: opcheck_missing_levels tells */
            continue;
        }
        bool goes_on = true; /* by the trap, where the first layout has used it */
        for (int layout = OPCHECK_DENSE; layout < OPCHECK_LAYOUTS && goes_on; layout++) {
            if ((repeats ? layout != (int)values : opcheck_repeats((opcheck_layout)layout)) ||
                !wants_layout(sample, set->integer && !repeats, (opcheck_layout)layout))
                continue;
            check_layout(check, sample, set, ref, name, (opcheck_layout)layout);
            goes_on = !trapped || opcheck_trapped() > before;
        }
        if (!repeats && set->dtype == CT_F32 && sample->largest <= LARGE) check_home(check, sample, set, ref, name);
    }
}

static void check_variant(opcheck *check, opcheck_sample *sample, ct_dtype dtype, bool integer) {
    static const char *best; /* the level of this process: that of other devices than the CPU, which do not care */
    input_set set = {.dtype = dtype, .integer = integer};
    if (!best) best = ct_isa();
    if (!ct_device_has_dtype(ct_get_device(), dtype) || (check->what & OPCHECK_WIDE && is_narrow(dtype))) return;
    fill_all(sample, &set);
    static const opcheck_layout kinds[] = {OPCHECK_DENSE, OPCHECK_STRIDE0, OPCHECK_BROADCAST};
    for (int kind = 0; kind < 3; kind++) { /* ordinary layouts, then those that change the values */
        if (kind && (sample->largest > LARGE || sample->n_in == 0 || (integer && dtype != CT_I32))) break;
        reference ref = {0};
        if (kind) { /* as they were first */
            free_all(&set);
            fill_all(sample, &set);
        }
        ct_scope { /* rounds the values to the dtype, and repeats them where a stride is 0 */
            ct_tensor *in[OPCHECK_INPUTS];
            place_all(sample, &set, dtype, kinds[kind], NULL, in);
        }
        if (integer && is_refused(check, sample, &set)) break;
        const ct_device device = opcheck_to_cpu();
        bool ok = make_reference(sample, &set, &ref);
        ct_set_device(device);
        opcheck_expect(check, ok || (integer && may_refuse(ct_error_code())), "%s reference: %s", ct_dtype_name(dtype),
                       ct_error());
        ct_error_clear();
        if (!ok) break;
        check_levels(check, sample, &set, &ref, kinds[kind], ct_get_device().type == CT_CPU ? NULL : best);
        free_results(ref.of, ref.n);
    }
    free_all(&set);
}

/* i64 against f64, where the numbers are exact in both. */
static void check_i64_is_exact(opcheck *check, const opcheck_sample *sample) {
    input_set set = {.dtype = CT_I64, .integer = true};
    result whole[OPCHECK_OUTPUTS], real[OPCHECK_OUTPUTS];
    int n = 0, m = 0;
    fill_all(sample, &set);
    bool ok = run_results(sample, opcheck_apply, &set, CT_I64, OPCHECK_DENSE, NULL, whole, &n);
    ok = run_results(sample, opcheck_apply, &set, CT_F64, OPCHECK_DENSE, NULL, real, &m) && ok;
    ct_error_clear(); /* refusals are looked at elsewhere */
    for (int i = 0; ok && i < n && i < m; i++) {
        if (!whole[i].whole || !real[i].y || whole[i].count != real[i].count) continue;
        int64_t wrong = -1;
        for (int64_t k = 0; k < whole[i].count && wrong < 0; k++)
            if (isfinite(real[i].y[k]) && fabs(real[i].y[k]) < 0x1p53 && real[i].y[k] == floor(real[i].y[k]) &&
                (double)whole[i].whole[k] != real[i].y[k])
                wrong = k;
        opcheck_expect(check, wrong < 0, "i64: result %d at %lld is %lld, in f64 it is %.17g", i, (long long)wrong,
                       wrong < 0 ? 0ll : (long long)whole[i].whole[wrong], wrong < 0 ? 0 : real[i].y[wrong]);
    }
    free_results(whole, n);
    free_results(real, m);
    free_all(&set);
}

/* A sample that makes its result from nothing gets the dtype as an option, unless it sets one itself. */
static bool set_dtype_option(opcheck_sample *sample, ct_dtype dtype) {
    for (const ct_attr *attr = sample->op->attrs; attr && attr->name; attr++) {
        if (attr->type != CT_ATTR_DTYPE || attr->required || strcmp(attr->name, "dtype") != 0) continue;
        if (memmem(sample->text, (size_t)sample->length, "dtype=", 6)) return false;
        return ct_attrs_set(sample->op, sample->attrs, "dtype", ct_dtype_name(dtype));
    }
    return false;
}

void opcheck_values(opcheck *check, opcheck_sample *sample) {
    static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F64, CT_F16},
                          wholes[] = {CT_I64, CT_I32, CT_I16, CT_I8, CT_U8, CT_BOOL};
    const char *best = ct_isa();
    if (opcheck_is_beyond(sample)) return;
    bool large = sample->largest > LARGE, any_float = false, any_whole = false, float_only = false;
    for (int i = 0; i < sample->n_in; i++) {
        const opcheck_input *input = &sample->in[i];
        if (input->skipped || opcheck_is_index(input)) continue;
        any_float |= strcmp(input->domain, "i64") != 0;
        any_whole = true;
        float_only |= (input->flags & CT_ARG_FLOAT) != 0;
    }
    for (int i = 0; i < (large ? 2 : 4) && any_float; i++) check_variant(check, sample, floats[i], false);
    if (!any_whole) { /* nothing, or only indices and masks, go in */
        bool option = sample->n_in == 0 && set_dtype_option(sample, CT_F32);
        for (int i = 0; i < (option ? 4 : 1); i++) {
            if (option) set_dtype_option(sample, floats[i]);
            bool refused = option && sample->n_in == 0 && is_refused(check, sample, &(input_set){.dtype = floats[i]});
            if (!refused) check_variant(check, sample, floats[i], false);
        }
        if (option) set_dtype_option(sample, CT_F32);
    }
    if (any_whole && float_only && !large) check_variant(check, sample, CT_I32, true);
    if (any_whole && !float_only && !large) {
        /* a negative option does not fit u8: it saturates, and the i64 kernel is no reference */
        bool negative = memmem(sample->text, (size_t)sample->length, "=-", 2) != NULL;
        for (int i = 0; i < 6; i++)
            if (!negative || wholes[i] != CT_U8) check_variant(check, sample, wholes[i], true);
        check_i64_is_exact(check, sample);
    }
    ct_set_isa(best);
}

const char *const *opcheck_missing_levels(void) {
    static const char *missing[LEVELS + 1];
    const char *best = ct_isa();
    int n = 0;
    for (int i = 0; i < LEVELS; i++) {
#if defined(__aarch64__)
        bool foreign = strncmp(levels[i], "avx", 3) == 0;
#else
        bool foreign = strncmp(levels[i], "neon", 4) == 0;
#endif
        if (!foreign && !ct_set_isa(levels[i])) missing[n++] = levels[i];
        ct_error_clear();
    }
    ct_set_isa(best);
    missing[n] = NULL;
    return missing;
}

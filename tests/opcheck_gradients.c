/* Gradients, in f64, along random directions v of the inputs and of the cotangents c:
 *     first order:  d/dt  sum <c, y(x + t v)>          =  sum <G, v>,   G the vector-Jacobian product
 *     second order: d/dt  sum <u, G(x + t v, c + t w)>  =  sum <H, v> + sum <K, w>,   (H, K) the gradient of sum <u, G>
 * with the left sides from central differences of fourth order at two steps, by the CPU,
 *     d(h) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h,
 * of which d(h/2) is right to about |d(h) - d(h/2)| / 15. The tolerance is that difference and what rounding does: f is right to
 * e = lambda sqrt(L) u (sum |c y| + sum |G x|), as in opcheck_values.c, so d(h/2) to 3 e / h. Where the two steps differ by
 * more than a thousandth the function has a kink or a jump within the step: the sample says nothing there.
 *
 * On a device without f64 there are no such differences: there the derivatives of both orders are those of the CPU in f64, which are
 * checked against differences where the CPU is, compared element by element (check_variant).
 *
 * For elementwise ops the sums are left out and every element is compared by itself, on inputs of one shape; nine in ten
 * have to be smooth. For all others a sample that is not smooth is a failure: `distinct` and `away0` keep kinks apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck.h"

enum { LAMBDA = 8, LARGE = 4096 };
static const double step = 0x1p-10;

/* A function of time and what it is made of. Slots 0..n_in-1 are inputs, the rest cotangents of the results. */
enum { SLOTS = OPCHECK_INPUTS + OPCHECK_OUTPUTS };
typedef struct problem {
    opcheck_sample *sample;
    int n_in, n_out;
    bool varies[SLOTS]; /* float inputs, cotangents of float results */
    ct_dims shape[SLOTS];
    int64_t count[SLOTS];
    double *value[SLOTS], *direction[SLOTS], *weight[SLOTS];
    bool pointwise; /* compare element by element */
    bool exact;     /* the results are f64; an attribute may fix another dtype, in which differences say nothing */
    int64_t length; /* of the vector that is differentiated: 1, or the elements */
    int only;       /* the one input whose gradient is wanted; -1: all that vary */
    int draw;       /* of measure_moves: which random change time makes to the weights */
} problem;

static bool is_wanted(const problem *p, int i) { return p->varies[i] && (p->only < 0 || p->only == i); }

static double next(uint64_t *state) { /* uniform in -1..1 */
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11 << 11) * 0x1p-63;
}

static double *random_array(int64_t count, uint64_t seed) {
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    next(&state);
    for (int64_t i = 0; i < count; i++) values[i] = next(&state);
    return values;
}

static void free_problem(problem *p) {
    for (int i = 0; i < SLOTS; i++) {
        free(p->value[i]);
        free(p->direction[i]);
        free(p->weight[i]);
    }
}

/* ---- Evaluation ---- */

static double *moved(const problem *p, int slot, double t) {
    double *values = malloc(((size_t)p->count[slot] + 1) * sizeof *values);
    for (int64_t k = 0; k < p->count[slot]; k++)
        values[k] = p->value[slot][k] + (p->varies[slot] ? t * p->direction[slot][k] : 0);
    return values;
}

static ct_tensor *tensor_at(const problem *p, int slot, double t, ct_dtype dtype, opcheck_layout layout) {
    if (!p->value[slot]) return NULL;
    double *values = moved(p, slot, t);
    ct_dtype own = dtype;
    if (slot < p->n_in && !p->varies[slot]) {
        const opcheck_input *input = &p->sample->in[slot];
        bool mutated = (input->flags & CT_ARG_MUTATED) && !opcheck_is_index(input);
        own = strcmp(input->domain, "bool") == 0             ? CT_BOOL
              : mutated && strcmp(input->domain, "i64") != 0 ? dtype
                                                             : CT_I64;
        layout = OPCHECK_DENSE;
    }
    ct_tensor *x = opcheck_place(own, p->shape[slot], values, layout);
    /* what was rounded or repeated on the way is the value from now on */
    if (t == 0) memcpy(p->value[slot], values, (size_t)p->count[slot] * sizeof *values);
    free(values);
    return x;
}

/* Inputs and results at time t, recorded when wanted. */
static bool forward(const problem *p, double t, bool record, ct_dtype dtype, opcheck_layout layout, ct_tensor **in,
                    ct_tensor **out) {
    for (int i = 0; i < p->n_in; i++) {
        in[i] = tensor_at(p, i, t, dtype, layout);
        if (p->value[i] && !in[i]) return false;
        if (record && is_wanted(p, i) && !ct_set_requires_grad(in[i], true)) return false;
    }
    return opcheck_apply(p->sample, in, out);
}

/* The gradients of the inputs that vary, at time t; the cotangents are recorded too when flags say so. */
static bool vjp(const problem *p, double t, unsigned flags, ct_dtype dtype, opcheck_layout layout,
                opcheck_layout cotangents, ct_tensor **leaves, ct_tensor **grads) {
    ct_tensor *out[OPCHECK_OUTPUTS], *ys[OPCHECK_OUTPUTS], *cs[OPCHECK_OUTPUTS], *xs[OPCHECK_INPUTS],
        *found[OPCHECK_INPUTS];
    if (!forward(p, t, true, dtype, layout, leaves, out)) return false;
    int ny = 0, nx = 0;
    for (int i = 0; i < p->n_out; i++) {
        int slot = p->n_in + i;
        leaves[slot] = NULL;
        if (!p->varies[slot]) continue;
        leaves[slot] = tensor_at(p, slot, t, ct_dtype_of(out[i]), cotangents);
        if (!leaves[slot] || ((flags & CT_CREATE_GRAPH) && !ct_set_requires_grad(leaves[slot], true))) return false;
        ys[ny] = out[i];
        cs[ny++] = leaves[slot];
    }
    for (int i = 0; i < p->n_in; i++)
        if (is_wanted(p, i)) xs[nx++] = leaves[i];
    if (!ct_grad(ys, ny, cs, xs, nx, found, flags)) return false;
    nx = 0;
    for (int i = 0; i < p->n_in; i++) grads[i] = is_wanted(p, i) ? found[nx++] : NULL;
    return true;
}

/* out += factor * a * b, summed up or element by element. magnitude += |a b| likewise. */
static void add_product(const problem *p, double *out, double *magnitude, const double *a, const double *b,
                        int64_t count) {
    for (int64_t k = 0; k < count; k++) {
        int64_t at = p->pointwise ? k : 0;
        out[at] += a[k] * b[k];
        if (magnitude) magnitude[at] += fabs(a[k] * b[k]);
    }
}

/* f of the head comment at time t. */
static bool evaluate(const problem *p, int order, double t, double *f, double *magnitude) {
    bool ok = false;
    const ct_device device = opcheck_to_cpu();
    for (int64_t k = 0; k < p->length; k++) f[k] = 0;
    ct_scope {
        ct_tensor *leaves[SLOTS], *of[SLOTS];
        if (order == 1) {
            ok = forward(p, t, false, CT_F64, OPCHECK_DENSE, leaves, of);
            for (int i = 0; ok && i < p->n_out; i++) {
                if (!p->varies[p->n_in + i]) continue;
                double *y = opcheck_read(of[i]);
                if ((ok = y != NULL)) add_product(p, f, magnitude, p->value[p->n_in + i], y, p->count[p->n_in + i]);
                free(y);
            }
        } else {
            ok = vjp(p, t, 0, CT_F64, OPCHECK_DENSE, OPCHECK_DENSE, leaves, of);
            for (int i = 0; ok && i < p->n_in; i++) {
                if (!of[i]) continue;
                double *g = opcheck_read(of[i]);
                if ((ok = g != NULL)) add_product(p, f, magnitude, p->weight[i], g, p->count[i]);
                free(g);
            }
        }
    }
    ct_set_device(device);
    return ok;
}

/* u of the head comment as a tensor like g. At another time it is changed at random, relative to itself. */
static ct_tensor *weight_at(const problem *p, int slot, double t, const ct_tensor *g) {
    const int64_t count = p->count[slot];
    double *values = random_array(count, (uint64_t)(1000 * p->draw + slot + 301));
    for (int64_t k = 0; k < count; k++) values[k] = p->weight[slot][k] * (1 + 1.7 * t * values[k]);
    ct_tensor *weight = opcheck_place(ct_dtype_of(g), p->shape[slot], values, OPCHECK_DENSE);
    free(values);
    return weight;
}

/* The derivatives of one order: of the inputs that vary, for the second those of the cotangents too. NULL: it is constant there. */
static bool derivatives(const problem *p, int order, double t, ct_dtype dtype, opcheck_layout layout,
                        opcheck_layout cotangents, ct_tensor **leaves, ct_tensor **grads) {
    ct_tensor *total = NULL, *xs[SLOTS], *found[SLOTS] = {NULL};
    const int slots = p->n_in + p->n_out;
    int nx = 0;
    for (int i = 0; i < slots; i++) grads[i] = NULL;
    if (!vjp(p, t, order == 2 ? CT_CREATE_GRAPH : 0, dtype, layout, cotangents, leaves, grads)) return false;
    if (order == 1) return true;
    for (int i = 0; i < p->n_in; i++) {
        if (!grads[i]) continue;
        ct_tensor *term = ct_sum(ct_mul(grads[i], weight_at(p, i, t, grads[i])));
        if (!(total = total ? ct_add(total, term) : term)) return false;
    }
    for (int i = 0; i < slots; i++)
        if (p->varies[i]) xs[nx++] = leaves[i];
    if (ct_requires_grad(total) && !ct_grad(&total, 1, NULL, xs, nx, found, 0)) return false;
    nx = 0;
    for (int i = 0; i < slots; i++) grads[i] = p->varies[i] ? found[nx++] : NULL;
    return true;
}

/* The right side of the head comment: the derivative by the library. Adds sum |gradient x| to magnitude. */
static bool derive(opcheck *check, const problem *p, int order, double *derivative, double *size, double *magnitude) {
    bool ok = false;
    for (int64_t k = 0; k < p->length; k++) derivative[k] = size[k] = 0;
    ct_scope {
        ct_tensor *leaves[SLOTS], *grads[SLOTS];
        ok = derivatives(p, order, 0, CT_F64, OPCHECK_DENSE, OPCHECK_DENSE, leaves, grads);
        int slots = order == 2 ? p->n_in + p->n_out : p->n_in;
        for (int i = 0; i < slots && ok; i++) {
            if (!grads[i]) continue;
            ct_dims shape = ct_shape(grads[i]);
            bool fits = ct_dtype_of(grads[i]) == CT_F64 && shape.n == p->shape[i].n &&
                        memcmp(shape.d, p->shape[i].d, (size_t)shape.n * sizeof(int64_t)) == 0;
            if (!opcheck_expect(check, fits, "order %d: the gradient of slot %d is %s, not f64%s", order, i,
                                ct_tensor_text(grads[i]), ct_dims_text(p->shape[i]))) {
                ok = false;
                break;
            }
            double *g = opcheck_read(grads[i]);
            add_product(p, derivative, size, g, p->direction[i], p->count[i]);
            add_product(p, (double[1]){0}, NULL, g, g, 0);
            for (int64_t k = 0; k < p->count[i]; k++) magnitude[p->pointwise ? k : 0] += fabs(g[k] * p->value[i][k]);
            free(g);
        }
    }
    return ok;
}

/* ---- One order ---- */

/* Returns whether no element was rough. */
static bool check_order(opcheck *check, const problem *p, int order, bool must_be_smooth, const char *form) {
    static const double times[6] = {0.5, -0.5, 1, -1, 2, -2};
    size_t n = (size_t)p->length + 1;
    double *block = calloc(n * 9, sizeof *block), *f[6], *derivative = block + 6 * n, *size = block + 7 * n,
           *magnitude = block + 8 * n;
    bool ok = derive(check, p, order, derivative, size, magnitude);
    for (int i = 0; i < 6; i++) f[i] = block + (size_t)i * n;
    for (int i = 0; i < 6 && ok; i++) ok = evaluate(p, order, times[i] * step, f[i], i == 0 ? magnitude : NULL);
    opcheck_expect(check, ok, "order %d%s: %s", order, form, ct_error());
    ct_error_clear();
    double length = p->pointwise ? 1 : (double)(p->sample->largest > 1 ? p->sample->largest : 1);
    int64_t rough = 0, wrong = -1, finite = 0;
    double coarse = 0, fine = 0, tolerance = 0;
    for (int64_t k = 0; ok && k < p->length && wrong < 0; k++) {
        coarse = (8 * (f[2][k] - f[3][k]) - (f[4][k] - f[5][k])) / (12 * step);
        fine = (8 * (f[0][k] - f[1][k]) - (f[2][k] - f[3][k])) / (6 * step);
        double rounding = 3 * LAMBDA * sqrt(length) * opcheck_unit(CT_F64) / 2 * magnitude[k] / step;
        tolerance = fabs(coarse - fine) + rounding;
        if (isfinite(fine)) finite++;
        if (!(fabs(coarse - fine) <= 1e-3 * (size[k] + fabs(fine)) + rounding)) rough++;
        else if (!(fabs(fine - derivative[k]) <= tolerance)) wrong = k;
    }
    if (ok && wrong >= 0)
        opcheck_expect(check, false,
                       "order %d%s: the derivative%s is %.12g by differences, %.12g by the op (tolerance %.2g)", order,
                       form, p->pointwise ? " of an element" : "", fine, derivative[wrong], tolerance);
    else if (ok && must_be_smooth)
        opcheck_expect(check, rough * 10 <= p->length,
                       "order %d%s: not smooth here (%.9g with step h, %.9g with h/2): the sample needs another domain",
                       order, form, coarse, fine);
    free(block);
    return ok && rough == 0;
}

/* ---- Layouts and smaller dtypes ---- */

/* The derivatives of one order, on the host. What is in f64 is computed where there is f64. */
static bool gradients(const problem *p, int order, ct_dtype dtype, opcheck_layout layout, opcheck_layout cotangents,
                      double t, double **g) {
    bool ok = false;
    const ct_device device = dtype == CT_F64 ? opcheck_begin_f64() : ct_get_device();
    ct_scope {
        ct_tensor *leaves[SLOTS], *grads[SLOTS];
        ok = derivatives(p, order, t, dtype, layout, cotangents, leaves, grads);
        for (int i = 0; i < p->n_in + p->n_out; i++) {
            g[i] = ok && grads[i] ? opcheck_read(grads[i]) : NULL;
            if (ok && grads[i] && (ct_dtype_of(grads[i]) != ct_dtype_of(leaves[i]) || !g[i]))
                ok = ct_fail(CT_ERR_DTYPE, p->sample->op->name, "the gradient of slot %d is %s", i,
                             ct_tensor_text(grads[i]));
        }
    }
    if (dtype == CT_F64) opcheck_end_f64(device);
    return ok;
}

/* The same in f64 on dense memory, by the CPU. */
static bool exact_gradients(const problem *p, int order, double t, double **g) {
    const ct_device device = opcheck_to_cpu();
    const bool ok = gradients(p, order, CT_F64, OPCHECK_DENSE, OPCHECK_DENSE, t, g);
    ct_set_device(device);
    return ok;
}

static void free_gradients(double **g, int n) {
    for (int i = 0; i < n; i++) free(g[i]);
}

/* How far the gradients move, element by element, when the cotangents (with `inputs` these as well) are changed relative to
 * their size (with `level`, to that and their mean size); the largest of a few draws. */
static void measure_moves(problem *p, int order, double *const *exact, bool inputs, bool level, double **moves) {
    const double amount = 0x1p-20;
    const int slots = p->n_in + p->n_out;
    for (int draw = 0; draw < 4; draw++) {
        double *before[SLOTS], *other[SLOTS] = {NULL};
        p->draw = draw;
        for (int i = 0; i < SLOTS; i++) {
            before[i] = p->direction[i];
            if (!p->varies[i]) continue;
            double mean = 0;
            for (int64_t k = 0; k < p->count[i] && level; k++) mean += fabs(p->value[i][k]) / (double)p->count[i];
            p->direction[i] = random_array(p->count[i], (uint64_t)(100 * draw + i + 7));
            const double size = inputs || i >= p->n_in ? 1.7 : 0;
            for (int64_t k = 0; k < p->count[i]; k++) p->direction[i][k] *= size * (fabs(p->value[i][k]) + mean);
        }
        bool usable = exact_gradients(p, order, amount, other);
        ct_error_clear();
        for (int i = 0; i < slots; i++)
            for (int64_t k = 0; usable && exact[i] && other[i] && k < p->count[i]; k++) {
                double move = fabs(other[i][k] - exact[i][k]) / amount;
                if (isfinite(move) && move > moves[i][k]) moves[i][k] = move;
            }
        free_gradients(other, slots);
        for (int i = 0; i < SLOTS; i++) {
            if (p->varies[i]) free(p->direction[i]);
            p->direction[i] = before[i];
        }
    }
}

/* The common shape of the inputs that broadcast. */
static ct_dims common_shape(const opcheck_sample *sample) {
    ct_dims shape = {0};
    for (int i = 0; i < sample->n_in; i++) {
        const opcheck_input *input = &sample->in[i];
        if (input->skipped || !(input->flags & CT_ARG_BROADCAST)) continue;
        ct_dims merged = {.n = input->shape.n > shape.n ? input->shape.n : shape.n};
        for (int d = 1; d <= merged.n; d++) {
            int64_t a = d <= shape.n ? shape.d[shape.n - d] : 1,
                    b = d <= input->shape.n ? input->shape.d[input->shape.n - d] : 1;
            merged.d[merged.n - d] = a == 1 ? b : a;
        }
        shape = merged;
    }
    return shape;
}

/* The gradient of an input that was expanded is a sum over the places it was expanded to: adds the root of the sum of
 * squares of those terms to terms. */
static void measure_expanded(problem *p, int input, double *terms) {
    const ct_dims own = p->shape[input], common = common_shape(p->sample);
    const int64_t count = p->count[input], all = opcheck_count(common);
    if (!(p->sample->in[input].flags & CT_ARG_BROADCAST) || all == count || !p->varies[input]) return;
    double *value = p->value[input], *expanded = malloc(((size_t)all + 1) * sizeof *expanded),
           *direction = p->direction[input], *g[SLOTS] = {NULL}, *squares = calloc((size_t)count + 1, sizeof *squares);
    int64_t *from = malloc(((size_t)all + 1) * sizeof *from);
    for (int64_t k = 0; k < all; k++) {
        int64_t rest = k, stride = 1;
        from[k] = 0;
        for (int d = 1; d <= common.n; d++) {
            const int64_t place = rest % common.d[common.n - d], size = d <= own.n ? own.d[own.n - d] : 1;
            rest /= common.d[common.n - d];
            if (size > 1) from[k] += place * stride;
            stride *= size;
        }
        expanded[k] = value[from[k]];
    }
    p->value[input] = expanded, p->shape[input] = common, p->count[input] = all;
    p->direction[input] = random_array(all, 1);
    bool usable = exact_gradients(p, 1, 0, g);
    ct_error_clear();
    for (int64_t k = 0; usable && k < all; k++) squares[from[k]] += g[input][k] * g[input][k];
    for (int64_t k = 0; usable && k < count; k++) terms[k] += sqrt(squares[k]);
    free(p->direction[input]);
    p->value[input] = value, p->shape[input] = own, p->count[input] = count, p->direction[input] = direction;
    free_gradients(g, p->n_in + p->n_out);
    free(expanded);
    free(squares);
    free(from);
}

/* Inputs away from 0 and further apart: where a half type has the fewest digits for them, and where functions saturate. */
static void move_away(const problem *p, int slot) {
    if (slot >= p->n_in || !p->varies[slot] || strcmp(p->sample->in[slot].domain, "any") != 0) return;
    for (int64_t k = 0; k < p->count[slot]; k++) p->value[slot][k] = 12 + 4 * p->value[slot][k];
}

/* Ops whose derivative reads a result of half precision knowingly. */
static bool reads_half_result(const ct_op *op) {
    static const char *const names[] = {
        /* flash attention: the row sums of g y; summing g v^T p in their place would cost two products more */
        "sdpa", "scaled_dot_product_attention", "multi_head_attention",
        /* the argument of gelu and the like, as it was rounded; in f32 the product would cost several times as much */
        "linear",
        /* internal ops, called in a half type only by public ones that do not need their derivatives in it */
        "linear_fused", "conv_fused", "recurrence", NULL};
    for (int i = 0; names[i]; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

/* Ops whose derivative subtracts the sums of g y over rows from products of g and v: flash attention. Where but one key takes
 * part both are the same, and the gradient of its score is zero. What rounding leaves of that difference is multiplied by k (or q) and
 * summed, so it is of the size of the largest cotangent times the largest elements of the two other inputs. */
static double size_of_differences(const problem *p, int input, double cotangent) {
    const char *name = p->sample->op->name;
    if (strcmp(name, "sdpa") != 0 && strcmp(name, "scaled_dot_product_attention") != 0) return 0;
    double size = cotangent;
    for (int i = 0; i < p->n_in && i < 3; i++) { /* q, k and v */
        double largest = 0;
        for (int64_t k = 0; i != input && k < p->count[i]; k++) largest = fmax(largest, fabs(p->value[i][k]));
        if (i != input) size *= largest;
    }
    return size;
}

/* The gradient in another dtype and layout against f64 on dense memory, of the same numbers. A vjp computes with unit
 * roundoff u, that of f32 for half types, and may round every intermediate result; those have the size of inputs (their mean
 * size where one is small), so D is measured with changes of |x| + mean |x|.
 *
 * In a half type, of unit roundoff v, a vjp may round what it returns, the terms of what it sums and a result that is
 * a factor of them. The terms are as large as what the gradient moves by when the cotangents alone change relative to themselves
 * (it is linear in them), or those of the sum over an expanded input. So the bound is 2 v (|g| + terms) beyond what f32
 * does to the same numbers and to differences of cotangents. A vjp may not read a rounded result or mean where one of f32 is needed: such an error is
 * of the size of inputs, and is found by inputs away from 0.
 *
 * On a device without f64 this is all there is to see of a derivative, so it takes every sample, and both orders. The second has the
 * sums of two such passes. There is more that no change of the inputs shows: 1 - y of a sigmoid that is saturated, terms that cancel
 * whatever the inputs are. It is of the size of the cotangents, of the second order times the weights, or
 * of the largest error that f32 has on the CPU, by kernels of its own. */
static void check_variant(opcheck *check, problem *p, int order, ct_dtype dtype, opcheck_layout layout,
                          opcheck_layout cotangents, bool away) {
    double *got[SLOTS] = {NULL}, *exact[SLOTS] = {NULL}, *single[SLOTS] = {NULL}, *moves[SLOTS] = {NULL},
           *terms[SLOTS] = {NULL}, *host[SLOTS] = {NULL}, *saved[SLOTS];
    const int slots = p->n_in + p->n_out;
    for (int i = 0; i < SLOTS; i++) { /* rounding and repeating change the values: put them back afterwards */
        saved[i] = p->value[i];
        if (!saved[i]) continue;
        p->value[i] = malloc(((size_t)p->count[i] + 1) * sizeof(double));
        memcpy(p->value[i], saved[i], (size_t)p->count[i] * sizeof(double));
        if (away) move_away(p, i);
    }
    char form[112];
    snprintf(form, sizeof form, "%sgradient in %s, inputs %s%s, cotangents %s",
             order == 2     ? "second "
             : p->only >= 0 ? "one "
                            : "",
             ct_dtype_name(dtype), away ? "away from 0, " : "", opcheck_layout_name(layout),
             opcheck_layout_name(cotangents));
    const bool half = opcheck_unit(dtype) > opcheck_unit(CT_F32), strict = half && !reads_half_result(p->sample->op);
    bool ok = gradients(p, order, dtype, layout, cotangents, 0, got) && exact_gradients(p, order, 0, exact) &&
              (!strict || gradients(p, order, CT_F32, OPCHECK_DENSE, OPCHECK_DENSE, 0, single));
    if (ok && !opcheck_has_f64()) {
        const ct_device device = opcheck_begin_f64();
        ok = gradients(p, order, CT_F32, OPCHECK_DENSE, OPCHECK_DENSE, 0, host);
        opcheck_end_f64(device);
    }
    opcheck_expect(check, ok, "%s: %s", form, ct_error());
    ct_error_clear();
    for (int i = 0; i < slots && ok; i++) {
        moves[i] = calloc((size_t)p->count[i] + 1, sizeof(double));
        terms[i] = calloc((size_t)p->count[i] + 1, sizeof(double));
    }
    if (ok) measure_moves(p, order, exact, true, true, moves);
    if (ok && strict) measure_moves(p, order, exact, false, false, terms);
    for (int i = 0; ok && strict && i < p->n_in; i++) measure_expanded(p, i, terms[i]);
    const double length = (double)(p->sample->largest > 1 ? p->sample->largest : 1);
    double cotangent = 0;
    for (int i = p->n_in; i < p->n_in + p->n_out; i++)
        for (int64_t k = 0; p->varies[i] && k < p->count[i]; k++) cotangent = fmax(cotangent, fabs(p->value[i][k]));
    double weight = 0;
    for (int i = 0; i < p->n_in; i++)
        for (int64_t k = 0; p->varies[i] && k < p->count[i]; k++) weight = fmax(weight, fabs(p->weight[i][k]));
    for (int i = 0; ok && i < slots; i++) {
        int64_t wrong = -1;
        double tolerance = 0;
        if (!opcheck_expect(check, !exact[i] || got[i], "%s: of slot %d there is none", form, i)) continue;
        const double differences = size_of_differences(p, i, cotangent),
                     cancelled = opcheck_has_f64() ? 0 : cotangent * (order == 2 ? weight : 1);
        double usual = 0;
        for (int64_t k = 0; host[i] && exact[i] && k < p->count[i]; k++)
            usual = fmax(usual, fabs(host[i][k] - exact[i][k])); /* NaN is no number to be near to */
        for (int64_t k = 0; exact[i] && k < p->count[i] && wrong < 0; k++) {
            double g = exact[i][k], unit = opcheck_unit(strict ? CT_F32 : dtype) / 2;
            tolerance = order * LAMBDA * sqrt(length) * unit * (fabs(g) + moves[i][k] + differences + cancelled) +
                        opcheck_flushed(dtype) + LAMBDA * usual;
            if (strict)
                tolerance +=
                    fabs(single[i][k] - g) + LAMBDA * unit * cotangent + opcheck_unit(dtype) * (fabs(g) + terms[i][k]);
            bool both =
                (isnan(g) && isnan(got[i][k])) || g == got[i][k] || fabs(g) + tolerance >= opcheck_largest(dtype);
            if (!both && !(fabs(got[i][k] - g) <= tolerance)) wrong = k;
        }
        opcheck_expect(check, wrong < 0, "%s: of slot %d at %lld %.9g, in f64 %.9g (tolerance %.2g)", form, i,
                       (long long)wrong, wrong < 0 ? 0 : got[i][wrong], wrong < 0 ? 0 : exact[i][wrong], tolerance);
    }
    free_gradients(got, slots);
    free_gradients(exact, slots);
    free_gradients(single, slots);
    free_gradients(moves, slots);
    free_gradients(host, slots);
    free_gradients(terms, slots);
    for (int i = 0; i < SLOTS; i++) {
        free(p->value[i]);
        p->value[i] = saved[i];
    }
}

/* A gradient is the same whether those of other inputs are wanted with it or not, but for rounding: it may be computed
 * otherwise, and less is saved. */
static void check_alone(opcheck *check, problem *p) {
    double *all[SLOTS] = {NULL}, *got[SLOTS] = {NULL};
    bool ok = gradients(p, 1, CT_F64, OPCHECK_DENSE, OPCHECK_DENSE, 0, all);
    for (int i = 0; ok && i < p->n_in; i++) {
        if (!p->varies[i]) continue;
        p->only = i;
        bool alone = gradients(p, 1, CT_F64, OPCHECK_DENSE, OPCHECK_DENSE, 0, got);
        p->only = -1;
        opcheck_expect(check, alone, "the gradient of input %d alone: %s", i, ct_error());
        ct_error_clear();
        double largest = 1;
        int64_t wrong = -1;
        for (int64_t k = 0; alone && k < p->count[i]; k++) largest = fmax(largest, fabs(all[i][k]));
        for (int64_t k = 0; alone && k < p->count[i] && wrong < 0; k++)
            if (!(isnan(all[i][k]) && isnan(got[i][k])) && all[i][k] != got[i][k] &&
                !(fabs(got[i][k] - all[i][k]) <= largest * 0x1p-30))
                wrong = k;
        opcheck_expect(check, wrong < 0, "the gradient of input %d alone: at %lld %.9g, beside others %.9g", i,
                       (long long)wrong, wrong < 0 ? 0 : got[i][wrong], wrong < 0 ? 0 : all[i][wrong]);
        free_gradients(got, p->n_in + p->n_out);
    }
    free_gradients(all, p->n_in + p->n_out);
}

/* ---- A sample ---- */

static bool input_varies(const opcheck_input *input) {
    return !input->skipped && !opcheck_is_index(input) && strcmp(input->domain, "i64") != 0 &&
           !(input->flags & CT_ARG_MUTATED);
}

/* Sets the problem up at the sample's values. False when nothing in it can be differentiated. */
static bool open_problem(opcheck *check, problem *p, opcheck_sample *sample, bool pointwise) {
    *p = (problem){.sample = sample,
                   .n_in = sample->n_in,
                   .n_out = sample->n_out,
                   .pointwise = pointwise,
                   .exact = true,
                   .length = 1,
                   .only = -1};
    bool any = false, results = false;
    for (int i = 0; i < p->n_in; i++) {
        const opcheck_input *input = &sample->in[i];
        if (input->skipped) continue;
        p->varies[i] = input_varies(input);
        p->shape[i] = pointwise && (input->flags & CT_ARG_BROADCAST) ? common_shape(sample) : input->shape;
        p->count[i] = opcheck_count(p->shape[i]);
        p->value[i] = malloc(((size_t)p->count[i] + 1) * sizeof(double));
        opcheck_fill(input, i, false, p->value[i], p->count[i]);
        p->direction[i] = random_array(p->count[i], (uint64_t)i + 1);
        p->weight[i] = random_array(p->count[i], (uint64_t)i + 51);
        any |= p->varies[i];
    }
    if (!any) return false;
    bool ok = false;
    const ct_device device = opcheck_begin_f64();
    ct_scope {
        ct_tensor *in[SLOTS], *out[OPCHECK_OUTPUTS];
        ok = forward(p, 0, true, CT_F64, OPCHECK_DENSE, in, out);
        for (int i = 0; ok && i < p->n_out; i++) {
            int slot = p->n_in + i;
            if (!ct_dtype_is_float(ct_dtype_of(out[i]))) continue;
            if (!ct_op_differentiable(sample->op)) { /* then differentiating it is an error, never a silent constant */
                ct_tensor *one = ct_ones_like(out[i]);
                bool passed = ct_requires_grad(out[i]) && ct_backward_from(out[i], one, 0);
                opcheck_expect(check, !passed, "result %d has a gradient, but the op is not differentiable", i);
                ct_error_clear();
                continue;
            }
            opcheck_expect(check, ct_requires_grad(out[i]),
                           "result %d is cut from the graph, but the op is differentiable", i);
            if (!ct_requires_grad(out[i])) continue;
            p->varies[slot] = results = true;
            p->exact &= ct_dtype_of(out[i]) == CT_F64;
            p->shape[slot] = ct_shape(out[i]);
            p->count[slot] = ct_numel(out[i]);
            p->value[slot] = random_array(p->count[slot], (uint64_t)slot + 101);
            p->direction[slot] = random_array(p->count[slot], (uint64_t)slot + 151);
            if (pointwise) p->length = p->count[slot];
        }
    }
    opcheck_end_f64(device);
    opcheck_expect(check, ok, "forward in f64: %s", ct_error());
    ct_error_clear();
    return ok && results;
}

/* Rows that padding_idx names get no gradient on purpose: the first order is not the derivative of the result. */
static bool is_deliberate(const opcheck_sample *sample) {
    return memmem(sample->text, (size_t)sample->length, "padding_idx=", 12) != NULL;
}

static void check_layouts(opcheck *check, problem *p) {
    const ct_dtype widest = opcheck_has_f64() ? CT_F64 : CT_F32;
    check_variant(check, p, 1, widest, OPCHECK_TRANSPOSED, OPCHECK_TRANSPOSED, false);
    check_variant(check, p, 1, widest, OPCHECK_DENSE, OPCHECK_STRIDE0, false);
    check_variant(check, p, 1, widest, OPCHECK_DENSE, OPCHECK_BROADCAST, false);
    check_variant(check, p, 1, CT_F32, OPCHECK_BACKWARDS, OPCHECK_STEP, false);
    check_variant(check, p, 1, widest, OPCHECK_STEP, OPCHECK_BACKWARDS, false);
    if (check->what & OPCHECK_WIDE) return;
    check_variant(check, p, 1, CT_F16, OPCHECK_SLICE, OPCHECK_DENSE, false);
    check_variant(check, p, 1, CT_BF16, OPCHECK_DENSE, OPCHECK_SLICE, false);
    if (!(p->sample->op->flags & CT_OP_INTERNAL) &&
        !reads_half_result(p->sample->op)) /* others get what belongs together */
        check_variant(check, p, 1, CT_BF16, OPCHECK_DENSE, OPCHECK_DENSE, true);
}

/* A device without f64. An input's gradient alone is held against f64 as well. */
static void check_in_f32(opcheck *check, opcheck_sample *sample) {
    problem p;
    if (opcheck_is_beyond(sample)) return;
    if (open_problem(check, &p, sample, false) && p.exact) {
        for (int order = 1; order <= 2; order++)
            check_variant(check, &p, order, CT_F32, OPCHECK_DENSE, OPCHECK_DENSE, false);
        if (sample->largest <= LARGE) {
            int varied = 0;
            check_layouts(check, &p);
            for (int i = 0; i < p.n_in; i++) varied += p.varies[i];
            for (int i = 0; i < p.n_in && varied > 1; i++) {
                if (!p.varies[i]) continue;
                p.only = i;
                check_variant(check, &p, 1, CT_F32, OPCHECK_DENSE, OPCHECK_DENSE, false);
            }
        }
    }
    free_problem(&p);
}

void opcheck_gradients(opcheck *check, opcheck_sample *sample) {
    bool elementwise = sample->op->flags & CT_OP_ELEMENTWISE, smooth[3] = {true, true, true};
    problem p;
    if (!opcheck_has_f64()) {
        check_in_f32(check, sample);
        return;
    }
    for (int form = 0; form < (elementwise ? 2 : 1); form++) {
        bool pointwise = elementwise && form == 0, large = sample->largest > LARGE;
        const char *text = !elementwise ? "" : pointwise ? " (each element)" : " (summed)";
        if (elementwise && large && !pointwise) break;
        if (open_problem(check, &p, sample, pointwise) && p.exact) {
            for (int order = 1; order <= 2; order++)
                if (smooth[order] && !(order == 1 && is_deliberate(sample)))
                    smooth[order] = check_order(check, &p, order, !elementwise || pointwise, text);
            if (!pointwise && !large) check_layouts(check, &p);
            if (!pointwise && !large) check_alone(check, &p);
        }
        free_problem(&p);
    }
}

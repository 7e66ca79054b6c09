/* Random calls of every op of the table through ct_apply_with: mutated samples and made-up ones, with shapes, dtypes,
 * layouts, options and counts that no caller should give. Whatever happens, the library says what is wrong and goes on: it
 * succeeds or leaves an error that names the op, never both, leaks nothing and changes no argument that it should not.
 *     fuzz_ops [calls] [seed] [first]      see tests/fuzz_calls.h
 * FUZZ_DEVICE=cuda makes them on another device than the CPU, where a value that is wrong may be told of at the next wait only. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/attrs.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "tests/fuzz_calls.h"
#include "tests/harness_backend.h"
#include "tests/host_memory.h"
#include "tests/opcheck_plan.h"

enum {
    MOST_FAILING = 60,  /* allocations of a call that fail in turn */
    MEMORY = 192 << 20, /* for the library */
    BLOCK = 24 << 20,   /* at once */
    SLACK = 4 << 20,    /* memory that may stay in use: caches, and released handles that a debug build keeps */
};

static ct_device device = {CT_CPU, 0}; /* FUZZ_DEVICE */

/* ---- Tensors ---- */

/* Any strides and offset inside a block, so that elements may coincide. */
static ct_tensor *with_random_strides(const opcheck_argument *a, const double *values) {
    ct_view view = {.dtype = a->dtype, .ndim = a->shape.n, .offset = (int64_t)fuzz_upto(4)};
    int64_t total = view.offset + 1;
    for (int i = 0; i < view.ndim; i++) {
        view.dims[i] = a->shape.d[i];
        view.strides[i] = (int64_t)fuzz_upto(4);
        if (a->shape.d[i] > 1) total += (a->shape.d[i] < OPCHECK_LARGE ? a->shape.d[i] - 1 : 0) * view.strides[i];
        if (a->shape.d[i] >= OPCHECK_LARGE) view.strides[i] = 0;
    }
    const size_t size = ct_dtype_size(a->dtype);
    const int64_t count = opcheck_count(a->shape);
    char *memory = malloc((size_t)total * size);
    for (int64_t i = 0; i < total; i++)
        ct__dtype_put(a->dtype, memory + (size_t)i * size, count ? values[i % count] : 0);
    ct_tensor *all = ct_from_data(memory, CT_DIMS(total), a->dtype);
    free(memory);
    return all ? ct__scope_adopt(ct__tensor_new(&view, all->storage)) : NULL;
}

static ct_tensor *make_input(const opcheck_argument *a, int position) {
    const int64_t count = opcheck_count(a->shape);
    opcheck_input like = {.shape = a->shape};
    memcpy(like.domain, a->domain, sizeof like.domain);
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    opcheck_fill(&like, position, !ct_dtype_is_float(a->dtype), values, count);
    for (uint64_t i = a->extreme ? 1 + fuzz_upto(4) : 0; i > 0 && count; i--)
        values[fuzz_upto((uint64_t)count)] = fuzz_double();
    const bool absurd = opcheck_extent(a->shape) > OPCHECK_LARGE; /* and so without an element */
    ct_tensor *x = absurd ? ct_from_data(values, a->shape, a->dtype)
                   : a->layout == OPCHECK_RANDOM_STRIDES
                       ? with_random_strides(a, values)
                       : opcheck_place(a->dtype, a->shape, values, (opcheck_layout)a->layout);
    free(values);
    return x && a->grad ? ct_set_requires_grad(x, true) : x;
}

static bool make_inputs(const opcheck_plan *p, ct_tensor **in) {
    for (int i = 0; i < p->n_in; i++) {
        const opcheck_argument *a = &p->in[i];
        in[i] = a->absent ? NULL : a->same_as >= 0 ? in[a->same_as] : make_input(a, i);
        if (!a->absent && a->same_as < 0 && !in[i]) return false;
    }
    return ct_ok();
}

/* The bytes of the inputs, to see that they stay. */
typedef struct snapshot {
    void *bytes[OPCHECK_INPUTS];
} snapshot;

static void take_snapshot(snapshot *s, ct_tensor *const *in, int n) {
    for (int i = 0; i < n; i++) {
        s->bytes[i] = in[i] ? malloc(in[i]->storage->bytes + 1) : NULL;
        if (s->bytes[i]) ct__storage_get(in[i]->storage, 0, s->bytes[i], in[i]->storage->bytes);
    }
}

static bool is_unchanged(const ct_storage *storage, const void *before) {
    void *now = malloc(storage->bytes + 1);
    const bool same =
        now && ct__storage_get(storage, 0, now, storage->bytes) && memcmp(before, now, storage->bytes) == 0;
    free(now);
    return same;
}

static void check_snapshot(snapshot *s, const opcheck_plan *p, ct_tensor *const *in, const ct_tensor *target) {
    for (int i = 0; i < p->n_in; i++) {
        if (!s->bytes[i]) continue;
        bool may_change = target && in[i]->storage == target->storage;
        for (int j = 0; j < p->n_in; j++) /* the same tensor may be given as one that the op changes */
            may_change |= in[j] && in[j]->storage == in[i]->storage && (opcheck_arg(p->op, j)->flags & CT_ARG_MUTATED);
        fuzz_expect(may_change || is_unchanged(in[i]->storage, s->bytes[i]), "input %d was changed", i);
        free(s->bytes[i]);
    }
}

/* ---- Calls ---- */

/* What dispatch does before infer sees the inputs. */
static bool agree(const ct_op *op, ct_tensor **in, int n) {
    ct_dtype common = CT_DTYPE_COUNT;
    ct_dims shape = {0};
    for (int i = 0; i < n; i++) {
        const unsigned flags = opcheck_arg(op, i)->flags;
        if (in[i] && (flags & CT_ARG_PROMOTE))
            common = common == CT_DTYPE_COUNT ? ct_dtype_of(in[i]) : ct_dtype_promote(common, ct_dtype_of(in[i]));
        if (!in[i] || !(flags & CT_ARG_BROADCAST)) continue;
        const ct_dims own = ct_shape(in[i]);
        ct_dims merged = {.n = own.n > shape.n ? own.n : shape.n};
        for (int d = 1; d <= merged.n; d++) {
            const int64_t a = d <= shape.n ? shape.d[shape.n - d] : 1, b = d <= own.n ? own.d[own.n - d] : 1;
            merged.d[merged.n - d] = a == 1 ? b : a;
        }
        shape = merged;
    }
    for (int i = 0; i < n; i++) {
        const unsigned flags = opcheck_arg(op, i)->flags;
        if (in[i] && (flags & CT_ARG_PROMOTE)) in[i] = ct_cast(in[i], common);
        if (in[i] && (flags & CT_ARG_FLOAT) && !ct_dtype_is_float(ct_dtype_of(in[i]))) in[i] = ct_cast(in[i], CT_F32);
        if (in[i] && (flags & CT_ARG_BROADCAST)) in[i] = ct_expand(in[i], shape);
    }
    return ct_ok();
}

/* The results are what infer says. */
static void check_inferred(const opcheck_plan *p, ct_tensor *const *in, ct_tensor *const *out) {
    if (!p->op->infer || p->autocast != CT_F32) return;
    ct_tensor *ready[OPCHECK_INPUTS];
    const ct_view *views[OPCHECK_INPUTS];
    ct_view made[OPCHECK_OUTPUTS];
    memset(made, 0, sizeof made);
    for (int i = 0; i < p->n_in; i++) ready[i] = in[i];
    if (!fuzz_expect(agree(p->op, ready, p->n_in), "the inputs do not agree: %s", ct_error())) return;
    for (int i = 0; i < p->n_in; i++) views[i] = ready[i] ? &ready[i]->view : NULL;
    ct_infer infer = {.op = p->op, .attrs = p->attrs, .n_in = p->n_in, .n_out = p->n_out, .in = views, .out = made};
    if (!fuzz_expect(p->op->infer(&infer), "infer refuses what was computed: %s", ct_error())) return;
    for (int i = 0; i < p->n_out; i++) {
        if (!out[i]) continue;
        const ct_view *a = &out[i]->view, *b = &made[i];
        const bool same = a->dtype == b->dtype && a->ndim == b->ndim &&
                          memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof(int64_t)) == 0;
        fuzz_expect(same, "result %d is %s, by infer %s", i, ct_view_text(a), ct_view_text(b));
    }
}

static ct_tensor *make_target(const opcheck_plan *p, ct_tensor *const *in) {
    ct_tensor *out[OPCHECK_OUTPUTS], *target = NULL;
    switch (p->target) {
    case OPCHECK_NO_TARGET: return NULL;
    case OPCHECK_TARGET_WRONG: return ct_zeros(opcheck_draw_shape());
    case OPCHECK_TARGET_IS_INPUT:
        for (int i = 0; i < p->n_in; i++)
            if (in[i]) return ct_detach(in[i]);
        return NULL;
    case OPCHECK_TARGET_LIKE_RESULT:
        ct_no_grad {
            if (p->n_out > 0 && ct_apply(p->op, in, p->n_in, p->attrs, out, p->n_out) && out[0])
                target = fuzz_chance(50) ? ct_empty_like(out[0]) : ct_flip(ct_contiguous(out[0]), CT_DIMS0);
        }
        ct_error_clear();
    }
    return target;
}

static bool is_sound(bool ok, const char *what) {
    return fuzz_expect(ok == ct_ok(), "%s returned %s with error '%s'", what, ok ? "true" : "false", ct_error());
}

/* Gradients, and gradients of these. */
static void differentiate(const opcheck_plan *p, ct_tensor *const *in, ct_tensor *const *out) {
    ct_tensor *ys[OPCHECK_OUTPUTS], *cots[OPCHECK_OUTPUTS], *xs[OPCHECK_INPUTS], *grads[OPCHECK_INPUTS];
    int ny = 0, nx = 0;
    for (int i = 0; i < p->n_out; i++)
        if (out[i] && ct_dtype_is_float(ct_dtype_of(out[i])) && ct_requires_grad(out[i])) ys[ny++] = out[i];
    for (int i = 0; i < p->n_in; i++)
        if (in[i] && p->in[i].same_as < 0 && p->in[i].grad) xs[nx++] = in[i];
    if (!ny || !nx) return;
    for (int order = 1; order <= 2; order++) {
        for (int i = 0; i < ny; i++)
            cots[i] = fuzz_chance(50) ? ct_ones_like(ys[i]) : ct_expand(ct_ones(CT_DIMS0), ct_shape(ys[i]));
        for (int i = 0; i < ny; i++)
            if (cots[i]) cots[i] = ct_cast(cots[i], ct_dtype_of(ys[i]));
        if (!ct_ok()) break; /* no memory for them */
        const bool ok = ct_grad(ys, ny, cots, xs, nx, grads, CT_CREATE_GRAPH);
        if (!is_sound(ok, order == 1 ? "ct_grad" : "ct_grad of the gradients") || !ok) break;
        for (int i = 0; i < nx; i++) {
            const ct_view *a = &grads[i]->view, *b = &xs[i]->view;
            fuzz_expect(a->dtype == b->dtype && a->ndim == b->ndim &&
                            memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof(int64_t)) == 0,
                        "the gradient is %s, its input %s", ct_view_text(a), ct_view_text(b));
        }
        ny = 0;
        for (int i = 0; i < nx; i++)
            if (ct_requires_grad(grads[i])) ys[ny < OPCHECK_OUTPUTS ? ny++ : 0] = grads[i];
        if (!ny) break;
    }
    ct_error_clear();
}

static bool run_once(const opcheck_plan *p, ct_tensor *const *in, ct_tensor **out, ct_tensor *target) {
    for (int i = 0; i < OPCHECK_OUTPUTS; i++) out[i] = (ct_tensor *)(void *)out; /* has to be overwritten */
    if (target && !ct_into(target)) ct_error_clear(); /* elements that share memory cannot be written */
    if (p->shared_error) ct_fail(CT_ERR_VALUE, "before", "an error of before");
    const ct_dtype autocast = ct_set_autocast(p->autocast);
    const bool ok = ct_apply_with(p->op, p->no_inputs ? NULL : in, p->n_in, p->no_attrs ? NULL : p->attrs,
                                  p->no_outputs ? NULL : out, p->n_out, p->some_wanted ? p->want : NULL, NULL);
    ct_set_autocast(autocast);
    for (int i = 0; !p->no_outputs && i < p->n_out; i++) {
        const bool wanted = !p->some_wanted || p->want[i];
        fuzz_expect(!out[i] == !(ok && wanted), "result %d is %s", i, out[i] ? "there" : "NULL");
    }
    return ok;
}

static void check_call(const opcheck_plan *p, ct_tensor *const *in) {
    ct_tensor *out[OPCHECK_OUTPUTS], *target = make_target(p, in);
    snapshot before;
    take_snapshot(&before, in, p->n_in);
    bool ok = run_once(p, in, out, target);
    if (device.type != CT_CPU && !ct_synchronize(device)) ok = false; /* also what its parts found before it failed */
    if (p->shared_error) {
        fuzz_expect(!ct_ok() && strcmp(ct_error_op(), "before") == 0, "the first error was lost: %s", ct_error());
        ct_error_clear();
    } else if (is_sound(ok, "the call") && !ok) {
        fuzz_expect(strcmp(ct_error_op(), p->op->name) == 0, "the error is of %s: %s", ct_error_op(), ct_error());
    }
    ct_error_clear();
    check_snapshot(&before, p, in, target);
    if (!ok || p->no_outputs) return;
    fuzz_worked();
    if (!p->no_attrs && !p->no_inputs && fuzz_chance(30)) check_inferred(p, in, out);
    ct_error_clear();
    differentiate(p, in, out);
}

/* The same call with its first, second, ... allocation failing. */
static void fail_allocations(const opcheck_plan *p, ct_tensor *const *in) {
    ct_tensor *out[OPCHECK_OUTPUTS];
    for (int64_t n = 1; n <= MOST_FAILING; n++) {
        const int64_t live = ct_live_objects();
        bool reached = false;
        ct_scope {
            ct__alloc_fail_at(n);
            const bool ok = run_once(p, in, out, NULL);
            if (ok && fuzz_chance(30)) differentiate(p, in, out);
            reached = ct__alloc_fail_left() <= 0;
            ct__alloc_fail_at(0);
            if (!ok && !p->shared_error)
                fuzz_expect(!ct_ok(), "without allocation %lld the call failed without an error", (long long)n);
            ct_error_clear();
        }
        fuzz_expect(ct_live_objects() == live, "without allocation %lld %lld objects leak", (long long)n,
                    (long long)(ct_live_objects() - live));
        if (!reached) break;
    }
}

/* infer alone, of inputs so large that there can be no such tensors but views. */
static void check_infer_alone(const opcheck_plan *p) {
    ct_view views[OPCHECK_INPUTS], made[OPCHECK_OUTPUTS];
    const ct_view *in[OPCHECK_INPUTS];
    memset(views, 0, sizeof views);
    memset(made, 0, sizeof made);
    if (!p->op->infer || p->no_attrs || p->no_inputs || p->no_outputs || p->n_out < 1) return;
    const int named = opcheck_count_args(p->op->inputs);
    if (p->n_in < named - (named && (p->op->inputs[named - 1].flags & CT_ARG_LIST) ? 1 : 0)) return;
    if (p->n_in > named && !(named && (p->op->inputs[named - 1].flags & CT_ARG_LIST))) return;
    if (!(p->op->outputs[0].flags & CT_ARG_LIST) && p->n_out > opcheck_count_args(p->op->outputs)) return;
    const uint64_t shift = 8 + fuzz_upto(48);
    for (int i = 0; i < p->n_in; i++) {
        const opcheck_argument *a = p->in[i].same_as >= 0 ? &p->in[p->in[i].same_as] : &p->in[i];
        in[i] = a->absent ? NULL : &views[i];
        if (a->absent && !(opcheck_arg(p->op, i)->flags & CT_ARG_OPTIONAL)) return;
        views[i].dtype = a->dtype;
        views[i].ndim = a->shape.n;
        for (int d = 0; d < a->shape.n; d++) views[i].dims[d] = a->shape.d[d];
        if (a->shape.n && fuzz_chance(60)) views[i].dims[fuzz_upto((uint64_t)a->shape.n)] = 1LL << shift;
        ct_dims shape = {.n = a->shape.n};
        memcpy(shape.d, views[i].dims, sizeof views[i].dims);
        if (opcheck_extent(shape) > INT64_MAX / 16) return;
        ct__view_dense_strides(&views[i]);
    }
    if (!ct__attrs_check(p->op, p->attrs)) {
        ct_error_clear();
        return;
    }
    for (int i = 0; i < p->n_in; i++) { /* dispatch has seen to these */
        const unsigned flags = opcheck_arg(p->op, i)->flags;
        if (!in[i]) continue;
        if ((flags & CT_ARG_FLOAT) && !ct_dtype_is_float(in[i]->dtype)) views[i].dtype = CT_F32;
        if ((flags & CT_ARG_INDEX) && in[i]->dtype != CT_I32) views[i].dtype = CT_I64;
        if (flags & CT_ARG_BOOL) views[i].dtype = CT_BOOL;
        for (int j = 0; j < i; j++) {
            const unsigned other = opcheck_arg(p->op, j)->flags;
            if (!in[j]) continue;
            if (flags & other & CT_ARG_PROMOTE) views[i].dtype = views[j].dtype;
            if (flags & other & CT_ARG_BROADCAST) {
                views[i].ndim = views[j].ndim;
                memcpy(views[i].dims, views[j].dims, sizeof views[i].dims);
            }
        }
    }
    ct_infer infer = {.op = p->op, .attrs = p->attrs, .n_in = p->n_in, .n_out = p->n_out, .in = in, .out = made};
    const bool ok = p->op->infer(&infer);
    if (!ok) fuzz_expect(!ct_ok(), "infer of sizes 2^%d failed without an error", (int)shift);
    else fuzz_expect(ct_ok(), "infer of sizes 2^%d succeeded with an error: %s", (int)shift, ct_error());
    for (int i = 0; ok && i < p->n_out; i++) {
        /* sizes that are negative or too large are refused in one place, when the result is made */
        const bool good = made[i].ndim >= 0 && made[i].ndim <= CT_MAX_DIMS && (unsigned)made[i].dtype < CT_DTYPE_COUNT;
        fuzz_expect(good, "infer of sizes 2^%d gave %d dimensions, dtype %d", (int)shift, made[i].ndim,
                    (int)made[i].dtype);
    }
    ct_error_clear();
}

static void call(void) {
    opcheck_plan p = {.op = ct_op_at((int)fuzz_upto((uint64_t)ct_op_count()))};
    opcheck check = {.op = p.op};
    p.attrs = calloc(1, p.op->attr_size + 1);
    opcheck_make_plan(&p, &check);
    opcheck_say_plan(&p);
    if (device.type != CT_CPU) {
        ct_set_device(device);
    } else if (fuzz_chance(25)) { /* what is lowered takes the same calls */
        fuzz_say("%s", ", in primitives");
        ct_set_device(harness_device(HARNESS_PRIMITIVES));
    }
    ct_seed(fuzz_draw());
    ct_set_grain(fuzz_chance(20) ? 1 : 0); /* work is cut into chunks however small it is */
    const int64_t live = ct_live_objects(), in_use = harness_memory().in_use;
    ct_scope {
        ct_tensor *in[OPCHECK_INPUTS];
        const bool made = make_inputs(&p, in);
        ct_error_clear();
        if (made) {
            check_call(&p, in);
            if (fuzz_chance(6)) fail_allocations(&p, in);
        }
        if (fuzz_chance(30)) check_infer_alone(&p);
    }
    if (device.type != CT_CPU && !ct_synchronize(device)) ct_error_clear(); /* of a gradient, which may be of no use */
    fuzz_expect(ct_live_objects() == live, "%lld objects leak", (long long)(ct_live_objects() - live));
    fuzz_expect(harness_memory().in_use <= in_use + SLACK, "%lld bytes leak",
                (long long)(harness_memory().in_use - in_use));
    ct_set_device((ct_device){CT_CPU, 0});
    free(p.attrs);
}

/* Each seed runs on one level of vector instructions, of those that the machine has. */
static bool start(void) {
    static const char *const levels[] = {"avx512", "avx2", "base"};
    if (!fuzz_limit_memory(MEMORY, BLOCK) || !ct_set_threads(1)) return false;
    if (!ct_set_memory_limit(harness_device(HARNESS_PRIMITIVES), MEMORY))
        return false; /* its tables are made now, too */
    if (!ct_set_isa(levels[fuzz_seed() % 3])) ct_error_clear();
    const char *name = getenv("FUZZ_DEVICE");
    return !name || (ct_device_parse(name, &device) && ct_set_memory_limit(device, MEMORY));
}

int main(int argc, char **argv) {
    /* with sanitizers sixty thousand elements, one a chunk, in primitives take ten seconds */
    static fuzz_calls calls = {.program = "fuzz_ops", .calls = 150000, .start = start, .call = call, .seconds = 40};
    if (getenv("FUZZ_DEVICE")) calls.seconds = 60; /* a device may compile its kernels when they are first used */
    return fuzz_calls_run(argc, argv, &calls);
}

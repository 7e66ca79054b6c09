/* A captured call, and its gradients, against the eager one: on other values than it was captured with, the same bits. */
#include <cotangent/capture.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck.h"

enum { RESULTS = OPCHECK_OUTPUTS + 2 * OPCHECK_INPUTS };

typedef struct work {
    const opcheck_sample *sample;
    ct_tensor *in[OPCHECK_INPUTS];
    ct_tensor *results[RESULTS]; /* outputs, gradients, and inputs that are changed; kept */
    int n;
} work;

static void add(work *w, ct_tensor *x) {
    if (x && w->n < RESULTS) w->results[w->n++] = ct_keep(x);
}

static void drop_results(work *w) {
    for (int i = 0; i < w->n; i++) ct_drop(w->results[i]);
    w->n = 0;
}

static bool is_differentiable(const work *w, const ct_tensor *y) {
    const ct_op *op = w->sample->op;
    return y && ct_op_differentiable(op) && !(op->flags & CT_OP_MUTATES) && ct_dtype_is_float(ct_dtype_of(y)) &&
           ct_requires_grad(y);
}

static bool run(void *context) {
    work *w = context;
    ct_tensor *out[OPCHECK_OUTPUTS] = {NULL}, *leaves[OPCHECK_INPUTS], *grads[OPCHECK_INPUTS];
    int n = 0;
    drop_results(w);
    if (!opcheck_apply(w->sample, w->in, out)) return false;
    for (int i = 0; i < w->sample->n_out; i++) add(w, out[i]);
    for (int i = 0; i < w->sample->n_in; i++)
        if (w->in[i] && ct_requires_grad(w->in[i])) leaves[n++] = w->in[i];
    if (n && is_differentiable(w, out[0])) {
        ct_tensor *ones = ct_ones_like(ct_detach(out[0]));
        if (!ct_grad(&out[0], 1, &ones, leaves, n, grads, 0)) return false;
        for (int i = 0; i < n; i++) add(w, grads[i]);
    }
    return ct_ok();
}

static ct_dtype own_dtype(const opcheck_input *input, ct_dtype dtype) {
    const bool fixed = opcheck_is_index(input) || strcmp(input->domain, "i64") == 0;
    return strcmp(input->domain, "bool") == 0 ? CT_BOOL : fixed ? CT_I64 : dtype;
}

/* Inputs of the sample, in the scope; draw tells one set of values from another. */
static void make_inputs(work *w, ct_dtype dtype, int draw) {
    for (int i = 0; i < w->sample->n_in; i++) {
        const opcheck_input *input = &w->sample->in[i];
        w->in[i] = NULL;
        if (input->skipped) continue;
        const int64_t count = opcheck_count(input->shape);
        double *values = malloc(((size_t)count + 1) * sizeof *values);
        opcheck_fill(input, i + 17 * draw, false, values, count);
        w->in[i] = opcheck_place(own_dtype(input, dtype), input->shape, values, OPCHECK_DENSE);
        free(values);
        const bool varies = w->in[i] && own_dtype(input, dtype) == dtype && !(input->flags & CT_ARG_MUTATED);
        if (varies && ct_dtype_is_float(dtype)) ct_set_requires_grad(w->in[i], true);
    }
}

static bool copy_inputs(work *to, const work *from) {
    for (int i = 0; i < to->sample->n_in; i++)
        if (to->in[i])
            ct_no_grad {
                if (!ct_assign(to->in[i], ct_detach(from->in[i]))) return false;
            }
    return true;
}

static bool same_bits(ct_tensor *a, ct_tensor *b) {
    bool same = ct_numel(a) == ct_numel(b) && ct_dtype_of(a) == ct_dtype_of(b);
    const size_t bytes = (size_t)ct_numel(a) * ct_dtype_size(ct_dtype_of(a));
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    ct_scope {
        ct_no_grad {
            same = same && ct_read(ct_contiguous(ct_detach(a)), x, bytes) &&
                   ct_read(ct_contiguous(ct_detach(b)), y, bytes) && memcmp(x, y, bytes) == 0;
        }
    }
    free(x);
    free(y);
    return same;
}

static void check_dtype(opcheck *check, const opcheck_sample *sample, ct_dtype dtype) {
    const char *name = ct_dtype_name(dtype);
    work captured = {.sample = sample}, eager = {.sample = sample};
    ct_scope {
        make_inputs(&captured, dtype, 0);
        ct_graph *graph = ct_ok() ? ct_capture(run, &captured, CT_CAPTURE_WARM) : NULL;
        if (sample->op->flags & CT_OP_WAITS) {
            /* without f64 it may be refused before that */
            opcheck_expect(check, !graph && (ct_error_code() == CT_ERR_STATE || !opcheck_has_f64()),
                           "%s: it was captured, or refused otherwise: %s", name, ct_error());
            ct_error_clear();
        } else {
            opcheck_expect(check, graph != NULL, "%s: captured: %s", name, ct_error());
        }
        ct_error_clear();
        if (graph) {
            make_inputs(&eager, dtype, 1);
            bool ok = copy_inputs(&captured, &eager) && run(&eager);
            ct_seed(20); /* as opcheck_apply does */
            ok = ok && ct_replay(graph);
            opcheck_expect(check, ok, "%s: replayed: %s", name, ct_error());
            ct_error_clear();
            for (int i = 0; ok && i < captured.n; i++)
                opcheck_expect(check, same_bits(captured.results[i], eager.results[i]),
                               "%s: result %d of a replay has other bits", name, i);
            for (int i = 0; ok && i < sample->n_in; i++)
                if (captured.in[i] && (sample->in[i].flags & CT_ARG_MUTATED))
                    opcheck_expect(check, same_bits(captured.in[i], eager.in[i]),
                                   "%s: input %d has other bits after a replay", name, i);
            ct_error_clear();
        }
        ct_graph_free(graph);
        drop_results(&captured);
        drop_results(&eager);
    }
}

void opcheck_capture(opcheck *check, opcheck_sample *sample) {
    if (opcheck_is_unset(sample->op) || opcheck_is_beyond(sample)) return;
    check_dtype(check, sample, CT_F32);
    check_dtype(check, sample, CT_BF16);
}

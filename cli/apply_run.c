/* Carries out one request of `cotangent apply`: loads, runs, differentiates once or twice, writes. */
#include "cli/apply.h"

#include <cotangent/io.h>
#include <stdlib.h>

/* Everything of a run that is counted by its inputs (n) or outputs (m). Tensors belong to the scope of the run. */
typedef struct run {
    const apply_request *request;
    int n, m;
    ct_tensor **inputs, **outputs, **cotangents, **grads;
    ct_tensor **xs, **directions; /* the inputs that gradients are taken for, and what belongs to each */
    int *input_of;                /* which input xs[i] is */
    int nx;
    bool *want;
    cli_message *message;
} run;

static const ct_arg *input_arg(const ct_op *op, int i) {
    const int last = cli_count(op->inputs) - 1;
    return &op->inputs[i < last ? i : last]; /* the members of a list share its description */
}

/* ---- Files ---- */

/* names[i] into tensors[i], NULL where it is skipped. */
static bool load_all(const cli_list *names, const apply_request *q, ct_tensor **tensors) {
    for (int i = 0; i < names->n; i++) {
        if (apply_skipped(names->at[i])) continue;
        tensors[i] = ct_npy_load(names->at[i], q->bf16);
        if (q->device.type != CT_CURRENT) tensors[i] = ct_to(tensors[i], q->device);
        if (!tensors[i]) return false;
    }
    return true;
}

static bool save_all(const cli_list *names, ct_tensor *const *tensors) {
    for (int i = 0; i < names->n; i++)
        if (!apply_skipped(names->at[i]) && !ct_npy_save(names->at[i], tensors[i])) return false;
    return true;
}

static bool save_mutated(const run *r) {
    int next = 0;
    for (int i = 0; i < r->n && next < r->request->mutated.n; i++) {
        if (!(input_arg(r->request->op, i)->flags & CT_ARG_MUTATED)) continue;
        const char *name = r->request->mutated.at[next++];
        if (apply_skipped(name)) continue;
        if (!r->inputs[i])
            return ct_fail(CT_ERR_VALUE, r->request->op->name, "input %d was skipped: there is nothing to write to %s",
                           i, name);
        if (!ct_npy_save(name, r->inputs[i])) return false;
    }
    return true;
}

/* ---- Gradients ---- */

static const char *name_at(const cli_list *names, int i) { return i < names->n ? names->at[i] : "-"; }

/* Chooses the inputs that some file asks about. Each has to be of a kind that has a gradient. */
static int choose_inputs(run *r) {
    const apply_request *q = r->request;
    for (int i = 0; i < r->n; i++) {
        const bool asked = !apply_skipped(name_at(&q->grads, i)) || !apply_skipped(name_at(&q->directions, i)) ||
                           !apply_skipped(name_at(&q->seconds, i));
        if (!asked) continue;
        const ct_arg *arg = input_arg(q->op, i);
        if (!r->inputs[i])
            return cli_wrong(r->message, "%s: input %d (%s) is skipped: it has no gradient", q->op->name, i, arg->name);
        if (!ct_dtype_is_float(ct_dtype_of(r->inputs[i])))
            return cli_wrong(r->message, "%s: input %d (%s) is %s: it has no gradient", q->op->name, i, arg->name,
                             ct_tensor_text(r->inputs[i]));
        if (arg->flags & CT_ARG_MUTATED)
            return cli_wrong(r->message, "%s: input %d (%s) is changed by the op: it has no gradient", q->op->name, i,
                             arg->name);
        if (!ct_set_requires_grad(r->inputs[i], true)) return cli_failed(r->message);
        r->input_of[r->nx] = i;
        r->xs[r->nx++] = r->inputs[i];
    }
    return CLI_DONE;
}

/* The outputs that have a cotangent. Without any, the first output alone, which then needs to have one element. Returns
 * how many, or -1 after an error. */
static int choose_outputs(const run *r, ct_tensor **ys, ct_tensor **cotangents) {
    int ny = 0;
    for (int i = 0; i < r->request->cotangents.n; i++) {
        if (!r->cotangents[i]) continue;
        if (!ct_dtype_is_float(ct_dtype_of(r->outputs[i]))) {
            ct_fail(CT_ERR_GRAD, r->request->op->name, "output %d is %s: it takes no cotangent", i,
                    ct_tensor_text(r->outputs[i]));
            return -1;
        }
        ys[ny] = r->outputs[i];
        cotangents[ny++] = r->cotangents[i];
    }
    if (r->request->cotangents.n == 0) {
        ys[0] = r->outputs[0];
        cotangents[0] = NULL;
        ny = 1;
    }
    return ny;
}

static ct_tensor *zeros_like(ct_tensor *x) {
    const size_t bytes = (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x));
    void *zeros = calloc(1, bytes ? bytes : 1);
    if (!zeros) {
        ct_fail(CT_ERR_MEMORY, "apply", "out of memory: %zu bytes could not be had", bytes);
        return NULL;
    }
    ct_tensor *y = ct_to(ct_from_data(zeros, ct_shape(x), ct_dtype_of(x)), ct_device_of(x));
    free(zeros);
    return y;
}

/* names[input_of[i]] gets values[i]. */
static bool save_for_inputs(const run *r, const cli_list *names, ct_tensor *const *values) {
    for (int i = 0; i < r->nx; i++) {
        const char *name = name_at(names, r->input_of[i]);
        if (!apply_skipped(name) && !ct_npy_save(name, values[i])) return false;
    }
    return true;
}

/* The gradient of sum_i <grads[i], v_i>, where grads are the first gradients. */
static bool second_order(const run *r) {
    ct_tensor *total = NULL;
    for (int i = 0; i < r->nx; i++) {
        ct_tensor *v = r->directions[r->input_of[i]];
        if (!v) continue;
        ct_tensor *product = ct_sum(ct_mul(r->grads[i], v));
        total = total ? ct_add(total, product) : product;
    }
    if (!total) return ct_ok() ? ct_fail(CT_ERR_VALUE, r->request->op->name, "every --direction is skipped") : false;

    ct_tensor **seconds = calloc((size_t)r->nx, sizeof *seconds);
    if (!seconds) return ct_fail(CT_ERR_MEMORY, "apply", "out of memory");
    bool done = true;
    if (ct_requires_grad(total)) done = ct_grad(&total, 1, NULL, r->xs, r->nx, seconds, 0);
    else /* every first gradient is a constant */
        for (int i = 0; i < r->nx && done; i++) done = (seconds[i] = zeros_like(r->xs[i])) != NULL;
    done = done && save_for_inputs(r, &r->request->seconds, seconds);
    free(seconds);
    return done;
}

static bool differentiate(run *r) {
    const bool second = r->request->seconds.n > 0;
    ct_tensor **ys = calloc((size_t)r->m * 2, sizeof *ys);
    if (!ys) return ct_fail(CT_ERR_MEMORY, "apply", "out of memory");
    ct_tensor **cotangents = ys + r->m;
    const int ny = choose_outputs(r, ys, cotangents);
    /* A vjp is linear in its cotangent. With that recorded too, a first gradient always has a history, and an op that
     * cannot be differentiated again says so, instead of passing for a constant. */
    bool done = ny > 0 || (ny == 0 && ct_fail(CT_ERR_GRAD, r->request->op->name, "every --cotangent is skipped"));
    for (int i = 0; second && i < ny && done; i++)
        if (cotangents[i] && ct_dtype_is_float(ct_dtype_of(cotangents[i])))
            done = ct_set_requires_grad(cotangents[i], true) != NULL;
    done = done && ct_grad(ys, ny, cotangents, r->xs, r->nx, r->grads, second ? CT_CREATE_GRAPH : 0);
    free(ys);
    return done && save_for_inputs(r, &r->request->grads, r->grads) && (!second || second_order(r));
}

/* ---- The run ---- */

static bool allocate(run *r) {
    const size_t n = (size_t)r->n + 1, m = (size_t)r->m + 1; /* never zero bytes */
    r->inputs = calloc(n, sizeof *r->inputs);
    r->xs = calloc(n, sizeof *r->xs);
    r->directions = calloc(n, sizeof *r->directions);
    r->grads = calloc(n, sizeof *r->grads);
    r->input_of = calloc(n, sizeof *r->input_of);
    r->outputs = calloc(m, sizeof *r->outputs);
    r->cotangents = calloc(m, sizeof *r->cotangents);
    r->want = calloc(m, sizeof *r->want);
    return r->inputs && r->xs && r->directions && r->grads && r->input_of && r->outputs && r->cotangents && r->want;
}

static void release(run *r) {
    free(r->inputs);
    free(r->xs);
    free(r->directions);
    free(r->grads);
    free(r->input_of);
    free(r->outputs);
    free(r->cotangents);
    free(r->want);
}

/* Only these can be left out; the others are computed in any case. */
static bool is_optional(const ct_op *op, int i) {
    return !(op->outputs[0].flags & CT_ARG_LIST) && (op->outputs[i].flags & CT_ARG_OPTIONAL);
}

static int run_in_scope(run *r) {
    const apply_request *q = r->request;
    if (!load_all(&q->inputs, q, r->inputs) || !load_all(&q->cotangents, q, r->cotangents) ||
        !load_all(&q->directions, q, r->directions))
        return cli_failed(r->message);

    const bool gradients = q->grads.n > 0 || q->seconds.n > 0;
    if (gradients) {
        if (!ct_op_differentiable(q->op)) {
            ct_fail(CT_ERR_GRAD, q->op->name, "is not differentiable");
            return cli_failed(r->message);
        }
        const int status = choose_inputs(r);
        if (status != CLI_DONE) return status;
    }
    for (int i = 0; i < r->m; i++)
        r->want[i] = !is_optional(q->op, i) || !apply_skipped(name_at(&q->outputs, i)) || r->cotangents[i] ||
                     (gradients && i == 0);
    if (q->seeded && !ct_seed(q->seed)) return cli_failed(r->message);

    if (!ct_apply_with(q->op, r->inputs, r->n, q->attrs, r->outputs, r->m, r->want, NULL))
        return cli_failed(r->message);
    if (!save_all(&q->outputs, r->outputs)) return cli_failed(r->message);
    if (gradients && !differentiate(r)) return cli_failed(r->message);
    if (!save_mutated(r)) return cli_failed(r->message);
    return ct_ok() ? CLI_DONE : cli_failed(r->message);
}

int apply_run(const apply_request *request, cli_message *message) {
    run r = {.request = request, .n = request->inputs.n, .message = message};
    r.m = request->outputs.n > request->cotangents.n ? request->outputs.n : request->cotangents.n;
    if (r.m == 0) r.m = 1;
    int status = CLI_FAILED;
    if (!allocate(&r)) {
        cli_wrong(message, "out of memory");
    } else {
        const ct_scope_mark mark = ct_scope_begin();
        status = run_in_scope(&r);
        ct_scope_end(mark);
        ct_error_clear();
    }
    release(&r);
    return status;
}

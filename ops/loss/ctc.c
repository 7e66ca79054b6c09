/* ctc_loss: shapes and options; the recursion over steps in ops, from which derivatives of any order follow. */
#include "ops/loss/loss.h"

#include "ops/op_impl.h"

/* ---- ctc_loss ---- */

bool ctc_loss_infer(ct_infer *infer) {
    const ctc_loss_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0], *targets = infer->in[1];
    if (x->ndim != 2 && x->ndim != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be [steps, batch, classes] or [steps, classes]",
                             ct_view_text(x));
    const bool batched = x->ndim == 3;
    const int64_t batch = batched ? x->dims[1] : 1, classes = x->dims[x->ndim - 1];
    if (x->dims[0] < 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; there has to be at least one step", ct_view_text(x));
    if (targets->ndim < 1 || targets->ndim > (batched ? 2 : 1) || (targets->ndim == 2 && targets->dims[0] != batch))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "targets is %s; x is %s, so they are %s", ct_view_text(targets),
                             ct_view_text(x), batched ? "[batch, longest] or [sum of lengths]" : "[length]");
    for (int i = 2; i < 4; i++) {
        const ct_view *lengths = infer->in[i];
        if (lengths && (lengths->ndim != batched || (batched && lengths->dims[0] != batch)))
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "%s is %s; x is %s, so there is one length for each of %lld items",
                                 infer->op->inputs[i].name, ct_view_text(lengths), ct_view_text(x), (long long)batch);
    }
    if (batched && targets->ndim == 1 && !infer->in[3])
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "targets is %s, all behind each other: target_lengths has to be given",
                             ct_view_text(targets));
    if (a->blank < 0 || a->blank >= classes)
        return ct_infer_fail(infer, CT_ERR_VALUE, "blank is %lld; there are %lld classes", (long long)a->blank,
                             (long long)classes);
    return ct__infer_loss(infer, a->reduction, x->dtype, batched ? 1 : 0, &batch);
}

/* Targets that lie behind each other, one row an item; what is beyond a target's length is never looked at. */
static ct_tensor *padded(ct_tensor *targets, ct_tensor *lengths) {
    const int64_t total = ct_numel(targets), batch = ct_numel(lengths);
    ct_tensor *end = check_range(sum(lengths), (double)total, (double)total, "ctc_loss", .argument = 3,
                                 .what = CT_CHECKED_SUM_OF_LENGTHS);
    if (total == 0) return reshape(targets, CT_DIMS(batch, 0));
    /* an item begins where those after it and itself end */
    ct_tensor *first = sub(end, flip(cumsum(flip(lengths, CT_DIMS(0)), 0), CT_DIMS(0))),
              *places = arange(0, (double)total, 1, .dtype = CT_I64);
    ct_tensor *at =
        clamp(ct_add(reshape(first, CT_DIMS(batch, 1)), places), .min = CT_SET(0), .max = CT_SET((double)(total - 1)));
    return reshape(index_select(targets, 0, reshape(at, CT_DIMS(batch * total))), CT_DIMS(batch, total));
}

void ctc_loss_lower(ct_lower *l) {
    const ctc_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *targets = l->in[1], *steps = l->in[2], *lengths = l->in[3];
    const bool batched = ct_ndim(x) == 3;
    if (!batched) {
        x = unsqueeze(x, 1);
        targets = unsqueeze(targets, 0);
        steps = steps ? unsqueeze(steps, 0) : NULL;
        lengths = lengths ? unsqueeze(lengths, 0) : NULL;
    } else if (ct_ndim(targets) == 1) {
        targets = padded(targets, cast(lengths, CT_I64));
    }
    ct_tensor *y = ctc(contiguous(x), contiguous(targets), a->blank, .input_lengths = steps ? contiguous(steps) : NULL,
                       .target_lengths = lengths ? contiguous(lengths) : NULL);
    if (a->zero_infinity) y = where(ct_isinf(y), zeros_like(y), y);
    if (a->reduction == CT_MEAN) {
        const int64_t longest = ct_dim(targets, 1);
        y = lengths ? div(y, cast(clamp(lengths, .min = CT_SET(1)), ct_dtype_of(y)))
                    : mul_s(y, 1.0 / (double)(longest > 1 ? longest : 1));
    }
    y = ct__reduce_loss(y, a->reduction);
    l->out[0] = batched || a->reduction != CT_NONE ? y : squeeze(y);
}

/* ---- The recursion ---- */

static const double never = -1e30; /* log 0, but with derivatives */

/* x is [steps, batch, classes], targets [batch, longest], the lengths [batch]; x is input number `first`. */
static bool infer_inner(const ct_infer *infer, int first, int64_t blank) {
    const ct_view *x = infer->in[first], *targets = infer->in[first + 1];
    if (x->ndim != 3 || x->dims[0] < 1 || targets->ndim != 2 || targets->dims[0] != x->dims[1] || blank < 0 ||
        blank >= x->dims[2])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, targets %s and blank %lld; they do not fit",
                             ct_view_text(x), ct_view_text(targets), (long long)blank);
    return ct__infer_is(infer, first + 2, 1, x->dims + 1) && ct__infer_is(infer, first + 3, 1, x->dims + 1);
}

bool ctc_infer(ct_infer *infer) {
    if (!infer_inner(infer, 0, ((const ctc_attrs *)infer->attrs)->blank)) return false;
    ct__infer_set(infer, 0, infer->in[0]->dtype, 1, &infer->in[0]->dims[1]);
    return true;
}

static ct_tensor *constant(ct_tensor *like, int64_t rows, int64_t columns, double value) {
    return full(CT_DIMS(rows, columns), value, .dtype = ct_dtype_of(like));
}

/* x moved k places towards the end of its rows, `never` at the beginning. */
static ct_tensor *moved(ct_tensor *x, int64_t k) {
    const int64_t rows = ct_dim(x, 0), n = ct_dim(x, 1);
    if (k >= n) return constant(x, rows, n, never);
    return cat(((ct_tensor *[]){constant(x, rows, k, never), narrow(x, 1, 0, n - k)}), 2, 1);
}

/* With l the target and a blank before, between and after its labels, a[t, s] = log p of all paths up to step t that end at
 * l[s]: a[t, s] = x[t, l[s]] + log(e^a[t-1, s] + e^a[t-1, s-1] + (e^a[t-1, s-2] where l[s] is no blank and not l[s-2])). */
static ct_tensor *recursion(ct_tensor *x, ct_tensor *targets, ct_tensor *steps, ct_tensor *lengths, int64_t blank) {
    const int64_t count = ct_dim(x, 0), batch = ct_dim(x, 1), longest = ct_dim(targets, 1), n = 2 * longest + 1;
    targets = cast(targets, CT_I64);
    ct_tensor *blanks = constant(targets, batch, 1, (double)blank), *labels = blanks;
    if (longest) {
        ct_tensor *between = constant(targets, batch, longest, (double)blank);
        ct_tensor *mixed = reshape(stack(((ct_tensor *[]){between, targets}), 2, 2), CT_DIMS(batch, 2 * longest));
        labels = cat(((ct_tensor *[]){mixed, blanks}), 2, 1);
    }
    ct_tensor *skips = NULL; /* 0 where two places may be gone at once, `never` elsewhere */
    if (n > 2) {
        ct_tensor *late = narrow(labels, 1, 2, n - 2), *early = narrow(labels, 1, 0, n - 2);
        ct_tensor *may = logical_and(ne(late, early), ne_s(late, (double)blank));
        ct_tensor *rest = where(may, constant(x, batch, n - 2, 0), constant(x, batch, n - 2, never));
        skips = cat(((ct_tensor *[]){constant(x, batch, 2, never), rest}), 2, 1);
    }
    ct_tensor *start = n > 1 ? cat(((ct_tensor *[]){constant(x, batch, 2, 0), constant(x, batch, n - 2, never)}), 2, 1)
                             : constant(x, batch, 1, 0);
    ct_tensor *a = ct_add(start, gather(select(x, 0, 0), 1, labels));
    for (int64_t t = 1; t < count; t++) {
        ct_tensor *sum = n > 1 ? logaddexp(a, moved(a, 1)) : a;
        if (skips) sum = logaddexp(sum, ct_add(moved(a, 2), skips));
        ct_tensor *next = ct_add(sum, gather(select(x, 0, t), 1, labels));
        a = steps ? where(reshape(gt_s(steps, (double)t), CT_DIMS(batch, 1)), next, a) : next;
    }
    /* the last label, or the blank behind it */
    ct_tensor *end = lengths ? mul_s(cast(reshape(lengths, CT_DIMS(batch, 1)), CT_I64), 2)
                             : constant(targets, batch, 1, (double)(n - 1));
    ct_tensor *behind = gather(a, 1, end);
    if (n > 1) {
        ct_tensor *label = gather(a, 1, clamp(add_s(end, -1), .min = CT_SET(0)));
        behind = where(gt_s(end, 0), logaddexp(behind, label), behind);
    }
    ct_tensor *log_p = reshape(behind, CT_DIMS(batch)),
              *none = full(CT_DIMS0, __builtin_inf(), .dtype = ct_dtype_of(x));
    return where(gt_s(log_p, never / 2), ct_neg(log_p), none);
}

void ctc_lower(ct_lower *l) {
    l->out[0] = recursion(l->in[0], l->in[1], l->in[2], l->in[3], ((const ctc_attrs *)l->attrs)->blank);
}

void ctc_vjp(ct_vjp *v) {
    v->grad[0] = ctc_grad(contiguous(v->cot[0]), v->in[0], v->in[1], ((const ctc_attrs *)v->attrs)->blank,
                          .input_lengths = v->in[2], .target_lengths = v->in[3]);
}

bool ctc_grad_infer(ct_infer *infer) {
    if (!infer_inner(infer, 1, ((const ctc_grad_attrs *)infer->attrs)->blank) ||
        !ct__infer_is(infer, 0, 1, infer->in[1]->dims + 1))
        return false;
    ct__infer_like(infer, 0, infer->in[1], infer->in[1]->dtype);
    return true;
}

/* The derivative of the recursion, recorded itself. */
void ctc_grad_lower(ct_lower *l) {
    const bool recording = ct_set_grad_enabled(true);
    ct_tensor *x = l->in[1], *g = l->in[0], *dx = NULL;
    if (!ct_requires_grad(x)) x = ct_set_requires_grad(ct_detach(x), true);
    ct_tensor *nll = recursion(x, l->in[2], l->in[3], l->in[4], ((const ctc_grad_attrs *)l->attrs)->blank);
    ct_grad(&nll, 1, &g, &x, 1, &dx, recording ? CT_CREATE_GRAPH : 0);
    ct_set_grad_enabled(recording);
    l->out[0] = dx;
}

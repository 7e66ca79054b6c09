/* Predictions and targets as plain arrays: the one place where metrics look at shapes and dtypes. */
#include "metrics/metrics.h"

#include <cotangent/op.h>
#include <math.h>

double *ct__metric_doubles(const char *op, ct_tensor *x) {
    double *values = ct__metric_room(op, ct_numel(x), sizeof *values);
    bool ok = values != NULL;
    if (ok)
        ct_no_grad
            ct_scope {
                ct_tensor *wide = ct_dtype_of(x) == CT_F64 ? x : ct_cast(ct_to(x, (ct_device){.type = CT_CPU}), CT_F64);
                ok = wide && ct_read(wide, values, (size_t)ct_numel(wide) * sizeof *values);
            }
    if (ok) return values;
    ct_free(values);
    return NULL;
}

int64_t *ct__metric_integers(const char *op, ct_tensor *x) {
    int64_t *values = ct__metric_room(op, ct_numel(x), sizeof *values);
    bool ok = values != NULL;
    if (ok)
        ct_scope {
            ct_tensor *wide = ct_dtype_of(x) == CT_I64 ? x : ct_cast(x, CT_I64);
            ok = wide && ct_read(wide, values, (size_t)ct_numel(wide) * sizeof *values);
        }
    if (ok) return values;
    ct_free(values);
    return NULL;
}

static bool is_whole(ct_tensor *x) { return ct_dtype_is_int(ct_dtype_of(x)) || ct_dtype_of(x) == CT_BOOL; }

static bool same(ct_dims a, ct_dims b) { return a.n == b.n && memcmp(a.d, b.d, (size_t)a.n * sizeof *a.d) == 0; }

/* Sees logits as (outer, classes, inner): the classes are axis 1, or the only axis. */
static void view_logits(ct_dims shape, ct__pairs *pairs) {
    const int axis = shape.n == 1 ? 0 : 1;
    pairs->outer = axis ? shape.d[0] : 1;
    pairs->classes = shape.d[axis];
    pairs->inner = 1;
    for (int i = axis + 1; i < shape.n; i++) pairs->inner *= shape.d[i];
}

static bool fits(ct_dims logits, ct_dims target) {
    if (logits.n < 1 || target.n != logits.n - 1) return false;
    const int axis = logits.n == 1 ? 0 : 1;
    for (int i = 0; i < target.n; i++)
        if (target.d[i] != logits.d[i < axis ? i : i + 1]) return false;
    return true;
}

/* Soft targets become the number of their largest probability. */
static bool take_targets(const char *op, ct_tensor *target, bool soft, ct__pairs *pairs) {
    if (!soft) {
        pairs->target = ct__metric_integers(op, target);
        return pairs->target != NULL;
    }
    ct__pairs as_logits = *pairs;
    as_logits.number = NULL;
    as_logits.logits = ct__metric_doubles(op, target);
    pairs->target = as_logits.logits ? ct__metric_room(op, pairs->outer * pairs->inner, sizeof *pairs->target) : NULL;
    for (int64_t o = 0; pairs->target && o < pairs->outer; o++)
        for (int64_t i = 0; i < pairs->inner; i++)
            pairs->target[o * pairs->inner + i] = ct__pairs_best(&as_logits, o, i);
    ct_free(as_logits.logits);
    return pairs->target != NULL;
}

bool ct__pairs_take(const char *op, ct_tensor *predictions, ct_tensor *target, int64_t classes, ct__pairs *pairs) {
    *pairs = (ct__pairs){0};
    if (!predictions || !target) return ct__metric_null(op, predictions ? "target" : "predictions");
    if (!ct_ok()) return false;
    const ct_dims shape = ct_shape(predictions), target_shape = ct_shape(target);
    const bool numbers = is_whole(predictions), soft = ct_dtype_is_float(ct_dtype_of(target));
    const bool known = (numbers || ct_dtype_is_float(ct_dtype_of(predictions))) && (soft || is_whole(target));
    if (!known || (numbers ? soft || !same(shape, target_shape)
                           : !(soft ? shape.n > 0 && same(shape, target_shape) : fits(shape, target_shape)))) {
        return ct_fail(
            known ? CT_ERR_SHAPE : CT_ERR_DTYPE, op,
            "predictions are %s and targets %s; expected logits [batch, classes, ...] or class numbers, with "
            "targets [batch, ...]",
            ct_tensor_text(predictions), ct_tensor_text(target));
    }
    if (numbers) {
        pairs->outer = ct_numel(predictions);
        pairs->inner = 1;
        pairs->number = ct__metric_integers(op, predictions);
    } else {
        view_logits(shape, pairs);
        if (pairs->classes < 1 || (classes && pairs->classes != classes)) {
            ct_fail(CT_ERR_SHAPE, op, "the logits are of %lld classes; expected %lld", (long long)pairs->classes,
                    (long long)(classes ? classes : 1));
            return false;
        }
        pairs->logits = ct__metric_doubles(op, predictions);
    }
    if ((pairs->number || pairs->logits) && take_targets(op, target, soft, pairs)) return true;
    ct__pairs_free(pairs);
    return false;
}

void ct__pairs_free(ct__pairs *pairs) {
    ct_free(pairs->logits);
    ct_free(pairs->number);
    ct_free(pairs->target);
    *pairs = (ct__pairs){0};
}

int64_t ct__pairs_best(const ct__pairs *pairs, int64_t outer, int64_t inner) {
    if (pairs->number) return pairs->number[outer * pairs->inner + inner];
    const double *at = pairs->logits + outer * pairs->classes * pairs->inner + inner;
    int64_t best = 0;
    for (int64_t c = 1; c < pairs->classes && !isnan(at[best * pairs->inner]); c++)
        if (isnan(at[c * pairs->inner]) || at[c * pairs->inner] > at[best * pairs->inner]) best = c;
    return best;
}

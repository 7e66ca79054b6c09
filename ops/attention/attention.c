/* Scaled dot-product attention: shapes, its meaning in products and softmax, and its derivative. */
#include <string.h>

#include "ops/dropout/dropout.h"

#include "ops/op_impl.h"

/* ---- Shapes ---- */

static bool infer_options(const ct_infer *infer, bool causal, bool bottom_right, double dropout) {
    if (bottom_right && !causal)
        return ct_infer_fail(infer, CT_ERR_VALUE, "bottom_right says where the causal mask ends; causal is not set");
    if (!(dropout >= 0 && dropout <= 1))
        return ct_infer_fail(infer, CT_ERR_VALUE, "dropout is %g; it has to be in [0, 1]", dropout);
    return true;
}

static bool infer_mask_dtype(const ct_infer *infer, const ct_view *mask) {
    if (!mask || mask->dtype == CT_BOOL || ct_dtype_is_float(mask->dtype)) return true;
    return ct_infer_fail(infer, CT_ERR_DTYPE,
                         "mask is %s; it has to be bool (true takes part) or a float (added to the scores)",
                         ct_view_text(mask));
}

/* q [..., H, Tq, D], k [..., Hk, Tk, D], v [..., Hk, Tk, Dv], with as many dimensions each. */
static bool infer_heads(const ct_infer *infer, const ct_view *q, const ct_view *k, const ct_view *v) {
    const int n = q->ndim;
    if (n < 2 || k->ndim != n || v->ndim != n)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "takes q [..., Tq, D], k [..., Tk, D] and v [..., Tk, Dv] with as many dimensions: q is %s, k "
            "is %s, v is %s",
            ct_view_text(q), ct_view_text(k), ct_view_text(v));
    if (q->dims[n - 1] != k->dims[n - 1])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "q and k differ in their last dimension: q is %s, k is %s",
                             ct_view_text(q), ct_view_text(k));
    if (k->dims[n - 2] != v->dims[n - 2])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "k and v have to be of one length: k is %s, v is %s", ct_view_text(k),
                             ct_view_text(v));
    bool batches = true, grouped = true;
    for (int i = 0; i < n - 3; i++) batches = batches && k->dims[i] == q->dims[i] && v->dims[i] == q->dims[i];
    if (n >= 3) {
        const int64_t heads = q->dims[n - 3], kv = k->dims[n - 3];
        grouped = v->dims[n - 3] == kv && (heads == kv || (kv > 0 && heads % kv == 0));
    }
    if (!batches || !grouped)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "k and v need q's batch dimensions and heads, or a number of heads that divides q's: q "
                             "is %s, k is %s, v is %s",
                             ct_view_text(q), ct_view_text(k), ct_view_text(v));
    return true;
}

/* scores is [..., H, Tq, Tk]. */
static bool infer_mask_shape(const ct_infer *infer, const ct_view *mask, const ct_view *scores) {
    bool fits = !mask || mask->ndim <= scores->ndim;
    for (int i = 1; mask && fits && i <= mask->ndim; i++)
        fits = mask->dims[mask->ndim - i] == 1 || mask->dims[mask->ndim - i] == scores->dims[scores->ndim - i];
    return fits || ct_infer_fail(infer, CT_ERR_SHAPE, "mask is %s and does not broadcast to the scores, %s",
                                 ct_view_text(mask), ct_view_text(scores));
}

bool scaled_dot_product_attention_infer(ct_infer *infer) {
    const scaled_dot_product_attention_attrs *a = infer->attrs;
    const ct_view *q = infer->in[0], *k = infer->in[1], *v = infer->in[2], *mask = infer->in[3];
    if (!infer_options(infer, a->causal, a->bottom_right, a->dropout) || !infer_heads(infer, q, k, v) ||
        !infer_mask_dtype(infer, mask))
        return false;
    ct__infer_like(infer, 0, q, q->dtype);
    ct_view *y = &infer->out[0];
    ct_view scores = *y;
    scores.dims[y->ndim - 1] = k->dims[k->ndim - 2];
    if (!infer_mask_shape(infer, mask, &scores)) return false;
    y->dims[y->ndim - 1] = v->dims[v->ndim - 1];
    return true;
}

static bool infer_inner(const ct_infer *infer) {
    const ct_view *q = infer->in[0], *k = infer->in[1], *v = infer->in[2], *mask = infer->in[3], *stream = infer->in[4];
    if (!infer_heads(infer, q, k, v)) return false;
    if (q->ndim != 4) return ct_infer_fail(infer, CT_ERR_SHAPE, "q is %s, not [B, H, Tq, D]", ct_view_text(q));
    if (k->dtype != q->dtype || v->dtype != q->dtype)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "q, k and v have to be of one dtype: %s, %s, %s", ct_view_text(q),
                             ct_view_text(k), ct_view_text(v));
    if (mask) {
        const int64_t full[4] = {q->dims[0], q->dims[1], q->dims[2], k->dims[2]};
        if (mask->ndim != 4 || memcmp(full, mask->dims, sizeof full) != 0)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "mask is %s, and has to be [B, H, Tq, Tk] for q %s and k %s",
                                 ct_view_text(mask), ct_view_text(q), ct_view_text(k));
        if (mask->dtype != CT_BOOL && mask->dtype != q->dtype)
            return ct_infer_fail(infer, CT_ERR_DTYPE, "mask is %s, and has to be bool or of the dtype of q, %s",
                                 ct_view_text(mask), ct_view_text(q));
    }
    if (stream && (stream->ndim != 1 || stream->dims[0] != 3))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "stream is %s, not [3]", ct_view_text(stream));
    return true;
}

/* (B,H,T,D) as (B,T,H,D). */
static void put_rows_first(ct_view *x) {
    const int64_t heads = x->dims[1];
    x->dims[1] = x->dims[2], x->dims[2] = heads;
}

static ct_dtype computed_in(ct_dtype dtype) { return dtype == CT_F64 ? CT_F64 : CT_F32; }

bool sdpa_infer(ct_infer *infer) {
    const sdpa_attrs *a = infer->attrs;
    const ct_view *q = infer->in[0];
    if (!infer_options(infer, a->causal, a->bottom_right, a->dropout) || !infer_inner(infer)) return false;
    ct__infer_like(infer, 0, q, q->dtype);
    infer->out[0].dims[3] = infer->in[2]->dims[3];
    if (a->rows_first) put_rows_first(&infer->out[0]);
    if (infer->n_out > 1) ct__infer_set(infer, 1, computed_in(q->dtype), 3, q->dims);
    return true;
}

bool sdpa_grad_infer(ct_infer *infer) {
    const sdpa_grad_attrs *a = infer->attrs;
    const ct_view *q = infer->in[0], *v = infer->in[2], *mask = infer->in[3], *y = infer->in[5], *lse = infer->in[6],
                  *g = infer->in[7], *g_lse = infer->in[8];
    if (!infer_inner(infer)) return false;
    const int64_t full[4] = {q->dims[0], q->dims[1], q->dims[2], v->dims[3]};
    const int64_t rows[4] = {q->dims[0], q->dims[a->rows_first ? 2 : 1], q->dims[a->rows_first ? 1 : 2], v->dims[3]};
    bool fits = y->ndim == 4 && g->ndim == 4 && lse->ndim == 3 && memcmp(y->dims, rows, sizeof rows) == 0 &&
                memcmp(g->dims, rows, sizeof rows) == 0 && memcmp(lse->dims, full, 3 * sizeof *full) == 0 &&
                (!g_lse || (g_lse->ndim == 3 && memcmp(g_lse->dims, full, 3 * sizeof *full) == 0));
    if (!fits || y->dtype != q->dtype || g->dtype != q->dtype)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "y is %s, lse %s, g %s; they do not fit q %s and v %s",
                             ct_view_text(y), ct_view_text(lse), ct_view_text(g), ct_view_text(q), ct_view_text(v));
    for (int i = 0; i < infer->n_out && i < 3; i++) {
        ct__infer_like(infer, i, infer->in[i], q->dtype);
        if (a->rows_first) put_rows_first(&infer->out[i]);
    }
    if (a->together) {
        const ct_view *k = infer->in[1];
        if (infer->n_out > 1 || !a->rows_first || q->dims[2] != k->dims[2] || q->dims[3] != v->dims[3])
            return ct_infer_fail(infer, CT_ERR_SHAPE, "together: q is %s and v %s, and one result is asked for",
                                 ct_view_text(q), ct_view_text(v));
        infer->out[0].dims[2] += 2 * k->dims[1];
    }
    if (infer->n_out > 3) {
        if (!mask || mask->dtype == CT_BOOL)
            return ct_infer_fail(infer, CT_ERR_VALUE, "dmask: there is no additive mask");
        ct__infer_like(infer, 3, mask, mask->dtype);
    }
    return true;
}

/* ---- The public op ---- */

/* As (B, H, T, D), leading dimensions joined. */
static ct_tensor *four(ct_tensor *x) {
    if (!x) return NULL;
    const ct_dims s = ct_shape(x); /* of something: s.n is at least 2 */
    if (s.n == 4) return x;
    if (s.n < 4) {
        for (int i = s.n; i < 4; i++) x = unsqueeze(x, 0);
        return x;
    }
    int64_t batch = 1;
    for (int i = 0; i < s.n - 3; i++) batch *= s.d[i];
    return reshape(x, CT_DIMS(batch, s.d[s.n - 3], s.d[s.n - 2], s.d[s.n - 1]));
}

void scaled_dot_product_attention_lower(ct_lower *l) {
    const scaled_dot_product_attention_attrs *a = l->attrs;
    ct_tensor *q = l->in[0], *k = l->in[1], *v = l->in[2], *mask = l->in[3];
    ct_dims shape = ct_shape(q);
    const int64_t d = shape.d[shape.n - 1];
    if (mask) {
        ct_dims scores = shape;
        scores.d[scores.n - 1] = ct_dim(k, -2);
        if (ct_dtype_of(mask) != CT_BOOL && ct_dtype_of(mask) != ct_dtype_of(q)) mask = cast(mask, ct_dtype_of(q));
        mask = expand(mask, scores);
    }
    /* Heads that lie within rows, as those of one projection do, go back the same way: joining them copies nothing. */
    const ct_dims strides = ct_strides(q);
    const bool rows_first = shape.n == 4 && shape.d[1] > 1 && strides.d[1] < strides.d[2];
    ct_tensor *stream = a->dropout > 0 ? ct__position_of(l) : NULL, *lse = NULL;
    ct_tensor *y =
        sdpa(four(q), four(k), four(v), a->scale.set ? a->scale.value : 1 / __builtin_sqrt((double)(d > 0 ? d : 1)),
             .mask = four(mask), .stream = stream, .causal = a->causal, .bottom_right = a->bottom_right,
             .dropout = a->dropout, .rows_first = rows_first, .lse = &lse);
    shape.d[shape.n - 1] = ct_dim(v, -1);
    l->out[0] = rows_first ? transpose(y, 1, 2) : reshape(y, shape);
}

/* ---- The kernel's op in simpler ones ---- */

/* Of heads that share one of k and v: (B,H,...) as (B,Hk,G,...); and k or v as (B,Hk,1,T,D). */
static ct_tensor *grouped(ct_tensor *x, int64_t kv_heads) {
    if (!x) return NULL;
    ct_dims s = ct_shape(x), to = {.n = s.n + 1};
    to.d[0] = s.d[0], to.d[1] = kv_heads, to.d[2] = kv_heads ? s.d[1] / kv_heads : 1;
    for (int i = 2; i < s.n; i++) to.d[i + 1] = s.d[i];
    return reshape(x, to);
}
static ct_tensor *shared(ct_tensor *x) { return unsqueeze(x, 2); }
static ct_tensor *transposed(ct_tensor *x) { return transpose(x, -2, -1); }
static ct_tensor *ungrouped(ct_tensor *x, ct_dims shape) { return reshape(x, shape); }

static ct_tensor *full_of(ct_tensor *like, double value) { return full(CT_DIMS0, value, .dtype = ct_dtype_of(like)); }

/* scale q k^T + mask, -inf where a key takes no part; (B,Hk,G,Tq,Tk). */
static ct_tensor *scores_of(ct_tensor *q, ct_tensor *k, ct_tensor *mask, double scale, bool causal, bool bottom_right) {
    const int64_t kv_heads = ct_dim(k, 1), tq = ct_dim(q, 2), tk = ct_dim(k, 2);
    ct_tensor *s = mul_s(matmul(grouped(q, kv_heads), transposed(shared(k))), scale);
    ct_tensor *m = grouped(mask, kv_heads);
    if (m && ct_dtype_of(m) == CT_BOOL) s = where(m, s, full_of(s, -__builtin_inf()));
    else if (m) s = add(s, m);
    if (!causal) return s;
    ct_tensor *i = unsqueeze(add_s(arange(0, (double)tq, 1, .dtype = CT_I64), bottom_right ? (double)(tk - tq) : 0.0),
                             1),
              *j = unsqueeze(arange(0, (double)tk, 1, .dtype = CT_I64), 0);
    return where(le(j, i), s, full_of(s, -__builtin_inf()));
}

/* What dropout multiplies the weights by; NULL: nothing. */
static ct_tensor *factors_of(ct_tensor *scores, ct_tensor *stream, double dropout) {
    return stream && dropout > 0 ? dropout_replay(expand(full_of(scores, 1), ct_shape(scores)), stream, dropout) : NULL;
}

void sdpa_lower(ct_lower *l) {
    const sdpa_attrs *a = l->attrs;
    ct_tensor *q = l->in[0], *k = l->in[1], *v = l->in[2];
    ct_dims y_shape = ct_shape(q), lse_shape = {.n = 3, .d = {y_shape.d[0], y_shape.d[1], y_shape.d[2]}};
    y_shape.d[3] = ct_dim(v, 3);
    ct_tensor *s = scores_of(q, k, l->in[3], a->scale, a->causal, a->bottom_right);
    ct_tensor *zero = full_of(s, 0), *one = full_of(s, 1), *level = zero;
    if (ct_numel(s) > 0) {
        level = ct_detach(amax(s, .axes = CT_DIMS(-1), .keepdim = true));
        level = where(ct_isinf(level), zero, level);
    }
    ct_tensor *e = ct_exp(sub(s, level)), *total = sum(e, .axes = CT_DIMS(-1), .keepdim = true), *none = eq_s(total, 0);
    total = where(none, one, total);
    ct_tensor *p = div(e, total), *factors = factors_of(s, l->in[4], a->dropout);
    if (factors) p = mul(p, factors);
    l->out[0] = ungrouped(matmul(p, shared(v)), y_shape);
    if (a->rows_first) l->out[0] = transpose(l->out[0], 1, 2);
    if (l->n_out > 1 && l->want[1])
        l->out[1] = reshape(where(none, full_of(s, __builtin_inf()), ct_add(ct_log(total), level)), lse_shape);
}

void sdpa_grad_lower(ct_lower *l) {
    const sdpa_grad_attrs *a = l->attrs;
    ct_tensor *q = l->in[0], *k = l->in[1], *v = l->in[2], *mask = l->in[3];
    const int64_t kv_heads = ct_dim(k, 1);
    bool want[4] = {a->together, a->together, a->together, false};
    for (int i = 0; i < l->n_out; i++) want[i] = l->want[i];
    ct_tensor *made[4] = {NULL};
    ct_tensor *s = scores_of(q, k, mask, a->scale, a->causal, a->bottom_right),
              *p = ct_exp(sub(s, unsqueeze(grouped(l->in[6], kv_heads), -1)));
    ct_tensor *y = a->rows_first ? transpose(l->in[5], 1, 2) : l->in[5],
              *cotangent = a->rows_first ? transpose(l->in[7], 1, 2) : l->in[7];
    ct_tensor *g = grouped(cotangent, kv_heads), *factors = factors_of(s, l->in[4], a->dropout);
    if (want[2]) made[2] = sum(matmul(transposed(factors ? mul(p, factors) : p), g), .axes = CT_DIMS(2));
    ct_tensor *delta = sum(mul(cotangent, y), .axes = CT_DIMS(-1));
    if (l->in[8]) delta = sub(delta, l->in[8]);
    ct_tensor *dp = matmul(g, transposed(shared(v)));
    if (factors) dp = mul(dp, factors);
    ct_tensor *ds = mul(p, sub(dp, unsqueeze(grouped(delta, kv_heads), -1)));
    if (want[0]) made[0] = ungrouped(mul_s(matmul(ds, shared(k)), a->scale), ct_shape(q));
    if (want[1]) made[1] = sum(mul_s(matmul(transposed(ds), grouped(q, kv_heads)), a->scale), .axes = CT_DIMS(2));
    if (want[3]) made[3] = ungrouped(ds, ct_shape(mask));
    for (int i = 0; a->rows_first && i < 3; i++)
        if (want[i]) made[i] = transpose(made[i], 1, 2);
    if (a->together) made[0] = cat(made, 3, 2);
    for (int i = 0; i < l->n_out; i++)
        if (want[i]) l->out[i] = made[i];
}

void sdpa_vjp(ct_vjp *v) {
    const sdpa_attrs *a = v->attrs;
    if (!ct__vjp_has(v, 1)) return;
    sdpa_grad_attrs attrs = {.scale = a->scale,
                             .causal = a->causal,
                             .bottom_right = a->bottom_right,
                             .dropout = a->dropout,
                             .rows_first = a->rows_first};
    ct_tensor *in[] = {v->in[0],  v->in[1],  v->in[2],
                       v->in[3],  v->in[4],  v->out[0],
                       v->out[1], v->cot[0], v->n_out > 1 ? v->cot[1] : NULL}; /* NULL: no gradient came from there */
    if (!in[7]) in[7] = zeros(ct_shape(v->out[0]), .dtype = ct_dtype_of(v->out[0]));
    ct_tensor *made[4] = {NULL};
    const int64_t heads = ct_dim(v->in[0], 1), kv_heads = ct_dim(v->in[1], 1);
    attrs.together = a->rows_first && v->need[0] && v->need[1] && v->need[2] && !v->need[3] &&
                     ct_dim(v->in[0], 2) == ct_dim(v->in[1], 2) && ct_dim(v->in[0], 3) == ct_dim(v->in[2], 3);
    if (attrs.together) {
        if (!ct_apply_with(&ct__op_sdpa_grad, in, 9, &attrs, made, 1, NULL, NULL)) return;
        for (int i = 2; i >= 0; i--)
            made[i] = narrow(made[0], 2, i == 0 ? 0 : heads + (i - 1) * kv_heads, i == 0 ? heads : kv_heads);
    }
    const int m = v->need[3] ? 4 : 3;
    if (!attrs.together && !ct_apply_with(&ct__op_sdpa_grad, in, 9, &attrs, made, m, v->need, NULL)) return;
    for (int i = 0; i < m; i++) v->grad[i] = made[i] && i < 3 && a->rows_first ? transpose(made[i], 1, 2) : made[i];
}

/* ---- Several heads ---- */

bool multi_head_attention_infer(ct_infer *infer) {
    const multi_head_attention_attrs *a = infer->attrs;
    const int64_t heads = a->heads, kv_heads = a->kv_heads ? a->kv_heads : heads;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return ct_infer_fail(infer, CT_ERR_VALUE, "heads is %lld and kv_heads %lld; the second has to divide the first",
                             (long long)heads, (long long)kv_heads);
    if (!infer_options(infer, a->causal, a->bottom_right, a->dropout) || !infer_mask_dtype(infer, infer->in[11]))
        return false;
    static const char *const names[] = {"query", "key", "value", "wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"};
    const int n = infer->in[0]->ndim;
    for (int i = 0; i < 3; i++) {
        const ct_view *x = infer->in[i], *w = infer->in[3 + i];
        if (x->ndim < 2 || x->ndim != n || w->ndim != 2 || x->dims[x->ndim - 1] != w->dims[1])
            return ct_infer_fail(infer, CT_ERR_SHAPE, "takes %s [..., T, E] and %s [out, E]: %s and %s", names[i],
                                 names[3 + i], ct_view_text(x), ct_view_text(w));
        const int64_t apart = i ? kv_heads : heads;
        if (w->dims[0] % apart)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; its rows do not divide into %lld heads", names[3 + i],
                                 ct_view_text(w), (long long)apart);
    }
    const ct_view *query = infer->in[0], *key = infer->in[1], *value = infer->in[2];
    bool together = key->dims[n - 2] == value->dims[n - 2];
    for (int i = 0; i < n - 2; i++)
        together = together && key->dims[i] == query->dims[i] && value->dims[i] == query->dims[i];
    if (!together || n == CT_MAX_DIMS)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "key and value need query's batch dimensions, %d at most, and one length: query is %s, key "
            "is %s, value is %s",
            CT_MAX_DIMS - 3, ct_view_text(query), ct_view_text(key), ct_view_text(value));
    ct_view scores = {.dtype = query->dtype, .ndim = n + 1}; /* [..., heads, Tq, Tk] */
    for (int i = 0; i < n - 2; i++) scores.dims[i] = query->dims[i];
    scores.dims[n - 2] = heads, scores.dims[n - 1] = query->dims[n - 2], scores.dims[n] = key->dims[n - 2];
    if (!infer_mask_shape(infer, infer->in[11], &scores)) return false;
    const ct_view *wq = infer->in[3], *wk = infer->in[4], *wv = infer->in[5], *wo = infer->in[6];
    if (wq->dims[0] / heads != wk->dims[0] / kv_heads)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "heads of query and key differ in size: wq is %s, wk is %s",
                             ct_view_text(wq), ct_view_text(wk));
    if (wo->ndim != 2 || wo->dims[1] != wv->dims[0] / kv_heads * heads)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "wo is %s, and has to be [out, %lld] for wv %s", ct_view_text(wo),
                             (long long)(wv->dims[0] / kv_heads * heads), ct_view_text(wv));
    for (int i = 7; i < 11; i++) {
        const ct_view *bias = infer->in[i];
        if (bias && (bias->ndim != 1 || bias->dims[0] != infer->in[i - 4]->dims[0]))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s, and has to be [%lld] for %s %s", names[i],
                                 ct_view_text(bias), (long long)infer->in[i - 4]->dims[0], names[i - 4],
                                 ct_view_text(infer->in[i - 4]));
    }
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    infer->out[0].dims[n - 1] = wo->dims[0];
    return true;
}

/* [..., T, heads * D] as [..., heads, T, D]. */
static ct_tensor *heads_apart(ct_tensor *x, int64_t heads) {
    ct_dims s = ct_shape(x);
    const int64_t last = ct__size_at(&s, -1);
    ct__set_size(&s, -1, heads);
    s.d[s.n++] = last / heads;
    return transpose(reshape(x, s), -3, -2);
}

void multi_head_attention_lower(ct_lower *l) {
    const multi_head_attention_attrs *a = l->attrs;
    const int64_t kv_heads = a->kv_heads ? a->kv_heads : a->heads;
    ct_tensor *q = heads_apart(linear(l->in[0], l->in[3], .bias = l->in[7]), a->heads),
              *k = heads_apart(linear(l->in[1], l->in[4], .bias = l->in[8]), kv_heads),
              *v = heads_apart(linear(l->in[2], l->in[5], .bias = l->in[9]), kv_heads);
    ct_tensor *y =
        scaled_dot_product_attention(q, k, v, .mask = l->in[11], .causal = a->causal, .bottom_right = a->bottom_right,
                                     .scale = a->scale, .dropout = a->dropout);
    y = flatten(transpose(y, -3, -2), .start = -2);
    l->out[0] = linear(y, l->in[6], .bias = l->in[10]);
}

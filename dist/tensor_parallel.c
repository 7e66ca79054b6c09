/* Tensor parallelism, as in Megatron-LM (Shoeybi et al., 2019): matrices cut by columns or by rows among the ranks
 * of a group, which all have the same input and the same loss. Two conjugate functions carry it: a copy whose
 * gradient is the sum over ranks, before a matrix that is cut by columns, and a sum whose gradient is the copy,
 * behind one that is cut by rows. Each is the derivative of the other. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "dist/dist.h"
#include "support/options.h"

/* ---- The two functions ---- */

typedef struct group_attrs {
    int64_t group;
} group_attrs;

static ct_tensor *copy_to(ct_tensor *x, ct_dist_group *group);
static ct_tensor *sum_from(ct_tensor *x, ct_dist_group *group);

static ct_dist_group *group_of(const ct_op *op, const void *attrs) {
    return ct__group_by_id((uint64_t)((const group_attrs *)attrs)->group, op->name);
}

static bool same_shape(ct_infer *infer) {
    infer->out[0].dtype = infer->in[0]->dtype;
    infer->out[0].ndim = infer->in[0]->ndim;
    for (int i = 0; i < infer->in[0]->ndim; i++) infer->out[0].dims[i] = infer->in[0]->dims[i];
    return group_of(infer->op, infer->attrs) != NULL;
}

static void lower_copy(ct_lower *l) { l->out[0] = ct_clone(l->in[0]); }
static void lower_sum(ct_lower *l) {
    ct_dist_group *group = group_of(l->op, l->attrs);
    if (group) l->out[0] = ct_dist_all_reduce(l->in[0], CT_DIST_SUM, group);
}
static void vjp_copy(ct_vjp *v) {
    ct_dist_group *group = group_of(v->op, v->attrs);
    if (group) v->grad[0] = sum_from(v->cot[0], group);
}
static void vjp_sum(ct_vjp *v) {
    ct_dist_group *group = group_of(v->op, v->attrs);
    if (group) v->grad[0] = copy_to(v->cot[0], group);
}

static const ct_arg inputs[] = {{"x", 0}, {NULL, 0}};
static const ct_arg outputs[] = {{"y", 0}, {NULL, 0}};
static const ct_attr schema[] = {
    {.name = "group", .type = CT_ATTR_INT, .offset = offsetof(group_attrs, group), .doc = "0: all ranks"},
    {.name = NULL}};
static ct_op_slot slots[2];
static const ct_op copy_op = {.size = sizeof(ct_op),
                              .name = "dist_copy_to",
                              .doc = "x; its gradient is the sum over ranks.",
                              .inputs = inputs,
                              .outputs = outputs,
                              .attrs = schema,
                              .attr_size = sizeof(group_attrs),
                              .flags = CT_OP_MOVES,
                              .infer = same_shape,
                              .vjp = vjp_copy,
                              .lower = lower_copy,
                              .slot = &slots[0]};
static const ct_op sum_op = {.size = sizeof(ct_op),
                             .name = "dist_sum_from",
                             .doc = "The sum over ranks; its gradient is the cotangent as it is.",
                             .inputs = inputs,
                             .outputs = outputs,
                             .attrs = schema,
                             .attr_size = sizeof(group_attrs),
                             .flags = CT_OP_MOVES,
                             .infer = same_shape,
                             .vjp = vjp_sum,
                             .lower = lower_sum,
                             .slot = &slots[1]};

static ct_tensor *apply(const ct_op *op, ct_tensor *x, ct_dist_group *given) {
    static bool registered;
    const ct_dist_group *group = ct__group(given, op->name);
    ct_tensor *y = NULL;
    if (!group || (!registered && !(registered = ct_op_register(&copy_op) && ct_op_register(&sum_op)))) return NULL;
    if (group->size == 1) return x;
    return ct_apply(op, &x, 1, &(group_attrs){(int64_t)group->id}, &y, 1) ? y : NULL;
}

static ct_tensor *copy_to(ct_tensor *x, ct_dist_group *group) { return apply(&copy_op, x, group); }
static ct_tensor *sum_from(ct_tensor *x, ct_dist_group *group) { return apply(&sum_op, x, group); }

/* ---- Layers ---- */

typedef struct split {
    ct_dist_group *group;
    ct_activation activation;
    bool causal;
    int64_t heads, head; /* of this rank, and their features */
    int64_t begin, rows; /* of an embedding: this rank's */
} split;

static ct_tensor *column_forward(ct_module *self, ct_tensor *x) {
    const split *s = ct_module_data(self);
    return ct_linear(copy_to(x, s->group), ct_module_param(self, 0), .bias = ct_module_param(self, 1),
                     .activation = s->activation);
}

/* A sum of all ranks' parts, and the bias once. */
static ct_tensor *joined(const split *s, ct_tensor *x, ct_tensor *weight, ct_tensor *bias) {
    ct_tensor *y = sum_from(ct_linear(x, weight), s->group);
    return bias && y ? ct_add(y, bias) : y;
}

static ct_tensor *row_forward(ct_module *self, ct_tensor *x) {
    return joined(ct_module_data(self), x, ct_module_param(self, 0), ct_module_param(self, 1));
}

static ct_tensor *embedding_forward(ct_module *self, ct_tensor *index) {
    const split *s = ct_module_data(self);
    ct_tensor *weight = ct_module_param(self, 0), *local = ct_sub_s(index, (double)s->begin);
    ct_tensor *here = ct_logical_and(ct_ge_s(local, 0), ct_lt_s(local, (double)s->rows));
    ct_tensor *rows = ct_embedding(weight, ct_clamp(local, .min = CT_SET(0), .max = CT_SET(s->rows - 1)));
    return sum_from(ct_mul(rows, ct_cast(ct_unsqueeze(here, -1), ct_dtype_of(weight))), s->group);
}

static ct_tensor *attention_forward(ct_module *self, ct_tensor *x) {
    const split *s = ct_module_data(self);
    const bool bias = ct_module_param_count(self) == 4;
    ct_tensor *all =
        ct_linear(copy_to(x, s->group), ct_module_param(self, 0), .bias = bias ? ct_module_param(self, 2) : NULL);
    ct_tensor *parts[3];
    if (!all) return NULL;
    ct_dims apart = ct_shape(all), together;
    apart.d[apart.n - 1] = 3 * s->heads;
    apart.d[apart.n++] = s->head;
    if (!ct_split(ct_reshape(all, apart), -2, CT_DIMS(s->heads, s->heads, s->heads), parts, 3)) return NULL;
    for (int i = 0; i < 3; i++) parts[i] = ct_transpose(parts[i], -3, -2);
    ct_tensor *y =
        ct_transpose(ct_scaled_dot_product_attention(parts[0], parts[1], parts[2], .causal = s->causal), -3, -2);
    if (!y) return NULL;
    together = ct_shape(y);
    together.d[together.n - 2] *= together.d[together.n - 1];
    together.n--;
    return joined(s, ct_reshape(y, together), ct_module_param(self, 1), bias ? ct_module_param(self, 3) : NULL);
}

#define SPLIT_CLASS(id, text)                   \
    static const ct_module_class id##_class = { \
        .size = sizeof(ct_module_class), .name = text, .state = sizeof(split), .forward = id##_forward};
SPLIT_CLASS(column, "column_linear")
SPLIT_CLASS(row, "row_linear")
SPLIT_CLASS(embedding, "split_embedding")
SPLIT_CLASS(attention, "split_attention")

/* ---- Making: the weights are those of the layer that is not cut ---- */

/* Rank 0's x; of that, this rank's part along an axis, or with axis -1 all. */
static bool add_part(ct_module *self, const char *name, ct_tensor *x, int axis, ct_dist_group *group) {
    const int ranks = ct_dist_group_size(group), rank = ct_dist_group_rank(group);
    bool fine = false;
    ct_scope {
        ct_no_grad {
            ct_tensor *all = ct_dist_broadcast(ct_detach(x), 0, group);
            if (all && axis >= 0) {
                const int64_t n = ct_dim(all, axis) / ranks;
                all = ct_narrow(all, axis, n * rank, n);
            }
            fine = all && ct_module_add_param(self, name, ct_clone(all));
        }
    }
    return fine;
}

static bool divides(const char *function, const char *what, int64_t n, const ct_dist_group *group) {
    const int ranks = ct_dist_group_size(group);
    return n % ranks == 0 ||
           ct_fail(CT_ERR_VALUE, function, "%s is %lld, which %d ranks do not divide", what, (long long)n, ranks);
}

/* Frees what it was made from; NULL unless all went well. */
static ct_module *finish(ct_module *self, ct_module *whole, bool fine) {
    ct_module_free(whole);
    if (fine) return self;
    ct_module_free(self);
    return NULL;
}

static ct_module *begin(const ct_module_class *type, const ct_dist_split_options *o, const char *function) {
    ct_module *self = ct_ok() && ct__group(o->group, function) ? ct_module_new(type) : NULL;
    if (self)
        *(split *)ct_module_data(self) = (split){.group = o->group, .activation = o->activation, .causal = o->causal};
    return self;
}

ct_module *ct_dist_column_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *self = begin(&column_class, &o, "dist_column_linear");
    ct_module *whole = self ? ct_nn_linear(in, out, .no_bias = o.no_bias) : NULL;
    return finish(self, whole,
                  whole && divides("dist_column_linear", "out", out, o.group) &&
                      add_part(self, "weight", ct_module_param(whole, 0), 0, o.group) &&
                      (o.no_bias || add_part(self, "bias", ct_module_param(whole, 1), 0, o.group)));
}

ct_module *ct_dist_row_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *self = begin(&row_class, &o, "dist_row_linear");
    ct_module *whole = self ? ct_nn_linear(in, out, .no_bias = o.no_bias) : NULL;
    return finish(self, whole,
                  whole && divides("dist_row_linear", "in", in, o.group) &&
                      add_part(self, "weight", ct_module_param(whole, 0), 1, o.group) &&
                      (o.no_bias || add_part(self, "bias", ct_module_param(whole, 1), -1, o.group)));
}

ct_module *ct_dist_embedding_p(int64_t count, int64_t dim, const ct_dist_split_options *options) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *self = begin(&embedding_class, &o, "dist_embedding");
    ct_module *whole = self ? ct_nn_embedding(count, dim) : NULL;
    if (whole) {
        split *s = ct_module_data(self);
        s->rows = count / ct_dist_group_size(o.group);
        s->begin = s->rows * ct_dist_group_rank(o.group);
    }
    return finish(self, whole,
                  whole && divides("dist_embedding", "count", count, o.group) &&
                      add_part(self, "weight", ct_module_param(whole, 0), 0, o.group));
}

/* [3 dim, ...], q, k and v one above the other, as [heads, 3 head, ...]: the parts of a rank are then neighbors; and
 * back, of its heads. */
static ct_tensor *by_heads(ct_tensor *x, int64_t heads, bool back) {
    const int64_t head = ct_dim(x, 0) / 3 / heads, rest = ct_numel(x) / ct_dim(x, 0);
    ct_tensor *y = ct_reshape(x, back ? CT_DIMS(heads, 3, head, rest) : CT_DIMS(3, heads, head, rest));
    return ct_contiguous(ct_transpose(y, 0, 1));
}

static bool add_projection(ct_module *self, const char *name, ct_tensor *x, int64_t heads, int64_t head,
                           ct_dist_group *group) {
    const int64_t here = heads / ct_dist_group_size(group);
    bool fine = false;
    ct_scope {
        ct_no_grad {
            ct_tensor *all = ct_dist_broadcast(by_heads(ct_detach(x), heads, false), 0, group);
            ct_tensor *mine = all ? by_heads(ct_reshape(ct_narrow(all, 0, here * ct_dist_group_rank(group), here),
                                                        CT_DIMS(3 * here * head, ct_numel(x) / (3 * heads * head))),
                                             here, true)
                                  : NULL;
            ct_dims shape = ct_shape(x);
            shape.d[0] = 3 * here * head;
            fine = mine && ct_module_add_param(self, name, ct_reshape(mine, shape));
        }
    }
    return fine;
}

ct_module *ct_dist_attention_p(int64_t dim, int64_t heads, const ct_dist_split_options *options) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *self = begin(&attention_class, &o, "dist_attention");
    ct_module *whole = self ? ct_nn_multi_head_attention(dim, heads, .no_bias = o.no_bias) : NULL;
    bool fine = whole && divides("dist_attention", "heads", heads, o.group);
    if (fine) {
        split *s = ct_module_data(self);
        ct_module *last = ct_module_child(whole, 0);
        s->heads = heads / ct_dist_group_size(o.group);
        s->head = dim / heads;
        fine =
            add_projection(self, "in_proj_weight", ct_module_param(whole, 0), heads, s->head, o.group) &&
            add_part(self, "out_proj_weight", ct_module_param(last, 0), 1, o.group) &&
            (o.no_bias || (add_projection(self, "in_proj_bias", ct_module_param(whole, 1), heads, s->head, o.group) &&
                           add_part(self, "out_proj_bias", ct_module_param(last, 1), -1, o.group)));
    }
    return finish(self, whole, fine);
}

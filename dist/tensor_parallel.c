/* Tensor parallelism, as in Megatron-LM (Shoeybi et al., 2019): matrices cut by columns or by rows among the ranks
 * of a group, which all have the same input and the same loss. Two conjugate functions carry it: a copy whose
 * gradient is the sum over ranks, before a matrix that is cut by columns, and a sum whose gradient is the copy,
 * behind one that is cut by rows. Each is the derivative of the other. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "dist/parallel.h"
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
    double dropout;      /* of attention's weights */
    int64_t heads, head; /* of this rank, and their features */
    int64_t begin, rows; /* of an embedding: this rank's */
} split;

static ct_tensor *column_forward(ct_module *self, ct_tensor *x) {
    const split *s = ct_module_data(self);
    return ct_linear(copy_to(x, s->group), ct_module_param(self, 0), .bias = ct_module_param(self, 1),
                     .activation = s->activation);
}

/* A sum of all ranks' parts, and the bias once. */
static ct_tensor *row_forward(ct_module *self, ct_tensor *x) {
    const split *s = ct_module_data(self);
    ct_tensor *y = sum_from(ct_linear(x, ct_module_param(self, 0)), s->group), *bias = ct_module_param(self, 1);
    return bias && y ? ct_add(y, bias) : y;
}

static ct_tensor *embedding_forward(ct_module *self, ct_tensor *index) {
    const split *s = ct_module_data(self);
    ct_tensor *weight = ct_module_param(self, 0), *local = ct_sub_s(index, (double)s->begin);
    ct_tensor *here = ct_logical_and(ct_ge_s(local, 0), ct_lt_s(local, (double)s->rows));
    ct_tensor *rows = ct_embedding(weight, ct_clamp(local, .min = CT_SET(0), .max = CT_SET(s->rows - 1)));
    return sum_from(ct_mul(rows, ct_cast(ct_unsqueeze(here, -1), ct_dtype_of(weight))), s->group);
}

/* As that of one process, which takes key, value and mask too: here they have to be left out. */
static bool attention_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const split *s = ct_module_data(self);
    for (int i = 1; i < n; i++)
        if (in[i] || m != 1)
            return ct_fail(CT_ERR_UNSUPPORTED, "split_attention", "attention of x to itself alone is cut by heads");
    ct_tensor *all = ct_linear(copy_to(in[0], s->group), ct_module_param(self, 0), .bias = ct_module_param(self, 1));
    ct_tensor *parts[3];
    if (!all) return false;
    ct_dims apart = ct_shape(all), together;
    apart.d[apart.n - 1] = 3 * s->heads;
    apart.d[apart.n++] = s->head;
    if (!ct_split(ct_reshape(all, apart), -2, CT_DIMS(s->heads, s->heads, s->heads), parts, 3)) return false;
    for (int i = 0; i < 3; i++) parts[i] = ct_transpose(parts[i], -3, -2);
    ct_tensor *y = ct_scaled_dot_product_attention(parts[0], parts[1], parts[2], .causal = s->causal,
                                                   .dropout = ct_module_training(self) ? s->dropout : 0);
    y = ct_transpose(y, -3, -2);
    if (!y) return false;
    together = ct_shape(y);
    together.d[together.n - 2] *= together.d[together.n - 1];
    together.n--;
    out[0] = ct_forward(ct_module_child(self, 0), ct_reshape(y, together));
    return out[0] != NULL;
}

#define SPLIT_CLASS(id, text, run)              \
    static const ct_module_class id##_class = { \
        .size = sizeof(ct_module_class), .name = text, .state = sizeof(split), run = id##_forward};
SPLIT_CLASS(column, "column_linear", .forward)
SPLIT_CLASS(row, "row_linear", .forward)
SPLIT_CLASS(embedding, "split_embedding", .forward)
SPLIT_CLASS(attention, "split_attention", .forward_n)

bool ct__cut_of(const ct_module *module, int parameter, ct_dims shape, ct__cut *cut) {
    const ct_module_class *type = ct_module_type(module);
    const split *s = ct_module_data(module);
    const bool heads = type == &attention_class, columns = type == &row_class;
    *cut = (ct__cut){.shape = shape, .run = 1, .ranks = 1};
    for (int i = 0; i < shape.n; i++) cut->run *= shape.d[i];
    if ((!heads && !columns && type != &column_class && type != &embedding_class) || (columns && parameter == 1) ||
        ct_dist_group_size(s->group) == 1)
        return false;
    const int size = cut->ranks = ct_dist_group_size(s->group);
    if (heads) cut->run /= 3; /* q, k and v */
    if (columns) cut->run = shape.d[1];
    cut->group = s->group;
    cut->stride = cut->run * size;
    cut->start = cut->run * ct_dist_group_rank(s->group);
    cut->shape.d[columns ? 1 : 0] *= size;
    return true;
}

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

/* NULL unless all went well. */
static ct_module *finish(ct_module *self, bool fine) {
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

/* From a layer that is not cut, and stays as it is; NULL where there is none. */
static ct_module *cut_linear(const ct_module_class *type, ct_module *whole, const ct_dist_split_options *o,
                             const char *function) {
    const bool columns = type == &row_class;
    ct_module *self = whole ? begin(type, o, function) : NULL;
    ct_tensor *weight = ct_module_param(whole, 0), *bias = ct_module_param(whole, 1);
    return finish(self, self && divides(function, columns ? "in" : "out", ct_dim(weight, columns), o->group) &&
                            add_part(self, "weight", weight, columns, o->group) &&
                            (!bias || add_part(self, "bias", bias, columns ? -1 : 0, o->group)));
}

ct_module *ct__cut_columns(ct_module *linear, ct_dist_group *group) {
    return cut_linear(&column_class, linear, &(ct_dist_split_options){.group = group}, "dist_column_linear");
}

ct_module *ct__cut_rows(ct_module *linear, ct_dist_group *group) {
    return cut_linear(&row_class, linear, &(ct_dist_split_options){.group = group}, "dist_row_linear");
}

static ct_module *new_linear(const ct_module_class *type, int64_t in, int64_t out, const ct_dist_split_options *options,
                             const char *function) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *whole = ct_ok() ? ct_nn_linear(in, out, .no_bias = o.no_bias) : NULL;
    ct_module *self = cut_linear(type, whole, &o, function);
    ct_module_free(whole);
    return self;
}

ct_module *ct_dist_column_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options) {
    return new_linear(&column_class, in, out, options, "dist_column_linear");
}

ct_module *ct_dist_row_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options) {
    return new_linear(&row_class, in, out, options, "dist_row_linear");
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
    self = finish(self, whole && divides("dist_embedding", "count", count, o.group) &&
                            add_part(self, "weight", ct_module_param(whole, 0), 0, o.group));
    ct_module_free(whole);
    return self;
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

ct_module *ct__cut_heads(ct_module *whole, ct_dist_group *group) {
    ct_nn_attention_options is = {.size = sizeof is};
    const int64_t heads = ct_nn_attention_heads(whole, &is);
    const ct_dist_split_options o = {.group = group, .causal = is.causal};
    ct_module *self = heads ? begin(&attention_class, &o, "dist_attention") : NULL;
    if (!self) return NULL;
    ct_module *last = ct_module_child(whole, 0);
    split *s = ct_module_data(self);
    s->heads = heads / ct_dist_group_size(group);
    s->head = ct_dim(ct_module_param(last, 0), 1) / heads;
    s->dropout = is.dropout;
    if (is.kv_heads || is.key_dim || is.value_dim)
        ct_fail(CT_ERR_UNSUPPORTED, "dist_attention", "attention whose keys have heads or features of their own");
    return finish(self, ct_ok() && divides("dist_attention", "heads", heads, group) &&
                            add_projection(self, "in_proj_weight", ct_module_param(whole, 0), heads, s->head, group) &&
                            (is.no_bias ||
                             add_projection(self, "in_proj_bias", ct_module_param(whole, 1), heads, s->head, group)) &&
                            ct_module_add(self, "out_proj", ct__cut_rows(last, group)));
}

ct_module *ct_dist_attention_p(int64_t dim, int64_t heads, const ct_dist_split_options *options) {
    TAKE_OPTIONS(ct_dist_split_options, o, options);
    ct_module *whole =
        ct_ok() ? ct_nn_multi_head_attention(dim, heads, .no_bias = o.no_bias, .causal = o.causal) : NULL;
    ct_module *self = ct__cut_heads(whole, o.group);
    ct_module_free(whole);
    return self;
}

/* Making one batch: items are read, transformed and laid side by side. Plain loops, no op of any size: this runs on the
 * loader's threads and must not take the library's threads away from the training. */
#include "data/loader.h"

#include <cotangent/op.h>
#include <stdio.h>

void ct__made_drop(ct__made *made) {
    for (int f = 0; f < CT_MAX_FIELDS; f++) {
        ct_drop(made->field[f]);
        made->field[f] = NULL;
    }
    made->code = CT_OK;
}

static ct_dims stacked(int64_t n, ct_dims item) {
    ct_dims shape = {.n = item.n + 1, .d = {n}};
    memcpy(shape.d + 1, item.d, (size_t)item.n * sizeof *item.d);
    return shape;
}

static bool differ(int field, const int64_t *index, int64_t i, ct_tensor *x, ct_dtype dtype, ct_dims first) {
    return ct_fail(
        CT_ERR_SHAPE, "batches",
        "field %d of item %lld is %s, that of item %lld is %s%s; a transform (resize, crop) or .pad makes them alike",
        field, (long long)index[i], ct_tensor_text(x), (long long)index[0], ct_dtype_name(dtype), ct_dims_text(first));
}

static bool one_item(const ct__recipe *recipe, int64_t epoch, const ct__made *made, int64_t i, ct_tensor **fields) {
    const int64_t index = made->index[i];
    ct_draw draw = ct__draw_begin(recipe->seed, CT__DRAW_ITEM, epoch, index);
    if (!recipe->once) draw = ct__draw_begin(draw.key, CT__DRAW_ITEM, epoch, made->first + i);
    const bool ok = ct__dataset_get(recipe->dataset, index, &draw, fields) &&
                    ct__transform_item(recipe->items, fields, recipe->dataset->fields, &draw);
    ct__draw_end(&draw);
    return ok;
}

static bool cancelled(const ct__recipe *recipe) {
    return recipe->cancel && atomic_load_explicit(recipe->cancel, memory_order_relaxed) &&
           !ct_fail(CT_ERR_STATE, "batches", "stopped");
}

/* Items of one shape: each is copied to its place as soon as it is there. */
static bool stack_items(const ct__recipe *recipe, int64_t epoch, const ct__made *made, ct_tensor **out) {
    const int count = recipe->dataset->fields;
    void *data[CT_MAX_FIELDS] = {0};
    ct_dims shape[CT_MAX_FIELDS];
    bool ok = true;
    for (int64_t i = 0; ok && i < made->n; i++) {
        if (cancelled(recipe)) return false;
        ct_scope {
            ct_tensor *fields[CT_MAX_FIELDS], *holder;
            ok = one_item(recipe, epoch, made, i, fields);
            for (int f = 0; ok && f < count; f++) {
                if (i == 0) {
                    shape[f] = ct_shape(fields[f]);
                    if (shape[f].n >= CT_MAX_DIMS) {
                        ok = ct_fail(CT_ERR_SHAPE, "batches",
                                     "field %d has %d dimensions; a batch has one more than fits", f, shape[f].n);
                        break;
                    }
                    out[f] = ct_pass(ct__blank(stacked(made->n, shape[f]), ct_dtype_of(fields[f]), &data[f]));
                    ok = out[f] != NULL;
                }
                const void *from = ok ? ct__dense(fields[f], &holder) : NULL;
                if (!ok) break;
                if (ct_dtype_of(fields[f]) != ct_dtype_of(out[f]) || !ct__same_shape(ct_shape(fields[f]), shape[f])) {
                    ok = differ(f, made->index, i, fields[f], ct_dtype_of(out[f]), shape[f]);
                    break;
                }
                const size_t bytes = (size_t)ct_numel(fields[f]) * ct_dtype_size(ct_dtype_of(fields[f]));
                if (bytes && !from) ok = false;
                else if (bytes) memcpy((char *)data[f] + (size_t)i * bytes, from, bytes);
            }
        }
    }
    return ok && ct_ok();
}

/* ---- Padding ---- */

/* Writes value as an element of that dtype. */
static bool put_value(ct_dtype dtype, double value, void *element) {
    ct_tensor *scalar = ct_scalar(value, dtype);
    return scalar && ct_read(scalar, element, ct_dtype_size(dtype));
}

/* Copies a dense block into the corner of a larger one, axis by axis. */
static void copy_corner(char *to, const char *from, ct_dims small, ct_dims large, int axis, size_t each) {
    if (axis == small.n) {
        memcpy(to, from, each);
        return;
    }
    size_t inner_small = each, inner_large = each;
    for (int a = axis + 1; a < small.n; a++) {
        inner_small *= (size_t)small.d[a];
        inner_large *= (size_t)large.d[a];
    }
    if (axis == small.n - 1) {
        if (small.d[axis]) memcpy(to, from, (size_t)small.d[axis] * each);
        return;
    }
    for (int64_t i = 0; i < small.d[axis]; i++)
        copy_corner(to + (size_t)i * inner_large, from + (size_t)i * inner_small, small, large, axis + 1, each);
}

/* One field of all items, filled up to the largest of each axis. */
static ct_tensor *pad_field(const ct__recipe *recipe, const ct__made *made, ct_tensor *const *items, int f, int count) {
    ct_dims most = ct_shape(items[f]);
    const ct_dtype dtype = ct_dtype_of(items[f]);
    for (int64_t i = 0; i < made->n; i++) {
        ct_tensor *x = items[i * count + f];
        const ct_dims shape = ct_shape(x);
        if (shape.n != most.n || ct_dtype_of(x) != dtype) {
            differ(f, made->index, i, x, dtype, ct_shape(items[f]));
            return NULL;
        }
        for (int a = 0; a < shape.n; a++)
            if (shape.d[a] > most.d[a]) most.d[a] = shape.d[a];
    }
    if (most.n >= CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "batches", "field %d has %d dimensions; a batch has one more than fits", f, most.n);
        return NULL;
    }
    void *data;
    char element[16];
    const size_t each = ct_dtype_size(dtype);
    ct_tensor *out = ct__blank(stacked(made->n, most), dtype, &data);
    if (!out || !put_value(dtype, recipe->pad_value, element)) return NULL;
    const size_t bytes = (size_t)ct_numel(out) * each, item = made->n ? bytes / (size_t)made->n : 0;
    for (size_t i = 0; i < bytes; i += each) memcpy((char *)data + i, element, each);
    for (int64_t i = 0; i < made->n; i++) {
        ct_tensor *x = items[i * count + f], *holder;
        const void *from = ct__dense(x, &holder);
        if (!from && ct_numel(x)) return NULL;
        if (from && ct_numel(x)) copy_corner((char *)data + (size_t)i * item, from, ct_shape(x), most, 0, each);
    }
    return out;
}

static bool pad_items(const ct__recipe *recipe, int64_t epoch, ct__made *made, ct_tensor **out) {
    const int count = recipe->dataset->fields;
    ct_tensor **items = ct__zeroed("batches", made->n * count, sizeof *items);
    bool ok = items != NULL;
    for (int64_t i = 0; ok && i < made->n; i++) {
        ok = !cancelled(recipe) && one_item(recipe, epoch, made, i, items + i * count);
        if (ok) made->length[i] = ct_ndim(items[i * count]) ? ct_dim(items[i * count], 0) : 1;
    }
    for (int f = 0; ok && f < count; f++) {
        out[f] = pad_field(recipe, made, items, f, count);
        ok = out[f] != NULL;
    }
    ct_free(items);
    return ok;
}

/* ---- The whole batch ---- */

static bool many_items(const ct__recipe *recipe, const ct__made *made, ct_tensor **out) {
    ct_dataset *set = recipe->dataset;
    if (!set->type->get_many(set, made->index, made->n, out) && ct_ok())
        return ct_fail(CT_ERR_VALUE, "batches", "%s gave no items, without a reason given", set->type->name);
    for (int f = 0; ct_ok() && f < set->fields; f++)
        if (!out[f] || ct_ndim(out[f]) < 1 || ct_dim(out[f], 0) != made->n)
            return ct_fail(CT_ERR_SHAPE, "batches", "field %d of %s is not a stack of %lld items", f, set->type->name,
                           (long long)made->n);
    return ct_ok();
}

/* The fields to the loader's device, by its stream: the calling thread goes on with its own. */
static bool bring(const ct__recipe *recipe, ct_tensor **out, int count) {
    ct_stream *before = ct_get_stream(recipe->device);
    bool ok = ct_set_stream(recipe->device, recipe->stream);
    for (int f = 0; ok && f < count; f++) ok = (out[f] = ct_to(out[f], recipe->device)) != NULL;
    return ct_set_stream(recipe->device, before) && ok;
}

static bool make(const ct__recipe *recipe, int64_t epoch, int64_t number, ct__made *made) {
    ct_tensor *out[CT_MAX_FIELDS] = {0};
    const int count = recipe->dataset->fields;
    bool ok;
    if (recipe->pad) ok = pad_items(recipe, epoch, made, out);
    else if (recipe->dataset->type->get_many && !ct__transform_has(recipe->items, false))
        ok = many_items(recipe, made, out);
    else ok = stack_items(recipe, epoch, made, out);
    if (!ok) return false;
    if (recipe->last || (!recipe->raw && ct_dtype_of(out[0]) == CT_U8)) out[0] = ct__normalize(out[0], recipe->last);
    if (!out[0]) return false;
    if (ct__transform_has(recipe->transform, true)) {
        ct_draw draw = ct__draw_begin(recipe->seed, CT__DRAW_BATCH, epoch, number);
        ok = ct__transform_batch(recipe->transform, out, count, recipe->dataset->classes, &draw);
        ct__draw_end(&draw);
    }
    if (ok && recipe->stream) ok = bring(recipe, out, count);
    for (int f = 0; ok && f < count; f++) made->field[f] = ct_keep(out[f]);
    return ok;
}

void ct__make_batch(const ct__recipe *recipe, int64_t epoch, int64_t number, ct__made *made) {
    made->code = CT_OK;
    bool ok = false;
    const ct_device before = ct__host_begin();
    ct_no_grad
        ct_scope {
            ok = make(recipe, epoch, number, made);
        }
    ct__host_end(before);
    if (ok && ct_ok()) return;
    ct__made_drop(made);
    if (ct_ok()) ct_fail(CT_ERR_VALUE, "batches", "a batch could not be made, without a reason given");
    made->code = ct_error_code();
    snprintf(made->op, sizeof made->op, "%s", ct_error_op());
    const size_t prefix = made->op[0] ? strlen(made->op) + 2 : 0; /* "op: " */
    const char *text = ct_error();
    snprintf(made->text, sizeof made->text, "%s", strlen(text) >= prefix ? text + prefix : text);
    ct_error_clear();
}

/* The transform as an object: counting, chains, functions of the user, mapped datasets; and the step from pixels to
 * numbers, which the loader does for whole batches. */
#include "data/data.h"

#include "data/image.h"

ct_transform *ct_transform_new(const ct_transform_class *given) {
    ct_transform_class own;
    const ct_transform_class *type = given ? ct__take_class("ct_transform_class", &own, sizeof own, given) : NULL;
    if (given && !type) return NULL;
    if (!type || (!type->item && !type->batch)) {
        ct__null("transform_new", type ? "item" : "type");
        return NULL;
    }
    ct_transform *transform = ct__zeroed("transform_new", 1, sizeof *transform);
    if (!transform) return NULL;
    transform->own = *type;
    transform->type = type == given ? given : &transform->own;
    atomic_init(&transform->refs, 1);
    transform->data = ct__zeroed("transform_new", 1, type->state);
    if (transform->data) return transform;
    ct_free(transform);
    return NULL;
}

ct_transform *ct_transform_keep(ct_transform *transform) {
    if (transform) atomic_fetch_add_explicit(&transform->refs, 1, memory_order_relaxed);
    return transform;
}

void ct_transform_free(ct_transform *transform) {
    if (!transform || atomic_fetch_sub_explicit(&transform->refs, 1, memory_order_acq_rel) != 1) return;
    if (transform->type->release) transform->type->release(transform);
    ct_free(transform->data);
    ct_free(transform);
}

void *ct_transform_data(const ct_transform *transform) { return transform ? transform->data : NULL; }

static bool check_result(const ct_transform *transform, bool done, ct_tensor **fields, int n) {
    if (!ct_ok()) return false;
    if (!done) return ct_fail(CT_ERR_VALUE, transform->type->name, "failed without a reason given");
    for (int i = 0; i < n; i++)
        if (!fields[i]) return ct_fail(CT_ERR_NULL, transform->type->name, "made field %d NULL", i);
    return true;
}

bool ct__transform_item(ct_transform *transform, ct_tensor **fields, int n, ct_draw *draw) {
    if (!transform || !transform->type->item) return true;
    const ct_device before = ct__host_begin();
    const bool done = transform->type->item(transform, fields, n, draw);
    ct__host_end(before);
    return check_result(transform, done, fields, n);
}

bool ct__transform_batch(ct_transform *transform, ct_tensor **fields, int n, int64_t classes, ct_draw *draw) {
    if (!transform || !transform->type->batch) return true;
    const ct_device before = ct__host_begin();
    const bool done = transform->type->batch(transform, fields, n, classes, draw);
    ct__host_end(before);
    return check_result(transform, done, fields, n);
}

bool ct_transform_apply(ct_transform *transform, ct_tensor **fields, int n, bool batch, int64_t classes, uint64_t seed,
                        int64_t epoch, int64_t item) {
    if (!transform || !fields) return ct__null("transform_apply", transform ? "fields" : "transform");
    for (int i = 0; i < n; i++)
        if (!fields[i]) return ct__null("transform_apply", "fields");
    if (!ct_ok()) return false;
    if (n < 1 || n > CT_MAX_FIELDS)
        return ct_fail(CT_ERR_VALUE, "transform_apply", "%d fields; expected 1 to %d", n, CT_MAX_FIELDS);
    ct_tensor *work[CT_MAX_FIELDS];
    memcpy(work, fields, (size_t)n * sizeof *work);
    bool ok = false;
    ct_scope {
        ct_draw draw = ct__draw_begin(seed, batch ? CT__DRAW_BATCH : CT__DRAW_ITEM, epoch, item);
        ok = batch ? ct__transform_batch(transform, work, n, classes, &draw)
                   : ct__transform_item(transform, work, n, &draw);
        ct__draw_end(&draw);
        for (int i = 0; ok && i < n; i++)
            if (work[i] != fields[i]) fields[i] = ct_pass(work[i]);
    }
    return ok;
}

/* ---- Chains ---- */

typedef struct chain {
    ct_transform **part;
    int n;
} chain;

static bool chain_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    const chain *c = ct_transform_data(self);
    for (int i = 0; i < c->n; i++)
        if (!ct__transform_item(c->part[i], fields, n, draw)) return false;
    return true;
}

static bool chain_batch(ct_transform *self, ct_tensor **fields, int n, int64_t classes, ct_draw *draw) {
    const chain *c = ct_transform_data(self);
    for (int i = 0; i < c->n; i++)
        if (!ct__transform_batch(c->part[i], fields, n, classes, draw)) return false;
    return true;
}

static void chain_release(ct_transform *self) {
    chain *c = ct_transform_data(self);
    for (int i = 0; i < c->n; i++) ct_transform_free(c->part[i]);
    ct_free(c->part);
}

static const ct_transform_class chain_class = {
    sizeof(ct_transform_class), "chain", sizeof(chain), chain_item, chain_batch, chain_release};

static bool is_chain(const ct_transform *transform) { return transform->type == &chain_class; }

ct_transform *ct_transform_list(ct_transform *const *transforms, int n) {
    if (!transforms && n > 0) {
        ct__null("transform_list", "transforms");
        return NULL;
    }
    bool ok = true;
    int total = 0;
    for (int i = 0; i < n; i++) {
        if (transforms[i]) total += is_chain(transforms[i]) ? ((chain *)transforms[i]->data)->n : 1;
        else ok = ct__null("transform_list", "transforms");
    }
    ct_transform *result = ok ? ct_transform_new(&chain_class) : NULL;
    chain *c = ct_transform_data(result);
    if (result) c->part = ct__zeroed("transform_list", total, sizeof *c->part);
    if (result && !c->part) {
        ct_transform_free(result);
        result = NULL;
    }
    /* Chains within are dissolved, so that the last transform is the last of the list. */
    for (int i = 0; result && i < n; i++) {
        const chain *inner = is_chain(transforms[i]) ? ct_transform_data(transforms[i]) : NULL;
        if (inner)
            for (int k = 0; k < inner->n; k++) c->part[c->n++] = ct_transform_keep(inner->part[k]);
        else c->part[c->n++] = ct_transform_keep(transforms[i]);
    }
    for (int i = 0; i < n; i++) ct_transform_free(transforms[i]);
    return result;
}

bool ct__transform_has(const ct_transform *transform, bool batch) {
    if (!transform) return false;
    if (!is_chain(transform)) return batch ? transform->type->batch != NULL : transform->type->item != NULL;
    const chain *c = ct_transform_data(transform);
    for (int i = 0; i < c->n; i++)
        if (ct__transform_has(c->part[i], batch)) return true;
    return false;
}

/* ---- A function of the user ---- */

typedef struct call {
    ct_transform_fn fn;
    void *context;
    void (*release)(void *context);
} call;

static bool call_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    const call *c = ct_transform_data(self);
    return c->fn(c->context, fields, n, draw);
}

static void call_release(ct_transform *self) {
    const call *c = ct_transform_data(self);
    if (c->release) c->release(c->context);
}

static const ct_transform_class call_class = {
    sizeof(ct_transform_class), "transform_call", sizeof(call), call_item, NULL, call_release};

ct_transform *ct_transform_call(ct_transform_fn fn, void *context, void (*release)(void *context)) {
    ct_transform *transform = fn ? ct_transform_new(&call_class) : NULL;
    if (!fn) ct__null("transform_call", "fn");
    if (transform) *(call *)ct_transform_data(transform) = (call){fn, context, release};
    else if (release) release(context);
    return transform;
}

/* ---- Numbers from pixels ---- */

typedef struct normalize {
    int n;
    float *scale, *offset;             /* of f32 */
    float *pixel_scale, *pixel_offset; /* of u8 */
} normalize;

static void pixels_to_float(float *restrict y, const uint8_t *restrict x, int64_t n, float scale, float offset) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) /* in blocks of a fixed length, which compilers turn into vectors */
        for (int k = 0; k < 16; k++) y[i + k] = (float)x[i + k] * scale + offset;
    for (; i < n; i++) y[i] = (float)x[i] * scale + offset;
}

static void scale_floats(float *restrict y, const float *restrict x, int64_t n, float scale, float offset) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) y[i + k] = x[i + k] * scale + offset;
    for (; i < n; i++) y[i] = x[i] * scale + offset;
}

ct_tensor *ct__normalize(ct_tensor *x, const ct_transform *by) {
    const normalize *how = ct_transform_data(by);
    const ct_dtype dtype = ct_dtype_of(x);
    if (!how && dtype == CT_F32) return x;
    if (dtype != CT_U8 && dtype != CT_F32) {
        if (!how) return ct_cast(x, CT_F32);
        ct_fail(CT_ERR_DTYPE, "transform_normalize", "field 0 is %s; expected u8 or f32", ct_dtype_name(dtype));
        return NULL;
    }
    const ct_dims shape = ct_shape(x);
    const int n = how ? how->n : 1;
    if (n > 1 && (shape.n < 3 || shape.d[shape.n - 3] != n)) {
        ct_fail(CT_ERR_SHAPE, "transform_normalize", "%d means for an image of %lld channels", n,
                shape.n < 3 ? 1LL : (long long)shape.d[shape.n - 3]);
        return NULL;
    }
    ct_tensor *holder;
    void *to;
    const void *from = ct__dense(x, &holder);
    ct_tensor *y = ct__blank(shape, CT_F32, &to);
    if (!y || (!from && ct_numel(x))) return NULL;
    const int64_t all = ct_numel(x), plane = n > 1 ? shape.d[shape.n - 2] * shape.d[shape.n - 1] : all;
    for (int64_t i = 0, c = 0; i < all; i += plane, c = c + 1 == n ? 0 : c + 1) {
        if (dtype == CT_U8)
            pixels_to_float((float *)to + i, (const uint8_t *)from + i, plane, how ? how->pixel_scale[c] : 1.0f / 255,
                            how ? how->pixel_offset[c] : 0);
        else scale_floats((float *)to + i, (const float *)from + i, plane, how->scale[c], how->offset[c]);
    }
    return y;
}

static bool normalize_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n, (void)draw;
    fields[0] = ct__normalize(fields[0], self);
    return fields[0] != NULL;
}

static void normalize_release(ct_transform *self) { ct_free(((normalize *)ct_transform_data(self))->scale); }

static const ct_transform_class normalize_class = {
    sizeof(ct_transform_class), "transform_normalize", sizeof(normalize), normalize_item, NULL, normalize_release};

ct_transform *ct_transform_normalize(const double *mean, const double *std, int n) {
    if (!mean || !std) {
        ct__null("transform_normalize", mean ? "std" : "mean");
        return NULL;
    }
    if (n < 1 || n > 4096) {
        ct_fail(CT_ERR_VALUE, "transform_normalize", "%d channels; expected 1 to 4096", n);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        if (!(std[i] > 0) || !(mean[i] == mean[i])) {
            ct_fail(CT_ERR_VALUE, "transform_normalize", "channel %d has mean %g and std %g; std has to be above 0", i,
                    mean[i], std[i]);
            return NULL;
        }
    ct_transform *transform = ct_transform_new(&normalize_class);
    if (!transform) return NULL;
    normalize *how = ct_transform_data(transform);
    how->n = n;
    how->scale = ct__zeroed("transform_normalize", 4 * (int64_t)n, sizeof *how->scale);
    if (!how->scale) {
        ct_transform_free(transform);
        return NULL;
    }
    how->offset = how->scale + n;
    how->pixel_scale = how->offset + n;
    how->pixel_offset = how->pixel_scale + n;
    for (int i = 0; i < n; i++) {
        how->scale[i] = (float)(1 / std[i]);
        how->offset[i] = how->pixel_offset[i] = (float)(-mean[i] / std[i]);
        how->pixel_scale[i] = (float)(1 / (255 * std[i]));
    }
    return transform;
}

static bool float_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)self, (void)n, (void)draw;
    fields[0] = ct__normalize(fields[0], NULL);
    return fields[0] != NULL;
}

static const ct_transform_class float_class = {
    sizeof(ct_transform_class), "transform_float", 0, float_item, NULL, NULL};
ct_transform *ct_transform_float(void) { return ct_transform_new(&float_class); }

ct_transform *ct__transform_cut(ct_transform *transform, ct_transform **last) {
    *last = NULL;
    if (!transform) return NULL;
    if (!is_chain(transform)) {
        if (transform->type != &normalize_class) return ct_transform_keep(transform);
        *last = transform;
        return NULL;
    }
    const chain *c = ct_transform_data(transform);
    int end = c->n;
    while (end > 0 && !c->part[end - 1]->type->item) end--;
    if (end == 0 || c->part[end - 1]->type != &normalize_class) return ct_transform_keep(transform);
    *last = c->part[end - 1];
    if (end == 1) return NULL;
    for (int i = 0; i < end - 1; i++) ct_transform_keep(c->part[i]);
    return ct_transform_list(c->part, end - 1);
}

/* ---- A dataset with a transform ---- */

typedef struct mapped {
    ct_dataset *base;
    ct_transform *transform;
} mapped;

static bool mapped_get(ct_dataset *self, int64_t index, ct_draw *draw, ct_tensor **fields) {
    const mapped *set = ct_dataset_data(self);
    return ct__dataset_get(set->base, index, draw, fields) &&
           ct__transform_item(set->transform, fields, self->fields, draw);
}

static int64_t mapped_label(ct_dataset *self, int64_t index) {
    const mapped *set = ct_dataset_data(self);
    return ct_dataset_label(set->base, index);
}

static void mapped_release(ct_dataset *self) {
    mapped *set = ct_dataset_data(self);
    ct_dataset_free(set->base);
    ct_transform_free(set->transform);
}

static const ct_dataset_class mapped_class = {.size = sizeof(ct_dataset_class),
                                              .name = "map",
                                              .state = sizeof(mapped),
                                              .get_drawn = mapped_get,
                                              .label = mapped_label,
                                              .release = mapped_release};

ct_dataset *ct_dataset_map(ct_dataset *base, ct_transform *transform) {
    ct_dataset *dataset = NULL;
    if (!base || !transform) ct__null("dataset_map", base ? "transform" : "dataset");
    else if (ct__transform_has(transform, true))
        ct_fail(CT_ERR_VALUE, "dataset_map",
                "the transform works on whole batches, at least in part: give it to ct_batches");
    else dataset = ct__dataset_over("dataset_map", &mapped_class, base->count, &base, 1);
    if (!dataset) {
        ct_transform_free(transform);
        return NULL;
    }
    *(mapped *)ct_dataset_data(dataset) = (mapped){ct_dataset_keep(base), transform};
    ct__dataset_copy_classes(dataset, base);
    return dataset;
}

/* Transforms of whole batches that mix pairs of items and their labels: mixup (a weighted mean) and cutmix (a
 * rectangle). */
#include "data/data.h"

#include <math.h>

typedef struct mixing {
    double alpha, p;
} mixing;

/* Field 1 as probabilities f32 [n, classes]. A copy, so that it can be written to. */
static ct_tensor *soft_labels(const char *op, ct_tensor *y, int64_t n, int64_t classes) {
    ct_tensor *holder;
    void *out;
    if (ct_dtype_of(y) == CT_F32 && ct_ndim(y) == 2) {
        const void *from = ct__dense(y, &holder);
        ct_tensor *copy = from ? ct__blank(ct_shape(y), CT_F32, &out) : NULL;
        if (copy) memcpy(out, from, (size_t)ct_numel(y) * sizeof(float));
        return copy;
    }
    if (!ct_dtype_is_int(ct_dtype_of(y)) || ct_ndim(y) != 1) {
        ct_fail(CT_ERR_VALUE, op, "field 1 is %s of %d dimensions; expected class numbers [n] or f32 [n, classes]",
                ct_dtype_name(ct_dtype_of(y)), ct_ndim(y));
        return NULL;
    }
    if (classes < 1) {
        ct_fail(CT_ERR_VALUE, op, "the dataset does not say how many classes it has");
        return NULL;
    }
    ct_tensor *numbers = ct_dtype_of(y) == CT_I64 ? y : ct_cast(y, CT_I64);
    const int64_t *labels = numbers ? ct__dense(numbers, &holder) : NULL;
    ct_tensor *soft = labels ? ct__blank(CT_DIMS(n, classes), CT_F32, &out) : NULL;
    if (!soft) return NULL;
    memset(out, 0, (size_t)(n * classes) * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0 || labels[i] >= classes) {
            ct_fail(CT_ERR_INDEX, op, "the label %lld of %lld classes", (long long)labels[i], (long long)classes);
            return NULL;
        }
        ((float *)out)[i * classes + labels[i]] = 1;
    }
    return soft;
}

/* y[i] = keep x[i] + (1 - keep) x[partner[i]], for n rows. */
static ct_tensor *mean_of_rows(ct_tensor *x, const int64_t *partner, float keep) {
    ct_tensor *holder;
    void *out;
    const float *from = ct__dense(x, &holder);
    ct_tensor *y = from ? ct__blank(ct_shape(x), CT_F32, &out) : NULL;
    if (!y) return NULL;
    const int64_t n = ct_dim(x, 0), row = ct_numel(x) / n;
    for (int64_t i = 0; i < n; i++) {
        const float *a = from + i * row, *b = from + partner[i] * row;
        float *to = (float *)out + i * row;
        for (int64_t j = 0; j < row; j++) to[j] = keep * a[j] + (1 - keep) * b[j];
    }
    return y;
}

typedef struct box {
    int64_t top, left, bottom, right;
} box;

/* x with one rectangle of each image taken from its partner. */
static ct_tensor *patch_images(ct_tensor *x, const int64_t *partner, box b) {
    ct_tensor *holder;
    void *out;
    const float *from = ct__dense(x, &holder);
    ct_tensor *y = from ? ct__blank(ct_shape(x), CT_F32, &out) : NULL;
    if (!y) return NULL;
    const ct_dims s = ct_shape(x);
    memcpy(out, from, (size_t)ct_numel(x) * sizeof(float));
    if (b.right <= b.left) return y;
    for (int64_t i = 0; i < s.d[0]; i++)
        for (int64_t c = 0; c < s.d[1]; c++)
            for (int64_t r = b.top; r < b.bottom; r++) {
                const int64_t at = (c * s.d[2] + r) * s.d[3] + b.left, image = s.d[1] * s.d[2] * s.d[3];
                memcpy((float *)out + i * image + at, from + partner[i] * image + at,
                       (size_t)(b.right - b.left) * sizeof(float));
            }
    return y;
}

static int64_t clip(int64_t x, int64_t high) { return x < 0 ? 0 : x > high ? high : x; }

static box draw_box(ct_draw *draw, int64_t height, int64_t width, double area) {
    const double side = sqrt(area);
    const int64_t h = (int64_t)((double)height * side), w = (int64_t)((double)width * side);
    const int64_t row = ct_draw_below(draw, height), column = ct_draw_below(draw, width);
    return (box){clip(row - h / 2, height), clip(column - w / 2, width), clip(row - h / 2 + h, height),
                 clip(column - w / 2 + w, width)};
}

static bool mix(const char *op, const mixing *how, ct_tensor **fields, int n, int64_t classes, ct_draw *draw,
                bool cut) {
    if (n < 2) return ct_fail(CT_ERR_VALUE, op, "the items have no labels to mix");
    const ct_dims shape = ct_shape(fields[0]);
    if (ct_dtype_of(fields[0]) != CT_F32)
        return ct_fail(CT_ERR_DTYPE, op, "field 0 is %s; expected f32", ct_dtype_name(ct_dtype_of(fields[0])));
    if (cut ? shape.n != 4 : shape.n < 1)
        return ct_fail(CT_ERR_SHAPE, op,
                       "field 0 of the batch has %d dimensions; expected images [n, channels, height, width]", shape.n);
    const int64_t count = shape.d[0];
    ct_tensor *labels = soft_labels(op, fields[1], count, classes);
    if (!labels) return false;
    if (ct_draw_uniform(draw) >= how->p || ct_numel(fields[0]) == 0) {
        fields[1] = labels;
        return true;
    }
    int64_t *partner = ct__zeroed(op, count, sizeof *partner);
    if (!partner) return false;
    for (int64_t i = 0; i < count; i++) partner[i] = i;
    double keep = ct_draw_beta(draw, how->alpha);
    ct__shuffle(partner, count, draw);
    if (cut) {
        const box b = draw_box(draw, shape.d[2], shape.d[3], 1 - keep);
        keep = 1 - (double)((b.bottom - b.top) * (b.right - b.left)) / (double)(shape.d[2] * shape.d[3]);
        fields[0] = patch_images(fields[0], partner, b);
    } else {
        fields[0] = mean_of_rows(fields[0], partner, (float)keep);
    }
    fields[1] = mean_of_rows(labels, partner, (float)keep);
    ct_free(partner);
    return fields[0] && fields[1];
}

static bool mixup_batch(ct_transform *self, ct_tensor **fields, int n, int64_t classes, ct_draw *draw) {
    return mix("transform_mixup", ct_transform_data(self), fields, n, classes, draw, false);
}
static bool cutmix_batch(ct_transform *self, ct_tensor **fields, int n, int64_t classes, ct_draw *draw) {
    return mix("transform_cutmix", ct_transform_data(self), fields, n, classes, draw, true);
}

static const ct_transform_class mixup_class = {
    sizeof(ct_transform_class), "transform_mixup", sizeof(mixing), NULL, mixup_batch, NULL};
static const ct_transform_class cutmix_class = {
    sizeof(ct_transform_class), "transform_cutmix", sizeof(mixing), NULL, cutmix_batch, NULL};

static ct_transform *new_mixing(const ct_transform_class *type, double alpha, double p) {
    if (!(alpha > 0) || isinf(alpha) || !(p >= 0 && p <= 1)) {
        ct_fail(CT_ERR_VALUE, type->name, "alpha %g and p %g; expected alpha above 0 and p of 0 to 1", alpha, p);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(type);
    if (transform) *(mixing *)ct_transform_data(transform) = (mixing){alpha, p};
    return transform;
}
ct_transform *ct_transform_mixup(double alpha, double p) { return new_mixing(&mixup_class, alpha, p); }
ct_transform *ct_transform_cutmix(double alpha, double p) { return new_mixing(&cutmix_class, alpha, p); }

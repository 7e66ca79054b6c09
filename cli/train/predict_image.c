/* What images show: a class for the whole, or one for each pixel. */
#include "cli/train/predict.h"

#include "cli/train/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The image as the network was trained on images: its size and channels, a batch of one. */
static ct_tensor *fitted(const learner *l, ct_tensor *x) {
    ct_transform *resize = ct_transform_resize(l->item.d[1], l->item.d[2]);
    if (!x || !resize || !ct_transform_apply(resize, &x, 1, false, l->classes, 0, 0, 0)) x = NULL;
    ct_transform_free(resize);
    return ct_unsqueeze(x, 0);
}

/* ---- Classes of whole images ---- */

/* Their probabilities, [classes]. */
static ct_tensor *classify(learner *l, const char *path, int64_t max_pixels) {
    ct_tensor *x = ct_image_load(path, (int)l->item.d[0], .height = l->item.d[1], .width = l->item.d[2],
                                 .max_pixels = max_pixels); /* made smaller as it is decoded */
    x = ct_unsqueeze(ct_div_s(ct_cast(x, CT_F32), 255), 0);
    return ct_contiguous(ct_reshape(ct_softmax(learner_on_host(l, learner_forward(l, x)), 1), CT_DIMS(-1)));
}

static void print_text(const learner *l, const char *path, const float *p, const int64_t *order, int64_t top) {
    printf("%s\n", path);
    for (int64_t i = 0; i < top; i++)
        printf("  %7.2f %%  %s\n", 100 * (double)p[order[i]], learner_class_name(l, order[i]));
}

static void print_json(const learner *l, const char *path, const float *p, const int64_t *order, int64_t top) {
    buffer b = {0};
    buffer_text(&b, "{\"image\":");
    buffer_json(&b, path);
    buffer_text(&b, ",\"classes\":[");
    for (int64_t i = 0; i < top; i++) {
        buffer_add(&b, "%s{\"label\":%lld,\"name\":", i ? "," : "", (long long)order[i]);
        buffer_json(&b, learner_class_name(l, order[i]));
        buffer_text(&b, ",\"probability\":");
        buffer_json_number(&b, (double)p[order[i]], 6);
        buffer_text(&b, "}");
    }
    buffer_text(&b, "]}");
    if (!b.failed) printf("%s\n", b.at);
    buffer_free(&b);
}

bool predict_classes(learner *l, const char *path, const predict_options *options) {
    int64_t top = options->top ? options->top : 3;
    bool right = false;
    ct_no_grad {
        ct_scope {
            ct_tensor *all = classify(l, path, options->max_pixels), *order = NULL;
            if (top > l->classes) top = l->classes;
            ct_tensor *sorted = ct_sort(all, -1, .descending = true, .indices = &order);
            order = ct_contiguous(ct_cast(order, CT_I64));
            right = sorted && order;
            if (right) (options->json ? print_json : print_text)(l, path, ct_data(all), ct_data(order), top);
        }
    }
    return right;
}

/* ---- Classes of pixels ---- */

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Without folders and ending. */
static const char *base_of(const char *path, int *length) {
    const char *name = name_of(path), *dot = strrchr(name, '.');
    *length = dot && dot != name ? (int)(dot - name) : (int)strlen(name);
    return name;
}

/* The files that are written of an image. */
enum { NUMBERS, COLORS, KINDS };
static const char *const kinds[KINDS] = {[NUMBERS] = "mask", [COLORS] = "colors"};

/* FOLDER/NAME-KIND.png, NAME being the base of the image. */
static bool mask_path(const char *image, const char *kind, const predict_options *options, char *path,
                      size_t capacity) {
    int length;
    const char *name = base_of(image, &length);
    const int n = snprintf(path, capacity, "%s%s%.*s-%s.png", options->out ? options->out : "", options->out ? "/" : "",
                           length, name, kind);
    return (n > 0 && (size_t)n < capacity) || ct_fail(CT_ERR_IO, NULL, "%s: the name is too long", image);
}

/* Files are replaced by name, so it is the folder that counts, however it is written. */
static bool same_place(const char *a, const char *b) {
    if (strcmp(name_of(a), name_of(b)) != 0) return false;
    struct stat folders[2];
    for (int i = 0; i < 2; i++) {
        char folder[4096];
        const char *path = i ? b : a;
        const int n = (int)(name_of(path) - path);
        if (snprintf(folder, sizeof folder, "%.*s.", n, path) >= (int)sizeof folder || stat(folder, &folders[i]) != 0)
            return false; /* what cannot be reached is said when it is opened */
    }
    return folders[0].st_dev == folders[1].st_dev && folders[0].st_ino == folders[1].st_ino;
}

bool predict_masks_differ(const char *const *images, int n, const predict_options *options) {
    char path[4096];
    for (int i = 0; i < n; i++) {
        int length, other;
        const char *name = base_of(images[i], &length);
        for (int k = 0; k < i; k++) { /* two of one name in different folders would end in one file */
            if (strncmp(name, base_of(images[k], &other), (size_t)length) != 0 || other != length) continue;
            return ct_fail(CT_ERR_VALUE, NULL, "%s and %s would have the same mask, %.*s-mask.png", images[k],
                           images[i], length, name);
        }
        for (int kind = 0; kind < KINDS; kind++) {
            if (!mask_path(images[i], kinds[kind], options, path, sizeof path)) return false;
            for (int k = 0; k < n; k++)
                if (same_place(path, images[k]))
                    return ct_fail(CT_ERR_VALUE, NULL,
                                   "%s would be replaced by what is said of %s; --out names another folder", images[k],
                                   images[i]);
        }
    }
    return true;
}

/* The class of each pixel of the image as it is in its file: the network's answer, whose pixels are larger or smaller, by the
 * nearest. (height,width), for the caller to free. */
static uint8_t *segment(learner *l, const char *path, int64_t max_pixels, int64_t *height, int64_t *width) {
    uint8_t *mask = NULL;
    ct_scope {
        ct_tensor *x = ct_image_load(path, (int)l->item.d[0], .max_pixels = max_pixels);
        ct_tensor *said = ct_argmax(learner_on_host(l, learner_forward(l, fitted(l, x))), .axis = CT_SET(1));
        said = ct_contiguous(ct_cast(said, CT_U8));
        const uint8_t *from = ct_data(said);
        *height = x ? ct_dim(x, 1) : 0;
        *width = x ? ct_dim(x, 2) : 0;
        const int64_t rows = l->item.d[1], columns = l->item.d[2];
        mask = from ? malloc((size_t)(*height * *width) + 1) : NULL;
        if (from && !mask) ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        for (int64_t i = 0; mask && i < *height; i++)
            for (int64_t j = 0; j < *width; j++)
                mask[i * *width + j] = from[i * rows / *height * columns + j * columns / *width];
    }
    return mask;
}

static bool save_masks(const uint8_t *mask, int64_t height, int64_t width, const char *numbers, const char *colors) {
    picture colored = {0};
    bool right = false;
    ct_scope {
        right = ct_image_save(numbers, ct_from_data(mask, CT_DIMS(height, width), CT_U8)) &&
                picture_of_mask(mask, height, width, &colored);
    }
    right = right && file_write(colors, colored.png, colored.bytes, false);
    picture_free(&colored);
    return right;
}

/* The classes that occur, the largest first; counts is changed. */
static void print_shares(const learner *l, const char *path, const char *numbers, int64_t *counts, int64_t pixels,
                         const predict_options *options) {
    buffer b = {0};
    const int64_t most = options->top ? options->top : l->classes;
    if (options->json) {
        buffer_text(&b, "{\"image\":");
        buffer_json(&b, path);
        buffer_text(&b, ",\"mask\":");
        buffer_json(&b, numbers);
        buffer_text(&b, ",\"classes\":[");
    } else buffer_add(&b, "%s: %s\n", path, numbers);
    for (int64_t i = 0; i < most; i++) {
        int64_t largest = 0;
        for (int64_t c = 1; c < l->classes; c++)
            if (counts[c] > counts[largest]) largest = c;
        if (counts[largest] == 0) break;
        const double share = (double)counts[largest] / (double)pixels;
        if (options->json) {
            buffer_add(&b, "%s{\"label\":%lld,\"name\":", i ? "," : "", (long long)largest);
            buffer_json(&b, learner_class_name(l, largest));
            buffer_add(&b, ",\"share\":%.6g}", share);
        } else buffer_add(&b, "  %7.2f %%  %s\n", 100 * share, learner_class_name(l, largest));
        counts[largest] = 0;
    }
    if (options->json) buffer_text(&b, "]}\n");
    if (!b.failed) printf("%s", b.at);
    buffer_free(&b);
}

bool predict_mask(learner *l, const char *path, const predict_options *options) {
    char numbers[4096], colors[4096];
    int64_t height = 0, width = 0, counts[256] = {0};
    if (l->classes > 256) return ct_fail(CT_ERR_UNSUPPORTED, NULL, "%s: a mask has 256 classes at most", path);
    if (!mask_path(path, kinds[NUMBERS], options, numbers, sizeof numbers) ||
        !mask_path(path, kinds[COLORS], options, colors, sizeof colors))
        return false;
    uint8_t *mask = NULL;
    ct_no_grad {
        mask = segment(l, path, options->max_pixels, &height, &width);
    }
    const bool right = mask && save_masks(mask, height, width, numbers, colors);
    for (int64_t i = 0; right && i < height * width; i++) counts[mask[i]]++;
    if (right) print_shares(l, path, numbers, counts, height * width, options);
    free(mask);
    return right;
}

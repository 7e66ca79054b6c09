/* The classes of an image, the likeliest first. */
#include "cli/train/predict.h"

#include <stdio.h>

/* The probabilities of the classes, [classes]. */
static ct_tensor *classify(learner *l, const char *path) {
    ct_tensor *x = ct_image_load(path, (int)l->item.d[0]);
    if (!x) return NULL;
    ct_transform *resize = ct_transform_resize(l->item.d[1], l->item.d[2]);
    if (!resize || !ct_transform_apply(resize, &x, 1, false, l->classes, 0, 0, 0)) x = NULL;
    ct_transform_free(resize);
    return ct_contiguous(ct_reshape(ct_softmax(learner_forward(l, ct_unsqueeze(x, 0)), 1), CT_DIMS(-1)));
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
        buffer_add(&b, ",\"probability\":%.6g}", (double)p[order[i]]);
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
            ct_tensor *all = classify(l, path), *order = NULL;
            if (top > l->classes) top = l->classes;
            ct_tensor *sorted = ct_sort(all, -1, .descending = true, .indices = &order);
            order = ct_contiguous(ct_cast(order, CT_I64));
            right = sorted && order;
            if (right) (options->json ? print_json : print_text)(l, path, ct_data(all), ct_data(order), top);
        }
    }
    return right;
}

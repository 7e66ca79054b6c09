/* The section of the report that shows what a segmentation says: images, what their pixels are, and what they are taken for. */
#include "cli/train/report.h"

#include "cli/train/picture.h"

#include <string.h>

static void write_picture(buffer *b, const char *what, picture *image) {
    buffer_add(b, "<img alt=\"%s\" title=\"%s\" src=\"data:image/png;base64,", what, what);
    buffer_base64(b, image->png, image->bytes);
    buffer_text(b, "\">");
    picture_free(image);
}

/* Image, truth and prediction, and how many of the pixels are right. */
static bool write_item(buffer *b, trainer *t, int i) {
    const int64_t height = t->learner.item.d[1], width = t->learner.item.d[2], size = height * width;
    const uint8_t *said = t->best.masks + (int64_t)i * size;
    picture image = {0}, truth = {0}, guess = {0};
    int64_t wrong = 0;
    bool right = false;
    ct_scope {
        ct_tensor *x[2] = {NULL, NULL};
        right = ct_dataset_get(t->learner.valid, i, x, 2) && picture_of_item(x[0], &image);
        ct_tensor *mask = right ? ct_contiguous(ct_cast(x[1], CT_U8)) : NULL;
        const uint8_t *is = ct_data(mask);
        right = is && picture_of_mask(is, height, width, &truth) && picture_of_mask(said, height, width, &guess);
        for (int64_t p = 0; right && p < size; p++) wrong += is[p] != said[p];
    }
    if (right) {
        buffer_text(b, "<div class=\"triple\">");
        write_picture(b, "image", &image);
        write_picture(b, "true classes", &truth);
        write_picture(b, "predicted classes", &guess);
        buffer_add(b, "<span>%.1f %% of the pixels are right</span></div>\n", 100 - 100 * (double)wrong / (double)size);
    }
    picture_free(&image);
    picture_free(&truth);
    picture_free(&guess);
    return right;
}

static void write_legend(buffer *b, const learner *l) {
    buffer_text(b, "<p class=\"legend\">");
    for (int64_t i = 0; i < l->classes && i < 24; i++) {
        unsigned char rgb[3];
        picture_class_color(i, rgb);
        buffer_add(b, "<span><i style=\"background:#%02x%02x%02x\"></i>", rgb[0], rgb[1], rgb[2]);
        buffer_html(b, learner_class_name(l, i));
        buffer_text(b, "</span>");
    }
    buffer_text(b, "</p>");
}

bool report_masks(buffer *b, trainer *t) {
    if (t->learner.task != TASK_SEGMENTATION || t->best.mask_count == 0) return true;
    report_section(
        b, "What it sees",
        "The first validation images: each beside what its pixels are, and what the network takes them for.");
    write_legend(b, &t->learner);
    buffer_text(b, "<div class=\"triples\">\n");
    for (int i = 0; i < t->best.mask_count; i++) {
        if (write_item(b, t, i)) continue;
        if (ct_error_code() != CT_ERR_UNSUPPORTED) return false;
        ct_error_clear(); /* no libpng here: the report goes without pictures */
        break;
    }
    buffer_text(b, "</div></section>\n");
    return true;
}

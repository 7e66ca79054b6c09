/* Pictures of tensors, as PNG bytes for the report and for TensorBoard. */
#ifndef COTANGENT_CLI_TRAIN_PICTURE_H
#define COTANGENT_CLI_TRAIN_PICTURE_H

#include "cli/train/learner.h"

typedef struct picture {
    void *png; /* to ct_free */
    size_t bytes;
    int width, height; /* in pixels of the PNG */
} picture;
void picture_free(picture *p);

/* An image [C,H,W] of the data: u8, or f32 from 0 to 1. */
bool picture_of_item(ct_tensor *x, picture *result);
/* The classes of pixels, each in a color of its own; class 0 is dark. */
bool picture_of_mask(const uint8_t *mask /* (height,width) */, int64_t height, int64_t width, picture *result);
/* The color of a class in these. */
void picture_class_color(int64_t label, unsigned char rgb[3]);
/* What the first layer looks for, as a grid: of a convolution, or of a linear layer over an image. True with png NULL where
 * there is no such layer. */
bool picture_of_filters(learner *l, picture *result);

#endif

/* Resizing pictures as their rows come, so that the whole picture need never be in memory. Weighted means along each row,
 * then along the columns. The weights are a triangle about the place of each result; it is one pixel of the input wide where
 * the image grows (bilinear) and wider where it shrinks, so that every pixel counts. */
#ifndef COTANGENT_SUPPORT_RESAMPLE_H
#define COTANGENT_SUPPORT_RESAMPLE_H

#include <cotangent.h>

/* Along one axis. For each result: the first input, and count weights. */
typedef struct ct__weights {
    int64_t most;   /* weights of the largest count */
    int64_t *first; /* (size); never falls from one result to the next, and nor does first + count */
    int64_t *count; /* (size) */
    float *weight;  /* (size, most) */
} ct__weights;

typedef struct ct__resampler {
    int64_t from_height, from_width, height, width;
    ct__weights rows, columns;
    float *line;     /* (width), a row of the input resized along its length */
    int64_t current; /* the first result that the last row had a part in */
} ct__resampler;

/* False with an error raised by `op`; to be ended all the same. Sizes are above 0. */
bool ct__resampler_begin(ct__resampler *r, int64_t from_height, int64_t from_width, int64_t height, int64_t width,
                         const char *op);
/* Adds row y of one channel, from_width numbers, to that channel's result (height, width), which was zeros at first. Rows
 * come in order, from 0. */
void ct__resampler_add(ct__resampler *r, int64_t y, const float *row, float *result);
void ct__resampler_end(ct__resampler *r);

/* count pixels of 0 to 255, every step-th byte, as 0 to 1; and numbers as pixels, rounded. */
void ct__pixels_to_floats(float *to, const uint8_t *from, int64_t count, int64_t step);
void ct__floats_to_pixels(uint8_t *to, const float *from, int64_t count);

#endif

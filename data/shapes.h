/* What the two datasets of drawn shapes share: the shapes, and how much of a pixel one covers. */
#ifndef COTANGENT_DATA_SHAPES_H
#define COTANGENT_DATA_SHAPES_H

#include "data/data.h"

enum {
    CT__CIRCLE,
    CT__RING,
    CT__SQUARE,
    CT__FRAME,
    CT__TRIANGLE,
    CT__CROSS,
    CT__BAR,
    CT__TWO_DOTS,
    CT__CRESCENT,
    CT__STAR,
    CT__SHAPES
};
extern const char *const ct__shape_names[CT__SHAPES];

/* A shape at its place in an image. */
typedef struct ct__shape {
    int kind;
    double cx, cy, radius; /* in pixels */
    double c, s;           /* cosine and sine of its slant, by the radius */
    double squeeze;        /* how much longer it is than wide */
} ct__shape;
/* Draws place and slant at random, for a shape of that radius. */
ct__shape ct__shape_place(int kind, int64_t size, double radius, ct_draw *draw);
/* How much of pixel (i, j) it covers, 0 to 1: its edge is one pixel wide. */
double ct__shape_cover(const ct__shape *shape, int64_t i, int64_t j);
/* A gray of 0 .. 1 with noise of that deviation, as a byte. */
uint8_t ct__shape_gray(double value, double noise, ct_draw *draw);

/* An error unless that many images of that size can be made. */
bool ct__shapes_check(const char *op, int64_t count, int64_t size);
/* A dataset of these images and labels or masks, which it owns, also when this fails; NULL where one of both is. */
ct_dataset *ct__shapes_dataset(uint8_t *pixels, ct_dims shape, void *targets, ct_dims target_shape, ct_dtype dtype,
                               int64_t classes, const char *const *names);

#endif

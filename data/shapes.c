/* Drawn shapes, for a program that has no pictures at hand: ten classes that a small network learns in a minute,
 * with enough noise, slant and overlap of sizes that a linear one does not. Each shape is a formula that is
 * positive inside. */
#include "data/shapes.h"

#include <math.h>

/* A point of the shape's own plane, where it fills about -1 .. 1. */
typedef double (*shape_fn)(double x, double y);

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }
static double length(double x, double y) { return sqrt(x * x + y * y); }
static double circle(double x, double y) { return 1 - length(x, y); }
static double ring(double x, double y) { return 0.25 - fabs(length(x, y) - 0.75); }
static double square(double x, double y) { return 0.85 - most(fabs(x), fabs(y)); }
static double frame(double x, double y) { return 0.22 - fabs(most(fabs(x), fabs(y)) - 0.65); }
static double triangle(double x, double y) { return least(0.6 - y, (y + 1 - 1.8 * fabs(x)) * 0.5); }
static double cross(double x, double y) {
    return most(least(0.28 - fabs(x), 1 - fabs(y)), least(0.28 - fabs(y), 1 - fabs(x)));
}
static double bar(double x, double y) { return least(0.3 - fabs(x), 1 - fabs(y)); }
static double two_dots(double x, double y) { return most(0.42 - length(x, y - 0.55), 0.42 - length(x, y + 0.55)); }
static double crescent(double x, double y) { return least(circle(x, y), length(x - 0.45, y) - 0.75); }
static double star(double x, double y) { /* five points: the radius of the edge goes up and down with the angle */
    const double turn = fmod(atan2(y, x) + 8 * 6.283185307179586, 6.283185307179586 / 5) / (6.283185307179586 / 5);
    return (1 - 0.62 * (1 - fabs(2 * turn - 1)) - length(x, y)) * 0.7;
}

static const shape_fn shapes[CT__SHAPES] = {
    [CT__CIRCLE] = circle,     [CT__RING] = ring,   [CT__SQUARE] = square, [CT__FRAME] = frame,
    [CT__TRIANGLE] = triangle, [CT__CROSS] = cross, [CT__BAR] = bar,       [CT__TWO_DOTS] = two_dots,
    [CT__CRESCENT] = crescent, [CT__STAR] = star};
const char *const ct__shape_names[CT__SHAPES] = {
    [CT__CIRCLE] = "circle",     [CT__RING] = "ring",   [CT__SQUARE] = "square", [CT__FRAME] = "frame",
    [CT__TRIANGLE] = "triangle", [CT__CROSS] = "cross", [CT__BAR] = "bar",       [CT__TWO_DOTS] = "two dots",
    [CT__CRESCENT] = "crescent", [CT__STAR] = "star"};

/* About normal, deviation 1: the sum of two evenly spread numbers, from one draw. */
static double grain(ct_draw *draw) {
    const uint64_t bits = (uint64_t)ct_draw_below(draw, INT64_MAX);
    return ((double)(bits >> 40) * 0x1p-23 + (double)(bits & 0xffffff) * 0x1p-24 - 1) * 2.449489742783178;
}

uint8_t ct__shape_gray(double value, double noise, ct_draw *draw) {
    return (uint8_t)(most(0, least(1, value + noise * grain(draw))) * 255 + 0.5);
}

ct__shape ct__shape_place(int kind, int64_t size, double radius, ct_draw *draw) {
    const double room = (double)size / 2 - radius * 0.8;
    ct__shape shape = {.kind = kind, .radius = radius};
    shape.cx = (double)(size - 1) / 2 + room * (2 * ct_draw_uniform(draw) - 1);
    shape.cy = (double)(size - 1) / 2 + room * (2 * ct_draw_uniform(draw) - 1);
    const double angle = (2 * ct_draw_uniform(draw) - 1) * 0.6;
    shape.squeeze = 0.8 + 0.4 * ct_draw_uniform(draw);
    shape.c = cos(angle) / radius;
    shape.s = sin(angle) / radius;
    return shape;
}

double ct__shape_cover(const ct__shape *p, int64_t i, int64_t j) {
    const double dx = (double)j - p->cx, dy = (double)i - p->cy;
    /* No shape, however it is squeezed, reaches further than 1.6 radii. */
    if (dx * dx + dy * dy >= 2.56 * p->radius * p->radius) return 0;
    /* The formulas fall by about 1 / radius from one pixel to the next. */
    const double depth =
        shapes[p->kind]((p->c * dx + p->s * dy) * p->squeeze, (p->c * dy - p->s * dx) / p->squeeze) * p->radius + 0.5;
    return most(0, least(1, depth));
}

static void paint(uint8_t *pixels, int64_t size, int kind, ct_draw *draw) {
    const double radius = (double)size * (0.24 + 0.16 * ct_draw_uniform(draw));
    const ct__shape shape = ct__shape_place(kind, size, radius, draw);
    const double light = 0.45 + 0.5 * ct_draw_uniform(draw), ground = 0.25 * ct_draw_uniform(draw);
    const double noise = 0.04 + 0.1 * ct_draw_uniform(draw);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++)
            pixels[i * size + j] =
                ct__shape_gray(ground + (light - ground) * ct__shape_cover(&shape, i, j), noise, draw);
}

bool ct__shapes_check(const char *op, int64_t count, int64_t size) {
    if (size < 12 || size > 4096)
        return ct_fail(CT_ERR_VALUE, op, "size is %lld; expected 12 to 4096", (long long)size);
    if (count < 0 || count > INT64_MAX / (size * size))
        return ct_fail(CT_ERR_VALUE, op, "count is %lld; expected 0 to %lld pictures of size %lld", (long long)count,
                       (long long)(INT64_MAX / (size * size)), (long long)size);
    return true;
}

static void free_pixels(void *context, void *data) {
    (void)context;
    ct_free(data);
}

ct_dataset *ct__shapes_dataset(uint8_t *pixels, ct_dims shape, void *targets, ct_dims target_shape, ct_dtype dtype,
                               int64_t classes, const char *const *names) {
    ct_dataset *dataset = NULL;
    if (pixels && targets)
        ct_scope {
            ct_tensor *x = ct_wrap(pixels, shape, CT_U8, .release = free_pixels);
            pixels = NULL;
            ct_tensor *y = ct_wrap(targets, target_shape, dtype, .release = free_pixels);
            targets = NULL;
            if (x && y) dataset = ct_dataset_tensors((ct_tensor *[]){x, y}, 2);
        }
    ct_free(pixels);
    ct_free(targets);
    if (!dataset || ct_dataset_set_classes(dataset, classes, names)) return dataset;
    ct_dataset_free(dataset);
    return NULL;
}

ct_dataset *ct_dataset_shapes(int64_t count, int64_t size, uint64_t seed) {
    const char *me = "dataset_shapes";
    if (!ct__shapes_check(me, count, size)) return NULL;
    uint8_t *pixels = ct__zeroed(me, count, (size_t)(size * size));
    int64_t *labels = pixels ? ct__zeroed(me, count, sizeof *labels) : NULL;
    for (int64_t i = 0; labels && i < count; i++) {
        ct_draw draw = ct__draw_begin(seed, CT__DRAW_SHAPES, 0, i);
        labels[i] = ct_draw_below(&draw, CT__SHAPES);
        paint(pixels + i * size * size, size, (int)labels[i], &draw);
    }
    return ct__shapes_dataset(pixels, CT_DIMS(count, 1, size, size), labels, CT_DIMS(count), CT_I64, CT__SHAPES,
                              ct__shape_names);
}

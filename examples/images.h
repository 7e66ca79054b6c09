/* Images for the examples: Fashion-MNIST from its IDX files or, where those are missing, digits that this file draws. */
#ifndef EXAMPLES_IMAGES_H
#define EXAMPLES_IMAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_SIDE = 28, IMAGE_PIXELS = IMAGE_SIDE * IMAGE_SIDE, IMAGE_CLASSES = 10 };

typedef struct images {
    int64_t n;
    unsigned char *pixels; /* (n,28,28) */
    int64_t *labels;       /* (n) */
} images;

static inline void images_free(images *set) {
    free(set->pixels);
    free(set->labels);
    *set = (images){0, NULL, NULL};
}

static inline bool images_allocate(images *set, int64_t n) {
    set->n = n;
    set->pixels = calloc((size_t)n, IMAGE_PIXELS);
    set->labels = calloc((size_t)n, sizeof *set->labels);
    return set->pixels && set->labels;
}

/* An IDX file: a header of big-endian 32-bit numbers (magic, count, and for images the two sides), then bytes. */
static inline unsigned char *images_read_idx(const char *folder, const char *name, int header, int64_t item,
                                             int64_t *n) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    unsigned char start[16];
    unsigned char *data = NULL;
    if (fread(start, 1, (size_t)header, file) == (size_t)header) {
        *n = (int64_t)start[4] << 24 | start[5] << 16 | start[6] << 8 | start[7];
        data = malloc((size_t)(*n * item) + 1);
        if (data && fread(data, (size_t)item, (size_t)*n, file) != (size_t)*n) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

static inline bool images_load(images *set, const char *folder, const char *part) {
    char name[64];
    int64_t labels = 0;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    set->pixels = images_read_idx(folder, name, 16, IMAGE_PIXELS, &set->n);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    unsigned char *bytes = images_read_idx(folder, name, 8, 1, &labels);
    set->labels = calloc((size_t)labels + 1, sizeof *set->labels);
    const bool whole = set->pixels && bytes && set->labels && labels == set->n;
    if (whole)
        for (int64_t i = 0; i < labels; i++) set->labels[i] = bytes[i];
    free(bytes);
    if (!whole) images_free(set);
    return whole;
}

/* Digits as on a pocket calculator: seven strokes, of random place, slant, strength and noise. */
static inline bool images_draw(images *set, int64_t n, uint64_t seed) {
    static const unsigned char strokes[IMAGE_CLASSES] = {0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f};
    static const int from[7][4] = {{0, 0, 0, 8},  {0, 0, 8, 0},  {0, 8, 8, 8},  {8, 0, 8, 8},
                                   {8, 0, 16, 0}, {8, 8, 16, 8}, {16, 0, 16, 8}};
    if (!images_allocate(set, n)) return false;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
#define IMAGES_RANDOM(bound) \
    (state = state * 6364136223846793005u + 1442695040888963407u, (int)((state >> 33) % (unsigned)(bound)))
    for (int64_t i = 0; i < n; i++) {
        unsigned char *image = set->pixels + i * IMAGE_PIXELS;
        const int digit = IMAGES_RANDOM(IMAGE_CLASSES), top = 3 + IMAGES_RANDOM(6), left = 7 + IMAGES_RANDOM(6);
        const int slant = IMAGES_RANDOM(5) - 2, ink = 90 + IMAGES_RANDOM(130);
        set->labels[i] = digit;
        for (int p = 0; p < IMAGE_PIXELS; p++) image[p] = (unsigned char)IMAGES_RANDOM(60);
        for (int s = 0; s < 7; s++) {
            if (!(strokes[digit] >> s & 1)) continue;
            for (int t = 0; t <= 8; t++) {
                const int y = from[s][0] + (from[s][2] - from[s][0]) * t / 8,
                          x = from[s][1] + (from[s][3] - from[s][1]) * t / 8;
                const int column = left + x + slant * (8 - y) / 8;
                if (column >= 0 && column < IMAGE_SIDE && IMAGES_RANDOM(12)) /* a stroke has gaps */
                    image[(top + y) * IMAGE_SIDE + column] = (unsigned char)ink;
            }
        }
    }
#undef IMAGES_RANDOM
    return true;
}

#endif

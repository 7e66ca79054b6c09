/* What the two halves of the .npy support share: the format in memory (npy_format.c) and the files (npy.c). */
#ifndef COTANGENT_IO_NPY_H
#define COTANGENT_IO_NPY_H

#include <cotangent.h>

/* The tensor that the bytes of a whole .npy file hold. path is only for error texts. */
ct_tensor *ct__npy_parse(const uint8_t *bytes, size_t size, const char *path, bool bf16);

/* The header of x, padded so that the data begins at a multiple of 64 bytes, into text; returns its length, 0 with an
 * error when the dtype has no .npy form. CT__NPY_HEADER_MAX is always room enough. */
#define CT__NPY_HEADER_MAX 512
size_t ct__npy_header(const ct_tensor *x, const char *path, char text[CT__NPY_HEADER_MAX]);

#endif

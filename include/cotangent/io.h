/* Reading and writing tensors in files. Include it beside cotangent.h. */
#ifndef COTANGENT_IO_H
#define COTANGENT_IO_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a .npy file (NumPy's format, versions 1.0 to 3.0) into a CPU tensor. Either byte order, row-major and Fortran
 * order, 0-d and zero-size arrays. f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 c8 become the dtype of the same size; NumPy has
 * no bfloat16, so where bf16 is true, u2 is taken as the raw bits of one. Object arrays (pickles), structured dtypes,
 * more than CT_MAX_DIMS dimensions and files whose length does not fit their header are refused with CT_ERR_IO; the
 * text names the file. Nothing in a file can make this read outside it or ask for more memory than it has bytes. */
CT_API ct_tensor *ct_npy_load(const char *path, bool bf16);

/* Writes x, in row-major order and in this machine's byte order, as version 1.0. bf16 is written as u2, its raw bits;
 * the 8-bit floats have no .npy form and are refused. The file appears whole or not at all: it is written under another
 * name in the same folder and renamed. */
CT_API bool ct_npy_save(const char *path, ct_tensor *x);

#ifdef __cplusplus
}
#endif
#endif

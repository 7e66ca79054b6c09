/* The .npz format in memory, so that a fuzzer can reach everything. */
#ifndef COTANGENT_IO_NPZ_H
#define COTANGENT_IO_NPZ_H

#include <cotangent/io.h>

/* The arrays of the archive in bytes; with only, that one alone. path is for error texts. */
ct_state *ct__npz_parse(const uint8_t *bytes, size_t size, const char *path, const char *only);

#endif

/* Device code that is compiled while a program runs. NVRTC is opened at run time and may be missing. */
#ifndef COTANGENT_BACKENDS_CUDA_NVRTC_H
#define COTANGENT_BACKENDS_CUDA_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

/* A header that texts may include, by the name that they include it by. */
typedef struct ct_nvrtc_header {
    const char *name, *text;
} ct_nvrtc_header;

bool ct_nvrtc_there(void);
/* "nvrtc-13.0"; "" where there is none. It lives as long as the process. */
const char *ct_nvrtc_version(void);
/* Machine code for a compute capability (90) in memory from malloc; NULL: it cannot be compiled, and why says so. Several threads may compile
 * at once. */
void *ct_nvrtc_compile(const char *text, const ct_nvrtc_header *headers, int n_headers, int capability, size_t *bytes,
                       char *why, size_t room);

#endif

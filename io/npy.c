/* .npy files on disk: reading one whole, and writing one so that it appears whole or not at all. */
#include <cotangent/io.h>

#include "io/npy.h"
#include "support/bytes.h"
#include "support/files.h"

#include <stdlib.h>

ct_tensor *ct_npy_load(const char *path, bool bf16) {
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load_raw(path, "npy", 0, &size);
    ct_tensor *x = bytes ? ct__npy_parse(bytes, size, path, bf16) : NULL;
    ct_free(bytes);
    return x;
}

bool ct_npy_save(const char *path, ct_tensor *x) {
    if (!ct_ok()) return false; /* after an error the values are not what the caller meant to keep */
    if (!path) return ct_fail(CT_ERR_NULL, "npy", "argument path is NULL");
    if (!x) return ct_fail(CT_ERR_NULL, "npy", "argument x is NULL (for %s)", path);
    char header[CT__NPY_HEADER_MAX];
    const size_t header_size = ct__npy_header(x, path, header);
    if (header_size == 0) return false;

    const size_t size = (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x));
    const void *data = ct_device_of(x).type == CT_CPU && ct_is_contiguous(x) ? ct_data(x) : NULL;
    void *copy = NULL;
    if (!data && size > 0) {
        copy = ct_malloc(size);
        if (!copy) return ct_fail(CT_ERR_MEMORY, "npy", "%s: out of memory: %zu bytes could not be had", path, size);
        data = copy;
    }
    ct__output output;
    bool done = (!copy || ct_read(x, copy, size)) && ct__output_open(&output, path, false, "npy");
    if (done)
        done = ct__output_close(&output, ct__output_write(&output, header, header_size) &&
                                             ct__output_write(&output, data, size));
    ct_free(copy);
    return done;
}

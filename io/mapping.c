/* A file in memory that the tensors in it share: mapped where that can be, else read. */
#include "io/safetensors.h"
#include "support/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ct__mapping {
    atomic_int holders;
    uint8_t *bytes;
    size_t size;
    bool mapped;
};

static ct__mapping *make(uint8_t *bytes, size_t size, bool mapped, const char *op) {
    ct__mapping *mapping = ct_malloc(sizeof *mapping);
    if (!mapping) {
        ct_fail(CT_ERR_MEMORY, op, "out of memory");
        if (mapped) munmap(bytes, size);
        else ct_free(bytes);
        return NULL;
    }
    *mapping = (ct__mapping){.bytes = bytes, .size = size, .mapped = mapped};
    atomic_init(&mapping->holders, 1);
    return mapping;
}

ct__mapping *ct__mapping_of(uint8_t *bytes, size_t size, const char *op) { return make(bytes, size, false, op); }

ct__mapping *ct__mapping_open(const char *path, const char *op) {
    if (!path) {
        ct_fail(CT_ERR_NULL, op, "argument path is NULL");
        return NULL;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        ct_fail(CT_ERR_IO, op, "%s: cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    struct stat status;
    void *bytes = MAP_FAILED;
    size_t size = 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        size = (size_t)status.st_size;
        /* private: a tensor that is changed gets pages of its own. Those are only asked for when that happens. */
        bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    }
    const bool mapped = bytes != MAP_FAILED;
    if (!mapped) bytes = ct__bytes_read(fd, path, op, 0, &size);
    close(fd);
    return bytes ? make(bytes, size, mapped, op) : NULL;
}

void ct__mapping_release(ct__mapping *mapping) {
    if (!mapping || atomic_fetch_sub(&mapping->holders, 1) > 1) return;
    if (mapping->mapped) munmap(mapping->bytes, mapping->size);
    else ct_free(mapping->bytes);
    ct_free(mapping);
}

const uint8_t *ct__mapping_bytes(const ct__mapping *mapping, size_t *size) {
    *size = mapping->size;
    return mapping->bytes;
}

static void release_tensor(void *context, void *data) {
    (void)data;
    ct__mapping_release(context);
}

ct_tensor *ct__mapping_tensor(ct__mapping *mapping, size_t at, ct_dims shape, ct_dtype dtype, size_t bytes) {
    uint8_t *data = mapping->bytes + (bytes ? at : 0); /* an empty tensor may lie behind the end */
    if (dtype == CT_BOOL) /* other bytes than 0 and 1 would be neither true nor false to the kernels */
        for (size_t i = 0; i < bytes; i++)
            if (data[i] > 1) data[i] = 1;
    if ((uintptr_t)data % ct_dtype_size(dtype) != 0) {
        ct_tensor *x = ct_empty(shape, .dtype = dtype, .device = {CT_CPU, 0});
        return x && ct_write(x, data, bytes) ? x : NULL;
    }
    atomic_fetch_add(&mapping->holders, 1);
    return ct_wrap(data, shape, dtype, .release = release_tensor, .context = mapping);
}

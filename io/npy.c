/* .npy files on disk: reading one whole, and writing one so that it appears whole or not at all. */
#include <cotangent/io.h>

#include "io/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool io_failed(const char *path, const char *what) {
    return ct_fail(CT_ERR_IO, "npy", "%s: %s: %s", path, what, strerror(errno));
}

/* ---- Reading ---- */

/* Until the end of the file or capacity; the bytes read, or -1 with errno. */
static ssize_t read_up_to(int fd, uint8_t *bytes, size_t capacity) {
    size_t have = 0;
    while (have < capacity) {
        const ssize_t got = read(fd, bytes + have, capacity - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* The whole of fd in memory for the caller to free. A pipe has no length, so the block grows as the bytes come. */
static uint8_t *read_whole(int fd, const char *path, size_t *size) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        io_failed(path, "cannot be read");
        return NULL;
    }
    if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        io_failed(path, "cannot be read");
        return NULL;
    }
    /* one byte more than expected, so that the end is seen without growing */
    size_t capacity = S_ISREG(status.st_mode) ? (size_t)status.st_size + 1 : 65536;
    uint8_t *bytes = NULL;
    size_t have = 0;
    for (;;) {
        uint8_t *more = realloc(bytes, capacity);
        if (!more) {
            ct_fail(CT_ERR_MEMORY, "npy", "%s: out of memory: %zu bytes could not be had", path, capacity);
            break;
        }
        bytes = more;
        const ssize_t got = read_up_to(fd, bytes + have, capacity - have);
        if (got < 0) {
            io_failed(path, "cannot be read");
            break;
        }
        have += (size_t)got;
        if (have < capacity) {
            *size = have;
            return bytes;
        }
        capacity *= 2;
    }
    free(bytes);
    return NULL;
}

ct_tensor *ct_npy_load(const char *path, bool bf16) {
    if (!path) {
        ct_fail(CT_ERR_NULL, "npy", "argument path is NULL");
        return NULL;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        io_failed(path, "cannot be opened");
        return NULL;
    }
    size_t size = 0;
    uint8_t *bytes = read_whole(fd, path, &size);
    close(fd);
    ct_tensor *x = bytes ? ct__npy_parse(bytes, size, path, bf16) : NULL;
    free(bytes);
    return x;
}

/* ---- Writing ---- */

static bool write_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        const ssize_t put = write(fd, at, size);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        at += put;
        size -= (size_t)put;
    }
    return true;
}

/* Creates `path.tmp-PID-N`, a name that no one else uses. */
static int create_beside(const char *path, char *name, size_t capacity) {
    for (int attempt = 0; attempt < 1000; attempt++) {
        if ((size_t)snprintf(name, capacity, "%s.tmp-%ld-%d", path, (long)getpid(), attempt) >= capacity) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* Replaces the file at path, which is a regular one or not there yet. */
static bool write_file(const char *path, const char *header, size_t header_size, const void *data, size_t size) {
    const size_t capacity = strlen(path) + 48;
    char *name = malloc(capacity);
    if (!name) return ct_fail(CT_ERR_MEMORY, "npy", "%s: out of memory", path);
    const int fd = create_beside(path, name, capacity);
    bool done = fd >= 0;
    if (!done) {
        io_failed(path, "cannot be created");
    } else {
        done = write_all(fd, header, header_size) && write_all(fd, data, size);
        if (close(fd) != 0) done = false;
        if (done && rename(name, path) != 0) done = false;
        if (!done) {
            io_failed(path, "cannot be written");
            unlink(name);
        }
    }
    free(name);
    return done;
}

/* A device or a pipe cannot be replaced: it gets the bytes as they come. */
static bool write_stream(const char *path, const char *header, size_t header_size, const void *data, size_t size) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return io_failed(path, "cannot be opened");
    bool done = write_all(fd, header, header_size) && write_all(fd, data, size);
    if (close(fd) != 0) done = false;
    return done || io_failed(path, "cannot be written");
}

static bool write_any(const char *path, const char *header, size_t header_size, const void *data, size_t size) {
    struct stat status;
    if (stat(path, &status) != 0) return write_file(path, header, header_size, data, size);
    if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return io_failed(path, "cannot be written");
    }
    if (!S_ISREG(status.st_mode)) return write_stream(path, header, header_size, data, size);
    /* A link stays a link: what it points to is replaced. */
    char *target = realpath(path, NULL);
    if (!target) return io_failed(path, "cannot be written");
    const bool done = write_file(target, header, header_size, data, size);
    free(target);
    return done;
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
        copy = malloc(size);
        if (!copy) return ct_fail(CT_ERR_MEMORY, "npy", "%s: out of memory: %zu bytes could not be had", path, size);
        data = copy;
    }
    const bool done = (!copy || ct_read(x, copy, size)) && write_any(path, header, header_size, data, size);
    free(copy);
    return done;
}

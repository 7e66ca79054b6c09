/* Whole files in memory, unpacked where they are gzip. What a file says of its size is never believed. */
#include "support/bytes.h"

#include "support/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t *failed(const char *op, const char *path, const char *what) {
    ct_fail(CT_ERR_IO, op, "%s: %s: %s", path, what, strerror(errno));
    return NULL;
}

static bool no_memory(const char *op, const char *path, size_t bytes) {
    return ct_fail(CT_ERR_MEMORY, op, "%s: out of memory: %zu bytes could not be had", path, bytes);
}

static bool too_long(const char *op, const char *path, size_t limit) {
    return ct_fail(CT_ERR_IO, op, "%s: has more than the %zu bytes that are allowed", path, limit);
}

/* ---- As it lies on the disk ---- */

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

/* A pipe has no length, so the block grows as the bytes come. It ends when it is not filled. */
static uint8_t *read_growing(int fd, size_t capacity, const char *path, const char *op, size_t limit, size_t *size) {
    uint8_t *bytes = NULL;
    size_t have = 0;
    for (;;) {
        uint8_t *more = ct_realloc(bytes, capacity);
        if (!more) {
            no_memory(op, path, capacity);
            break;
        }
        bytes = more;
        const ssize_t got = read_up_to(fd, bytes + have, capacity - have);
        if (got < 0) {
            failed(op, path, "cannot be read");
            break;
        }
        have += (size_t)got;
        if (have > limit) {
            too_long(op, path, limit);
            break;
        }
        if (have < capacity) {
            bytes[have] = 0;
            *size = have;
            return bytes;
        }
        capacity *= 2;
    }
    ct_free(bytes);
    return NULL;
}

uint8_t *ct__bytes_read(int fd, const char *path, const char *op, size_t limit, size_t *size) {
    *size = 0;
    if (limit == 0 || limit > CT__BYTES_LIMIT) limit = CT__BYTES_LIMIT;
    uint8_t *bytes = NULL;
    struct stat status;
    if (fstat(fd, &status) != 0) {
        failed(op, path, "cannot be read");
    } else if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        failed(op, path, "cannot be read");
    } else if (S_ISREG(status.st_mode) && (uint64_t)status.st_size > limit) {
        too_long(op, path, limit);
    } else {
        /* one byte more than expected, so that the end is seen without growing */
        const size_t capacity = S_ISREG(status.st_mode) ? (size_t)status.st_size + 1 : 65536;
        bytes = read_growing(fd, capacity, path, op, limit, size);
    }
    return bytes;
}

uint8_t *ct__bytes_load_raw(const char *path, const char *op, size_t limit, size_t *size) {
    *size = 0;
    if (!path) {
        ct_fail(CT_ERR_NULL, op, "argument path is NULL");
        return NULL;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(op, path, "cannot be opened");
    uint8_t *bytes = ct__bytes_read(fd, path, op, limit, size);
    close(fd);
    return bytes;
}

/* ---- gzip ---- */

bool ct__bytes_is_gzip(const uint8_t *bytes, size_t size) { return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

#ifdef CT_HAVE_ZLIB
#include <zlib.h>

#define ZLIB(X) X(inflateInit2_) X(inflate) X(inflateReset) X(inflateEnd)
FOREIGN(zlib, ZLIB, "zlib", "zlib1g", "libz.so.1", "libz.so", "libz.dylib")

enum {
    GZIP_WINDOW = 15 + 16, /* the largest window, and the gzip wrapping alone */
    MOST_RATIO = 1032,     /* deflate cannot pack better than this */
};

typedef struct unpacking {
    const char *path, *op;
    size_t limit;
    uint8_t *bytes;
    size_t have, capacity; /* capacity leaves the zero at the end out */
} unpacking;

static bool grow(unpacking *u) {
    if (u->have == u->limit) return too_long(u->op, u->path, u->limit);
    size_t capacity = u->capacity ? u->capacity * 2 : 4096;
    if (capacity > u->limit) capacity = u->limit;
    uint8_t *more = ct_realloc(u->bytes, capacity + 1);
    if (!more) return no_memory(u->op, u->path, capacity + 1);
    u->bytes = more;
    u->capacity = capacity;
    return true;
}

/* One call of inflate into what room there is; its status. */
static int step(unpacking *u, z_stream *stream) {
    const size_t room = u->capacity - u->have;
    const uInt most = room > (1u << 30) ? 1u << 30 : (uInt)room;
    stream->next_out = u->bytes + u->have;
    stream->avail_out = most;
    const int status = zlib.inflate(stream, Z_NO_FLUSH);
    u->have += most - stream->avail_out;
    return status;
}

static bool damaged(const unpacking *u, const z_stream *stream) {
    return ct_fail(CT_ERR_IO, u->op, "%s: the gzip data is damaged: %s", u->path,
                   stream->msg ? stream->msg : "it ends too early");
}

static bool unpack(unpacking *u, z_stream *stream, const uint8_t *packed, size_t packed_size) {
    size_t fed = 0;
    for (;;) {
        if (stream->avail_in == 0 && fed < packed_size) {
            const size_t rest = packed_size - fed;
            stream->avail_in = rest > (1u << 30) ? 1u << 30 : (uInt)rest;
            stream->next_in = (z_const Bytef *)packed + fed;
            fed += stream->avail_in;
        }
        /* A full block and more to come: grow. A stream may still have to read its trailer, which needs no room but one
         * byte of it, or inflate says that it has nothing to do. */
        if (u->have == u->capacity && u->have < u->limit && !grow(u)) return false;
        uint8_t none;
        int status;
        if (u->have == u->capacity) { /* at the limit: only the end may follow */
            stream->next_out = &none;
            stream->avail_out = 1;
            status = zlib.inflate(stream, Z_NO_FLUSH);
            if (stream->avail_out == 0) return too_long(u->op, u->path, u->limit);
        } else {
            status = step(u, stream);
        }
        if (status == Z_STREAM_END) {
            const uint8_t *next = packed + fed - stream->avail_in;
            const size_t rest = packed_size - (size_t)(next - packed);
            if (!ct__bytes_is_gzip(next, rest)) { /* zeros behind are padding, as gzip itself takes them */
                for (size_t i = 0; i < rest; i++)
                    if (next[i]) return ct_fail(CT_ERR_IO, u->op, "%s: garbage follows the gzip data", u->path);
                return true;
            }
            if (zlib.inflateReset(stream) != Z_OK) return damaged(u, stream);
            continue;
        }
        if (status == Z_MEM_ERROR) return no_memory(u->op, u->path, 1u << 15);
        if (status != Z_OK && !(status == Z_BUF_ERROR && (stream->avail_in || fed < packed_size)))
            return damaged(u, stream);
    }
}

uint8_t *ct__bytes_gunzip(const uint8_t *packed, size_t packed_size, const char *path, const char *op, size_t limit,
                          size_t *size) {
    *size = 0;
    if (!foreign_zlib(op)) return NULL;
    unpacking u = {.path = path, .op = op, .limit = limit && limit < CT__BYTES_LIMIT ? limit : CT__BYTES_LIMIT};
    if (packed_size >=
        18) { /* the last four bytes tell the size modulo 2^32: where that can be, it saves the growing */
        const uint8_t *end = packed + packed_size - 4;
        const size_t told = (size_t)end[0] | (size_t)end[1] << 8 | (size_t)end[2] << 16 | (size_t)end[3] << 24;
        if (told > 0 && told / MOST_RATIO <= packed_size && told <= u.limit) {
            u.bytes = ct_malloc(told + 1);
            if (u.bytes) u.capacity = told;
        }
    }
    z_stream stream = {0};
    bool good = zlib.inflateInit2_(&stream, GZIP_WINDOW, ZLIB_VERSION, (int)sizeof stream) == Z_OK;
    if (!good) {
        no_memory(op, path, sizeof stream);
    } else {
        good = unpack(&u, &stream, packed, packed_size);
        zlib.inflateEnd(&stream);
    }
    if (good && !u.bytes) good = grow(&u); /* nothing packed: still a block to give */
    if (!good) {
        ct_free(u.bytes);
        return NULL;
    }
    u.bytes[u.have] = 0;
    *size = u.have;
    return u.bytes;
}
#else
uint8_t *ct__bytes_gunzip(const uint8_t *packed, size_t packed_size, const char *path, const char *op, size_t limit,
                          size_t *size) {
    (void)packed, (void)packed_size, (void)path, (void)limit;
    *size = 0;
    ct__foreign_absent(op, "zlib", "zlib1g-dev");
    return NULL;
}
#endif

uint8_t *ct__bytes_load(const char *path, const char *op, size_t limit, size_t *size) {
    size_t raw_size = 0;
    uint8_t *raw = ct__bytes_load_raw(path, op, limit, &raw_size);
    if (!raw || !ct__bytes_is_gzip(raw, raw_size)) {
        *size = raw_size;
        return raw;
    }
    uint8_t *bytes = ct__bytes_gunzip(raw, raw_size, path, op, limit, size);
    ct_free(raw);
    return bytes;
}

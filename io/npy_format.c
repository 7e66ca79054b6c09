/* The .npy format in memory: header text to dtype and shape and back, byte order, Fortran order. No files here, so
 * that a fuzzer can reach everything. The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "io/npy.h"

#include <cotangent/op.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NumPy itself writes at most a few hundred bytes for an array without fields; this leaves ample room. */
enum { HEADER_TEXT_MAX = 65536 };

typedef struct npy_info {
    ct_dtype dtype;
    bool swap; /* the data is in the other byte order */
    bool fortran_order;
    ct_dims shape;
} npy_info;

/* ---- dtypes ---- */

typedef struct npy_type {
    const char *code;
    ct_dtype dtype;
} npy_type;

static const npy_type types[] = {
    {"f4", CT_F32}, {"f8", CT_F64}, {"f2", CT_F16},       {"i1", CT_I8},   {"i2", CT_I16},
    {"i4", CT_I32}, {"i8", CT_I64}, {"u1", CT_U8},        {"b1", CT_BOOL}, {"u2", CT_U16},
    {"u4", CT_U32}, {"u8", CT_U64}, {"c8", CT_COMPLEX64},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

static bool host_is_big_endian(void) {
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 0;
}

/* ---- The header's text: a Python dict literal, of which only what NumPy writes is understood ---- */

typedef struct cursor {
    const char *at, *end;
    const char *path;
} cursor;

static bool malformed(const cursor *c, const char *what) {
    return ct_fail(CT_ERR_IO, "npy", "%s: malformed header: %s", c->path, what);
}

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool accept(cursor *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

/* A quoted string without escapes into text. */
static bool read_string(cursor *c, char *text, size_t capacity, const char *what) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return malformed(c, what);
    const char quote = *c->at++;
    const char *start = c->at;
    while (c->at < c->end && *c->at != quote && *c->at != '\\') c->at++;
    const size_t length = (size_t)(c->at - start);
    if (c->at == c->end || *c->at != quote) return malformed(c, "a string does not end");
    if (length >= capacity) return malformed(c, "a string is too long");
    memcpy(text, start, length);
    text[length] = 0;
    c->at++;
    return true;
}

static bool read_word(cursor *c, const char *word) {
    skip_space(c);
    const size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

static bool read_dimension(cursor *c, int64_t *value) {
    skip_space(c);
    if (c->at < c->end && *c->at == '-') return malformed(c, "a dimension is negative");
    if (c->at == c->end || *c->at < '0' || *c->at > '9') return malformed(c, "a dimension is not a number");
    *value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        const int digit = *c->at - '0';
        if (*value > (INT64_MAX - digit) / 10) return malformed(c, "a dimension is too large");
        *value = *value * 10 + digit;
    }
    if (c->at < c->end && *c->at == 'L') c->at++; /* as Python 2 wrote long integers */
    return true;
}

static bool read_shape(cursor *c, ct_dims *shape) {
    if (!accept(c, '(')) return malformed(c, "the shape is not a tuple");
    shape->n = 0;
    while (!accept(c, ')')) {
        int64_t value = 0;
        if (!read_dimension(c, &value)) return false;
        if (shape->n == CT_MAX_DIMS)
            return ct_fail(CT_ERR_IO, "npy", "%s: more than %d dimensions", c->path, CT_MAX_DIMS);
        shape->d[shape->n++] = value;
        if (accept(c, ',')) continue;
        if (!accept(c, ')')) return malformed(c, "the shape does not end");
        if (shape->n == 1) return malformed(c, "the shape is not a tuple"); /* (3) is a number in Python */
        break;
    }
    return true;
}

static bool read_descr(cursor *c, bool bf16, npy_info *info) {
    skip_space(c);
    if (c->at < c->end && *c->at == '[')
        return ct_fail(CT_ERR_IO, "npy", "%s: structured dtypes are not supported", c->path);
    char descr[64];
    if (!read_string(c, descr, sizeof descr, "descr is not a string")) return false;

    const char *code = descr;
    char order = '|';
    if (*code == '<' || *code == '>' || *code == '|' || *code == '=') order = *code++;
    if (*code == 'O')
        return ct_fail(CT_ERR_IO, "npy", "%s: holds Python objects (a pickle), which are never loaded", c->path);
    if (strcmp(code, "?") == 0) code = "b1";
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(code, types[i].code) != 0) continue;
        const bool one_byte = code[1] == '1';
        if (order == '|' && !one_byte)
            return ct_fail(CT_ERR_IO, "npy", "%s: dtype '%s' lacks its byte order", c->path, descr);
        info->dtype = bf16 && types[i].dtype == CT_U16 ? CT_BF16 : types[i].dtype;
        info->swap = !one_byte && order == (host_is_big_endian() ? '<' : '>');
        return true;
    }
    return ct_fail(CT_ERR_IO, "npy", "%s: dtype '%s' is not supported", c->path, descr);
}

static bool read_dict(cursor *c, bool bf16, npy_info *info) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    if (!accept(c, '{')) return malformed(c, "it does not begin with {");
    while (!accept(c, '}')) {
        char key[32];
        unsigned this_key;
        if (!read_string(c, key, sizeof key, "a key is not a string")) return false;
        if (strcmp(key, "descr") == 0) this_key = DESCR;
        else if (strcmp(key, "fortran_order") == 0) this_key = ORDER;
        else if (strcmp(key, "shape") == 0) this_key = SHAPE;
        else return malformed(c, "a key is none of descr, fortran_order, shape");
        if (seen & this_key) return malformed(c, "a key comes twice");
        seen |= this_key;
        if (!accept(c, ':')) return malformed(c, "a key has no value");

        if (this_key == DESCR && !read_descr(c, bf16, info)) return false;
        if (this_key == SHAPE && !read_shape(c, &info->shape)) return false;
        if (this_key == ORDER) {
            info->fortran_order = read_word(c, "True");
            if (!info->fortran_order && !read_word(c, "False"))
                return malformed(c, "fortran_order is neither True nor False");
        }
        if (accept(c, ',')) continue;
        if (!accept(c, '}')) return malformed(c, "it does not end with }");
        break;
    }
    if (seen != (DESCR | ORDER | SHAPE)) return malformed(c, "descr, fortran_order or shape is missing");
    skip_space(c);
    if (c->at != c->end) return malformed(c, "text after }");
    return true;
}

/* Magic, version and length, then the dict. On success *data is where the elements begin. */
static bool read_header(const uint8_t *bytes, size_t size, const char *path, bool bf16, npy_info *info, size_t *data) {
    if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        if (size >= 4 && memcmp(bytes, "PK\x03\x04", 4) == 0)
            return ct_fail(CT_ERR_IO, "npy", "%s: is a .npz archive, not a .npy file", path);
        return ct_fail(CT_ERR_IO, "npy", "%s: is not a .npy file", path);
    }
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return ct_fail(CT_ERR_IO, "npy", "%s: format version %d.%d is not 1.0, 2.0 or 3.0", path, major, minor);
    const size_t start = major == 1 ? 10 : 12;
    if (size < start) return ct_fail(CT_ERR_IO, "npy", "%s: ends inside its header", path);
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > HEADER_TEXT_MAX)
        return ct_fail(CT_ERR_IO, "npy", "%s: a header of %zu bytes is longer than %d", path, length, HEADER_TEXT_MAX);
    if (length > size - start) return ct_fail(CT_ERR_IO, "npy", "%s: ends inside its header", path);

    cursor c = {(const char *)bytes + start, (const char *)bytes + start + length, path};
    *data = start + length;
    return read_dict(&c, bf16, info);
}

/* Bytes of the elements; an error when they are more than memory could have. Zero dimensions do not hide an overflow
 * of the others, since the strides are made of those. */
static bool data_bytes(const npy_info *info, const char *path, size_t *bytes) {
    uint64_t product = ct_dtype_size(info->dtype);
    bool empty = false;
    for (int i = 0; i < info->shape.n; i++) {
        const uint64_t dim = (uint64_t)info->shape.d[i];
        if (dim == 0) {
            empty = true;
            continue;
        }
        if (product > (uint64_t)INT64_MAX / dim)
            return ct_fail(CT_ERR_IO, "npy", "%s: the shape has more elements than can be counted", path);
        product *= dim;
    }
    *bytes = empty ? 0 : (size_t)product;
    return true;
}

/* ---- The elements ---- */

/* Row-major out of column-major in. Walks out in order and keeps the position in `in` up to date. */
static void from_fortran_order(uint8_t *out, const uint8_t *in, const ct_dims *shape, size_t item) {
    int64_t index[CT_MAX_DIMS] = {0};
    int64_t stride[CT_MAX_DIMS];
    int64_t count = 1;
    for (int i = 0; i < shape->n; i++) {
        stride[i] = count * (int64_t)item;
        count *= shape->d[i];
    }
    int64_t from = 0;
    for (int64_t i = 0; i < count; i++) {
        memcpy(out + (size_t)i * item, in + from, item);
        for (int axis = shape->n - 1; axis >= 0; axis--) {
            from += stride[axis];
            if (++index[axis] < shape->d[axis]) break;
            from -= stride[axis] * shape->d[axis];
            index[axis] = 0;
        }
    }
}

static void swap_bytes(uint8_t *data, size_t bytes, size_t unit) {
    for (size_t at = 0; at < bytes; at += unit)
        for (size_t i = 0; i < unit / 2; i++) {
            const uint8_t low = data[at + i];
            data[at + i] = data[at + unit - 1 - i];
            data[at + unit - 1 - i] = low;
        }
}

ct_tensor *ct__npy_parse(const uint8_t *bytes, size_t size, const char *path, bool bf16) {
    npy_info info = {.dtype = CT_F32};
    size_t at = 0, needed = 0;
    if (!read_header(bytes, size, path, bf16, &info, &at) || !data_bytes(&info, path, &needed)) return NULL;
    if (needed != size - at) {
        ct_fail(CT_ERR_IO, "npy", "%s: %s%s needs %zu bytes of data, the file has %zu", path, ct_dtype_name(info.dtype),
                ct_dims_text(info.shape), needed, size - at);
        return NULL;
    }
    const bool reorder = info.fortran_order && info.shape.n > 1;
    if (needed == 0 || !(reorder || info.swap || info.dtype == CT_BOOL))
        return ct_from_data(bytes + at, info.shape, info.dtype);

    uint8_t *copy = ct_malloc(needed);
    if (!copy) {
        ct_fail(CT_ERR_MEMORY, "npy", "%s: out of memory: %zu bytes could not be had", path, needed);
        return NULL;
    }
    const size_t item = ct_dtype_size(info.dtype);
    if (reorder) from_fortran_order(copy, bytes + at, &info.shape, item);
    else memcpy(copy, bytes + at, needed);
    if (info.swap) swap_bytes(copy, needed, info.dtype == CT_COMPLEX64 ? 4 : item);
    if (info.dtype == CT_BOOL) /* other bytes than 0 and 1 would be neither true nor false to the kernels */
        for (size_t i = 0; i < needed; i++) copy[i] = copy[i] != 0;
    ct_tensor *x = ct_from_data(copy, info.shape, info.dtype);
    ct_free(copy);
    return x;
}

size_t ct__npy_header(const ct_tensor *x, const char *path, char text[CT__NPY_HEADER_MAX]) {
    const ct_dtype dtype = ct_dtype_of(x) == CT_BF16 ? CT_U16 : ct_dtype_of(x);
    const char *code = NULL;
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype) code = types[i].code;
    if (!code) {
        ct_fail(CT_ERR_IO, "npy", "%s: %s has no form in .npy files; cast it first", path, ct_dtype_name(dtype));
        return 0;
    }
    const char order = code[1] == '1' ? '|' : host_is_big_endian() ? '>' : '<';
    const ct_dims shape = ct_shape(x);
    char *dict = text + 10;
    const size_t room = CT__NPY_HEADER_MAX - 10;
    size_t used = (size_t)snprintf(dict, room, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, code);
    for (int i = 0; i < shape.n; i++) /* 8 dimensions of at most 19 digits fit */
        used += (size_t)snprintf(dict + used, room - used, "%" PRId64 "%s", shape.d[i],
                                 shape.n == 1      ? ","
                                 : i + 1 < shape.n ? ", "
                                                   : "");
    used += (size_t)snprintf(dict + used, room - used, "), }");

    const size_t total = (10 + used + 1 + 63) / 64 * 64;
    memset(dict + used, ' ', total - 10 - used - 1);
    text[total - 1] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)((total - 10) & 0xff);
    text[9] = (char)((total - 10) >> 8);
    return total;
}

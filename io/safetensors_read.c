/* Reading safetensors: the header by jansson, and every number in it checked against the file before it is used. */
#include "io/safetensors.h"
#include "support/checksum.h"
#include "support/foreign.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ct__checksum ct__safetensors_verify(const uint8_t *bytes, size_t size) {
    static const char zeros[] = "0000000000000000", digits[] = "0123456789abcdef";
    if (size < CT__CHECKSUM_AT + CT__CHECKSUM_DIGITS ||
        memcmp(bytes + 8, CT__CHECKSUM_BEFORE, sizeof CT__CHECKSUM_BEFORE - 1) != 0)
        return CT__CHECKSUM_NONE;
    uint64_t told = 0;
    for (size_t i = 0; i < CT__CHECKSUM_DIGITS; i++) {
        const uint8_t c = bytes[CT__CHECKSUM_AT + i];
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit) return CT__CHECKSUM_WRONG;
        told = told << 4 | (uint64_t)(digit - digits);
    }
    const size_t after = CT__CHECKSUM_AT + CT__CHECKSUM_DIGITS;
    uint64_t crc = ct__crc64(0, bytes, CT__CHECKSUM_AT);
    crc = ct__crc64(crc, zeros, CT__CHECKSUM_DIGITS);
    crc = ct__crc64(crc, bytes + after, size - after);
    return crc == told ? CT__CHECKSUM_RIGHT : CT__CHECKSUM_WRONG;
}

#ifdef CT_HAVE_JANSSON
#include <jansson.h>

#define JANSSON(X)           \
    X(json_loadb)            \
    X(json_delete)           \
    X(json_object_size)      \
    X(json_object_get)       \
    X(json_object_iter)      \
    X(json_object_iter_next) \
    X(json_object_iter_key)  \
    X(json_object_iter_value) X(json_array_size) X(json_array_get) X(json_integer_value) X(json_string_value)
FOREIGN(jansson, JANSSON, "jansson", "libjansson4", "libjansson.so.4", "libjansson.so")

enum {
    HEADER_MAX = 100000000, /* the format's own limit */
    NESTING_MAX = 8,        /* three are used; more would only serve to exhaust the parser's stack */
};

typedef struct entry {
    const char *name; /* the header's */
    ct_dtype dtype;
    ct_dims shape;
    uint64_t begin, end;
    size_t place; /* in the header, to sort what begins and ends alike */
} entry;

typedef struct reading {
    const char *path, *op;
    ct__mapping *mapping;
    entry *entries;
    size_t count;
    ct_state *state;
} reading;

static bool refused(const reading *r, const char *what) {
    return ct_fail(CT_ERR_IO, r->op, "%s: malformed header: %s", r->path, what);
}

static bool refused_tensor(const reading *r, const char *name, const char *what) {
    return ct_fail(CT_ERR_IO, r->op, "%s: tensor \"%.200s\": %s", r->path, name, what);
}

static bool too_deep(const uint8_t *text, size_t length) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        const uint8_t c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > NESTING_MAX) return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

/* ---- One tensor's entry ---- */

static bool read_dtype(const reading *r, entry *e, const json_t *value) {
    static const struct {
        const char *name;
        ct_dtype dtype;
    } names[] = {
#define DTYPE(name, dtype) {#name, dtype},
#include "io/safetensors.def"
#undef DTYPE
    };
    const char *name = value && json_is_string(value) ? jansson.json_string_value(value) : NULL;
    if (!name) return refused_tensor(r, e->name, "dtype is not a text");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        e->dtype = names[i].dtype;
        return true;
    }
    return ct_fail(CT_ERR_IO, r->op, "%s: tensor \"%.200s\": dtype %.40s is not supported", r->path, e->name, name);
}

static bool read_number(const json_t *value, uint64_t *number) {
    if (!value || !json_is_integer(value)) return false;
    const json_int_t got = jansson.json_integer_value(value);
    if (got < 0) return false;
    *number = (uint64_t)got;
    return true;
}

static bool read_shape(const reading *r, entry *e, const json_t *value) {
    if (!value || !json_is_array(value)) return refused_tensor(r, e->name, "shape is not a list");
    const size_t n = jansson.json_array_size(value);
    if (n > CT_MAX_DIMS)
        return ct_fail(CT_ERR_IO, r->op, "%s: tensor \"%.200s\": %zu dimensions are more than %d", r->path, e->name, n,
                       CT_MAX_DIMS);
    e->shape.n = (int)n;
    for (size_t i = 0; i < n; i++) {
        uint64_t dim;
        if (!read_number(jansson.json_array_get(value, i), &dim))
            return refused_tensor(r, e->name, "a dimension is no integer from 0 up");
        e->shape.d[i] = (int64_t)dim;
    }
    return true;
}

static bool read_offsets(const reading *r, entry *e, const json_t *value) {
    if (!value || !json_is_array(value) || jansson.json_array_size(value) != 2 ||
        !read_number(jansson.json_array_get(value, 0), &e->begin) ||
        !read_number(jansson.json_array_get(value, 1), &e->end))
        return refused_tensor(r, e->name, "data_offsets are not two integers from 0 up");
    if (e->end < e->begin) return refused_tensor(r, e->name, "it ends before it begins");
    return true;
}

/* The shape has to need exactly the bytes that there are. A zero does not hide an overflow of the other dimensions, since
 * the strides are made of those. */
static bool check_size(const reading *r, const entry *e) {
    uint64_t bytes = ct_dtype_size(e->dtype);
    bool empty = false;
    for (int i = 0; i < e->shape.n; i++) {
        const uint64_t dim = (uint64_t)e->shape.d[i];
        if (dim == 0) empty = true;
        else if (bytes > (uint64_t)INT64_MAX / dim)
            return refused_tensor(r, e->name, "the shape has more elements than can be counted");
        else bytes *= dim;
    }
    if (empty) bytes = 0;
    if (bytes == e->end - e->begin) return true;
    return ct_fail(CT_ERR_IO, r->op,
                   "%s: tensor \"%.200s\": its shape and dtype need %" PRIu64 " bytes, the file gives it %" PRIu64,
                   r->path, e->name, bytes, e->end - e->begin);
}

static bool read_entry(const reading *r, entry *e, const json_t *value) {
    if (!json_is_object(value)) return refused_tensor(r, e->name, "its entry is not an object");
    return read_dtype(r, e, jansson.json_object_get(value, "dtype")) &&
           read_shape(r, e, jansson.json_object_get(value, "shape")) &&
           read_offsets(r, e, jansson.json_object_get(value, "data_offsets")) && check_size(r, e);
}

/* ---- All of them ---- */

static bool read_metadata(const reading *r, json_t *value) {
    if (!json_is_object(value)) return refused(r, "__metadata__ is not an object");
    for (void *at = jansson.json_object_iter(value); at; at = jansson.json_object_iter_next(value, at)) {
        const char *name = jansson.json_object_iter_key(at);
        const json_t *text = jansson.json_object_iter_value(at);
        if (!json_is_string(text))
            return ct_fail(CT_ERR_IO, r->op, "%s: malformed header: \"%.200s\" in __metadata__ is not a text", r->path,
                           name);
        if (strcmp(name, CT__CHECKSUM_NAME) == 0) continue;
        if (!ct_state_put_text(r->state, name, jansson.json_string_value(text))) return false;
    }
    return true;
}

static bool read_entries(reading *r, json_t *header) {
    r->entries = ct_calloc(jansson.json_object_size(header) + 1, sizeof *r->entries);
    if (!r->entries) return ct_fail(CT_ERR_MEMORY, r->op, "%s: out of memory", r->path);
    size_t place = 0;
    for (void *at = jansson.json_object_iter(header); at; at = jansson.json_object_iter_next(header, at), place++) {
        const char *name = jansson.json_object_iter_key(at);
        json_t *value = jansson.json_object_iter_value(at);
        if (strcmp(name, "__metadata__") == 0) {
            if (!read_metadata(r, value)) return false;
            continue;
        }
        entry *e = &r->entries[r->count++];
        *e = (entry){.name = name, .place = place};
        if (!read_entry(r, e, value)) return false;
    }
    return true;
}

static int by_offset(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* In the order of the file each tensor begins where the one before ended, and the last ends with the file. */
static bool check_layout(const reading *r, uint64_t available) {
    uint64_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const entry *e = &r->entries[i];
        if (e->begin < at) return refused_tensor(r, e->name, "it overlaps the tensor before it");
        if (e->begin > at) return refused_tensor(r, e->name, "there is a hole before it");
        at = e->end;
    }
    if (at == available) return true;
    return ct_fail(CT_ERR_IO, r->op, "%s: the tensors need %" PRIu64 " bytes of data, the file has %" PRIu64, r->path,
                   at, available);
}

static bool make_tensors(const reading *r, size_t data) {
    bool good = true;
    for (size_t i = 0; i < r->count && good; i++)
        ct_scope {
            const entry *e = &r->entries[i];
            ct_tensor *x = ct__mapping_tensor(r->mapping, data + e->begin, e->shape, e->dtype, e->end - e->begin);
            good = x && ct_state_put(r->state, e->name, x);
        }
    return good;
}

static bool read_header(reading *r, const uint8_t *bytes, size_t size, json_t **header, size_t *data) {
    if (size < 10 || bytes[8] != '{') return ct_fail(CT_ERR_IO, r->op, "%s: is not a safetensors file", r->path);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > HEADER_MAX)
        return ct_fail(CT_ERR_IO, r->op, "%s: a header of %" PRIu64 " bytes is longer than %d", r->path, length,
                       HEADER_MAX);
    if (length > size - 8) return ct_fail(CT_ERR_IO, r->op, "%s: ends inside its header", r->path);
    if (too_deep(bytes + 8, length)) return refused(r, "it is nested too deeply");
    json_error_t error = {0};
    *header = jansson.json_loadb((const char *)bytes + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
        return ct_fail(CT_ERR_IO, r->op, "%s: malformed header: byte %d: %s", r->path, error.position, error.text);
    *data = 8 + (size_t)length;
    return true;
}

ct_state *ct__safetensors_parse(ct__mapping *mapping, const char *path, const char *op) {
    const uint16_t one = 1;
    if (*(const uint8_t *)&one == 0) {
        ct_fail(CT_ERR_UNSUPPORTED, op, "%s: safetensors files are not read on machines of this byte order", path);
        return NULL;
    }
    if (!foreign_jansson(op)) return NULL;
    reading r = {.path = path, .op = op, .mapping = mapping};
    size_t size, data = 0;
    const uint8_t *bytes = ct__mapping_bytes(mapping, &size);
    json_t *header = NULL;
    bool good = read_header(&r, bytes, size, &header, &data) && (r.state = ct_state_new()) && read_entries(&r, header);
    if (good) {
        qsort(r.entries, r.count, sizeof *r.entries, by_offset);
        good = check_layout(&r, size - data) && make_tensors(&r, data);
    }
    ct_free(r.entries);
    if (header) jansson.json_delete(header); /* the only reference */
    if (!good) {
        ct_state_free(r.state);
        return NULL;
    }
    return r.state;
}
#else
ct_state *ct__safetensors_parse(ct__mapping *mapping, const char *path, const char *op) {
    (void)mapping, (void)path;
    ct__foreign_absent(op, "jansson", "libjansson-dev");
    return NULL;
}
#endif

ct_state *ct_safetensors_load(const char *path) {
    ct__mapping *mapping = ct__mapping_open(path, "safetensors");
    ct_state *state = mapping ? ct__safetensors_parse(mapping, path, "safetensors") : NULL;
    ct__mapping_release(mapping);
    return state;
}

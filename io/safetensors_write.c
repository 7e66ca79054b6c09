/* Writing safetensors: the header as text, the data tensor by tensor, and a checksum over both where one is asked for. */
#include "io/safetensors.h"
#include "support/checksum.h"
#include "support/files.h"

#include <cotangent/op.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The header's text ---- */

typedef struct text {
    char *bytes;
    size_t length, capacity;
    bool good; /* false once there was no memory */
} text;

static void add(text *t, const char *bytes, size_t length) {
    if (t->good && length > t->capacity - t->length) {
        const size_t capacity = (t->capacity + length) * 2;
        char *more = ct_realloc(t->bytes, capacity);
        t->good = more != NULL;
        if (more) {
            t->bytes = more;
            t->capacity = capacity;
        }
    }
    if (!t->good) return;
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
}

static void add_text(text *t, const char *s) { add(t, s, strlen(s)); }

static void add_number(text *t, uint64_t number) {
    char digits[24];
    add(t, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number));
}

static void add_quoted(text *t, const char *s) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    add_text(t, "\"");
    for (; *s; s++) {
        const char *special = strchr(plain, *s);
        char escape[8];
        if (special) add(t, (const char[]){'\\', letters[special - plain]}, 2);
        else if ((unsigned char)*s < 0x20) add(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *s));
        else add(t, s, 1);
    }
    add_text(t, "\"");
}

/* Well-formed UTF-8: no stray or missing continuations, no longer form than needed, no surrogates, up to U+10FFFF. */
static bool is_utf8(const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    while (*at) {
        const unsigned char c = *at++;
        if (c < 0x80) continue;
        const int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4) return false;
        uint32_t point = c & (0x3fu >> more);
        for (int i = 0; i < more; i++) {
            if ((at[0] & 0xc0) != 0x80) return false;
            point = point << 6 | (*at++ & 0x3f);
        }
        static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    }
    return true;
}

/* ---- The layout ---- */

typedef struct writing {
    const char *path, *op;
    const ct_state *state;
    bool checksum;
    int64_t *order; /* places in the state: larger elements first, so that each tensor is aligned to its own */
    text header;
    uint64_t crc;
} writing;

static size_t bytes_of(const ct_tensor *x) { return (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x)); }

static const char *name_of(ct_dtype dtype) {
    switch (dtype) {
#define DTYPE(name, dtype) \
    case dtype:            \
        return #name;
#include "io/safetensors.def"
#undef DTYPE
    default: return NULL;
    }
}

static bool check_names(const writing *w) {
    for (int64_t i = 0; i < ct_state_count(w->state); i++) {
        const char *name = ct_state_name(w->state, i);
        if (!is_utf8(name))
            return ct_fail(CT_ERR_VALUE, w->op, "%s: the name of tensor %" PRId64 " is not UTF-8", w->path, i);
        if (strcmp(name, "__metadata__") == 0)
            return ct_fail(CT_ERR_VALUE, w->op, "%s: the format keeps the name \"__metadata__\" for itself", w->path);
        const ct_dtype dtype = ct_dtype_of(ct_state_at(w->state, i));
        if (!name_of(dtype))
            return ct_fail(CT_ERR_DTYPE, w->op, "%s: tensor \"%s\": %s has no form in safetensors files", w->path, name,
                           ct_dtype_name(dtype));
    }
    for (int64_t i = 0; i < ct_state_text_count(w->state); i++) {
        const char *name = ct_state_text_name(w->state, i);
        if (!is_utf8(name) || !is_utf8(ct_state_text_at(w->state, i)))
            return ct_fail(CT_ERR_VALUE, w->op, "%s: text %" PRId64 " or its name is not UTF-8", w->path, i);
        if (strcmp(name, CT__CHECKSUM_NAME) == 0)
            return ct_fail(CT_ERR_VALUE, w->op, "%s: the text \"%s\" is written by the library alone", w->path, name);
    }
    return true;
}

static bool find_order(writing *w) {
    const int64_t count = ct_state_count(w->state);
    w->order = ct_malloc((size_t)(count + 1) * sizeof *w->order);
    if (!w->order) return ct_fail(CT_ERR_MEMORY, w->op, "%s: out of memory", w->path);
    int64_t n = 0;
    for (size_t size = 16; size > 0; size /= 2)
        for (int64_t i = 0; i < count; i++)
            if (ct_dtype_size(ct_dtype_of(ct_state_at(w->state, i))) == size) w->order[n++] = i;
    return true;
}

static void add_metadata(writing *w) {
    text *t = &w->header;
    const int64_t count = ct_state_text_count(w->state);
    if (w->checksum) add_text(t, CT__CHECKSUM_BEFORE "0000000000000000\"");
    else if (count > 0) add_text(t, "{\"__metadata__\":{");
    else add_text(t, "{");
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 || w->checksum) add_text(t, ",");
        add_quoted(t, ct_state_text_name(w->state, i));
        add_text(t, ":");
        add_quoted(t, ct_state_text_at(w->state, i));
    }
    if (count > 0 || w->checksum) add_text(t, "}");
}

static bool make_header(writing *w) {
    text *t = &w->header;
    t->good = true;
    add(t, "\0\0\0\0\0\0\0", 8);
    add_metadata(w);
    uint64_t at = 0;
    for (int64_t i = 0; i < ct_state_count(w->state); i++) {
        const ct_tensor *x = ct_state_at(w->state, w->order[i]);
        const ct_dims shape = ct_shape(x);
        if (!t->good || t->bytes[t->length - 1] != '{') add_text(t, ",");
        add_quoted(t, ct_state_name(w->state, w->order[i]));
        add_text(t, ":{\"dtype\":\"");
        add_text(t, name_of(ct_dtype_of(x)));
        add_text(t, "\",\"shape\":[");
        for (int k = 0; k < shape.n; k++) {
            if (k > 0) add_text(t, ",");
            add_number(t, (uint64_t)shape.d[k]);
        }
        add_text(t, "],\"data_offsets\":[");
        add_number(t, at);
        add_text(t, ",");
        add_number(t, at += bytes_of(x));
        add_text(t, "]}");
    }
    add_text(t, "}");
    while (t->good && t->length % 8 != 0) add_text(t, " ");
    if (!t->good) return ct_fail(CT_ERR_MEMORY, w->op, "%s: out of memory", w->path);
    const uint64_t length = t->length - 8;
    if (length > 100000000)
        return ct_fail(CT_ERR_VALUE, w->op,
                       "%s: the names make a header of %" PRIu64 " bytes, more than the format allows", w->path,
                       length);
    for (int i = 0; i < 8; i++) t->bytes[i] = (char)(length >> (8 * i));
    return true;
}

/* ---- The bytes ---- */

/* Into the checksum and, where there is an output, into that. */
static bool put(writing *w, ct__output *output, const void *data, size_t size) {
    if (w->checksum) w->crc = ct__crc64(w->crc, data, size);
    return !output || ct__output_write(output, data, size);
}

static bool put_tensor(writing *w, ct__output *output, const ct_tensor *x) {
    const size_t size = bytes_of(x);
    if (size == 0) return true;
    if (ct_device_of(x).type == CT_CPU && ct_is_contiguous(x)) return put(w, output, ct_data(x), size);
    void *copy = ct_malloc(size);
    if (!copy) return ct_fail(CT_ERR_MEMORY, w->op, "%s: out of memory: %zu bytes could not be had", w->path, size);
    const bool done = ct_read(x, copy, size) && put(w, output, copy, size);
    ct_free(copy);
    return done;
}

static bool put_bytes(writing *w, ct__output *output) {
    bool good = put(w, output, w->header.bytes, w->header.length);
    for (int64_t i = 0; i < ct_state_count(w->state) && good; i++)
        good = put_tensor(w, output, ct_state_at(w->state, w->order[i]));
    return good;
}

static bool put_all(writing *w, ct__output *output) {
    char digits[CT__CHECKSUM_DIGITS + 1];
    const bool stream =
        !output->temporary; /* nothing can be put over what a pipe has got, so all is summed up before */
    if (!put_bytes(w, w->checksum && stream ? NULL : output)) return false;
    if (!w->checksum) return true;
    snprintf(digits, sizeof digits, "%016" PRIx64, w->crc);
    if (!stream) return ct__output_patch(output, digits, CT__CHECKSUM_DIGITS, CT__CHECKSUM_AT);
    memcpy(w->header.bytes + CT__CHECKSUM_AT, digits, CT__CHECKSUM_DIGITS);
    w->checksum = false;
    return put_bytes(w, output);
}

/* Names, order and header. */
static bool plan(writing *w) {
    if (!ct_ok()) return false; /* after an error the values are not what the caller meant to keep */
    if (!w->path) return ct_fail(CT_ERR_NULL, w->op, "argument path is NULL");
    if (!w->state) return ct_fail(CT_ERR_NULL, w->op, "argument state is NULL (for %s)", w->path);
    const uint16_t one = 1;
    if (*(const uint8_t *)&one == 0)
        return ct_fail(CT_ERR_UNSUPPORTED, w->op,
                       "%s: safetensors files are not written on machines of this byte order", w->path);
    return check_names(w) && find_order(w) && make_header(w);
}

ct_safetensors_layout *ct_safetensors_plan(const ct_state *state) {
    writing w = {.path = "a plan", .op = "safetensors", .state = state, .checksum = true};
    ct_safetensors_layout *layout = NULL;
    bool good = plan(&w);
    const int64_t count = good ? ct_state_count(state) : 0;
    if (good && (!(layout = ct_calloc(1, sizeof *layout)) ||
                 !(layout->begin = ct_malloc((size_t)(count + 1) * sizeof *layout->begin))))
        good = ct_fail(CT_ERR_MEMORY, w.op, "out of memory");
    if (good) {
        layout->header = w.header.bytes;
        layout->header_bytes = layout->file_bytes = w.header.length;
        layout->checksum_at = CT__CHECKSUM_AT;
    } else {
        ct_free(w.header.bytes);
        ct_safetensors_layout_free(layout);
        layout = NULL;
    }
    for (int64_t i = 0; i < count && layout; i++) {
        layout->begin[w.order[i]] = layout->file_bytes;
        layout->file_bytes += bytes_of(ct_state_at(state, w.order[i]));
    }
    ct_free(w.order);
    return layout;
}

void ct_safetensors_layout_free(ct_safetensors_layout *layout) {
    if (!layout) return;
    ct_free(layout->header);
    ct_free(layout->begin);
    ct_free(layout);
}

bool ct__safetensors_write(const char *path, const ct_state *state, bool checksum, const char *op) {
    writing w = {.path = path, .op = op, .state = state, .checksum = checksum};
    ct__output output;
    bool good = plan(&w) && ct__output_open(&output, path, true, op);
    if (good) good = ct__output_close(&output, put_all(&w, &output));
    ct_free(w.order);
    ct_free(w.header.bytes);
    return good;
}

bool ct_safetensors_save(const char *path, const ct_state *state) {
    return ct__safetensors_write(path, state, false, "safetensors");
}

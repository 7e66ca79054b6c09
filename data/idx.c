/* IDX, the format of MNIST: two zero bytes, a dtype, the number of dimensions, the dimensions (32 bits, big-endian),
 * and the elements (big-endian). */
#include "data/idx.h"

#include <stdio.h>
#include <unistd.h>

#include "data/data.h"
#include "support/bytes.h"

typedef struct idx_header {
    ct_dtype dtype;
    ct_dims shape;
    size_t start, bytes; /* of the elements */
} idx_header;

static bool find_dtype(uint8_t code, ct_dtype *dtype) {
    static const struct {
        uint8_t code;
        ct_dtype dtype;
    } known[] = {{0x08, CT_U8}, {0x09, CT_I8}, {0x0B, CT_I16}, {0x0C, CT_I32}, {0x0D, CT_F32}, {0x0E, CT_F64}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code) {
            *dtype = known[i].dtype;
            return true;
        }
    return false;
}

/* Checks everything that the header says against the size of the file. */
static bool read_header(const uint8_t *bytes, size_t size, const char *path, idx_header *header) {
    if (size < 4) return ct_fail(CT_ERR_IO, "idx_load", "%s: has %zu bytes, too few for an IDX file", path, size);
    if (bytes[0] || bytes[1])
        return ct_fail(CT_ERR_IO, "idx_load", "%s: is not an IDX file: it begins with the bytes %02x %02x, not 00 00",
                       path, bytes[0], bytes[1]);
    if (!find_dtype(bytes[2], &header->dtype))
        return ct_fail(CT_ERR_IO, "idx_load", "%s: 0x%02x is not an element type of IDX", path, bytes[2]);
    const int n = bytes[3];
    if (n < 1 || n > CT_MAX_DIMS)
        return ct_fail(CT_ERR_IO, "idx_load", "%s: has %d dimensions; expected 1 to %d", path, n, CT_MAX_DIMS);
    header->start = 4 + 4 * (size_t)n;
    if (size < header->start)
        return ct_fail(CT_ERR_IO, "idx_load", "%s: ends within its header (%zu bytes of %zu)", path, size,
                       header->start);
    header->shape = (ct_dims){.n = n};
    header->bytes = ct_dtype_size(header->dtype);
    bool over = false, empty = false;
    for (int i = 0; i < n; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        const uint32_t d = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        header->shape.d[i] = d;
        empty |= d == 0;
        over |=
            d && (__builtin_mul_overflow(header->bytes, (size_t)d, &header->bytes) || header->bytes > INT64_MAX / 16);
    }
    if (empty) header->bytes = 0;
    if (over || size - header->start != header->bytes) {
        char text[CT_MAX_DIMS * 11 + 1] = "";
        for (int i = 0, used = 0; i < n; i++)
            used +=
                snprintf(text + used, sizeof text - (size_t)used, i ? ",%lld" : "%lld", (long long)header->shape.d[i]);
        return ct_fail(CT_ERR_IO, "idx_load", "%s: holds %zu bytes of data, but its header says %s[%s]", path,
                       size - header->start, ct_dtype_name(header->dtype), text);
    }
    return true;
}

ct_tensor *ct__idx_parse(const uint8_t *bytes, size_t size, const char *path) {
    idx_header header;
    if (!read_header(bytes, size, path, &header)) return NULL;
    void *data;
    ct_tensor *x = ct__blank(header.shape, header.dtype, &data);
    if (!x || header.bytes == 0) return x;
    const size_t each = ct_dtype_size(header.dtype);
    const uint8_t *from = bytes + header.start;
    uint8_t *to = data;
    if (each == 1 || __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
        memcpy(to, from, header.bytes);
    } else {
        for (size_t i = 0; i < header.bytes; i += each)
            for (size_t k = 0; k < each; k++) to[i + k] = from[i + each - 1 - k];
    }
    return x;
}

static void free_file(void *context, void *data) {
    (void)data;
    ct_free(context);
}

ct_tensor *ct_idx_load(const char *path) {
    if (!path) {
        ct__null("idx_load", "path");
        return NULL;
    }
    size_t size;
    uint8_t *bytes = ct__bytes_load(path, "idx_load", 0, &size);
    if (!bytes) return NULL;
    idx_header header;
    ct_tensor *x = NULL;
    if (read_header(bytes, size, path, &header)) {
        /* Bytes have no order: the file's own memory becomes the tensor's. */
        if (ct_dtype_size(header.dtype) == 1 && header.bytes)
            return ct_wrap(bytes + header.start, header.shape, header.dtype, .release = free_file, .context = bytes);
        x = ct__idx_parse(bytes, size, path);
    }
    ct_free(bytes);
    return x;
}

static ct_dataset *load(const char *op, const char *images, const char *labels) {
    ct_tensor *fields[2] = {ct_idx_load(images), NULL};
    if (!fields[0]) return NULL;
    if (ct_ndim(fields[0]) == 3) {
        const ct_dims s = ct_shape(fields[0]);
        fields[0] = ct_reshape(fields[0], CT_DIMS(s.d[0], 1, s.d[1], s.d[2]));
    }
    if (!labels) return ct_dataset_tensors(fields, 1);
    fields[1] = ct_idx_load(labels);
    if (!fields[1]) return NULL;
    if (ct_ndim(fields[1]) != 1 || !ct_dtype_is_int(ct_dtype_of(fields[1]))) {
        ct_fail(CT_ERR_IO, op, "%s: holds %s of %d dimensions; labels are integers of one", labels,
                ct_dtype_name(ct_dtype_of(fields[1])), ct_ndim(fields[1]));
        return NULL;
    }
    if (ct_dim(fields[0], 0) != ct_dim(fields[1], 0)) {
        ct_fail(CT_ERR_IO, op, "%s has %lld items, but %s has %lld labels", images, (long long)ct_dim(fields[0], 0),
                labels, (long long)ct_dim(fields[1], 0));
        return NULL;
    }
    return ct_dataset_tensors(fields, 2);
}

ct_dataset *ct_dataset_idx(const char *images, const char *labels) {
    if (!images) {
        ct__null("dataset_idx", "images");
        return NULL;
    }
    ct_dataset *dataset = NULL;
    ct_scope {
        dataset = load("dataset_idx", images, labels);
    }
    return dataset;
}

/* ---- MNIST and its relatives ---- */

static const char *const digit_names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
static const char *const fashion_names[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                            "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

/* Whether one of the usual spellings of a name is in the folder; its path. */
static bool find_file(const char *folder, bool train, const char *what, int dims, char *path, size_t capacity) {
    static const char *const spellings[] = {"%s/%s-%s-idx%d-ubyte", "%s/%s-%s-idx%d-ubyte.gz", "%s/%s-%s.idx%d-ubyte",
                                            "%s/%s-%s.idx%d-ubyte.gz"};
    const char *part = train ? "train" : "t10k";
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        const int length = snprintf(path, capacity, spellings[i], folder, part, what, dims);
#pragma GCC diagnostic pop
        if (length > 0 && (size_t)length < capacity && access(path, F_OK) == 0) return true;
    }
    return ct_fail(CT_ERR_IO, "dataset_mnist", "%s: has no file %s-%s-idx%d-ubyte, nor the same with .gz", folder, part,
                   what, dims);
}

ct_dataset *ct_dataset_mnist(const char *folder, bool train) {
    if (!folder) {
        ct__null("dataset_mnist", "folder");
        return NULL;
    }
    char images[4096], labels[4096];
    if (!find_file(folder, train, "images", 3, images, sizeof images) ||
        !find_file(folder, train, "labels", 1, labels, sizeof labels))
        return NULL;
    ct_dataset *dataset = NULL;
    ct_scope {
        dataset = load("dataset_mnist", images, labels);
    }
    if (!dataset) return NULL;
    if (dataset->classes <= 10)
        ct_dataset_set_classes(dataset, 10, strstr(folder, "fashion") ? fashion_names : digit_names);
    return dataset;
}

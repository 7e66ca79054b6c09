/* .npz: a zip archive of .npy files, by libzip. The archive is taken from memory and made in memory, so that the files
 * themselves are read and written as all others are. */
#include "io/npz.h"

#include "io/npy.h"
#include "support/bytes.h"
#include "support/files.h"
#include "support/foreign.h"
#include "support/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CT_HAVE_LIBZIP
#include <zip.h>

#define LIBZIP(X)                        \
    X(zip_error_init)                    \
    X(zip_error_fini)                    \
    X(zip_error_strerror)                \
    X(zip_get_error)                     \
    X(zip_file_get_error)                \
    X(zip_source_buffer_create)          \
    X(zip_source_buffer_fragment_create) \
    X(zip_source_free)                   \
    X(zip_source_keep)                   \
    X(zip_source_open)                   \
    X(zip_source_read)                   \
    X(zip_source_stat)                   \
    X(zip_source_close)                  \
    X(zip_open_from_source)              \
    X(zip_close)                         \
    X(zip_discard)                       \
    X(zip_get_num_entries)               \
    X(zip_get_name)                      \
    X(zip_stat_index)                    \
    X(zip_fopen_index)                   \
    X(zip_fread) X(zip_fclose) X(zip_file_add) X(zip_set_file_compression) X(zip_file_set_dostime)
FOREIGN(libzip, LIBZIP, "libzip", "libzip4", "libzip.so.5", "libzip.so.4", "libzip.so")

/* Deflate cannot pack better than this, so an archive whose arrays have more bytes in all has the same data in several:
 * one that was made to fill the memory. */
enum { MOST_RATIO = 1032 };

/* ---- Reading ---- */

typedef struct reading {
    const char *path, *only;
    zip_t *archive;
    ct_state *state;
    size_t left; /* bytes that may still be unpacked */
} reading;

static bool damaged(const reading *r, const char *name, const char *what) {
    return ct_fail(CT_ERR_IO, "npz", "%s: array \"%.200s\": %s", r->path, name, what);
}

/* What the entry is said to have is where reading begins; it has to be so. */
static uint8_t *unpack(const reading *r, zip_uint64_t index, const char *name, size_t size) {
    zip_file_t *file = libzip.zip_fopen_index(r->archive, index, 0);
    if (!file) {
        damaged(r, name, libzip.zip_error_strerror(libzip.zip_get_error(r->archive)));
        return NULL;
    }
    uint8_t *bytes = ct_malloc(size + 1);
    if (!bytes) ct_fail(CT_ERR_MEMORY, "npz", "%s: out of memory: %zu bytes could not be had", r->path, size);
    size_t have = 0;
    bool good = bytes != NULL;
    while (good) { /* one byte more is asked for, so that the end is reached, where the checksum is compared */
        const zip_int64_t got = libzip.zip_fread(file, bytes + have, size + 1 - have);
        if (got < 0) good = damaged(r, name, libzip.zip_error_strerror(libzip.zip_file_get_error(file)));
        if (got <= 0) break;
        have += (size_t)got;
        if (have > size) good = damaged(r, name, "it is longer than the archive says");
    }
    if (good && have < size) good = damaged(r, name, "it is shorter than the archive says");
    libzip.zip_fclose(file);
    if (good) return bytes;
    ct_free(bytes);
    return NULL;
}

static bool read_array(reading *r, zip_uint64_t index, const char *name) {
    zip_stat_t stat;
    const zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD;
    if (libzip.zip_stat_index(r->archive, index, 0, &stat) != 0 || (stat.valid & wanted) != wanted)
        return damaged(r, name, "its entry cannot be read");
    if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
        return damaged(r, name, "it is neither stored nor deflated");
    if (stat.size > r->left) return damaged(r, name, "it says to have more bytes than the archive can hold");
    r->left -= (size_t)stat.size;
    uint8_t *bytes = unpack(r, index, name, (size_t)stat.size);
    if (!bytes) return false;
    char where[512];
    snprintf(where, sizeof where, "%.300s[%.200s]", r->path, name);
    bool good = false;
    ct_scope {
        ct_tensor *x = ct__npy_parse(bytes, (size_t)stat.size, where, false);
        good = x && ct_state_put(r->state, name, x);
    }
    ct_free(bytes);
    return good;
}

/* The name of an entry without ".npy", for the caller to free; NULL, with an error unless only one is wanted. */
static char *array_name(const reading *r, zip_uint64_t index) {
    const char *entry = libzip.zip_get_name(r->archive, index, 0);
    const size_t length = entry ? strlen(entry) : 0;
    if (length < 4 || strcmp(entry + length - 4, ".npy") != 0) {
        if (!r->only)
            ct_fail(CT_ERR_IO, "npz", "%s: its entry \"%.200s\" is no .npy file", r->path, entry ? entry : "");
        return NULL;
    }
    char *name = ct__text_copy(entry, length - 4);
    if (!name) ct_fail(CT_ERR_MEMORY, "npz", "%s: out of memory", r->path);
    return name;
}

static bool read_arrays(reading *r) {
    const zip_int64_t count = libzip.zip_get_num_entries(r->archive, 0);
    bool good = true;
    for (zip_int64_t i = 0; i < count && good; i++) {
        char *name = array_name(r, (zip_uint64_t)i);
        if (!name) {
            good = ct_ok();
            continue;
        }
        if (!r->only || strcmp(r->only, name) == 0) {
            if (ct_state_get(r->state, name)) good = damaged(r, name, "it is there twice");
            else good = read_array(r, (zip_uint64_t)i, name);
        }
        ct_free(name);
    }
    return good;
}

ct_state *ct__npz_parse(const uint8_t *bytes, size_t size, const char *path, const char *only) {
    if (!ct_ok() || !foreign_libzip("npz")) return NULL;
    if (size < 4 || bytes[0] != 'P' || bytes[1] != 'K') {
        ct_fail(CT_ERR_IO, "npz", "%s: is not a .npz archive", path);
        return NULL;
    }
    reading r = {.path = path, .only = only};
    r.left = size > SIZE_MAX / MOST_RATIO ? SIZE_MAX : size * MOST_RATIO;
    zip_error_t error;
    libzip.zip_error_init(&error);
    zip_source_t *source = libzip.zip_source_buffer_create(bytes, size, 0, &error);
    if (source) {
        r.archive = libzip.zip_open_from_source(source, ZIP_RDONLY, &error);
        if (!r.archive) libzip.zip_source_free(source);
    }
    if (!r.archive) ct_fail(CT_ERR_IO, "npz", "%s: is damaged: %s", path, libzip.zip_error_strerror(&error));
    libzip.zip_error_fini(&error);
    if (!r.archive) return NULL;
    const bool good = (r.state = ct_state_new()) && read_arrays(&r);
    libzip.zip_discard(r.archive);
    if (good) return r.state;
    ct_state_free(r.state);
    return NULL;
}

/* ---- Writing ---- */

typedef struct part {
    char header[CT__NPY_HEADER_MAX];
    void *copy; /* of elements that do not lie in one piece in host memory */
} part;

typedef struct writing {
    const char *path;
    const ct_state *state;
    bool compressed;
    zip_t *archive;
    part *parts;
} writing;

static bool cannot(const writing *w, zip_error_t *error) {
    return ct_fail(CT_ERR_IO, "npz", "%s: cannot be written: %s", w->path, libzip.zip_error_strerror(error));
}

static bool add_source(writing *w, const char *name, zip_source_t *source) {
    const size_t capacity = strlen(name) + 5;
    char *entry = ct_malloc(capacity);
    if (!entry) {
        libzip.zip_source_free(source);
        return ct_fail(CT_ERR_MEMORY, "npz", "%s: out of memory", w->path);
    }
    snprintf(entry, capacity, "%s.npy", name);
    const zip_int64_t index = libzip.zip_file_add(w->archive, entry, source, ZIP_FL_ENC_UTF_8);
    ct_free(entry);
    if (index < 0) {
        libzip.zip_source_free(source);
        return cannot(w, libzip.zip_get_error(w->archive));
    }
    /* 1 January 1980, the beginning of the format's time: the same arrays make the same file */
    if (libzip.zip_set_file_compression(w->archive, (zip_uint64_t)index, w->compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE,
                                        0) != 0 ||
        libzip.zip_file_set_dostime(w->archive, (zip_uint64_t)index, 0, 1 << 5 | 1, 0) != 0)
        return cannot(w, libzip.zip_get_error(w->archive));
    return true;
}

static bool add_array(writing *w, int64_t i) {
    part *p = &w->parts[i];
    ct_tensor *x = ct_state_at(w->state, i);
    const char *name = ct_state_name(w->state, i);
    const size_t header_size = ct__npy_header(x, w->path, p->header);
    if (header_size == 0) return false;
    const size_t size = (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x));
    const void *data = ct_device_of(x).type == CT_CPU && ct_is_contiguous(x) ? ct_data(x) : NULL;
    if (!data && size > 0) {
        data = p->copy = ct_malloc(size);
        if (!data) return ct_fail(CT_ERR_MEMORY, "npz", "%s: out of memory: %zu bytes could not be had", w->path, size);
        if (!ct_read(x, p->copy, size)) return false;
    }
    /* libzip only reads them */
    const zip_buffer_fragment_t fragments[] = {{(zip_uint8_t *)p->header, header_size}, {(zip_uint8_t *)data, size}};
    zip_error_t error;
    libzip.zip_error_init(&error);
    zip_source_t *source = libzip.zip_source_buffer_fragment_create(fragments, size ? 2 : 1, 0, &error);
    const bool good = source ? add_source(w, name, source) : cannot(w, &error);
    libzip.zip_error_fini(&error);
    return good;
}

/* The finished archive out of libzip's buffer into the file. */
static bool store(const writing *w, zip_source_t *source) {
    zip_stat_t stat;
    if (libzip.zip_source_stat(source, &stat) != 0 || !(stat.valid & ZIP_STAT_SIZE) ||
        libzip.zip_source_open(source) != 0)
        return ct_fail(CT_ERR_IO, "npz", "%s: the archive could not be made", w->path);
    ct__output output;
    bool good = ct__output_open(&output, w->path, false, "npz");
    if (good) {
        uint8_t block[65536];
        zip_uint64_t left = stat.size;
        while (good && left > 0) {
            const zip_int64_t got = libzip.zip_source_read(source, block, sizeof block);
            if (got <= 0) good = ct_fail(CT_ERR_IO, "npz", "%s: the archive could not be made", w->path);
            else good = ct__output_write(&output, block, (size_t)got);
            left -= good ? (zip_uint64_t)got : 0;
        }
        good = ct__output_close(&output, good);
    }
    libzip.zip_source_close(source);
    return good;
}

static bool make_archive(writing *w, zip_source_t *source) {
    zip_error_t error;
    libzip.zip_error_init(&error);
    w->archive = libzip.zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error);
    bool good = w->archive || cannot(w, &error);
    libzip.zip_error_fini(&error);
    if (!good) return false;
    libzip.zip_source_keep(source); /* closing the archive gives one reference back */
    for (int64_t i = 0; i < ct_state_count(w->state) && good; i++) good = add_array(w, i);
    if (good && libzip.zip_close(w->archive) != 0) good = cannot(w, libzip.zip_get_error(w->archive));
    else if (good) w->archive = NULL;
    if (w->archive) libzip.zip_discard(w->archive);
    return good;
}

/* An archive without entries is not written by libzip: this is all there is to one. */
static bool store_empty(const char *path) {
    const uint8_t end[22] = {'P', 'K', 5, 6};
    ct__output output;
    return ct__output_open(&output, path, false, "npz") &&
           ct__output_close(&output, ct__output_write(&output, end, sizeof end));
}

bool ct_npz_save(const char *path, const ct_state *state, bool compressed) {
    if (!ct_ok()) return false; /* after an error the values are not what the caller meant to keep */
    if (!path) return ct_fail(CT_ERR_NULL, "npz", "argument path is NULL");
    if (!state) return ct_fail(CT_ERR_NULL, "npz", "argument state is NULL (for %s)", path);
    if (ct_state_text_count(state) > 0)
        return ct_fail(CT_ERR_VALUE, "npz", "%s: the state has texts, for which .npz has no place", path);
    if (!foreign_libzip("npz")) return false;
    const int64_t count = ct_state_count(state);
    if (count == 0) return store_empty(path);
    writing w = {.path = path, .state = state, .compressed = compressed};
    w.parts = ct_calloc((size_t)count, sizeof *w.parts);
    if (!w.parts) return ct_fail(CT_ERR_MEMORY, "npz", "%s: out of memory", path);
    zip_error_t error;
    libzip.zip_error_init(&error);
    zip_source_t *source = libzip.zip_source_buffer_create(NULL, 0, 0, &error);
    bool good = source || cannot(&w, &error);
    libzip.zip_error_fini(&error);
    if (good) {
        good = make_archive(&w, source) && store(&w, source);
        libzip.zip_source_free(source);
    }
    for (int64_t i = 0; i < count; i++) ct_free(w.parts[i].copy);
    ct_free(w.parts);
    return good;
}
#else
ct_state *ct__npz_parse(const uint8_t *bytes, size_t size, const char *path, const char *only) {
    (void)bytes, (void)size, (void)path, (void)only;
    ct__foreign_absent("npz", "libzip", "libzip-dev");
    return NULL;
}

bool ct_npz_save(const char *path, const ct_state *state, bool compressed) {
    (void)path, (void)state, (void)compressed;
    return ct__foreign_absent("npz", "libzip", "libzip-dev");
}
#endif

static ct_state *load(const char *path, const char *only) {
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load_raw(path, "npz", 0, &size);
    ct_state *state = bytes ? ct__npz_parse(bytes, size, path, only) : NULL;
    ct_free(bytes);
    return state;
}

ct_state *ct_npz_load(const char *path) { return load(path, NULL); }

ct_tensor *ct_npz_load_one(const char *path, const char *name) {
    if (!name) {
        ct_fail(CT_ERR_NULL, "npz", "argument name is NULL");
        return NULL;
    }
    ct_tensor *x = NULL;
    ct_state *state = load(path, name);
    if (!state) return NULL;
    ct_scope {
        x = ct_state_get(state, name);
        if (!x) ct_fail(CT_ERR_IO, "npz", "%s: has no array \"%s\"", path, name);
        /* one more reference, in the caller's scope: the state's own is about to go */
        x = x ? ct_pass(ct_detach(x)) : NULL;
    }
    ct_state_free(state);
    return x;
}

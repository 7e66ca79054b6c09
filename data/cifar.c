/* CIFAR-10 and CIFAR-100 in their binary versions: one record an image, its label (for CIFAR-100 a coarse and a fine
 * one) and 3 x 32 x 32 bytes. */
#include "data/data.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/bytes.h"

enum { PIXELS = 3 * 32 * 32, MAX_FILES = 8 };

typedef struct cifar_files {
    char path[MAX_FILES][4096];
    int n;
    int labels; /* bytes of labels in a record: 1 or 2 */
    char names[4096];
} cifar_files;

static bool exists(const char *path) { return access(path, F_OK) == 0; }
static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* folder/name, also with .gz; false when neither is there. */
static bool find(const char *folder, const char *name, char path[4096]) {
    if ((size_t)snprintf(path, 4096, "%s/%s", folder, name) >= 4096) return false;
    if (exists(path)) return true;
    return (size_t)snprintf(path, 4096, "%s/%s.gz", folder, name) < 4096 && exists(path);
}

static bool look_into(const char *folder, bool train, cifar_files *files) {
    char name[32];
    if (train)
        for (int i = 1; i <= 5; i++) {
            snprintf(name, sizeof name, "data_batch_%d.bin", i);
            if (find(folder, name, files->path[files->n])) files->n++;
        }
    else if (find(folder, "test_batch.bin", files->path[0])) files->n = 1;
    files->labels = 1;
    const char *names = "batches.meta.txt";
    if (files->n == 0) {
        if (find(folder, train ? "train.bin" : "test.bin", files->path[0])) files->n = 1;
        files->labels = 2;
        names = "fine_label_names.txt";
    }
    if (files->n && !find(folder, names, files->names)) files->names[0] = 0;
    return files->n > 0;
}

static bool find_files(const char *path, bool train, cifar_files *files) {
    if (!is_folder(path)) { /* one file: which of the two it is shows in its size */
        const int length = snprintf(files->path[0], sizeof files->path[0], "%s", path);
        if (length < 0 || (size_t)length >= sizeof files->path[0])
            return ct_fail(CT_ERR_IO, "dataset_cifar", "the path is longer than %zu bytes", sizeof files->path[0] - 1);
        files->n = 1;
        files->labels = 0;
        return true;
    }
    if (look_into(path, train, files)) return true;
    static const char *const usual[] = {"cifar-10-batches-bin", "cifar-100-binary"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        char below[4096];
        if (snprintf(below, sizeof below, "%s/%s", path, usual[i]) < (int)sizeof below &&
            look_into(below, train, files))
            return true;
    }
    return ct_fail(CT_ERR_IO, "dataset_cifar", "%s: has neither %s of CIFAR-10 nor %s of CIFAR-100", path,
                   train ? "data_batch_1.bin" : "test_batch.bin", train ? "train.bin" : "test.bin");
}

/* The records of one file behind those that are there already. */
static bool append(const uint8_t *bytes, size_t size, const char *path, int *labels, uint8_t **pixels,
                   int64_t **classes, int64_t *count) {
    if (*labels == 0) *labels = size % (PIXELS + 1) == 0 ? 1 : 2;
    const size_t record = (size_t)(PIXELS + *labels);
    if (size == 0 || size % record)
        return ct_fail(CT_ERR_IO, "dataset_cifar", "%s: has %zu bytes, which is not a number of records of %zu", path,
                       size, record);
    const int64_t more = (int64_t)(size / record), all = *count + more;
    uint8_t *room = ct_realloc(*pixels, (size_t)all * PIXELS);
    if (room) *pixels = room;
    int64_t *label_room = ct_realloc(*classes, (size_t)all * sizeof **classes);
    if (label_room) *classes = label_room;
    if (!room || !label_room) return ct__no_memory("dataset_cifar", (size_t)all * (PIXELS + sizeof **classes));
    const int limit = *labels == 1 ? 10 : 100;
    for (int64_t i = 0; i < more; i++) {
        const uint8_t *from = bytes + (size_t)i * record;
        const int label = from[*labels - 1];
        if (label >= limit)
            return ct_fail(CT_ERR_IO, "dataset_cifar", "%s: the label of record %lld is %d; expected 0 to %d", path,
                           (long long)i, label, limit - 1);
        (*classes)[*count + i] = label;
        memcpy(*pixels + (size_t)(*count + i) * PIXELS, from + *labels, PIXELS);
    }
    *count = all;
    return true;
}

static const char *const ten_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                        "dog",      "frog",       "horse", "ship", "truck"};

/* One name a line; without such a file, or with another count, the ten are known and the hundred have none. */
static void take_names(ct_dataset *dataset, const char *path, int64_t classes) {
    const char *names[100] = {0};
    size_t size;
    char *text = path[0] ? (char *)ct__bytes_load(path, "dataset_cifar", 1 << 20, &size) : NULL;
    int64_t n = 0;
    char *rest = NULL;
    for (char *line = text ? strtok_r(text, "\r\n", &rest) : NULL; line && n < classes;
         line = strtok_r(NULL, "\r\n", &rest))
        names[n++] = line;
    if (ct_ok()) ct_dataset_set_classes(dataset, classes, n == classes ? names : classes == 10 ? ten_names : NULL);
    ct_free(text);
}

static void free_pixels(void *context, void *data) {
    (void)context;
    ct_free(data);
}

ct_dataset *ct_dataset_cifar(const char *path, bool train) {
    if (!path) {
        ct__null("dataset_cifar", "path");
        return NULL;
    }
    cifar_files *files = ct__zeroed("dataset_cifar", 1, sizeof *files);
    uint8_t *pixels = NULL;
    int64_t *classes = NULL, count = 0;
    ct_dataset *dataset = NULL;
    bool ok = files && find_files(path, train, files);
    for (int i = 0; ok && i < files->n; i++) {
        size_t size;
        uint8_t *bytes = ct__bytes_load(files->path[i], "dataset_cifar", 0, &size);
        ok = bytes && append(bytes, size, files->path[i], &files->labels, &pixels, &classes, &count);
        ct_free(bytes);
    }
    if (ok)
        ct_scope {
            ct_tensor *x = ct_wrap(pixels, CT_DIMS(count, 3, 32, 32), CT_U8, .release = free_pixels);
            pixels = NULL;
            void *labels;
            ct_tensor *y = ct__blank(CT_DIMS(count), CT_I64, &labels);
            if (y && count) memcpy(labels, classes, (size_t)count * sizeof *classes);
            if (x && y) dataset = ct_dataset_tensors((ct_tensor *[]){x, y}, 2);
        }
    if (dataset) take_names(dataset, files->names, files->labels == 1 ? 10 : 100);
    ct_free(pixels);
    ct_free(classes);
    ct_free(files);
    if (dataset && !ct_ok()) {
        ct_dataset_free(dataset);
        dataset = NULL;
    }
    return dataset;
}

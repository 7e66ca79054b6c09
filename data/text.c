/* A text as a dataset: windows of numbers, and the same windows one further. */
#include "data/vocabulary.h"

#include "support/bytes.h"

typedef struct text {
    ct_vocabulary *vocabulary;
    int32_t *all;           /* the whole file */
    const int32_t *numbers; /* the part that is used */
    int64_t length, stride;
} text;

static void window(const text *set, int64_t index, int64_t *x, int64_t *y) {
    const int32_t *from = set->numbers + index * set->stride;
    for (int64_t i = 0; i < set->length; i++) {
        x[i] = from[i];
        y[i] = from[i + 1];
    }
}

static bool get_many(ct_dataset *self, const int64_t *indices, int64_t n, ct_tensor **fields) {
    const text *set = ct_dataset_data(self);
    void *x, *y;
    fields[0] = ct__blank(CT_DIMS(n, set->length), CT_I64, &x);
    fields[1] = ct__blank(CT_DIMS(n, set->length), CT_I64, &y);
    if (!fields[0] || !fields[1]) return false;
    for (int64_t i = 0; i < n; i++)
        window(set, indices[i], (int64_t *)x + i * set->length, (int64_t *)y + i * set->length);
    return true;
}

static bool get(ct_dataset *self, int64_t index, ct_tensor **fields) {
    const text *set = ct_dataset_data(self);
    void *x, *y;
    fields[0] = ct__blank(CT_DIMS(set->length), CT_I64, &x);
    fields[1] = ct__blank(CT_DIMS(set->length), CT_I64, &y);
    if (!fields[0] || !fields[1]) return false;
    window(set, index, x, y);
    return true;
}

static void release(ct_dataset *self) {
    text *set = ct_dataset_data(self);
    ct_vocabulary_free(set->vocabulary);
    ct_free(set->all);
}

static const ct_dataset_class text_class = {.size = sizeof(ct_dataset_class),
                                            .name = "text",
                                            .state = sizeof(text),
                                            .fields = 2,
                                            .get = get,
                                            .get_many = get_many,
                                            .release = release};

const ct_vocabulary *ct_text_vocabulary(const ct_dataset *dataset) {
    return dataset && dataset->type == &text_class ? ((const text *)ct_dataset_data(dataset))->vocabulary : NULL;
}

/* Which of the numbers the dataset is about, and how many windows they make. */
static bool choose(ct_dataset *dataset, const char *path, int64_t count, const ct_text_options *o) {
    text *set = ct_dataset_data(dataset);
    int64_t cut = (int64_t)((double)count * (1 - (o->validation > 0 ? o->validation : 0.1)) + 1e-6);
    if (cut > count) cut = count;
    const int64_t begin = o->part == CT_TEXT_VALIDATION ? cut : 0, end = o->part == CT_TEXT_TRAIN ? cut : count;
    if (end - begin <= set->length)
        return ct_fail(CT_ERR_VALUE, "dataset_text",
                       "%s: this part of the text has %lld %s; items of %lld want one more", path,
                       (long long)(end - begin), o->bytes ? "bytes" : "characters", (long long)set->length);
    set->numbers = set->all + begin;
    dataset->count = (end - begin - set->length - 1) / set->stride + 1;
    dataset->classes = ct_vocabulary_size(set->vocabulary);
    return true;
}

static bool read_text(ct_dataset *dataset, const char *path, const ct_text_options *o) {
    text *set = ct_dataset_data(dataset);
    size_t size;
    char *bytes = (char *)ct__bytes_load(path, "dataset_text", 0, &size);
    if (!bytes) return false;
    if (o->vocabulary) set->vocabulary = ct_vocabulary_keep((ct_vocabulary *)o->vocabulary);
    else if (o->bytes) set->vocabulary = ct_vocabulary_bytes();
    else set->vocabulary = ct__vocabulary_of(bytes, size, "dataset_text", path);
    set->all = set->vocabulary ? ct__zeroed("dataset_text", (int64_t)size, sizeof *set->all) : NULL;
    int64_t count;
    const bool ok = set->all &&
                    ct__vocabulary_read(set->vocabulary, bytes, size, false, "dataset_text", set->all, &count) &&
                    choose(dataset, path, count, o);
    ct_free(bytes);
    return ok;
}

ct_dataset *ct_dataset_text_p(const char *path, int64_t length, const ct_text_options *options) {
    TAKE_OPTIONS(ct_text_options, o, options);
    if (!path) {
        ct__null("dataset_text", "path");
        return NULL;
    }
    if (length < 1 || o.stride < 0 || !(o.validation >= 0 && o.validation < 1) || (int)o.part < 0 ||
        o.part > CT_TEXT_VALIDATION) {
        ct_fail(CT_ERR_VALUE, "dataset_text",
                "length %lld, stride %lld, validation %g, part %d; expected a length of 1 or more and a fraction",
                (long long)length, (long long)o.stride, o.validation, (int)o.part);
        return NULL;
    }
    ct_dataset *dataset = ct_dataset_new(&text_class, 0);
    if (!dataset) return NULL;
    text *set = ct_dataset_data(dataset);
    set->length = length;
    set->stride = o.stride ? o.stride : length;
    if (read_text(dataset, path, &o)) return dataset;
    ct_dataset_free(dataset);
    return NULL;
}

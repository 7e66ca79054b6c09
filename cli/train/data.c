/* The data of a recipe: opens it, sets a part aside for validation, and finds out what task it is. */
#include "cli/train/learner.h"

#include <cotangent/dist.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const task_info tasks[] = {
    [TASK_CLASSIFICATION] = {"classification", "accuracy", true, true, "cross_entropy_loss"},
    [TASK_LANGUAGE] = {"language", "perplexity", false, false, "cross_entropy_loss"},
    [TASK_REGRESSION] = {"regression", "rmse", false, false, "mse_loss"},
    [TASK_SEGMENTATION] = {"segmentation", "iou", true, true, "cross_entropy_loss"},
};

/* Cuts the fraction `validation` off train. */
static bool split(learner *l) {
    const double held = l->recipe->data.validation;
    if (l->whole) {
        l->valid = ct_dataset_keep(l->train);
        return true;
    }
    ct_dataset *first = NULL, *second = NULL;
    if (!ct_dataset_split(l->train, 1 - held, (uint64_t)l->recipe->seed, &first, &second)) return false;
    ct_dataset_free(l->train);
    l->train = first;
    l->valid = second;
    return true;
}

static bool open_pair(learner *l, ct_dataset *(*open)(const char *path, bool train)) {
    l->train = open(l->recipe->data.path, true);
    l->valid = l->train ? open(l->recipe->data.path, false) : NULL;
    return l->valid != NULL;
}

static bool open_mnist(learner *l) { return open_pair(l, ct_dataset_mnist); }
static bool open_cifar(learner *l) { return open_pair(l, ct_dataset_cifar); }

/* A class whose folder holds nothing is likely a slip: of a path, or of files of another kind. */
static bool note_empty_folders(learner *l, ct_dataset *set, const char *path) {
    enum { NAMED = 3 };
    const int64_t classes = ct_dataset_classes(set);
    int64_t *items = calloc((size_t)classes + 1, sizeof *items), empty = 0;
    buffer notes = {0};
    if (!items) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int64_t i = 0; i < ct_dataset_count(set); i++) items[ct_dataset_label(set, i)]++;
    for (int64_t c = 0; c < classes; c++) {
        if (items[c]) continue;
        if (empty < NAMED) buffer_text(&notes, empty ? ", " : "no PNG or JPEG files are in ");
        if (empty++ >= NAMED) continue;
        buffer_clean(&notes, path, "");
        buffer_text(&notes, "/");
        buffer_clean(&notes, ct_dataset_class_name(set, c), "");
    }
    free(items);
    if (empty > NAMED) buffer_add(&notes, " and %lld more", (long long)(empty - NAMED));
    if (empty) buffer_add(&notes, ", so nothing is learned of %s", empty == 1 ? "that class" : "these classes");
    l->empty_folders = empty;
    return empty == 0 || learner_note(l, &notes);
}

static bool open_folder(learner *l) {
    static const char *const others[] = {"test", "val", "valid", "validation"};
    const recipe_data *data = &l->recipe->data;
    char train[4096], test[4096] = "";
    snprintf(train, sizeof train, "%s/train", data->path);
    if (!file_exists(train)) snprintf(train, sizeof train, "%s", data->path);
    else
        for (int i = 3; i >= 0; i--) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", data->path, others[i]);
            if (file_exists(path)) memcpy(test, path, sizeof test);
        }
    if (data->test[0]) snprintf(test, sizeof test, "%s", data->test);
    l->train = ct_dataset_folder(train, .resize = data->size, .gray = data->gray);
    if (!l->train || !note_empty_folders(l, l->train, train)) return false;
    if (!test[0]) return split(l);
    l->valid = ct_dataset_folder(test, .resize = data->size, .gray = data->gray);
    if (!l->valid) return false;
    for (int64_t i = 0;; i++) { /* the classes are counted by folder, so both have to have the same */
        const char *a = ct_dataset_class_name(l->train, i), *b = ct_dataset_class_name(l->valid, i);
        if (!a && !b) return true;
        if (!a || !b || strcmp(a, b) != 0)
            return ct_fail(CT_ERR_VALUE, NULL, "%s and %s have different classes: '%s' and '%s'", train, test,
                           a ? a : "none more", b ? b : "none more");
    }
}

static bool open_csv(learner *l) {
    const recipe_data *data = &l->recipe->data;
    const ct_csv_options options = {.size = sizeof options,
                                    .target = data->target[0] ? data->target : NULL,
                                    .separator = data->separator[0],
                                    .no_header = !data->header,
                                    .regression = data->regression,
                                    .categorical = data->categorical[0] ? data->categorical : NULL,
                                    .like = l->encoding};
    l->train = ct_dataset_csv_p(data->path, &options);
    if (!l->train) return false;
    if (!l->encoding) l->encoding = ct_dataset_keep(l->train);
    if (!data->test[0]) return split(l);
    ct_csv_options like = options;
    like.like = l->encoding;
    l->valid = ct_dataset_csv_p(data->test, &like);
    return l->valid != NULL;
}

/* The library's error, with the file in front where it does not name it. */
static bool fail_in(const char *path) { return strstr(ct_error(), path) ? false : recipe_fail_at(NULL, path); }

static bool open_text(learner *l) {
    const recipe_data *data = &l->recipe->data;
    const ct_text_options options = {.size = sizeof options,
                                     .stride = data->stride,
                                     .bytes = data->bytes,
                                     .part = CT_TEXT_TRAIN,
                                     .validation = data->validation,
                                     .vocabulary = l->vocabulary}; /* of a checkpoint, or NULL */
    l->train = ct_dataset_text_p(data->path, data->length, &options);
    if (!l->train) return fail_in(data->path);
    if (!l->vocabulary) l->vocabulary = ct_vocabulary_keep((ct_vocabulary *)ct_text_vocabulary(l->train));
    ct_text_options held = options;
    held.part = l->whole ? CT_TEXT_ALL : CT_TEXT_VALIDATION;
    held.vocabulary = l->vocabulary;
    held.stride = 0; /* every character once */
    l->valid = ct_dataset_text_p(data->path, data->length, &held);
    return l->valid || fail_in(data->path);
}

static bool open_drawn(learner *l, ct_dataset *(*draw)(int64_t count, int64_t size, uint64_t seed), int64_t usual) {
    const recipe_data *data = &l->recipe->data;
    const int64_t size = data->size ? data->size : usual, held = (int64_t)((double)data->count * data->validation);
    const uint64_t seed = (uint64_t)l->recipe->seed;
    l->train = draw(data->count, size, 2 * seed);
    l->valid = l->train ? draw(held > 0 ? held : 1, size, 2 * seed + 1) : NULL;
    return l->valid || recipe_fail_at(tree_get(l->recipe->root, "data"), "data");
}

static bool open_shapes(learner *l) { return open_drawn(l, ct_dataset_shapes, 28); }
static bool open_shape_masks(learner *l) { return open_drawn(l, ct_dataset_shape_masks, 48); }

static bool limit(learner *l) {
    const int64_t most = l->recipe->data.limit, count = ct_dataset_count(l->train);
    if (most == 0 || most >= count) return true;
    ct_dataset *first = NULL, *rest = NULL;
    /* half an item more, so that rounding down gives that number */
    if (!ct_dataset_split(l->train, ((double)most + 0.5) / (double)count, (uint64_t)l->recipe->seed, &first, &rest))
        return false;
    ct_dataset_free(rest);
    ct_dataset_free(l->train);
    l->train = first;
    return true;
}

static bool keep_class_names(learner *l) {
    buffer names = {0};
    for (int64_t i = 0; i < ct_dataset_classes(l->train); i++) {
        const char *name = ct_dataset_class_name(l->train, i);
        if (!name) break;
        if (i) buffer_text(&names, "\n");
        buffer_clean(&names, name, "");
    }
    buffer_bytes(&names, "", 0);
    if (names.failed) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    free(l->class_names);
    l->class_names = names.at;
    return true;
}

static bool fail_one_class(const learner *l) {
    const char *path = l->recipe->data.path[0] ? l->recipe->data.path : l->recipe->name;
    const char *only = ct_dataset_class_name(l->train, 0);
    const ct_csv_column *column = ct_csv_column_at(l->encoding, 0);
    for (int i = 1; column && !column->target; i++) column = ct_csv_column_at(l->encoding, i);
    if (column)
        return ct_fail(CT_ERR_VALUE, NULL,
                       "%s: the column %s holds '%s' in every row: there is nothing to tell apart; data.target names "
                       "another column",
                       path, column->name, only ? only : "");
    return ct_fail(CT_ERR_VALUE, NULL, "%s: there is only one class, %s: nothing to tell apart", path,
                   only ? only : "0");
}

/* What one item is. */
static bool look(learner *l) {
    const recipe_data *data = &l->recipe->data;
    ct_scope {
        ct_tensor *fields[2] = {NULL, NULL};
        if (!ct_dataset_get(l->train, 0, fields, 2)) return false;
        l->item = ct_shape(fields[0]);
        l->task = data->kind == DATA_text                      ? TASK_LANGUAGE
                  : data->kind == DATA_shape_masks             ? TASK_SEGMENTATION
                  : data->kind == DATA_csv && data->regression ? TASK_REGRESSION
                                                               : TASK_CLASSIFICATION;
        if (l->task == TASK_REGRESSION) l->classes = ct_numel(fields[1]);
    }
    if (l->task == TASK_LANGUAGE) l->classes = ct_vocabulary_size(l->vocabulary);
    if (l->task == TASK_CLASSIFICATION || l->task == TASK_SEGMENTATION) l->classes = ct_dataset_classes(l->train);
    if (l->task == TASK_CLASSIFICATION && l->classes < 2) return fail_one_class(l);
    return keep_class_names(l);
}

bool learner_open_data(learner *l) {
    static bool (*const open[])(learner *) = {
#define KIND(name, fields, doc) open_##name,
#include "cli/train/recipe.def"
#undef KIND
    };
    const recipe_data *data = &l->recipe->data;
    if (data->kind != DATA_shapes && data->kind != DATA_shape_masks && !data->path[0])
        return ct_fail(CT_ERR_VALUE, NULL, "%s: where is the data? --data %s says so", l->recipe->name,
                       data->kind == DATA_csv || data->kind == DATA_text ? "FILE" : "FOLDER");
    if (!open[data->kind](l) || !limit(l)) return false;
    if (ct_dataset_count(l->train) < 1 || ct_dataset_count(l->valid) < 1)
        return ct_fail(CT_ERR_VALUE, NULL, "%s: %lld items to train on and %lld to validate on are too few",
                       data->path[0] ? data->path : l->recipe->name, (long long)ct_dataset_count(l->train),
                       (long long)ct_dataset_count(l->valid));
    return look(l);
}

/* The first class that differs from what it was in the training. */
static bool fail_classes(const learner *now, const learner *before) {
    int64_t i = 0;
    while (i < now->classes && i < before->classes &&
           strcmp(learner_class_name(now, i), learner_class_name(before, i)) == 0)
        i++;
    return ct_fail(CT_ERR_VALUE, NULL,
                   "%s: the data has %lld classes and the network %lld; class %lld is %s in the data and %s in the "
                   "network",
                   now->recipe->data.path, (long long)now->classes, (long long)before->classes, (long long)i,
                   i < now->classes ? learner_class_name(now, i) : "none",
                   i < before->classes ? learner_class_name(before, i) : "none");
}

bool learner_open_other(learner *l, recipe *own, const char *path) {
    const int64_t classes = l->classes;
    const ct_dims item = l->item;
    char *names = l->class_names;
    l->class_names = NULL;
    l->whole = path != NULL;
    if (path) {
        own->data.path = path;
        own->data.test = "";
    }
    bool right = learner_open_data(l);
    if (right && (l->classes != classes || strcmp(names, l->class_names) != 0))
        right = fail_classes(l, &(learner){.class_names = names, .classes = classes});
    for (int i = 0; right && (i < item.n || item.n != l->item.n); i++)
        if (item.n != l->item.n || item.d[i] != l->item.d[i])
            right = ct_fail(CT_ERR_SHAPE, NULL, "%s: an item of the data is %s, the network was trained on %s",
                            own->data.path, ct_dims_text(l->item), ct_dims_text(item));
    free(names);
    return right;
}

ct_loader *learner_valid_batches(const learner *l) {
    /* larger batches than in training are faster where no gradient is kept */
    const bool large =
        l->task == TASK_LANGUAGE || l->task == TASK_SEGMENTATION; /* outputs that are as large as the items */
    const int64_t batch = large || l->recipe->batch > 250 ? l->recipe->batch : 250;
    /* several processes take the batches in turn: what each computes with is as large as where there is one */
    const int ranks = l->divided ? 1 : ct_dist_size(); /* of a divided network a pass is one of all processes */
    return ct_batches(l->valid, batch * ranks, .threads = CT_SET(l->recipe->loader_threads), .device = l->device,
                      .parts = ranks, .part = l->divided ? 0 : ct_dist_rank());
}

/* ---- Statistics ---- */

enum { SAMPLED = 4096 };

typedef struct moments {
    double sum, squares;
    int64_t n;
} moments;

static double moments_std(const moments *m) {
    const double mean = m->sum / (double)m->n, variance = m->squares / (double)m->n - mean * mean;
    return variance > 1e-12 ? sqrt(variance) : 1;
}

/* Adds x to the moments of its first axis. */
static bool add_item(ct_tensor *x, moments *to, int64_t channels, double scale) {
    const int64_t inner = ct_numel(x) / channels;
    x = ct_contiguous(ct_cast(x, CT_F32));
    const float *at = ct_data(x);
    for (int64_t c = 0; at && c < channels; c++)
        for (int64_t i = 0; i < inner; i++) {
            const double value = scale * (double)at[c * inner + i];
            to[c].sum += value;
            to[c].squares += value * value;
            to[c].n++;
        }
    return at != NULL;
}

static bool add_sampled(learner *l, moments *inputs, int64_t channels, moments *target) {
    const int64_t count = ct_dataset_count(l->train), stride = count > SAMPLED ? count / SAMPLED : 1;
    for (int64_t i = 0; i < count; i += stride) {
        bool right = true;
        ct_scope {
            ct_tensor *fields[2] = {NULL, NULL};
            right = ct_dataset_get(l->train, i, fields, 2) &&
                    add_item(fields[0], inputs, channels, ct_dtype_of(fields[0]) == CT_U8 ? 1.0 / 255 : 1) &&
                    (l->task != TASK_REGRESSION || add_item(ct_reshape(fields[1], CT_DIMS(1, -1)), target, 1, 1));
        }
        if (!right) return false;
    }
    return true;
}

static bool set_statistics(learner *l, const float *mean, const float *std, int64_t n) {
    ct_dims shape = {.n = l->item.n + 1};
    for (int i = 0; i < shape.n; i++) shape.d[i] = i == 1 ? n : 1;
    ct_scope {
        l->mean = ct_keep(ct_from_data(mean, shape, CT_F32));
        l->std = ct_keep(ct_from_data(std, shape, CT_F32));
    }
    return l->mean && l->std;
}

bool learner_measure(learner *l) {
    const recipe *r = l->recipe;
    l->target_mean = 0;
    l->target_std = 1;
    if (l->task == TASK_LANGUAGE || l->item.n < 1) return true;
    const int64_t channels = l->item.d[0];
    moments *inputs = calloc((size_t)channels, sizeof *inputs), target = {0};
    float *mean = calloc((size_t)channels, sizeof *mean), *std = calloc((size_t)channels, sizeof *std);
    bool right = inputs && mean && std;
    if (!right) ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    if (right && (r->normalize == NORMALIZE_AUTO || l->task == TASK_REGRESSION))
        right = add_sampled(l, inputs, channels, &target);
    if (right && l->task == TASK_REGRESSION) {
        l->target_mean = target.sum / (double)target.n;
        l->target_std = moments_std(&target);
    }
    if (right && r->normalize == NORMALIZE_GIVEN && r->channels != 1 && r->channels != channels)
        right = tree_fail(tree_get(r->root, "normalize"), "normalize has %d numbers and the data %lld channels",
                          r->channels, (long long)channels);
    for (int64_t c = 0; right && c < channels; c++) {
        const bool given = r->normalize == NORMALIZE_GIVEN;
        const int64_t which = r->channels == 1 ? 0 : c;
        mean[c] = (float)(given ? r->mean[which] : inputs[c].sum / (double)inputs[c].n);
        std[c] = (float)(given ? r->std[which] : moments_std(&inputs[c]));
    }
    if (right && r->normalize != NORMALIZE_NONE) right = set_statistics(l, mean, std, channels);
    free(inputs);
    free(mean);
    free(std);
    return right;
}

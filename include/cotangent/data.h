/* Data: datasets, transforms, samplers, and the loader that turns them into batches on threads of its own. Everything
 * random here is drawn from (seed, epoch, item), so batches are the same at any number of loader threads. Where an item
 * comes more than once in an epoch, each time is another draw.
 *
 *     ct_dataset *train = ct_dataset_mnist("/usr/share/datasets/fashion-mnist", true);
 *     ct_loader *batches = ct_batches(train, 128, .shuffle = true, .seed = 1,
 *                                     .transform = ct_transform_chain(ct_transform_random_crop(28, 28, 2),
 *                                                                     ct_transform_flip(0.5)));
 *     for (int epoch = 0; epoch < 10; epoch++)
 *         for (ct_batch b; ct_next(batches, &b);) ct_scope { ... b.x, b.y ... }
 *     ct_loader_free(batches);
 *     ct_dataset_free(train);
 *
 * Who owns what: datasets are counted, and whatever is built on one (a subset, a loader) keeps it, so free yours when
 * you need it no more. Transforms and samplers are given away to what takes them (a chain, a loader), even when that
 * fails; ct_transform_keep makes a further reference to give away. Images are [channels, height, width].
 *
 * Threads: a loader has threads of its own, which call the get of a dataset and the apply of a transform, several at once: a class of
 * your own keeps no state in them without a lock. Making, ct_next, the loader's state and freeing it are for one thread at a time; a
 * dataset may serve several loaders, threads and ct_dataset_get at once. Counts of references are atomic. */
#ifndef COTANGENT_DATA_H
#define COTANGENT_DATA_H

#include <cotangent.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_MAX_FIELDS = 4 }; /* tensors an item: x; x, y; ... */

/* ---- Random numbers of one item ------------------------------------------------------------------ */

/* A short-lived source of random numbers that depends on (seed, epoch, item) alone. */
typedef struct ct_draw ct_draw;
CT_API double ct_draw_uniform(ct_draw *draw);            /* in [0, 1) */
CT_API int64_t ct_draw_below(ct_draw *draw, int64_t n);  /* 0 .. n - 1; 0 when n < 1 */
CT_API double ct_draw_normal(ct_draw *draw);             /* mean 0, deviation 1 */
CT_API double ct_draw_beta(ct_draw *draw, double alpha); /* of the distribution beta(alpha, alpha) */
CT_API ct_rng *ct_draw_rng(ct_draw *draw); /* the same as a generator for ops; belongs to the draw. NULL: no memory */

/* ---- Datasets ------------------------------------------------------------------------------------ */

/* Items by index, each of one or more tensors on the CPU, of the same shapes and dtypes for every item unless a
 * transform makes them so. Read from several threads at once. */
typedef struct ct_dataset ct_dataset;

/* A kind of dataset. Fill one (constant, it outlives its datasets) for data of your own. Its functions are called from
 * several threads at once. Ops that they call run beside the training, so keep them small. */
typedef struct ct_dataset_class {
    size_t size;      /* sizeof(ct_dataset_class): later versions add at its end */
    const char *name; /* for errors */
    size_t state;     /* bytes of plain data, zeroed at first: ct_dataset_data */
    int fields;       /* tensors an item, 1 to CT_MAX_FIELDS */
    /* The item, as tensors of the current scope. */
    bool (*get)(ct_dataset *self, int64_t index, ct_tensor **fields);
    /* Several at once, stacked along a new first axis, where that is faster; may be NULL. */
    bool (*get_many)(ct_dataset *self, const int64_t *indices, int64_t n, ct_tensor **fields);
    /* The class of an item without reading the rest of it; may be NULL. */
    int64_t (*label)(ct_dataset *self, int64_t index);
    /* Frees what the plain data owns; may be NULL. */
    void (*release)(ct_dataset *self);
    /* The item with random numbers of (seed, epoch, item), for data that is made or changed at random: where it is
     * there, it is called instead of get, which may then be NULL. Outside of a loader seed and epoch are 0. */
    bool (*get_drawn)(ct_dataset *self, int64_t index, ct_draw *draw, ct_tensor **fields);
} ct_dataset_class;

CT_API ct_dataset *ct_dataset_new(const ct_dataset_class *type, int64_t count);
CT_API ct_dataset *ct_dataset_keep(ct_dataset *dataset);
CT_API void ct_dataset_free(ct_dataset *dataset);
CT_API void *ct_dataset_data(const ct_dataset *dataset);
CT_API const ct_dataset_class *ct_dataset_type(const ct_dataset *dataset);
CT_API int64_t ct_dataset_count(const ct_dataset *dataset);
CT_API int ct_dataset_fields(const ct_dataset *dataset);
/* One item, as tensors of the current scope; n is how many of its fields are wanted. */
CT_API bool ct_dataset_get(ct_dataset *dataset, int64_t index, ct_tensor **fields, int n);
/* The class of an item: its field 1, an integer. -1 with an error where it has none. */
CT_API int64_t ct_dataset_label(ct_dataset *dataset, int64_t index);
/* How many classes (0: not a classification), and their names: NULL past the end or when the data has none. */
CT_API int64_t ct_dataset_classes(const ct_dataset *dataset);
CT_API const char *ct_dataset_class_name(const ct_dataset *dataset, int64_t label);
/* Says so for data of your own; names may be NULL and are copied. */
CT_API bool ct_dataset_set_classes(ct_dataset *dataset, int64_t classes, const char *const *names);

/* IDX files, the format of MNIST, gzipped or not, of any dtype and rank: images [n, ...] and, unless labels is NULL, as
 * many labels [n], which become i64. An item of two dimensions gets a channel in front: [1, height, width]. */
CT_API ct_dataset *ct_dataset_idx(const char *images, const char *labels);
/* One IDX file as a tensor of the current scope. */
CT_API ct_tensor *ct_idx_load(const char *path);
/* The training or the test part of MNIST or a relative of it, by the usual names (train-images-idx3-ubyte.gz, ...) in a
 * folder. The classes are the digits, or those of Fashion-MNIST where the path says "fashion". */
CT_API ct_dataset *ct_dataset_mnist(const char *folder, bool train);

/* CIFAR-10 or CIFAR-100 in the binary version: a file, or a folder with the usual files (data_batch_1.bin ...,
 * test_batch.bin; or train.bin, test.bin), also one folder below. Which of the two it is, is told by names and sizes.
 * Labels of CIFAR-100 are the 100 fine ones. Names of classes are read from batches.meta.txt or fine_label_names.txt
 * beside the files; the ten are known. */
CT_API ct_dataset *ct_dataset_cifar(const char *path, bool train);

/* A folder with a subfolder of PNG or JPEG files for each class; classes in order of their names. Images are read when
 * they are wanted, on the loader's threads, as u8 [3, height, width] ([1, ...] with gray). */
typedef struct ct_folder_options {
    size_t size;
    int64_t resize;        /* every image to this many pixels squared; 0: as they are */
    int64_t height, width; /* or to these; both are wanted */
    bool gray;
    int64_t max_pixels; /* an image of more is an error when it is wanted; 0: 2^28 */
} ct_folder_options;
CT_API ct_dataset *ct_dataset_folder_p(const char *path, const ct_folder_options *options);
/* The path of an image; NULL past the end. */
CT_API const char *ct_folder_file(const ct_dataset *dataset, int64_t index);

/* A table in a text file: x f32 [columns without the target]; y i64 [], a class, or f32 [1] with regression. A column
 * whose first value is not a number, or which is listed as categorical, or which is the target of a classification,
 * holds categories: their numbers are the positions of the distinct texts in sorted order, sorted as numbers where all
 * of them are whole. Any other value that is not a number, and one that is missing (nothing, NA, N/A, NaN, null or ?),
 * is an error that names file, line and column. Fields in double quotes may hold separators, line ends and doubled
 * quotes. */
typedef struct ct_csv_options {
    size_t size;
    const char *target;      /* the column to predict, by name, or by number from 0 (-1: last). Default: the last one */
    char separator;          /* ',' */
    bool no_header;          /* the first line is data; columns are then named by their numbers */
    bool regression;         /* y is a number, not a class */
    bool standardize;        /* numeric columns of x to mean 0 and deviation 1 */
    const char *categorical; /* names of columns, with the separator between them, that hold categories in any case */
    const ct_dataset *like;  /* another CSV dataset (the training set), whose target, task, categories, means and
                                deviations are taken; its columns have to be the same */
    bool unlabeled; /* with like: there is nothing to compare with. The target's column may be absent, and is not
                                read where it is there; items have the one field x */
} ct_csv_options;
CT_API ct_dataset *ct_dataset_csv_p(const char *path, const ct_csv_options *options);
typedef struct ct_csv_column {
    const char *name;
    bool target;
    int64_t categories; /* 0: numbers */
    double mean, std;   /* of the numbers as they are in the file; std is that of n, not n - 1 */
} ct_csv_column;
/* The i-th column of the file; NULL past the end and for another kind of dataset. And the text of one of its
 * categories. */
CT_API const ct_csv_column *ct_csv_column_at(const ct_dataset *dataset, int i);
CT_API const char *ct_csv_category(const ct_dataset *dataset, int i, int64_t number);
/* How the numbers of a CSV dataset were made of its file (columns, target, categories, means and deviations), under names
 * that begin with prefix; and from there a dataset without items, for .like: so a network can be given a file long after its
 * training set is gone. ct_csv_take_state is NULL with an error when that is not stored there. */
CT_API bool ct_csv_put_state(const ct_dataset *dataset, ct_state *state, const char *prefix);
CT_API ct_dataset *ct_csv_take_state(const ct_state *state, const char *prefix);

/* What a text is made of: its bytes (256 numbers), or the characters (of UTF-8) that occur, sorted. */
typedef struct ct_vocabulary ct_vocabulary;
CT_API ct_vocabulary *ct_vocabulary_bytes(void);
/* The distinct characters of a text of that many bytes. Text that is not UTF-8 is an error. */
CT_API ct_vocabulary *ct_vocabulary_characters(const char *text, size_t bytes);
CT_API ct_vocabulary *ct_vocabulary_keep(ct_vocabulary *vocabulary);
CT_API void ct_vocabulary_free(ct_vocabulary *vocabulary);
CT_API int64_t ct_vocabulary_size(const ct_vocabulary *vocabulary);
/* All its characters, in order, as UTF-8: ct_vocabulary_characters of it gives it back. "" for bytes. */
CT_API const char *ct_vocabulary_text(const ct_vocabulary *vocabulary);
/* i64 [length] of a text. A character that is not in the vocabulary is an error that names it, or, with skip, left
 * out. */
CT_API ct_tensor *ct_vocabulary_encode(const ct_vocabulary *vocabulary, const char *text, size_t bytes, bool skip);
/* Writes the bytes that stand for one number and returns how many (at most 4); 0 for a number that stands for none. */
CT_API int ct_vocabulary_decode(const ct_vocabulary *vocabulary, int64_t number, char bytes[4]);

/* A text for a language model: x i64 [length], and y the same one further. */
typedef enum ct_text_part { CT_TEXT_ALL = 0, CT_TEXT_TRAIN, CT_TEXT_VALIDATION } ct_text_part;
typedef struct ct_text_options {
    size_t size;
    int64_t stride;                  /* from the start of one item to that of the next; default: length */
    bool bytes;                      /* bytes, not characters */
    ct_text_part part;               /* the first part, all but the fraction `validation` of it, or the last */
    double validation;               /* 0.1 */
    const ct_vocabulary *vocabulary; /* to be used instead of the one made from the whole file */
} ct_text_options;
CT_API ct_dataset *ct_dataset_text_p(const char *path, int64_t length, const ct_text_options *options);
CT_API const ct_vocabulary *ct_text_vocabulary(const ct_dataset *dataset); /* NULL for another kind of dataset */

/* Tensors in memory whose first axes are as long as each other: item i is their i-th parts. They are kept, not copied,
 * unless they are not contiguous. Integers [n] in field 1 are labels: they become i64, and the classes are counted. */
CT_API ct_dataset *ct_dataset_tensors(ct_tensor *const *fields, int n);
/* Drawn shapes in ten classes (circle, ring, square, frame, triangle, cross, ...) of random place, size, gray and
 * slant under noise: u8 [1, size, size] and the class. Item i is the same for a seed whatever the count. size is
 * at least 12. */
CT_API ct_dataset *ct_dataset_shapes(int64_t count, int64_t size, uint64_t seed);
/* One to three of these shapes (circle, ring, square, triangle, cross) in an image, with the class of every pixel: u8 [1, size,
 * size] and u8 [size, size], where 0 is the background and the shapes count from 1. One that was drawn later is in front. */
CT_API ct_dataset *ct_dataset_shape_masks(int64_t count, int64_t size, uint64_t seed);

/* Some of the items, in that order, also repeatedly; all items of several datasets, one after the other, whose fields
 * have to be as many; two parts at random, the first with `fraction` of the items (rounded down), the rest in the
 * second. Datasets made of datasets go at most 256 deep. */
CT_API ct_dataset *ct_dataset_subset(ct_dataset *dataset, const int64_t *indices, int64_t n);
CT_API ct_dataset *ct_dataset_range(ct_dataset *dataset, int64_t begin, int64_t end);
CT_API ct_dataset *ct_dataset_concat(ct_dataset *const *datasets, int n);
CT_API bool ct_dataset_split(ct_dataset *dataset, double fraction, uint64_t seed, ct_dataset **first,
                             ct_dataset **second);

/* ---- Transforms ---------------------------------------------------------------------------------- */

/* What happens to an item on its way into a batch, or to a batch. Those below change field 0, an image [channels,
 * height, width]. Where field 1 holds integers [height, width] of that image, the class of each pixel, then pads, crops and
 * flips move it along, with zeros where the image has none; the others leave it alone. Moving pixels (crop, flip, pad,
 * erase) keeps the dtype; every other one takes u8 (as 0 .. 1) or f32 and gives f32. */
typedef struct ct_transform ct_transform;

typedef struct ct_transform_class {
    size_t size; /* sizeof(ct_transform_class): later versions add at its end */
    const char *name;
    size_t state; /* bytes of plain data, zeroed at first: ct_transform_data */
    /* Replaces the fields of one item that it changes. Called from several threads at once. One of the two may be
     * NULL. */
    bool (*item)(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw);
    /* The same for a batch, after every item was transformed and stacked; classes is that of the dataset. */
    bool (*batch)(ct_transform *self, ct_tensor **fields, int n, int64_t classes, ct_draw *draw);
    void (*release)(ct_transform *self); /* may be NULL */
} ct_transform_class;
CT_API ct_transform *ct_transform_new(const ct_transform_class *type);
CT_API ct_transform *ct_transform_keep(ct_transform *transform);
CT_API void ct_transform_free(ct_transform *transform);
CT_API void *ct_transform_data(const ct_transform *transform);
/* By hand: one item (batch false) or batch, with random numbers of (seed, epoch, item). */
CT_API bool ct_transform_apply(ct_transform *transform, ct_tensor **fields, int n, bool batch, int64_t classes,
                               uint64_t seed, int64_t epoch, int64_t item);

/* One after the other. ct_transform_chain(a, b, ...) is the same with the transforms in the call; a NULL among them,
 * after an error, makes the whole NULL. */
CT_API ct_transform *ct_transform_list(ct_transform *const *transforms, int n);

CT_API ct_transform *ct_transform_float(void); /* f32; u8 divided by 255 */
/* (x - mean) / std, for each of n channels; n is 1 (for all) or the number of channels. u8 is divided by 255 first. */
CT_API ct_transform *ct_transform_normalize(const double *mean, const double *std, int n);
/* A frame of so many pixels; for images of u8 the value is in 0 .. 1 too. */
CT_API ct_transform *ct_transform_pad(int64_t pixels, double value);
CT_API ct_transform *ct_transform_center_crop(int64_t height, int64_t width);
/* Anywhere in the image padded by `pad` zeros on each side. */
CT_API ct_transform *ct_transform_random_crop(int64_t height, int64_t width, int64_t pad);
CT_API ct_transform *ct_transform_resize(int64_t height, int64_t width); /* bilinear; smoothed where it shrinks */
/* A part of a random area (fraction min_area to max_area) and of a proportion of 3:4 to 4:3, resized. */
CT_API ct_transform *ct_transform_random_resized_crop(int64_t height, int64_t width, double min_area, double max_area);
CT_API ct_transform *ct_transform_flip(double p);          /* left to right, with probability p */
CT_API ct_transform *ct_transform_flip_vertical(double p); /* upside down */
/* By an angle, in degrees against the clock, about the middle; what comes from outside is 0. Bilinear, or nearest. */
CT_API ct_transform *ct_transform_rotate(double degrees, bool nearest);
CT_API ct_transform *ct_transform_random_rotate(double degrees, bool nearest); /* in -degrees .. degrees */
/* Brightness, contrast and saturation by a random factor in 1 - x .. 1 + x (not below 0), hue turned by -x .. x of a
 * circle (x up to 0.5), in this order. Zero leaves one alone. The last two want three channels. */
CT_API ct_transform *ct_transform_color_jitter(double brightness, double contrast, double saturation, double hue);
/* The same by these factors (1: no change), with the hue turned by -0.5 .. 0.5 of the circle (0: no change). */
CT_API ct_transform *ct_transform_color(double brightness, double contrast, double saturation, double hue);
CT_API ct_transform *ct_transform_cutout(int64_t size, double p); /* a square of zeros, anywhere, cut at the borders */
/* A rectangle of min_area to max_area of the image, of a proportion of 0.3 to 3.3, filled with value. */
CT_API ct_transform *ct_transform_erase(double p, double min_area, double max_area, double value);
CT_API ct_transform *ct_transform_gray(int64_t channels); /* 1 or 3 of the same: 0.2989 r + 0.587 g + 0.114 b */
/* On batches, with labels [n] in field 1, which become f32 [n, classes]: each item mixed with another of the batch,
 * weights of beta(alpha, alpha); or with a rectangle of another put in, labels by area. With probability p a batch.
 * The dataset has to know its classes. */
CT_API ct_transform *ct_transform_mixup(double alpha, double p);
CT_API ct_transform *ct_transform_cutmix(double alpha, double p);
/* A function of yours for each item; release, if given, is called with context at the end. */
typedef bool (*ct_transform_fn)(void *context, ct_tensor **fields, int n, ct_draw *draw);
CT_API ct_transform *ct_transform_call(ct_transform_fn fn, void *context, void (*release)(void *context));
/* A dataset whose items are those of another, transformed. */
CT_API ct_dataset *ct_dataset_map(ct_dataset *dataset, ct_transform *transform);

/* The transforms by name, for programs that read them from a file: every setting is a number. */
typedef struct ct_transform_info {
    const char *name, *doc;
    const ct_setting *settings; /* NaN as a default: it has to be given */
    int count;
    ct_transform *(*build)(const double *values);
} ct_transform_info;
CT_API const ct_transform_info *ct_transform_find(const char *name); /* NULL when there is none */
CT_API const ct_transform_info *ct_transform_at(int i);              /* NULL past the end */
/* values: one for each setting, in their order; NULL: the defaults. */
CT_API ct_transform *ct_transform_build(const ct_transform_info *info, const double *values);

/* ---- Samplers ------------------------------------------------------------------------------------ */

/* Which items make an epoch, and in which order. */
typedef struct ct_sampler ct_sampler;
/* Fills in n indices of items of the dataset. Must depend on nothing that changes but draw, which is of (seed,
 * epoch). */
typedef bool (*ct_sampler_fn)(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw);
CT_API ct_sampler *ct_sampler_sequential(void);
CT_API ct_sampler *ct_sampler_random(void); /* every item once: what .shuffle does */
/* `items` of them (0: as many as there are), each drawn from all. */
CT_API ct_sampler *ct_sampler_replacement(int64_t items);
/* The same, item i with a chance in proportion to weights[i]; as many weights as the dataset has items. */
CT_API ct_sampler *ct_sampler_weighted(const double *weights, int64_t count, int64_t items);
CT_API ct_sampler *ct_sampler_balanced(int64_t items); /* every class that occurs as likely, then its items */
CT_API ct_sampler *ct_sampler_subset(const int64_t *indices, int64_t n); /* these, in random order */
CT_API ct_sampler *ct_sampler_call(ct_sampler_fn fn, void *context, int64_t items, void (*release)(void *context));
CT_API void ct_sampler_free(ct_sampler *sampler);

/* ---- The loader ---------------------------------------------------------------------------------- */

typedef struct ct_loader ct_loader;
typedef struct ct_batches_options {
    size_t size;
    bool shuffle;            /* every epoch in another order */
    bool drop_last;          /* no last batch that is smaller than the others */
    ct_opt threads;          /* 1. CT_SET(0): everything is done in ct_next */
    int prefetch;            /* batches made ahead; default: threads + 1 */
    uint64_t seed;           /* of everything random */
    ct_sampler *sampler;     /* instead of shuffle; given away */
    ct_transform *transform; /* given away */
    bool raw;                /* field 0 as it is; otherwise u8 becomes f32 in 0 .. 1 after the transforms */
    ct_opt pad;              /* items of different shapes are filled up with this, at the end of each axis */
    ct_device device;        /* where batches are brought ahead, on a stream of the loader's; {}: the current one */
    /* For processes that share an epoch: every batch is cut into `parts` of as many items (the first ones have one more where it does not come out even, the
     * last ones of a smaller batch fewer, or none), and ct_next gives part_count of them (0: one) from `part` on, one after the other. 0: batches are whole. What is counted
     * (batches, items, positions) and stored is of whole batches, so a state is taken back by a loader of other parts. */
    int parts, part, part_count;
} ct_batches_options;
CT_API ct_loader *ct_batches_p(ct_dataset *dataset, int64_t batch, const ct_batches_options *options);

typedef struct ct_batch {
    int64_t n;               /* items in it */
    ct_tensor *x, *y;        /* field[0] and field[1] */
    ct_tensor *const *field; /* CT_MAX_FIELDS, NULL where there is no such field */
    const int64_t *index;    /* which items, n of them */
    const int64_t *length;   /* with .pad: the first dimension of field 0 of each; otherwise NULL */
    int64_t epoch, position; /* of this batch: epoch from 0, batches before it in the epoch */
    int part;                /* of the batch, with .parts */
} ct_batch;

/* True with the next batch; false at the end of an epoch (the next call begins another one) and on an error. An error
 * in a loader thread arrives here with its text, at the batch that it belongs to; once it is cleared, the next call
 * goes on behind that batch. While an error is pending it returns false and nothing moves. One thread at a time. Tensors and
 * lists of the batch are the loader's, until the next call or ct_loader_free. size is sizeof(ct_batch) as the caller knows it, so
 * that a batch may grow: ct_next(loader, &batch) says it. */
CT_API bool ct_next_p(ct_loader *loader, ct_batch *batch, size_t size);
#define ct_next(loader, batch) ct_next_p((loader), (batch), sizeof(ct_batch))
CT_API void ct_loader_free(ct_loader *loader);
CT_API int64_t ct_loader_batches(const ct_loader *loader); /* an epoch */
CT_API int64_t ct_loader_items(const ct_loader *loader);   /* an epoch, without those that drop_last drops */
CT_API ct_dataset *ct_loader_dataset(const ct_loader *loader);
/* Back to the first batch of an epoch (from 0); what was prefetched is thrown away. */
CT_API bool ct_loader_seek(ct_loader *loader, int64_t epoch);

/* Where the next ct_next begins, with the seed. It is taken back by a loader of as many items and the same batch size;
 * with the same sampler and transform, at any number of threads, the batches that follow are the same, bit for bit. */
CT_API bool ct_loader_put_state(ct_loader *loader, ct_state *state, const char *prefix);
CT_API bool ct_loader_take_state(ct_loader *loader, const ct_state *state, const char *prefix);

#ifndef __cplusplus
#define ct_transform_chain(...)                             \
    ct_transform_list((ct_transform *const[]){__VA_ARGS__}, \
                      (int)(sizeof((ct_transform *[]){__VA_ARGS__}) / sizeof(ct_transform *)))
#endif

#ifdef __cplusplus
}
#endif

#include <cotangent/data_options.h> /* ct_batches(train, 128, .shuffle = true) and so on, over the functions ending in _p */

#endif

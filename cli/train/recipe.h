/* A recipe: what to train, on what, and how. Read from YAML, checked against the tables of the library: an unknown name is
 * an error with file, line and the nearest that is known. */
#ifndef COTANGENT_CLI_TRAIN_RECIPE_H
#define COTANGENT_CLI_TRAIN_RECIPE_H

#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/op.h>
#include <cotangent/optim.h>
#include <cotangent/train.h>

#include "cli/train/tree.h"

enum {
    MOST_EPOCHS = 1000000,
    MOST_SETTINGS = 32,
    MOST_TRANSFORMS = 16,
    MOST_GROUPS = 8,
    MOST_CHANNELS = 8,
    MOST_METRICS = 8,
    MOST_FROZEN = 16,
    MOST_RENAMES = 16
};

/* Something chosen by name, with a value for each of its settings. */
typedef struct part {
    const tree *node; /* for messages; NULL when the recipe says nothing of it */
    const char *name;
    const void *info; /* the library's */
    double values[MOST_SETTINGS];
    bool given[MOST_SETTINGS];
} part;

typedef enum data_kind {
#define KIND(name, fields, doc) DATA_##name,
#include "cli/train/recipe.def"
#undef KIND
} data_kind;

typedef struct recipe_data {
    data_kind kind;
#define CLI_FIELD_TEXT                const char *
#define CLI_FIELD_CHARACTER           const char *
#define CLI_FIELD_NUMBER              double
#define CLI_FIELD_INTEGER             int64_t
#define CLI_FIELD_BOOL                bool
#define FIELD(type, name, value, doc) CLI_FIELD_##type name;
#include "cli/train/recipe.def"
#undef FIELD
} recipe_data;

typedef struct recipe {
    char *name;   /* "fashion-mnist-cnn" */
    char *source; /* the file it came from, for messages */
    tree *root;
    const char *about;
    part model, optimizer, schedule; /* schedule.info NULL: none */
    part transforms[MOST_TRANSFORMS];
    int transform_count;
    struct {
        const char *file; /* NULL: random weights */
        bool partial;     /* what fits by name and shape; otherwise all has to */
        const tree *node, *frozen[MOST_FROZEN];
        ct_rename renames[MOST_RENAMES];
        int frozen_count, rename_count;
    } init;
    const ct_op *loss; /* NULL: what suits the data */
    void *loss_options;
    recipe_data data;
    enum { NORMALIZE_AUTO, NORMALIZE_NONE, NORMALIZE_GIVEN } normalize;
    double mean[MOST_CHANNELS], std[MOST_CHANNELS];
    int channels; /* of mean and std */
    struct {
        const char *pattern;
        ct_group_options options;
        const tree *node;
    } groups[MOST_GROUPS];
    int group_count;
    const char *metrics[MOST_METRICS];
    int metric_count;
    ct_dtype precision;
    bool tf32; /* precision is f32, on a device with Tensor Cores in TF32 */
    int64_t epochs, batch, seed, early_stopping, loader_threads, accumulate, shards;
    struct {
        const tree *node;
        int64_t shard, tensor; /* 0: no */
        bool bf16, sync_batch_norm;
    } distributed;
    ct_train_mode capture;
    bool recompute, channels_last; /* of captured steps */
    double clip_norm, ema, checkpoint_seconds;
} recipe;

/* A recipe by name (one that ships) or from a file. sets: "key.path=value" each. NULL with an error. */
recipe *recipe_open(const char *name, const char *const *sets, int n);
/* From text: of a checkpoint, or of a fuzzer. source is for messages and copied. */
recipe *recipe_parse(const char *text, size_t n, const char *name, const char *source, const char *const *sets,
                     int set_count);
bool recipe_exists(const char *name); /* one that ships, or a file */
void recipe_free(recipe *r);
bool recipe_capture(const char *text,
                    ct_train_mode *mode); /* true, false or auto; false: it is none of them, without an error */
/* All of it in one form, for checkpoints and the report. */
bool recipe_text(const recipe *r, buffer *b);
/* An error unless both would train the same: all but where the data lies and, where that was asked for, the epochs. */
bool recipe_check_same(const recipe *now, const recipe *before, const char *folder, bool other_epochs);
/* An error unless it is the recipe of rank 0, of which that is the text; where data lies may differ from machine to machine. */
bool recipe_check_rank(const recipe *mine, int rank, const char *text, size_t n);
bool recipe_set_epochs(recipe *r, int64_t epochs);
/* The library's error with the place of that part in front. Always false. */
bool recipe_fail_at(const tree *node, const char *what);

/* Recipes that ship: built in, from recipes/. NULL past the end. */
typedef struct recipe_file {
    const char *name;
    const char *text;
    size_t n;
} recipe_file;
extern const recipe_file recipe_files[]; /* ended by an unnamed one; written by cmake */

void recipe_list(void);                 /* on standard output: names and what they are for */
bool recipe_describe(const char *name); /* what a recipe may say: of one thing, or (NULL) of all */

/* The models: those of the library, and the command's own. */
const ct_model_info *model_at(int i);
bool model_is_for_pixels(const ct_model_info *info); /* it gives a class for each, and not for the whole image */
const char *data_kind_name(data_kind kind);

/* Metrics by name: see evaluate.c. */
const char *metric_name_at(int i);
const char *metric_title(const char *name); /* for people: "RMSE" */

bool read_init(recipe *r, const tree *node); /* the key init (init.c) */

/* ---- Reading one thing (settings.c) ---- */

/* Reads `name` and the settings of a map, or a text that is the name alone. */
typedef struct part_type {
    const char *what; /* "model": for messages */
    const void *(*at)(int i);
    const char *(*name)(const void *info);
    const char *(*doc)(const void *info);
    int (*settings)(const void *info, const ct_setting **list); /* at most MOST_SETTINGS, returns how many */
} part_type;
extern const part_type part_models, part_optimizers, part_schedules, part_transforms;
bool part_read(const part_type *type, const tree *node, part *p);
int part_index(const part_type *type, const part *p, const char *setting_name); /* -1: it has none such */
/* "; did you mean 'x'?", or "; there are a, b, c" */
const char *nearest_text(char *text, size_t capacity, const char *word, const char *const *names, int n);

#endif

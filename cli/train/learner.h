/* What a training, an evaluation and a prediction have in common: data, what it decides, the network, and how a batch goes
 * through it. */
#ifndef COTANGENT_CLI_TRAIN_LEARNER_H
#define COTANGENT_CLI_TRAIN_LEARNER_H

#include <cotangent/io.h>
#include <cotangent/metrics.h>
#include <cotangent/run.h>

#include "cli/train/recipe.h"

typedef enum task_kind {
    TASK_CLASSIFICATION,
    TASK_LANGUAGE,
    TASK_REGRESSION,
    TASK_SEGMENTATION, /* a class for each pixel */
    TASK_COUNT
} task_kind;
/* What a task is judged by. */
typedef struct task_info {
    const char *name, *score; /* "accuracy" */
    bool higher;              /* is better */
    bool percent;
    const char *loss; /* the op, where the recipe names none */
} task_info;
extern const task_info tasks[];

typedef struct learner {
    const recipe *recipe;
    /* the data, and what it decides */
    task_kind task;
    ct_dataset *train, *valid; /* NULL where only a checkpoint is looked at */
    bool whole;                /* all that lies at the path is there to validate on: for `eval --data` */
    ct_dims item;              /* of x */
    int64_t classes;           /* outputs: classes, size of the vocabulary, numbers of a regression */
    char *class_names;         /* one per line; "" when there are none */
    char *notes;               /* what to know of the data before it is trained on, one per line; NULL: nothing */
    int64_t empty_folders;     /* classes that the notes tell of */
    ct_vocabulary *vocabulary;
    ct_dataset *encoding;           /* how a table is read: the training set, or without items from a checkpoint */
    ct_device device;               /* where the network is; zero: the CPU */
    ct_tensor *mean, *std;          /* of x, that broadcast to a batch; NULL: x is taken as it is */
    double target_mean, target_std; /* of a regression */
    /* the network */
    ct_module *net;
    int64_t parameters; /* of all of it, however processes divide it */
    bool divided;       /* they do: a pass is one of all of them */
    const ct_op *loss;
    void *loss_options;
} learner;

/* Opens the data of the recipe, and finds out what it is. */
bool learner_open_data(learner *l);
/* The same for a network that is there already: the data has to fit it. path NULL: where the recipe says. */
bool learner_open_other(learner *l, recipe *own, const char *path);
/* Statistics of the training data, as the recipe asks for. */
bool learner_measure(learner *l);
/* The network of the recipe for that data; its random numbers come from the recipe's seed. */
bool learner_build(learner *l);
void learner_close(learner *l);
/* Moves the network, and with each call of learner_forward and learner_target what they are given. */
bool learner_to_device(learner *l, ct_device device);
/* x where the host can look at it. */
ct_tensor *learner_on_host(const learner *l, ct_tensor *x);
/* The weights that the recipe begins with, where it names a file (init.c). What was not taken is added to the notes. */
bool learner_init(learner *l);
/* Freezes what the recipe says: it gets no gradients, and the optimizer keeps nothing for it. */
bool learner_freeze(learner *l);
/* Training mode, but for parts that are frozen as a whole: their dropout does nothing and their batch norms keep what they have. */
bool learner_train_mode(learner *l);
/* An error where the recipe asks for a figure that the task has not (evaluate.c). */
bool learner_check_metrics(const learner *l);

/* What was stored of how data is read: set it before data is opened for a network that is there already. True, and nothing done,
 * where nothing was; an error where the checkpoint has another form. */
bool learner_take_encoding(learner *l, const ct_state *state, const char *path);
/* What a checkpoint has to know beside weights; and a learner without data from a checkpoint, with its network in eval mode.
 * The recipe is then the learner's own: free it after learner_close. */
bool learner_put(const learner *l, ct_state *extra);
bool learner_load(learner *l, const char *path, recipe **own);

/* A line for a person to read before the training; owns text. */
bool learner_note(learner *l, buffer *text);

/* x as the loader gives it to outputs: [n, classes], of language [n * length, classes], of segmentation [n, classes, height,
 * width]. */
ct_tensor *learner_forward(learner *l, ct_tensor *x);
/* Targets as the loss wants them, for those outputs. */
ct_tensor *learner_target(learner *l, ct_tensor *y);
ct_tensor *learner_loss(learner *l, ct_tensor *outputs, ct_tensor *target);
/* A class's name, or its number in a buffer that the next calls reuse. */
const char *learner_class_name(const learner *l, int64_t label);
bool learner_is_image(const learner *l);
/* A batch loader of the validation data. */
ct_loader *learner_valid_batches(const learner *l);

/* ---- Evaluation ---- */

enum { MOST_MISTAKES = 28, MOST_POINTS = 2000, MOST_MASKS = 12 };
typedef struct mistake {
    int64_t index;
    int64_t said, truth;
    double confidence;
} mistake;

typedef struct evaluation {
    int64_t count; /* items */
    double loss, score;
    double metrics[MOST_METRICS];    /* those of the recipe */
    ct_confusion *confusion;         /* of a classification, or of the pixels of a segmentation */
    mistake mistakes[MOST_MISTAKES]; /* the most confident first */
    int mistake_count;
    double *truth, *guess; /* of a regression */
    int64_t points;
    uint8_t *masks; /* (mask_count,height,width): what a segmentation says of the first items */
    int mask_count;
    double seconds;
} evaluation;

/* Goes once through the batches. Stops, without an error but false, when *stop becomes true. */
bool evaluate(learner *l, ct_loader *batches, const volatile int *stop, evaluation *result);
void evaluation_free(evaluation *e);
/* Of a class that was neither there nor said all figures are NaN: the means leave it out as well. */
ct_scores class_scores(const evaluation *e, int64_t label);

/* Text that goes on from a prompt: the prompt and then each piece is also given to `piece`, unless that is NULL. NULL with an
 * error; for the caller to free. */
typedef struct sampling {
    int64_t tokens;
    double temperature; /* 0: always the most likely */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
    bool no_cache; /* a transformer computes every token anew: slower, the same text but for rounding */
} sampling;
char *generate(learner *l, const char *prompt, const sampling *how, void (*piece)(const char *bytes, int n));

#endif

/* An evaluation: once through a set, with the loss, the score, the figures that the recipe asks for, and what the report shows
 * of it: which classes are taken for which, and the mistakes that the network is surest of. */
#include "cli/train/learner.h"

#include "cli/train/clock.h"
#include "cli/train/exchange.h"

#include <cotangent/dist.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is counted on the way. */
typedef struct counters {
    ct_running_mean loss;
    ct_accuracy right, top5;
    ct_regression regression;
    ct_auc *auc; /* only where it is asked for: it keeps every score */
    evaluation *result;
} counters;

/* ---- Figures by name ---- */

enum {
    CLASSES = 1 << TASK_CLASSIFICATION,
    TOKENS = 1 << TASK_LANGUAGE,
    NUMBERS = 1 << TASK_REGRESSION,
    PIXELS = 1 << TASK_SEGMENTATION
};

#define METRIC(name, title, fit, expression)                  \
    static double metric_##name(const counters *c) {          \
        const ct_confusion *confusion = c->result->confusion; \
        (void)confusion, (void)c;                             \
        return expression;                                    \
    }
#define METRICS(X)                                                                                                 \
    X(accuracy, "Accuracy", CLASSES | TOKENS | PIXELS,                                                             \
      confusion ? ct_confusion_accuracy(confusion) : ct_accuracy_value(&c->right))                                 \
    X(iou, "Mean IoU", PIXELS, confusion ? ct_confusion_macro(confusion).iou : (double)NAN)                        \
    X(top5, "Top-5 accuracy", CLASSES | TOKENS, ct_accuracy_value(&c->top5))                                       \
    X(precision, "Precision", CLASSES | PIXELS, confusion ? ct_confusion_macro(confusion).precision : (double)NAN) \
    X(recall, "Recall", CLASSES | PIXELS, confusion ? ct_confusion_macro(confusion).recall : (double)NAN)          \
    X(f1, "F1", CLASSES | PIXELS, confusion ? ct_confusion_macro(confusion).f1 : (double)NAN)                      \
    X(auc, "AUC", CLASSES, c->auc ? ct_auc_value(c->auc) : (double)NAN)                                            \
    X(perplexity, "Perplexity", CLASSES | TOKENS, ct_perplexity(&c->loss))                                         \
    X(mae, "Mean absolute error", NUMBERS, ct_regression_mae(&c->regression))                                      \
    X(rmse, "RMSE", NUMBERS, ct_regression_rmse(&c->regression))                                                   \
    X(r2, "R²", NUMBERS, ct_regression_r2(&c->regression))
METRICS(METRIC)

static const struct {
    const char *name, *title;
    int fit; /* the tasks that it is a figure of */
    double (*value)(const counters *c);
} metrics[] = {
#define METRIC_ROW(name, title, fit, expression) {#name, title, fit, metric_##name},
    METRICS(METRIC_ROW)};
enum { METRIC_COUNT = sizeof metrics / sizeof *metrics };

const char *metric_name_at(int i) { return i >= 0 && i < METRIC_COUNT ? metrics[i].name : NULL; }

const char *metric_title(const char *name) {
    for (int i = 0; i < METRIC_COUNT; i++)
        if (strcmp(metrics[i].name, name) == 0) return metrics[i].title;
    return name;
}

bool learner_check_metrics(const learner *l) {
    const tree *list = tree_get(l->recipe->root, "metrics");
    for (int i = 0; i < l->recipe->metric_count; i++)
        for (int m = 0; m < METRIC_COUNT; m++)
            if (strcmp(metrics[m].name, l->recipe->metrics[i]) == 0 && !(metrics[m].fit >> l->task & 1))
                return tree_fail(list->at[i], "the metric %s is not for a task of %s", metrics[m].name,
                                 tasks[l->task].name);
    return true;
}

static double metric(const counters *c, const char *name) {
    for (int i = 0; i < METRIC_COUNT; i++)
        if (strcmp(metrics[i].name, name) == 0) return metrics[i].value(c);
    return NAN;
}

static bool wanted(const recipe *r, const char *name) {
    for (int i = 0; i < r->metric_count; i++)
        if (strcmp(r->metrics[i], name) == 0) return true;
    return false;
}

/* ---- Mistakes and points ---- */

static void keep_mistake(evaluation *e, const mistake *m) {
    int at = e->mistake_count < MOST_MISTAKES ? e->mistake_count++ : MOST_MISTAKES - 1;
    if (e->mistakes[at].confidence > m->confidence) return; /* only when the list is full */
    for (; at > 0 && e->mistakes[at - 1].confidence < m->confidence; at--) e->mistakes[at] = e->mistakes[at - 1];
    e->mistakes[at] = *m;
}

static bool look_for_mistakes(evaluation *e, ct_tensor *outputs, ct_tensor *target, int64_t n, const int64_t *index) {
    ct_tensor *said = ct_argmax(outputs, .axis = CT_SET(1)),
              *sure = ct_contiguous(ct_amax(ct_softmax(outputs, 1), .axes = CT_DIMS(1)));
    ct_tensor *answer = ct_contiguous(ct_cast(said, CT_I64)), *label = ct_contiguous(ct_cast(target, CT_I64));
    const int64_t *a = ct_data(answer), *t = ct_data(label);
    const float *p = ct_data(sure);
    if (!a || !t || !p || ct_numel(answer) != n || ct_numel(label) != n) return ct_ok();
    for (int64_t i = 0; i < n; i++)
        if (a[i] != t[i]) {
            const mistake m = {index[i], a[i], t[i], (double)p[i]};
            if (e->mistake_count < MOST_MISTAKES || m.confidence > e->mistakes[MOST_MISTAKES - 1].confidence)
                keep_mistake(e, &m);
        }
    return true;
}

static bool keep_points(evaluation *e, ct_tensor *outputs, ct_tensor *y) {
    ct_tensor *guess = ct_contiguous(ct_cast(outputs, CT_F64)), *truth = ct_contiguous(ct_cast(y, CT_F64));
    const double *g = ct_data(guess), *t = ct_data(truth);
    if (!g || !t) return false;
    for (int64_t i = 0; i < ct_numel(guess) && e->points < MOST_POINTS; i++, e->points++) {
        e->guess[e->points] = g[i];
        e->truth[e->points] = t[i];
    }
    return true;
}

/* The classes of the pixels of the first items. */
static bool keep_masks(const learner *l, evaluation *e, ct_tensor *outputs, int64_t n) {
    const size_t size = (size_t)(l->item.d[1] * l->item.d[2]);
    ct_tensor *said = ct_contiguous(ct_cast(ct_argmax(outputs, .axis = CT_SET(1)), CT_U8));
    const uint8_t *from = ct_data(said);
    if (!from) return false;
    for (int64_t i = 0; i < n && e->mask_count < MOST_MASKS; i++)
        memcpy(e->masks + size * (size_t)e->mask_count++, from + size * (size_t)i, size);
    return true;
}

/* ---- The pass ---- */

/* What is known of a batch once the network has seen it, in the host's memory. */
typedef struct judged {
    ct_tensor *loss, *outputs, *target, *y; /* of text the loss alone: outputs have a number for each token and place */
    ct_accuracy right, top5;                /* of text */
    int64_t n;
    const int64_t *index;
} judged;

static bool judge(learner *l, const ct_batch *b, judged *j) {
    ct_tensor *outputs = learner_forward(l, b->x), *target = learner_target(l, b->y),
              *loss = learner_loss(l, outputs, target);
    *j = (judged){.n = b->n, .index = b->index};
    if (!loss) return false;
    j->loss = ct_cast(learner_on_host(l, loss), CT_F64);
    if (l->task == TASK_LANGUAGE) { /* counted where it was computed */
        j->top5.top = 5;
        outputs = learner_on_host(l, outputs), target = learner_on_host(l, target);
        return ct_accuracy_add(&j->right, outputs, target) &&
               (l->classes <= 5 || ct_accuracy_add(&j->top5, outputs, target));
    }
    j->outputs = learner_on_host(l, outputs);
    j->target = learner_on_host(l, target);
    j->y = learner_on_host(l, b->y);
    return ct_ok();
}

static bool count(const learner *l, const judged *j, counters *c) {
    evaluation *e = c->result;
    ct_tensor *outputs = j->outputs, *target = j->target;
    const int64_t targets = l->task == TASK_LANGUAGE ? j->right.count : ct_numel(target);
    if (!ct_running_mean_add(&c->loss, ct_item(j->loss), (double)targets)) return false;
    e->count += j->n;
    if (l->task == TASK_LANGUAGE) {
        c->right.right += j->right.right, c->right.count += j->right.count;
        c->top5.right += j->top5.right, c->top5.count += j->top5.count;
        return true;
    }
    if (l->task == TASK_REGRESSION) { /* in the units of the data */
        ct_tensor *guess = ct_add_s(ct_mul_s(outputs, l->target_std), l->target_mean);
        return ct_regression_add(&c->regression, guess, j->y) && keep_points(e, guess, j->y);
    }
    if (l->task == TASK_SEGMENTATION)
        return ct_confusion_add(e->confusion, outputs, target) &&
               (e->mask_count == MOST_MASKS || keep_masks(l, e, outputs, j->n));
    if (!ct_accuracy_add(&c->right, outputs, target)) return false;
    if (l->classes > 5 && !ct_accuracy_add(&c->top5, outputs, target)) return false;
    /* each class against the rest: probabilities can be compared between items, logits cannot */
    if (c->auc && !ct_auc_add(c->auc, l->classes > 2 ? ct_softmax(outputs, 1) : outputs, target)) return false;
    return ct_confusion_add(e->confusion, outputs, target) && look_for_mistakes(e, outputs, target, j->n, j->index);
}

/* ---- Of several processes rank 0 counts, batch by batch in their order ---- */

/* A piece: dtype, axes and sizes of a tensor; -1: there is none. Before them numbers. */
enum { PIECES = 4, PIECE_NUMBERS = 2 + CT_MAX_DIMS, ABOUT = 5 };

static bool send_judged(const judged *j) {
    int64_t about[ABOUT + PIECES * PIECE_NUMBERS] = {j->n, j->right.right, j->right.count, j->top5.right,
                                                     j->top5.count};
    ct_tensor *const pieces[PIECES] = {j->loss, j->outputs, j->target, j->y};
    for (int i = 0; j->n && i < PIECES; i++) {
        int64_t *a = about + ABOUT + i * PIECE_NUMBERS;
        const ct_dims shape = pieces[i] ? ct_shape(pieces[i]) : (ct_dims){0};
        a[0] = pieces[i] ? (int64_t)ct_dtype_of(pieces[i]) : -1;
        a[1] = shape.n;
        memcpy(a + 2, shape.d, (size_t)shape.n * sizeof *a);
    }
    bool right = ct_dist_send(ct_from_data(about, CT_DIMS((int64_t)(sizeof about / sizeof *about)), CT_I64), 0, NULL);
    for (int i = 0; right && j->n && i < PIECES; i++)
        if (pieces[i]) right = ct_dist_send(ct_detach(pieces[i]), 0, NULL);
    return right && (!j->n || ct_dist_send(ct_from_data(j->index, CT_DIMS(j->n), CT_I64), 0, NULL));
}

static bool receive_judged(int from, judged *j) {
    int64_t about[ABOUT + PIECES * PIECE_NUMBERS];
    ct_tensor *head = ct_zeros(CT_DIMS((int64_t)(sizeof about / sizeof *about)), .dtype = CT_I64), *pieces[PIECES];
    if (!ct_dist_receive(head, from, NULL) || !ct_read(head, about, sizeof about)) return false;
    *j = (judged){
        .n = about[0], .right = {.right = about[1], .count = about[2]}, .top5 = {.right = about[3], .count = about[4]}};
    if (!j->n) return true;
    for (int i = 0; i < PIECES; i++) {
        const int64_t *a = about + ABOUT + i * PIECE_NUMBERS;
        pieces[i] = NULL;
        if (a[0] < 0) continue;
        ct_dims shape = {.n = (int)a[1]};
        memcpy(shape.d, a + 2, (size_t)shape.n * sizeof *a);
        pieces[i] = ct_zeros(shape, .dtype = (ct_dtype)a[0]);
        if (!ct_dist_receive(pieces[i], from, NULL)) return false;
    }
    ct_tensor *index = ct_zeros(CT_DIMS(j->n), .dtype = CT_I64);
    if (!ct_dist_receive(index, from, NULL)) return false;
    j->loss = pieces[0], j->outputs = pieces[1], j->target = pieces[2], j->y = pieces[3];
    j->index = ct_data(index);
    return ct_ok();
}

/* A batch of each rank, where there is one: of the last round some have none. */
static bool add_round(learner *l, const ct_batch *b, counters *c) {
    judged j = {0};
    if (b && !judge(l, b, &j)) return false;
    if (l->divided) return !b || ct_dist_rank() > 0 || count(l, &j, c); /* all have the same */
    if (ct_dist_rank() > 0) return send_judged(&j);
    if (b && !count(l, &j, c)) return false;
    for (int from = 1; from < ct_dist_size(); from++) {
        ct_scope {
            if (!receive_judged(from, &j) || (j.n && !count(l, &j, c))) return false;
        }
    }
    return true;
}

/* Rank 0's figures on all. */
static bool share(evaluation *e) {
    double values[4 + MOST_METRICS] = {e->loss, e->score, (double)e->count, e->seconds};
    memcpy(values + 4, e->metrics, sizeof e->metrics);
    if (!ranks_take_first(values, 4 + MOST_METRICS)) return false;
    e->loss = values[0], e->score = values[1], e->count = (int64_t)values[2], e->seconds = values[3];
    memcpy(e->metrics, values + 4, sizeof e->metrics);
    return true;
}

static bool begin(learner *l, counters *c) {
    evaluation *e = c->result;
    c->top5.top = 5;
    if (l->task == TASK_CLASSIFICATION) {
        e->confusion = ct_confusion_new(l->classes);
        if (wanted(l->recipe, "auc")) c->auc = ct_auc_new(l->classes);
        return e->confusion && ct_ok();
    }
    if (l->task == TASK_SEGMENTATION) {
        e->confusion = ct_confusion_new(l->classes);
        e->masks = calloc(MOST_MASKS, (size_t)(l->item.d[1] * l->item.d[2]));
        return e->confusion && (e->masks || ct_fail(CT_ERR_MEMORY, NULL, "out of memory"));
    }
    if (l->task != TASK_REGRESSION) return true;
    e->truth = calloc(MOST_POINTS, sizeof *e->truth);
    e->guess = calloc(MOST_POINTS, sizeof *e->guess);
    return (e->truth && e->guess) || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
}

bool evaluate(learner *l, ct_loader *batches, const volatile int *stop, evaluation *result) {
    *result = (evaluation){0};
    counters c = {.result = result};
    const double start = seconds_now();
    bool whole = begin(l, &c) && ct_loader_seek(batches, 0) && ct_eval(l->net);
    for (int64_t round = 0; whole && round < ct_loader_batches(batches); round++) {
        ct_batch b;
        const bool some = ct_next(batches, &b);
        ct_no_grad {
            ct_scope {
                whole = ct_ok() && add_round(l, some ? &b : NULL, &c);
            }
        }
        if (stop && *stop) whole = false;
    }
    whole = whole && ct_ok();
    if (whole) {
        result->loss = ct_running_mean_value(&c.loss);
        result->score = metric(&c, tasks[l->task].score);
        for (int i = 0; i < l->recipe->metric_count; i++) result->metrics[i] = metric(&c, l->recipe->metrics[i]);
        result->seconds = seconds_now() - start;
        whole = share(result);
    }
    ct_auc_free(c.auc);
    return whole;
}

ct_scores class_scores(const evaluation *e, int64_t label) {
    ct_scores s = ct_confusion_scores(e->confusion, label);
    if (isnan(s.iou)) s.precision = s.recall = s.f1 = s.iou;
    return s;
}

void evaluation_free(evaluation *e) {
    ct_confusion_free(e->confusion);
    free(e->truth);
    free(e->guess);
    free(e->masks);
    *e = (evaluation){0};
}

/* What the metrics share: the values of a tensor as doubles or class numbers, and small helpers. */
#ifndef COTANGENT_METRICS_METRICS_H
#define COTANGENT_METRICS_METRICS_H

#include <cotangent/metrics.h>

#include <stdlib.h>
#include <string.h>

/* Predictions and targets of one batch as plain arrays, freed with ct__pairs_free. Logits are seen as (outer, classes,
 * inner), targets as (outer, inner). */
typedef struct ct__pairs {
    int64_t outer, classes, inner;
    double *logits;  /* NULL where class numbers were given */
    int64_t *number; /* class numbers given as predictions, or NULL */
    int64_t *target;
} ct__pairs;

/* Checks shapes and dtypes and copies. classes: what is expected, 0 for whatever the logits have. */
bool ct__pairs_take(const char *op, ct_tensor *predictions, ct_tensor *target, int64_t classes, ct__pairs *pairs);
void ct__pairs_free(ct__pairs *pairs);
/* The class of the largest logit, the first of equal ones; NaN is the largest. Or the number that was given. */
int64_t ct__pairs_best(const ct__pairs *pairs, int64_t outer, int64_t inner);

/* All elements of x in row-major order, for the caller to ct_free(). NULL with an error. */
double *ct__metric_doubles(const char *op, ct_tensor *x);
int64_t *ct__metric_integers(const char *op, ct_tensor *x);

static inline bool ct__metric_null(const char *op, const char *argument) {
    return ct_ok() ? ct_fail(CT_ERR_NULL, op, "argument %s is NULL", argument) : false;
}
static inline void *ct__metric_room(const char *op, int64_t count, size_t each) {
    void *p = ct_calloc(count > 0 ? (size_t)count : 1, each);
    if (!p) ct_fail(CT_ERR_MEMORY, op, "out of memory: %zu bytes could not be had", (size_t)count * each);
    return p;
}

#endif

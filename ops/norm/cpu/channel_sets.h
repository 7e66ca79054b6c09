/* A template: what becomes of the sums of channel_norm, for one dtype to compute in. Included with FOLD_D its short name, which it
 * undefines. */
#define T      ELEMENT(FOLD_D)
#define DO(op) ELEMENT_PASTE(FOLD_D, op)

/* The k-th coefficients of the channels of an item. */
static inline T *DO(_coefficients)(const channel_job *j, int k, int64_t item) {
    const int64_t rows = j->batch ? 1 : j->items;
    return (T *)j->coefficients + (k * rows + (j->batch ? 0 : item)) * j->channels;
}

static void DO(_settle)(const channel_job *j, int64_t set) {
    norm_moments all = {0, 0, 0};
    const int64_t item = j->batch ? 0 : set / j->groups, first = set % j->groups * j->members;
    for (int64_t i = item; i < (j->batch ? j->items : item + 1); i++)
        for (int64_t c = first; c < first + j->members; c++)
            for (int64_t p = 0; p < j->parts; p++) {
                const int64_t at = sum_at(j, i, c, p);
                norm_merge(&all, &(norm_moments){j->sums.a[at], j->sums.b[at], j->sums.c[at]});
            }
    const double var = all.square / all.count, rstd = 1 / sqrt(var + j->eps);
    if (j->mean) ((T *)j->mean)[set] = (T)all.mean;
    if (j->var) ((T *)j->var)[set] = (T)var;
    T *m = DO(_coefficients)(j, 0, item), *scale = DO(_coefficients)(j, 1, item),
      *shift = DO(_coefficients)(j, 2, item);
    for (int64_t c = first; c < first + j->members; c++) {
        m[c] = (T)all.mean;
        const double by = rstd * (j->weight ? (double)((const T *)j->weight)[c] : 1);
        scale[c] = (T)by;
        shift[c] = (T)((j->bias ? (double)((const T *)j->bias)[c] : 0) - (all.mean - (double)m[c]) * by);
    }
}

/* dx = (rstd w) (g - mean(h) / w) + B (x - mean) + D, with B = 2 g_var / count - rstd^2 mean(h xhat), D = g_mean / count,
 * and x - mean = (x - m) - rest. The difference comes before the factor rstd, which may be large and is rounded; what
 * mean(h) / w loses in rounding goes into D, and all of it where w is (nearly) 0. */
static void DO(_grad_settle)(const channel_job *j, int64_t set) {
    const int64_t item = j->batch ? 0 : set / j->groups, first = set % j->groups * j->members;
    const double rstd = 1 / sqrt((double)((const T *)j->given_var)[set] + j->eps);
    double g = 0, product = 0, rest = 0;
    for (int64_t i = item; i < (j->batch ? j->items : item + 1); i++)
        for (int64_t c = first; c < first + j->members; c++) {
            const double w = j->weight ? (double)((const T *)j->weight)[c] : 1;
            for (int64_t p = 0; p < j->parts; p++) {
                const int64_t at = sum_at(j, i, c, p);
                g += w * j->sums.a[at];
                product += w * j->sums.b[at];
                rest += j->sums.c[at];
            }
        }
    rest /= j->count;
    j->rest[set] = rest;
    j->rstd[set] = rstd;
    const double of_mean = j->g_mean ? (double)((const T *)j->g_mean)[set] : 0,
                 of_var = j->g_var ? (double)((const T *)j->g_var)[set] : 0;
    const double projection = 2 * of_var / j->count - rstd * rstd * rstd * (product - rest * g) / j->count;
    const double shift = of_mean / j->count - projection * rest;
    T *of_g = DO(_coefficients)(j, 1, item), *of_x = DO(_coefficients)(j, 2, item),
      *of_1 = DO(_coefficients)(j, 3, item), *middle = DO(_coefficients)(j, 4, item);
    for (int64_t c = first; c < first + j->members; c++) {
        const double w = j->weight ? (double)((const T *)j->weight)[c] : 1, by_w = g / j->count / w;
        const bool divides = fabs(by_w) < 1e30;
        of_g[c] = (T)(rstd * w);
        of_x[c] = (T)projection;
        middle[c] = divides ? (T)by_w : 0;
        of_1[c] = (T)(shift - (divides ? rstd * w * (by_w - (double)middle[c]) : rstd * g / j->count));
    }
}

/* The given means, by channel. */
static void DO(_spread_means)(const channel_job *j) {
    for (int64_t i = 0; i < (j->batch ? 1 : j->items); i++) {
        T *m = DO(_coefficients)(j, 0, i);
        for (int64_t c = 0; c < j->channels; c++) m[c] = ((const T *)j->given_mean)[i * j->groups + c / j->members];
    }
}

/* The gradients of weight and bias, of at most PARAMETERS channels: items come outside, for the sums of neighboring channels lie side by side. */
static void DO(_param_grads)(const channel_job *j, int64_t first, int64_t end) {
    if (!j->dweight && !j->dbias) return;
    double g[PARAMETERS] = {0}, product[PARAMETERS] = {0};
    for (int64_t i = 0; i < j->items; i++)
        for (int64_t c = first; c < end; c++) {
            const int64_t set = j->batch ? c : i * j->groups + c / j->members;
            for (int64_t p = 0; p < j->parts; p++) {
                const int64_t at = sum_at(j, i, c, p);
                g[c - first] += j->sums.a[at];
                product[c - first] += (j->sums.b[at] - j->rest[set] * j->sums.a[at]) * j->rstd[set];
            }
        }
    for (int64_t c = first; c < end; c++) {
        if (j->dweight) ((T *)j->dweight)[c] = (T)product[c - first];
        if (j->dbias) ((T *)j->dbias)[c] = (T)g[c - first];
    }
}

#undef FOLD_D
#undef T
#undef DO

/* Statistics of a tensor of any dtype, a block at a time, so that a file larger than the memory can be looked at. */
#include "cli/inspect.h"

#include <math.h>

enum { BLOCK = 1 << 18 };

typedef struct pass {
    inspect_stats *stats;
    double sum, squares;
    bool second; /* mean, min and max are known */
} pass;

static void first_look(pass *p, double v) {
    inspect_stats *s = p->stats;
    if (isnan(v)) s->nan++;
    else if (isinf(v)) s->infinite++;
    else {
        if (s->finite++ == 0) s->min = s->max = v;
        if (v < s->min) s->min = v;
        if (v > s->max) s->max = v;
        p->sum += v;
    }
}

static void second_look(pass *p, double v) {
    inspect_stats *s = p->stats;
    if (!isfinite(v)) return;
    p->squares += (v - s->mean) * (v - s->mean);
    const double range = s->max - s->min;
    /* halves, so that a range that overflows is still divided */
    const double part = range > 0 ? (v / 2 - s->min / 2) / (s->max / 2 - s->min / 2) : 0.5;
    int bin = (int)(part * INSPECT_BINS);
    if (bin >= INSPECT_BINS) bin = INSPECT_BINS - 1;
    s->histogram[bin < 0 ? 0 : bin]++;
}

static bool look(pass *p, ct_tensor *flat) {
    const int64_t count = ct_numel(flat);
    bool good = true;
    for (int64_t at = 0; at < count && good; at += BLOCK)
        ct_scope {
            const int64_t n = count - at < BLOCK ? count - at : BLOCK;
            const double *values = ct_data(ct_contiguous(ct_cast(ct_narrow(flat, 0, at, n), CT_F64)));
            good = values != NULL;
            for (int64_t i = 0; good && i < n; i++) {
                if (p->second) second_look(p, values[i]);
                else first_look(p, values[i]);
            }
        }
    return good;
}

inspect_stats inspect_tensor(ct_tensor *x) {
    inspect_stats stats = {.min = NAN, .max = NAN, .mean = NAN, .std = NAN};
    if (ct_dtype_of(x) == CT_COMPLEX64) return stats;
    pass p = {.stats = &stats};
    ct_scope {
        ct_tensor *flat = ct_reshape(x, CT_DIMS(ct_numel(x)));
        stats.known = flat && look(&p, flat);
        if (stats.known && stats.finite > 0) {
            stats.mean = p.sum / (double)stats.finite;
            p.second = true;
            stats.known = look(&p, flat);
            stats.std = sqrt(p.squares / (double)stats.finite);
        }
    }
    return stats;
}

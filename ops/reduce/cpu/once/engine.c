/* The reduction engine: dimensions are sorted and merged, the work is cut into blocks of results and splits of the
 * reduction, both by shape alone, and the splits' accumulators are merged in a fixed tree. */
#include "ops/reduce/cpu/engine.h"

#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/threads.h"

enum {
    GRAIN = 32 * 1024,
    MAX_OUTPUTS = 2,
    PACK = 512,
    MOST_SPLITS = 4096,
    FEW_SPLITS = 32,
    SPLIT_ROWS = 128,
    MERGED = 512
};

/* Dimensions that are walked together, with the steps of up to three views. */
typedef struct space {
    int n;
    int64_t dims[CT_MAX_DIMS], x[CT_MAX_DIMS], out[MAX_OUTPUTS][CT_MAX_DIMS];
    int64_t count;
} space;

typedef struct plan {
    const ct_reducer *reducer;
    ct_reduce_params params;
    space kept, reduced;
    bool by_columns;
    int64_t block, blocks; /* results in one block of work */
    int64_t split, splits; /* elements of the reduction in one block of work */
    const char *x;
    char *out[MAX_OUTPUTS];
    int64_t out_size[MAX_OUTPUTS];
    char *partial; /* (splits, results) accumulators, when splits > 1 */
} plan;

static int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }

static void swap_dims(space *s, int a, int b) {
    int64_t *lists[] = {s->dims, s->x, s->out[0], s->out[1]};
    for (int i = 0; i < 4; i++) {
        int64_t t = lists[i][a];
        lists[i][a] = lists[i][b];
        lists[i][b] = t;
    }
}

/* The longest steps outermost, then neighbors that walk as one become one. */
static void simplify(space *s, bool sort_dims) {
    s->count = 1;
    for (int i = 0; i < s->n; i++) s->count *= s->dims[i];
    for (int i = 1; sort_dims && i < s->n; i++)
        for (int j = i; j > 0 && magnitude(s->x[j - 1]) < magnitude(s->x[j]); j--) swap_dims(s, j - 1, j);
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->dims[i] == 1) continue;
        bool joins = n > 0 && s->x[n - 1] == s->x[i] * s->dims[i];
        for (int k = 0; k < MAX_OUTPUTS; k++) joins = joins && s->out[k][n - 1] == s->out[k][i] * s->dims[i];
        if (joins) {
            n--;
            s->dims[n] *= s->dims[i];
        } else {
            s->dims[n] = s->dims[i];
        }
        s->x[n] = s->x[i];
        for (int k = 0; k < MAX_OUTPUTS; k++) s->out[k][n] = s->out[k][i];
        n++;
    }
    if (n == 0) { /* one element, walked as a dimension of one */
        s->dims[0] = 1;
        s->x[0] = s->out[0][0] = s->out[1][0] = 0;
        n = 1;
    }
    s->n = n;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void cut(plan *p) {
    int64_t grain = ct__grain(GRAIN), count = p->reduced.count > 0 ? p->reduced.count : 1;
    int64_t room = CT_REDUCE_STACK / (int64_t)p->reducer->accumulator;
    if (room > CT_REDUCE_COLUMNS) room = CT_REDUCE_COLUMNS;
    int64_t width = p->by_columns ? p->kept.dims[p->kept.n - 1] : 1;
    p->block = grain / count;
    if (p->by_columns) {
        /* whole rows of columns, or an even part of one: short runs would waste the memory's bandwidth */
        if (p->block < width) p->block = ceil_div(width, ceil_div(width, room));
        else p->block -= p->block % width;
    }
    if (p->block > room) p->block = room;
    if (p->block < 1) p->block = 1;
    p->blocks = ceil_div(p->kept.count, p->block);
    /* Few blocks of much work: the reduction itself is cut. */
    int64_t work = p->block < p->kept.count ? p->block : p->kept.count;
    int64_t most = p->kept.count == 1 ? MOST_SPLITS : FEW_SPLITS / (p->blocks > 0 ? p->blocks : 1);
    int64_t rows = ct__grain(SPLIT_ROWS); /* enough to outweigh the merging of its columns */
    if (p->by_columns && most > ceil_div(count, rows)) most = ceil_div(count, rows);
    p->splits = ceil_div(count * (work > 0 ? work : 1), grain);
    if (p->splits > most) p->splits = most;
    if (p->splits > count) p->splits = count;
    if (p->splits < 1) p->splits = 1;
    p->split = ceil_div(count, p->splits);
    p->splits = ceil_div(count, p->split);
}

static void make_plan(plan *p, const ct_call *call, const ct_reducer *reducer, unsigned mask) {
    const ct_view *x = call->in[0];
    memset(p, 0, sizeof *p);
    p->reducer = reducer;
    p->x = (const char *)x->buffer + x->offset * (int64_t)reducer->element;
    bool keepdim = false;
    for (int k = 0; k < call->n_out && k < MAX_OUTPUTS; k++) {
        const ct_view *out = call->out[k];
        if (!out) continue;
        keepdim = out->ndim == x->ndim;
        p->out_size[k] = (int64_t)ct_dtype_size(out->dtype);
        p->out[k] = (char *)out->buffer + out->offset * p->out_size[k];
    }
    for (int i = 0, at = 0; i < x->ndim; i++) {
        bool reduce = mask >> i & 1;
        space *s = reduce ? &p->reduced : &p->kept;
        s->dims[s->n] = x->dims[i];
        s->x[s->n] = x->strides[i];
        for (int k = 0; k < call->n_out && k < MAX_OUTPUTS && !reduce; k++)
            if (call->out[k]) s->out[k][s->n] = call->out[k]->strides[at];
        s->n++;
        at += keepdim || !reduce;
    }
    simplify(&p->kept, true);
    simplify(&p->reduced, !reducer->ordered);
    p->params.count = p->reduced.count;
    int inner = p->reduced.n - 1;
    bool rows_are_dense = p->reduced.x[inner] == 1 && p->reduced.dims[inner] > 1;
    p->by_columns = !rows_are_dense && p->kept.x[p->kept.n - 1] == 1 && p->kept.dims[p->kept.n - 1] > 1;
    cut(p);
}

/* A place in a space: the linear index split into coordinates, innermost last. */
typedef struct place {
    int64_t at[CT_MAX_DIMS];
} place;

static place place_of(const space *s, int64_t index) {
    place where;
    for (int i = s->n - 1; i >= 0; i--) {
        where.at[i] = index % s->dims[i];
        index /= s->dims[i];
    }
    return where;
}

static int64_t offset_of(const space *s, const int64_t *steps, const place *where) {
    int64_t offset = 0;
    for (int i = 0; i < s->n; i++) offset += where->at[i] * steps[i];
    return offset;
}

/* Moves n elements on, which do not go past the end of the innermost dimension. */
static void advance(const space *s, place *where, int64_t n) {
    where->at[s->n - 1] += n;
    for (int i = s->n - 1; i > 0 && where->at[i] == s->dims[i]; i--) {
        where->at[i] = 0;
        where->at[i - 1]++;
    }
}

static int64_t run_length(const space *s, const place *where, int64_t left) {
    int64_t run = s->dims[s->n - 1] - where->at[s->n - 1];
    return run < left ? run : left;
}

/* Elements that are apart are brought together first. */
static void strided_rows(const ct_reducer *r, char *acc, const char *x, int64_t rows, int64_t row_step, int64_t n,
                         int64_t step, int64_t base) {
    uint64_t packed[PACK];
    for (int64_t i = 0; i < rows; i++, acc += r->accumulator) {
        const char *row = x + i * row_step * (int64_t)r->element;
        for (int64_t j = 0; j < n; j += PACK) {
            int64_t m = n - j < PACK ? n - j : PACK;
            const char *from = row + j * step * (int64_t)r->element;
#define GATHER(type)                                                                          \
    case sizeof(type):                                                                        \
        for (int64_t k = 0; k < m; k++) ((type *)packed)[k] = ((const type *)from)[k * step]; \
        break;
            switch (r->element) {
                GATHER(uint8_t)
                GATHER(uint16_t)
                GATHER(uint32_t)
                GATHER(uint64_t)
            }
#undef GATHER
            r->rows(acc, packed, 1, 0, m, base + j);
        }
    }
}

/* acc[i] takes the part [from, to) of the reduction, for the results [first, first + n). */
static void accumulate(const plan *p, char *acc, int64_t first, int64_t n, int64_t from, int64_t to) {
    const ct_reducer *r = p->reducer;
    const space *kept = &p->kept, *reduced = &p->reduced;
    int64_t step = reduced->x[reduced->n - 1], kept_step = kept->x[kept->n - 1], element = (int64_t)r->element;
    place where = place_of(kept, first);
    r->init(acc, n);
    while (n > 0 && from < to) {
        int64_t run = run_length(kept, &where, n);
        const char *x = p->x + offset_of(kept, kept->x, &where) * element;
        place inside = place_of(reduced, from);
        for (int64_t at = from; at < to;) {
            int64_t length = run_length(reduced, &inside, to - at);
            const char *row = x + offset_of(reduced, reduced->x, &inside) * element;
            if (p->by_columns) r->columns(acc, row, run, length, step, at);
            else if (step == 1 || length == 1) r->rows(acc, row, run, kept_step, length, at);
            else strided_rows(r, acc, row, run, kept_step, length, step, at);
            advance(reduced, &inside, length);
            at += length;
        }
        acc += run * (int64_t)r->accumulator;
        n -= run;
        advance(kept, &where, run);
    }
}

static void finish(const plan *p, const char *acc, int64_t first, int64_t n) {
    const space *kept = &p->kept;
    place where = place_of(kept, first);
    while (n > 0) {
        int64_t run = run_length(kept, &where, n), steps[MAX_OUTPUTS];
        void *out[MAX_OUTPUTS];
        for (int k = 0; k < MAX_OUTPUTS; k++) {
            steps[k] = kept->out[k][kept->n - 1];
            out[k] = p->out[k] ? p->out[k] + offset_of(kept, kept->out[k], &where) * p->out_size[k] : NULL;
        }
        p->reducer->finish(out, steps, acc, run, &p->params);
        acc += run * (int64_t)p->reducer->accumulator;
        n -= run;
        advance(kept, &where, run);
    }
}

static int64_t results_in(const plan *p, int64_t block) {
    int64_t left = p->kept.count - block * p->block;
    return left < p->block ? left : p->block;
}

static void whole_task(void *ctx, int64_t block, int worker) {
    (void)worker;
    const plan *p = ctx;
    _Alignas(64) char acc[CT_REDUCE_STACK];
    int64_t n = results_in(p, block);
    accumulate(p, acc, block * p->block, n, 0, p->reduced.count);
    finish(p, acc, block * p->block, n);
}

static char *partial_at(const plan *p, int64_t split, int64_t result) {
    return p->partial + (split * p->kept.count + result) * (int64_t)p->reducer->accumulator;
}

static void split_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const plan *p = ctx;
    int64_t split = task / p->blocks, block = task % p->blocks;
    int64_t from = split * p->split, to = from + p->split < p->reduced.count ? from + p->split : p->reduced.count;
    accumulate(p, partial_at(p, split, block * p->block), block * p->block, results_in(p, block), from, to);
}

/* Some results of all splits. Pairs, pairs of pairs: the rounding error grows with the logarithm of the number of splits. */
static void merge_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const plan *p = ctx;
    int64_t first = task * MERGED, left = p->kept.count - first, n = left < MERGED ? left : MERGED;
    for (int64_t reach = 1; reach < p->splits; reach *= 2)
        for (int64_t i = 0; i + reach < p->splits; i += 2 * reach)
            p->reducer->merge(partial_at(p, i, first), partial_at(p, i + reach, first), n);
    finish(p, partial_at(p, 0, first), first, n);
}

size_t ct__reduce_scratch(const ct_call *call, const ct_reducer *reducer, unsigned mask) {
    plan p;
    make_plan(&p, call, reducer, mask);
    return p.splits > 1 ? (size_t)(p.splits * p.kept.count) * reducer->accumulator : 0;
}

bool ct__reduce_run(const ct_call *call, const ct_reducer *reducer, unsigned mask, double number) {
    plan p;
    make_plan(&p, call, reducer, mask);
    p.params.number = number;
    p.partial = ct__scratch(call);
    if (p.kept.count == 0) return true;
    if (p.splits > 1) {
        ct__parallel(p.splits * p.blocks, split_task, &p);
        ct__parallel(ceil_div(p.kept.count, MERGED), merge_task, &p);
    } else {
        ct__parallel(p.blocks, whole_task, &p);
    }
    return true;
}

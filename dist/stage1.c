/* Stage 1 of ZeRO (Rajbhandari et al., 2020): parameters and gradients are whole on every rank, and each learns a run
 * of every parameter's elements, for which alone its optimizer has state. Modules are marked with their division
 * (ct_module_set_division), which optimizers that are made for them follow; after a step the runs are gathered, in
 * buckets. */
#include <stdio.h>

#include "dist/parallel.h"

enum { BUCKET = 8 << 20, IN_FLIGHT = 3 }; /* bytes of whole parameters that go at once; buckets on their way */

/* Some parameters, one after the other, of one dtype and device. */
typedef struct bucket {
    int first, end;
    int64_t mine; /* elements that every rank gives, filled up */
    ct_dist_work *work;
} bucket;

typedef struct gathering {
    ct_dist_group *group;
    int ranks, rank;
    ct_tensor *const *xs;
    int n;
} gathering;

static ct_division division_of(const gathering *g) { return (ct_division){.part = g->rank, .parts = g->ranks}; }
static int64_t run_of(const gathering *g, const ct_tensor *x) { return (ct_numel(x) + g->ranks - 1) / g->ranks; }
static ct_tensor *flat(ct_tensor *x, int64_t from, int64_t count) {
    return ct_narrow(ct_reshape(ct_detach(x), CT_DIMS(ct_numel(x))), 0, from, count);
}

/* What this rank has learned of a bucket. A single parameter that is divided evenly goes as it lies. */
static ct_tensor *own_runs(const gathering *g, const bucket *b) {
    const ct_division division = division_of(g);
    ct_tensor *all = NULL;
    int64_t at = 0;
    for (int i = b->first; i < b->end; i++) {
        int64_t from, count;
        ct_division_range(&division, ct_numel(g->xs[i]), &from, &count);
        ct_tensor *mine = flat(g->xs[i], from, count);
        if (count == b->mine) return mine;
        if (!all) all = ct_zeros(CT_DIMS(b->mine), .dtype = ct_dtype_of(mine), .device = ct_device_of(mine));
        if (!all || !mine || (count && !ct_assign(ct_narrow(all, 0, at, count), mine))) return NULL;
        at += run_of(g, g->xs[i]);
    }
    return all;
}

static bool start(const gathering *g, bucket *b) {
    char name[64];
    snprintf(name, sizeof name, "learned parameters %d to %d", b->first, b->end - 1);
    ct_scope {
        ct_tensor *mine = own_runs(g, b);
        b->work = mine ? ct__start(CT__ALL_GATHER, mine, CT_DIST_SUM, 0, g->group, name, false, 0) : NULL;
    }
    return b->work != NULL;
}

/* Every rank's runs of a bucket, (ranks, mine), back to where they belong. */
static bool spread(const gathering *g, bucket *b) {
    bool fine = ct__flight_wait(&b->work->flight);
    int64_t at = 0;
    ct_scope {
        ct_tensor *all =
            fine ? ct_reshape(ct_to(b->work->result, ct_device_of(g->xs[b->first])), CT_DIMS(g->ranks, b->mine)) : NULL;
        for (int i = b->first; all && fine && i < b->end; i++) {
            ct_tensor *x = g->xs[i];
            const int64_t run = run_of(g, x), n = ct_numel(x);
            ct_tensor *runs = ct_narrow(all, 1, at, run);
            if (n == run * g->ranks) fine = ct_assign(ct_reshape(ct_detach(x), CT_DIMS(g->ranks, run)), runs);
            else fine = ct_assign(flat(x, 0, n), flat(ct_contiguous(runs), 0, n));
            at += run;
        }
        fine = fine && all;
    }
    ct_dist_work_free(b->work);
    b->work = NULL;
    return fine;
}

static bucket next_bucket(const gathering *g, int first) {
    bucket b = {.first = first, .end = first};
    const ct_tensor *lead = g->xs[first];
    const ct_device device = ct_device_of(lead);
    int64_t bytes = 0;
    for (; b.end < g->n; b.end++) {
        const ct_tensor *x = g->xs[b.end];
        const ct_device other = ct_device_of(x);
        bytes += ct_numel(x) * (int64_t)ct_dtype_size(ct_dtype_of(x));
        if (b.end > first && (bytes > BUCKET || ct_dtype_of(x) != ct_dtype_of(lead) || other.type != device.type ||
                              other.index != device.index))
            break;
        b.mine += run_of(g, x);
    }
    return b;
}

/* As they were given to ct_module_set_division: context is the group. */
static bool gather(void *context, ct_tensor *const *xs, int n) {
    ct_dist_group *group = context;
    gathering g = {.group = group, .xs = xs, .n = n};
    bucket buckets[IN_FLIGHT];
    int begun = 0, ended = 0, next = 0;
    if (!ct__group(group, "dist_divide")) return false;
    g.ranks = ct_dist_group_size(group);
    g.rank = ct_dist_group_rank(group);
    bool fine = ct__parallel_averages(xs, n, group);
    ct_no_grad {
        while (fine && (next < n || ended < begun)) {
            if (next < n && begun - ended < IN_FLIGHT) {
                bucket *b = &buckets[begun % IN_FLIGHT];
                *b = next_bucket(&g, next);
                next = b->end;
                fine = start(&g, b);
                begun += fine;
            } else fine = spread(&g, &buckets[ended++ % IN_FLIGHT]);
        }
        while (ended < begun) ct_dist_work_free(buckets[ended++ % IN_FLIGHT].work); /* after an error */
    }
    return fine;
}

static bool mark(void *context, const char *path, ct_module *module) {
    ct_dist_group *group = context;
    const ct_division division = {
        .part = ct_dist_group_rank(group), .parts = ct_dist_group_size(group), .gather = gather, .context = group};
    (void)path;
    return ct__is_sharded(module) || ct_module_set_division(module, &division);
}

bool ct__divide_learning(ct_module *net, ct_dist_group *group) { return ct_module_apply(net, mark, group); }

bool ct__learned_apart(const ct_module *module, ct_dist_group **group) {
    const ct_division *division = ct_module_division(module);
    if (!division || division->gather != gather) return false;
    *group = division->context;
    return true;
}

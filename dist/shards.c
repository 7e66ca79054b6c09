/* The same bits whatever the number of ranks. A step's batch is cut into a fixed number of shards, each computed by
 * itself from the same weights, buffers and random position. Gradients and buffers of all shards, flat in f32 or
 * f64, are added up as a balanced binary tree over the shards: a rank holds a whole subtree, which it adds up like
 * the digits of a binary counter; then ranks exchange parts, each adds up the upper tree of its part, and all gather
 * the parts. One rank goes through the same additions. */
#include <string.h>

#include "dist/parallel.h"

enum { LEVELS = 16 };

typedef struct ct__shards {
    int count; /* of all ranks */
    int begun; /* shard that runs now, -1: none */
    int64_t step;
    int done;                /* shards of this step that are added up */
    int64_t elements;        /* of gradients and floating buffers, and flags of use */
    ct_dtype dtype;          /* f32, or f64 where a parameter is */
    ct_tensor *sums[LEVELS]; /* of 2^level shards, kept */
    int *buffers;            /* places of floating buffers in the list */
    int buffer_count;
    ct_tensor **before; /* buffers as they were before the step, kept */
} ct__shards;

static ct_tensor *buffer_of(const ct_dist_parallel *p, int i) {
    return ct_parameter_tensor(ct_parameters_at(p->list, p->shards->buffers[i]));
}

struct ct__shards *ct__shards_new(ct_dist_parallel *p, int count) {
    const int ranks = ct_dist_group_size(p->group), n = ct_parameters_count(p->list);
    if (count < 1 || count > 1 << (LEVELS - 1) || (count & (count - 1)) != 0 || count % ranks != 0) {
        ct_fail(CT_ERR_VALUE, "dist_data_parallel",
                "%d shards: their number is a power of two that the number of ranks, %d, divides", count, ranks);
        return NULL;
    }
    ct__shards *s = ct_calloc(1, sizeof *s);
    if (s) s->buffers = ct_calloc((size_t)n + 1, sizeof *s->buffers);
    if (s) s->before = ct_calloc((size_t)n + 1, sizeof *s->before);
    if (!s || !s->buffers || !s->before) {
        ct__shards_free(s);
        ct_fail(CT_ERR_MEMORY, "dist_data_parallel", "no memory for shards");
        return NULL;
    }
    s->count = count;
    s->begun = -1;
    s->dtype = CT_F32;
    s->elements = p->learned_count;
    for (int i = 0; i < p->learned_count; i++) {
        s->elements += p->learned[i].elements;
        if (ct_dtype_of(p->learned[i].leaf) == CT_F64) s->dtype = CT_F64;
    }
    for (int i = 0; i < n; i++) {
        const ct_parameter *parameter = ct_parameters_at(p->list, i);
        ct_tensor *x = ct_parameter_tensor(parameter);
        if (!parameter->buffer || !ct_dtype_is_float(ct_dtype_of(x))) continue;
        s->buffers[s->buffer_count++] = i;
        s->elements += ct_numel(x);
    }
    s->elements = (s->elements + ranks - 1) / ranks * ranks; /* one part per rank */
    return s;
}

static void forget(ct__shards *s) {
    for (int i = 0; i < LEVELS; i++) {
        ct_drop(s->sums[i]);
        s->sums[i] = NULL;
    }
    for (int i = 0; i < s->buffer_count; i++) {
        ct_drop(s->before[i]);
        s->before[i] = NULL;
    }
    s->done = 0;
    s->begun = -1;
}

void ct__shards_free(struct ct__shards *s) {
    if (!s) return;
    if (s->buffers && s->before) forget(s);
    ct_free(s->buffers);
    ct_free(s->before);
    ct_free(s);
}

int ct_dist_first_shard(const ct_dist_parallel *p) {
    return p && p->shards ? p->shards->count / ct_dist_group_size(p->group) * ct_dist_group_rank(p->group) : 0;
}

int ct_dist_last_shard(const ct_dist_parallel *p) {
    return p && p->shards ? p->shards->count / ct_dist_group_size(p->group) + ct_dist_first_shard(p) : 0;
}

/* ---- One shard ---- */

static bool put(ct_tensor *flat, int64_t *at, ct_tensor *x) {
    const int64_t n = ct_numel(x);
    ct_tensor *there = ct_reshape(ct_narrow(flat, 0, *at, n), ct_shape(x));
    *at += n;
    return ct_assign(there, x) != NULL;
}

/* What the shard has made of gradients and buffers, flat; gradients are forgotten. NULL after an error. */
static ct_tensor *collect(ct_dist_parallel *p) {
    ct__shards *s = p->shards;
    ct_tensor *flat = ct_zeros(CT_DIMS(s->elements), .dtype = s->dtype, .device = {CT_CPU, 0});
    int64_t at = 0;
    if (!flat) return NULL;
    for (int i = 0; i < p->learned_count; i++) {
        ct_tensor *grad = ct_grad_of(p->learned[i].leaf);
        p->learned[i].used = grad != NULL;
        if (!grad) at += p->learned[i].elements;
        else if (!put(flat, &at, ct_to(grad, (ct_device){CT_CPU, 0})) || !ct_set_grad(p->learned[i].leaf, NULL))
            return NULL;
    }
    for (int i = 0; i < p->learned_count; i++, at++)
        if (p->learned[i].used) ct_fill(ct_narrow(flat, 0, at, 1), 1);
    for (int i = 0; i < s->buffer_count; i++)
        if (!put(flat, &at, ct_to(buffer_of(p, i), (ct_device){CT_CPU, 0}))) return NULL;
    return ct_ok() ? flat : NULL;
}

/* Adds up like a binary counter: two sums of 2^k shards become one of 2^(k+1). */
static bool add_up(ct__shards *s, ct_tensor *flat) {
    ct_tensor *sum = ct_keep(flat);
    int level = 0;
    for (; s->sums[level]; level++) {
        ct_tensor *lower = s->sums[level];
        ct_add_(lower, sum);
        ct_drop(sum);
        sum = lower;
        s->sums[level] = NULL;
    }
    s->sums[level] = sum;
    s->done++;
    return ct_ok();
}

static bool end_shard(ct_dist_parallel *p) {
    ct__shards *s = p->shards;
    bool fine = true;
    if (s->begun < 0) return true;
    s->begun = -1;
    ct_scope
        ct_no_grad {
            ct_tensor *flat = collect(p);
            fine = flat && add_up(s, flat);
        }
    return fine;
}

bool ct_dist_shard(ct_dist_parallel *p, int64_t step, int shard) {
    if (!p) return ct_fail(CT_ERR_NULL, "dist_shard", "parallel is NULL");
    if (!ct_ok()) return false;
    ct__shards *s = p->shards;
    if (!s) return ct_fail(CT_ERR_STATE, "dist_shard", "ct_dist_data_parallel was not given .shards");
    if (!end_shard(p)) return false;
    if (shard != ct_dist_first_shard(p) + s->done || shard >= ct_dist_last_shard(p))
        return ct_fail(CT_ERR_VALUE, "dist_shard",
                       "shard %d: this rank has %d to %d, one after the other, and is at %d", shard,
                       ct_dist_first_shard(p), ct_dist_last_shard(p) - 1, ct_dist_first_shard(p) + s->done);
    bool fine = true;
    ct_scope
        ct_no_grad {
            for (int i = 0; fine && i < s->buffer_count; i++) {
                ct_tensor *buffer = buffer_of(p, i);
                if (!s->before[i]) fine = (s->before[i] = ct_keep(ct_clone(buffer))) != NULL;
                else fine = ct_assign(buffer, s->before[i]) != NULL;
            }
        }
    s->begun = shard;
    s->step = step;
    return fine && ct_rng_set_position(NULL, ((uint64_t)step * (uint64_t)s->count + (uint64_t)shard) << 20);
}

/* ---- All of them ---- */

/* The upper tree: x holds one part of every rank's sum, in their order. */
static ct_tensor *tree_sum(ct_tensor *x, int64_t parts, int64_t elements) {
    for (; parts > 1; parts /= 2) {
        ct_tensor *pairs = ct_reshape(x, CT_DIMS(parts / 2, 2, elements));
        x = ct_add(ct_select(pairs, 1, 0), ct_select(pairs, 1, 1));
    }
    return ct_reshape(x, CT_DIMS(elements));
}

static ct_tensor *sum_over_ranks(ct_dist_parallel *p, ct_tensor *mine) {
    const int ranks = ct_dist_group_size(p->group);
    if (ranks == 1) return mine;
    return ct_dist_all_gather(tree_sum(ct_dist_all_to_all(mine, p->group), ranks, p->shards->elements / ranks),
                              p->group);
}

static bool hand_out(ct_dist_parallel *p, ct_tensor *mean) {
    ct__shards *s = p->shards;
    int64_t at = 0, flags_at = 0;
    for (int i = 0; i < p->learned_count; i++) flags_at += p->learned[i].elements;
    float *flags = ct_malloc((size_t)p->learned_count * sizeof *flags + 1);
    bool fine = flags && ct_read(ct_cast(ct_narrow(mean, 0, flags_at, p->learned_count), CT_F32), flags,
                                 (size_t)p->learned_count * sizeof *flags);
    for (int i = 0; fine && i < p->learned_count; i++) {
        ct_tensor *leaf = p->learned[i].leaf;
        ct_tensor *grad = ct_reshape(ct_narrow(mean, 0, at, p->learned[i].elements), ct_shape(leaf));
        at += p->learned[i].elements;
        if (flags[i] > 0) fine = ct_set_grad(leaf, ct_to(ct_cast(grad, ct_dtype_of(leaf)), ct_device_of(leaf)));
    }
    at += p->learned_count;
    for (int i = 0; fine && i < s->buffer_count; i++) {
        ct_tensor *buffer = buffer_of(p, i),
                  *value = ct_reshape(ct_narrow(mean, 0, at, ct_numel(buffer)), ct_shape(buffer));
        at += ct_numel(buffer);
        fine = ct_assign(buffer, ct_to(ct_cast(value, ct_dtype_of(buffer)), ct_device_of(buffer))) != NULL;
    }
    ct_free(flags);
    return fine;
}

bool ct__shards_reduce(ct_dist_parallel *p) {
    ct__shards *s = p->shards;
    const int mine = s->count / ct_dist_group_size(p->group);
    bool fine = end_shard(p);
    if (fine && s->done != mine)
        fine =
            ct_fail(CT_ERR_STATE, "dist_reduce_gradients", "%d of this rank's %d shards were computed", s->done, mine);
    ct_scope
        ct_no_grad {
            int level = 0;
            while (fine && (1 << level) < mine) level++;
            ct_tensor *sum = fine ? sum_over_ranks(p, s->sums[level]) : NULL;
            fine = sum && hand_out(p, ct_div_s(sum, s->count));
        }
    /* what is drawn before the next step, too, is the same for any number of ranks */
    fine = fine && ct_rng_set_position(NULL, (uint64_t)(s->step + 1) * (uint64_t)s->count << 20);
    forget(s);
    return fine;
}

/* Data parallelism: gradients are put into buckets as they are complete, and a bucket that is full is summed over
 * ranks while backward goes on. Buckets begin in their order on every rank, whatever the order in which gradients
 * come. A large gradient is a bucket by itself, and is summed where it is. */
#include <stdio.h>
#include <string.h>

#include "dist/parallel.h"
#include "support/options.h"

enum { DEFAULT_BUCKET = 8 << 20, LARGE = 512 << 10 }; /* bytes */

struct ct__watch { /* the context of a leaf's hook, which may outlive the parallel network */
    ct_dist_parallel *parallel;
    int index;
};

static void watch_release(void *context) {
    ct__watch *watch = context;
    if (watch->parallel) watch->parallel->learned[watch->index].watch = NULL;
    ct_free(watch);
}

/* ---- Buckets ---- */

static ct_dtype travel_dtype(const ct_dist_parallel *p, const ct_tensor *leaf) {
    const ct_dtype dtype = ct_dtype_of(leaf);
    return p->bf16 && dtype == CT_F32 ? CT_BF16 : dtype;
}

static ct_tensor *part_of(ct_tensor *flat, int64_t offset, ct_dims shape, int64_t elements) {
    return ct_reshape(ct_narrow(flat, 0, offset, elements), shape);
}

/* The sum of f32 in the host's memory is divided where it is, by whoever moves the call; what is on a device, and what is
 * rounded to 16 bits, before it goes. */
static bool scales_itself(const ct_dist_parallel *p, const ct_tensor *leaf) {
    return travel_dtype(p, leaf) == CT_F32 && ct_device_of(leaf).type == CT_CPU;
}

/* Which parameters have a gradient here, behind the gradients of the last bucket: a mean above 0 says that some rank
 * has one. */
static bool put_flags(ct_dist_parallel *p, ct__bucket *bucket) {
    float *flags = ct_malloc((size_t)p->learned_count * sizeof *flags);
    if (!flags) return ct_fail(CT_ERR_MEMORY, "dist_reduce_gradients", "no memory for %d flags", p->learned_count);
    if (!bucket->flat) /* there are no small gradients before the flags */
        bucket->flat = ct_keep(ct_empty(CT_DIMS(bucket->elements), .device = ct_device_of(p->learned[0].leaf)));
    for (int i = 0; i < p->learned_count; i++) flags[i] = p->learned[i].used;
    ct_tensor *there = ct_narrow(bucket->flat, 0, bucket->elements - p->learned_count, p->learned_count);
    ct_tensor *all = ct_to(ct_from_data(flags, CT_DIMS(p->learned_count), CT_F32), ct_device_of(bucket->flat));
    ct_free(flags);
    return ct_assign(there, all) != NULL;
}

static bool launch_full(ct_dist_parallel *p) {
    while (p->launched < p->bucket_count && p->buckets[p->launched].filled == p->buckets[p->launched].count) {
        ct__bucket *bucket = &p->buckets[p->launched];
        if (p->launched + 1 == p->bucket_count && !put_flags(p, bucket)) return false;
        bucket->work = ct__start(CT__ALL_REDUCE, bucket->flat, CT_DIST_SUM, 0, p->group, bucket->name, true,
                                 scales_itself(p, bucket->flat) ? 1 / (float)ct_dist_group_size(p->group) : 0);
        if (!bucket->work) return false;
        p->launched++;
    }
    return true;
}

/* This rank's part of the mean; into where it is to be, or NULL: a tensor of its own. */
static ct_tensor *part_of_mean(const ct_dist_parallel *p, ct_tensor *grad, ct_tensor *into) {
    if (scales_itself(p, grad)) return into == grad ? grad : into ? ct_assign(into, grad) : ct_clone(grad);
    if (into && ct_dtype_of(into) != ct_dtype_of(grad))
        return ct_assign(into, ct_div_s(grad, ct_dist_group_size(p->group)));
    if (into) ct_into(into);
    return ct_div_s(grad, ct_dist_group_size(p->group));
}

/* What this pass gave, or NULL, and what is there of passes before. */
static ct_tensor *sum_of(ct_tensor *grad, ct_tensor *before) {
    return !grad ? before : before ? ct_add(before, ct_detach(grad)) : ct_detach(grad);
}

static bool put_small(ct_dist_parallel *p, const ct__learned *l, ct_tensor *grad, ct_tensor *before) {
    ct__bucket *bucket = &p->buckets[l->bucket];
    if (!bucket->flat)
        bucket->flat = ct_keep(
            ct_empty(CT_DIMS(bucket->elements), .dtype = travel_dtype(p, l->leaf), .device = ct_device_of(l->leaf)));
    ct_tensor *there = bucket->flat ? part_of(bucket->flat, l->offset, ct_shape(l->leaf), l->elements) : NULL;
    if (!there) return false;
    if (!grad && !before) return ct_zero(there) != NULL;
    return part_of_mean(p, sum_of(grad, before), there) != NULL;
}

/* What is the leaf's by now goes where it is. What is part of a graph, or whoever called ct_grad has, is not written to. */
static bool put_large(ct_dist_parallel *p, const ct__learned *l, ct_tensor *grad, ct_tensor *before) {
    ct__bucket *bucket = &p->buckets[l->bucket];
    ct_tensor *sum = sum_of(grad, before), *whole = sum ? ct_detach(sum) : ct_zeros_like(l->leaf);
    const bool owned = !grad && sum && !ct_requires_grad(sum) && ct_is_contiguous(sum);
    ct_tensor *part = sum ? part_of_mean(p, whole, owned ? whole : NULL) : whole;
    if (part && ct_dtype_of(part) != travel_dtype(p, l->leaf)) part = ct_cast(part, travel_dtype(p, l->leaf));
    bucket->flat = ct_keep(ct_reshape(part, CT_DIMS(l->elements)));
    return bucket->flat != NULL;
}

static bool put_gradient(ct_dist_parallel *p, ct__learned *l, ct_tensor *grad) {
    ct__bucket *bucket = &p->buckets[l->bucket];
    ct_tensor *before = ct_grad_of(l->leaf);
    ct_no_grad {
        l->used = grad || before;
        if (!(bucket->large ? put_large : put_small)(p, l, grad, before)) return false;
        l->ready = true;
        bucket->filled++;
    }
    return true;
}

/* The large gradient that came last has become its leaf's since. */
static bool put_arrived(ct_dist_parallel *p) {
    const int arrived = p->arrived;
    p->arrived = -1;
    return arrived < 0 || put_gradient(p, &p->learned[arrived], NULL);
}

static ct_tensor *gradient_complete(void *context, ct_tensor *grad) {
    const ct__watch *watch = context;
    ct_dist_parallel *p = watch->parallel;
    if (!p || !p->sync || p->shards || ct_dist_group_size(p->group) == 1) return NULL;
    ct__learned *l = &p->learned[watch->index];
    if (l->ready || p->arrived == watch->index) {
        ct_fail(CT_ERR_STATE, "dist_data_parallel",
                "a second gradient of '%s' before ct_dist_reduce_gradients: ct_dist_set_sync(parallel, false) is for "
                "all passes but the "
                "last",
                l->parameter->name);
        return NULL;
    }
    if (!put_arrived(p)) return NULL;
    if (p->buckets[l->bucket].large && ct_backward_accumulates()) p->arrived = watch->index;
    else if (!put_gradient(p, l, grad)) return NULL;
    if (launch_full(p) && !ct__progress_runs()) ct__flights_move();
    return NULL;
}

/* Takes the sums apart again. */
static bool hand_out(ct_dist_parallel *p, int index, const float *flags) {
    const ct__bucket *bucket = &p->buckets[index];
    ct_no_grad {
        ct_tensor *mean = ct_to(bucket->work->result, ct_device_of(bucket->flat));
        for (int i = bucket->first; i <= bucket->last && bucket->count && mean; i++) {
            ct__learned *l = &p->learned[i];
            if (l->bucket != index || flags[i] == 0) continue; /* no rank has used it */
            ct_tensor *grad = part_of(mean, l->offset, ct_shape(l->leaf), l->elements);
            if (ct_dtype_of(grad) != ct_dtype_of(l->leaf)) grad = ct_cast(grad, ct_dtype_of(l->leaf));
            if (!grad || !ct_set_grad(l->leaf, grad)) return false;
        }
        return mean != NULL;
    }
    return false;
}

static bool read_flags(ct_dist_parallel *p, float *flags) {
    const ct__bucket *last = &p->buckets[p->bucket_count - 1];
    ct_tensor *there = ct_narrow(last->work->result, 0, last->elements - p->learned_count, p->learned_count);
    return ct_read(ct_cast(there, CT_F32), flags, (size_t)p->learned_count * sizeof *flags);
}

static void forget_step(ct_dist_parallel *p) {
    for (int i = 0; i < p->bucket_count; i++) {
        ct__bucket *bucket = &p->buckets[i];
        ct_dist_work_free(bucket->work);
        ct_drop(bucket->flat);
        bucket->work = NULL;
        bucket->flat = NULL;
        bucket->filled = 0;
    }
    for (int i = 0; i < p->learned_count; i++) p->learned[i].ready = p->learned[i].used = false;
    p->launched = 0;
    p->arrived = -1;
}

bool ct__parallel_same(const ct_dist_parallel *p) {
    for (int i = 0; i < p->learned_count; i++)
        if (ct_parameter_tensor(p->learned[i].parameter) != p->learned[i].leaf || !p->learned[i].watch)
            return ct_fail(CT_ERR_STATE, "dist_reduce_gradients",
                           "'%s' is another tensor than when ct_dist_data_parallel was called: move, convert and "
                           "freeze a network before",
                           p->learned[i].parameter->name);
    return true;
}

static bool reduce_buckets(ct_dist_parallel *p) {
    float *flags = ct_malloc((size_t)p->learned_count * sizeof *flags);
    bool fine = flags || ct_fail(CT_ERR_MEMORY, "dist_reduce_gradients", "no memory for %d flags", p->learned_count);
    ct_scope
        fine = fine && put_arrived(p);
    for (int i = 0; fine && i < p->learned_count; i++)
        if (!p->learned[i].ready)
            ct_scope
                fine = put_gradient(p, &p->learned[i], NULL);
    ct_scope
        fine = fine && launch_full(p);
    for (int i = 0; fine && i < p->bucket_count; i++) fine = ct__flight_wait(&p->buckets[i].work->flight);
    ct_scope
        fine = fine && read_flags(p, flags);
    for (int i = 0; fine && i < p->bucket_count; i++)
        ct_scope
            fine = hand_out(p, i, flags);
    ct_free(flags);
    forget_step(p);
    return fine;
}

bool ct_dist_reduce_gradients(ct_dist_parallel *parallel) {
    if (!parallel) return ct_fail(CT_ERR_NULL, "dist_reduce_gradients", "parallel is NULL");
    if (!ct_ok() || !ct__parallel_same(parallel)) return false;
    if (parallel->shards) return ct__shards_reduce(parallel);
    if (ct_dist_group_size(parallel->group) == 1 || !parallel->sync || parallel->learned_count == 0) return true;
    return reduce_buckets(parallel);
}

bool ct_dist_set_sync(ct_dist_parallel *parallel, bool sync) {
    if (!parallel) return ct_fail(CT_ERR_NULL, "dist_set_sync", "parallel is NULL");
    const bool before = parallel->sync;
    parallel->sync = sync;
    return before;
}

/* ---- Batch norm ---- */

static ct_tensor *sum_of_group(void *context, ct_tensor *x) { return ct_dist_all_reduce(x, CT_DIST_SUM, context); }

bool ct_nn_sync_batch_norm(ct_module *net, ct_dist_group *group) {
    if (!net) return ct_fail(CT_ERR_NULL, "nn_sync_batch_norm", "net is NULL");
    return ct_nn_batch_norm_sum(net, sum_of_group, group);
}

/* ---- Making ---- */

bool ct__broadcast_parameters(const ct_parameters *list, ct_dist_group *group) {
    bool fine = true;
    if (ct_dist_group_size(group) == 1) return true;
    for (int i = 0; fine && i < ct_parameters_count(list); i++) {
        const ct_parameter *parameter = ct_parameters_at(list, i);
        if (ct__is_sharded(parameter->owner)) continue; /* it differs from rank to rank, and is reduced by itself */
        ct_scope {
            ct_tensor *x = ct_parameter_tensor(parameter);
            ct_dist_work *work = ct__start(CT__BROADCAST, x, CT_DIST_SUM, 0, group, parameter->name, false, 0);
            fine = work && ct__flight_wait(&work->flight);
            ct_no_grad
                fine = fine && ct_assign(x, ct_to(work->result, ct_device_of(x)));
            ct_dist_work_free(work);
        }
    }
    return fine;
}

bool ct_dist_broadcast_network(ct_dist_parallel *parallel) {
    if (!parallel) return ct_fail(CT_ERR_NULL, "dist_broadcast_network", "parallel is NULL");
    return ct_ok() && ct__broadcast_parameters(parallel->list, parallel->group);
}

static bool same_bucket(const ct_dist_parallel *p, const ct_tensor *a, const ct_tensor *b) {
    const ct_device x = ct_device_of(a), y = ct_device_of(b);
    return travel_dtype(p, a) == travel_dtype(p, b) && x.type == y.type && x.index == y.index;
}

static void name_bucket(const ct_dist_parallel *p, ct__bucket *bucket) {
    const char *first = p->learned[bucket->first].parameter->name, *last = p->learned[bucket->last].parameter->name;
    if (bucket->count == 0) snprintf(bucket->name, sizeof bucket->name, "which parameters were used");
    else if (bucket->count == 1) snprintf(bucket->name, sizeof bucket->name, "%.60s", first);
    else snprintf(bucket->name, sizeof bucket->name, "%.34s to %.34s", first, last);
}

static void close_bucket(ct_dist_parallel *p, ct__bucket *bucket) {
    for (int i = bucket->first; i <= bucket->last; i++)
        if (p->learned[i].bucket < 0) p->learned[i].bucket = p->bucket_count;
    name_bucket(p, bucket);
    p->buckets[p->bucket_count++] = *bucket;
    *bucket = (ct__bucket){0};
}

/* Backwards, since the gradients of the last layers are complete first; in the order in which buckets will be full. */
static void fill_buckets(ct_dist_parallel *p, int64_t most) {
    ct__bucket open = {0};
    int64_t bytes = 0;
    for (int i = 0; i < p->learned_count; i++) {
        ct__learned *l = &p->learned[i];
        l->elements = ct_numel(l->leaf);
        const int64_t more = l->elements * (int64_t)ct_dtype_size(travel_dtype(p, l->leaf));
        if (more >= LARGE || more >= most) {
            l->bucket = p->bucket_count;
            close_bucket(p, &(ct__bucket){.first = i, .last = i, .count = 1, .large = true, .elements = l->elements});
            continue;
        }
        if (open.count && (bytes + more > most || !same_bucket(p, p->learned[open.first].leaf, l->leaf)))
            close_bucket(p, &open);
        if (open.count == 0) open.first = i, bytes = 0;
        l->bucket = -1;
        l->offset = open.elements;
        open.last = i;
        open.elements += l->elements;
        open.count++;
        bytes += more;
    }
    open.elements += p->learned_count;
    if (p->learned_count) close_bucket(p, &open);
}

static bool watch_leaf(ct_dist_parallel *p, int index) {
    ct__watch *watch = ct_malloc(sizeof *watch);
    if (!watch) return ct_fail(CT_ERR_MEMORY, "dist_data_parallel", "no memory for a hook");
    *watch = (ct__watch){p, index};
    p->learned[index].watch = watch;
    return ct_hook(p->learned[index].leaf, gradient_complete, watch, watch_release);
}

static bool set_up(ct_dist_parallel *p, const ct_dist_parallel_options *o) {
    p->list = ct_module_parameters(p->net);
    const int n = p->list ? ct_parameters_count(p->list) : 0;
    if (!p->list) return false;
    p->learned = ct_calloc((size_t)n + 1, sizeof *p->learned);
    p->buckets = ct_calloc((size_t)n + 1, sizeof *p->buckets); /* the last one may hold flags alone */
    if (!p->learned || !p->buckets)
        return ct_fail(CT_ERR_MEMORY, "dist_data_parallel", "no memory for %d parameters", n);
    for (int i = n - 1; i >= 0; i--) {
        const ct_parameter *parameter = ct_parameters_at(p->list, i);
        ct_tensor *x = ct_parameter_tensor(parameter);
        if (parameter->buffer || !ct_requires_grad(x) || ct__is_sharded(parameter->owner)) continue;
        p->learned[p->learned_count++] = (ct__learned){.parameter = parameter, .leaf = ct_keep(x)};
    }
    fill_buckets(p, o->bucket > 0 ? o->bucket : DEFAULT_BUCKET);
    if (!ct__broadcast_parameters(p->list, p->group)) return false;
    for (int i = 0; i < p->learned_count; i++)
        if (!watch_leaf(p, i)) return false;
    return !o->shards || (p->shards = ct__shards_new(p, o->shards));
}

static ct_dist_parallel *parallels; /* all that there are */

bool ct__parallel_averages(ct_tensor *const *leaves, int n, ct_dist_group *group) {
    const ct_dist_group *wanted = ct__group(group, "dist_divide");
    for (int i = 0; wanted && i < n; i++) {
        bool found = !ct_requires_grad(leaves[i]); /* frozen: there is nothing to average */
        for (const ct_dist_parallel *p = parallels; p && !found; p = p->next) {
            if (ct__group(p->group, "dist_divide") != wanted) continue;
            /* they are listed from the last one on: mostly the one sought is the first looked at */
            for (int k = 0; k < p->learned_count && !found; k++)
                found =
                    p->learned[(p->learned_count - 1 - i % p->learned_count + k) % p->learned_count].leaf == leaves[i];
        }
        if (!found && ct_ok())
            return ct_fail(
                CT_ERR_STATE, "dist_divide",
                "stage 1 leaves gradients whole, and nothing averages that of %s, parameter %d of the step, over "
                "these %d ranks: ct_dist_data_parallel does",
                ct_tensor_text(leaves[i]), i, wanted->size);
    }
    return wanted && ct_ok();
}

ct_dist_parallel *ct_dist_data_parallel_p(ct_module *net, const ct_dist_parallel_options *options) {
    TAKE_OPTIONS(ct_dist_parallel_options, o, options);
    if (!ct_ok()) return NULL;
    if (!net) {
        ct_fail(CT_ERR_NULL, "dist_data_parallel", "net is NULL");
        return NULL;
    }
    if (!ct__group(o.group, "dist_data_parallel")) return NULL;
    ct_dist_parallel *p = ct_calloc(1, sizeof *p);
    if (!p) {
        ct_fail(CT_ERR_MEMORY, "dist_data_parallel", "no memory");
        return NULL;
    }
    *p = (ct_dist_parallel){
        .net = ct_module_keep(net), .group = o.group, .bf16 = o.bf16, .sync = true, .arrived = -1, .next = parallels};
    parallels = p;
    if (set_up(p, &o)) return p;
    ct_dist_parallel_free(p);
    return NULL;
}

void ct_dist_parallel_free(ct_dist_parallel *p) {
    if (!p) return;
    ct_dist_parallel **at = &parallels;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    forget_step(p);
    for (int i = 0; i < p->learned_count; i++) {
        if (p->learned[i].watch) p->learned[i].watch->parallel = NULL;
        ct_drop(p->learned[i].leaf);
    }
    ct__shards_free(p->shards);
    ct_parameters_free(p->list);
    ct_module_free(p->net);
    ct_free(p->learned);
    ct_free(p->buckets);
    ct_free(p);
}

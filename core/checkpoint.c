/* ct_checkpoint: trade activations for time. The region's graph is recorded as always, so gradients of anything it
 * touches (parameters included) and gradients of gradients work as always; only the saved tensors are missing. The first that backward asks for
 * makes the function run again, on the same inputs and the same random positions, to produce all of them. */
#include "core/checkpoint.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/number.h"

struct ct_region {
    _Atomic int refs;
    ct_function fn;
    void *context;
    void (*release)(void *context);
    ct_tensor **in;
    uint32_t *versions;
    int n, m;
    ct_tensor **saved; /* what the repeat produced, in order of saving; an entry goes when its node is done */
    int64_t save_count, save_cursor, save_capacity;
    ct_random *randoms;
    int64_t random_count, random_cursor, random_capacity;
    bool repeating;
    ct_dtype autocast; /* as it was when the function ran first */
    struct ct_region *outer;
};

static _Thread_local ct_region *current; /* the region being run on this thread */

bool ct_is_recomputing(void) {
    for (ct_region *region = current; region; region = region->outer)
        if (region->repeating) return true;
    return false;
}

ct_region *ct__region_enter_node(ct_node *node) {
    if (!current) return NULL;
    node->region_save = current->repeating ? current->save_cursor : current->save_count;
    atomic_fetch_add(&current->refs, 1);
    return current;
}

bool ct__region_save(ct_region *region, ct_tensor *x) {
    if (!region->repeating) {
        region->save_count++;
        return true;
    }
    if (region->save_cursor >= region->save_count)
        return ct_fail(CT_ERR_GRAD, "checkpoint",
                       "the function did something else when it ran again: it saved more than before");
    /* Without its node: the repeated graph belongs to this region, and would keep it alive for ever. */
    ct_tensor *bare = x->storage ? ct__tensor_new(&x->view, x->storage) : ct__number_hold(x);
    region->saved[region->save_cursor++] = bare;
    return bare != NULL;
}

/* An op that changed it may be part of another one, which has its turn later: versions since `before` are the op's own. */
void ct__region_mutated(const ct_storage *storage, uint32_t before) {
    const uint32_t now = atomic_load(&storage->version);
    for (ct_region *region = current; region; region = region->outer)
        for (int i = 0; i < region->n; i++)
            if (region->in[i] && region->in[i]->storage == storage && region->versions[i] - before <= now - before)
                region->versions[i] = now;
}

bool ct__region_random(ct_random *position) {
    ct_region *region = current;
    if (!region) return true;
    if (region->repeating) {
        if (region->random_cursor >= region->random_count)
            return ct_fail(
                CT_ERR_GRAD, "checkpoint",
                "the function did something else when it ran again: it drew more random numbers than before");
        *position = region->randoms[region->random_cursor++];
        return true;
    }
    if (region->random_count == region->random_capacity) {
        int64_t larger = region->random_capacity ? 2 * region->random_capacity : 16;
        void *grown = ct__grow(region->randoms, (size_t)region->random_capacity * sizeof *region->randoms,
                               (size_t)larger * sizeof *region->randoms);
        if (!grown) return ct__fail_memory("checkpoint", (size_t)larger * sizeof *region->randoms);
        region->randoms = grown;
        region->random_capacity = larger;
    }
    region->randoms[region->random_count++] = *position;
    return true;
}

static void drop_saved(ct_region *region) {
    for (int64_t i = 0; region->saved && i < region->save_count; i++) ct__tensor_release(region->saved[i]);
    ct__free(region->saved, (size_t)region->save_count * sizeof *region->saved);
    region->saved = NULL;
}

void ct__region_release(ct_region *region) {
    if (atomic_fetch_sub(&region->refs, 1) != 1) return;
    drop_saved(region);
    for (int i = 0; i < region->n; i++) ct__tensor_release(region->in[i]);
    ct__free(region->in, (size_t)region->n * sizeof *region->in);
    ct__free(region->versions, (size_t)region->n * sizeof *region->versions);
    ct__free(region->randoms, (size_t)region->random_capacity * sizeof *region->randoms);
    if (region->release) region->release(region->context);
    ct__free(region, sizeof *region);
}

static bool run(ct_region *region, ct_tensor **out) {
    const ct_dtype autocast = ct__autocast;
    ct__autocast = region->autocast;
    region->outer = current;
    current = region;
    bool ok = region->fn(region->context, region->in, region->n, out, region->m);
    current = region->outer;
    ct__autocast = autocast;
    region->outer = NULL;
    if (!ok && ct_ok()) ct_fail(CT_ERR_STATE, "checkpoint", "the function failed without an error");
    for (int i = 0; ok && i < region->m; i++)
        if (!out[i]) ok = ct__fail_null("checkpoint", "out (a result of the function)");
    return ok && ct_ok();
}

static bool repeat(ct_region *region) {
    for (int i = 0; i < region->n; i++) {
        if (region->in[i] && region->in[i]->storage &&
            atomic_load(&region->in[i]->storage->version) != region->versions[i])
            return ct_fail(CT_ERR_GRAD, "checkpoint",
                           "argument %d was changed in place after the function ran, so it cannot run again", i);
    }
    size_t bytes = (size_t)region->save_count * sizeof *region->saved;
    region->saved = ct__alloc(bytes);
    ct_tensor **out = ct__alloc((size_t)region->m * sizeof *out);
    bool ok = region->saved && out;
    if (!ok) {
        ct__free(region->saved, bytes);
        region->saved = NULL;
        ct__fail_memory("checkpoint", bytes);
    } else {
        memset(region->saved, 0, bytes);
        memset(out, 0, (size_t)region->m * sizeof *out);
        region->repeating = true;
        region->save_cursor = region->random_cursor = 0;
        bool before = ct_set_grad_enabled(true);
        ct_scope {
            ok = run(region, out);
        }
        ct_set_grad_enabled(before);
        region->repeating = false;
        if (ok && region->save_cursor != region->save_count)
            ok = ct_fail(CT_ERR_GRAD, "checkpoint",
                         "the function did something else when it ran again: it saved less than before");
        if (!ok) drop_saved(region);
    }
    ct__free(out, (size_t)region->m * sizeof *out);
    return ok;
}

ct_tensor *ct__region_load(ct_node *node, int slot) {
    ct_region *region = node->region;
    int64_t index = node->region_save;
    for (int i = 0; i < slot; i++) index += node->saved[i].wanted;
    /* After a pass that released its part, a later pass repeats the region once more. */
    if (region->saved && !region->saved[index]) drop_saved(region);
    if (!region->saved && !repeat(region)) return NULL;
    /* Handed over to the node, which lets go of it when its own turn is over. */
    ct_tensor *tensor = region->saved[index];
    region->saved[index] = NULL;
    ct_saved *saved = &node->saved[slot];
    saved->version = tensor->storage ? atomic_load(&tensor->storage->version) : 0;
    return saved->tensor = tensor;
}

bool ct_checkpoint(ct_function fn, void *context, void (*release)(void *context), ct_tensor *const *in, int n,
                   ct_tensor **out, int m) {
    if (ct__pending() || !fn || n < 0 || m < 1 || !out || (n && !in)) {
        if (!ct__pending()) ct__fail_null("checkpoint", !fn ? "fn" : !out ? "out" : "in");
        if (release) release(context);
        return false;
    }
    ct_region *region = ct__alloc(sizeof *region);
    ct_tensor **inputs = ct__alloc((size_t)n * sizeof *inputs);
    uint32_t *versions = ct__alloc((size_t)n * sizeof *versions);
    if (!region || !inputs || !versions) {
        ct__free(region, sizeof *region);
        ct__free(inputs, (size_t)n * sizeof *inputs);
        ct__free(versions, (size_t)n * sizeof *versions);
        if (release) release(context);
        return ct__fail_memory("checkpoint", sizeof *region);
    }
    *region = (ct_region){.fn = fn,
                          .context = context,
                          .release = release,
                          .in = inputs,
                          .versions = versions,
                          .n = n,
                          .m = m,
                          .autocast = ct__autocast};
    atomic_init(&region->refs, 1);
    for (int i = 0; i < n; i++) {
        inputs[i] = in[i] ? ct__tensor_retain(in[i]) : NULL;
        versions[i] = in[i] && in[i]->storage ? atomic_load(&in[i]->storage->version) : 0;
    }
    for (int i = 0; i < m; i++) out[i] = NULL;
    bool ok = false;
    ct_scope {
        ok = run(region, out);
        for (int i = 0; ok && i < m; i++) ct_pass(out[i]);
    }
    ct__region_release(region); /* its nodes hold it now, if there are any */
    return ok;
}

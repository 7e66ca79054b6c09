/* Random graphs of 50 ops, drawn by a seed: views, changes in place, broadcasts, dropout, reductions, products, kept and dropped tensors,
 * effects. Captured with passes and replayed, they are compared with the same calls done eagerly, bit for bit. */
#ifndef COTANGENT_TESTS_RANDOM_GRAPH_H
#define COTANGENT_TESTS_RANDOM_GRAPH_H

#include <cotangent/capture.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/passes/passes.h"
#include "tests/harness.h"

enum { OPS = 50, POOL = 64, STATES = 4, KEPT = 8, SIZES = 3 };
static const int64_t sizes[SIZES] = {1, 5, 18};

/* The function is drawn by a generator of its own, from the same seed at each call. */
typedef struct random_program {
    uint64_t seed, words;
    int ops;
    ct_device device;
    ct_tensor *x[2], *index;  /* written before each run; index [5] below 18 */
    ct_tensor *state[STATES]; /* changed by it */
    ct_tensor *kept[KEPT];    /* left behind by it */
    int n_kept, effects;
    ct_tensor *pool[POOL]; /* in a run */
    int n_pool;
} random_program;

static uint64_t draw(random_program *p, uint64_t below) {
    p->words = p->words * 6364136223846793005u + 1442695040888963407u;
    return (p->words >> 33) % below;
}

static void add(random_program *p, ct_tensor *y) {
    if (!y) return;
    if (p->n_pool < POOL) p->pool[p->n_pool++] = y;
    else p->pool[draw(p, POOL)] = y;
}
static ct_tensor *pick(random_program *p) { return p->pool[draw(p, (uint64_t)p->n_pool)]; }

/* One that broadcasts with x: a row or column of another, or one made for it. */
static ct_tensor *partner(random_program *p, ct_tensor *x) {
    const int64_t rows = ct_dim(x, 0), columns = ct_dim(x, 1);
    for (int tries = 0; tries < 8; tries++) {
        ct_tensor *y = pick(p);
        if ((ct_dim(y, 0) == rows || ct_dim(y, 0) == 1) && (ct_dim(y, 1) == columns || ct_dim(y, 1) == 1)) return y;
    }
    switch (draw(p, 3)) {
    case 0: return ct_sum(x, .axes = CT_DIMS(0), .keepdim = true);
    case 1: return ct_mean(x, .axes = CT_DIMS(1), .keepdim = true);
    default: return ct_full(CT_DIMS(rows, columns), 0.25 * (double)draw(p, 5));
    }
}

static ct_tensor *bounded(ct_tensor *x) { return ct_tanh(x); } /* values stay where nothing overflows */

static bool mix_states(void *context) {
    random_program *p = context;
    p->effects++;
    return ct_add_(p->state[0], ct_mul_s(p->state[1], 0.5)) != NULL;
}
static bool effect(random_program *p) {
    const bool ok = ct_capture_effect(mix_states, p), suspended = ct_capture_suspend();
    const bool done = mix_states(p);
    ct_capture_resume(suspended);
    return ok && done;
}

/* Writes into a tensor, or a part of it. */
static bool write_in_place(random_program *p, ct_tensor *target) {
    switch (draw(p, 4)) {
    case 0: return ct_add_(target, partner(p, target)) != NULL;
    case 1: return ct_assign(target, partner(p, target)) != NULL;
    case 2: {
        ct_tensor *part = ct_narrow(target, 1, ct_dim(target, 1) / 2, (ct_dim(target, 1) + 1) / 2);
        return ct_assign(part, ct_mul_s(part, 0.5)) != NULL;
    }
    default: {
        ct_tensor *row = ct_narrow(target, 0, (int64_t)draw(p, (uint64_t)ct_dim(target, 0)), 1);
        return ct_mul_(row, partner(p, row)) != NULL;
    }
    }
}

/* A temporary of its own memory, which may be written: views of it are in the pool as well. */
static ct_tensor *temporary(random_program *p) {
    ct_tensor *y = ct_clone(pick(p));
    add(p, y);
    if (y && draw(p, 2)) add(p, ct_t(y));
    return y;
}

static bool do_op(random_program *p) {
    ct_tensor *x = pick(p);
    switch (draw(p, 21)) {
    case 0: return add(p, ct_relu(x)), true;
    case 1: return add(p, bounded(ct_neg(x))), true;
    case 2: return add(p, bounded(ct_add(x, partner(p, x)))), true;
    case 3: return add(p, bounded(ct_mul(x, partner(p, x)))), true;
    case 4: return add(p, ct_add_s(x, 0.5 * (double)draw(p, 3))), true;
    case 5: return add(p, ct_t(x)), true;
    case 6: return add(p, ct_narrow(x, 1, 0, (ct_dim(x, 1) + 1) / 2)), true;
    case 7: return add(p, ct_sum(x, .axes = CT_DIMS((int64_t)draw(p, 2)), .keepdim = true)), true;
    case 8: return add(p, ct_softmax(x, (int64_t)draw(p, 2))), true;
    case 9: return add(p, bounded(ct_matmul(x, ct_t(x)))), true;
    case 10: return add(p, ct_dropout(x, 0.4)), true;
    case 11: return add(p, ct_cast(ct_cast(x, CT_BF16), CT_F32)), true;
    case 12: return add(p, ct_where(ct_gt_s(x, 0.1), x, partner(p, x))), true;
    case 13: return add(p, ct_dim(x, 0) > 40 ? ct_abs(x) : ct_cat((ct_tensor *[]){x, ct_relu(x)}, 2, 0)), true;
    case 14: {
        ct_tensor *y = temporary(p);
        return y && write_in_place(p, y);
    }
    case 15: return write_in_place(p, p->state[draw(p, STATES)]);
    case 16: return draw(p, 3) ? true : effect(p);
    case 17: {
        const float row[5] = {0.5f, -1, (float)draw(p, 3), 2, 0};
        return add(p, bounded(ct_exp(ct_from_data(row, CT_DIMS(1, 5), CT_F32)))), true;
    }
    case 18:
        return add(p, ct_index_select(ct_expand(ct_narrow(x, 1, 0, 1), CT_DIMS(ct_dim(x, 0), 18)), 1, p->index)), true;
    case 19: { /* each element depends on all of them */
        ct_tensor *all = ct_reshape(x, CT_DIMS(1, ct_dim(x, 0), ct_dim(x, 1)));
        return add(p, ct_reshape(ct_group_norm(all, 1, .eps = CT_SET(0.1)), ct_shape(x))), true;
    }
    default:
        if (p->n_kept == KEPT) return true;
        ct_drop(p->kept[p->n_kept]);
        p->kept[p->n_kept++] = ct_keep(x);
        return true;
    }
}

static bool random_run(void *context) {
    random_program *p = context;
    bool ok = true;
    p->words = p->seed;
    p->n_kept = p->n_pool = 0;
    for (int i = 0; i < 2; i++) add(p, p->x[i]);
    for (int i = 0; i < STATES; i++) add(p, p->state[i]);
    for (int i = 0; ok && i < p->ops; i++) ok = do_op(p) && ct_ok();
    for (int i = 0; ok && i < STATES; i++) ok = ct_assign(p->state[i], bounded(p->state[i])) != NULL;
    return ok;
}

static void random_make(random_program *p, uint64_t seed, int ops, ct_device device) {
    *p = (random_program){.seed = seed * 2654435761u + 17, .words = seed, .ops = ops, .device = device};
    ct_rng *rng = ct_rng_new(seed, 1);
    for (int i = 0; i < 2 + STATES; i++) {
        const ct_dims shape = CT_DIMS(sizes[draw(p, SIZES)], sizes[draw(p, SIZES)]);
        *(i < 2 ? &p->x[i] : &p->state[i - 2]) = ct_keep(ct_to(ct_randn(shape, .rng = rng), device));
    }
    /* the effect adds the second to the first */
    ct_drop(p->state[1]);
    p->state[1] = ct_keep(ct_mul_s(p->state[0], 0.3));
    p->index = ct_keep(ct_to(ct_randint(CT_DIMS(5), 0, 18, .rng = rng), device));
    ct_rng_free(rng);
}

static void random_drop(random_program *p) {
    for (int i = 0; i < 2; i++) ct_drop(p->x[i]);
    for (int i = 0; i < STATES; i++) ct_drop(p->state[i]);
    for (int i = 0; i < KEPT; i++) ct_drop(p->kept[i]);
    ct_drop(p->index);
}

static bool same_tensor(ct_tensor *a, ct_tensor *b) {
    const ct_device cpu = {CT_CPU, 0};
    return !a == !b && (!a || harness_same_bits(ct_contiguous(ct_to(a, cpu)), ct_contiguous(ct_to(b, cpu))));
}
static bool same(const random_program *a, const random_program *b) {
    bool alike = a->effects == b->effects && a->n_kept == b->n_kept;
    for (int i = 0; alike && i < STATES; i++) alike = same_tensor(a->state[i], b->state[i]);
    for (int i = 0; alike && i < a->n_kept; i++) alike = same_tensor(a->kept[i], b->kept[i]);
    return alike;
}

/* Captured once and replayed twice with other inputs, beside eager runs of the same program. */
static bool random_check(uint64_t seed, int ops, const char *passes, ct_device device, ct_graph_info *info) {
    random_program captured, eager;
    bool ok = ct_capture_passes(passes);
    ct_scope {
        ct_set_device(device);
        random_make(&captured, seed, ops, device);
        random_make(&eager, seed, ops, device);
        const uint64_t begin = ct_rng_position(NULL);
        ct_graph *g = ct_capture(random_run, &captured, CT_CAPTURE_WARM);
        harness_check(g != NULL, __FILE__, __LINE__, "seed %llu, passes %s: %s", (unsigned long long)seed, passes,
                      ct_error());
        info->size = sizeof *info;
        ok = ok && g && ct_graph_describe(g, info) && ct_rng_set_position(NULL, begin);
        for (int k = 0; ok && k < 3; k++)
            ct_scope {
                const uint64_t before = ct_rng_position(NULL);
                for (int i = 0; k && i < 2; i++) {
                    ct_tensor *x = ct_add_s(ct_mul_s(eager.x[i], 0.5), 0.1 * k);
                    ok = ok && ct_assign(eager.x[i], x) && ct_assign(captured.x[i], x);
                }
                ok = ok && (k == 0 || ct_replay(g));
                const uint64_t after = ct_rng_position(NULL);
                ok = ok && ct_rng_set_position(NULL, before) && random_run(&eager) &&
                     (k == 0 || ct_rng_position(NULL) == after);
                harness_check(ok, __FILE__, __LINE__, "seed %llu, passes %s: replay %d: %s", (unsigned long long)seed,
                              passes, k, ct_error());
                ok = ok && harness_check(same(&captured, &eager), __FILE__, __LINE__,
                                         "seed %llu, %d ops, passes %s: other bits in replay %d",
                                         (unsigned long long)seed, ops, passes, k);
            }
        ct_graph_free(g);
        random_drop(&captured);
        random_drop(&eager);
        ct_set_device((ct_device){CT_CPU, 0});
    }
    ct_capture_passes(NULL);
    return ok;
}

/* Some passes in some order, drawn by a seed; without: one that is not among them, or NULL. */
static void random_passes(uint64_t seed, const char *without, char *text, size_t room) {
    random_program p = {.words = seed * 977 + 5};
    const char *names[32];
    int n = 0;
    while (n < 32 && ct__pass_at(n)) names[n] = ct__pass_at(n)->name, n++;
    text[0] = 0;
    for (int left = n; left > 0; left--) {
        const int i = (int)draw(&p, (uint64_t)left);
        const bool wanted = !without || strcmp(names[i], without) != 0;
        if (draw(&p, 6) && wanted)
            snprintf(text + strlen(text), room - strlen(text), "%s%s", text[0] ? "," : "", names[i]);
        names[i] = names[left - 1];
    }
    if (!text[0]) snprintf(text, room, "none");
}

#endif

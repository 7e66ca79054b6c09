/* What tests of passes over captured graphs share: functions to capture, and the comparison of a graph that one pass has seen with eager calls. */
#ifndef COTANGENT_TESTS_PASSES_H
#define COTANGENT_TESTS_PASSES_H

#include <cotangent/capture.h>
#include <string.h>

#include "core/graph.h"
#include "tests/count_calls.h"
#include "tests/harness.h"

enum { TENSORS = 6, N = 12 };

/* What a function works on: x [3,N] is written before each replay, the others are changed by the function. */
typedef struct work {
    ct_tensor *x, *state, *weight;             /* [3,N] each; weight requires grad */
    ct_tensor *kept[TENSORS];                  /* left behind by the function */
    float shared[2 * N];                       /* memory of the program's own, */
    ct_tensor *one, *other;                    /* seen by two tensors [N] and [2,N] */
    ct_tensor *wrapped_state, *wrapped_weight; /* the memory of state and of weight: [3,N] */
    int effects;
} work;

static inline void keep(work *w, int i, ct_tensor *y) {
    ct_drop(w->kept[i]);
    w->kept[i] = y ? ct_keep(ct_detach(y)) : NULL;
}

static inline void make(work *w) {
    ct_rng *rng = ct_rng_new(5, 0);
    *w = (work){0};
    w->x = ct_keep(ct_randn(CT_DIMS(3, N), .rng = rng));
    w->state = ct_keep(ct_randn(CT_DIMS(3, N), .rng = rng));
    w->weight = ct_keep(ct_set_requires_grad(ct_randn(CT_DIMS(3, N), .rng = rng), true));
    for (int i = 0; i < 2 * N; i++) w->shared[i] = (float)i / 7;
    w->one = ct_keep(ct_wrap(w->shared, CT_DIMS(N), CT_F32));
    w->other = ct_keep(ct_wrap(w->shared, CT_DIMS(2, N), CT_F32));
    w->wrapped_state = ct_keep(ct_wrap(ct_data_mut(w->state), CT_DIMS(3, N), CT_F32));
    w->wrapped_weight = ct_keep(ct_wrap((void *)(uintptr_t)ct_data(w->weight), CT_DIMS(3, N), CT_F32));
    ct_rng_free(rng);
}

static inline void drop(work *w) {
    ct_drop(w->x), ct_drop(w->state), ct_drop(w->weight), ct_drop(w->one), ct_drop(w->other);
    ct_drop(w->wrapped_state), ct_drop(w->wrapped_weight);
    for (int i = 0; i < TENSORS; i++) ct_drop(w->kept[i]);
}

/* An effect that changes the state, as the function does by itself where it is not captured. */
static inline bool double_state(void *context) {
    work *w = context;
    w->effects++;
    return ct_add_(w->state, w->state) != NULL;
}
static inline bool effect(work *w) {
    const bool ok = ct_capture_effect(double_state, w), suspended = ct_capture_suspend();
    const bool done = double_state(w);
    ct_capture_resume(suspended);
    return ok && done;
}

static inline bool same(const work *a, const work *b) {
    bool alike = harness_same_bits(a->x, b->x) && harness_same_bits(a->state, b->state) &&
                 harness_same_bits(ct_detach(a->weight), ct_detach(b->weight)) &&
                 memcmp(a->shared, b->shared, sizeof a->shared) == 0 && a->effects == b->effects;
    for (int i = 0; alike && i < TENSORS; i++)
        alike = !a->kept[i] == !b->kept[i] && (!a->kept[i] || harness_same_bits(a->kept[i], b->kept[i]));
    return alike;
}

/* Captured with these passes alone, with this many records of an op, and the bits of eager calls. */
typedef struct expectation {
    const char *name;
    bool (*function)(void *context);
    const char *op;
    int records;
    unsigned flags;
} expectation;

static inline void expect(const char *passes, const expectation *e) {
    work captured, eager;
    CHECK(ct_capture_passes(passes));
    ct_scope {
        make(&captured);
        make(&eager);
        const uint64_t position = ct_rng_position(NULL);
        ct_graph *g = NULL;
        ct_scope {
            ct_no_grad {
                g = ct_capture(e->function, &captured, CT_CAPTURE_WARM | e->flags);
            }
        }
        harness_check(g != NULL, __FILE__, __LINE__, "%s: %s", e->name, ct_error());
        if (g)
            harness_check(count_calls(g, e->op) == e->records, __FILE__, __LINE__, "%s, %s: %d records of %s, not %d",
                          passes, e->name, count_calls(g, e->op), e->op, e->records);
        CHECK(ct_rng_set_position(NULL, position));
        for (int k = 0; g && k < 4; k++)
            ct_scope {
                ct_no_grad {
                    const uint64_t before = ct_rng_position(NULL);
                    if (k) {
                        ct_tensor *x = ct_mul_s(ct_add_s(harness_randn(CT_DIMS(3, N)), k), 0.5);
                        CHECK(ct_assign(eager.x, x) && ct_assign(captured.x, x));
                        CHECK(ct_replay(g));
                        const uint64_t after = ct_rng_position(NULL);
                        CHECK(ct_rng_set_position(NULL, before) && e->function(&eager) &&
                              ct_rng_position(NULL) == after);
                    } else {
                        CHECK(e->function(&eager));
                    }
                    harness_check(same(&captured, &eager), __FILE__, __LINE__, "%s, %s: other bits in replay %d",
                                  passes, e->name, k);
                }
            }
        ct_graph_free(g);
        drop(&captured);
        drop(&eager);
    }
    CHECK(ct_capture_passes(NULL));
}

static inline void expect_all(const char *passes, const expectation *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        expect(passes, &all[i]);
        expect("none", &(expectation){all[i].name, all[i].function, "nothing of that name", 0, all[i].flags});
    }
}
#define EXPECT_ALL(passes, all) expect_all(passes, all, sizeof all / sizeof *all)
#define WORK                    work *w = context

/* ---- Functions that more than one pass has to leave alone ---- */

static const float numbers[N] = {1, 2, 3, -4};
static inline bool written_between(void *context) {
    WORK;
    ct_tensor *before = ct_exp(w->state);
    if (!ct_add_(w->state, w->x)) return false;
    keep(w, 0, ct_add(before, ct_exp(w->state)));
    return true;
}
static inline bool partly_written_between(void *context) {
    WORK;
    ct_tensor *t = ct_sin(w->x), *before = ct_exp(t);
    if (!ct_assign(ct_narrow(t, 1, 3, 2), ct_narrow(w->x, 1, 0, 2))) return false;
    keep(w, 0, ct_add(before, ct_exp(t)));
    return true;
}
static inline bool result_written_later(void *context) {
    WORK;
    ct_tensor *a = ct_exp(w->x), *b = ct_exp(w->x);
    if (!ct_add_(b, w->x)) return false;
    keep(w, 0, ct_sub(a, b));
    return true;
}
static inline bool results_kept(void *context) {
    WORK;
    keep(w, 0, ct_exp(w->x));
    keep(w, 1, ct_exp(w->x));
    return true;
}
static inline bool drawn_twice(void *context) {
    WORK;
    keep(w, 0, ct_sub(ct_dropout(w->x, 0.5), ct_dropout(w->x, 0.5)));
    return true;
}
static inline bool effect_between(void *context) {
    WORK;
    ct_tensor *before = ct_exp(w->state);
    if (!effect(w)) return false;
    keep(w, 0, ct_add(before, ct_exp(w->state)));
    return true;
}
static inline bool shared_memory(void *context) {
    WORK;
    ct_tensor *before = ct_exp(w->one);
    if (!ct_assign(ct_select(w->other, 0, 0), ct_select(w->x, 0, 1))) return false;
    keep(w, 0, ct_add(before, ct_exp(w->one)));
    return true;
}
static inline bool wrapped_memory(void *context) {
    WORK;
    ct_tensor *before = ct_exp(w->state);
    if (!ct_assign(w->wrapped_state, w->x)) return false;
    keep(w, 0, ct_add(before, ct_exp(w->state)));
    return true;
}
static inline bool of_changed_constants(void *context) {
    WORK;
    ct_tensor *c = ct_from_data(numbers, CT_DIMS(N), CT_F32), *before = ct_exp(c);
    if (!ct_add_(c, ct_select(w->x, 0, 0))) return false;
    keep(w, 0, ct_add(before, ct_exp(c)));
    return true;
}

#endif

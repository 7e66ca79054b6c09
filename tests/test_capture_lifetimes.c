/* What a captured function may do with the life of things: let go of tensors while its recording is suspended, replay another graph
 * meanwhile; and with generators of random numbers, of which replays go on where they stand. */
#include <cotangent/capture.h>
#include <pthread.h>
#include <string.h>

#include "tests/harness.h"

typedef struct work {
    ct_tensor *x, *y, *z; /* kept by the test's scope */
    ct_graph *other;
} work;

static work make_work(void) {
    return (work){.x = ct_arange(1, 9, 1), .y = ct_zeros(CT_DIMS(8)), .z = ct_zeros(CT_DIMS(8))};
}

/* y = 2 x, then what `other` does, which is no part of the graph, then z = 3 x. */
static bool with_another_between(void *context) {
    work *w = context;
    ct_tensor *twice = NULL;
    ct_scope {
        twice = ct_mul_s(w->x, 2);
        if (twice) ct_keep(twice);
    }
    if (!twice || !ct_assign(w->y, twice)) return false;
    const bool suspended = ct_capture_suspend();
    ct_drop(twice); /* it was made while this was recorded */
    const bool ok = !w->other || ct_replay(w->other);
    ct_capture_resume(suspended);
    return ok && ct_assign(w->z, ct_mul_s(w->x, 3));
}

static void check_replays(ct_graph *graph, const work *w) {
    REQUIRE(graph);
    CHECK(ct_assign(w->x, ct_full(CT_DIMS(8), 7)) && ct_replay(graph));
    CHECK(ct_item(ct_sum(w->y)) == 8 * 14 && ct_item(ct_sum(w->z)) == 8 * 21);
    ct_graph_free(graph);
}

TEST(what_was_made_before_a_suspension_may_go_in_it) {
    work w = make_work();
    check_replays(ct_capture(with_another_between, &w, 0), &w);
}

static bool count_up(void *context) {
    ct_tensor *n = context;
    return ct_assign(n, ct_add_s(n, 1)) != NULL;
}

TEST(a_graph_that_is_replayed_in_a_suspension_is_no_part_of_the_capture) {
    for (unsigned flags = 0; flags <= CT_CAPTURE_CHECK; flags += CT_CAPTURE_CHECK) {
        work w = make_work();
        ct_tensor *n = ct_zeros(CT_DIMS0);
        w.other = ct_capture(count_up, n, flags);
        ct_graph *graph = ct_capture(with_another_between, &w, 0);
        CHECK(ct_item(n) == 4); /* two steps of each capture */
        check_replays(graph, &w);
        CHECK(ct_item(n) == 4);
        ct_graph_free(w.other);
    }
}

static bool never_resumed(void *context) {
    work *w = context;
    if (!ct_assign(w->y, ct_mul_s(w->x, 2))) return false;
    ct_capture_suspend();
    return ct_assign(w->z, ct_mul_s(w->x, 3)) != NULL;
}

TEST(a_recording_that_is_not_resumed_gives_no_graph) {
    work w = make_work();
    CHECK(!ct_capture(never_resumed, &w, 0));
    CHECK(ct_error_code() == CT_ERR_STATE && strstr(ct_error(), "resumed"));
    ct_error_clear();
    check_replays(ct_capture(with_another_between, &w, 0), &w);
}

/* ---- Other threads ---- */

typedef struct handing_over {
    work *work;
    ct_tensor *mine; /* the other thread's */
    bool at_once;    /* it is gone before the function goes on; otherwise at any time up to its end */
    pthread_t thread;
} handing_over;

static void *let_go(void *context) {
    handing_over *h = context;
    ct_drop(h->mine);
    return NULL;
}

/* y = 2 x and z = 3 x; another thread lets go of 2 x, and memory of its size is made and used afterwards. */
static bool hand_over(void *context) {
    handing_over *h = context;
    ct_scope { /* behind which nobody else holds it */
        if ((h->mine = ct_mul_s(h->work->x, 2))) ct_keep(h->mine);
        ct_assign(h->work->y, h->mine);
    }
    if (!h->mine || pthread_create(&h->thread, NULL, let_go, h) != 0) return false;
    if (h->at_once) pthread_join(h->thread, NULL);
    const bool ok = ct_assign(h->work->z, ct_add(ct_add(h->work->x, h->work->x), h->work->x));
    if (!h->at_once) pthread_join(h->thread, NULL);
    return ok;
}

TEST(what_a_function_has_made_may_be_let_go_of_by_another_thread) {
    for (int i = 0; i < 100; i++) {
        ct_scope {
            work w = make_work();
            handing_over h = {.work = &w, .at_once = i % 2 == 0};
            check_replays(ct_capture(hand_over, &h, 0), &w);
        }
    }
}

/* ---- Generators ---- */

typedef enum generator_use { SEEDS, MOVES, FREES } generator_use;
typedef struct drawing {
    ct_tensor *y, *steps; /* kept by the test's scope */
    ct_rng *rng;
    generator_use use;
} drawing;

static bool draw(void *context) {
    drawing *d = context;
    return ct_assign(d->y, ct_randn(CT_DIMS(8), .rng = d->rng)) != NULL;
}

/* The same numbers in each step, which no replay would have. */
static bool draw_the_same(void *context) {
    drawing *d = context;
    bool ok = true;
    if (d->use == SEEDS) ok = ct_seed(11);
    if (d->use == MOVES) ok = ct_rng_set_position(NULL, 3);
    if (d->use == FREES) ok = (d->rng = ct_rng_new(7, 1)) != NULL;
    ok = ok && draw(d);
    ct_rng_free(d->rng);
    d->rng = NULL;
    return ok && ct_assign(d->steps, ct_add_s(d->steps, 1));
}

TEST(what_puts_a_generator_back_in_each_step_is_not_captured) {
    for (generator_use use = SEEDS; use <= FREES; use++) {
        drawing d = {.y = ct_zeros(CT_DIMS(8)), .steps = ct_zeros(CT_DIMS0), .use = use};
        CHECK(draw_the_same(&d));
        ct_tensor *first = ct_clone(d.y);
        CHECK(!ct_capture(draw_the_same, &d, 0));
        CHECK(ct_error_code() == CT_ERR_STATE && strstr(ct_error(), "cannot be captured"));
        ct_error_clear();
        CHECK(ct_item(d.steps) == 3 && harness_same_bits(first, d.y)); /* the steps are whole */
    }
}

TEST(a_graph_holds_the_generators_that_it_draws_from) {
    drawing captured = {.y = ct_zeros(CT_DIMS(8)), .rng = ct_rng_new(5, 2)}, eager = captured;
    eager.y = ct_zeros(CT_DIMS(8));
    ct_graph *graph = ct_capture(draw, &captured, 0);
    REQUIRE(graph);
    ct_rng_free(captured.rng);
    CHECK(ct_replay(graph) && ct_replay(graph));
    eager.rng = ct_rng_new(5, 2);
    for (int i = 0; i < 4; i++) CHECK(draw(&eager));
    CHECK(harness_same_bits(captured.y, eager.y));
    ct_rng_free(eager.rng);
    ct_graph_free(graph);
}

/* Lifetimes: scopes that nest and end early, references that are kept, passed on and given back. */
#include <pthread.h>

#include "core/tensor.h"
#include "tests/harness.h"

TEST(a_scope_releases_what_was_made_in_it) {
    int64_t before = ct_live_objects();
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(4));
        ct_add(x, x);
        CHECK(ct_live_objects() == before + 2);
    }
    CHECK(ct_live_objects() == before);
}

TEST(scopes_nest_and_each_releases_its_own) {
    int64_t before = ct_live_objects();
    ct_scope {
        ct_ones(CT_DIMS(1));
        ct_scope {
            ct_ones(CT_DIMS(1));
            ct_scope {
                ct_ones(CT_DIMS(1));
            }
            CHECK(ct_live_objects() == before + 2);
        }
        CHECK(ct_live_objects() == before + 1);
        ct_ones(CT_DIMS(1));
        CHECK(ct_live_objects() == before + 2);
    }
    CHECK(ct_live_objects() == before);
}

static double returns_early(bool early) {
    ct_scope {
        ct_tensor *x = ct_full(CT_DIMS(3), 2);
        ct_scope {
            if (early) return ct_item(ct_sum(x));
        }
        ct_ones(CT_DIMS(9));
    }
    return -1;
}

TEST(an_early_return_ends_every_open_scope) {
    int64_t before = ct_live_objects();
    CHECK(returns_early(true) == 6);
    CHECK(ct_live_objects() == before);
    CHECK(returns_early(false) == -1);
    CHECK(ct_live_objects() == before);
}

TEST(break_ends_only_the_scope) {
    int64_t before = ct_live_objects();
    int turns = 0, after = 0;
    for (int i = 0; i < 3; i++) {
        turns++;
        ct_scope {
            ct_ones(CT_DIMS(2));
            if (i == 1) break;
            after++;
        }
    }
    CHECK(turns == 3 && after == 2);
    CHECK(ct_live_objects() == before);
}

TEST(continue_ends_only_the_scope) {
    int64_t before = ct_live_objects();
    int after = 0;
    for (int i = 0; i < 3; i++) {
        ct_scope {
            ct_ones(CT_DIMS(2));
            if (i == 1) continue;
        }
        after++;
    }
    CHECK(after == 3);
    CHECK(ct_live_objects() == before);
}

TEST(a_scope_in_a_loop_holds_one_turn_at_a_time) {
    int64_t before = ct_live_objects(), most = 0;
    for (int i = 0; i < 1000; i++) {
        ct_scope {
            ct_tensor *x = ct_full(CT_DIMS(10), i);
            ct_sum(ct_mul(x, x));
            if (ct_live_objects() - before > most) most = ct_live_objects() - before;
        }
    }
    CHECK(most == 3);
}

TEST(a_kept_tensor_is_the_callers) {
    int64_t before = ct_live_objects();
    ct_tensor *mine = NULL;
    ct_scope {
        mine = ct_keep(ct_full(CT_DIMS(2), 7));
    }
    CHECK(ct_live_objects() == before + 1);
    CHECK_VALUES(mine, CT_DIMS(2), 0, 7, 7);
    CHECK(ct_keep(mine) == mine);
    ct_drop(mine);
    CHECK(ct_item(ct_sum(mine)) == 14);
    ct_drop(mine);
}

static ct_tensor *hypotenuse(ct_tensor *a, ct_tensor *b) {
    ct_tensor *result = NULL;
    ct_scope {
        result = ct_pass(ct_sqrt(ct_add(ct_mul(a, a), ct_mul(b, b))));
    }
    return result;
}

TEST(a_passed_tensor_belongs_to_the_enclosing_scope) {
    int64_t before = ct_live_objects();
    ct_scope {
        ct_tensor *c = NULL;
        ct_scope {
            c = ct_pass(hypotenuse(ct_full(CT_DIMS(2), 3), ct_full(CT_DIMS(2), 4)));
            CHECK(ct_live_objects() == before + 3);
        }
        CHECK(ct_live_objects() == before + 1);
        CHECK_VALUES(c, CT_DIMS(2), 1e-6, 5, 5);
    }
    CHECK(ct_live_objects() == before);
}

TEST(several_results_can_be_passed_on_in_any_order) {
    int64_t before = ct_live_objects();
    ct_scope {
        ct_tensor *a = NULL, *b = NULL, *c = NULL;
        ct_scope {
            a = ct_full(CT_DIMS(1), 1);
            ct_ones(CT_DIMS(5));
            b = ct_full(CT_DIMS(1), 2);
            ct_ones(CT_DIMS(5));
            c = ct_full(CT_DIMS(1), 3);
            ct_pass(c);
            ct_pass(a);
            ct_pass(b);
        }
        CHECK(ct_live_objects() == before + 3);
        CHECK(ct_item(a) == 1 && ct_item(b) == 2 && ct_item(c) == 3);
    }
    CHECK(ct_live_objects() == before);
}

TEST(the_root_scope_needs_no_block) {
    int64_t before = ct_live_objects();
    ct_scope_mark mark = ct_scope_begin();
    ct_tensor *x = ct_ones(CT_DIMS(2));
    CHECK(ct_pass(x) == x);
    ct_scope_end(mark);
    CHECK(ct_live_objects() == before + 1); /* passed on to the scope around this test */
}

TEST(begin_and_end_pair_up_even_when_an_inner_end_is_forgotten) {
    int64_t before = ct_live_objects();
    ct_scope_mark outer = ct_scope_begin();
    ct_ones(CT_DIMS(2));
    ct_scope_mark inner = ct_scope_begin();
    ct_ones(CT_DIMS(2));
    ct_scope_end(outer);
    CHECK(ct_live_objects() == before);
    ct_scope_end(inner); /* ended already: nothing happens */
    ct_scope_mark next = ct_scope_begin();
    ct_ones(CT_DIMS(2));
    ct_scope_end(next);
    CHECK(ct_live_objects() == before);
}

TEST(ten_thousand_scopes_may_be_open) {
    enum { DEPTH = 10000 };
    static ct_scope_mark marks[DEPTH];
    int64_t before = ct_live_objects();
    for (int i = 0; i < DEPTH; i++) {
        marks[i] = ct_scope_begin();
        ct_scalar(i, CT_F32);
    }
    CHECK(ct_live_objects() == before + DEPTH);
    for (int i = DEPTH - 1; i >= 0; i--) ct_scope_end(marks[i]);
    CHECK(ct_live_objects() == before);
}

TEST(a_view_keeps_the_storage_alive) {
    ct_tensor *row = NULL;
    ct_scope {
        row = ct_pass(ct_select(F32(CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6), 0, 1));
    }
    CHECK_VALUES(row, CT_DIMS(3), 0, 4, 5, 6);
}

static void *makes_and_leaves(void *context) {
    (void)context;
    ct_ones(CT_DIMS(100));
    ct_scope_begin();
    ct_ones(CT_DIMS(100));
    return NULL;
}

TEST(a_thread_that_ends_releases_its_root_scope) {
    int64_t before = ct_live_objects();
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, makes_and_leaves, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(ct_live_objects() == before);
}

TEST(use_after_release_is_a_message_in_debug_builds) {
#ifdef CT_DEBUG
    if (harness_sanitized()) SKIP("the address sanitizer would see the memory first");
    ct_tensor *gone = NULL;
    ct_scope {
        gone = ct_ones(CT_DIMS(2));
    }
    CHECK(ct_neg(gone) == NULL);
    CHECK_ERROR(CT_ERR_STATE,
                "neg: argument x is not a live tensor: was it released with its scope? (ct_keep or ct_pass it)");
#else
    SKIP("not a debug build");
#endif
}

TEST(inference_over_a_deep_chain_holds_two_layers_not_all) {
    enum { WIDTH = 1 << 16, DEPTH = 50 };
    ct_tensor *x = ct_ones(CT_DIMS(WIDTH));
    harness_reset_peak();
    int64_t before = harness_memory().in_use;
    for (int layer = 0; layer < DEPTH; layer++) {
        ct_tensor *next = NULL;
        ct_scope {
            next = ct_keep(ct_relu(ct_mul_s(x, 0.5)));
        }
        if (layer) ct_drop(x);
        x = next;
    }
    ct_drop(x);
    CHECK(harness_memory().peak - before <= 4 * WIDTH * (int64_t)sizeof(float));
}

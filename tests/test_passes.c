/* Each pass over captured graphs by itself: what it removes, shares, does once or moves, what it has to leave alone, and the bits of eager
 * calls in any case. */
#include "tests/passes.h"

/* ---- Dead code ---- */

static bool unread(void *context) {
    WORK;
    return ct_exp(ct_neg(w->x)) && (keep(w, 0, ct_tanh(w->x)), true);
}
static bool unread_in_place(void *context) {
    WORK;
    ct_tensor *t = ct_exp(w->x);
    keep(w, 0, ct_tanh(t));
    return ct_add_(t, w->x) != NULL; /* after its last read */
}
static bool read_in_place(void *context) {
    WORK;
    ct_tensor *t = ct_exp(w->x);
    if (!ct_add_(t, w->x)) return false;
    keep(w, 0, ct_tanh(t));
    return true;
}
static bool partly_written(void *context) {
    WORK;
    ct_tensor *t = ct_exp(w->x);
    if (!ct_assign(ct_select(t, 0, 1), ct_select(ct_sin(w->x), 0, 2))) return false;
    keep(w, 0, ct_tanh(t)); /* needs what exp wrote, and what assign did */
    return true;
}
static bool wholly_written(void *context) {
    WORK;
    ct_tensor *t = ct_exp(w->x);
    if (!ct_assign(t, ct_sin(w->x))) return false;
    keep(w, 0, ct_tanh(t));
    return true;
}
static bool written_to_what_was_there(void *context) {
    WORK;
    return ct_assign(ct_select(w->state, 0, 1), ct_exp(ct_select(w->x, 0, 2))) != NULL;
}
static bool two_draws(void *context) {
    WORK;
    ct_dropout(w->x, 0.5);
    keep(w, 0, ct_dropout(w->x, 0.5));
    return true;
}
static bool with_effect(void *context) {
    WORK;
    ct_exp(w->state);
    if (!effect(w)) return false;
    keep(w, 0, ct_exp(w->state));
    return true;
}

TEST(dead_code_goes_and_what_somebody_reads_stays) {
    static const expectation all[] = {{"unread", unread, "exp", 0, 0},
                                      {"what only the unread reads", unread, "neg", 0, 0},
                                      {"unread, in place", unread_in_place, "add", 0, 0},
                                      {"unread, in place: what was read before", unread_in_place, "exp", 1, 0},
                                      {"read, in place", read_in_place, "add", 1, 0},
                                      {"partly written", partly_written, "exp", 1, 0},
                                      {"the part", partly_written, "sin", 1, 0},
                                      {"wholly written", wholly_written, "exp", 0, 0},
                                      {"written to what was there", written_to_what_was_there, "exp", 1, 0},
                                      {"random", two_draws, "dropout_draw", 1, 0},
                                      {"effects", with_effect, "exp", 1, 0}};
    EXPECT_ALL("dead", all);
}

static bool unread_index(void *context) {
    ct_tensor **t = context;
    return ct_gather(t[0], 0, t[1]) && ct_add_(t[0], t[0]);
}

TEST(what_would_be_an_error_stays_one) {
    ct_tensor *t[] = {ct_arange(1, 6, 1), ct_zeros(CT_DIMS(2), .dtype = CT_I64)};
    ct_graph *g = ct_capture(unread_index, t, 0);
    CHECK(g && ct_fill_i64(t[1], 9) && !ct_replay(g) && ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK(ct_item(ct_select(t[0], 0, 0)) == 4); /* as before it */
    CHECK(ct_fill_i64(t[1], 4) && ct_replay(g) && ct_item(ct_select(t[0], 0, 0)) == 8);
    ct_graph_free(g);
}

/* ---- Common subexpressions ---- */

static bool twice(void *context) {
    WORK;
    keep(w, 0, ct_add(ct_exp(ct_neg(w->x)), ct_mul(ct_exp(ct_neg(w->x)), w->x)));
    return true;
}
static bool views_twice(void *context) {
    WORK;
    keep(w, 0, ct_add(ct_exp(ct_select(w->x, 0, 1)), ct_mul(ct_exp(ct_select(w->x, 0, 1)), ct_select(w->x, 0, 2))));
    return true;
}
static bool other_views(void *context) {
    WORK;
    keep(w, 0, ct_add(ct_exp(ct_select(w->x, 0, 1)), ct_exp(ct_select(w->x, 0, 2))));
    return true;
}
static bool other_strides(void *context) {
    WORK;
    keep(w, 0, ct_matmul(ct_exp(w->x), ct_exp(ct_t(w->x))));
    return true;
}
static bool other_numbers(void *context) {
    WORK;
    keep(w, 0, ct_mul(ct_add_s(w->x, 1), ct_add_s(w->x, 2)));
    return true;
}
static bool same_numbers(void *context) {
    WORK;
    keep(w, 0, ct_mul(ct_add_s(w->x, 2), ct_add_s(w->x, 2)));
    return true;
}
static bool other_attributes(void *context) {
    WORK;
    keep(w, 0, ct_add(ct_softmax(w->x, 0), ct_softmax(w->x, 1)));
    return true;
}
static bool constants_alike(void *context) {
    WORK;
    keep(w, 0, ct_mul(ct_add(w->x, ct_full(CT_DIMS(N), 3)), ct_add(w->x, ct_full(CT_DIMS(N), 3))));
    return true;
}

TEST(common_subexpressions_are_shared_and_others_are_not) {
    static const expectation all[] = {{"twice", twice, "exp", 1, 0},
                                      {"a chain twice", twice, "neg", 1, 0},
                                      {"the same view", views_twice, "exp", 1, 0},
                                      {"other views", other_views, "exp", 2, 0},
                                      {"other strides", other_strides, "exp", 2, 0},
                                      {"other numbers", other_numbers, "add", 2, 0},
                                      {"the same numbers", same_numbers, "add", 1, 0},
                                      {"other attributes", other_attributes, "softmax", 2, 0},
                                      {"written between", written_between, "exp", 2, 0},
                                      {"partly written between", partly_written_between, "exp", 2, 0},
                                      {"written later", result_written_later, "exp", 2, 0},
                                      {"kept", results_kept, "exp", 2, 0},
                                      {"random", drawn_twice, "dropout_draw", 2, 0},
                                      {"an effect between", effect_between, "exp", 2, 0},
                                      {"memory that another tensor shares", shared_memory, "exp", 2, 0},
                                      {"memory that was wrapped as well", wrapped_memory, "exp", 2, 0},
                                      {"constants", constants_alike, "add", 1, 0}};
    EXPECT_ALL("cse", all);
}

/* ---- Constants ---- */

static bool of_constants(void *context) {
    WORK;
    keep(w, 0, ct_add(w->x, ct_exp(ct_neg(ct_from_data(numbers, CT_DIMS(N), CT_F32)))));
    return true;
}
/* Done once, a replay would go on with what the one before it has added. */
static bool of_constants_changed_later(void *context) {
    WORK;
    ct_tensor *made = ct_exp(ct_from_data(numbers, CT_DIMS(N), CT_F32));
    if (!ct_add_(made, ct_select(w->x, 0, 0))) return false;
    keep(w, 0, ct_tanh(made));
    return true;
}
static bool of_inputs(void *context) {
    WORK;
    keep(w, 0, ct_add(w->x, ct_exp(w->state)));
    return true;
}
static bool of_constants_kept(void *context) {
    WORK;
    keep(w, 0, ct_exp(ct_from_data(numbers, CT_DIMS(N), CT_F32)));
    return ct_add_(w->kept[0], ct_select(w->x, 0, 0)) != NULL;
}
static bool of_weights(void *context) {
    WORK;
    keep(w, 0, ct_matmul(w->x, ct_t(ct_cast(ct_exp(ct_narrow(w->weight, 0, 1, 2)), CT_F32))));
    return true;
}
static bool of_changed_weights(void *context) {
    WORK;
    keep(w, 0, ct_mul(w->x, ct_exp(w->weight)));
    return ct_add_(ct_detach(w->weight), w->x) != NULL;
}
static bool of_weights_changed_elsewhere(void *context) {
    WORK;
    keep(w, 0, ct_mul(w->x, ct_exp(w->weight)));
    return ct_add_(w->wrapped_weight, w->x) != NULL;
}
static bool drawn_of_constants(void *context) {
    WORK;
    keep(w, 0, ct_add(w->x, ct_dropout(ct_from_data(numbers, CT_DIMS(N), CT_F32), 0.5)));
    return true;
}

TEST(what_depends_on_constants_alone_is_done_once) {
    static const expectation all[] = {
        {"constants", of_constants, "exp", 0, 0},
        {"a chain of them", of_constants, "neg", 0, 0},
        {"what uses them", of_constants, "add", 1, 0},
        {"changed ones", of_changed_constants, "exp", 2, 0},
        {"what is changed later", of_constants_changed_later, "exp", 1, 0},
        {"inputs", of_inputs, "exp", 1, 0},
        {"results that are kept", of_constants_kept, "exp", 1, 0},
        {"random", drawn_of_constants, "dropout_draw", 1, 0},
        {"weights", of_weights, "exp", 1, 0},
        {"inputs beside frozen weights", of_inputs, "exp", 1, CT_CAPTURE_FROZEN},
        {"frozen weights", of_weights, "exp", 0, CT_CAPTURE_FROZEN},
        {"frozen weights that change", of_changed_weights, "exp", 1, CT_CAPTURE_FROZEN},
        {"or whose memory does", of_weights_changed_elsewhere, "exp", 1, CT_CAPTURE_FROZEN}};
    EXPECT_ALL("hoist", all);
}

/* ---- Order ---- */

enum { WIDE = 4096 };
static bool all_then_sums(void *context) {
    ct_tensor **t = context, *made[8], *sum = NULL;
    for (int i = 0; i < 8; i++) made[i] = ct_exp(ct_mul_s(t[0], 0.1 * (i + 1)));
    for (int i = 0; i < 8; i++) sum = sum ? ct_add(sum, ct_sum(made[i])) : ct_sum(made[i]);
    return ct_assign(t[1], sum) != NULL;
}
static bool made_long_before(void *context) {
    ct_tensor **t = context, *early = ct_exp(t[0]), *y = t[0];
    for (int i = 0; i < 6; i++) y = ct_tanh(ct_add(y, t[0]));
    return ct_assign(t[1], ct_sum(ct_mul(early, y))) != NULL;
}

TEST(order_lowers_the_peak_of_memory_and_keeps_the_bits) {
    bool (*const functions[])(void *) = {all_then_sums, made_long_before};
    for (int f = 0; f < 2; f++) {
        ct_tensor *t[] = {ct_randn(CT_DIMS(WIDE)), ct_zeros(CT_DIMS0)};
        float sums[2];
        ct_graph_info info[2];
        for (int ordered = 0; ordered < 2; ordered++) {
            CHECK(ct_capture_passes(ordered ? "order" : "none"));
            ct_graph *g = ct_capture(functions[f], t, 0);
            info[ordered].size = sizeof *info;
            CHECK(g && ct_graph_describe(g, &info[ordered]) && ct_fill(t[1], 0) && ct_replay(g));
            sums[ordered] = (float)ct_item(t[1]);
            ct_graph_free(g);
        }
        CHECK(sums[0] == sums[1]);
        const int64_t wide = WIDE * sizeof(float);
        harness_check(info[1].needed_bytes <= (f ? 3 : 2) * wide + 1024 && info[0].needed_bytes >= (f ? 3 : 8) * wide,
                      __FILE__, __LINE__, "function %d: %lld bytes as recorded, %lld in order", f,
                      (long long)info[0].needed_bytes, (long long)info[1].needed_bytes);
        CHECK(info[1].needed_bytes <= info[0].needed_bytes && info[1].planned_bytes <= info[0].planned_bytes);
    }
    CHECK(ct_capture_passes(NULL));
}

TEST(order_respects_what_is_written_and_effects) {
    static const expectation all[] = {{"written between", written_between, "exp", 2, 0},
                                      {"partly written between", partly_written_between, "exp", 2, 0},
                                      {"written later", result_written_later, "exp", 2, 0},
                                      {"memory that another tensor shares", shared_memory, "exp", 2, 0},
                                      {"memory that was wrapped as well", wrapped_memory, "exp", 2, 0},
                                      {"an effect between", effect_between, "exp", 2, 0},
                                      {"random", drawn_twice, "dropout_draw", 2, 0}};
    EXPECT_ALL("order", all);
}

/* ---- Recomputation ---- */

/* Much memory is in use here, and y is wanted afterwards. */
static ct_tensor *over_a_peak(const work *w, ct_tensor *y) {
    ct_tensor *wide[4];
    for (int i = 0; i < 4; i++) wide[i] = ct_sin(ct_mul_s(w->x, 0.1 * (i + 1)));
    return ct_add(y, ct_add(ct_add(wide[0], wide[1]), ct_add(wide[2], wide[3])));
}
static bool held_for_long(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_exp(w->x)));
    return true;
}
static bool chain_held_for_long(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_relu(ct_exp(w->x))));
    return true;
}
static bool cast_held_for_long(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_cast(w->x, CT_F64)));
    return true;
}
static bool dropout_held_for_long(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_dropout(w->x, 0.5)));
    return true;
}
static bool product_held_for_long(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_softmax(w->x, 1)));
    return true;
}
static bool input_changes(void *context) {
    WORK;
    ct_tensor *y = ct_exp(w->state);
    if (!ct_add_(w->state, w->x)) return false;
    keep(w, 0, over_a_peak(w, y));
    return true;
}
static bool effect_changes_input(void *context) {
    WORK;
    ct_tensor *y = ct_exp(w->state);
    if (!effect(w)) return false;
    keep(w, 0, over_a_peak(w, y));
    return true;
}
static bool result_changes(void *context) {
    WORK;
    ct_tensor *y = ct_exp(w->x);
    if (!ct_add_(y, w->x)) return false;
    keep(w, 0, over_a_peak(w, y));
    return true;
}
static bool input_is_gone(void *context) {
    WORK;
    keep(w, 0, over_a_peak(w, ct_exp(ct_softmax(w->x, 1))));
    return true;
}

TEST(what_is_cheap_and_held_for_long_is_made_again) {
    static const expectation all[] = {
        {"held for long", held_for_long, "exp", 2, 0},
        {"a chain", chain_held_for_long, "relu", 2, 0},
        {"what the chain begins with", chain_held_for_long, "exp", 2, 0},
        {"a cast, beside that of the other term", cast_held_for_long, "cast", 3, 0},
        {"dropout, which draws no other numbers", dropout_held_for_long, "dropout_draw", 2, 0},
        {"what is not cheap", product_held_for_long, "softmax", 1, 0},
        {"of what is changed", input_changes, "exp", 1, 0},
        {"of what an effect changes", effect_changes_input, "exp", 1, 0},
        {"what is changed itself", result_changes, "exp", 1, 0},
        {"of what is not there any more", input_is_gone, "exp", 1, 0}};
    EXPECT_ALL("recompute", all);
    expect("-fuse", &(expectation){"by its flag", held_for_long, "exp", 2, CT_CAPTURE_RECOMPUTE});
    expect("-fuse", &(expectation){"not without it", held_for_long, "exp", 1, 0});
}

/* ---- Looking at a graph ---- */

static bool looked_at(void *context) {
    WORK;
    keep(w, 0, ct_add(ct_mul_s(ct_select(w->x, 0, 1), 3), ct_from_data(numbers, CT_DIMS(N), CT_F32)));
    return effect(w);
}

TEST(a_program_can_walk_through_what_a_replay_does) {
    work w;
    make(&w);
    ct_scope {
        ct_graph *g = NULL;
        CHECK(ct_capture_passes("-fuse")); /* so that calls stay by themselves */
        ct_no_grad {
            g = ct_capture(looked_at, &w, CT_CAPTURE_WARM);
        }
        CHECK(ct_capture_passes(NULL));
        ct_graph_step_info mul = {.size = sizeof mul}, sum = {.size = sizeof sum}, effect_step = {.size = sizeof sum};
        CHECK(g && ct_graph_step(g, 0, &mul) && ct_graph_step(g, 1, &sum) && ct_graph_step(g, 2, &effect_step));
        CHECK(!ct_graph_step(g, 3, &sum) && !ct_graph_step(g, -1, &sum) && ct_ok());
        CHECK(mul.kind == CT_GRAPH_STEP_CALL && strcmp(mul.op, "mul") == 0 && mul.kernel && mul.inputs == 2);
        CHECK(mul.device.type == CT_CPU && !mul.random && effect_step.kind == CT_GRAPH_STEP_EFFECT);
        ct_graph_operand_info row = {.size = sizeof row}, three = row, product = row, again = row, constant = row,
                              result = row;
        CHECK(ct_graph_operand(g, 0, 0, &row) && ct_graph_operand(g, 0, 1, &three) &&
              ct_graph_operand(g, 0, 2, &product) && !ct_graph_operand(g, 0, 3, &again));
        CHECK(row.kind == CT_GRAPH_MEMORY_KEPT && row.reads && !row.writes && row.offset == N * 4 && row.ndim == 1 &&
              row.dims[0] == N && row.strides[0] == 1 && row.dtype == CT_F32 && row.memory_bytes == 3 * N * 4);
        CHECK(three.kind == CT_GRAPH_MEMORY_NUMBER && three.number == 3 && three.memory == -1);
        CHECK(product.kind == CT_GRAPH_MEMORY_PLANNED && product.writes && !product.reads);
        CHECK(ct_graph_operand(g, 1, 0, &again) && ct_graph_operand(g, 1, 1, &constant) &&
              ct_graph_operand(g, 1, 2, &result));
        CHECK(again.memory == product.memory && again.reads && constant.kind == CT_GRAPH_MEMORY_CONSTANT &&
              result.kind == CT_GRAPH_MEMORY_KEPT && result.memory != row.memory);
        CHECK(!ct_graph_operand(g, 2, 0, &again) && ct_ok());
        CHECK(!ct_graph_step(NULL, 0, &sum) && ct_error_code() == CT_ERR_NULL);
        ct_error_clear();
        ct_graph_free(g);
    }
    drop(&w);
}

/* ---- Which of them run ---- */

TEST(passes_are_chosen_by_name_and_a_wrong_name_is_an_error) {
    CHECK(!ct_capture_passes("dead,nosuch") && ct_error_code() == CT_ERR_VALUE);
    CHECK(strstr(ct_error(), "capture: there is no pass named nosuch (CT_PASSES); there are: dead, cse, "));
    ct_error_clear();
    CHECK(!ct_capture_passes("dead,-cse"));
    CHECK_ERROR(
        CT_ERR_VALUE,
        "capture: CT_PASSES is \"dead,-cse\": names either give an order, or all begin with - and are left out");
    CHECK(ct_capture_passes("") && ct_capture_passes("none") && ct_capture_passes("-dead,-cse"));
    expect("-dead,-fuse", &(expectation){"left out", unread, "exp", 1, 0});
    expect("-fuse", &(expectation){"by default", unread, "exp", 0, 0});
}

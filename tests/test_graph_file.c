/* Captured graphs in files: what is loaded computes the bits of what was saved, on any device and level of vector instructions as far as
 * kernels agree, and everything in a file that is wrong is refused with a text. */
#include <cotangent/backend.h>
#include <cotangent/graph.h>
#include <cotangent/nn.h>
#include <stdlib.h>
#include <string.h>

#include "io/graph_file.h"
#include "tests/fail_everywhere.h"
#include "tests/files.h"

static const ct_device cpu = {CT_CPU, 0};

typedef struct model {
    ct_module *net;
    ct_tensor *x, *y; /* y is left behind by the function; kept */
} model;

static bool forward(void *context) {
    model *m = context;
    bool ok = false;
    ct_no_grad {
        ct_tensor *y = ct_softmax(ct_forward(m->net, m->x), -1);
        if ((ok = y != NULL)) {
            ct_drop(m->y);
            m->y = ct_keep(y);
        }
    }
    return ok;
}

enum { MLP, CONVOLUTIONAL, RECURRENT, TRANSFORMER, MODELS };
static model make_model(int kind) {
    model m = {0};
    ct_seed(3);
    switch (kind) {
    case MLP: m.net = ct_nn_mlp(CT_DIMS(12, 20, 5), CT_ACT_GELU), m.x = ct_randn(CT_DIMS(3, 12)); break;
    case CONVOLUTIONAL:
        m.net = ct_nn_sequential(ct_nn_conv2d(2, 6, 3, .pad = 1), ct_nn_batch_norm(6), ct_nn_relu(),
                                 ct_nn_max_pool2d(2), ct_nn_flatten(), ct_nn_dropout(0.5), ct_nn_linear(6 * 4 * 4, 5));
        m.x = ct_randn(CT_DIMS(3, 2, 8, 8));
        break;
    case RECURRENT: m.net = ct_nn_lstm_lm(5, .dim = 8, .hidden = 7), m.x = ct_randint(CT_DIMS(3, 7), 0, 5); break;
    default:
        m.net = ct_nn_gpt(5, .context = 7, .dim = 8, .layers = 2, .heads = 2);
        m.x = ct_randint(CT_DIMS(3, 7), 0, 5);
    }
    CHECK(m.net && ct_eval(m.net));
    return m;
}

static void free_model(model *m) {
    ct_drop(m->y);
    ct_module_free(m->net);
}

static ct_graph *capture(model *m) {
    ct_graph *graph = ct_capture(forward, m, CT_CAPTURE_SAVE);
    harness_check(graph && ct_graph_name(graph, "x", m->x) && ct_graph_name(graph, "y", m->y), __FILE__, __LINE__, "%s",
                  ct_error());
    return graph;
}

/* Other inputs, through the graph as it was loaded and through the network. */
static void check_loaded(model *m, ct_graph *graph) {
    for (int k = 0; graph && k < 3; k++)
        ct_scope {
            ct_tensor *x = ct_dtype_of(m->x) == CT_I64 ? ct_randint(ct_shape(m->x), 0, 5) : ct_randn(ct_shape(m->x));
            CHECK(ct_assign(m->x, x) &&
                  ct_assign(ct_graph_tensor(graph, "x"), ct_to(x, ct_device_of(ct_graph_tensor(graph, "x")))));
            CHECK(ct_replay(graph) && forward(m));
            CHECK(harness_same_bits(ct_to(ct_graph_tensor(graph, "y"), cpu), m->y));
        }
}

static void check_model(int kind, ct_device device) {
    model m = make_model(kind);
    ct_graph *graph = capture(&m);
    ct_state *state = ct_state_new();
    CHECK(graph && ct__graph_to_state(graph, state));
    ct_graph_free(graph);
    graph = ct__graph_of_state(state, "here", device);
    harness_check(graph != NULL, __FILE__, __LINE__, "model %d: %s", kind, ct_error());
    ct_state_free(state);
    check_loaded(&m, graph);
    ct_graph_free(graph);
    free_model(&m);
}

TEST_LIMIT(a_loaded_graph_computes_what_the_network_does, 120) {
    for (int kind = 0; kind < MODELS; kind++) check_model(kind, cpu);
}

static bool is_never_run(void *context) { return CHECK(context == NULL); }

/* What it was loaded with is gone: there is no function that replays could be compared with. */
TEST(a_loaded_graph_is_replayed_where_all_others_are_checked) {
    setenv("CT_CAPTURE", "check", 1);
    check_model(MLP, cpu);
    ct_tensor *x = ct_zeros(CT_DIMS(3));
    CHECK(!ct_capture(is_never_run, x, CT_CAPTURE_CHECK | CT_CAPTURE_UNCHECKED));
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    unsetenv("CT_CAPTURE");
}

TEST_LIMIT(on_another_device_too, 120) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    REQUIRE(ct_device_parse("guard", &device));
    for (int kind = 0; kind < MODELS; kind++) check_model(kind, device);
    CHECK(ct_get_device().type == CT_CPU);
}

TEST(a_file_holds_all_of_it) {
    ct_state *nothing = ct_safetensors_load(given_file("nothing.safetensors"));
    NEEDS(nothing);
    ct_state_free(nothing);
    model m = make_model(CONVOLUTIONAL);
    ct_graph *graph = capture(&m);
    CHECK(ct_graph_save(own_file("net.graph"), graph));
    ct_graph_free(graph);
    graph = ct_graph_load(own_file("net.graph"), (ct_device){0});
    harness_check(graph != NULL, __FILE__, __LINE__, "%s", ct_error());
    check_loaded(&m, graph);
    CHECK_TEXT(ct_graph_name_at(graph, 0), "x");
    CHECK_TEXT(ct_graph_name_at(graph, 1), "y");
    CHECK(!ct_graph_name_at(graph, 2) && !ct_graph_tensor(graph, "z"));
    CHECK_ERROR(CT_ERR_VALUE, "graph_tensor: the graph has no tensor named z; there are: x, y");
    size_t size = 0;
    uint8_t *bytes = file_bytes(own_file("net.graph"), &size);
    FILE *file = fopen(own_file("torn.graph"), "wb");
    REQUIRE(bytes && file);
    bytes[size / 2] ^= 1;
    CHECK(fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
    CHECK(!ct_graph_load(own_file("torn.graph"), cpu) && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    CHECK(!ct_graph_load(given_file("nothing.safetensors"), cpu) && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    ct_graph_free(graph);
    free_model(&m);
    remove_own_folder();
}

/* What no call reads or writes: data of the host's that is left behind. */
static ct_tensor *left;
static bool with_data_alone(void *context) {
    ct_tensor *data = ct_from_data((float[]){5, 6}, CT_DIMS(2), CT_F32);
    if (!data) return false;
    ct_drop(left);
    left = ct_keep(data);
    return ct_neg(context) != NULL;
}

TEST(a_name_may_be_of_data_that_no_call_uses) {
    ct_graph *graph = ct_capture(with_data_alone, ct_ones(CT_DIMS(3)), CT_CAPTURE_SAVE), *loaded;
    ct_state *state = ct_state_new();
    REQUIRE(graph && ct_graph_name(graph, "y", left) && ct__graph_to_state(graph, state));
    loaded = ct__graph_of_state(state, "here", cpu);
    CHECK(loaded && ct_replay(loaded) && harness_same_bits(ct_graph_tensor(loaded, "y"), left));
    ct_graph_free(graph);
    ct_graph_free(loaded);
    ct_state_free(state);
    ct_drop(left);
    left = NULL;
}

static bool count_up(void *n) { return ct_assign(n, ct_add_s(n, 1)) != NULL; }

TEST(what_a_graph_changes_is_after_a_load_what_it_was_when_it_was_saved) {
    ct_tensor *n = ct_zeros(CT_DIMS0);
    ct_graph *graph = ct_capture(count_up, n, CT_CAPTURE_SAVE), *loaded = NULL;
    REQUIRE(graph && ct_graph_name(graph, "n", n) && ct_graph_save(own_file("n.graph"), graph));
    for (int i = 0; i < 2; i++) {
        CHECK((loaded = ct_graph_load(own_file("n.graph"), cpu)));
        CHECK(ct_item(ct_graph_tensor(loaded, "n")) == 2);
        CHECK(ct_replay(loaded) && ct_item(ct_graph_tensor(loaded, "n")) == 3);
        ct_graph_free(loaded);
    }
    CHECK(ct_replay(graph) && ct_item(n) == 3);
    ct_graph_free(graph);
    remove_own_folder();
}

/* ---- What cannot be saved ---- */

static bool with_effect(void *x) { return ct_capture_effect(forward, x) && ct_neg(x); }
static bool with_first_element(void *x) { return ct_neg(ct_select(x, 0, 0)) != NULL; }
static ct_rng *own;
static bool with_generator(void *x) { return ct_add(x, ct_randn(CT_DIMS(3), .rng = own)) != NULL; }

/* An op of a program's own whose options only it can read. */
static bool infer_same(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static bool run_times(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const float *x = call->in[0]->buffer;
    float *y = call->out[0]->buffer;
    for (int i = 0; i < 3; i++) y[i] = x[i] * *(const float *)call->attrs;
    return true;
}
static bool with_nameless_options(void *x) {
    static const ct_arg in[] = {{.name = "x"}, {0}}, out[] = {{.name = "y"}, {0}};
    static ct_op_slot slot;
    static const ct_op times = {.size = sizeof times,
                                .name = "times",
                                .doc = "x times a number.",
                                .inputs = in,
                                .outputs = out,
                                .attr_size = sizeof(float),
                                .flags = CT_OP_NO_GRAD,
                                .infer = infer_same,
                                .slot = &slot};
    static const ct_kernel kernels[] = {{"plain", NULL, NULL, run_times}, {0}};
    if (!ct_op_find("times") && !(ct_op_register(&times) && ct_op_add_kernels(&times, "cpu", kernels))) return false;
    ct_tensor *given = x, *y = NULL;
    return ct_apply(&times, &given, 1, &(float){3}, &y, 1);
}

TEST(what_cannot_be_saved_is_named) {
    ct_tensor *x = ct_ones(CT_DIMS(3));
    ct_state *state = ct_state_new();
    own = ct_rng_new(1, 2);
    ct_graph *graph = ct_capture(with_effect, x, CT_CAPTURE_SAVE);
    CHECK(graph && !ct__graph_to_state(graph, state));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "graph_save: record 0, effect: what a program does on the host cannot be saved");
    ct_graph_free(graph);
    graph = ct_capture(with_generator, x, CT_CAPTURE_SAVE);
    CHECK(graph && !ct__graph_to_state(graph, state) && ct_error_code() == CT_ERR_UNSUPPORTED);
    ct_error_clear();
    ct_graph_free(graph);
    graph = ct_capture(with_nameless_options, x, CT_CAPTURE_SAVE);
    CHECK(graph && !ct__graph_to_state(graph, state));
    CHECK_ERROR(CT_ERR_UNSUPPORTED,
                "graph_save: record 0, times: its options have no names by which they could be written");
    ct_graph_free(graph);
    float numbers[3] = {1, 2, 3};
    ct_tensor *backward = ct_wrap(numbers + 2, CT_DIMS(3), CT_F32, .strides = CT_DIMS(-1));
    graph = ct_capture(with_first_element, backward, CT_CAPTURE_SAVE);
    CHECK(graph && ct_graph_name(graph, "x", backward) && !ct__graph_to_state(graph, state));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "graph_save: x sees memory backwards, or as another dtype than the records do");
    ct_graph_free(graph);
    graph = ct_capture(with_generator, x, 0);
    CHECK(graph && !ct_graph_save("never.graph", graph));
    CHECK_ERROR(CT_ERR_STATE, "graph_save: the graph was not captured with CT_CAPTURE_SAVE, or is empty");
    CHECK(!ct_graph_name(graph, "a b", x) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(!ct_graph_name(graph, "y", ct_zeros(CT_DIMS(3))) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_graph_name(graph, "x", x) && !ct_graph_name(graph, "x", x) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    ct_graph_free(graph);
    ct_rng_free(own);
    ct_state_free(state);
}

/* ---- Hostile files ---- */

#define BEGIN "cotangent-graph 1\nmemory 2\nm 0 f32 6 given\nm 1 f32 6 made\n"
#define CALL  "call exp 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\nend\n"

static ct_graph *load_text(const char *text) {
    ct_state *state = ct_state_new();
    ct_tensor *x = ct_arange(0, 6, 1);
    ct_graph *graph = NULL;
    if (x && ct_state_put(state, "memory.0", x) && ct_state_put(state, "data.0", ct_ones(CT_DIMS(1))) &&
        ct_state_put_text(state, "cotangent.graph", text))
        graph = ct__graph_of_state(state, "here", cpu);
    ct_state_free(state);
    return graph;
}

TEST(a_plain_text_is_a_graph) {
    ct_graph *graph = load_text(BEGIN "name y 1 0 1 6 1\n" CALL);
    harness_check(graph != NULL, __FILE__, __LINE__, "%s", ct_error());
    REQUIRE(graph);
    CHECK(ct_replay(graph) && harness_same_bits(ct_graph_tensor(graph, "y"), ct_exp(ct_arange(0, 6, 1))));
    ct_graph_free(graph);
}

TEST(wrong_descriptions_are_refused) {
    static const struct {
        const char *text, *says;
    } all[] = {
        {"", "line 1: a word is missing"},
        {"graph 1\n", "this describes no graph"},
        {"cotangent-graph 2\n", "the form of the file is 2, and this version knows 1"},
        {"cotangent-graph 1\n", "memory is missing"},
        {"cotangent-graph 1\nmemory 9999999\n", "line 2: 9999999 is no number from 0 to 1048576"},
        {"cotangent-graph 1\nmemory 1\nm 0 f33 6 given\n", "there is no dtype f33"},
        {"cotangent-graph 1\nmemory 1\nm 0 f32 7 given\n", "memory.0 is f32[6], and is said to be f32[7]"},
        {"cotangent-graph 1\nmemory 1\nm 0 i32 6 given\n", "is said to be i32[6]"},
        {"cotangent-graph 1\nmemory 2\nm 0 f32 6 given\nm 1 f32 6 given\n", "the file has no tensor memory.1"},
        {"cotangent-graph 1\nmemory 1\nm 0 f32 6 lent\n", "memory is given or made, not lent"},
        {BEGIN, "there is no record"},
        {BEGIN "call nothing 1 1\n", "there is no op named nothing"},
        {BEGIN "call as_strided_view 1 1\n", "as_strided_view is no op of a graph"},
        {BEGIN "call nonzero 1 1\n", "nonzero is no op of a graph"},
        {BEGIN "call exp 1 1\ni 0 1 2 2 3 3 1\n", "a view reaches beyond its memory of 6 elements"},
        {BEGIN "call exp 1 1\ni 0 0 2 2147483647 2147483647 0 0\n", "a view has too many elements"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 2147483647 2147483647\n", "a view reaches beyond its memory"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 -3 1\n", "-3 is no number"},
        {BEGIN "call exp 1 1\ni 7 0 2 2 3 3 1\n", "7 is no number from 0 to 1"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 3 3 3 1\n", "a view reaches beyond"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 3 2 2 1\nend\n",
         "result 0 is f32[2,3], and is said to be f32[3,2]"},
        {BEGIN "call exp 1 1\ni 1 0 2 2 3 3 1\no 1 0 2 2 3 3 1\nend\n", "input 0 is read before it is written"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 3 1\no 1 0 1 3 1\nend\n", "result 0 has no place"},
        {BEGIN "call exp 2 1\ni 0 0 2 2 3 3 1\n-\no 1 0 2 2 3 3 1\nend\n", "record 0: exp"},
        {BEGIN "call exp 1 2\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\n-\nend\n", "record 0: exp"},
        {BEGIN "call matmul 2 1\ni 0 0 2 2 3 3 1\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\nend\n", "inner dimensions differ"},
        {BEGIN "call exp 1 1\nn f32 0000\no 1 0 2 2 3 3 1\nend\n", "a number has 4 bytes"},
        {BEGIN "call exp 1 1\nn f32 0000zz00\no 1 0 2 2 3 3 1\nend\n", "are no bytes"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 3 1\n-\na axis 1\nend\n", "has no option named axis"},
        {BEGIN "call softmax 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\na axis x\nend\n", "is not an integer"},
        {BEGIN "call softmax 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\na axis 5\nend\n", "record 0: softmax"},
        {BEGIN "call exp 1 1\ni 0 0 2 2 3 3 1\no 1 0 2 2 3 3 1\n", "the call of exp has no end"},
        {BEGIN "copy 0 data.0\n", "does not fit memory 0"},
        {BEGIN "copy 1 data.0\n", "does not fit memory 1"},
        {BEGIN "fill 1 data.9\n", "the file has no tensor data.9"},
        {BEGIN "name y 1 0 1 6 1\nfill 1 data.0\nfill 1 data.0\n" CALL, "memory 1 is there already"},
        {BEGIN "name y 1 0 1 6 1\nname y 1 0 1 6 1\n" CALL, "there is a tensor named y already"},
        {BEGIN "what 1\n", "this is no record"},
        {BEGIN CALL "x", "this is no record"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ct_graph *graph = load_text(all[i].text);
        harness_check(!graph && ct_error_code() == CT_ERR_IO && strstr(ct_error(), all[i].says), __FILE__, __LINE__,
                      "%zu, %s: %s", i, all[i].says, graph ? "it was loaded" : ct_error());
        ct_error_clear();
        ct_graph_free(graph);
        CHECK(ct_get_device().type == CT_CPU);
    }
}

static bool save_and_load(void) {
    bool ok = false;
    ct_scope {
        ct_graph *graph = load_text(BEGIN "name y 1 0 1 6 1\n" CALL);
        ok = graph && ct_replay(graph) && ct_graph_tensor(graph, "y");
        ct_graph_free(graph);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_load_may_fail, 120) { FAIL_EVERYWHERE(save_and_load); }

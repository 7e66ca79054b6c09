/* Weights from elsewhere: state dicts that PyTorch and torchvision wrote (tools/refs/make_weights.py), loaded as they are and
 * compared by what the network then computes; names that differ, what is reported of them, and layouts. */
#include <cotangent/io.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <cotangent/run.h>

#include <math.h>

#include "tests/files.h"

#define NEEDS_JSON()                                                               \
    do {                                                                           \
        ct_state *needed = ct_safetensors_load(given_file("nothing.safetensors")); \
        NEEDS(needed);                                                             \
        ct_state_free(needed);                                                     \
    } while (0)

/* ---- Files of PyTorch ---- */

static ct_module *torch_layers(void) {
    return ct_nn_sequential(ct_nn_conv2d(3, 4, 3), ct_nn_batch_norm(4), ct_nn_prelu(4, 0.25),
                            ct_nn_conv_transpose2d(4, 6, 0, .kernels = CT_DIMS(3, 2), .groups = 2),
                            ct_nn_group_norm(2, 6), ct_nn_conv2d(6, 6, 3, .groups = 3),
                            ct_nn_instance_norm(6, .affine = true, .running = true), ct_nn_flatten_axes(2, -1),
                            ct_nn_conv1d(6, 3, 5), ct_nn_batch_norm(3), ct_nn_flatten(), ct_nn_linear(204, 8),
                            ct_nn_layer_norm(8), ct_nn_rms_norm(8, .eps = CT_SET(1e-6)));
}

static ct_module *square(bool channels_last) {
    return ct_nn_sequential(ct_nn_conv2d(3, 3, 3, .pad = 1, .channels_last = channels_last),
                            ct_nn_batch_norm(3, .channels_last = channels_last), ct_nn_relu(),
                            ct_nn_conv2d(3, 3, 3, .channels_last = channels_last));
}

static ct_tensor *expected_of(const ct_state *all, const char *name, const char *what, int i) {
    char text[96], number[16] = "";
    if (i) snprintf(number, sizeof number, "%d", i);
    snprintf(text, sizeof text, "%s.%s%s", name, what, number);
    return ct_state_get(all, text);
}

/* The largest difference, as a share of the largest expected. Both sides compute in f64, in another order: a network of 54
 * layers whose longest sums have 1280 terms may differ by 54 * 1280 roundings of 1.1e-16, 8e-12, in the worst case. */
static double difference(ct_tensor *got, ct_tensor *expected) {
    if (!got || !expected || ct_numel(got) != ct_numel(expected)) return INFINITY;
    return ct_item(ct_amax(ct_abs(ct_sub(ct_detach(got), expected)))) / ct_item(ct_amax(ct_abs(expected)));
}
static const double most_apart = 8e-12;

/* Takes the module. */
static void computes_what_pytorch_does(const char *name, ct_module *net) {
    char file[96];
    snprintf(file, sizeof file, "torch/%s.safetensors", name);
    ct_state *all = ct_safetensors_load(given_file("torch/expected.safetensors"));
    const bool loaded =
        net && all && ct_module_to_dtype(net, CT_F64) && ct_load(given_file(file), net, .cast = true) && ct_eval(net);
    if (!harness_check(loaded, __FILE__, __LINE__, "%s: %s", name, ct_error())) ct_error_clear();
    ct_tensor *in[4] = {NULL}, *out[4] = {NULL};
    int n = 0, m = 0;
    while (expected_of(all, name, "input", n)) n++;
    while (expected_of(all, name, "output", m)) m++;
    CHECK(n > 0 && m > 0);
    ct_scope {
        for (int i = 0; i < n; i++) in[i] = ct_cast(expected_of(all, name, "input", i), CT_F64);
        if (loaded && ct_forward_n(net, in, n, out, m))
            for (int i = 0; i < m; i++) {
                const double apart = difference(out[i], expected_of(all, name, "output", i));
                harness_check(apart <= most_apart, __FILE__, __LINE__, "%s: output %d is %g apart", name, i, apart);
            }
        else harness_check(false, __FILE__, __LINE__, "%s: %s", name, ct_error());
    }
    ct_state_free(all);
    ct_module_free(net);
}

TEST(state_dicts_of_torchvision_load_as_they_are) {
    NEEDS_JSON();
    computes_what_pytorch_does("resnet18", ct_nn_resnet(18, .imagenet = true, .width = 1.0 / 32, .classes = 5));
    computes_what_pytorch_does("resnet50", ct_nn_resnet(50, .imagenet = true, .width = 1.0 / 64, .classes = 5));
    computes_what_pytorch_does("vgg11_bn",
                               ct_nn_vgg(11, .imagenet = true, .width = 1.0 / 128, .batch_norm = true, .classes = 5));
    computes_what_pytorch_does("mobilenet_v2", ct_nn_mobilenet_v2(.imagenet = true, .width = 0.01, .classes = 3));
    computes_what_pytorch_does(
        "vit", ct_nn_vit(.image = 16, .patch = 4, .dim = 16, .layers = 2, .heads = 2, .feedforward = 32, .classes = 5));
}

TEST(state_dicts_of_torch_nn_load_as_they_are) {
    NEEDS_JSON();
    computes_what_pytorch_does("lstm", ct_nn_lstm(5, 6, .layers = 2, .bidirectional = true));
    computes_what_pytorch_does("gru", ct_nn_gru(5, 6, .layers = 2, .bidirectional = true, .batch_first = true));
    computes_what_pytorch_does("rnn", ct_nn_rnn(5, 6, .layers = 2, .relu = true, .no_bias = true));
    computes_what_pytorch_does("transformer_encoder",
                               ct_nn_transformer_encoder(2, 8, 2, .feedforward = 12, .final_norm = true));
    computes_what_pytorch_does("transformer_decoder",
                               ct_nn_transformer_decoder(2, 8, 2, .feedforward = 12, .norm_first = true));
    computes_what_pytorch_does("multihead_attention", ct_nn_multi_head_attention(8, 2, .key_dim = 6, .value_dim = 4));
    computes_what_pytorch_does("layers", torch_layers());
    computes_what_pytorch_does("square", square(false));
}

/* The models take images with channels first whatever they compute in. */
TEST(state_dicts_load_into_models_with_channels_last) {
    NEEDS_JSON();
    computes_what_pytorch_does(
        "resnet18", ct_nn_resnet(18, .imagenet = true, .width = 1.0 / 32, .classes = 5, .channels_last = true));
    computes_what_pytorch_does("vgg11_bn", ct_nn_vgg(11, .imagenet = true, .width = 1.0 / 128, .batch_norm = true,
                                                     .classes = 5, .channels_last = true));
    computes_what_pytorch_does(
        "mobilenet_v2", ct_nn_mobilenet_v2(.imagenet = true, .width = 0.01, .classes = 3, .channels_last = true));
}

TEST(the_dtype_has_to_fit_unless_it_may_be_converted) {
    NEEDS_JSON();
    ct_module *net = ct_nn_lstm(5, 6, .layers = 2, .bidirectional = true);
    CHECK(ct_load(given_file("torch/lstm.safetensors"), net) && ct_module_to_dtype(net, CT_F64));
    CHECK(!ct_load(given_file("torch/lstm.safetensors"), net));
    char text[600];
    snprintf(text, sizeof text, "load: %s: \"weight_ih_l0\" is f32[24,5], the module's is f64[24,5] (and 15 more)",
             given_file("torch/lstm.safetensors"));
    CHECK_ERROR(CT_ERR_SHAPE, text);
    ct_module_free(net);
}

/* ---- Layouts ---- */

static ct_tensor *last_of(ct_tensor *x) {
    ct_dims axes = {.n = ct_ndim(x)};
    for (int i = 0; i < axes.n; i++) axes.d[i] = i == 0 ? 0 : i + 1 < axes.n ? i + 1 : 1;
    return ct_permute(x, axes);
}

/* Weights of a go into b, whose channels lie the other way; both then give the same. Takes both modules. */
static void the_same_either_way(const char *name, ct_module *first, ct_module *last, ct_tensor *x) {
    for (int back = 0; back < 2; back++) {
        ct_module *from = back ? last : first, *to = back ? first : last;
        ct_parameters *list = ct_module_parameters(from);
        for (int i = 0; i < ct_parameters_count(list); i++)
            if (!ct_parameters_at(list, i)->buffer)
                CHECK(ct_init_normal(ct_parameter_tensor(ct_parameters_at(list, i)), 0, 1, NULL));
        ct_parameters_free(list);
        CHECK(ct_save(own_file("net"), from) && ct_load(own_file("net"), to));
        const double apart = difference(ct_forward(last, last_of(x)), last_of(ct_forward(first, x)));
        harness_check(apart <= 1e-14, __FILE__, __LINE__, "%s: %g apart", name, apart);
    }
    ct_module_free(first);
    ct_module_free(last);
}

TEST(weights_of_convolutions_go_from_layout_to_layout) {
    NEEDS_JSON();
    CHECK(ct_seed(3));
    ct_tensor *line = ct_randn(CT_DIMS(2, 4, 9), .dtype = CT_F64),
              *image = ct_randn(CT_DIMS(2, 4, 7, 6), .dtype = CT_F64),
              *volume = ct_randn(CT_DIMS(2, 4, 4, 5, 6), .dtype = CT_F64);
#define BOTH(x, kind, ...)                                                                                      \
    do {                                                                                                        \
        ct_module *first = ct_nn_##kind(__VA_ARGS__), *last = ct_nn_##kind(__VA_ARGS__, .channels_last = true); \
        CHECK(ct_module_to_dtype(first, CT_F64) && ct_module_to_dtype(last, CT_F64));                           \
        the_same_either_way(#kind, first, last, x);                                                             \
    } while (0)
    BOTH(line, conv1d, 4, 6, 3, .groups = 2);
    BOTH(image, conv2d, 4, 6, 3, .groups = 2);
    BOTH(volume, conv3d, 4, 6, 2);
    BOTH(line, conv_transpose1d, 4, 6, 3, .groups = 2);
    BOTH(image, conv_transpose2d, 4, 6, 3);
    BOTH(volume, conv_transpose3d, 4, 6, 2);
    BOTH(image, depthwise_conv2d, 4, 3, .multiplier = 2);
    BOTH(image, separable_conv2d, 4, 6, 3);
    BOTH(image, deform_conv2d, 4, 6, 3, .pad = 1);
    /* shapes that fit both ways: [4,4,4,4], [3,4,3]: what ct_save notes decides */
    BOTH(image, conv2d, 4, 4, 4);
    BOTH(line, conv1d, 4, 3, 3);
    BOTH(image, conv_transpose2d, 4, 4, 4);
#undef BOTH
    remove_own_folder();
}

/* What the file says of layouts it says by its own names, and they may become others. */
TEST(a_layout_that_the_file_notes_follows_its_names) {
    NEEDS_JSON();
    ct_module *inner = ct_nn_sequential(ct_nn_conv2d(3, 3, 3, .channels_last = true)),
              *deeper = ct_nn_sequential(ct_nn_sequential(ct_nn_conv2d(3, 3, 3, .channels_last = true))),
              *first = ct_nn_sequential(ct_nn_sequential(ct_nn_conv2d(3, 3, 3)));
    const ct_rename inside = {"*", "0.*"};
    CHECK(ct_save(own_file("inner.safetensors"), inner));
    CHECK(ct_load(own_file("inner.safetensors"), deeper, .renames = &inside, .rename_count = 1));
    CHECK(harness_same_bits(ct_module_find(inner, "0.weight"), ct_module_find(deeper, "0.0.weight")));
    CHECK(ct_load(own_file("inner.safetensors"), first, .renames = &inside, .rename_count = 1));
    CHECK(harness_same_bits(ct_permute(ct_module_find(inner, "0.weight"), CT_DIMS(3, 2, 0, 1)),
                            ct_module_find(first, "0.0.weight")));
    /* below a prefix, too */
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(inner, state, "net.") && ct_init_zeros(ct_module_find(deeper, "0.0.weight")));
    CHECK(ct_module_take_state(deeper, state, "net.", .renames = &inside, .rename_count = 1));
    CHECK(harness_same_bits(ct_module_find(inner, "0.weight"), ct_module_find(deeper, "0.0.weight")));
    ct_state_free(state);
    ct_module_free(inner);
    ct_module_free(deeper);
    ct_module_free(first);
    remove_own_folder();
}

/* A checkpoint goes on in its own layout, since the optimizer's numbers lie like the weights; its weights alone go into both. */
TEST(a_checkpoint_crosses_layouts_without_its_optimizer) {
    NEEDS_JSON();
    for (int ambiguous = 0; ambiguous < 2; ambiguous++) {
        const int64_t out = ambiguous ? 3 : 5;
        ct_module *first = ct_nn_conv2d(3, out, 3), *last = ct_nn_conv2d(3, out, 3, .channels_last = true);
        ct_optim *optim = ct_adam(last, .lr = 0.1), *other = ct_adam(first, .lr = 0.1);
        ct_tensor *x = ct_randn(CT_DIMS(1, 5, 5, 3)), *before = ct_clone(ct_module_param(first, 0));
        CHECK(ct_backward(ct_sum(ct_forward(last, x))) && ct_optim_step(optim));
        ct_run from = {.size = sizeof from, .net = last, .optim = optim},
               to = {.size = sizeof to, .net = first, .optim = other};
        CHECK(ct_run_save(&from, own_folder(), "run") && !ct_run_load(&to, own_file("run.safetensors")));
        CHECK(ct_error_code() == CT_ERR_SHAPE && strstr(ct_error(), "\"net.weight\" is f32[3,3,3,") != NULL &&
              strstr(ct_error(), "in the other layout") != NULL);
        ct_error_clear();
        CHECK(harness_same_bits(before, ct_module_param(first, 0)));
        CHECK(ct_load(own_file("run.safetensors"), first));
        CHECK(harness_same_bits(ct_contiguous(ct_permute(ct_module_param(last, 0), CT_DIMS(3, 2, 0, 1))),
                                ct_contiguous(ct_module_param(first, 0))));
        ct_optim_free(optim);
        ct_optim_free(other);
        ct_module_free(first);
        ct_module_free(last);
        remove_own_folder();
    }
}

TEST(the_layout_of_a_file_can_be_told) {
    ct_module *first = ct_nn_conv2d(2, 2, 2, .no_bias = true),
              *last = ct_nn_conv2d(2, 2, 2, .no_bias = true, .channels_last = true);
    ct_tensor *given = ct_reshape(ct_arange(0, 16, 1, .dtype = CT_F32), CT_DIMS(2, 2, 2, 2));
    ct_state *state = ct_state_new();
    CHECK(ct_state_put(state, "weight", given));
    const ct_dims to_last = CT_DIMS(2, 3, 1, 0), to_first = CT_DIMS(3, 2, 0, 1);
    /* nothing tells: channels first */
    CHECK(ct_module_take_state(first, state, "") && harness_same_bits(ct_module_param(first, 0), given));
    CHECK(ct_module_take_state(last, state, "") &&
          harness_same_bits(ct_contiguous(ct_permute(given, to_last)), ct_module_param(last, 0)));
    CHECK(ct_module_take_state(last, state, "", .layout = CT_LAYOUT_CHANNELS_LAST) &&
          harness_same_bits(ct_module_param(last, 0), given));
    CHECK(ct_module_take_state(first, state, "", .layout = CT_LAYOUT_CHANNELS_LAST) &&
          harness_same_bits(ct_contiguous(ct_permute(given, to_first)), ct_module_param(first, 0)));
    CHECK(ct_module_take_state(last, state, "", .layout = CT_LAYOUT_CHANNELS_FIRST) &&
          harness_same_bits(ct_contiguous(ct_permute(given, to_last)), ct_module_param(last, 0)));
    CHECK(ct_module_take_state(first, state, "", .layout = CT_LAYOUT_SAME) &&
          harness_same_bits(ct_module_param(first, 0), given));
    CHECK(!ct_module_take_state(last, state, "", .layout = CT_LAYOUT_SAME));
    CHECK_ERROR(CT_ERR_SHAPE, "module_take_state: \"weight\" is f32[2,2,2,2] in the other layout, the module's is "
                              "f32[2,2,2,2]");
    CHECK(!ct_module_take_state(last, state, "", .layout = (ct_weight_layout)7));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: layout: 7 is not a value of its enum");
    ct_state_free(state);
    /* the text that is written beside: only where the shape does not tell, and only of channels last */
    state = ct_state_new();
    CHECK(ct_module_put_state(last, state, "net.") && ct_module_put_state(first, state, "other."));
    CHECK(ct_state_text_count(state) == 1);
    CHECK_TEXT(ct_state_text(state, "net.channels_last"), "weight");
    ct_state_free(state);
    ct_module_free(first);
    ct_module_free(last);
}

/* ---- Names ---- */

static ct_module *two_layers(void) { return ct_nn_mlp(CT_DIMS(6, 5, 4, 3), CT_ACT_RELU); }

/* PyTorch counts activations among the layers: 0, 2, 4 there, 0, 1, 2 here. */
TEST(a_network_with_other_names_is_refused_or_told_of) {
    NEEDS_JSON();
    ct_module *net = two_layers();
    ct_tensor *before = ct_clone(ct_module_find(net, "0.weight"));
    ct_load_report *report;
    CHECK(!ct_load(given_file("torch/mlp.safetensors"), net, .report = &report));
    char text[600];
    snprintf(text, sizeof text, "load: %s: \"2.weight\" is f32[4,5], the module's is f32[3,4] (and 1 more)",
             given_file("torch/mlp.safetensors"));
    CHECK_ERROR(CT_ERR_SHAPE, text);
    CHECK(harness_same_bits(before, ct_module_find(net, "0.weight")));
    CHECK(ct_load_report_count(report, CT_LOAD_MISMATCH) == 2);
    ct_load_report_free(report);
    CHECK(ct_load(given_file("torch/mlp.safetensors"), net, .lenient = true, .report = &report));
    ct_load_report_to_string(report, text, sizeof text);
    CHECK_TEXT(text, "loaded 2 of 6, missing 2, unused 2, different 2\n"
                     "missing: 1.weight f32[4,5]\n"
                     "missing: 1.bias f32[4]\n"
                     "unused: 4.bias f32[3]\n"
                     "unused: 4.weight f32[3,4]\n"
                     "different: 2.weight is f32[4,5], the module's is f32[3,4]\n"
                     "different: 2.bias is f32[4], the module's is f32[3]");
    const ct_load_entry *unused = ct_load_report_at(report, CT_LOAD_UNUSED, 1);
    CHECK(unused && unused->outcome == CT_LOAD_UNUSED && !unused->name);
    CHECK_TEXT(unused->source, "4.weight");
    CHECK_TEXT(ct_load_report_at(report, CT_LOAD_LOADED, 1)->name, "0.bias");
    CHECK(!ct_load_report_at(report, CT_LOAD_LOADED, 2) && !ct_load_report_at(report, CT_LOAD_LOADED, -1));
    CHECK(!harness_same_bits(before, ct_module_find(net, "0.weight")));
    /* a text of any size is cut as snprintf does */
    char few[8];
    CHECK(ct_load_report_to_string(report, few, sizeof few) == strlen(text));
    CHECK_TEXT(few, "loaded ");
    ct_load_report_free(report);
    ct_module_free(net);
}

TEST(renamed_it_loads_whole) {
    NEEDS_JSON();
    const ct_rename names[] = {{"2.*", "1.*"}, {"4.*", "2.*"}};
    ct_module *net = two_layers();
    ct_load_report *report;
    CHECK(ct_load(given_file("torch/mlp.safetensors"), net, .renames = names, .rename_count = 2, .report = &report));
    CHECK(ct_load_report_count(report, CT_LOAD_LOADED) == 6);
    CHECK_TEXT(ct_load_report_at(report, CT_LOAD_LOADED, 2)->name, "1.weight");
    CHECK_TEXT(ct_load_report_at(report, CT_LOAD_LOADED, 2)->source, "2.weight");
    ct_state *all = ct_safetensors_load(given_file("torch/expected.safetensors"));
    CHECK(ct_module_to_dtype(net, CT_F64));
    CHECK(difference(ct_forward(net, ct_cast(ct_state_get(all, "mlp.input"), CT_F64)),
                     ct_state_get(all, "mlp.output")) <= most_apart);
    ct_state_free(all);
    ct_load_report_free(report);
    ct_module_free(net);
}

/* A state of these names, each a number of its own. */
static ct_state *numbered(const char *const *names, int n) {
    ct_state *state = ct_state_new();
    for (int i = 0; i < n; i++) CHECK(ct_state_put(state, names[i], ct_full(CT_DIMS(1), i + 1)));
    return state;
}

static ct_module *one_number(const char *const *names, int n) {
    ct_module *m = ct_nn_identity();
    for (int i = 0; i < n; i++) CHECK(ct_module_add_param(m, names[i], ct_zeros(CT_DIMS(1))));
    return m;
}

TEST(stars_stand_for_what_they_fit) {
    static const struct {
        const char *from, *to, *name, *becomes;
    } cases[] = {{"a.*.b", "x_*", "a.7.b", "x_7"},
                 {"*", "x_*", "7", "x_7"},
                 {"*", "*", "x_7", "x_7"},
                 {"model.*.q.*", "*-*", "model.3.q.w", "3-w"},
                 {"*a*b", "[*][*]", "xaaab", "[x][aa]"}, /* as few as possible, from the left */
                 {"*ab", "[*]", "abab", "[ab]"},         /* but all has to fit */
                 {"a*", "x*", "a", "x"},                 /* also nothing */
                 {"a**b", "<*|*>", "axb", "<|x>"},       /* the first as few as possible */
                 {"enc.*.*", "*", "enc.1.w", "1"},       /* not every star has to be used */
                 {"a.b", "c", "a.bb", NULL},             /* the whole name */
                 {"a.b*c", "c", "a.bd", NULL},
                 {"", "c", "a", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *target = cases[i].becomes ? cases[i].becomes : "nothing";
        ct_module *m = one_number(&target, 1);
        ct_state *state = numbered(&cases[i].name, 1);
        const ct_rename rename = {cases[i].from, cases[i].to};
        ct_load_report *report;
        const bool fitted =
            ct_module_take_state(m, state, "", .renames = &rename, .rename_count = 1, .report = &report);
        harness_check(fitted == (cases[i].becomes != NULL), __FILE__, __LINE__, "%s -> %s of %s: %s", cases[i].from,
                      cases[i].to, cases[i].name, ct_error());
        CHECK(fitted == (ct_item(ct_module_param(m, 0)) == 1));
        ct_error_clear();
        ct_load_report_free(report);
        ct_state_free(state);
        ct_module_free(m);
    }
}

/* What the pattern says, tried one way after the other: each star as few characters as let the rest fit. */
static bool fits_by_trying(const char *pattern, const char *name, const char **at, int *length) {
    if (*pattern != '*') return *pattern == *name && (!*name || fits_by_trying(pattern + 1, name + 1, at, length));
    for (int n = 0;; n++) {
        *at = name;
        *length = n;
        if (fits_by_trying(pattern + 1, name + n, at + 1, length + 1)) return true;
        if (!name[n]) return false;
    }
}

TEST(random_patterns_fit_as_trying_every_way_says) {
    uint64_t random = 7;
#define DRAW(n) ((int)((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % (n))
    int fitting = 0;
    for (int round = 0; round < 3000; round++) {
        char pattern[8] = "", name[12] = "", becomes[64] = "<";
        const int m = 1 + DRAW(6), n = DRAW(10);
        for (int i = 0; i < m; i++) pattern[i] = "ab**"[DRAW(4)];
        for (int i = 0; i < n; i++) name[i] = "ab"[DRAW(2)];
        char to[24] = "<";
        for (int i = 0; i < m; i++)
            if (pattern[i] == '*') strcat(to, "*|");
        const char *at[8];
        int length[8], star = 0;
        const bool fits = fits_by_trying(pattern, name, at, length);
        for (int i = 0; fits && i < m; i++)
            if (pattern[i] == '*') {
                strncat(becomes, at[star], (size_t)length[star]);
                strcat(becomes, "|");
                star++;
            }
        fitting += fits;
        ct_scope {
            ct_module *net = one_number((const char *const[]){becomes}, 1);
            ct_state *state = numbered((const char *const[]){name}, 1);
            const ct_rename rename = {pattern, to};
            const bool taken = ct_module_take_state(net, state, "", .renames = &rename, .rename_count = 1);
            harness_check(taken == fits, __FILE__, __LINE__, "%s -> %s of '%s': %s expected", pattern, to, name,
                          fits ? becomes : "nothing");
            ct_error_clear();
            ct_state_free(state);
            ct_module_free(net);
        }
    }
    CHECK(fitting > 500);
#undef DRAW
}

TEST(hostile_patterns_take_linear_time_and_memory) {
    enum { LONG = 200000 };
    char *name = malloc(LONG + 1);
    REQUIRE(name);
    memset(name, 'a', LONG);
    name[LONG] = 0;
    const char *target = "x";
    ct_module *m = one_number(&target, 1);
    ct_state *state = numbered((const char *const[]){name}, 1);
    /* 16 stars and a last letter that never comes: trying every division would take longer than there is time */
    const ct_rename hostile = {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab", "x"}, fills = {"*a", "******"},
                    many = {"*****************", "x"}, both[] = {{"*a", NULL}, {"*", "x"}};
    CHECK(!ct_module_take_state(m, state, "", .renames = &hostile, .rename_count = 1));
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(!ct_module_take_state(m, state, "", .renames = &fills, .rename_count = 1));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: renames[0]: \"******\" has 6 stars and \"*a\" only 1");
    CHECK(!ct_module_take_state(m, state, "", .renames = &many, .rename_count = 1));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: renames[0]: \"*****************\" has 17 stars; 16 is the most");
    CHECK(!ct_module_take_state(m, state, "", .renames = &(ct_rename){NULL, "x"}, .rename_count = 1));
    CHECK_ERROR(CT_ERR_NULL, "module_take_state: renames[0].from is NULL");
    CHECK(!ct_module_take_state(m, state, "", .rename_count = 2));
    CHECK_ERROR(CT_ERR_NULL, "module_take_state: rename_count is 2 and renames is NULL");
    CHECK(!ct_module_take_state(m, state, "", .rename_count = -2));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: rename_count is -2 and renames is NULL");
    /* the first that fits counts: left out, so nothing is there for x */
    CHECK(!ct_module_take_state(m, state, "", .renames = both, .rename_count = 2));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: the state has no \"x\"");
    CHECK(ct_module_take_state(m, state, "", .renames = both + 1, .rename_count = 1));
    ct_state_free(state);
    ct_module_free(m);
    free(name);
}

TEST(a_prefix_a_wrapper_and_what_is_left_out) {
    static const char *const names[] = {"net.module.a", "net.module.b", "net.module.head", "other.a"};
    ct_module *m = one_number((const char *const[]){"a", "b"}, 2);
    ct_state *state = numbered(names, 4);
    const ct_rename renames[] = {{"module.head*", NULL}, {"module.*", "*"}};
    ct_load_report *report;
    CHECK(ct_module_take_state(m, state, "net.", .renames = renames, .rename_count = 2, .report = &report));
    CHECK(ct_item(ct_module_param(m, 0)) == 1 && ct_item(ct_module_param(m, 1)) == 2);
    CHECK(ct_load_report_count(report, CT_LOAD_LOADED) == 2 && ct_load_report_count(report, CT_LOAD_IGNORED) == 1);
    CHECK_TEXT(ct_load_report_at(report, CT_LOAD_IGNORED, 0)->source, "net.module.head");
    ct_load_report_free(report);
    /* two names for one parameter: an error, unless they say the same */
    const ct_rename clash = {"module.*", "a"};
    CHECK(!ct_module_take_state(m, state, "net.", .renames = &clash, .rename_count = 1, .lenient = true,
                                .report = &report));
    CHECK(!report); /* what there is of it does not say so */
    CHECK_ERROR(CT_ERR_VALUE,
                "module_take_state: \"net.module.a\" and \"net.module.b\" are both for \"a\", and differ");
    ct_state_free(state);
    ct_module_free(m);
}

TEST(lenient_still_needs_something_that_fits) {
    ct_module *net = ct_nn_linear(2, 3), *empty = ct_nn_relu();
    ct_state *state = numbered((const char *const[]){"x"}, 1), *nothing = ct_state_new();
    CHECK(!ct_module_take_state(net, state, "", .lenient = true));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: nothing in the state fits: it has \"x\", the module has \"weight\"");
    CHECK(!ct_module_take_state(net, nothing, "", .lenient = true));
    CHECK_ERROR(CT_ERR_VALUE,
                "module_take_state: nothing in the state fits: it has no tensor, the module has \"weight\"");
    /* shapes that differ are the reason, whatever else is in the file */
    ct_load_report *report;
    CHECK(ct_state_put(state, "weight", ct_zeros(CT_DIMS(5, 2))) && ct_state_put(state, "bias", ct_zeros(CT_DIMS(5))));
    CHECK(!ct_module_take_state(net, state, "", .lenient = true, .report = &report));
    CHECK_ERROR(CT_ERR_SHAPE, "module_take_state: nothing in the state fits: \"weight\" is f32[5,2], the module's is "
                              "f32[3,2] (and 1 more)");
    CHECK(ct_load_report_count(report, CT_LOAD_MISMATCH) == 2 && ct_load_report_count(report, CT_LOAD_UNUSED) == 1);
    ct_load_report_free(report);
    CHECK(ct_module_take_state(empty, state, "", .lenient = true) && ct_module_take_state(empty, nothing, ""));
    ct_state_free(state);
    ct_state_free(nothing);
    ct_module_free(net);
    ct_module_free(empty);
}

/* PyTorch writes a shared tensor under each of its names, safetensors under one of them, whichever. */
TEST(a_shared_tensor_comes_under_any_of_its_names) {
    ct_module *a = ct_nn_gpt(7, .context = 4, .dim = 6, .heads = 2, .layers = 1, .tied = true),
              *b = ct_nn_gpt(7, .context = 4, .dim = 6, .heads = 2, .layers = 1, .tied = true);
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(a, state, "") && ct_state_get(state, "tokens.weight") &&
          !ct_state_get(state, "head.weight"));
    CHECK(ct_state_put(state, "head.weight", ct_clone(ct_state_get(state, "tokens.weight"))));
    CHECK(ct_module_take_state(b, state, "") &&
          harness_same_bits(ct_module_find(a, "head.weight"), ct_module_find(b, "head.weight")));
    const ct_rename other = {"tokens.weight", NULL};
    CHECK(ct_init_zeros(ct_module_find(b, "tokens.weight")));
    CHECK(ct_module_take_state(b, state, "", .renames = &other, .rename_count = 1) &&
          harness_same_bits(ct_module_find(a, "tokens.weight"), ct_module_find(b, "tokens.weight")));
    CHECK(ct_init_zeros(ct_state_get(state, "head.weight")) && !ct_module_take_state(b, state, ""));
    CHECK_ERROR(CT_ERR_VALUE,
                "module_take_state: \"tokens.weight\" and \"head.weight\" are both for \"tokens.weight\", and differ");
    /* NaN is not equal to itself, and still the same, stored twice */
    CHECK(ct_init_constant(ct_state_get(state, "tokens.weight"), NAN) &&
          ct_init_constant(ct_state_get(state, "head.weight"), NAN));
    CHECK(ct_module_take_state(b, state, "") && isnan(ct_item(ct_sum(ct_module_find(b, "tokens.weight")))));
    ct_state_free(state);
    ct_module_free(a);
    ct_module_free(b);
}

/* Below another module, too: the names are those seen from where the class is. */
TEST(aliases_work_below_other_modules) {
    NEEDS_JSON();
    ct_module *net = ct_nn_sequential(
        ct_nn_vit(.image = 16, .patch = 4, .dim = 16, .layers = 2, .heads = 2, .feedforward = 32, .classes = 5),
        ct_nn_linear(5, 2));
    const ct_rename inside = {"*", "0.*"};
    ct_load_report *report;
    CHECK(ct_load(given_file("torch/vit.safetensors"), net, .renames = &inside, .rename_count = 1, .lenient = true,
                  .report = &report));
    char text[200];
    ct_load_report_to_string(report, text, sizeof text);
    CHECK_TEXT(text, "loaded 32 of 34, missing 2\nmissing: 1.weight f32[2,5]\nmissing: 1.bias f32[2]");
    ct_load_report_free(report);
    ct_module_free(net);
}

TEST(there_is_no_report_of_a_file_that_cannot_be_read) {
    ct_module *net = two_layers();
    ct_load_report *report = (ct_load_report *)(void *)net;
    CHECK(!ct_load("/nowhere/at/all", net, .report = &report) && !report && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    report = (ct_load_report *)(void *)net;
    CHECK(!ct_load("x", NULL, .report = &report) && !report);
    CHECK_ERROR(CT_ERR_NULL, "load: argument net is NULL");
    ct_load_report_free(NULL);
    char text[4] = "abc";
    CHECK(ct_load_report_count(NULL, CT_LOAD_LOADED) == 0 && ct_load_report_to_string(NULL, text, sizeof text) == 0);
    CHECK_TEXT(text, "");
    ct_module_free(net);
}

TEST(a_width_multiplies_the_channels) {
    ct_module *half = ct_nn_resnet(18, .width = 0.5), *thin = ct_nn_vgg(11, .width = 1e-9);
    CHECK(ct_dim(ct_module_find(half, "layer4.1.conv2.weight"), 0) == 256);
    CHECK(ct_dim(ct_module_find(thin, "features.0.weight"), 0) == 1); /* never none */
    ct_module_free(half);
    ct_module_free(thin);
    CHECK(!ct_nn_resnet(18, .width = -1));
    CHECK_ERROR(CT_ERR_VALUE, "nn_resnet: width is -1, expected more than 0 and at most 1024");
    CHECK(!ct_nn_vgg(11, .width = NAN));
    CHECK_ERROR(CT_ERR_VALUE, "nn_vgg: width is nan, expected more than 0 and at most 1024");
    CHECK(!ct_nn_mobilenet_v2(.width = 1e300));
    CHECK_ERROR(CT_ERR_VALUE, "nn_mobilenet_v2: width is 1e+300, expected more than 0 and at most 1024");
}

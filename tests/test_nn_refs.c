/* Layers and models with PyTorch's results: tests/refs/nn.txt, whose format tools/refs/nn_modules.py describes. Parameters,
 * buffers and inputs are filled by formulas of name and place on both sides; everything runs in f64. */
#include <cotangent/nn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* ---- The modules by name ---- */

static ct_module *build(const char *name) {
#define X(text, expression) \
    if (strcmp(name, text) == 0) return expression;
#define POST .feedforward = 12
#define PRE  .feedforward = 12, .norm_first = true, .activation = CT_ACT_GELU
#define SMALL_VIT \
    ct_nn_vit(.image = 16, .patch = 4, .layers = 2, .heads = 2, .dim = 16, .feedforward = 32, .classes = 5)
    X("linear", ct_nn_linear(5, 7))
    X("linear_no_bias", ct_nn_linear(5, 7, .no_bias = true))
    X("conv1d", ct_nn_conv1d(4, 6, 3, .stride = 2, .pad = 1, .dilation = 2, .groups = 2))
    X("conv2d", ct_nn_conv2d(4, 6, 0, .kernels = CT_DIMS(3, 2), .stride = 2, .pad = 1, .groups = 2))
    X("conv2d_reflect", ct_nn_conv2d(4, 6, 3, .pads = CT_DIMS(1, 2), .border = CT_PAD_REFLECT, .no_bias = true))
    X("conv2d_circular", ct_nn_conv2d(4, 6, 3, .pad = 1, .border = CT_PAD_CIRCULAR))
    X("conv2d_same", ct_nn_conv2d(4, 6, 3, .pad_mode = CT_SAME))
    X("conv3d", ct_nn_conv3d(4, 6, 3, .pad = 1))
    X("conv_transpose1d", ct_nn_conv_transpose1d(4, 6, 3, .stride = 2, .pad = 1, .output_padding = 1, .groups = 2))
    X("conv_transpose2d", ct_nn_conv_transpose2d(4, 6, 4, .stride = 2, .pad = 1))
    X("conv_transpose3d", ct_nn_conv_transpose3d(4, 6, 2, .stride = 2, .no_bias = true))
    X("depthwise_conv2d", ct_nn_depthwise_conv2d(4, 3, .pad = 1, .multiplier = 2))
    X("separable_conv2d", ct_nn_separable_conv2d(4, 6, 3, .stride = 2, .pad = 1))
    X("deform_conv2d", ct_nn_deform_conv2d(4, 6, 3, .pad = 1))
    X("deform_conv2d_modulated", ct_nn_deform_conv2d(4, 6, 3, .pad = 1, .modulated = true))
    X("max_pool1d", ct_nn_max_pool1d(3, .stride = 2, .pad = 1))
    X("max_pool2d", ct_nn_max_pool2d(3, .stride = 2, .pad = 1))
    X("max_pool3d", ct_nn_max_pool3d(3, .stride = 2, .pad = 1))
    X("avg_pool1d", ct_nn_avg_pool1d(2, .ceil_mode = true))
    X("avg_pool2d", ct_nn_avg_pool2d(2, .ceil_mode = true))
    X("avg_pool3d", ct_nn_avg_pool3d(2, .ceil_mode = true))
    X("lp_pool1d", ct_nn_lp_pool1d(2, 2))
    X("lp_pool2d", ct_nn_lp_pool2d(2, 2))
    X("lp_pool3d", ct_nn_lp_pool3d(2, 2))
    X("adaptive_avg_pool1d", ct_nn_adaptive_avg_pool1d(3))
    X("adaptive_avg_pool2d", ct_nn_adaptive_avg_pool2d(3))
    X("adaptive_avg_pool3d", ct_nn_adaptive_avg_pool3d(3))
    X("adaptive_max_pool1d", ct_nn_adaptive_max_pool1d(2))
    X("adaptive_max_pool2d", ct_nn_adaptive_max_pool2d(2))
    X("adaptive_max_pool3d", ct_nn_adaptive_max_pool3d(2))
    X("batch_norm_train", ct_nn_batch_norm(4))
    X("batch_norm_eval", ct_nn_batch_norm(4))
    X("batch_norm_1d", ct_nn_batch_norm(6, .momentum = CT_SET(0.3), .eps = CT_SET(1e-3)))
    X("batch_norm_no_running", ct_nn_batch_norm(4, .no_running = true))
    X("group_norm", ct_nn_group_norm(2, 4))
    X("instance_norm", ct_nn_instance_norm(4))
    X("instance_norm_running", ct_nn_instance_norm(4, .affine = true, .running = true))
    X("instance_norm_eval", ct_nn_instance_norm(4, .affine = true, .running = true))
    X("layer_norm", ct_nn_layer_norm(6))
    X("layer_norm_shape", ct_nn_layer_norm(0, .shape = CT_DIMS(5, 6)))
    X("rms_norm", ct_nn_rms_norm(6, .eps = CT_SET(1e-6)))
    X("local_response_norm", ct_nn_local_response_norm(3, .alpha = CT_SET(0.1), .beta = CT_SET(0.6), .k = CT_SET(2)))
    X("embedding", ct_nn_embedding(9, 4))
    X("embedding_padding", ct_nn_embedding(9, 4, .padding_idx = CT_SET(2)))
    X("rnn_relu", ct_nn_rnn(5, 6, .relu = true))
    X("rnn_tanh", ct_nn_rnn(5, 6))
    X("lstm", ct_nn_lstm(5, 6, .layers = 2, .bidirectional = true))
    X("lstm_batch_first", ct_nn_lstm(5, 6, .batch_first = true, .no_bias = true))
    X("gru", ct_nn_gru(5, 6, .layers = 2, .bidirectional = true, .batch_first = true))
    X("lstm_lengths", ct_nn_lstm(5, 6, .layers = 2, .bidirectional = true))
    X("gru_lengths", ct_nn_gru(5, 6, .layers = 2, .bidirectional = true, .batch_first = true))
    X("rnn_lengths", ct_nn_rnn(5, 6))
    X("rnn_cell", ct_nn_rnn_cell(5, 6))
    X("lstm_cell", ct_nn_lstm_cell(5, 6))
    X("gru_cell", ct_nn_gru_cell(5, 6))
    X("attention_self", ct_nn_multi_head_attention(8, 2))
    X("attention_cross", ct_nn_multi_head_attention(8, 2))
    X("attention_dims", ct_nn_multi_head_attention(8, 2, .key_dim = 6, .value_dim = 4))
    X("attention_causal", ct_nn_multi_head_attention(8, 2, .causal = true, .no_bias = true))
    X("attention_mask", ct_nn_multi_head_attention(8, 2))
    X("encoder_layer_post", ct_nn_transformer_encoder_layer(8, 2, POST))
    X("encoder_layer_pre", ct_nn_transformer_encoder_layer(8, 2, PRE))
    X("decoder_layer_post", ct_nn_transformer_decoder_layer(8, 2, POST))
    X("decoder_layer_pre", ct_nn_transformer_decoder_layer(8, 2, PRE))
    X("encoder_post", ct_nn_transformer_encoder(2, 8, 2, POST, .final_norm = true))
    X("encoder_pre", ct_nn_transformer_encoder(2, 8, 2, PRE, .final_norm = true))
    X("decoder_post", ct_nn_transformer_decoder(2, 8, 2, POST, .causal = true))
    X("decoder_pre", ct_nn_transformer_decoder(2, 8, 2, PRE, .causal = true))
    X("relu", ct_nn_relu())
    X("relu6", ct_nn_relu6())
    X("selu", ct_nn_selu())
    X("sigmoid", ct_nn_sigmoid())
    X("hard_sigmoid", ct_nn_hard_sigmoid())
    X("log_sigmoid", ct_nn_log_sigmoid())
    X("tanh", ct_nn_tanh())
    X("softsign", ct_nn_softsign())
    X("silu", ct_nn_silu())
    X("mish", ct_nn_mish())
    X("hard_swish", ct_nn_hard_swish())
    X("gelu", ct_nn_gelu())
    X("gelu_tanh", ct_nn_gelu_tanh())
    X("leaky_relu", ct_nn_leaky_relu(0.2))
    X("elu", ct_nn_elu(0.7))
    X("celu", ct_nn_celu(0.75))
    X("softplus", ct_nn_softplus(2, 0.9))
    X("threshold", ct_nn_threshold(0.1, 0.3))
    X("softmax", ct_nn_softmax(1))
    X("log_softmax", ct_nn_log_softmax(1))
    X("glu", ct_nn_glu(1))
    X("prelu", ct_nn_prelu(8, 0.25))
    X("upsample", ct_nn_upsample(2, .mode = CT_BILINEAR))
    X("upsample_size", ct_nn_upsample(0, .output_size = CT_DIMS(7, 13)))
    X("pixel_shuffle", ct_nn_pixel_shuffle(2, false))
    X("pixel_unshuffle", ct_nn_pixel_unshuffle(2, false))
    X("flatten", ct_nn_flatten())
    X("flatten_axes", ct_nn_flatten_axes(0, 2))
    X("unflatten", ct_nn_unflatten(1, CT_DIMS(2, -1)))
    X("pad", ct_nn_pad(CT_DIMS(3, 1, 1, 2), CT_PAD_REFLECT, 0))
    X("residual", ct_nn_residual(ct_nn_sequential(ct_nn_linear(6, 6), ct_nn_tanh(), ct_nn_linear(6, 6)),
                                 ct_nn_linear(6, 6), CT_ACT_RELU))
    X("sequential", ct_nn_sequential(ct_nn_conv2d(4, 6, 3), ct_nn_relu(), ct_nn_conv2d(6, 4, 3), ct_nn_sigmoid(),
                                     ct_nn_flatten(), ct_nn_linear(80, 8), ct_nn_gelu(), ct_nn_linear(8, 8),
                                     ct_nn_silu(), ct_nn_linear(8, 3), ct_nn_tanh()))
    X("model_lenet", ct_nn_lenet(28))
    X("model_mlp", ct_nn_mlp(CT_DIMS(12, 8, 8, 3), CT_ACT_RELU))
    X("model_resnet18", ct_nn_resnet(18))
    X("model_resnet50_imagenet", ct_nn_resnet(50, .imagenet = true, .classes = 7))
    X("model_vgg11_bn", ct_nn_vgg(11, .batch_norm = true))
    X("model_mobilenet_v2_imagenet", ct_nn_mobilenet_v2(.imagenet = true, .classes = 10))
    X("model_unet", ct_nn_unet(2, 4))
    X("model_vit", SMALL_VIT)
    X("model_gpt", ct_nn_gpt(11, .context = 8, .dim = 12, .heads = 3, .layers = 2))
    X("model_gpt_tied", ct_nn_gpt(11, .context = 8, .dim = 12, .heads = 3, .layers = 2, .tied = true))
    X("model_lstm", ct_nn_lstm_lm(11, .dim = 6, .hidden = 8))
    return NULL;
}

/* ---- The formulas ---- */

static double pattern(int64_t i) { return cos(0.61 * (double)i + 0.2); }

static ct_tensor *patterned(ct_dims shape) {
    ct_tensor *x = ct_empty(shape, .dtype = CT_F64);
    double *data = ct_data_mut(x);
    for (int64_t i = 0; data && i < ct_numel(x); i++) data[i] = pattern(i);
    return x;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void fill(ct_tensor *x, const char *name) {
    unsigned sum = 0;
    for (const char *c = name; *c; c++) sum += (unsigned char)*c;
    const double phase = (sum % 97) * 0.31;
    const int64_t n = ct_numel(x);
    const bool about_one = ends_with(name, "weight") || ends_with(name, "running_var");
    double *data = ct_data_mut(x);
    for (int64_t i = 0; data && i < n; i++) {
        const double wave = sin(0.73 * (double)i + 1 + phase);
        if (ct_ndim(x) > 1) data[i] = wave / sqrt((double)n / (double)ct_dim(x, 0));
        else data[i] = about_one ? 1 + 0.3 * wave : 0.3 * wave;
    }
}

/* ---- Comparing ---- */

static int line_number;
static char case_name[64];

/* Both numbers come from sums of n products in f64, here and there in another order; the networks in front of them add some
 * digits, more the deeper they are. */
static bool near(const char *what, ct_tensor *x, double dot, double norm, double tolerance) {
    if (!harness_check(x != NULL, "nn.txt", line_number, "%s: %s is not there (%s)", case_name, what, ct_error()))
        return false;
    bool ok = false;
    ct_scope {
        ct_tensor *flat = ct_reshape(ct_cast(ct_detach(x), CT_F64), CT_DIMS(ct_numel(x)));
        const double got = ct_item(ct_dot(flat, patterned(CT_DIMS(ct_numel(x)))));
        const double length = sqrt(ct_item(ct_dot(flat, flat)));
        const double room = tolerance * (norm * sqrt((double)ct_numel(x)) + 1e-3);
        ok = harness_check(fabs(got - dot) <= room && fabs(length - norm) <= room, "nn.txt", line_number,
                           "%s: %s is %.15g with norm %.15g, not %.15g and %.15g", case_name, what, got, length, dot,
                           norm);
    }
    return ok;
}

/* ---- Running a file ---- */

typedef struct running {
    ct_module *module;
    ct_tensor *in[4], *out[4];
    int n, m;
    bool ran;
    int compared; /* gradients of parameters */
    double tolerance;
} running;

static ct_dims parse_shape(const char *text) {
    ct_dims shape = {0};
    while (*text && *text != '[') text++;
    for (text++; *text && *text != ']';) {
        char *end;
        shape.d[shape.n++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return shape;
}

static void begin(running *r, char *text) {
    char mode[16] = "";
    *r = (running){0};
    sscanf(text, "case %63s %15s", case_name, mode);
    r->tolerance = strncmp(case_name, "model_", 6) == 0 ? 1e-8 : 1e-11;
    if (strcmp(case_name, "hard_sigmoid") == 0) r->tolerance = 1e-7; /* PyTorch's gradient has 1/6 in f32 */
    r->module = build(case_name);
    if (!harness_check(r->module != NULL, "nn.txt", line_number, "%s: no such module (%s)", case_name, ct_error()))
        return;
    CHECK(ct_module_to_dtype(r->module, CT_F64));
    if (strcmp(mode, "eval") == 0) CHECK(ct_eval(r->module));
    ct_parameters *list = ct_module_parameters(r->module);
    for (int i = 0; i < ct_parameters_count(list); i++)
        fill(ct_parameter_tensor(ct_parameters_at(list, i)), ct_parameters_at(list, i)->name);
    ct_parameters_free(list);
}

static void input(running *r, const char *text) {
    const ct_dims shape = parse_shape(text);
    const bool tokens = strncmp(text, "in i64", 6) == 0;
    ct_tensor *x = ct_empty(shape, .dtype = tokens ? CT_I64 : CT_F64);
    const int64_t limit = tokens ? strtoll(strchr(text, ']') + 1, NULL, 10) : 1, n = ct_numel(x);
    void *data = ct_data_mut(x);
    for (int64_t i = 0; data && i < n; i++) {
        if (tokens) ((int64_t *)data)[i] = (i * 7 + 3 + r->n) % limit;
        else ((double *)data)[i] = sin(0.9 * (double)i + 0.5 + r->n);
    }
    r->in[r->n++] = tokens ? x : ct_set_requires_grad(x, true);
}

/* Forward and backward, once the number of results is known. */
static void run(running *r) {
    r->ran = true;
    if (!r->module) return;
    ct_tensor *given[4] = {r->in[0], r->in[1], r->in[2], r->in[3]};
    int n = r->n;
    if (strcmp(case_name, "attention_mask") == 0) given[3] = r->in[1], given[1] = NULL, n = 4;
    if (!harness_check(ct_forward_n(r->module, given, n, r->out, r->m), "nn.txt", line_number, "%s: %s", case_name,
                       ct_error()))
        return;
    ct_tensor *loss = NULL;
    for (int i = 0; i < r->m; i++) {
        ct_tensor *term = ct_sum(ct_mul(r->out[i], patterned(ct_shape(r->out[i]))));
        loss = loss ? ct_add(loss, term) : term;
    }
    CHECK(ct_backward(loss));
}

static void finish(running *r) {
    if (!r->module) return;
    if (!r->ran) run(r);
    /* no parameter without a gradient, and none that the reference does not have */
    int learned = 0;
    ct_parameters *list = ct_module_parameters(r->module);
    for (int i = 0; i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        learned += !p->buffer;
        harness_check(p->buffer || ct_grad_of(ct_parameter_tensor(p)), "nn.txt", line_number, "%s: %s has no gradient",
                      case_name, p->name);
    }
    ct_parameters_free(list);
    harness_check(learned == r->compared, "nn.txt", line_number, "%s: %d parameters, the reference has %d", case_name,
                  learned, r->compared);
    ct_module_free(r->module);
    *r = (running){0};
}

static void compare(running *r, const char *text) {
    char kind[16] = "", name[128] = "";
    double dot = NAN, norm = NAN;
    if (sscanf(text, "%15s %127s %lf %lf", kind, name, &dot, &norm) != 4 || !r->module) return;
    if (strcmp(kind, "out") == 0) {
        const ct_dims shape = parse_shape(text), got = ct_shape(r->out[r->compared]);
        harness_check(shape.n == got.n && memcmp(shape.d, got.d, (size_t)shape.n * sizeof *shape.d) == 0, "nn.txt",
                      line_number, "%s: the shape of a result differs", case_name);
        near("a result", r->out[r->compared++], dot, norm, r->tolerance);
        if (r->compared == r->m) r->compared = 0;
    } else if (strcmp(kind, "grad") == 0) {
        near(name, ct_grad_of(ct_module_find(r->module, name)), dot, norm, r->tolerance);
        r->compared++;
    } else if (strcmp(kind, "xgrad") == 0) {
        near("the gradient of an input", ct_grad_of(r->in[atoi(name)]), dot, norm, r->tolerance);
    } else if (strcmp(kind, "buffer") == 0) {
        near(name, ct_module_find(r->module, name), dot, norm, r->tolerance);
    }
}

/* The cases of layers, or those of models. */
static void run_file(bool models) {
    char path[4096];
    const char *root = getenv("CT_SOURCE_DIR");
    if (root) snprintf(path, sizeof path, "%s/tests/refs/nn.txt", root);
    else snprintf(path, sizeof path, "%.*s/refs/nn.txt", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    FILE *file = fopen(path, "r");
    REQUIRE(file);
    static char lines[4096][256];
    int count = 0;
    while (count < 4096 && fgets(lines[count], sizeof lines[count], file)) count++;
    fclose(file);
    CHECK(count < 4096);
    int cases = 0;
    for (int i = 0; i < count;) {
        int end = i + 1, outs = 0;
        while (end < count && strncmp(lines[end], "case ", 5) != 0) outs += strncmp(lines[end++], "out ", 4) == 0;
        if ((strncmp(lines[i], "case model_", 11) == 0) == models) {
            ct_scope {
                running r;
                line_number = i + 1;
                begin(&r, lines[i]);
                r.m = outs;
                for (int k = i + 1; k < end; k++) {
                    line_number = k + 1;
                    if (strncmp(lines[k], "in ", 3) == 0) {
                        input(&r, lines[k]);
                        continue;
                    }
                    if (!r.ran) run(&r);
                    compare(&r, lines[k]);
                }
                finish(&r);
                ct_error_clear();
            }
            cases++;
        }
        i = end;
    }
    CHECK(cases > (models ? 8 : 80));
}

TEST(layers_give_results_and_gradients_of_pytorch) { run_file(false); }
TEST_LIMIT(models_give_results_and_gradients_of_pytorch, 240) { run_file(true); }

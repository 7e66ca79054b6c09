/* Channels last in captured graphs: the results of networks that are written channels first, but for rounding, and kernels for channels last
 * wherever there are some. In f64, where rounding is far below what a wrong element would do. */
#include <cotangent/capture.h>
#include <cotangent/nn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph.h"
#include "tests/fail_everywhere.h"
#include "tests/harness.h"

/* A function of images: what is measured is a loss, and its gradients for x and for all parameters. */
typedef struct job {
    ct_module *net;
    ct_tensor *(*function)(struct job *j, ct_tensor *x); /* or this in its place */
    ct_tensor *x, *w[4];
    ct_tensor *loss, *grads[400]; /* left behind */
    int n;
} job;

static ct_tensor *outputs(job *j) { return j->net ? ct_forward(j->net, j->x) : j->function(j, j->x); }

static bool step(void *context) {
    job *j = context;
    ct_tensor *leaves[400], *grads[400], *y = outputs(j);
    int n = 0;
    leaves[n++] = j->x;
    for (int i = 0; i < 4; i++)
        if (j->w[i]) leaves[n++] = j->w[i];
    ct_parameters *all = j->net ? ct_module_parameters(j->net) : NULL;
    for (int i = 0; all && i < ct_parameters_count(all) && n < 400; i++) {
        ct_tensor *p = ct_parameter_tensor(ct_parameters_at(all, i));
        if (ct_requires_grad(p)) leaves[n++] = p;
    }
    ct_parameters_free(all);
    if (!y) return false;
    /* weights of its own for each element, so that none can stand for another */
    ct_tensor *marks = ct_sin(ct_reshape(ct_arange(0, (double)ct_numel(y), 1, .dtype = CT_F64), ct_shape(y)));
    ct_tensor *loss = ct_sum(ct_mul(ct_tanh(y), marks));
    if (!ct_grad(&loss, 1, NULL, leaves, n, grads, 0)) return false;
    ct_drop(j->loss);
    j->loss = ct_keep(ct_detach(loss));
    for (int i = 0; i < n; i++) {
        ct_drop(j->grads[i]);
        j->grads[i] = ct_keep(grads[i]);
    }
    j->n = n;
    return true;
}

/* The largest difference, by the size of the largest element. */
static double distance(ct_tensor *a, ct_tensor *b) {
    const double most = ct_item(ct_amax(ct_abs(a))), apart = ct_item(ct_amax(ct_abs(ct_sub(a, b))));
    return apart / (most > 1e-30 ? most : 1);
}

static int calls_with(const ct_graph *g, const char *text) {
    int n = 0;
    for (int i = 0; i < g->n_records; i++) {
        const ct_record *r = &g->records[i];
        if (r->kind != CT__CALL || !strstr(r->call.op->name, text)) continue;
        for (const ct_attr *a = r->call.op->attrs; a && a->name; a++)
            if (strcmp(a->name, "channels_last") == 0) n += *((const bool *)r->call.attrs + a->offset);
    }
    return n;
}

static void compare(const char *name, job *captured, job *eager) {
    ct_no_grad {
        for (int i = 0; i < eager->n; i++) {
            const double apart = distance(eager->grads[i], captured->grads[i]);
            if (!harness_check(apart < 1e-9, __FILE__, __LINE__, "%s: gradient %d, %s, is %g apart", name, i,
                               ct_tensor_text(eager->grads[i]), apart))
                break;
        }
        const double apart = fabs(ct_item(eager->loss) - ct_item(captured->loss));
        harness_check(apart <= 1e-9 * fabs(ct_item(eager->loss)), __FILE__, __LINE__, "%s: the loss is %g apart", name,
                      apart);
    }
}

static void free_job(job *j) {
    ct_drop(j->loss);
    for (int i = 0; i < j->n; i++) ct_drop(j->grads[i]);
    ct_module_free(j->net);
}

/* With the layout changed, at least so many calls of ops with that in their name have their channels last. */
static void check(const char *name, job (*make)(void), const char *op, int least) {
    ct_scope {
        ct_seed(4);
        job eager = make();
        ct_seed(4);
        job captured = make();
        const uint64_t position = ct_rng_position(NULL);
        ct_graph *g = ct_capture(step, &captured, CT_CAPTURE_WARM | CT_CAPTURE_LAYOUT);
        harness_check(g != NULL, __FILE__, __LINE__, "%s: %s", name, ct_error());
        if (g)
            harness_check(calls_with(g, op) >= least, __FILE__, __LINE__,
                          "%s: %d calls of %s are channels last, not %d", name, calls_with(g, op), op, least);
        CHECK(ct_rng_set_position(NULL, position) && step(&eager));
        for (int k = 0; g && k < 2; k++)
            ct_scope {
                ct_no_grad {
                    ct_tensor *x = ct_add_s(ct_mul_s(eager.x, 0.7), 0.1);
                    CHECK(ct_assign(captured.x, x) && ct_assign(eager.x, x));
                }
                const uint64_t before = ct_rng_position(NULL);
                CHECK(ct_replay(g) && ct_rng_set_position(NULL, before) && step(&eager));
                compare(name, &captured, &eager);
            }
        ct_graph_free(g);
        free_job(&captured);
        free_job(&eager);
    }
}

static ct_tensor *leaf(ct_dims shape) {
    return ct_set_requires_grad(ct_mul_s(ct_randn(shape, .dtype = CT_F64), 0.3), true);
}

static job of_net(ct_module *net, ct_dims shape) {
    job j = {.net = net, .x = leaf(shape)};
    CHECK(net && ct_module_to_dtype(net, CT_F64));
    return j;
}

/* ---- Functions ---- */

static ct_tensor *two_convolutions(job *j, ct_tensor *x) {
    ct_tensor *y = ct_relu(ct_conv2d(x, j->w[0], .pad = 1));
    return ct_conv2d(y, j->w[1], .stride = 2, .pad = 1);
}
static ct_tensor *with_a_flattening(job *j, ct_tensor *x) {
    ct_tensor *y = ct_relu(ct_conv2d(x, j->w[0], .pad = 1));
    return ct_matmul(ct_reshape(y, CT_DIMS(ct_dim(y, 0), -1)), j->w[2]);
}
static ct_tensor *with_other_ops(job *j, ct_tensor *x) {
    ct_tensor *y = ct_conv2d(x, j->w[0], .pad = 1), *z = ct_softmax(ct_dropout(y, 0.3), 1);
    ct_tensor *both[2] = {ct_flip(z, CT_DIMS(2)), ct_narrow(ct_cumsum(y, 3), 1, 0, 6)};
    return ct_conv2d(ct_narrow(ct_cat(both, 2, 1), 1, 2, 6), j->w[1], .pad = 1);
}
static ct_tensor *in_place(job *j, ct_tensor *x) {
    ct_tensor *y = ct_conv2d(x, j->w[0], .pad = 1), *z = ct_clone(y);
    ct_add_(ct_narrow(z, 1, 1, 2), ct_narrow(y, 1, 3, 2));
    ct_add_(z, y);
    return ct_conv2d(z, j->w[1], .pad = 1);
}
static ct_tensor *volumes(job *j, ct_tensor *x) {
    return ct_max_pool3d(ct_relu(ct_conv3d(x, j->w[3], .pad = 1)), CT_DIMS(2));
}
static job function_job(ct_tensor *(*function)(job *j, ct_tensor *x)) {
    job j = {.function = function, .x = leaf(CT_DIMS(2, 4, 7, 9))};
    j.w[0] = leaf(CT_DIMS(6, 4, 3, 3));
    if (function != with_a_flattening) j.w[1] = leaf(CT_DIMS(5, 6, 3, 3));
    else j.w[2] = leaf(CT_DIMS(6 * 7 * 9, 5));
    return j;
}
static job make_two(void) { return function_job(two_convolutions); }
static job make_flattening(void) { return function_job(with_a_flattening); }
static job make_other(void) { return function_job(with_other_ops); }
static job make_in_place(void) { return function_job(in_place); }
static job make_volumes(void) {
    job j = {.function = volumes, .x = leaf(CT_DIMS(2, 3, 4, 6, 6))};
    j.w[3] = leaf(CT_DIMS(4, 3, 3, 3, 3));
    return j;
}

TEST(convolutions_and_what_lies_between_them_get_their_channels_last) {
    check("two convolutions", make_two, "conv", 5);
    check("a flattening after it", make_flattening, "conv", 1);
    check("other ops", make_other, "conv", 3);
    check("in place", make_in_place, "conv", 3);
    check("volumes", make_volumes, "", 3);
}

/* ---- Networks ---- */

static job make_lenet(void) { return of_net(ct_nn_lenet(28, .classes = 5), CT_DIMS(2, 1, 28, 28)); }
static job make_resnet(void) { return of_net(ct_nn_resnet(18, .classes = 5, .width = 0.0625), CT_DIMS(2, 3, 40, 40)); }
static job make_unet(void) { return of_net(ct_nn_unet(2, 4, .classes = 3), CT_DIMS(2, 3, 16, 16)); }
static job make_depthwise(void) {
    return of_net(ct_nn_sequential(ct_nn_conv2d(3, 8, 3, .pad = 1, .no_bias = true), ct_nn_batch_norm(8), ct_nn_relu(),
                                   ct_nn_conv2d(8, 8, 3, .pad = 1, .groups = 8), ct_nn_group_norm(2, 8), ct_nn_gelu(),
                                   ct_nn_conv2d(8, 4, 1), ct_nn_avg_pool2d(2), ct_nn_flatten(),
                                   ct_nn_linear(4 * 16, 3)),
                  CT_DIMS(2, 3, 8, 8));
}

TEST_LIMIT(networks_written_channels_first_have_the_same_gradients_channels_last, 120) {
    check("lenet", make_lenet, "", 4);
    check("resnet", make_resnet, "", 40);
    check("unet", make_unet, "", 20);
    check("depthwise", make_depthwise, "", 8);
}

TEST(on_a_device_they_have_them_too) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", "1", 1);
    setenv("CT_GUARD_RECORD", "1", 1);
    CHECK(ct_device_parse("guard", &device) && ct_set_device(device));
    check("two convolutions", make_two, "conv", 5);
    check("depthwise", make_depthwise, "", 8);
    CHECK(ct_set_device((ct_device){CT_CPU, 0}));
}

/* Those compare bits, of which rounding changes some. */
TEST(checked_replays_are_without_another_layout) {
    ct_scope {
        ct_seed(4);
        job j = make_lenet();
        ct_graph *g = ct_capture(step, &j, CT_CAPTURE_LAYOUT | CT_CAPTURE_CHECK);
        CHECK(g && calls_with(g, "") == 0 && ct_replay(g));
        ct_graph_free(g);
        free_job(&j);
    }
}

static bool capture_and_replay(void) {
    bool ok = false;
    ct_scope {
        ct_seed(4);
        job j = {.function = two_convolutions, .x = leaf(CT_DIMS(1, 4, 3, 3))};
        j.w[0] = leaf(CT_DIMS(6, 4, 3, 3)), j.w[1] = leaf(CT_DIMS(5, 6, 3, 3));
        const unsigned flags = CT_CAPTURE_WARM | CT_CAPTURE_LAYOUT | CT_CAPTURE_RECOMPUTE | CT_CAPTURE_FROZEN;
        ct_graph *g = ct_ok() && j.x && j.w[0] && j.w[1] ? ct_capture(step, &j, flags) : NULL;
        ok = g && ct_replay(g);
        ct_graph_free(g);
        free_job(&j);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_capture_with_another_layout_may_fail, 120) { FAIL_EVERYWHERE(capture_and_replay); }

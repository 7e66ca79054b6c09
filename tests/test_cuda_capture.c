/* Captured steps on an NVIDIA device: the bits of eager ones there, from whichever stream they are replayed; with fused kernels the losses. */
#include <math.h>
#include <stdlib.h>

#include "tests/cuda_device.h"
#include "tests/trainings.h"

static const ct_device cpu = {CT_CPU, 0};

TEST_LIMIT(trainings_captured_on_a_device_have_the_bits_of_eager_ones_there, 300) {
    CUDA(d);
    setenv("CT_PASSES", "-fuse", 1);
    for (int model = 0; model < MODELS; model++)
        for (int kind = 0; kind < 4; kind++) check_training(model, kind, CT_F32, d, d, 40);
}

TEST_LIMIT(in_half_precision_they_have_them_too, 300) {
    CUDA(d);
    setenv("CT_PASSES", "-fuse", 1);
    for (int model = 0; model < MODELS; model++) check_training(model, model, CT_BF16, d, d, 40);
    check_training(MLP, 1, CT_F16, d, d, 40);
}

/* Layers wide enough for products beside each other, and kernels that begin while others come to their end. */
typedef struct wide {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target;
} wide;

static bool wide_step(void *context) {
    const wide *w = context;
    ct_tensor *loss = ct_cross_entropy_loss(ct_forward(w->net, w->x), w->target);
    return ct_backward(loss) && ct_optim_step(w->optim) && ct_optim_zero_grad(w->optim);
}

static wide wide_new(ct_device d) {
    wide w = {0};
    ct_seed(11);
    w.net = ct_nn_sequential(ct_nn_linear(784, 512, .activation = CT_ACT_RELU), ct_nn_dropout(0.2),
                             ct_nn_linear(512, 512, .activation = CT_ACT_RELU), ct_nn_linear(512, 10));
    CHECK(w.net && ct_module_to_device(w.net, d));
    w.optim = ct_sgd(w.net, .lr = 0.05, .momentum = CT_SET(0.9));
    ct_scope {
        w.x = ct_keep(ct_to(ct_randn(CT_DIMS(64, 784)), d));
        w.target = ct_keep(ct_to(ct_randint(CT_DIMS(64), 0, 10), d));
    }
    return w;
}

TEST_LIMIT(a_network_of_wide_layers_has_them_after_a_thousand_replays_from_two_streams, 300) {
    CUDA(d);
    setenv("CT_PASSES", "-fuse", 1);
    wide of[2];
    ct_stream *streams[2] = {ct_stream_new(d), ct_stream_new(d)};
    REQUIRE(streams[0] && streams[1]);
    for (int captured = 0; captured < 2; captured++) {
        wide *w = &of[captured];
        *w = wide_new(d);
        ct_scope {
            CHECK(wide_step(w));
        }
        ct_graph *graph = captured ? ct_capture(wide_step, w, CT_CAPTURE_WARM) : NULL;
        if (captured) REQUIRE(graph != NULL);
        for (int i = captured; i < 1000; i++)
            ct_scope {
                if (captured) CHECK(ct_set_stream(d, streams[i / 10 % 2]));
                if (!CHECK(captured ? ct_replay(graph) : wide_step(w))) break;
            }
        CHECK(ct_set_stream(d, NULL));
        ct_graph_free(graph);
    }
    CHECK(same_networks(of[0].net, of[1].net));
    for (int i = 0; i < 2; i++) {
        ct_optim_free(of[i].optim), ct_module_free(of[i].net);
        ct_drop(of[i].x), ct_drop(of[i].target);
        ct_stream_free(streams[i]);
    }
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Branches ---- */

/* Towers over one input: layers and convolutions of each need not wait for those of the others. */
enum { TOWERS = 3 };
typedef struct towers {
    ct_module *nets[TOWERS];
    ct_optim *optims[TOWERS];
    ct_tensor *x, *target;
} towers;

static bool towers_step(void *context) {
    const towers *t = context;
    ct_tensor *sum = NULL;
    bool ok = true;
    for (int i = 0; i < TOWERS; i++) {
        ct_tensor *y = ct_forward(t->nets[i], t->x);
        sum = sum ? ct_add(sum, y) : y;
    }
    ok = ct_backward(ct_cross_entropy_loss(sum, t->target));
    for (int i = 0; i < TOWERS; i++) ok = ok && ct_optim_step(t->optims[i]) && ct_optim_zero_grad(t->optims[i]);
    return ok;
}

static towers towers_new(ct_device d, bool images) {
    towers t = {0};
    ct_seed(23);
    for (int i = 0; i < TOWERS; i++) {
        t.nets[i] = images
                        ? ct_nn_sequential(ct_nn_conv2d(1, 8, 3, .activation = CT_ACT_RELU),
                                           ct_nn_conv2d(8, 16 + 8 * i, 3, .activation = CT_ACT_RELU),
                                           ct_nn_max_pool2d(2), ct_nn_flatten(), ct_nn_linear(144 * (16 + 8 * i), 10))
                        : ct_nn_mlp(CT_DIMS(784, 256 + 64 * i, 128, 10), CT_ACT_GELU);
        CHECK(t.nets[i] && ct_module_to_device(t.nets[i], d));
        t.optims[i] = ct_adam(t.nets[i], .lr = 1e-3);
    }
    ct_scope {
        ct_tensor *x = ct_randn(CT_DIMS(32, 784));
        t.x = ct_keep(ct_to(images ? ct_reshape(x, CT_DIMS(32, 1, 28, 28)) : x, d));
        t.target = ct_keep(ct_to(ct_randint(CT_DIMS(32), 0, 10), d));
    }
    return t;
}

static void towers_free(towers *t) {
    for (int i = 0; i < TOWERS; i++) ct_optim_free(t->optims[i]), ct_module_free(t->nets[i]);
    ct_drop(t->x), ct_drop(t->target);
}

/* Eager steps, replays in order, with branches, and those that measure which is faster. */
static void check_branches(ct_device d, bool images, bool tf32, const char *passes) {
    enum { STEPS_DONE = 120 };
    const char *const branches[] = {NULL, "0", "1", "measured"};
    towers of[4];
    ct_set_tf32(tf32);
    if (passes) setenv("CT_PASSES", passes, 1);
    else unsetenv("CT_PASSES");
    for (int k = passes ? 0 : 1; k < 4; k++) {
        of[k] = towers_new(d, images);
        if (branches[k]) setenv("CT_BRANCHES", branches[k], 1);
        ct_scope {
            CHECK(towers_step(&of[k]));
        }
        ct_graph *graph = k ? ct_capture(towers_step, &of[k], CT_CAPTURE_WARM) : NULL;
        if (k) REQUIRE(graph != NULL);
        for (int i = k > 0; i < STEPS_DONE; i++)
            ct_scope {
                if (!CHECK(k ? ct_replay(graph) : towers_step(&of[k]))) break;
            }
        CHECK(ct_synchronize(d));
        ct_graph_free(graph);
    }
    const int first = passes ? 0 : 1; /* fused steps are compared with each other */
    for (int k = first + 1; k < 4; k++)
        for (int i = 0; i < TOWERS; i++)
            harness_check(same_networks(of[first].nets[i], of[k].nets[i]), __FILE__, __LINE__,
                          "%s, tower %d: other bits with CT_BRANCHES=%s", images ? "images" : "rows", i, branches[k]);
    for (int k = first; k < 4; k++) towers_free(&of[k]);
    unsetenv("CT_BRANCHES");
    ct_set_tf32(false);
}

TEST_LIMIT(branches_leave_the_bits_as_they_are, 300) {
    CUDA(d);
    check_branches(d, false, false, "-fuse");
    check_branches(d, false, true, NULL);
    check_branches(d, true, true, "-fuse");
    check_branches(d, true, true, NULL);
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Fused steps ---- */

/* Every weight, times 1 + u or 1 - u: the rounding of one more operation. */
static void nudge(ct_module *net, ct_rng *rng) {
    ct_parameters *all = ct_module_parameters(net);
    ct_scope {
        ct_no_grad {
            for (int i = 0; i < ct_parameters_count(all); i++) {
                ct_tensor *p = ct_detach(ct_parameter_tensor(ct_parameters_at(all, i)));
                ct_tensor *up = ct_randint(ct_shape(p), 0, 2, .rng = rng, .device = ct_device_of(p));
                CHECK(ct_assign(p, ct_mul(p, ct_add_s(ct_mul_s(ct_cast(up, CT_F32), 0x1p-22), 1 - 0x1p-23))));
            }
        }
    }
    ct_parameters_free(all);
}

/* Losses from step 3 on: eager ones (of nudged weights with a generator for that), or those of fused steps. */
static void train(int model, ct_dtype precision, ct_device d, bool fused, ct_rng *nudges, float *losses) {
    training t = make_training(model, 1, precision, d);
    go_on(&t, model, NULL, 0, 2, losses);
    ct_graph *graph = fused ? ct_capture(step, &t, CT_CAPTURE_WARM) : NULL;
    if (fused) harness_check(graph != NULL, __FILE__, __LINE__, "model %d: %s", model, ct_error());
    else
        ct_scope {
            CHECK(step(&t));
        }
    CHECK(ct_schedule_step(t.schedule));
    for (int k = 3; k < STEPS; k++) {
        if (nudges) nudge(t.net, nudges);
        go_on(&t, model, graph, k, k + 1, losses);
    }
    ct_graph_free(graph);
    free_training(&t);
}

/* Fused kernels round as the steps would, but for sums along rows, which are rounded once each in another order. What that does to a loss
 * many steps later depends on the training, so it is measured: by eager trainings in which every weight is rounded once more in each step.
 * Of up to 16 such sums in a step, whose roundings have nothing to do with each other, the effects add up to 4 times that of one. A loss is
 * itself rounded; in half precision one activation that is rounded the other way moves it by as much as it is rounded. */
static void check_losses(int model, ct_dtype precision, ct_device d) {
    enum { NUDGED = 3 };
    static float eager[STEPS], fused[STEPS], nudged[NUDGED][STEPS];
    const float unit = precision == CT_F32 ? 0x1p-24f : 0x1p-9f;
    train(model, precision, d, false, NULL, eager);
    train(model, precision, d, true, NULL, fused);
    for (int i = 0; i < NUDGED; i++) {
        ct_rng *rng = ct_rng_new(101 + (uint64_t)i, 0);
        train(model, precision, d, false, rng, nudged[i]);
        ct_rng_free(rng);
    }
    int same = 0;
    float spread = 0, most = 0;
    for (int k = 3; k < STEPS; k++) {
        const float off = fabsf(fused[k] - eager[k]);
        for (int i = 0; i < NUDGED; i++) spread = fmaxf(spread, fabsf(nudged[i][k] - eager[k]));
        same += off == 0;
        most = fmaxf(most, off);
        if (!harness_check(off <= 4 * (spread + unit * fmaxf(1, fabsf(eager[k]))), __FILE__, __LINE__,
                           "model %d, %s: the loss of step %d is %g, not %g; one rounding moves it by %g", model,
                           ct_dtype_name(precision), k, fused[k], eager[k], spread))
            break;
    }
    printf("model %d, %s: %d of %d losses have the same bits; off by %g at most, one rounding moves them by %g\n",
           model, ct_dtype_name(precision), same, STEPS - 3, most, spread);
}

TEST_LIMIT(losses_of_fused_steps_stay_with_those_of_eager_ones, 300) {
    CUDA(d);
    for (int model = 0; model < MODELS; model++) check_losses(model, CT_F32, d), check_losses(model, CT_BF16, d);
}

/* ---- The chain of the bench, and what it means to be one kernel ---- */

typedef struct chained {
    ct_tensor *x, *y, *z; /* kept; z is the function's */
} chained;

static bool chain(void *context) {
    chained *c = context;
    ct_drop(c->z);
    c->z = ct_add(ct_mul_s(ct_tanh(ct_add(ct_mul(c->x, c->y), c->x)), 0.5), c->y);
    return c->z && ct_keep(c->z);
}

TEST_LIMIT(a_chain_of_elementwise_calls_is_one_record_with_the_bits_of_the_calls, 300) {
    CUDA(d);
    static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16, CT_F64};
    CHECK(ct_set_device(d));
    for (int i = 0; i < 4; i++)
        ct_scope {
            chained c = {.x = ct_keep(ct_cast(ct_randn(CT_DIMS(257, 129)), dtypes[i])),
                         .y = ct_keep(ct_cast(ct_randn(CT_DIMS(257, 129)), dtypes[i]))};
            ct_graph *graph = ct_capture(chain, &c, 0);
            ct_graph_info info = {.size = sizeof info};
            REQUIRE(graph && ct_graph_describe(graph, &info));
            printf("%s: %lld records\n", ct_dtype_name(dtypes[i]), (long long)info.records);
            CHECK(ct_replay(graph));
            ct_tensor *fused = ct_to(ct_clone(c.z), cpu);
            ct_graph_free(graph);
            CHECK(chain(&c));
            harness_check(harness_same_bits(fused, ct_to(c.z, cpu)), __FILE__, __LINE__, "%s: other bits",
                          ct_dtype_name(dtypes[i]));
            ct_drop(c.x), ct_drop(c.y), ct_drop(c.z);
        }
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Gradients of losses, which are written over the logits ---- */

typedef struct classes {
    ct_tensor *x, *target, *y; /* kept; y is the function's */
} classes;

static bool loss_gradient(void *context) {
    classes *c = context;
    ct_tensor *logits = ct_set_requires_grad(ct_mul_s(c->x, 3), true), *dx = NULL;
    ct_tensor *loss = ct_cross_entropy_loss(logits, c->target, .label_smoothing = 0.1, .ignore_index = CT_SET(7));
    if (!ct_grad(&loss, 1, NULL, &logits, 1, &dx, 0)) return false;
    ct_drop(c->y);
    c->y = ct_neg(dx);
    return c->y && ct_keep(c->y);
}

TEST_LIMIT(gradients_of_losses_over_their_logits_have_the_bits_of_eager_ones, 120) {
    CUDA(d);
    static const int64_t shapes[][3] = {{64, 10, 1}, {512, 1000, 1}, {300, 1003, 1}, {16, 19, 33}};
    static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16, CT_F64};
    CHECK(ct_set_device(d));
    setenv("CT_PASSES", "overwrite", 1);
    for (int i = 0; i < 16; i++)
        ct_scope {
            const int64_t *shape = shapes[i / 4];
            const bool places = shape[2] > 1;
            ct_dims all = {.n = 2 + places, .d = {shape[0], shape[1], shape[2]}};
            ct_dims targets = {.n = 1 + places, .d = {shape[0], shape[2]}};
            classes c = {.x = ct_keep(ct_cast(ct_randn(all), dtypes[i % 4])),
                         .target = ct_keep(ct_randint(targets, 0, shape[1]))};
            ct_graph_info info = {.size = sizeof info};
            ct_graph *graph = ct_capture(loss_gradient, &c, 0);
            REQUIRE(graph && ct_graph_describe(graph, &info) && ct_replay(graph));
            ct_tensor *made = ct_to(ct_clone(c.y), cpu);
            const int64_t bytes = ct_numel(c.x) * (int64_t)ct_dtype_size(dtypes[i % 4]);
            harness_check(bytes < 1 << 18 || info.needed_bytes < 2 * bytes, __FILE__, __LINE__,
                          "%lld bytes of logits take %lld", (long long)bytes, (long long)info.needed_bytes);
            ct_graph_free(graph);
            CHECK(loss_gradient(&c));
            harness_check(harness_same_bits(made, ct_to(c.y, cpu)), __FILE__, __LINE__, "%s, shape %d: other bits",
                          ct_dtype_name(dtypes[i % 4]), i / 4);
            ct_drop(c.x), ct_drop(c.target), ct_drop(c.y);
        }
    unsetenv("CT_PASSES");
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- What lies between two products of a transformer ---- */

enum { RESULTS = 5 };
typedef struct residual {
    ct_tensor *in[4], *cotangent; /* x, h, weight, bias; kept */
    ct_tensor *results[RESULTS];  /* the norm and the gradients of `in`; kept, the function's */
} residual;

static bool residual_norm(void *context) {
    residual *r = context;
    ct_tensor **in = r->in, *grads[4];
    for (int i = 0; i < RESULTS; i++) ct_drop(r->results[i]), r->results[i] = NULL;
    ct_tensor *sum = ct_add(in[0], ct_cast(in[1], CT_F32));
    ct_tensor *y = ct_cast(ct_layer_norm(sum, CT_DIMS(ct_dim(sum, -1)), .weight = in[2], .bias = in[3]), CT_BF16);
    if (!y || !ct_grad(&y, 1, &r->cotangent, in, 4, grads, 0)) return false;
    for (int i = 0; i < RESULTS; i++) ct_keep(r->results[i] = i ? grads[i - 1] : ct_detach(y));
    return ct_ok();
}

TEST_LIMIT(residual_sums_and_norms_are_fused_with_the_bits_of_the_calls, 300) {
    CUDA(d);
    static const int64_t lengths[] = {768, 64, 1024, 8, 4096};
    CHECK(ct_set_device(d));
    for (int i = 0; i < 5; i++)
        ct_scope {
            const int64_t n = lengths[i];
            residual r = {{ct_keep(ct_randn(CT_DIMS(3, 67, n))), ct_keep(ct_cast(ct_randn(CT_DIMS(3, 67, n)), CT_BF16)),
                           ct_keep(ct_randn(CT_DIMS(n))), ct_keep(ct_randn(CT_DIMS(n)))},
                          ct_keep(ct_cast(ct_randn(CT_DIMS(3, 67, n)), CT_BF16)),
                          {0}};
            ct_tensor *fused[RESULTS];
            for (int k = 0; k < 4; k++) ct_set_requires_grad(r.in[k], true);
            ct_graph *graph = ct_capture(residual_norm, &r, 0);
            ct_graph_info info = {.size = sizeof info};
            harness_check(graph && ct_graph_describe(graph, &info), __FILE__, __LINE__, "%s", ct_error());
            printf("rows of %lld: %lld records\n", (long long)n, (long long)info.records);
            CHECK(ct_replay(graph));
            for (int k = 0; k < RESULTS; k++) fused[k] = ct_to(r.results[k], cpu);
            ct_graph_free(graph);
            CHECK(residual_norm(&r));
            for (int k = 0; k < RESULTS; k++)
                harness_check(harness_same_bits(fused[k], ct_to(r.results[k], cpu)), __FILE__, __LINE__,
                              "rows of %lld, result %d: other bits", (long long)n, k);
            for (int k = 0; k < RESULTS; k++) ct_drop(r.results[k]);
            for (int k = 0; k < 4; k++) ct_drop(r.in[k]);
            ct_drop(r.cotangent);
        }
    CHECK(ct_set_device(cpu) && ct_ok());
}

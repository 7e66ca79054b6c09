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

/* Fused kernels round as the steps would, but for sums along rows: losses stay together. */
static void check_losses(int model, ct_dtype precision, ct_device d) {
    float losses[2][STEPS];
    for (int captured = 0; captured < 2; captured++) {
        training t = make_training(model, 1, precision, d);
        go_on(&t, model, NULL, 0, 2, losses[captured]);
        ct_graph *graph = captured ? ct_capture(step, &t, CT_CAPTURE_WARM) : NULL;
        if (captured) harness_check(graph != NULL, __FILE__, __LINE__, "model %d: %s", model, ct_error());
        else
            ct_scope {
                CHECK(step(&t));
            }
        CHECK(ct_schedule_step(t.schedule));
        go_on(&t, model, graph, 3, STEPS, losses[captured]);
        ct_graph_free(graph);
        free_training(&t);
    }
    int same = 0;
    for (int k = 3; k < STEPS; k++) {
        const float tolerance = precision == CT_F32 ? 1e-3f : 2e-2f;
        same += losses[0][k] == losses[1][k];
        if (!harness_check(fabsf(losses[0][k] - losses[1][k]) <= tolerance * fmaxf(1, fabsf(losses[0][k])), __FILE__,
                           __LINE__, "model %d, %s: the loss of step %d is %g, not %g", model, ct_dtype_name(precision),
                           k, losses[1][k], losses[0][k]))
            break;
    }
    printf("model %d, %s: %d of %d losses have the same bits\n", model, ct_dtype_name(precision), same, STEPS - 3);
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

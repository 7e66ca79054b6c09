/* Training on a device other than the CPU, on the guarded one: every optimizer, schedules, clipping, the loss scaler, averages and
 * checkpoints. Its kernels are the CPU's, so the bits are as well. A step reads nothing back: what the host fetches is counted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <cotangent/run.h>

#include "core/device.h"
#include "core/tensor.h"
#include "gen/optim.attrs.h"
#include "optim/optim.h"
#include "tests/harness.h"

static const ct_device cpu = {CT_CPU, 0};

static ct_device guard(void) {
    ct_device device = {0};
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    CHECK(ct_device_parse("guard", &device));
    return device;
}

/* ---- What the host fetches ---- */

static struct {
    ct_backend counting;
    const ct_backend *plain;
    int downloads;
} watch;

static bool count_download(void *self, int device, void *host, const void *buffer, size_t offset, size_t bytes,
                           ct_stream *stream) {
    watch.downloads++;
    return watch.plain->download(self, device, host, buffer, offset, bytes, stream);
}

/* From here on downloads of the device are counted. */
static void watch_downloads(ct_device device) {
    if (!watch.plain) {
        watch.plain = ct__backend(device.type);
        watch.counting = *watch.plain;
        watch.counting.download = count_download;
        atomic_store(&ct__open_backends[device.type], &watch.counting);
    }
    watch.downloads = 0;
}

/* ---- A network and its batches ---- */

static ct_module *make_net(ct_device device, ct_dtype dtype) {
    ct_seed(5);
    ct_module *net = ct_nn_sequential(ct_nn_linear(6, 9), ct_nn_gelu(), ct_nn_linear(9, 4));
    CHECK(net && ct_module_to_dtype(net, dtype) && ct_module_to_device(net, device));
    return net;
}

static ct_tensor *loss_of(ct_module *net, int t) {
    ct_tensor *weight = ct_module_find(net, "0.weight");
    ct_tensor *x = ct_add_s(harness_randn(CT_DIMS(5, 6)), 0.1 * t);
    x = ct_to(ct_cast(x, ct_dtype_of(weight)), ct_device_of(weight));
    ct_tensor *y = ct_to(I64(CT_DIMS(5), t % 4, 1, 2, 3, 0), ct_device_of(weight));
    return ct_cross_entropy_loss(ct_cast(ct_forward(net, x), CT_F32), y);
}

static bool same_nets(ct_module *a, ct_module *b) {
    static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};
    bool same = true;
    for (int i = 0; i < 4; i++)
        same = same && harness_same_bits(ct_to(ct_detach(ct_module_find(a, names[i])), cpu),
                                         ct_to(ct_detach(ct_module_find(b, names[i])), cpu));
    return same;
}

/* One of each kind, and each with the options that have states of their own. */
static ct_optim *make_optim(int i, ct_module *net) {
    switch (i) {
    case 0: return ct_sgd(net, .lr = 0.1);
    case 1: return ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .nesterov = true);
    case 2: return ct_adam(net, .amsgrad = true);
    case 3: return ct_adamw(net);
    case 4: return ct_radam(net);
    case 5: return ct_nadam(net);
    case 6: return ct_rmsprop(net, .centered = true, .momentum = CT_SET(0.9));
    case 7: return ct_adagrad(net, .initial_accumulator_value = CT_SET(0.1), .lr_decay = CT_SET(0.1));
    case 8: return ct_adadelta(net);
    case 9: return ct_lamb(net);
    case 10: return ct_lars(net);
    case 11: return ct_lion(net);
    case 12: return ct_lookahead(ct_adam(net, .lr = 0.05), .k = 2);
    default: return NULL;
    }
}

/* ---- Steps ---- */

/* With a group, a schedule of rates, clipping and averages; the scaler where asked for. Fetches nothing. */
static void train(int kind, ct_module *net, ct_scaler *scaler, int steps, ct_state *state) {
    ct_optim *opt = make_optim(kind, net);
    CHECK(ct_optim_group(opt, "*.bias", .lr = 0.02));
    ct_schedule *schedule = ct_schedule_warmup(opt, 4);
    ct_ema *ema = ct_ema_new(net, .warmup = true);
    for (int t = 0; t < steps; t++)
        ct_scope {
            ct_tensor *loss = loss_of(net, t);
            if (t == 1) loss = ct_mul_s(loss, 1e30); /* too much for the scaler, in f32 */
            CHECK(ct_backward(scaler ? ct_scaler_scale(scaler, loss) : loss));
            if (scaler) CHECK(ct_scaler_unscale(scaler, opt));
            CHECK(ct_optim_clip_grad_norm_tensor(opt, 0.5));
            CHECK(scaler ? ct_scaler_step(scaler, opt) && ct_scaler_update(scaler) : ct_optim_step(opt));
            CHECK(ct_ema_update(ema) && ct_schedule_step(schedule));
        }
    if (state) CHECK(ct_optim_put_state(opt, state, "o.") && ct_ema_put_state(ema, state, "e."));
    ct_ema_free(ema);
    ct_schedule_free(schedule);
    ct_optim_free(opt);
}

static void check_kind(int kind, ct_dtype dtype, bool scaled, ct_device device) {
    ct_module *nets[2];
    double scale[2];
    for (int i = 0; i < 2; i++) {
        const ct_device at = i ? device : cpu;
        ct_scaler *scaler = scaled ? ct_scaler_new(0x1p70, .growth_interval = 2) : NULL;
        nets[i] = make_net(at, dtype);
        if (i) watch_downloads(device);
        ct_scope {
            train(kind, nets[i], scaler, 5, NULL);
        }
        if (i)
            harness_check(watch.downloads == 0, __FILE__, __LINE__, "optimizer %d: %d fetches in 5 steps", kind,
                          watch.downloads);
        scale[i] = scaled ? ct_scaler_value(scaler) : 0;
        ct_scaler_free(scaler);
    }
    harness_check(same_nets(nets[0], nets[1]), __FILE__, __LINE__, "optimizer %d in %s%s: other bits", kind,
                  ct_dtype_name(dtype), scaled ? " with a scaler" : "");
    CHECK(scale[0] == scale[1]);
    /* the bad step made it half as large, the two good ones after it twice */
    if (scaled) CHECK(scale[0] == 0x1p70);
    ct_module_free(nets[0]);
    ct_module_free(nets[1]);
}

TEST_LIMIT(every_optimizer_steps_as_on_the_cpu_and_reads_nothing_back, 300) {
    const ct_device device = guard();
    for (int kind = 0; kind < 13; kind++) {
        check_kind(kind, CT_F32, false, device);
        check_kind(kind, CT_BF16, false, device);
        check_kind(kind, CT_F32, true, device);
    }
}

static ct_tensor *loss_again(void *context) { return loss_of(context, 0); }

TEST_LIMIT(lbfgs_walks_as_on_the_cpu, 120) {
    const ct_device devices[2] = {cpu, guard()};
    ct_module *nets[2];
    double loss[2];
    for (int i = 0; i < 2; i++) {
        nets[i] = make_net(devices[i], CT_F32);
        ct_optim *opt = ct_lbfgs(nets[i], .max_iter = 4, .strong_wolfe = true);
        for (int t = 0; t < 3; t++) loss[i] = ct_optim_step_with(opt, loss_again, nets[i]);
        ct_optim_free(opt);
    }
    CHECK(loss[0] == loss[1] && same_nets(nets[0], nets[1]));
    ct_module_free(nets[0]);
    ct_module_free(nets[1]);
}

TEST(the_norm_is_a_tensor_where_the_gradients_are) {
    const ct_device device = guard();
    ct_module *nets[2] = {make_net(cpu, CT_F32), make_net(device, CT_F32)};
    double norm[2];
    for (int i = 0; i < 2; i++) {
        CHECK(ct_backward(loss_of(nets[i], 0)));
        if (i) watch_downloads(device);
        ct_tensor *before = ct_grad_norm_tensor(nets[i]), *same = ct_clip_grad_norm_tensor(nets[i], 1e-2);
        REQUIRE(before && same && ct_device_of(before).type == (i ? device.type : CT_CPU));
        CHECK(ct_clip_grad_value(nets[i], 1e-3));
        if (i) CHECK(watch.downloads == 0);
        norm[i] = ct_item(before);
        CHECK(ct_item(same) == norm[i] && norm[i] > 1e-2);
        CHECK(ct_grad_norm(nets[i]) < 1.01e-2);
    }
    CHECK(norm[0] == norm[1]);
    for (int i = 0; i < 2; i++) ct_module_free(nets[i]);
    CHECK(!ct_clip_grad_norm_tensor(NULL, 1));
    CHECK_ERROR(CT_ERR_NULL, "clip_grad_norm: argument net is NULL");
}

/* Without fused kernels a step runs in plain ops, which wait no more than they do. */
TEST_LIMIT(steps_in_primitives_come_near_and_read_nothing_back, 120) {
    setenv("CT_GUARD_PRIMITIVES", "1", 1);
    const ct_device device = guard();
    for (int kind = 0; kind < 13; kind++)
        for (int dtype = CT_F32; dtype <= CT_F64; dtype += CT_F64 - CT_F32)
            ct_scope {
                ct_tensor *x[2];
                for (int i = 0; i < 2; i++) {
                    const ct_device at = i ? device : cpu;
                    ct_optim *opt = make_optim(kind, NULL);
                    ct_scaler *scaler = ct_scaler_new(8);
                    x[i] =
                        ct_set_requires_grad(ct_to(ct_cast(harness_randn(CT_DIMS(3, 5)), (ct_dtype)dtype), at), true);
                    CHECK(ct_optim_add_tensor(opt, "x", x[i]));
                    for (int t = 0; t < 12; t++) { /* RAdam needs six to trust its second moment; one is left out */
                        ct_tensor *g = t == 3 ? ct_full(CT_DIMS(3, 5), (double)INFINITY)
                                              : ct_mul_s(ct_add_s(harness_randn(CT_DIMS(3, 5)), 0.5 + t), 4);
                        CHECK(ct_set_grad(x[i], ct_to(ct_cast(g, (ct_dtype)dtype), at)));
                        if (i && t == 0) watch_downloads(device);
                        CHECK(ct_scaler_unscale(scaler, opt) && ct_optim_clip_grad_norm_tensor(opt, 1.0) &&
                              ct_scaler_step(scaler, opt) && ct_scaler_update(scaler));
                    }
                    if (i) CHECK(watch.downloads == 0);
                    ct_scaler_free(scaler);
                    ct_optim_free(opt);
                }
                /* a step rounds some thirty times, here and there in another order, and weights are below 4 */
                const double unit = dtype == CT_F32 ? 0x1p-24 : 0x1p-53;
                ct_tensor *apart = ct_sub(ct_to(ct_detach(x[1]), cpu), ct_detach(x[0]));
                const double most = ct_item(ct_amax(ct_abs(apart)));
                harness_check(most <= 12 * 30 * 4 * unit, __FILE__, __LINE__, "optimizer %d in %s: %g apart", kind,
                              ct_dtype_name((ct_dtype)dtype), most);
            }
}

/* ---- A step that is left out ---- */

TEST_LIMIT(a_step_that_the_scaler_leaves_out_leaves_no_trace, 120) {
    const ct_device devices[2] = {cpu, guard()};
    for (int d = 0; d < 2; d++)
        for (int kind = 0; kind < 12; kind++)
            ct_scope {
                /* good, bad, good on one side; good, good on the other */
                ct_tensor *x[2];
                int64_t steps[2];
                for (int side = 0; side < 2; side++) {
                    ct_optim *opt = make_optim(kind, NULL);
                    ct_scaler *scaler = ct_scaler_new(8);
                    x[side] = ct_set_requires_grad(ct_full(CT_DIMS(5), 2, .device = devices[d]), true);
                    CHECK(ct_optim_add_tensor(opt, "x", x[side]));
                    for (int t = 0; t < 3; t++) {
                        if (t == 1 && side) continue;
                        ct_tensor *g = ct_full(CT_DIMS(5), t == 1 ? (double)INFINITY : 1 + t, .device = devices[d]);
                        CHECK(ct_set_grad(x[side], g) && ct_scaler_step(scaler, opt));
                        CHECK(ct_scaler_skipped(scaler) == (t == 1) && !ct_grad_of(x[side]));
                    }
                    steps[side] = ct_optim_steps(opt);
                    ct_scaler_free(scaler);
                    ct_optim_free(opt);
                }
                CHECK(steps[0] == 2 && steps[1] == 2);
                harness_check(harness_same_bits(ct_to(ct_detach(x[0]), cpu), ct_to(ct_detach(x[1]), cpu)), __FILE__,
                              __LINE__, "optimizer %d: a step that was left out shows", kind);
            }
}

/* Lookahead counts what was tried, also after it is loaded. */
TEST(a_scaled_run_goes_on_from_a_state_to_the_same_bits) {
    const ct_device devices[2] = {cpu, guard()};
    for (int kind = 3; kind < 13; kind += 9)
        for (int d = 0; d < 2; d++)
            ct_scope {
                ct_tensor *x[2];
                ct_optim *opt[2];
                ct_scaler *scaler[2];
                ct_state *state = ct_state_new();
                for (int i = 0; i < 2; i++) {
                    opt[i] = make_optim(kind, NULL);
                    scaler[i] = ct_scaler_new(8);
                    x[i] = ct_set_requires_grad(ct_full(CT_DIMS(5), 2, .device = devices[d]), true);
                    CHECK(ct_optim_add_tensor(opt[i], "x", x[i]));
                }
                for (int t = 0; t < 9; t++) {
                    if (t == 4) {
                        CHECK(ct_optim_put_state(opt[0], state, "o.") && ct_scaler_put_state(scaler[0], state, "s."));
                        CHECK(ct_optim_take_state(opt[1], state, "o.") && ct_scaler_take_state(scaler[1], state, "s."));
                        CHECK(ct_optim_steps(opt[0]) == 3 && ct_optim_steps(opt[1]) == 3);
                        ct_no_grad
                            CHECK(ct_assign(x[1], x[0]));
                    }
                    for (int i = 0; i < (t < 4 ? 1 : 2); i++) {
                        const double g = t == 2 || t == 5 ? (double)NAN : cos(t);
                        CHECK(ct_set_grad(x[i], ct_full(CT_DIMS(5), g, .device = devices[d])));
                        CHECK(ct_scaler_step(scaler[i], opt[i]) && ct_scaler_update(scaler[i]));
                    }
                }
                CHECK(ct_optim_steps(opt[0]) == 7 && ct_optim_steps(opt[1]) == 7);
                CHECK(ct_scaler_value(scaler[0]) == 2 && ct_scaler_value(scaler[1]) == 2);
                CHECK(harness_same_bits(ct_to(ct_detach(x[0]), cpu), ct_to(ct_detach(x[1]), cpu)));
                for (int i = 0; i < 2; i++) {
                    ct_scaler_free(scaler[i]);
                    ct_optim_free(opt[i]);
                }
                ct_state_free(state);
            }
}

/* ---- What a recorded step needs ---- */

/* The call of a step, kept and run again without the optimizer: it goes on with what lies in its tensors then. */
TEST(a_kept_call_makes_the_next_steps) {
    ct_tensor *x[2];
    ct_optim *opt[2];
    for (int i = 0; i < 2; i++) {
        x[i] = ct_set_requires_grad(ct_ones(CT_DIMS(19)), true);
        opt[i] = ct_adamw(NULL, .lr = 0.1);
        CHECK(ct_optim_add_tensor(opt[i], "x", x[i]) && ct_optim_keep_grad(opt[i], true));
        CHECK(ct_set_grad(x[i], ct_sin(ct_arange(0, 19, 1, .dtype = CT_F32))) && ct_optim_step(opt[i]));
    }
    const optim_param *p = &opt[0]->params[0];
    const ct_tensor *tensors[] = {opt[0]->groups[0].rates,
                                  opt[0]->clocks[p->clock].x,
                                  opt[0]->gate,
                                  x[0],
                                  ct_grad_of(x[0]),
                                  p->state[0],
                                  p->state[1]};
    const ct_view *views[7];
    ct_view *none = NULL;
    for (int i = 0; i < 7; i++) views[i] = &tensors[i]->view;
    const optim_adam_attrs attrs = {.decoupled = true};
    const ct_op *op = ct_op_find("optim_adam");
    const ct_kernel *kernel = ct_op_kernel(op, CT_CPU, 0);
    ct_call call = {
        .op = op, .kernel = kernel, .attrs = &attrs, .n_in = 7, .n_out = 1, .in = views, .out = &none, .device = cpu};
    _Alignas(64) char scratch[1024];
    REQUIRE(kernel && kernel->scratch(&call) <= sizeof scratch);
    call.scratch = (ct_memory_part){.buffer = scratch, .bytes = sizeof scratch};
    for (int t = 1; t < 5; t++) {
        CHECK(ct_optim_set_lr(opt[1], 0.1 / t) && ct_optim_step(opt[1]));
        double rates[9];
        CHECK(ct_read(tensors[0], rates, sizeof rates));
        rates[1] = 0.1 / t; /* the learning rate */
        CHECK(ct_write((ct_tensor *)tensors[0], rates, sizeof rates));
        CHECK(kernel->run(&call, NULL));
    }
    CHECK(harness_same_bits(ct_detach(x[0]), ct_detach(x[1])));
    CHECK(harness_same_bits(p->state[1], opt[1]->params[0].state[1]));
    for (int i = 0; i < 2; i++) ct_optim_free(opt[i]);
}

/* A step's data lie where they lay: rates that change, clocks that move on, and gradients that are used again. */
TEST(gradients_that_are_reused_keep_their_address) {
    const ct_device devices[2] = {cpu, guard()};
    for (int d = 0; d < 2; d++) {
        ct_module *net = make_net(devices[d], CT_F32), *other = make_net(devices[d], CT_F32);
        ct_optim *opt = ct_sgd(net, .lr = 0.1), *dropping = ct_sgd(other, .lr = 0.1);
        const void *address = NULL;
        CHECK(ct_optim_reuse_grad(opt, true));
        for (int t = 0; t < 4; t++)
            ct_scope {
                for (int half = 0; half < 2; half++) /* two passes are one step: the second adds */
                    CHECK(ct_backward(loss_of(net, t)) && ct_backward(loss_of(other, t)));
                const ct_tensor *grad = ct_grad_of(ct_module_find(net, "0.weight"));
                REQUIRE(grad != NULL);
                if (t) CHECK(grad->storage == address && grad->view.offset == 0);
                address = grad->storage;
                CHECK(ct_optim_step(opt) && ct_optim_step(dropping));
                CHECK(ct_grad_of(ct_module_find(net, "0.weight")) == grad);
                CHECK(!ct_grad_of(ct_module_find(other, "0.weight")));
                CHECK(ct_item(ct_amax(ct_abs((ct_tensor *)grad))) == 0);
            }
        CHECK(same_nets(net, other));
        CHECK(ct_optim_reuse_grad(opt, false) && ct_optim_zero_grad(opt));
        CHECK(!ct_grad_of(ct_module_find(net, "0.weight")));
        ct_optim_free(opt);
        ct_optim_free(dropping);
        ct_module_free(net);
        ct_module_free(other);
    }
}

TEST(numbers_are_written_into_a_tensor_of_a_device) {
    const ct_device device = guard();
    ct_tensor *x = ct_zeros(CT_DIMS(2, 2), .device = device), *row = ct_select(x, 0, 1);
    CHECK(ct_write(x, (float[]){1, 2, 3, 4}, 16) && ct_write(row, (float[]){5, 6}, 8));
    CHECK_VALUES(ct_to(x, cpu), CT_DIMS(2, 2), 0, 1, 2, 5, 6);
    CHECK(!ct_write(x, (float[]){1}, 4));
    CHECK_ERROR(CT_ERR_SHAPE, "write: x is f32[2,2], which takes 16 bytes, not 4");
    CHECK(!ct_write(ct_t(x), (float[]){1, 2, 3, 4}, 16));
    CHECK_ERROR(CT_ERR_SHAPE, "write: x is f32[2,2] with gaps or another order in memory; ct_assign writes such");
    CHECK(!ct_write(x, NULL, 16) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    ct_tensor *leaf = ct_set_requires_grad(ct_ones(CT_DIMS(2)), true), *y = ct_sum(ct_square(leaf));
    CHECK(ct_write(leaf, (float[]){1, 2}, 8) && !ct_backward(y)); /* it needed what was there */
    ct_error_clear();
}

/* ---- Checkpoints, loader, generation ---- */

TEST_LIMIT(a_run_is_saved_on_a_device_and_goes_on_elsewhere, 120) {
    const ct_device devices[2] = {cpu, guard()};
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            ct_scope {
                ct_module *net = make_net(devices[from], CT_F32), *next = make_net(devices[to], CT_F32);
                ct_optim *a = ct_nadam(net), *b = ct_nadam(next);
                ct_ema *averages = ct_ema_new(net), *more = ct_ema_new(next);
                for (int t = 0; t < 3; t++)
                    CHECK(ct_backward(loss_of(net, t)) && ct_optim_step(a) && ct_ema_update(averages));
                ct_state *state = ct_state_new();
                CHECK(ct_module_put_state(net, state, "n.") && ct_optim_put_state(a, state, "o.") &&
                      ct_ema_put_state(averages, state, "e."));
                CHECK(ct_module_take_state(next, state, "n.") && ct_optim_take_state(b, state, "o.") &&
                      ct_ema_take_state(more, state, "e."));
                for (int t = 3; t < 6; t++)
                    CHECK(ct_backward(loss_of(net, t)) && ct_optim_step(a) && ct_ema_update(averages) &&
                          ct_backward(loss_of(next, t)) && ct_optim_step(b) && ct_ema_update(more));
                CHECK(same_nets(net, next));
                CHECK(ct_ema_swap_in(averages) && ct_ema_swap_in(more) && same_nets(net, next));
                ct_state_free(state);
                ct_ema_free(averages);
                ct_ema_free(more);
                ct_optim_free(a);
                ct_optim_free(b);
                ct_module_free(net);
                ct_module_free(next);
            }
}

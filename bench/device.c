/* Figures of a device, a line of JSON for each, under the names that bench/peers/torch_gpu.py has for the same work: the median in
 * milliseconds after warm-up, and the most device memory that tensors held.
 *     cc -O2 bench/device.c $(pkg-config --cflags --libs cotangent) -o device && ./device DEVICE [PART OF A NAME]...
 * On "cuda" it is timed by events of the device before and behind one call, as there, and by the clock with the wait at its end (wall_ms). On
 * other devices, and on "cuda" with BENCH_WALL=1, by the clock: of many calls and one wait for them. CT_TF32=1 for the rows of TF32. BENCH_CPU=1
 * counts the processor time of all threads instead of the clock: for drivers that compute on a CPU which others use as well. With
 * BENCH_CAPTURE=1 steps of training and the chain are captured and replayed; what the capture took is printed with them. BENCH_CAPTURE=layout: with
 * CT_CAPTURE_LAYOUT. */
#include <cotangent.h>
#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS = 30, WARM_UP = 8, INPUTS = 6 };
static ct_device device;
static char **parts; /* of the names that are wanted */
static bool processor_time;

static double now(void) {
    struct timespec t;
    clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_time(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static bool wanted(const char *name) {
    for (char **part = parts; *part; part++)
        if (strstr(name, *part)) return true;
    return !*parts;
}

/* ---- Events, on a stream of the program's that the library is told to use; functions of the driver, found by name ---- */

static int (*cuCtxSetCurrent)(void *context);
static int (*cuDevicePrimaryCtxRetain)(void **context, int device);
static int (*cuStreamCreate)(void **stream, unsigned flags);
static int (*cuEventCreate)(void **event, unsigned flags);
static int (*cuEventRecord)(void *event, void *stream);
static int (*cuEventSynchronize)(void *event);
static int (*cuEventElapsedTime)(float *ms, void *from, void *to);
static void *stream, *events[2];

static bool make_events(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    bool ok = library != NULL;
#define FIND(name) ok = ok && (*(void **)&name = dlsym(library, #name)) != NULL
    FIND(cuCtxSetCurrent);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuStreamCreate);
    FIND(cuEventCreate);
    FIND(cuEventRecord);
    FIND(cuEventSynchronize);
    FIND(cuEventElapsedTime);
#undef FIND
    return ok && cuDevicePrimaryCtxRetain(&context, device.index) == 0 && cuCtxSetCurrent(context) == 0 &&
           cuStreamCreate(&stream, 1) == 0 && cuEventCreate(&events[0], 0) == 0 && cuEventCreate(&events[1], 0) == 0 &&
           ct_set_stream(device, ct_stream_wrap(device, stream));
}

static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, by_time);
    return times[n / 2];
}

static void print_row(const char *name, double ms, double wall) {
    ct_memory memory = {.size = sizeof memory};
    ct_memory_stats(device, &memory);
    if (ct_ok()) {
        printf("{\"name\": \"%s\", \"ms\": %.5f, \"wall_ms\": %.5f, \"peak_mib\": %.1f}\n", name, ms, wall,
               (double)memory.peak / (1 << 20));
    } else {
        printf("{\"name\": \"%s\", \"error\": \"%s\"}\n", name, ct_error());
        ct_error_clear();
    }
    fflush(stdout);
}

/* calls of f, then one wait for all; in milliseconds for each. */
static double batch(void (*f)(void *context), void *context, int calls) {
    const double start = now();
    for (int i = 0; i < calls && ct_ok(); i++)
        ct_scope {
            f(context);
        }
    ct_synchronize(device);
    return (now() - start) / calls;
}

/* A device that was idle takes its time to raise its clocks. */
static void warm_up(void (*f)(void *context), void *context) {
    for (const double began = now(); now() - began < 700 && ct_ok();) batch(f, context, 2);
}

static void report_by_events(const char *name, void (*f)(void *context), void *context) {
    static bool warm;
    double times[REPETITIONS], walls[REPETITIONS];
    int n = 0;
    if (!warm) warm_up(f, context);
    warm = true;
    const double began = now();
    for (int i = -WARM_UP; i < REPETITIONS && ct_ok(); i++) {
        ct_synchronize(device);
        const double start = now();
        float ms = 0;
        cuEventRecord(events[0], stream);
        ct_scope {
            f(context);
        }
        cuEventRecord(events[1], stream);
        cuEventSynchronize(events[1]);
        const double wall = now() - start;
        cuEventElapsedTime(&ms, events[0], events[1]);
        if (i >= 0) walls[n] = wall, times[n++] = ms;
        if (n >= 5 && now() - began > 1e3) break; /* a slow row says as much with fewer */
    }
    print_row(name, median(times, n), median(walls, n));
}

static void report_by_clock(const char *name, void (*f)(void *context), void *context) {
    double times[REPETITIONS];
    int n = 0;
    warm_up(f, context);
    const double began = now(), once = batch(f, context, 2);
    const int calls = once > 20 ? 1 : once < 0.2 ? 100 : (int)(20 / once); /* some 20 ms */
    do times[n++] = batch(f, context, calls);
    while (n < REPETITIONS && ct_ok() && (n < 5 || now() - began < 1e3));
    const double middle = median(times, n);
    print_row(name, middle, middle);
}

static void report(const char *name, void (*f)(void *context), void *context) {
    ct_memory_trim(device);
    ct_memory_reset_peak(device);
    if (stream) report_by_events(name, f, context);
    else report_by_clock(name, f, context);
}

/* ---- Captured work ---- */

typedef struct captured {
    void (*f)(void *context);
    void *context;
    ct_graph *graph;
} captured;

static bool run_captured(void *context) {
    const captured *c = context;
    c->f(c->context);
    return ct_ok();
}

static void replay(void *context) { ct_replay(((const captured *)context)->graph); }

/* As report, of replays where they are asked for. */
static void report_step(const char *name, void (*f)(void *context), void *context) {
    const char *asked = getenv("BENCH_CAPTURE");
    captured c = {.f = f, .context = context};
    char longer[128];
    const bool layout = asked && strcmp(asked, "layout") == 0;
    if (!asked || (asked[0] != '1' && !layout)) {
        report(name, f, context);
        return;
    }
    ct_memory_trim(device);
    ct_memory_reset_peak(device);
    const double began = now();
    c.graph = ct_capture(run_captured, &c, layout ? CT_CAPTURE_LAYOUT : 0);
    if (c.graph) ct_replay(c.graph);
    ct_synchronize(device);
    ct_graph_info info = {.size = sizeof info};
    if (c.graph) ct_graph_describe(c.graph, &info);
    fprintf(stderr, "%s: %lld records, %.1f MiB planned, captured and replayed once in %.0f ms\n", name,
            (long long)info.records, (double)info.planned_bytes / (1 << 20), now() - began);
    snprintf(longer, sizeof longer, "%s/captured%s", name, layout ? "-layout" : "");
    report(longer, replay, &c);
    ct_graph_free(c.graph);
}

/* ---- One op, or a few ---- */

typedef struct work {
    ct_tensor *xs[INPUTS]; /* whose gradients are wanted */
    int n;
    ct_tensor *others[INPUTS], *cotangent;
    ct_tensor *(*forward)(const struct work *w);
    const struct convolution *convolution;
    bool channels_last, causal;
} work;

static void run_forward(void *context) {
    const work *w = context;
    w->forward(w);
}

static void run_gradients(void *context) {
    const work *w = context;
    ct_tensor *grads[INPUTS], *y = w->forward(w);
    if (y) ct_grad(&y, 1, w->cotangent ? &w->cotangent : NULL, w->xs, w->n, grads, 0);
}

static void forward_row(const char *name, work w) {
    if (wanted(name)) report(name, run_forward, &w);
}

static void gradient_row(const char *name, work w) {
    if (!wanted(name)) return;
    for (int i = 0; i < w.n; i++) ct_set_requires_grad(w.xs[i], true);
    ct_no_grad {
        ct_tensor *y = w.forward(&w);
        if (y && ct_numel(y) > 1) w.cotangent = ct_randn(ct_shape(y), .dtype = ct_dtype_of(y));
    }
    report(name, run_gradients, &w);
    for (int i = 0; i < w.n; i++) ct_set_requires_grad(w.xs[i], false);
}

#define FORWARD(name, expression)               \
    static ct_tensor *name(const work *w) {     \
        ct_tensor *x = w->xs[0], *y = w->xs[1]; \
        (void)x, (void)y;                       \
        return expression;                      \
    }
FORWARD(product, ct_matmul(x, y))
FORWARD(copied, ct_clone(x))
FORWARD(exponential, ct_exp(x))
FORWARD(gelu, ct_gelu(x))
FORWARD(silu, ct_silu(x))
FORWARD(sigmoid, ct_sigmoid(x))
FORWARD(hyperbolic, ct_tanh(x))
FORWARD(added, ct_add(x, y))
FORWARD(chain, ct_add(ct_mul_s(ct_tanh(ct_add(ct_mul(x, y), x)), 0.5), y))
FORWARD(sum_all, ct_sum(x))
FORWARD(sum_0, ct_sum(x, .axes = CT_DIMS(0)))
FORWARD(sum_1, ct_sum(x, .axes = CT_DIMS(1)))
FORWARD(transposed, ct_contiguous(ct_t(x)))
FORWARD(scanned, ct_cumsum(x, 1))
FORWARD(sorted, ct_sort(x, 1))
FORWARD(softmax, ct_softmax(x, -1))
FORWARD(layer_norm, ct_layer_norm(x, CT_DIMS(4096), .weight = y, .bias = w->xs[2]))
FORWARD(batch_norm, ct_batch_norm(x, .weight = y, .bias = w->xs[2], .training = true))
FORWARD(group_norm, ct_group_norm(x, 32, .weight = y, .bias = w->xs[2]))
FORWARD(max_pool, ct_max_pool2d(x, CT_DIMS(3, 3), .stride = 2, .pad = 1))
FORWARD(avg_pool, ct_avg_pool2d(x, CT_DIMS(2, 2)))
FORWARD(global_pool, ct_adaptive_avg_pool2d(x, CT_DIMS(1, 1)))
FORWARD(embedding, ct_embedding(x, w->others[0]))
FORWARD(scatter_add, ct_scatter_add(x, 0, w->others[0], y))
FORWARD(cross_entropy, ct_cross_entropy_loss(x, w->others[0]))
FORWARD(attention, ct_scaled_dot_product_attention(x, y, w->xs[2], .causal = w->causal))
FORWARD(transposed_convolution, ct_conv_transpose2d(x, y, .stride = 2, .pad = 1))
FORWARD(deformable, ct_deform_conv2d(x, w->xs[2], y, .bias = w->others[0], .pad = 1))
FORWARD(lstm, ct_sum(ct_lstm(x, w->xs + 1, 4)))
FORWARD(gru, ct_sum(ct_gru(x, w->xs + 1, 4)))
FORWARD(rnn, ct_sum(ct_rnn(x, w->xs + 1, 4)))

/* The chain, whose result is there when it is over. */
typedef struct kept_chain {
    work work;
    ct_tensor *y;
} kept_chain;

static void run_chain(void *context) {
    kept_chain *k = context;
    ct_drop(k->y);
    k->y = chain(&k->work);
    if (k->y) ct_keep(k->y);
}

static void products(void) {
    static const struct {
        const char *name;
        ct_dtype dtype;
    } kinds[] = {{"f32", CT_F32}, {"bf16", CT_BF16}, {"f16", CT_F16}};
    const char *fast = getenv("CT_TF32");
    for (int n = 512; n <= 8192; n *= n == 512 ? 4 : 2)
        for (int k = 0; k < 3; k++)
            ct_scope {
                char name[64];
                const char *kind = kinds[k].dtype != CT_F32 ? kinds[k].name
                                   : fast && fast[0] == '1' ? "f32-tf32"
                                                            : "f32-ieee";
                snprintf(name, sizeof name, "matmul/%d/%s", n, kind);
                if (!wanted(name)) continue;
                ct_tensor *x = ct_cast(ct_randn(CT_DIMS(n, n)), kinds[k].dtype);
                ct_tensor *y = ct_cast(ct_randn(CT_DIMS(n, n)), kinds[k].dtype);
                forward_row(name, (work){.xs = {x, y}, .forward = product});
            }
}

/* ---- Convolutions ---- */

typedef struct convolution {
    const char *name;
    int axes;
    int64_t images, in, out, side, kernel, stride, pad, dilation, groups;
} convolution;

static ct_tensor *convolve(const work *w) {
    const convolution *c = w->convolution;
    ct_tensor *x = w->xs[0], *k = w->xs[1], *b = w->xs[2];
#define OPTIONS                                                                                  \
    .bias = b, .stride = c->stride, .pad = c->pad, .dilation = c->dilation, .groups = c->groups, \
    .channels_last = w->channels_last
    return c->axes == 1 ? ct_conv1d(x, k, OPTIONS) : c->axes == 2 ? ct_conv2d(x, k, OPTIONS) : ct_conv3d(x, k, OPTIONS);
#undef OPTIONS
}

static ct_dims conv_shape(const convolution *c, bool channels_last) {
    ct_dims d = {.n = 0};
    d.d[d.n++] = c->images;
    if (!channels_last) d.d[d.n++] = c->in;
    if (c->axes == 3) d.d[d.n++] = 16;
    d.d[d.n++] = c->side;
    if (c->axes > 1) d.d[d.n++] = c->side;
    if (channels_last) d.d[d.n++] = c->in;
    return d;
}

static ct_dims conv_weight(const convolution *c, bool channels_last) {
    ct_dims d = {.n = 0};
    if (!channels_last) d.d[d.n++] = c->out, d.d[d.n++] = c->in / c->groups;
    for (int i = 0; i < c->axes; i++) d.d[d.n++] = c->kernel;
    if (channels_last) d.d[d.n++] = c->in / c->groups, d.d[d.n++] = c->out;
    return d;
}

static void convolutions(void) {
    static const convolution all[] = {
        {"r50-3x3-64-56", 2, 64, 64, 64, 56, 3, 1, 1, 1, 1},
        {"r50-3x3-256-14", 2, 64, 256, 256, 14, 3, 1, 1, 1, 1},
        {"r50-1x1-256-64-56", 2, 64, 256, 64, 56, 1, 1, 0, 1, 1},
        {"stem-7x7s2-224", 2, 64, 3, 64, 224, 7, 2, 3, 1, 1},
        {"depthwise-3x3-128-56", 2, 64, 128, 128, 56, 3, 1, 1, 1, 128},
        {"dilated2-64-56", 2, 64, 64, 64, 56, 3, 1, 2, 2, 1},
        {"grouped32-256-14", 2, 64, 256, 256, 14, 3, 1, 1, 1, 32},
        {"conv1d-64-128-k9-4096", 1, 32, 64, 128, 4096, 9, 1, 4, 1, 1},
        {"3x3-64-56-N16", 2, 16, 64, 64, 56, 3, 1, 1, 1, 1},
        {"conv3d-16-32-3-56", 3, 8, 16, 32, 56, 3, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int half = 0; half < 2; half++)
            for (int last = 0; last < (all[i].axes > 1 ? 2 : 1); last++)
                ct_scope {
                    char name[2][96];
                    for (int back = 0; back < 2; back++)
                        snprintf(name[back], sizeof name[back], "conv/%s/%s%s/%s", all[i].name, half ? "bf16" : "tf32",
                                 last ? "-cl" : "", back ? "fwdbwd" : "fwd");
                    if (!wanted(name[0]) && !wanted(name[1])) continue;
                    const ct_dtype dtype = half ? CT_BF16 : CT_F32;
                    work w = {.forward = convolve, .convolution = &all[i], .channels_last = last, .n = 3};
                    w.xs[0] = ct_randn(conv_shape(&all[i], last), .dtype = dtype);
                    w.xs[1] = ct_randn(conv_weight(&all[i], last), .dtype = dtype);
                    w.xs[2] = ct_randn(CT_DIMS(all[i].out), .dtype = dtype);
                    forward_row(name[0], w);
                    gradient_row(name[1], w);
                }
    ct_scope {
        if (wanted("conv/transpose-64-32-k4s2-28/tf32/fwdbwd"))
            gradient_row("conv/transpose-64-32-k4s2-28/tf32/fwdbwd",
                         (work){.xs = {ct_randn(CT_DIMS(64, 64, 28, 28)), ct_randn(CT_DIMS(64, 32, 4, 4))},
                                .n = 2,
                                .forward = transposed_convolution});
        if (wanted("conv/deformable-64-56-N16/f32/fwdbwd"))
            gradient_row("conv/deformable-64-56-N16/f32/fwdbwd",
                         (work){.xs = {ct_randn(CT_DIMS(16, 64, 56, 56)), ct_randn(CT_DIMS(64, 64, 3, 3)),
                                       ct_randn(CT_DIMS(16, 18, 56, 56))},
                                .n = 3,
                                .others = {ct_randn(CT_DIMS(64))},
                                .forward = deformable});
    }
}

/* ---- Memory-bound work ---- */

static void elementwise(void) {
    ct_scope {
        const int64_t many = 1 << 26;
        ct_tensor *x = ct_randn(CT_DIMS(many)), *y = ct_randn(CT_DIMS(many));
        forward_row("limit/copy-256MiB", (work){.xs = {x}, .forward = copied});
        forward_row("ew/exp/64M", (work){.xs = {x}, .forward = exponential});
        forward_row("ew/gelu/64M", (work){.xs = {x}, .forward = gelu});
        forward_row("ew/silu/64M", (work){.xs = {x}, .forward = silu});
        forward_row("ew/sigmoid/64M", (work){.xs = {x}, .forward = sigmoid});
        forward_row("ew/tanh/64M", (work){.xs = {x}, .forward = hyperbolic});
        forward_row("ew/add/64M", (work){.xs = {x, y}, .forward = added});
        gradient_row("ew/gelu/64M/fwdbwd", (work){.xs = {x}, .n = 1, .forward = gelu});
        kept_chain five = {.work = {.xs = {x, y}}};
        if (wanted("ew/chain5/64M/eager")) report_step("ew/chain5/64M/eager", run_chain, &five);
        ct_drop(five.y);
        ct_tensor *square = ct_reshape(x, CT_DIMS(8192, 8192)), *row = ct_randn(CT_DIMS(8192));
        forward_row("ew/add-broadcast/8192x8192", (work){.xs = {square, row}, .forward = added});
        forward_row("reduce/sum-axisNone/8192x8192", (work){.xs = {square}, .forward = sum_all});
        forward_row("reduce/sum-axis0/8192x8192", (work){.xs = {square}, .forward = sum_0});
        forward_row("reduce/sum-axis1/8192x8192", (work){.xs = {square}, .forward = sum_1});
        forward_row("move/transpose-8192x8192", (work){.xs = {square}, .forward = transposed});
        forward_row("scan/cumsum-8192x8192", (work){.xs = {square}, .forward = scanned});
        forward_row("sort/8192x8192", (work){.xs = {square}, .forward = sorted});
    }
}

static void norms(void) {
    ct_scope {
        ct_tensor *rows = ct_randn(CT_DIMS(16384, 4096)), *weight = ct_randn(CT_DIMS(4096)),
                  *bias = ct_randn(CT_DIMS(4096));
        gradient_row("softmax/16384x4096/fwdbwd", (work){.xs = {rows}, .n = 1, .forward = softmax});
        gradient_row("layer_norm/16384x4096/fwdbwd", (work){.xs = {rows, weight, bias}, .n = 3, .forward = layer_norm});
    }
    ct_scope {
        ct_tensor *images = ct_randn(CT_DIMS(64, 256, 56, 56)), *weight = ct_randn(CT_DIMS(256)),
                  *bias = ct_randn(CT_DIMS(256));
        gradient_row("batch_norm/64x256x56x56/fwdbwd",
                     (work){.xs = {images, weight, bias}, .n = 3, .forward = batch_norm});
        gradient_row("group_norm32/64x256x56x56/fwdbwd",
                     (work){.xs = {images, weight, bias}, .n = 3, .forward = group_norm});
    }
    ct_scope {
        ct_tensor *images = ct_randn(CT_DIMS(64, 64, 112, 112)), *small = ct_randn(CT_DIMS(64, 512, 7, 7));
        gradient_row("maxpool3s2/64x64x112x112/fwdbwd", (work){.xs = {images}, .n = 1, .forward = max_pool});
        gradient_row("avgpool2/64x64x112x112/fwdbwd", (work){.xs = {images}, .n = 1, .forward = avg_pool});
        gradient_row("adaptive_avg/64x512x7x7-1/fwdbwd", (work){.xs = {small}, .n = 1, .forward = global_pool});
    }
}

static void indices(void) {
    ct_scope {
        gradient_row("embedding/50304x768-8192/fwdbwd", (work){.xs = {ct_randn(CT_DIMS(50304, 768))},
                                                               .n = 1,
                                                               .others = {ct_randint(CT_DIMS(8, 1024), 0, 50304)},
                                                               .forward = embedding});
    }
    ct_scope {
        const int64_t into = 1 << 20, from = 1 << 22;
        ct_tensor *x = ct_zeros(CT_DIMS(into, 16)), *y = ct_randn(CT_DIMS(from, 16)),
                  *rows = ct_expand(ct_randint(CT_DIMS(from, 1), 0, into), CT_DIMS(from, 16));
        forward_row("scatter_add/4Mx16-rows", (work){.xs = {x, y}, .others = {rows}, .forward = scatter_add});
        forward_row("scatter_add/4Mx16", (work){.xs = {x, y}, .others = {ct_contiguous(rows)}, .forward = scatter_add});
    }
    if (wanted("cross_entropy/8192x50304/fwdbwd"))
        ct_scope {
            gradient_row("cross_entropy/8192x50304/fwdbwd",
                         (work){.xs = {ct_randn(CT_DIMS(8192, 50304), .dtype = CT_BF16)},
                                .n = 1,
                                .others = {ct_randint(CT_DIMS(8192), 0, 50304)},
                                .forward = cross_entropy});
        }
}

static void sequences(void) {
    ct_scope {
        work w = {.n = 3, .forward = attention};
        for (int i = 0; i < 3; i++) w.xs[i] = ct_randn(CT_DIMS(8, 16, 2048, 64), .dtype = CT_BF16);
        gradient_row("sdpa/8x16x2048x64/bf16/fwdbwd", w);
        w.causal = true;
        gradient_row("sdpa-causal/8x16x2048x64/bf16/fwdbwd", w);
    }
    static const struct {
        const char *name;
        int64_t gates;
        ct_tensor *(*forward)(const work *w);
    } kinds[] = {{"lstm/T128-B64-H512/fwdbwd", 4, lstm},
                 {"gru/T128-B64-H512/fwdbwd", 3, gru},
                 {"rnn/T128-B64-H512/fwdbwd", 1, rnn}};
    for (int k = 0; k < 3; k++)
        ct_scope {
            const int64_t h = 512, rows = kinds[k].gates * h;
            work w = {.n = 5, .forward = kinds[k].forward};
            w.xs[0] = ct_randn(CT_DIMS(128, 64, h));
            w.xs[1] = ct_mul_s(ct_randn(CT_DIMS(rows, h)), 0.03);
            w.xs[2] = ct_mul_s(ct_randn(CT_DIMS(rows, h)), 0.03);
            w.xs[3] = ct_mul_s(ct_randn(CT_DIMS(rows)), 0.03);
            w.xs[4] = ct_mul_s(ct_randn(CT_DIMS(rows)), 0.03);
            gradient_row(kinds[k].name, w);
        }
}

static void many_adds(void *context) {
    ct_tensor *a = context, *y = a;
    for (int i = 0; i < 1000; i++) y = ct_add(y, a);
    ct_backward(ct_sum(y));
}

static void overhead(void) {
    const char *name = "overhead/1000-adds-of-4/fwdbwd";
    if (wanted(name))
        ct_scope {
            report(name, many_adds, ct_set_requires_grad(ct_ones(CT_DIMS(4)), true));
        }
}

/* ---- Training steps ---- */

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target;
    ct_dtype dtype;
} training;

static void step(void *context) {
    const training *t = context;
    ct_tensor *loss = NULL;
    ct_autocast(t->dtype) {
        ct_tensor *y = ct_forward(t->net, t->x); /* [..., classes] */
        loss = ct_cross_entropy_loss(y ? ct_reshape(y, CT_DIMS(-1, ct_dim(y, -1))) : NULL, t->target);
    }
    ct_backward(loss);
    ct_optim_step(t->optim);
    ct_optim_zero_grad(t->optim);
}

enum { SGD, ADAM, ADAMW };
static void train_row(const char *name, ct_module *net, int optim, training t) {
    t.net = net;
    if (net && wanted(name) && ct_module_to_device(net, device)) {
        t.optim = optim == SGD    ? ct_sgd(net, .lr = 0.01, .momentum = 0.9)
                  : optim == ADAM ? ct_adam(net, .lr = 1e-3)
                                  : ct_adamw(net, .lr = 3e-4);
        report_step(name, step, &t);
        ct_optim_free(t.optim);
    }
    ct_module_free(net);
}

static ct_tensor *classes(int64_t n, int64_t of) { return ct_randint(CT_DIMS(n), 0, of); }

static void trainings(void) {
    ct_scope {
        train_row("train/mlp-784-512-512-10/B64/f32", ct_nn_mlp(CT_DIMS(784, 512, 512, 10), CT_ACT_RELU), SGD,
                  (training){.x = ct_randn(CT_DIMS(64, 784)), .target = classes(64, 10), .dtype = CT_F32});
        for (int64_t n = 64; n <= 1024; n *= 16) {
            char name[64];
            snprintf(name, sizeof name, "train/mnist-cnn/B%d/tf32", (int)n);
            train_row(name,
                      ct_nn_sequential(ct_nn_conv2d(1, 32, 3, .activation = CT_ACT_RELU),
                                       ct_nn_conv2d(32, 64, 3, .activation = CT_ACT_RELU), ct_nn_max_pool2d(2),
                                       ct_nn_flatten(), ct_nn_linear(9216, 128, .activation = CT_ACT_RELU),
                                       ct_nn_linear(128, 10)),
                      ADAM,
                      (training){.x = ct_randn(CT_DIMS(n, 1, 28, 28)), .target = classes(n, 10), .dtype = CT_F32});
        }
    }
    for (int half = 0; half < 2; half++)
        for (int last = 0; last < 2; last++)
            ct_scope {
                char name[64];
                snprintf(name, sizeof name, "train/cifar-resnet18/B256/%s%s", half ? "amp-bf16" : "tf32",
                         last ? "-cl" : "");
                if (wanted(name))
                    train_row(name, ct_nn_resnet(18, .channels_last = last), SGD,
                              (training){.x = ct_randn(CT_DIMS(256, 3, 32, 32)),
                                         .target = classes(256, 10),
                                         .dtype = half ? CT_BF16 : CT_F32});
            }
    for (int half = 0; half < 2; half++)
        ct_scope {
            const char *name = half ? "train/resnet50-224/B128/amp-bf16-cl" : "train/resnet50-224/B128/tf32-cl";
            if (wanted(name))
                train_row(name, ct_nn_resnet(50, .imagenet = true, .channels_last = true), SGD,
                          (training){.x = ct_randn(CT_DIMS(128, 3, 224, 224)),
                                     .target = classes(128, 1000),
                                     .dtype = half ? CT_BF16 : CT_F32});
        }
    if (wanted("train/gpt2-124M/B8-T1024/amp-bf16"))
        ct_scope {
            train_row("train/gpt2-124M/B8-T1024/amp-bf16",
                      ct_nn_gpt(50304, .context = 1024, .dim = 768, .layers = 12, .heads = 12, .tied = true), ADAMW,
                      (training){.x = ct_randint(CT_DIMS(8, 1024), 0, 50304),
                                 .target = classes(8 * 1024, 50304),
                                 .dtype = CT_BF16});
        }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        printf("usage: %s DEVICE [PART OF A NAME]...\n", argv[0]);
        return 2;
    }
    parts = argv + 2;
    processor_time = getenv("BENCH_CPU") != NULL;
    if (!ct_device_parse(argv[1], &device) || !ct_set_device(device)) {
        printf("skipped: %s\n", ct_error());
        return 0;
    }
    if (strncmp(argv[1], "cuda", 4) == 0 && !getenv("BENCH_WALL") && !make_events()) {
        printf("no events of the driver's: %s\n", ct_error());
        return 1;
    }
    products();
    elementwise();
    norms();
    indices();
    sequences();
    overhead();
    convolutions();
    trainings();
    return ct_ok() ? 0 : 1;
}

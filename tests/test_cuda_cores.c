/* Gradients of convolutions on Tensor Cores (ops/conv/cuda/cores.cu), compiled for the host and run there lane by lane, against plain loops: random
 * geometry, layouts, strides and addresses. Numbers are small integers, of which TF32 and every order of sums have all digits, so that results are
 * the same. What reads shared memory that nobody has written finds NaN. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/files.h"
#include "tests/harness.h"

#ifdef CT_TEST_CORES
#include "backends/cuda/cuda.h"
#include "ops/conv/cuda/cores.h"

/* Of the module, which is not linked here. */
size_t ct_cuda_dtype_size(ct_dtype dtype) { return dtype == CT_F64 ? 8 : 4; }
int64_t ct_cuda_count(const ct_view *view) {
    int64_t n = 1;
    for (int d = 0; d < view->ndim; d++) n *= view->dims[d];
    return n;
}

enum { SHARED = 232448, GUARD = 64 };
typedef void kernel(const void *arguments);
typedef struct kernels {
    int (*run)(kernel *, const void *arguments, unsigned blocks, unsigned threads, unsigned shared);
    void (*watch)(bool on, bool report, long *transactions, long *conflicts);
    kernel *parts[3], *sum[3], *input[3];
} kernels;

static bool compile(kernels *k) {
    static const char *const kinds[] = {"weight_parts", "weight_sum", "input"};
    FILE *file = fopen(own_file("cores.cpp"), "w");
    if (!CHECK(file != NULL)) return false;
    fprintf(file, "#define __CUDACC__\n#include \"tests/cuda/warps.h\"\n#include \"ops/conv/cuda/cores.cu\"\n");
    for (int i = 0; i < 9; i++)
        fprintf(file, "extern \"C\" void call_%s_%d(const void *a) { cores_%s_%d(*(const ct_cuda_cores *)a); }\n",
                kinds[i / 3], 16 << i % 3, kinds[i / 3], 16 << i % 3);
    fclose(file);
    char command[2048];
    snprintf(command, sizeof command,
             "c++ -std=c++17 -O1 -ffp-contract=off -w -shared -fPIC -I%s/tests/cuda/host -I%s -I%s/include "
             "-I%s/include -o %s %s",
             CT_TEST_SOURCE, CT_TEST_SOURCE, CT_TEST_SOURCE, CT_TEST_GENERATED, own_file("cores.so"),
             own_file("cores.cpp"));
    if (!CHECK(system(command) == 0)) return false;
    void *library = dlopen(own_file("cores.so"), RTLD_NOW);
    if (!CHECK(library != NULL)) return false;
    *(void **)&k->run = dlsym(library, "ct_run_blocks"), *(void **)&k->watch = dlsym(library, "ct_watch_banks");
    for (int i = 0; i < 9; i++) {
        char name[64];
        kernel **slot = i / 3 == 0 ? &k->parts[i % 3] : i / 3 == 1 ? &k->sum[i % 3] : &k->input[i % 3];
        snprintf(name, sizeof name, "call_%s_%d", kinds[i / 3], 16 << i % 3);
        *(void **)slot = dlsym(library, name);
        if (!CHECK(*slot != NULL)) return false;
    }
    return CHECK(k->run != NULL && k->watch != NULL);
}

/* ---- Problems ---- */

static unsigned seed;
static int below(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)n);
}

typedef struct config {
    int batch, groups, in_each, out_each, in[2], kernel[2], stride[2], dilation[2], before[2], after[2];
    int activation;
    bool last, bias, shifted, apart;
} config;

static int out_of(const config *c, int d) {
    return (c->in[d] + c->before[d] + c->after[d] - c->dilation[d] * (c->kernel[d] - 1) - 1) / c->stride[d] + 1;
}

typedef struct operand {
    ct_view view;
    float *memory;
    size_t n;
} operand;

/* Axes in the order [0, 1, 2, 3], or with channels last; apart: rows have gaps. */
static operand make(const int64_t *dims, bool last, bool filter, bool shifted, bool apart) {
    static const int first_order[] = {3, 2, 1, 0}, last_order[] = {1, 3, 2, 0}, filter_order[] = {0, 1, 3, 2};
    const int *order = !last ? first_order : filter ? filter_order : last_order;
    operand o = {.view = {.dtype = CT_F32, .ndim = 4}};
    int64_t stride = 1;
    for (int i = 0; i < 4; i++) {
        const int d = order[i];
        o.view.dims[d] = dims[d], o.view.strides[d] = stride;
        stride *= dims[d] + (apart && i == 1 ? 3 : 0);
    }
    o.n = (size_t)stride + 2 * GUARD;
    o.memory = aligned_alloc(128, (o.n * sizeof(float) + 127) / 128 * 128);
    if (!CHECK(o.memory != NULL)) abort();
    for (size_t i = 0; i < o.n; i++) o.memory[i] = NAN; /* where nothing is */
    o.view.buffer = o.memory, o.view.offset = GUARD - (shifted ? 1 + below(3) : 0);
    return o;
}

static float *at(const operand *o, int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t *s = o->view.strides;
    return o->memory + o->view.offset + n * s[0] + c * s[1] + h * s[2] + w * s[3];
}
static void fill(const operand *o, int from, int to) {
    const int64_t *d = o->view.dims;
    for (int64_t i = 0; i < d[0] * d[1] * d[2] * d[3]; i++)
        *at(o, i / (d[1] * d[2] * d[3]), i / (d[2] * d[3]) % d[1], i / d[3] % d[2], i % d[3]) =
            (float)(from + below(to - from));
}

/* With g already through the activation. */
static void plain(const config *c, const operand *x, const operand *w, const operand *g, const operand *dx,
                  const operand *dw, float *dbias) {
    const int outs = c->groups * c->out_each;
    for (int n = 0; n < c->batch; n++)
        for (int o = 0; o < outs; o++)
            for (int h = 0; h < out_of(c, 0); h++)
                for (int v = 0; v < out_of(c, 1); v++) {
                    const float y = *at(g, n, o, h, v);
                    dbias[o] += y;
                    for (int i = 0; i < c->in_each; i++)
                        for (int t = 0; t < c->kernel[0] * c->kernel[1]; t++) {
                            const int ty = t / c->kernel[1], tx = t % c->kernel[1],
                                      channel = o / c->out_each * c->in_each + i;
                            const int row = h * c->stride[0] + ty * c->dilation[0] - c->before[0],
                                      column = v * c->stride[1] + tx * c->dilation[1] - c->before[1];
                            if (row < 0 || row >= c->in[0] || column < 0 || column >= c->in[1]) continue;
                            *at(dw, o, i, ty, tx) += y * *at(x, n, channel, row, column);
                            *at(dx, n, channel, row, column) += y * *at(w, o, i, ty, tx);
                        }
                }
}

static bool same(const config *c, const char *what, const operand *made, const operand *wanted) {
    const int64_t *d = made->view.dims;
    for (int64_t i = 0; i < d[0] * d[1] * d[2] * d[3]; i++) {
        const int64_t k[] = {i / (d[1] * d[2] * d[3]), i / (d[2] * d[3]) % d[1], i / d[3] % d[2], i % d[3]};
        const float a = *at(made, k[0], k[1], k[2], k[3]), b = *at(wanted, k[0], k[1], k[2], k[3]);
        if (a == b) continue;
        fprintf(stderr,
                "%s[%lld,%lld,%lld,%lld] is %g, not %g: %dx(%d groups of %d->%d) %dx%d kernel %dx%d strides %d,%d "
                "dilations "
                "%d,%d before %d,%d after %d,%d%s%s%s activation %d\n",
                what, (long long)k[0], (long long)k[1], (long long)k[2], (long long)k[3], a, b, c->batch, c->groups,
                c->in_each, c->out_each, c->in[0], c->in[1], c->kernel[0], c->kernel[1], c->stride[0], c->stride[1],
                c->dilation[0], c->dilation[1], c->before[0], c->before[1], c->after[0], c->after[1],
                c->last ? " last" : "", c->shifted ? " shifted" : "", c->apart ? " apart" : "", c->activation);
        return CHECK(false);
    }
    return true;
}

static int index_of(int rows) { return rows == 64 ? 2 : rows == 32; }

/* Whether not more than one of `one_of` transactions with shared memory was because of bank conflicts, since the last time. CORES_BANKS=1 in the
 * environment shows them by lines of cores.cu. */
static bool few_conflicts(const kernels *k, const char *what, int one_of) {
    long transactions, conflicts;
    const bool shown = getenv("CORES_BANKS") != NULL;
    k->watch(true, shown, &transactions, &conflicts);
    if (shown) fprintf(stderr, "%s: %ld transactions, %ld conflicts\n", what, transactions, conflicts);
    return transactions && conflicts * one_of <= transactions;
}

/* How many of the two were computed. */
static int check(const kernels *k, const config *c, unsigned shared) {
    const int ins = c->groups * c->in_each, outs = c->groups * c->out_each;
    const int64_t x_dims[] = {c->batch, ins, c->in[0], c->in[1]},
                  g_dims[] = {c->batch, outs, out_of(c, 0), out_of(c, 1)},
                  w_dims[] = {outs, c->in_each, c->kernel[0], c->kernel[1]};
    operand x = make(x_dims, c->last, false, c->shifted, c->apart), w = make(w_dims, c->last, true, c->shifted, false),
            g = make(g_dims, c->last, false, c->shifted, c->apart),
            y = make(g_dims, c->last, false, c->shifted, c->apart),
            dx = make(x_dims, c->last, false, c->shifted, false), dw = make(w_dims, c->last, true, false, false),
            wanted_dx = make(x_dims, false, false, false, false), wanted_dw = make(w_dims, false, false, false, false);
    operand *all[] = {&x, &w, &g, &y, &dx, &dw, &wanted_dx, &wanted_dw};
    for (int i = 0; i < 8; i++) fill(all[i], i < 4 ? -2 : 0, i < 4 ? 3 : 1);
    y.view.offset = g.view.offset; /* as the conv's own result lies: strides alike */
    fill(&y, -1, 3);
    float *dbias = calloc((size_t)outs, sizeof *dbias), *wanted_dbias = calloc((size_t)outs, sizeof *dbias),
          *added = calloc((size_t)ins, sizeof *added);
    ct_view bias = {.buffer = dbias, .dtype = CT_F32, .ndim = 1, .dims = {outs}, .strides = {1}};
    ct_cores_problem p = {.x = &x.view,
                          .w = &dw.view,
                          .g = &g.view,
                          .active = c->activation ? &y.view : NULL,
                          .bias = c->bias ? &bias : NULL,
                          .activation = c->activation};
    for (int d = 0; d < 2; d++) p.stride[d] = c->stride[d], p.dilation[d] = c->dilation[d], p.before[d] = c->before[d];
    int computed = 0;
    ct_cores_plan plan;
    const char *why = ct_cores_plan_weight(&p, shared, &plan);
    if (!why) {
        float *scratch = malloc(plan.scratch);
        memset(scratch, 0xff, plan.scratch);
        plan.a.partial = scratch, plan.a.dbias_partial = scratch + plan.partial / sizeof(float);
        CHECK(plan.shared <= shared);
        CHECK(k->run(k->parts[index_of(plan.rows)], &plan.a, plan.blocks, CT_CORES_THREADS, plan.shared) == 0);
        CHECK(k->run(k->sum[index_of(plan.rows)], &plan.a, plan.sum_blocks, CT_CORES_SUM_THREADS, 0) == 0);
        free(scratch);
        computed++;
    }
    const char *why_input;
    ct_view of_input = {.buffer = added, .dtype = CT_F32, .ndim = 1, .dims = {ins}, .strides = {1}};
    for (int i = 0; i < ins; i++) added[i] = (float)below(5);
    p.x = &dx.view, p.w = &w.view, p.bias = c->bias ? &of_input : NULL;
    why_input = ct_cores_plan_input(&p, shared, &plan);
    if (!why_input) {
        CHECK(plan.shared <= shared);
        CHECK(k->run(k->input[index_of(plan.rows)], &plan.a, plan.blocks, CT_CORES_THREADS, plan.shared) == 0);
        computed++;
    }
    for (int64_t i = 0; c->activation && i < g_dims[0] * g_dims[1] * g_dims[2] * g_dims[3]; i++) {
        const int64_t n = i / (g_dims[1] * g_dims[2] * g_dims[3]), o = i / (g_dims[2] * g_dims[3]) % g_dims[1],
                      h = i / g_dims[3] % g_dims[2], v = i % g_dims[3];
        if (*at(&y, n, o, h, v) <= 0) *at(&g, n, o, h, v) = 0;
    }
    plain(c, &x, &w, &g, &wanted_dx, &wanted_dw, wanted_dbias);
    if (!why) {
        same(c, "dw", &dw, &wanted_dw);
        for (int o = 0; c->bias && o < outs; o++) CHECK(dbias[o] == wanted_dbias[o]);
    }
    if (!why_input) {
        for (int64_t i = 0; c->bias && i < x_dims[0] * x_dims[1] * x_dims[2] * x_dims[3]; i++)
            wanted_dx.memory[wanted_dx.view.offset + i] += added[i / (x_dims[2] * x_dims[3]) % x_dims[1]];
        same(c, "dx", &dx, &wanted_dx);
    }
    for (int i = 0; i < 8; i++) free(all[i]->memory);
    free(dbias), free(wanted_dbias), free(added);
    return computed;
}

/* ---- Tests ---- */

static bool draw(config *c) {
    static const int few[] = {1, 2, 3, 5, 8, 9, 12, 16, 17, 24, 33};
    *c = (config){.batch = 1 + below(3), .groups = below(4) ? 1 : 2};
    c->in_each = few[below(11)], c->out_each = below(6) ? few[below(11)] : 60 + below(12);
    for (int d = 0; d < 2; d++) {
        c->in[d] = below(8) ? 1 + below(18) : 60 + below(20);
        c->kernel[d] = 1 + below(below(4) ? 3 : 7);
        c->stride[d] = below(3) ? 1 : 1 + below(3);
        c->dilation[d] = below(3) ? 1 : 1 + below(3);
        c->before[d] = below(3), c->after[d] = below(2) ? c->before[d] : below(3);
        if (below(10) == 0) c->before[d] = -below(2);
        if (c->in[d] + c->before[d] + c->after[d] < c->dilation[d] * (c->kernel[d] - 1) + 1) return false;
    }
    c->activation = below(2) ? CT_ACT_RELU : CT_ACT_NONE;
    c->last = below(4) == 0, c->bias = below(2), c->shifted = below(4) == 0, c->apart = below(4) == 0;
    const int64_t work = (int64_t)c->batch * c->groups * c->in_each * c->out_each * c->kernel[0] * c->kernel[1] *
                         out_of(c, 0) * out_of(c, 1);
    return work < 3000000;
}

TEST_LIMIT(gradients_on_tensor_cores_are_those_of_plain_loops, 600) {
    const char *text = getenv("CORES_CASES");
    const int cases = text ? atoi(text) : 60;
    kernels k;
    REQUIRE(compile(&k));
    int computed = 0, drawn = 0;
    for (seed = 1; drawn < cases && seed;) {
        config c;
        if (!draw(&c)) continue;
        drawn++;
        computed += check(&k, &c, drawn % 4 ? SHARED : 100 << 10);
    }
    CHECK(computed > cases);
    remove_own_folder();
}

/* Of networks. */
TEST_LIMIT(gradients_on_tensor_cores_of_usual_sizes, 600) {
    static const config usual[] = {
        {.batch = 2,
         .in_each = 32,
         .out_each = 64,
         .in = {26, 26},
         .kernel = {3, 3},
         .activation = CT_ACT_RELU,
         .bias = true},
        {.batch = 3, .in_each = 32, .out_each = 16, .in = {14, 14}, .kernel = {1, 1}, .bias = true},
        {.batch = 1, .in_each = 3, .out_each = 24, .in = {40, 64}, .kernel = {7, 7}, .before = {3, 3}, .after = {3, 3}},
        {.batch = 1,
         .in_each = 16,
         .out_each = 32,
         .in = {1, 200},
         .kernel = {1, 9},
         .before = {0, 4},
         .after = {0, 4}},
    };
    kernels k;
    REQUIRE(compile(&k));
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        config c = usual[i];
        c.groups = 1;
        for (int d = 0; d < 2; d++) c.stride[d] = c.dilation[d] = 1;
        CHECK(check(&k, &c, SHARED) == 2);
    }
    remove_own_folder();
}

/* As batches divide them; a block of each kernel is enough. What remains is at the ends of channels when windows are copied. */
TEST_LIMIT(gradients_on_tensor_cores_hardly_have_bank_conflicts, 600) {
    static const struct {
        int in, out, size, taps, before;
        bool last_filter;
    } layers[] = {{32, 64, 26, 3, 0, false}, {32, 64, 26, 3, 0, true},  {64, 64, 16, 3, 1, false},
                  {64, 64, 32, 3, 1, false}, {16, 32, 28, 5, 2, false}, {64, 128, 28, 1, 0, false},
                  {6, 16, 12, 5, 0, false}};
    enum { BATCH = 64 };
    kernels k;
    REQUIRE(compile(&k));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const int size = layers[i].size, taps = layers[i].taps, out = size + 2 * layers[i].before - taps + 1;
        const int64_t x_dims[] = {BATCH, layers[i].in, size, size}, g_dims[] = {BATCH, layers[i].out, out, out},
                      w_dims[] = {layers[i].out, layers[i].in, taps, taps};
        operand x = make(x_dims, false, false, false, false), g = make(g_dims, false, false, false, false),
                w = make(w_dims, layers[i].last_filter, true, false, false);
        const ct_cores_problem p = {.x = &x.view,
                                    .w = &w.view,
                                    .g = &g.view,
                                    .active = &g.view,
                                    .stride = {1, 1},
                                    .dilation = {1, 1},
                                    .before = {layers[i].before, layers[i].before},
                                    .activation = CT_ACT_RELU};
        ct_cores_plan plan;
        few_conflicts(&k, "nothing", 1);
        CHECK(ct_cores_plan_weight(&p, SHARED, &plan) == NULL);
        float *scratch = malloc(plan.scratch);
        REQUIRE(scratch != NULL);
        plan.a.partial = scratch, plan.a.dbias_partial = scratch + plan.partial / sizeof(float);
        CHECK(k.run(k.parts[index_of(plan.rows)], &plan.a, 1, CT_CORES_THREADS, plan.shared) == 0);
        CHECK(few_conflicts(&k, "weight", 5));
        free(scratch);
        CHECK(ct_cores_plan_input(&p, SHARED, &plan) == NULL);
        CHECK(k.run(k.input[index_of(plan.rows)], &plan.a, 1, CT_CORES_THREADS, plan.shared) == 0);
        CHECK(few_conflicts(&k, "input", 20));
        free(x.memory), free(g.memory), free(w.memory);
    }
    remove_own_folder();
}

TEST(what_tensor_cores_do_not_take_is_said) {
    ct_view x = {.dtype = CT_F32, .ndim = 4, .dims = {2, 8, 9, 9}, .strides = {648, 81, 9, 1}},
            w = {.dtype = CT_F32, .ndim = 4, .dims = {8, 8, 3, 3}, .strides = {72, 9, 3, 1}},
            g = {.dtype = CT_F32, .ndim = 4, .dims = {2, 8, 4, 4}, .strides = {128, 16, 4, 1}};
    ct_cores_problem p = {.x = &x, .w = &w, .g = &g, .stride = {2, 2}, .dilation = {1, 1}};
    ct_cores_plan plan;
    CHECK(ct_cores_plan_weight(&p, SHARED, &plan) == NULL);
    CHECK(ct_cores_plan_input(&p, SHARED, &plan) != NULL);
    CHECK(ct_cores_plan_weight(&p, 1 << 10, &plan) != NULL);
    x.dims[0] = g.dims[0] = 0;
    CHECK(ct_cores_plan_weight(&p, SHARED, &plan) != NULL);
}
#else
TEST(gradients_on_tensor_cores_are_those_of_plain_loops) { SKIP("the module for NVIDIA devices is not built here"); }
#endif

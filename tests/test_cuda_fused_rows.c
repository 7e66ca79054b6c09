/* Steps along rows in fused kernels for NVIDIA devices, without a device: their texts compile, and on the host they have the bits of the kernels
 * of norms by themselves. */
#include "tests/harness.h"

#ifdef CT_TEST_FUSED
#include "gen/norm.attrs.h"
#include "ops/norm/cuda/row_norm.h"
#include "tests/fused_groups.h"

/* ---- Steps along rows ---- */

static int row_input(group *g, ct_dtype dtype) {
    const ct_view view = dense_view(g->shape, dtype);
    return add_input(g, dtype, &view, g->fused.count);
}

static int vector_input(group *g, ct_dtype dtype) {
    const ct_view view = dense_view(CT_DIMS(g->shape.d[2]), dtype);
    return add_input(g, dtype, &view, g->shape.d[2]);
}

/* A step sees rows in two dimensions. */
static void see_rows(group *g, ct_fused_step *step) {
    const int s = (int)(step - g->steps);
    for (int i = 0; i <= step->call.n_in; i++)
        if (g->seen[s][i].ndim == 3)
            g->seen[s][i] = dense_view(CT_DIMS(g->shape.d[0] * g->shape.d[1], g->shape.d[2]), g->seen[s][i].dtype);
}

static int last_value(const group *g) { return g->fused.n_values - 1; }

static void add_norm(group *g, int x, ct_dtype dtype, bool weights, bool rms) {
    const ct_dtype wide = dtype == CT_F64 ? CT_F64 : CT_F32;
    const int weight = weights ? vector_input(g, wide) : -1, bias = weights && !rms ? vector_input(g, wide) : -1;
    ct_fused_step *step = begin_step(g, ct_op_find("row_norm"), 3);
    row_norm_attrs *attrs = (row_norm_attrs *)(void *)g->attrs[step - g->steps];
    attrs->eps = 1e-5, attrs->rms = rms;
    g->ids[step - g->steps][1] = g->ids[step - g->steps][2] = -1;
    step_reads(g, step, 0, x);
    if (weight >= 0) step_reads(g, step, 1, weight);
    if (bias >= 0) step_reads(g, step, 2, bias);
    step_makes(g, step, dtype);
    see_rows(g, step);
}

/* sums: gradients of weight and bias as well. */
static void add_norm_gradient(group *g, int cotangent, int x, ct_dtype dtype, bool sums) {
    const ct_dtype wide = dtype == CT_F64 ? CT_F64 : CT_F32;
    const int weight = vector_input(g, wide);
    ct_fused_step *step = begin_step(g, ct_op_find("row_norm_grad"), 3);
    const int s = (int)(step - g->steps);
    ((row_norm_grad_attrs *)(void *)g->attrs[s])->eps = 1e-5;
    step_reads(g, step, 0, cotangent);
    step_reads(g, step, 1, x);
    step_reads(g, step, 2, weight);
    step_makes(g, step, dtype);
    see_rows(g, step);
    for (int i = 1; i < 3 && sums; i++) {
        const int id = g->fused.n_values++;
        g->ids[s][3 + i] = id;
        g->seen[s][3 + i] = dense_view(CT_DIMS(g->shape.d[2]), wide);
        g->out_of[s][i] = &g->seen[s][3 + i];
        g->values[id] =
            (ct_fused_value){.dtype = wide, .count = g->shape.d[2], .input = -1, .output = -1, .made = s, .last = -1};
        step->call.n_out = i + 1;
    }
}

static void cast_value(group *g, int value, ct_dtype to) {
    ct_fused_step *step = begin_step(g, ct_op_find("convert"), 1);
    step_reads(g, step, 0, value);
    step_makes(g, step, to);
}

static void add_values(group *g, int a, int b) {
    ct_fused_step *step = begin_step(g, ct_op_find("add"), 2);
    step_reads(g, step, 0, a);
    step_reads(g, step, 1, b);
    step_makes(g, step, g->values[a].dtype);
}

/* What lies between two products of a transformer, forward: a residual sum, its norm, and the cast for the next product. */
static void make_residual_norm(group *g, int64_t rows, int64_t n, ct_dtype dtype, ct_dtype narrow, bool rms) {
    begin_group(g, 7);
    g->shape = CT_DIMS(2, rows / 2, n);
    g->fused.count = rows * n;
    cast_value(g, row_input(g, narrow), dtype);
    const int wide = last_value(g), residual = row_input(g, dtype);
    add_values(g, residual, wide);
    const int sum = last_value(g);
    add_norm(g, sum, dtype, true, rms);
    cast_value(g, last_value(g), narrow);
    end_group(g);
    if (g->values[sum].output < 0) { /* the next residual sum reads it */
        g->values[sum].output = g->call.n_out++;
        g->outputs[g->values[sum].output] = dense_view(g->shape, dtype);
        g->out[g->values[sum].output] = &g->outputs[g->values[sum].output];
    }
}

static void make_residual_gradient(group *g, int64_t rows, int64_t n, ct_dtype dtype, ct_dtype narrow, bool sums) {
    begin_group(g, 8);
    g->shape = CT_DIMS(2, rows / 2, n);
    g->fused.count = rows * n;
    cast_value(g, row_input(g, narrow), dtype);
    const int cotangent = last_value(g);
    add_norm_gradient(g, cotangent, row_input(g, dtype), dtype, sums);
    const int dx = last_value(g) - (sums ? 2 : 0);
    add_values(g, row_input(g, dtype), dx);
    cast_value(g, last_value(g), narrow);
    end_group(g);
    for (int i = 0; i < g->fused.n_values; i++)
        if (g->values[i].output >= 0 && g->values[i].count != g->fused.count)
            g->outputs[g->values[i].output] = dense_view(CT_DIMS(n), g->values[i].dtype);
}

TEST_LIMIT(groups_along_rows_compile, 300) {
    static group g;
    static const struct {
        int64_t n;
        ct_dtype dtype, narrow;
    } cases[] = {{768, CT_F32, CT_BF16}, {64, CT_F32, CT_F16}, {8192, CT_BF16, CT_BF16}, {96, CT_F64, CT_F32}};
    if (!ct_nvrtc_there()) SKIP("there is no NVRTC");
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 3; way++) {
            if (way == 0) make_residual_norm(&g, 64, cases[i].n, cases[i].dtype, cases[i].narrow, i % 2);
            else make_residual_gradient(&g, 64, cases[i].n, cases[i].dtype, cases[i].narrow, way == 2);
            if (way == 2 && cases[i].n == 8192) { /* threads cannot keep rows and sums of columns */
                CHECK(ct_fused_refusal(&g.call) != NULL);
                continue;
            }
            char *text = text_of(&g);
            if (text && getenv("CT_TEST_TEXTS")) printf("// ---- %d %d\n%s\n", i, way, text);
            if (text) compiles(text, i % 2 ? 80 : 90);
            free(text);
        }
}

/* A norm and its own gradients, as a function that asks for both has them. */
static void make_norm_and_gradient(group *g, int64_t rows, int64_t n, bool sums) {
    begin_group(g, 8);
    g->shape = CT_DIMS(2, rows / 2, n);
    g->fused.count = rows * n;
    const int x = row_input(g, CT_F32);
    add_norm(g, x, CT_F32, true, false);
    add_norm_gradient(g, row_input(g, CT_F32), x, CT_F32, sums);
    end_group(g);
    for (int i = 0; i < g->fused.n_values; i++)
        if (g->values[i].output >= 0 && g->values[i].count != g->fused.count)
            g->outputs[g->values[i].output] = dense_view(CT_DIMS(n), g->values[i].dtype);
}

/* Rows of 768 are a warp's in the kernel that sums columns, and two warps' in that of the norm: sums of other terms, other bits. */
TEST(steps_that_divide_rows_in_two_ways_are_not_one_group) {
    static group g;
    for (int64_t n = 4; n <= 1024; n += 4) {
        const ct_norm_division d = ct_norm_division_of(n, sizeof(float));
        const bool alike = d.lanes == ct_cuda_row_lanes(n, sizeof(float), CT_ROW_PACKS);
        make_norm_and_gradient(&g, 64, n, true);
        const char *refusal = ct_fused_refusal(&g.call);
        harness_check(!refusal == alike, __FILE__, __LINE__, "rows of %lld: %s", (long long)n,
                      refusal ? refusal : "taken");
        make_norm_and_gradient(&g, 64, n, false);
        CHECK(!ct_fused_refusal(&g.call));
        CHECK(alike == (n <= 512 || n > 768));
    }
}

/* ---- Rows on the host, beside the kernels of the norms themselves ---- */

enum { ROWS = 10, LENGTH = 768, WIDE = ROWS * LENGTH };
typedef struct rows_data {
    _Alignas(64) uint16_t narrow[WIDE], made_narrow[WIDE];
    _Alignas(64) float wide[WIDE], residual[WIDE], sum[WIDE], between[WIDE], weight[LENGTH], bias[LENGTH];
    _Alignas(64) float vectors[2][LENGTH], sums[64 * 2 * LENGTH], spare[3][WIDE];
} rows_data;

static float upper_half(uint16_t bits) {
    const uint32_t all = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &all, sizeof x);
    return x;
}

static uint16_t to_upper_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fill_rows(rows_data *d) {
    unsigned seed = 3;
    memset(d, 0, sizeof *d);
#define NEXT ((float)(int)((seed = seed * 1664525u + 1013904223u) >> 12) / (1 << 19) - 1)
    for (int i = 0; i < WIDE; i++) d->narrow[i] = to_upper_half(NEXT), d->wide[i] = NEXT, d->residual[i] = NEXT;
    for (int i = 0; i < LENGTH; i++) d->weight[i] = NEXT + 1, d->bias[i] = NEXT;
#undef NEXT
}

typedef struct host_library {
    run_function run;
    kernel_function fused[2], total, norm, norm_all, norm_total;
} host_library;

static void find_kernels(void *library, host_library *h) {
    *(void **)&h->run = dlsym(library, "ct_run_blocks");
    *(void **)&h->fused[0] = dlsym(library, "call_0");
    *(void **)&h->fused[1] = dlsym(library, "call_1");
    *(void **)&h->total = dlsym(library, "call_total");
    *(void **)&h->norm = dlsym(library, "call_norm");
    *(void **)&h->norm_all = dlsym(library, "call_norm_all");
    *(void **)&h->norm_total = dlsym(library, "call_norm_total");
}

/* Places of the operands of a group, in the order in which make_residual_ adds them. */
static ct_fused_arguments places(const group *g, void *const *of_values) {
    ct_fused_arguments a;
    memset(&a, 0, sizeof a);
    a.packed = 1;
    for (int i = 0; i < g->fused.n_values; i++) {
        if (g->values[i].input >= 0) a.at[g->values[i].input] = of_values[i];
        if (g->values[i].output >= 0) a.at[g->call.n_in + g->values[i].output] = of_values[i];
    }
    return a;
}

static void check_forward(const group *g, const host_library *h) {
    static rows_data apart, fused;
    fill_rows(&apart), fill_rows(&fused);
    for (int i = 0; i < WIDE; i++) apart.sum[i] = apart.residual[i] + upper_half(apart.narrow[i]);
    ct_cuda_row_norm norm = {.x = (char *)apart.sum,
                             .y = (char *)apart.between,
                             .weight = (char *)apart.weight,
                             .bias = (char *)apart.bias,
                             .rows = ROWS,
                             .n = LENGTH,
                             .eps = 1e-5,
                             .lanes = 64};
    CHECK(h->run(h->norm, &norm, ROWS, 64));
    for (int i = 0; i < WIDE; i++) apart.made_narrow[i] = to_upper_half(apart.between[i]);
    /* values: narrow, its cast, residual, sum, weight, bias, norm, its cast */
    void *of_values[] = {fused.narrow, fused.spare[0], fused.residual, fused.sum,
                         fused.weight, fused.bias,     fused.spare[1], fused.made_narrow};
    const ct_fused_arguments a = places(g, of_values);
    CHECK(h->run(h->fused[0], &a, ROWS, 64));
    CHECK(!memcmp(fused.sum, apart.sum, sizeof fused.sum));
    CHECK(!memcmp(fused.made_narrow, apart.made_narrow, sizeof fused.made_narrow));
}

static void check_backward(const group *g, const host_library *h) {
    static rows_data apart, fused;
    const ct_norm_division d = ct_norm_division_of(LENGTH, sizeof(float));
    const unsigned blocks = (ROWS + 3) / 4; /* four rows, a warp each */
    fill_rows(&apart), fill_rows(&fused);
    CHECK(d.warps && d.lanes == 32 && d.block == 128);
    for (int i = 0; i < WIDE; i++) apart.sum[i] = upper_half(apart.narrow[i]);
    ct_cuda_row_norm norm = {.g = (char *)apart.sum,
                             .x = (char *)apart.wide,
                             .dx = (char *)apart.between,
                             .weight = (char *)apart.weight,
                             .dweight = (char *)apart.vectors[0],
                             .dbias = (char *)apart.vectors[1],
                             .sums = (char *)apart.sums,
                             .rows = ROWS,
                             .n = LENGTH,
                             .parts = blocks,
                             .eps = 1e-5,
                             .lanes = 32};
    CHECK(h->run(h->norm_all, &norm, blocks, 128) && h->run(h->norm_total, &norm, LENGTH / 32, 256));
    for (int i = 0; i < WIDE; i++) {
        apart.residual[i] += apart.between[i];
        apart.made_narrow[i] = to_upper_half(apart.residual[i]);
    }
    /* values: narrow, its cast, x, weight, dx, gradients of weight and bias, residual, sum, its cast */
    void *of_values[] = {fused.narrow,     fused.spare[0],   fused.wide,     fused.weight,   fused.spare[1],
                         fused.vectors[0], fused.vectors[1], fused.residual, fused.spare[2], fused.made_narrow};
    ct_fused_arguments a = places(g, of_values);
    a.sums = (char *)fused.sums;
    a.parts = blocks;
    CHECK(h->run(h->fused[1], &a, blocks, 128) && h->run(h->total, &a, LENGTH / 32, 256));
    CHECK(!memcmp(fused.made_narrow, apart.made_narrow, sizeof fused.made_narrow));
    CHECK(!memcmp(fused.vectors, apart.vectors, sizeof fused.vectors));
}

TEST_LIMIT(fused_norms_have_the_bits_of_those_by_themselves, 300) {
    static group forward, backward;
    static const char *const calls[][3] = {{"norm", "row_norm_rows_f32", "ct_cuda_row_norm"},
                                           {"norm_all", "row_norm_grad_warps_f32", "ct_cuda_row_norm"},
                                           {"norm_total", "row_norm_grad_total_f32", "ct_cuda_row_norm"},
                                           {"total", "group_1::fused_total_1", "ct_fused_arguments"}};
    char folder[] = "/tmp/ct_fused_XXXXXX", path[64];
    if (system("c++ --version >/dev/null 2>&1") != 0) SKIP("there is no C++ compiler");
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fused.cpp", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    make_residual_norm(&forward, ROWS, LENGTH, CT_F32, CT_BF16, false);
    make_residual_gradient(&backward, ROWS, LENGTH, CT_F32, CT_BF16, true);
    fprintf(file, "#define __CUDACC__\n#include \"tests/cuda/host.h\"\n#include \"ops/fused/cuda/rows.cuh\"\n"
                  "#include \"backends/cuda/convert.cuh\"\n#include \"ops/norm/cuda/row_norm.cu\"\n#undef KERNELS\n");
    for (int i = 0; i < 2; i++) {
        char *text = text_of(i ? &backward : &forward);
        if (text) put_group(file, i, text);
        free(text);
    }
    for (int i = 0; i < 4; i++)
        fprintf(file, "extern \"C\" void call_%s(const void *a) { %s(*(const %s *)a); }\n", calls[i][0], calls[i][1],
                calls[i][2]);
    fclose(file);
    void *library = compiled(folder, path);
    host_library h;
    if (CHECK(library != NULL)) {
        find_kernels(library, &h);
        REQUIRE(h.run && h.fused[0] && h.fused[1] && h.total && h.norm && h.norm_all && h.norm_total);
        check_forward(&forward, &h);
        check_backward(&backward, &h);
    }
    remove_folder(folder);
}
#endif

#ifndef CT_TEST_FUSED
TEST(groups_along_rows_compile) { SKIP("the module for NVIDIA devices is not built here"); }
#endif

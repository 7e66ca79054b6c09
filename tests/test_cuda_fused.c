/* The texts of fused kernels for NVIDIA devices, without a device: random groups of every op compile, and those of ops that round once have
 * the bits of the CPU's kernels when the same text is compiled for the host. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cotangent/fused.h>

#include "tests/harness.h"

#ifdef CT_TEST_FUSED
#include "gen/dropout.attrs.h"
#include "gen/norm.attrs.h"
#include "ops/fused/cuda/fused.h"
#include "ops/fused/cuda/fused/text.h"
#include "ops/norm/cuda/row_norm.h"

/* ---- Random groups ---- */

enum { STEPS = 40, VALUES = 96, INPUTS = 6, OPERANDS = 8, MOST = 4096 };

typedef struct group {
    ct_fused fused;
    ct_fused_step steps[STEPS];
    ct_fused_value values[VALUES];
    int ids[STEPS][OPERANDS];
    ct_view seen[STEPS][OPERANDS]; /* views of steps */
    const ct_view *in_of[STEPS][OPERANDS];
    ct_view *out_of[STEPS][3];
    _Alignas(16) unsigned char numbers[STEPS][CT_NUMBER_BYTES];
    _Alignas(16) char attrs[STEPS][256];
    ct_call call;
    ct_view inputs[VALUES], outputs[VALUES];
    const ct_view *in[VALUES];
    ct_view *out[VALUES];
    ct_dims shape;
    unsigned seed;
} group;

static unsigned draw(group *g, unsigned below) {
    g->seed = g->seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)(g->seed >> 8) * below) >> 24);
}

static ct_view dense_view(ct_dims shape, ct_dtype dtype) {
    ct_view v = {.dtype = dtype, .ndim = shape.n};
    int64_t stride = 1;
    for (int d = shape.n - 1; d >= 0; d--) {
        v.dims[d] = shape.d[d];
        v.strides[d] = stride;
        stride *= shape.d[d];
    }
    return v;
}

/* Dense, one value, broadcast along some dimensions, or the dimensions in another order. */
static ct_view any_view(group *g, ct_dtype dtype) {
    ct_view v = dense_view(g->shape, dtype);
    int64_t stride = 1;
    const unsigned way = draw(g, 5);
    if (way < 2) return v;
    for (int k = v.ndim - 1; k >= 0; k--) {
        const int d = way == 4 ? v.ndim - 1 - k : k;
        const bool still = way == 2 || (way == 3 && draw(g, 2));
        v.strides[d] = still ? 0 : stride;
        if (!still) stride *= v.dims[d];
    }
    return v;
}

static int add_input(group *g, ct_dtype dtype, const ct_view *view, int64_t count) {
    const int id = g->fused.n_values++, input = g->call.n_in++;
    g->values[id] =
        (ct_fused_value){.dtype = dtype, .count = count, .input = input, .output = -1, .made = -1, .last = -1};
    g->inputs[input] = *view;
    return id;
}

/* A value of the dtype that is there, or a new input. */
static int operand_of(group *g, ct_dtype dtype) {
    int found[VALUES], n = 0;
    for (int i = 0; i < g->fused.n_values; i++)
        if (g->values[i].dtype == dtype && g->values[i].count == g->fused.count) found[n++] = i;
    if (n && (draw(g, 4) || g->call.n_in >= INPUTS)) return found[draw(g, (unsigned)n)];
    const ct_view view = any_view(g, dtype);
    return add_input(g, dtype, &view, g->fused.count);
}

static void set_attrs(group *g, const ct_op *op, void *attrs) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        void *at = (char *)attrs + attr->offset;
        if (attr->type == CT_ATTR_INT) *(int64_t *)at = 1 + draw(g, 2);
        if (attr->type == CT_ATTR_DOUBLE) *(double *)at = 0.25 + draw(g, 4);
        if (attr->type == CT_ATTR_OPT) *(ct_opt *)at = (ct_opt){.set = draw(g, 2), .value = 0.5};
    }
}

static ct_fused_step *begin_step(group *g, const ct_op *op, int n_in) {
    const int s = g->fused.n_steps++;
    ct_fused_step *step = &g->steps[s];
    *step = (ct_fused_step){.values = g->ids[s]};
    step->call = (ct_call){.op = op, .attrs = g->attrs[s], .n_in = n_in, .n_out = 1};
    step->call.in = g->in_of[s];
    step->call.out = g->out_of[s];
    return step;
}

static void step_reads(group *g, ct_fused_step *step, int i, int value) {
    const int s = (int)(step - g->steps);
    g->ids[s][i] = value;
    g->seen[s][i] =
        g->values[value].input >= 0 ? g->inputs[g->values[value].input] : dense_view(g->shape, g->values[value].dtype);
    g->in_of[s][i] = &g->seen[s][i];
    g->values[value].last = s;
}

static void step_makes(group *g, ct_fused_step *step, ct_dtype dtype) {
    const int s = (int)(step - g->steps), i = step->call.n_in, id = g->fused.n_values++;
    g->ids[s][i] = id;
    g->seen[s][i] = dense_view(g->shape, dtype);
    g->out_of[s][0] = &g->seen[s][i];
    g->values[id] =
        (ct_fused_value){.dtype = dtype, .count = g->fused.count, .input = -1, .output = -1, .made = s, .last = -1};
}

/* Whether input i of an elementwise op is a mask, as its table says. */
static bool is_mask(const ct_op *op, int i) { return op->inputs[i].flags & CT_ARG_BOOL; }

static void put_number(unsigned char *to, ct_dtype dtype) {
    const float one = 1.5f;
    const double twice = 1.5;
    const uint16_t half = 0x3e00, upper = 0x3fc0;
    memset(to, 0, CT_NUMBER_BYTES);
    switch (dtype) {
    case CT_F32: memcpy(to, &one, sizeof one); break;
    case CT_F64: memcpy(to, &twice, sizeof twice); break;
    case CT_F16: memcpy(to, &half, sizeof half); break;
    case CT_BF16: memcpy(to, &upper, sizeof upper); break;
    default: to[0] = dtype == CT_BOOL ? 1 : 3;
    }
}

static bool add_elementwise(group *g, const ct_op *op, ct_dtype dtype) {
    int n_in = 0;
    while (op->inputs[n_in].name) n_in++;
    if (g->fused.n_values + n_in + 1 > VALUES || g->fused.n_steps == STEPS || n_in >= OPERANDS) return false;
    ct_fused_step *step = begin_step(g, op, n_in);
    const int s = (int)(step - g->steps);
    bool number = false;
    set_attrs(g, op, g->attrs[s]);
    for (int i = 0; i < n_in; i++) {
        const ct_dtype of = is_mask(op, i) ? CT_BOOL : dtype;
        if (i == n_in - 1 && n_in > 1 && of == dtype && !number && draw(g, 4) == 0) { /* a number */
            put_number(g->numbers[s], dtype);
            g->ids[s][i] = -1;
            g->seen[s][i] = dense_view(g->shape, dtype);
            memset(g->seen[s][i].strides, 0, sizeof g->seen[s][i].strides);
            g->seen[s][i].buffer = g->numbers[s];
            g->in_of[s][i] = &g->seen[s][i];
            step->call.numbers |= 1u << i;
            number = true;
            continue;
        }
        step_reads(g, step, i, operand_of(g, of));
    }
    ct_view result = {.dtype = dtype};
    ct_infer infer = {.op = op, .attrs = g->attrs[s], .n_in = n_in, .n_out = 1, .in = g->in_of[s], .out = &result};
    if (op->infer && !op->infer(&infer)) ct_error_clear();
    step_makes(g, step, result.dtype);
    return true;
}

static void add_cast(group *g, ct_dtype from, ct_dtype to) {
    if (g->fused.n_values + 2 > VALUES || g->fused.n_steps == STEPS) return;
    ct_fused_step *step = begin_step(g, ct_op_find("convert"), 1);
    step_reads(g, step, 0, operand_of(g, from));
    step_makes(g, step, to);
}

static void add_dropout(group *g, ct_dtype dtype, double p) {
    if (g->fused.n_values + 3 > VALUES || g->fused.n_steps == STEPS) return;
    ct_fused_step *step = begin_step(g, ct_op_find("dropout_replay"), 2);
    const ct_view three = dense_view(CT_DIMS(3), CT_I64);
    ((dropout_replay_attrs *)(void *)g->attrs[step - g->steps])->p = p;
    step_reads(g, step, 0, operand_of(g, dtype));
    step_reads(g, step, 1, add_input(g, CT_I64, &three, 3));
    step_makes(g, step, dtype);
}

static void begin_group(group *g, unsigned seed) {
    static const int64_t sizes[][3] = {{3, 5, 7}, {2, 8, 16}, {1, 4, 33}, {16, 1, 8}, {4, 6, 24}};
    memset(g, 0, sizeof *g);
    g->seed = seed;
    const int64_t *size = sizes[draw(g, 5)];
    g->shape = CT_DIMS(size[0], size[1], size[2]);
    g->fused.count = size[0] * size[1] * size[2];
    g->fused.steps = g->steps;
    g->fused.values = g->values;
}

/* What nobody reads is a result, and some of the rest. */
static void end_group(group *g) {
    for (int i = 0; i < g->fused.n_values; i++) {
        ct_fused_value *v = &g->values[i];
        if (v->input >= 0 || (v->last >= 0 && draw(g, 5))) continue;
        v->output = g->call.n_out++;
        g->outputs[v->output] = dense_view(g->shape, v->dtype);
    }
    for (int i = 0; i < g->call.n_in; i++) g->in[i] = &g->inputs[i];
    for (int i = 0; i < g->call.n_out; i++) g->out[i] = &g->outputs[i];
    g->call.op = ct_op_find("fused");
    g->call.attrs = &g->fused;
    g->call.in = g->in;
    g->call.out = g->out;
}

static char *text_of(group *g) {
    ct_fused_text text;
    const char *refusal = ct_fused_refusal(&g->call);
    if (!harness_check(!refusal, __FILE__, __LINE__, "refused: %s", refusal ? refusal : "")) return NULL;
    CHECK(ct_fused_write(&g->call, &text));
    return text.text;
}

/* ---- Compiling ---- */

static void compiles(const char *text, int capability) {
    int n;
    const ct_nvrtc_header *headers = ct_fused_headers(&n);
    size_t bytes = 0;
    char why[4096];
    void *code = ct_nvrtc_compile(text, headers, n, capability, &bytes, why, sizeof why);
    if (!harness_check(code != NULL, __FILE__, __LINE__, "sm_%d: %s", capability, why)) printf("%s\n", text);
    free(code);
}

/* Adds it where there is a text for it in this dtype. */
static bool try_add(group *g, const ct_op *op, ct_dtype dtype) {
    static group before, after;
    before = *g;
    if (!add_elementwise(g, op, dtype)) return false;
    after = *g;
    end_group(g);
    const bool taken = !ct_fused_refusal(&g->call);
    *g = taken ? after : before;
    return taken;
}

static bool takes_any(const ct_op *op) {
    static group g;
    static const ct_dtype dtypes[] = {CT_F32, CT_I32, CT_BOOL};
    bool any = false;
    for (int i = 0; i < 3; i++) begin_group(&g, 1), any |= try_add(&g, op, dtypes[i]);
    return any;
}

TEST_LIMIT(random_groups_of_every_op_compile, 300) {
    static group g;
    static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_I32, CT_F16, CT_U8, CT_F64, CT_BOOL};
    int op = 0, missing = 0;
    if (!ct_nvrtc_there()) SKIP("there is no NVRTC");
    for (int round = 0; op < ct_op_count(); round++) {
        const ct_dtype dtype = dtypes[round % 7];
        begin_group(&g, (unsigned)round);
        for (; op < ct_op_count() && g.fused.n_steps < STEPS - 4 && g.fused.n_values < VALUES - 16; op++) {
            const ct_op *next = ct_op_at(op);
            if (!(next->flags & CT_OP_ELEMENTWISE)) continue;
            if (!try_add(&g, next, dtype) && !try_add(&g, next, CT_F32) && !try_add(&g, next, CT_BOOL) &&
                !takes_any(next))
                missing++, printf("no text for %s\n", next->name);
        }
        add_cast(&g, dtype, dtypes[(round + 1) % 7]);
        if (dtype <= CT_BF16) add_dropout(&g, dtype, 0.3);
        end_group(&g);
        char *text = text_of(&g);
        if (text) compiles(text, round % 2 ? 80 : 90);
        free(text);
    }
    CHECK(missing == 0);
}

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

/* ---- The same text on the host ---- */

/* Ops whose results are rounded once, so that every device has the same bits. */
static const char *const exact[] = {"add", "sub",   "mul",    "div", "neg", "relu", "maximum",    "minimum",
                                    "abs", "where", "square", "lt",  "ge",  "eq",   "logical_and"};
enum { GROUPS = 24, EXACT = sizeof exact / sizeof *exact };

static void fill_input(group *g, int input, ct_dtype dtype, char *memory) {
    const size_t size = ct_dtype_size(dtype);
    for (size_t i = 0; i < MOST; i++) {
        const int number = (int)draw(g, 64) - 32;
        const float one = (float)number / 8 + 0.0625f;
        const double twice = (double)one;
        uint32_t bits;
        memcpy(&bits, &one, sizeof bits);
        const uint16_t upper = (uint16_t)(bits >> 16);
        const int64_t whole = dtype == CT_BOOL ? number & 1 : number;
        (void)input;
        memcpy(memory + i * size,
               dtype == CT_F32    ? (const void *)&one
               : dtype == CT_F64  ? (const void *)&twice
               : dtype == CT_BF16 ? (const void *)&upper
                                  : (const void *)&whole,
               size);
    }
}

static void make_exact_group(group *g, unsigned seed) {
    static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F64, CT_I32};
    begin_group(g, seed);
    const ct_dtype dtype = dtypes[seed % 4];
    for (int i = 0; i < 9; i++) try_add(g, ct_op_find(exact[draw(g, EXACT)]), dtype);
    add_cast(g, dtype, dtypes[(seed + 1 + draw(g, 3)) % 4]);
    if (dtype <= CT_BF16) add_dropout(g, dtype, 0.25);
    for (int i = 0; i < 4; i++) try_add(g, ct_op_find(exact[draw(g, EXACT)]), dtype);
    end_group(g);
}

/* Each step by the CPU's kernel, into memory for each value. */
static bool run_by_steps(group *g, char (*memory)[MOST * 8]) {
    for (int s = 0; s < g->fused.n_steps; s++) {
        ct_call call = g->steps[s].call;
        for (int i = 0; i < call.n_in + 1; i++)
            if (g->ids[s][i] >= 0) g->seen[s][i].buffer = memory[g->ids[s][i]];
        call.device = (ct_device){CT_CPU, 0};
        call.called = call.op->name;
        const ct_kernel *kernel = NULL;
        for (int i = 0; !kernel && ct_op_kernel(call.op, CT_CPU, i); i++) {
            const ct_kernel *next = ct_op_kernel(call.op, CT_CPU, i);
            if ((!next->can || !next->can(&call)) && !next->scratch) kernel = next;
        }
        call.kernel = kernel;
        if (!harness_check(kernel && kernel->run(&call, NULL), __FILE__, __LINE__, "%s: %s", call.op->name, ct_error()))
            return false;
    }
    return true;
}

static void put_group(FILE *file, int number, const char *text) {
    fprintf(file,
            "namespace group_%d {\n#define fused fused_%d\n#define fused_total fused_total_%d\n%s#undef fused\n#undef "
            "fused_total\n}\n"
            "extern \"C\" void call_%d(const void *a) { group_%d::fused_%d(*(const ct_fused_arguments *)a); }\n",
            number, number, number, text, number, number, number);
}

typedef void (*kernel_function)(const void *arguments);
typedef int (*run_function)(kernel_function kernel, const void *arguments, unsigned blocks, unsigned threads);

static void compare(group *g, void *library, int number) {
    static _Alignas(64) char by_steps[VALUES][MOST * 8], inputs[VALUES][MOST * 8], outputs[VALUES][MOST * 8];
    char name[32];
    snprintf(name, sizeof name, "call_%d", number);
    kernel_function kernel;
    run_function run;
    *(void **)&kernel = dlsym(library, name);
    *(void **)&run = dlsym(library, "ct_run_blocks");
    REQUIRE(kernel && run);
    for (int i = 0; i < g->fused.n_values; i++)
        if (g->values[i].input >= 0) {
            fill_input(g, i, g->values[i].dtype, by_steps[i]);
            memcpy(inputs[g->values[i].input], by_steps[i], sizeof by_steps[i]);
        }
    if (!run_by_steps(g, by_steps)) return;
    for (int packed = 0; packed < 2; packed++) {
        ct_fused_arguments a;
        memset(&a, 0, sizeof a);
        a.packed = packed;
        for (int i = 0; i < g->call.n_in; i++) a.at[i] = inputs[i];
        for (int i = 0; i < g->call.n_out; i++) a.at[g->call.n_in + i] = memset(outputs[i], 0x77, sizeof outputs[i]);
        CHECK(run(kernel, &a, 3, 16));
        for (int i = 0; i < g->fused.n_values; i++) {
            const ct_fused_value *v = &g->values[i];
            const size_t bytes = (size_t)v->count * ct_dtype_size(v->dtype);
            if (v->output < 0) continue;
            harness_check(!memcmp(outputs[v->output], by_steps[i], bytes), __FILE__, __LINE__,
                          "group %d, value %d (%s), %s: other bits", number, i, ct_dtype_name(v->dtype),
                          packed ? "in packs" : "by elements");
        }
    }
}

/* Compiles a text of the host's; NULL: it does not compile. */
static void *compiled(const char *folder, const char *path) {
    char command[1024], library[64];
    snprintf(
        command, sizeof command,
        "c++ -std=c++17 -O1 -ffp-contract=off -w -shared -fPIC -I%s/tests/cuda/host -I%s -I%s/include -I%s/include -o "
        "%s/fused.so %s -lpthread",
        CT_TEST_SOURCE, CT_TEST_SOURCE, CT_TEST_SOURCE, CT_TEST_GENERATED, folder, path);
    const bool ok = CHECK(system(command) == 0);
    snprintf(library, sizeof library, "%s/fused.so", folder);
    return ok ? dlopen(library, RTLD_NOW) : NULL;
}

static void remove_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

TEST_LIMIT(fused_texts_have_the_bits_of_the_steps, 300) {
    static group groups[GROUPS];
    char folder[] = "/tmp/ct_fused_XXXXXX", path[64];
    if (system("c++ --version >/dev/null 2>&1") != 0) SKIP("there is no C++ compiler");
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fused.cpp", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "#include \"tests/cuda/host.h\"\n#include \"ops/fused/cuda/dropout.cuh\"\n"
                  "#include \"backends/cuda/convert.cuh\"\n");
    for (int i = 0; i < GROUPS; i++) {
        make_exact_group(&groups[i], (unsigned)i);
        char *text = text_of(&groups[i]);
        if (text) put_group(file, i, text);
        free(text);
    }
    fclose(file);
    void *library = compiled(folder, path);
    if (CHECK(library != NULL))
        for (int i = 0; i < GROUPS; i++) compare(&groups[i], library, i);
    remove_folder(folder);
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
TEST(random_groups_of_every_op_compile) { SKIP("the module for NVIDIA devices is not built here"); }
#endif

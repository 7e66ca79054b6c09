/* Groups of calls put together by hand, the texts of their kernels for NVIDIA devices, and how these are compiled, for a device or for the host. */
#ifndef COTANGENT_TESTS_FUSED_GROUPS_H
#define COTANGENT_TESTS_FUSED_GROUPS_H

#include <cotangent/fused.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/dropout.attrs.h"
#include "ops/fused/cuda/fused.h"
#include "ops/fused/cuda/fused/text.h"
#include "tests/harness.h"

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

static inline unsigned draw(group *g, unsigned below) {
    g->seed = g->seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)(g->seed >> 8) * below) >> 24);
}

static inline ct_view dense_view(ct_dims shape, ct_dtype dtype) {
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
static inline ct_view any_view(group *g, ct_dtype dtype) {
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

static inline int add_input(group *g, ct_dtype dtype, const ct_view *view, int64_t count) {
    const int id = g->fused.n_values++, input = g->call.n_in++;
    g->values[id] =
        (ct_fused_value){.dtype = dtype, .count = count, .input = input, .output = -1, .made = -1, .last = -1};
    g->inputs[input] = *view;
    return id;
}

/* A value of the dtype that is there, or a new input. */
static inline int operand_of(group *g, ct_dtype dtype) {
    int found[VALUES], n = 0;
    for (int i = 0; i < g->fused.n_values; i++)
        if (g->values[i].dtype == dtype && g->values[i].count == g->fused.count) found[n++] = i;
    if (n && (draw(g, 4) || g->call.n_in >= INPUTS)) return found[draw(g, (unsigned)n)];
    const ct_view view = any_view(g, dtype);
    return add_input(g, dtype, &view, g->fused.count);
}

static inline void set_attrs(group *g, const ct_op *op, void *attrs) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        void *at = (char *)attrs + attr->offset;
        if (attr->type == CT_ATTR_INT) *(int64_t *)at = 1 + draw(g, 2);
        if (attr->type == CT_ATTR_DOUBLE) *(double *)at = 0.25 + draw(g, 4);
        if (attr->type == CT_ATTR_OPT) *(ct_opt *)at = (ct_opt){.set = draw(g, 2), .value = 0.5};
    }
}

static inline ct_fused_step *begin_step(group *g, const ct_op *op, int n_in) {
    const int s = g->fused.n_steps++;
    ct_fused_step *step = &g->steps[s];
    *step = (ct_fused_step){.values = g->ids[s]};
    step->call = (ct_call){.op = op, .attrs = g->attrs[s], .n_in = n_in, .n_out = 1};
    step->call.in = g->in_of[s];
    step->call.out = g->out_of[s];
    return step;
}

static inline void step_reads(group *g, ct_fused_step *step, int i, int value) {
    const int s = (int)(step - g->steps);
    g->ids[s][i] = value;
    g->seen[s][i] =
        g->values[value].input >= 0 ? g->inputs[g->values[value].input] : dense_view(g->shape, g->values[value].dtype);
    g->in_of[s][i] = &g->seen[s][i];
    g->values[value].last = s;
}

static inline void step_makes(group *g, ct_fused_step *step, ct_dtype dtype) {
    const int s = (int)(step - g->steps), i = step->call.n_in, id = g->fused.n_values++;
    g->ids[s][i] = id;
    g->seen[s][i] = dense_view(g->shape, dtype);
    g->out_of[s][0] = &g->seen[s][i];
    g->values[id] =
        (ct_fused_value){.dtype = dtype, .count = g->fused.count, .input = -1, .output = -1, .made = s, .last = -1};
}

/* Whether input i of an elementwise op is a mask, as its table says. */
static inline bool is_mask(const ct_op *op, int i) { return op->inputs[i].flags & CT_ARG_BOOL; }

static inline void put_number(unsigned char *to, ct_dtype dtype) {
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

static inline bool add_elementwise(group *g, const ct_op *op, ct_dtype dtype) {
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

static inline void add_cast(group *g, ct_dtype from, ct_dtype to) {
    if (g->fused.n_values + 2 > VALUES || g->fused.n_steps == STEPS) return;
    ct_fused_step *step = begin_step(g, ct_op_find("convert"), 1);
    step_reads(g, step, 0, operand_of(g, from));
    step_makes(g, step, to);
}

static inline void add_dropout(group *g, ct_dtype dtype, double p) {
    if (g->fused.n_values + 3 > VALUES || g->fused.n_steps == STEPS) return;
    ct_fused_step *step = begin_step(g, ct_op_find("dropout_replay"), 2);
    const ct_view three = dense_view(CT_DIMS(3), CT_I64);
    ((dropout_replay_attrs *)(void *)g->attrs[step - g->steps])->p = p;
    step_reads(g, step, 0, operand_of(g, dtype));
    step_reads(g, step, 1, add_input(g, CT_I64, &three, 3));
    step_makes(g, step, dtype);
}

static inline void begin_group(group *g, unsigned seed) {
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
static inline void end_group(group *g) {
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

static inline char *text_of(group *g) {
    ct_fused_text text;
    const char *refusal = ct_fused_refusal(&g->call);
    if (!harness_check(!refusal, __FILE__, __LINE__, "refused: %s", refusal ? refusal : "")) return NULL;
    CHECK(ct_fused_write(&g->call, &text));
    return text.text;
}

/* ---- Compiling ---- */

static inline void compiles(const char *text, int capability) {
    int n;
    const ct_nvrtc_header *headers = ct_fused_headers(&n);
    size_t bytes = 0;
    char why[4096];
    void *code = ct_nvrtc_compile(text, headers, n, capability, &bytes, why, sizeof why);
    if (!harness_check(code != NULL, __FILE__, __LINE__, "sm_%d: %s", capability, why)) printf("%s\n", text);
    free(code);
}

/* ---- On the host ---- */

static inline void put_group(FILE *file, int number, const char *text) {
    fprintf(file,
            "namespace group_%d {\n#define fused fused_%d\n#define fused_total fused_total_%d\n%s#undef fused\n#undef "
            "fused_total\n}\n"
            "extern \"C\" void call_%d(const void *a) { group_%d::fused_%d(*(const ct_fused_arguments *)a); }\n",
            number, number, number, text, number, number, number);
}

typedef void (*kernel_function)(const void *arguments);
typedef int (*run_function)(kernel_function kernel, const void *arguments, unsigned blocks, unsigned threads);

/* Compiles a text of the host's; NULL: it does not compile. */
static inline void *compiled(const char *folder, const char *path) {
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

static inline void remove_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

#endif

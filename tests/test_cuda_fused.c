/* The texts of fused kernels for NVIDIA devices, without a device: random groups of every op compile, and those of ops that round once have
 * the bits of the CPU's kernels when the same text is compiled for the host. */
#include "tests/harness.h"

#ifdef CT_TEST_FUSED
#include "tests/fused_groups.h"

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
#endif

#ifndef CT_TEST_FUSED
TEST(random_groups_of_every_op_compile) { SKIP("the module for NVIDIA devices is not built here"); }
#endif

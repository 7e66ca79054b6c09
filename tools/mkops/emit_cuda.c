/* Elementwise ops on CUDA: device functions of the formulas, a kernel for each dtype, and the list that the host side finds them by. */
#include <string.h>

#include "mkops.h"

typedef struct element {
    const char *name, *stored, *computed;
} element;

static const element floats[] = {{"f32", "float", "float"},
                                 {"f64", "double", "double"},
                                 {"f16", "__half", "float"},
                                 {"bf16", "__nv_bfloat16", "float"}};
static const element integers[] = {{"i8", "int8_t", "ct_i8"},    {"i16", "int16_t", "ct_i16"},
                                   {"i32", "int32_t", "ct_i32"}, {"i64", "int64_t", "ct_i64"},
                                   {"u8", "uint8_t", "ct_u8"},   {"b8", "uint8_t", "ct_b8"}};
enum { N_FLOATS = sizeof floats / sizeof *floats, N_INTEGERS = sizeof integers / sizeof *integers };

/* Kernels over dense operands, those of any strides, and those of rows along the last dimension. */
typedef enum walk { FLAT, STRIDED, ROWS, WALKS } walk;
static const struct {
    const char *loop, *prefix, *bounds, *arguments, *at;
} walks[WALKS] = {{"flat", "", "__launch_bounds__(256) ", "ct_cuda_flat", "a"},
                  {"strided", "strided_", "", "ct_cuda_elementwise", "a.flat"},
                  {"rows", "rows_", "__launch_bounds__(256, 6) ", "ct_cuda_elementwise", "a.flat"}};

/* Ops of several operands, of which one may broadcast along rows, have a kernel for that besides. */
static bool has_rows(const op_def *op) { return count_inputs(op) > 1 && !op->of; }

static unsigned masks_of(const op_def *op) {
    unsigned masks = 0;
    for (int i = 0; i < op->n_args; i++)
        if (!is_attr(&op->args[i]) && op->args[i].is_mask) masks |= 1u << input_number(op, i);
    return masks;
}

/* How many packs a thread of a dense kernel takes at once. Two, where a formula is long enough to be worth it, and not so long that arithmetic
 * is all that counts; of halves, which have twice as many elements in a pack, two operands would take registers, and threads with them. */
enum { LONG_FORMULA = 25, LONGEST_FORMULA = 70 };
static int packs_of(const op_def *op, const element *e) {
    const int cost = formula_cost(&op->value);
    const bool single = strcmp(e->stored, "float") == 0, half = !single && strcmp(e->computed, "float") == 0;
    return cost >= LONG_FORMULA && cost < LONGEST_FORMULA && (single || (half && count_inputs(op) == 1)) ? 2 : 1;
}

/* One loop over the elements. choice: the value that its enum has, or -1 where the loop asks for each element. */
static void emit_loop(text *t, const op_def *op, const element *e, walk w, int choice) {
    const op_def *names = owner(op);
    put(t, "ct_elementwise_%s<%s, %s, %s, %d, %uu", walks[w].loop, e->stored, e->computed,
        op->bool_result ? "uint8_t" : e->stored, count_inputs(op), masks_of(op));
    if (w == FLAT) put(t, ", %d", packs_of(op, e));
    put(t, ">(a, [&](const ct_values<%s, %d> &v) {\n", e->computed, count_inputs(op));
    put(t, "        return ct_op_%s<%s, %s>(", op->name, e->computed, e->stored);
    for (int i = 0, n = 0; i < op->n_args; i++) {
        if (is_attr(&op->args[i])) continue;
        put(t, op->args[i].is_mask ? "%sv.mask(%d)" : "%sv[%d]", n ? ", " : "", n);
        n++;
    }
    for (int i = 0, n = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        if (!is_attr(arg)) continue;
        if (i == op->value.choice && choice >= 0) put(t, ", %d", choice);
        else if (arg->kind == ARG_ENUM || arg->kind == ARG_INT) put(t, ", (int)%s.attrs[%d]", walks[w].at, n);
        else put(t, ", ct_attribute<%s>::of(%s.attrs[%d])", e->computed, walks[w].at, n);
        if (arg->kind == ARG_OPT && arg->unset) put(t, ", (bool)%s.given[%d]", walks[w].at, n);
        n++;
    }
    put(t, ");\n    });\n");
}

/* Over dense operands each of several formulas has a loop of its own: a branch in it would keep the elements of a pack from being computed side
 * by side. */
static void emit_kernel(text *t, const op_def *op, const element *e, walk w) {
    const formula *f = &op->value;
    put(t, "extern \"C\" __global__ void %s%s_%s%s(const __grid_constant__ %s a) {\n    ", walks[w].bounds, op->name,
        walks[w].prefix, e->name, walks[w].arguments);
    if (f->choice < 0 || w != FLAT) {
        emit_loop(t, op, e, w, -1);
    } else {
        const int attribute = attr_number(op, f->choice);
        for (int i = 0; i < f->n; i++) {
            const bool last = i == f->n - 1;
            if (!last) put(t, "if (ct_is(a.attrs[%d], %d)) ", attribute, i);
            emit_loop(t, op, e, w, i);
            if (!last) put(t, "    else ");
        }
    }
    put(t, "}\n");
}

static unsigned classes_of(const op_def *op) {
    const bool on_floats = op->class != CLASS_INT, on_integers = op->class != CLASS_FLOAT,
               on_bools = op->class == CLASS_ALL || op->class == CLASS_INT;
    return (unsigned)(on_floats + 2 * on_integers + 4 * (on_integers && on_bools) + 8 * (on_floats && has_rows(op)) +
                      16 * (packs_of(op, &floats[0]) == 2));
}

/* Which of its inputs says what is computed in. */
static int typed_input(const op_def *op) {
    int typed = 0;
    while (op->args[typed].is_mask || is_attr(&op->args[typed])) typed++;
    return input_number(op, typed);
}

/* A formula for kernels that are put together when a program runs: what its function takes, and its text. Of its attributes a letter each: an
 * integer, a number, or one that may be missing. */
static void emit_formula_text(text *t, const op_def *op) {
    const op_def *names = owner(op);
    text function = {0};
    put(t, "CT_CUDA_FORMULA(%s, %d, %u, %d, %d, %u, \"", op->name, count_inputs(op), masks_of(op), (int)op->bool_result,
        typed_input(op), classes_of(op));
    for (int i = 0; i < names->n_args; i++) {
        const arg_def *arg = &names->args[i];
        if (is_attr(arg))
            put(t, "%c",
                arg->kind == ARG_ENUM || arg->kind == ARG_INT ? 'i'
                : arg->kind == ARG_OPT && arg->unset          ? 'o'
                                                              : 'n');
    }
    emit_cuda_formula(&function, op);
    put(t, "\",\n    %s)\n", c_string(function.s));
}

void emit_cuda_kernels(const library *lib, const char *out) {
    text parts[ELEMENTWISE_PARTS] = {{0}}, list = {0}, formulas = {0};
    put(&formulas, "/* The elementwise formulas as text: name, inputs, those of them that are masks, whether the "
                   "result is bool, which input is "
                   "typed, classes of dtypes,\n * attributes, function. Written by mkops. */\n");
    put(&list, "/* The elementwise ops in order of name, with the part of the device code they are in. Written by "
               "mkops. */\n");
    for (int i = 0; i < ELEMENTWISE_PARTS; i++)
        put(&parts[i],
            "// Elementwise kernels, part %d of %d. Written by mkops.\n#include "
            "\"backends/cuda/elementwise.cuh\"\n\n",
            i + 1, ELEMENTWISE_PARTS);
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (!op->elementwise) continue;
        const unsigned part = elementwise_part(op->name);
        text *t = &parts[part];
        const unsigned classes = classes_of(op);
        emit_cuda_formula(t, op);
        emit_formula_text(&formulas, op);
        for (walk w = FLAT; w < WALKS; w++) {
            for (int k = 0; (classes & (w == ROWS ? 8 : 1)) && k < N_FLOATS; k++) emit_kernel(t, op, &floats[k], w);
            for (int k = 0; (classes & 2) && k < N_INTEGERS - !(classes & 4) && w != ROWS; k++)
                emit_kernel(t, op, &integers[k], w);
        }
        put(t, "\n");
        put(&list, "CT_CUDA_ELEMENTWISE(%s, %u, %d, %u)\n", op->name, part, typed_input(op), classes);
    }
    for (int i = 0; i < ELEMENTWISE_PARTS; i++) write_if_changed(out, form("gen/cuda/elementwise_%d.cu", i), &parts[i]);
    write_if_changed(out, "gen/cuda/elementwise.inc", &list);
    write_if_changed(out, "gen/cuda/formulas.inc", &formulas);
}

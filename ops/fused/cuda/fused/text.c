/* Writing kernels for fused calls. A kernel runs over the elements of the call, each of which goes through all steps in registers, rounded to
 * the dtype of each value as calls of their own would. A thread takes a pack of neighbours where the shapes allow it; operands that are
 * broadcast or strided are read at the place that their dimensions say, which are constants of the text. */
#include "ops/fused/cuda/fused/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/view.h"
#include "ops/fused/cuda/fused.h"

#include "gen/dropout.attrs.h"

/* ---- Vocabulary ---- */

/* How a dtype is stored and computed in. */
typedef struct type {
    const char *name, *stored, *computed;
    int size;
} type;
enum { TYPES = CT_BOOL + 1 };
static const type types[TYPES] = {
    [CT_F32] = {"CT_F32", "float", "float", 4},    [CT_F64] = {"CT_F64", "double", "double", 8},
    [CT_F16] = {"CT_F16", "__half", "float", 2},   [CT_BF16] = {"CT_BF16", "__nv_bfloat16", "float", 2},
    [CT_I8] = {"CT_I8", "int8_t", "ct_i8", 1},     [CT_I16] = {"CT_I16", "int16_t", "ct_i16", 2},
    [CT_I32] = {"CT_I32", "int32_t", "ct_i32", 4}, [CT_I64] = {"CT_I64", "int64_t", "ct_i64", 8},
    [CT_U8] = {"CT_U8", "uint8_t", "ct_u8", 1},    [CT_BOOL] = {"CT_BOOL", "uint8_t", "ct_b8", 1},
};

typedef struct formula {
    const char *name;
    int inputs;
    unsigned masks;
    bool bool_result;
    int typed;
    unsigned classes;  /* of dtypes: floats, integers, bool, a bit each */
    const char *attrs; /* a letter each: i an integer, n a number, o one that may be missing */
    const char *text;
} formula;
static const formula formulas[] = {
#define CT_CUDA_FORMULA(name, inputs, masks, bool_result, typed, classes, attrs, text) \
    {#name, inputs, masks, bool_result, typed, classes, attrs, text},
#include "gen/cuda/formulas.inc"
#undef CT_CUDA_FORMULA
};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

static const formula *sorted[FORMULAS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b) {
    return strcmp((*(const formula *const *)a)->name, (*(const formula *const *)b)->name);
}
static void sort_formulas(void) {
    for (int i = 0; i < FORMULAS; i++) sorted[i] = &formulas[i];
    qsort(sorted, FORMULAS, sizeof *sorted, by_name);
}

static const formula *formula_of(const ct_op *op) {
    const formula key = {.name = op->name}, *pointer = &key;
    if (!(op->flags & CT_OP_ELEMENTWISE)) return NULL;
    pthread_once(&once, sort_formulas);
    const formula **found = bsearch(&pointer, sorted, FORMULAS, sizeof *sorted, by_name);
    return found ? *found : NULL;
}

static bool takes(const formula *f, ct_dtype dtype) {
    return f->classes & (dtype <= CT_BF16 ? 1u : dtype == CT_BOOL ? 4u : 2u);
}

typedef enum kind { NONE, ELEMENTWISE, CAST, COPY, DROPOUT } kind;

static kind kind_of(const ct_op *op) {
    if (strcmp(op->name, "cast") == 0 || strcmp(op->name, "convert") == 0) return CAST;
    if (strcmp(op->name, "clone") == 0) return COPY;
    if (strcmp(op->name, "dropout_replay") == 0) return DROPOUT;
    return formula_of(op) ? ELEMENTWISE : NONE;
}

/* ---- What can be written ---- */

static const char *elementwise_refusal(const ct_call *call) {
    const formula *f = formula_of(call->op);
    const ct_dtype dtype = call->in[f->typed] ? call->in[f->typed]->dtype : CT_DTYPE_COUNT;
    if (call->n_in != f->inputs || (int)dtype >= TYPES || !takes(f, dtype)) return "an op has no device code for a dtype";
    for (int i = 0; i < call->n_in; i++)
        if (!call->in[i] || call->in[i]->dtype != (f->masks >> i & 1 ? CT_BOOL : dtype))
            return "operands of an op differ";
    return call->out[0]->dtype == (f->bool_result ? CT_BOOL : dtype) ? NULL : "an op has another result";
}

static const char *step_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    const kind what = kind_of(call->op);
    if (what == NONE || call->n_out < 1 || !call->out[0] || step->values[call->n_in] < 0)
        return "it has no text for an op";
    for (int i = 1; i < call->n_out; i++)
        if (call->out[i]) return "an op has two results";
    for (int i = 0; i < call->n_in; i++) {
        const bool position = what == DROPOUT && i == 1;
        if (step->values[i] < 0) {
            if (!call->in[i] || !(call->numbers >> i & 1) || what != ELEMENTWISE) return "an operand is missing";
        } else if (position ? fused->values[step->values[i]].input < 0
                            : fused->values[step->values[i]].count != fused->count) {
            return "an operand has another number of elements";
        }
    }
    if (fused->values[step->values[call->n_in]].count != fused->count) return "a result has another number of elements";
    if (what == DROPOUT && call->in[0]->dtype > CT_BF16) return "dropout is for floats";
    if (what == COPY && call->in[0]->dtype != call->out[0]->dtype) return "a copy changes the dtype";
    return what == ELEMENTWISE ? elementwise_refusal(call) : NULL;
}

const char *ct_fused_refusal(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    if (call->n_in + call->n_out > CT_FUSED_OPERANDS) return "it has too many operands";
    if (fused->count < 1) return "it has no elements";
    for (int i = 0; i < fused->n_values; i++)
        if ((int)fused->values[i].dtype >= TYPES) return "it has no text for a dtype";
    for (int i = 0; i < fused->n_steps; i++) {
        const char *reason = step_refusal(fused, &fused->steps[i]);
        if (reason) return reason;
    }
    return NULL;
}

/* ---- Text ---- */

static void put(ct_fused_text *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int more = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (more >= 0 && t->length + (size_t)more + 1 > t->room && !t->failed) {
        const size_t room = 2 * (t->length + (size_t)more) + 4096;
        char *larger = realloc(t->text, room);
        if (larger) t->text = larger, t->room = room;
        else t->failed = true;
    }
    if (more >= 0 && !t->failed) {
        vsnprintf(t->text + t->length, t->room - t->length, format, again);
        t->length += (size_t)more;
    }
    va_end(again);
}

void ct_fused_text_free(ct_fused_text *t) {
    free(t->text);
    *t = (ct_fused_text){0};
}

/* ---- Operands in memory ---- */

/* How an operand is read or written: its elements in row-major order, by the dimensions that are left when neighbours are joined. */
typedef struct layout {
    int ndim;
    int64_t dims[CT_MAX_DIMS], strides[CT_MAX_DIMS];
    bool dense, single;
    bool wide; /* places do not fit into 31 bits, or a stride is negative */
} layout;

static layout layout_of(const ct_view *view) {
    layout l = {.ndim = 0};
    int64_t reach = 0, expected = 1;
    for (int d = 0; d < view->ndim; d++) {
        if (view->dims[d] == 1) continue;
        const int last = l.ndim - 1;
        const bool joins = last >= 0 && l.strides[last] == view->strides[d] * view->dims[d];
        if (joins) l.dims[last] *= view->dims[d], l.strides[last] = view->strides[d];
        else l.dims[l.ndim] = view->dims[d], l.strides[l.ndim++] = view->strides[d];
    }
    l.dense = l.single = true;
    for (int d = l.ndim - 1; d >= 0; d--) {
        l.dense &= l.strides[d] == expected;
        l.single &= l.strides[d] == 0;
        expected *= l.dims[d];
        reach += (l.dims[d] - 1) * l.strides[d];
        l.wide |= l.strides[d] < 0;
    }
    l.wide |= reach >= INT32_MAX;
    return l;
}

/* A pack of V elements from a multiple of V on lies together, or is one value. */
static bool in_packs(const layout *l, int pack) {
    const int last = l->ndim - 1;
    if (l->dense || l->single) return true;
    if (l->dims[last] % pack || (l->strides[last] != 1 && l->strides[last] != 0)) return false;
    for (int d = 0; d < last && l->strides[last] == 1; d++)
        if (l->strides[d] % pack) return false;
    return true;
}

/* The place of element `e` of operand i. */
static void put_place(ct_fused_text *t, int i, const layout *l) {
    if (l->dense || l->single) return;
    put(t, "CT_DEVICE ct_index place_%d(ct_index e) {\n    ct_index at = 0, whole;\n", i);
    for (int d = l->ndim - 1; d > 0; d--) {
        put(t, "    whole = e / (ct_index)%" PRId64 ";\n", l->dims[d]);
        if (l->strides[d])
            put(t, "    at += (e - whole * (ct_index)%" PRId64 ") * (ct_index)%" PRId64 ";\n", l->dims[d],
                l->strides[d]);
        put(t, "    e = whole;\n");
    }
    put(t, "    return at + e * (ct_index)%" PRId64 ";\n}\n", l->strides[0]);
}

static void put_read(ct_fused_text *t, int value, int operand, const type *of, const layout *l, int pack) {
    put(t, "    ct_pack<%s, V> p%d;\n", of->stored, value);
    if (l->dense) put(t, "    p%d = ct_read<V, %s>(a.at[%d], e);\n", value, of->stored, operand);
    else if (l->single) put(t, "    p%d = ct_splat<V, %s>(a.at[%d], 0);\n", value, of->stored, operand);
    else if (in_packs(l, pack))
        put(t, "    p%d = %s<V, %s>(a.at[%d], place_%d(e));\n", value, l->strides[l->ndim - 1] ? "ct_read" : "ct_splat",
            of->stored, operand, operand);
    else
        put(t, "#pragma unroll\n    for (int k = 0; k < V; k++) p%d.v[k] = ((const %s *)a.at[%d])[place_%d(e + k)];\n",
            value, of->stored, operand, operand);
}

static void put_write(ct_fused_text *t, int value, int operand, const type *of, const layout *l, int pack) {
    if (l->dense) put(t, "    ct_write<V, %s>(a.at[%d], e, q%d);\n", of->stored, operand, value);
    else if (in_packs(l, pack) && l->strides[l->ndim - 1] == 1)
        put(t, "    ct_write<V, %s>(a.at[%d], place_%d(e), q%d);\n", of->stored, operand, operand, value);
    else
        put(t, "#pragma unroll\n    for (int k = 0; k < V; k++) ((%s *)a.at[%d])[place_%d(e + k)] = q%d.v[k];\n",
            of->stored, operand, operand, value);
}

/* ---- Steps ---- */

/* Values are variables of the type that they are computed in, and bool ones bytes. */
static const char *variable_type(ct_dtype dtype) { return dtype == CT_BOOL ? "uint8_t" : types[dtype].computed; }

static void put_loaded(ct_fused_text *t, ct_dtype dtype, const char *format, ...) {
    char stored[96];
    va_list args;
    va_start(args, format);
    vsnprintf(stored, sizeof stored, format, args);
    va_end(args);
    if (dtype == CT_BOOL) put(t, "%s", stored);
    else put(t, "ct_load<%s>(%s)", types[dtype].computed, stored);
}

static uint64_t bits_of(const void *number, size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, number, size);
    return bits;
}

/* Operand i of a step as a value of its variable's type. */
static void put_operand(ct_fused_text *t, const ct_fused_step *step, int i) {
    const ct_dtype dtype = step->call.in[i]->dtype;
    if (step->values[i] >= 0) put(t, "v%d", step->values[i]);
    else
        put_loaded(t, dtype, "ct_from_bits<%s>(0x%" PRIx64 "ull)", types[dtype].stored,
                   bits_of(step->call.in[i]->buffer, (size_t)types[dtype].size));
}

static double attribute(const ct_attr *attr, const void *attrs, bool *given) {
    const void *at = (const char *)attrs + attr->offset;
    *given = true;
    switch (attr->type) {
    case CT_ATTR_INT: return (double)*(const int64_t *)at;
    case CT_ATTR_DOUBLE: return *(const double *)at;
    case CT_ATTR_BOOL: return *(const bool *)at;
    case CT_ATTR_ENUM: return *(const int *)at;
    case CT_ATTR_OPT: *given = ((const ct_opt *)at)->set; return ((const ct_opt *)at)->value;
    default: return 0;
    }
}

static void put_elementwise(ct_fused_text *t, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    const formula *f = formula_of(call->op);
    const ct_dtype dtype = call->in[f->typed]->dtype;
    const type *of = &types[dtype];
    if (f->bool_result) put(t, "(uint8_t)ct_op_%s<%s, %s>(", f->name, of->computed, of->stored);
    else if (dtype == CT_BOOL) put(t, "ct_store<uint8_t>(ct_op_%s<%s, %s>(", f->name, of->computed, of->stored);
    else
        put(t, "ct_load<%s>(ct_store<%s>(ct_op_%s<%s, %s>(", of->computed, of->stored, f->name, of->computed,
            of->stored);
    for (int i = 0; i < f->inputs; i++) {
        if (i) put(t, ", ");
        if (f->masks >> i & 1) put(t, "("), put_operand(t, step, i), put(t, " != 0)");
        else if (dtype == CT_BOOL) put(t, "ct_load<ct_b8>("), put_operand(t, step, i), put(t, ")");
        else put_operand(t, step, i);
    }
    const ct_attr *attr = call->op->attrs;
    for (const char *letter = f->attrs; *letter; letter++, attr++) {
        bool given;
        const double value = attribute(attr, call->attrs, &given);
        if (*letter == 'i') put(t, ", %d", (int)value);
        else put(t, ", ct_attribute<%s>::of(ct_from_bits<double>(0x%" PRIx64 "ull))", of->computed, bits_of(&value, 8));
        if (*letter == 'o') put(t, ", %s", given ? "true" : "false");
    }
    put(t, f->bool_result ? ")" : dtype == CT_BOOL ? "))" : ")))");
}

static void put_cast(ct_fused_text *t, const ct_fused_step *step) {
    const ct_dtype from = step->call.in[0]->dtype, to = step->call.out[0]->dtype;
    char text[160], loaded[64];
    if (from == to) {
        put(t, "v%d", step->values[0]);
        return;
    }
    if (from == CT_BOOL) snprintf(loaded, sizeof loaded, "v%d", step->values[0]);
    else snprintf(loaded, sizeof loaded, "ct_store<%s>(v%d)", types[from].stored, step->values[0]);
    snprintf(text, sizeof text, "ct_of_dtype<%s>::store(ct_of_dtype<%s>::load(%s))", types[to].name, types[from].name,
             loaded);
    if (to == CT_BOOL) put(t, "%s", text);
    else put(t, "ct_load<%s>(%s)", types[to].computed, text);
}

/* As ops/dropout/cuda has it. */
static void put_dropout(ct_fused_text *t, const ct_fused_step *step, int number) {
    const double p = ((const dropout_replay_attrs *)step->call.attrs)->p, threshold = p * 0x1p32;
    const type *of = &types[step->call.in[0]->dtype];
    const bool none = threshold >= 0x1p32;
    const double scale = none ? 0 : 1 / (1 - p);
    put(t,
        "ct_load<%s>(ct_store<%s>(%s && words_%d.v[k] >= %uu ? v%d * (%s)ct_from_bits<double>(0x%" PRIx64
        "ull) : (%s)0))",
        of->computed, of->stored, none ? "false" : "true", number, none ? 0u : (uint32_t)threshold, step->values[0],
        of->computed, bits_of(&scale, 8), of->computed);
}

static void put_step(ct_fused_text *t, const ct_fused *fused, int number) {
    const ct_fused_step *step = &fused->steps[number];
    const ct_call *call = &step->call;
    const int made = step->values[call->n_in];
    put(t, "        const %s v%d = ", variable_type(call->out[0]->dtype), made);
    switch (kind_of(call->op)) {
    case CAST: put_cast(t, step); break;
    case COPY: put(t, "v%d", step->values[0]); break;
    case DROPOUT: put_dropout(t, step, number); break;
    default: put_elementwise(t, step);
    }
    put(t, ";\n");
}

/* ---- The whole ---- */

static bool is_read(const ct_fused *fused, int value) { return fused->values[value].last >= 0; }
static bool is_element(const ct_fused *fused, int value) { return fused->values[value].count == fused->count; }

/* 16 bytes of the smallest float or integer in memory, and for dropout whole blocks of words. */
static int pack_of(const ct_fused *fused) {
    int least = 8, pack;
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        const int size = types[v->dtype].size < 2 ? 4 : types[v->dtype].size;
        if (is_element(fused, i) && (v->input >= 0 || v->output >= 0) && size < least) least = size;
    }
    pack = 16 / least;
    for (int i = 0; i < fused->n_steps; i++)
        if (kind_of(fused->steps[i].call.op) == DROPOUT && pack < 4) pack = 4;
    return pack;
}

static void put_includes(ct_fused_text *t, const ct_fused *fused) {
    bool casts = false, drops = false;
    for (int i = 0; i < fused->n_steps; i++) {
        casts |= kind_of(fused->steps[i].call.op) == CAST;
        drops |= kind_of(fused->steps[i].call.op) == DROPOUT;
    }
    put(t, "#include \"ops/fused/cuda/%s.cuh\"\n", drops ? "dropout" : "fused");
    if (casts) put(t, "#include \"backends/cuda/convert.cuh\"\n");
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_op *op = fused->steps[i].call.op;
        bool before = kind_of(op) != ELEMENTWISE;
        for (int k = 0; k < i && !before; k++) before = fused->steps[k].call.op == op;
        if (!before) put(t, "%s", formula_of(op)->text);
    }
}

static void put_words(ct_fused_text *t, const ct_call *call, const ct_fused *fused) {
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (kind_of(step->call.op) != DROPOUT) continue;
        const int input = fused->values[step->values[1]].input;
        put(t, "    const ct_words<V> words_%d(ct_position_at<%s>(a.at[%d], %" PRId64 "), e);\n", i,
            call->in[input]->dtype == CT_I64 ? "int64_t" : "int32_t", input, call->in[input]->strides[0]);
    }
}

static void put_group(ct_fused_text *t, const ct_call *call, const ct_fused *fused) {
    put(t, "template <int V> CT_DEVICE void group(const ct_fused_arguments &a, const ct_index e) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->input < 0 || !is_read(fused, i) || !is_element(fused, i)) continue;
        const layout l = layout_of(call->in[v->input]);
        put_read(t, i, v->input, &types[v->dtype], &l, t->pack);
    }
    put_words(t, call, fused);
    for (int i = 0; i < fused->n_values; i++)
        if (fused->values[i].output >= 0) put(t, "    ct_pack<%s, V> q%d;\n", types[fused->values[i].dtype].stored, i);
    put(t, "#pragma unroll\n    for (int k = 0; k < V; k++) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->input < 0 || !is_read(fused, i) || !is_element(fused, i)) continue;
        put(t, "        const %s v%d = ", variable_type(v->dtype), i);
        put_loaded(t, v->dtype, "p%d.v[k]", i);
        put(t, ";\n");
    }
    for (int i = 0; i < fused->n_steps; i++) put_step(t, fused, i);
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->output < 0) continue;
        if (v->dtype == CT_BOOL) put(t, "        q%d.v[k] = v%d;\n", i, i);
        else put(t, "        q%d.v[k] = ct_store<%s>(v%d);\n", i, types[v->dtype].stored, i);
    }
    put(t, "    }\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->output < 0) continue;
        const layout l = layout_of(call->out[v->output]);
        put_write(t, i, call->n_in + v->output, &types[v->dtype], &l, t->pack);
    }
    put(t, "}\n");
}

bool ct_fused_write(const ct_call *call, ct_fused_text *t) {
    const ct_fused *fused = call->attrs;
    bool wide = fused->count >= INT32_MAX;
    *t = (ct_fused_text){.pack = pack_of(fused)};
    put_includes(t, fused);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (view) wide |= layout_of(view).wide;
    }
    put(t, "typedef %s ct_index;\n", wide ? "int64_t" : "uint32_t");
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (!view) continue;
        const layout l = layout_of(view);
        put_place(t, i, &l);
    }
    put_group(t, call, fused);
    put(t,
        "extern \"C\" __global__ void __launch_bounds__(256) fused(const __grid_constant__ ct_fused_arguments a) {\n"
        "    if (ct_does_nothing(a.head)) return;\n"
        "    const int64_t count = %" PRId64 ", first = ct_first(), step = ct_step();\n"
        "    const int64_t packs = a.packed ? count / %d : 0;\n"
        "    for (int64_t p = first; p < packs; p += step) group<%d>(a, (ct_index)(p * %d));\n"
        "    for (int64_t e = packs * %d + first; e < count; e += step) group<1>(a, (ct_index)e);\n"
        "}\n",
        fused->count, t->pack, t->pack, t->pack, t->pack);
    return !t->failed;
}

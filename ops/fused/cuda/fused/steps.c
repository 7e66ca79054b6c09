/* The steps of fused kernels: which there are, and each as an expression. A value is rounded to its dtype as a call of its own would leave it. */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/fused/cuda/fused.h"
#include "ops/fused/cuda/fused/writer.h"

#include "gen/dropout.attrs.h"

/* ---- Vocabulary ---- */

const ct_fused_type ct_fused_types[CT_FUSED_TYPES] = {
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

const char *ct_fused_formula(const ct_op *op) { return formula_of(op)->text; }

static bool takes(const formula *f, ct_dtype dtype) {
    return f->classes & (dtype <= CT_BF16 ? 1u : dtype == CT_BOOL ? 4u : 2u);
}

ct_fused_kind ct_fused_kind_of(const ct_op *op) {
    if (strcmp(op->name, "row_norm") == 0) return CT_FUSED_ROW_NORM;
    if (strcmp(op->name, "row_norm_grad") == 0) return CT_FUSED_ROW_NORM_GRAD;
    if (strcmp(op->name, "cast") == 0 || strcmp(op->name, "convert") == 0) return CT_FUSED_CAST;
    if (strcmp(op->name, "clone") == 0) return CT_FUSED_COPY;
    if (strcmp(op->name, "dropout_replay") == 0) return CT_FUSED_DROPOUT;
    return formula_of(op) ? CT_FUSED_ELEMENTWISE : CT_FUSED_NONE;
}

/* ---- What can be written ---- */

static const char *elementwise_refusal(const ct_call *call) {
    const formula *f = formula_of(call->op);
    const ct_dtype dtype = call->in[f->typed] ? call->in[f->typed]->dtype : CT_DTYPE_COUNT;
    if (call->n_in != f->inputs || (int)dtype >= CT_FUSED_TYPES || !takes(f, dtype))
        return "an op has no device code for a dtype";
    for (int i = 0; i < call->n_in; i++)
        if (!call->in[i] || call->in[i]->dtype != (f->masks >> i & 1 ? CT_BOOL : dtype))
            return "operands of an op differ";
    return call->out[0]->dtype == (f->bool_result ? CT_BOOL : dtype) ? NULL : "an op has another result";
}

static const char *operand_refusal(const ct_fused *fused, const ct_fused_step *step, int i, ct_fused_kind what) {
    const ct_call *call = &step->call;
    if (step->values[i] < 0)
        return call->in[i] && (call->numbers >> i & 1) && what == CT_FUSED_ELEMENTWISE ? NULL : "an operand is missing";
    const ct_fused_value *value = &fused->values[step->values[i]];
    if (what == CT_FUSED_DROPOUT && i == 1) return value->input < 0 ? "a position is no input" : NULL;
    return value->count == fused->count ? NULL : "an operand has another number of elements";
}

static const char *step_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    const ct_fused_kind what = ct_fused_kind_of(call->op);
    if (what == CT_FUSED_NONE || call->n_out < 1 || !call->out[0] || step->values[call->n_in] < 0)
        return "it has no text for an op";
    if (fused->values[step->values[call->n_in]].count != fused->count) return "a result has another number of elements";
    if (ct_fused_is_row(step)) return ct_fused_row_step_refusal(fused, step);
    for (int i = 1; i < call->n_out; i++)
        if (call->out[i]) return "an op has two results";
    for (int i = 0; i < call->n_in; i++) {
        const char *reason = operand_refusal(fused, step, i, what);
        if (reason) return reason;
    }
    if (what == CT_FUSED_DROPOUT && call->in[0]->dtype > CT_BF16) return "dropout is for floats";
    if (what == CT_FUSED_COPY && call->in[0]->dtype != call->out[0]->dtype) return "a copy changes the dtype";
    return what == CT_FUSED_ELEMENTWISE ? elementwise_refusal(call) : NULL;
}

const char *ct_fused_refusal(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    bool rows = false;
    if (call->n_in + call->n_out > CT_FUSED_OPERANDS) return "it has too many operands";
    if (fused->count < 1) return "it has no elements";
    for (int i = 0; i < fused->n_values; i++)
        if ((int)fused->values[i].dtype >= CT_FUSED_TYPES) return "it has no text for a dtype";
    for (int i = 0; i < fused->n_steps; i++) {
        const char *reason = step_refusal(fused, &fused->steps[i]);
        if (reason) return reason;
        rows |= ct_fused_is_row(&fused->steps[i]);
    }
    return rows ? ct_fused_rows_refusal(fused) : NULL;
}

/* ---- Text ---- */

void ct_fused_put(ct_fused_text *t, const char *format, ...) {
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

/* ---- Steps ---- */

/* Values are variables of the type that they are computed in, and bool ones bytes. */
const char *ct_fused_variable(ct_dtype dtype) { return dtype == CT_BOOL ? "uint8_t" : ct_fused_types[dtype].computed; }

void ct_fused_put_loaded(ct_fused_text *t, ct_dtype dtype, const char *format, ...) {
    char stored[96];
    va_list args;
    va_start(args, format);
    vsnprintf(stored, sizeof stored, format, args);
    va_end(args);
    if (dtype == CT_BOOL) ct_fused_put(t, "%s", stored);
    else ct_fused_put(t, "ct_load<%s>(%s)", ct_fused_types[dtype].computed, stored);
}

static uint64_t bits_of(const void *number, size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, number, size);
    return bits;
}

/* Operand i of a step as a value of its variable's type. */
static void put_operand(ct_fused_text *t, const ct_fused_step *step, int i) {
    const ct_dtype dtype = step->call.in[i]->dtype;
    if (step->values[i] >= 0) ct_fused_put(t, "v%d", step->values[i]);
    else
        ct_fused_put_loaded(t, dtype, "ct_from_bits<%s>(0x%" PRIx64 "ull)", ct_fused_types[dtype].stored,
                            bits_of(step->call.in[i]->buffer, (size_t)ct_fused_types[dtype].size));
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
    const ct_fused_type *of = &ct_fused_types[dtype];
    if (f->bool_result) ct_fused_put(t, "(uint8_t)ct_op_%s<%s, %s>(", f->name, of->computed, of->stored);
    else if (dtype == CT_BOOL)
        ct_fused_put(t, "ct_store<uint8_t>(ct_op_%s<%s, %s>(", f->name, of->computed, of->stored);
    else
        ct_fused_put(t, "ct_load<%s>(ct_store<%s>(ct_op_%s<%s, %s>(", of->computed, of->stored, f->name, of->computed,
                     of->stored);
    for (int i = 0; i < f->inputs; i++) {
        if (i) ct_fused_put(t, ", ");
        if (f->masks >> i & 1) ct_fused_put(t, "("), put_operand(t, step, i), ct_fused_put(t, " != 0)");
        else if (dtype == CT_BOOL) ct_fused_put(t, "ct_load<ct_b8>("), put_operand(t, step, i), ct_fused_put(t, ")");
        else put_operand(t, step, i);
    }
    const ct_attr *attr = call->op->attrs;
    for (const char *letter = f->attrs; *letter; letter++, attr++) {
        bool given;
        const double value = attribute(attr, call->attrs, &given);
        if (*letter == 'i') ct_fused_put(t, ", %d", (int)value);
        else
            ct_fused_put(t, ", ct_attribute<%s>::of(ct_from_bits<double>(0x%" PRIx64 "ull))", of->computed,
                         bits_of(&value, 8));
        if (*letter == 'o') ct_fused_put(t, ", %s", given ? "true" : "false");
    }
    ct_fused_put(t, f->bool_result ? ")" : dtype == CT_BOOL ? "))" : ")))");
}

static void put_cast(ct_fused_text *t, const ct_fused_step *step) {
    const ct_dtype from = step->call.in[0]->dtype, to = step->call.out[0]->dtype;
    char text[160], loaded[64];
    if (from == to) {
        ct_fused_put(t, "v%d", step->values[0]);
        return;
    }
    if (from == CT_BOOL) snprintf(loaded, sizeof loaded, "v%d", step->values[0]);
    else snprintf(loaded, sizeof loaded, "ct_store<%s>(v%d)", ct_fused_types[from].stored, step->values[0]);
    snprintf(text, sizeof text, "ct_of_dtype<%s>::store(ct_of_dtype<%s>::load(%s))", ct_fused_types[to].name,
             ct_fused_types[from].name, loaded);
    if (to == CT_BOOL) ct_fused_put(t, "%s", text);
    else ct_fused_put(t, "ct_load<%s>(%s)", ct_fused_types[to].computed, text);
}

/* As ops/dropout/cuda has it. */
static void put_dropout(ct_fused_text *t, const ct_fused_step *step, int number) {
    const double p = ((const dropout_replay_attrs *)step->call.attrs)->p, threshold = p * 0x1p32;
    const ct_fused_type *of = &ct_fused_types[step->call.in[0]->dtype];
    const bool none = threshold >= 0x1p32;
    const double scale = none ? 0 : 1 / (1 - p);
    ct_fused_put(t,
                 "ct_load<%s>(ct_store<%s>(%s && words_%d.v[k] >= %uu ? v%d * (%s)ct_from_bits<double>(0x%" PRIx64
                 "ull) : (%s)0))",
                 of->computed, of->stored, none ? "false" : "true", number, none ? 0u : (uint32_t)threshold,
                 step->values[0], of->computed, bits_of(&scale, 8), of->computed);
}

void ct_fused_put_step(ct_fused_text *t, const ct_fused *fused, int number) {
    const ct_fused_step *step = &fused->steps[number];
    const ct_call *call = &step->call;
    const int made = step->values[call->n_in];
    ct_fused_put(t, "        const %s v%d = ", ct_fused_variable(call->out[0]->dtype), made);
    switch (ct_fused_kind_of(call->op)) {
    case CT_FUSED_CAST: put_cast(t, step); break;
    case CT_FUSED_COPY: ct_fused_put(t, "v%d", step->values[0]); break;
    case CT_FUSED_DROPOUT: put_dropout(t, step, number); break;
    default: put_elementwise(t, step);
    }
    ct_fused_put(t, ";\n");
}

/* The steps of fused kernels: which there are, and each as an expression. A value is rounded to its dtype as a call
 * of its own would leave it, and ct_opaque keeps the arithmetic of two steps apart, which a compiler would fuse or
 * reorder. */
#include <inttypes.h>
#include <stdio.h>

#include "backends/webgpu/elementwise.h"
#include "ops/cast/webgpu/cast.h"
#include "ops/create/webgpu/create.h"
#include "ops/fused/webgpu/text/writer.h"

#include "gen/dropout.attrs.h"

ct_wgpu_fused_kind ct_wgpu_fused_kind_of(const ct_call *call) {
    static const struct {
        const char *name;
        ct_wgpu_fused_kind kind;
    } named[] = {
        {"cast", CT_WGPU_CAST},
        {"convert", CT_WGPU_CAST},
        {"clone", CT_WGPU_COPY},
        {"dropout_draw", CT_WGPU_DRAW},
        {"dropout_replay", CT_WGPU_REPLAY},
        {"softmax", CT_WGPU_ROW},
        {"log_softmax", CT_WGPU_ROW},
        {"softmax_grad", CT_WGPU_ROW},
        {"log_softmax_grad", CT_WGPU_ROW},
        {"log_softmax_half_grad", CT_WGPU_ROW},
        {"row_norm", CT_WGPU_ROW_NORM},
        {"row_norm_grad", CT_WGPU_ROW_NORM_GRAD},
    };
    uint32_t bits[2];
    if ((call->op->flags & CT_OP_ELEMENTWISE) && ct_wgpu_formula_of(call->op)) return CT_WGPU_ELEMENTWISE;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(call->op->name, named[i].name) == 0) return named[i].kind;
    return ct_wgpu_filled_with(call, bits) ? CT_WGPU_FILL : CT_WGPU_NO_STEP;
}

int ct_wgpu_step_cost(const ct_fused_step *step) {
    const ct_wgpu_formula *formula = ct_wgpu_formula_of(step->call.op);
    return formula ? formula->cost : ct_wgpu_is_dropout(step) ? 20 : 4;
}

/* ---- What steps read and make ---- */

bool ct_wgpu_takes_elements(const ct_fused_step *step, int i) {
    switch (ct_wgpu_fused_kind_of(&step->call)) {
    case CT_WGPU_FILL: return false;
    case CT_WGPU_REPLAY:
    case CT_WGPU_ROW_NORM: return i == 0;
    case CT_WGPU_ROW_NORM_GRAD: return i < 2;
    default: return true;
    }
}

bool ct_wgpu_step_reads(const ct_fused_step *step, int value) {
    for (int i = 0; i < step->call.n_in; i++)
        if (step->values[i] == value && ct_wgpu_takes_elements(step, i)) return true;
    return false;
}

bool ct_wgpu_is_beside(const ct_fused *fused, int value) {
    const int made = fused->values[value].made;
    return made >= 0 && fused->steps[made].values[fused->steps[made].call.n_in] != value;
}

/* ---- What can be written ---- */

static const char *elementwise_refusal(const ct_call *call) {
    const ct_wgpu_formula *f = ct_wgpu_formula_of(call->op);
    if (!call->in[f->typed] || !ct_wgpu_formula_takes(f, call->in[f->typed]->dtype))
        return "an op has no device code for a dtype";
    for (int i = 0; i < call->n_in; i++)
        if (!call->in[i] || call->in[i]->dtype != (i == f->mask ? CT_BOOL : call->in[f->typed]->dtype))
            return "operands of an op differ";
    return NULL;
}

/* Three integers in memory, or those of another step. */
static const char *position_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_view *view = step->call.in[1];
    const int value = step->values[1];
    if (value < 0 || !view || view->ndim != 1 || view->dims[0] != 3) return "a position is missing";
    if (view->dtype != CT_I64 && view->dtype != CT_I32) return "a position is of another dtype";
    if (fused->values[value].input >= 0) return NULL;
    const ct_fused_step *maker = &fused->steps[fused->values[value].made];
    return ct_wgpu_is_beside(fused, value) && ct_wgpu_fused_kind_of(&maker->call) == CT_WGPU_DRAW
               ? NULL
               : "a position is computed by a step";
}

static const char *operand_refusal(const ct_fused *fused, const ct_fused_step *step, int i) {
    const ct_call *call = &step->call;
    const int value = step->values[i];
    if (!ct_wgpu_takes_elements(step, i)) return NULL;
    if (value < 0)
        return call->in[i] && (call->numbers >> i & 1) && ct_wgpu_fused_kind_of(call) == CT_WGPU_ELEMENTWISE
                   ? NULL
                   : "an operand is missing";
    if (fused->values[value].count != fused->count) return "an operand has another number of elements";
    return ct_wgpu_is_beside(fused, value) ? "a few numbers are taken for elements" : NULL;
}

const char *ct_wgpu_step_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    const ct_wgpu_fused_kind kind = ct_wgpu_fused_kind_of(call);
    if (kind == CT_WGPU_NO_STEP || call->n_out < 1 || !call->out[0] || step->values[call->n_in] < 0)
        return "it has no text for an op";
    if (fused->values[step->values[call->n_in]].count != fused->count) return "a result has another number of elements";
    for (int i = 0; i < call->n_in; i++) {
        const char *reason = operand_refusal(fused, step, i);
        if (reason) return reason;
    }
    if (kind >= CT_WGPU_ROW) return ct_wgpu_row_refusal(fused, step);
    for (int i = 1; i < call->n_out; i++)
        if (call->out[i] && kind != CT_WGPU_DRAW) return "an op has two results";
    if (ct_wgpu_is_dropout(step) && call->in[0]->dtype > CT_BF16) return "dropout is for floats";
    switch (kind) {
    case CT_WGPU_ELEMENTWISE: return elementwise_refusal(call);
    case CT_WGPU_COPY: return call->in[0]->dtype != call->out[0]->dtype ? "a copy changes the dtype" : NULL;
    case CT_WGPU_REPLAY: return position_refusal(fused, step);
    default: return NULL;
    }
}

/* ---- Values ---- */

static bool is_wide(ct_dtype dtype) { return ct_wgpu_dtype_size(dtype) == 8; }

const char *ct_wgpu_variable(ct_dtype dtype) { return is_wide(dtype) ? "vec2<u32>" : ct_wgpu_type_of(dtype); }

const char *ct_wgpu_four(ct_dtype dtype) {
    return is_wide(dtype) ? "array<vec2<u32>, 4>" : dtype <= CT_BF16 ? "vec4<f32>" : "vec4<i32>";
}

/* Of bits in a text, as they are stored. */
static void put_of_bits(ct_wgpu_writer *w, ct_dtype dtype, const char *bits) {
    if (is_wide(dtype)) ct_wgpu_put(&w->t, "%s", bits);
    else ct_wgpu_put(&w->t, "d%d_unpack((%s).x, 0u)", dtype, bits);
}

void ct_wgpu_put_rounding(ct_wgpu_writer *w, ct_dtype dtype, const char *number) {
    const bool whole = ct_wgpu_dtype_size(dtype) >= 4 || dtype == CT_BOOL;
    if (dtype == CT_F32) ct_wgpu_put(&w->t, "ct_opaque(%s)", number);
    else if (whole) ct_wgpu_put(&w->t, "%s", number);
    else ct_wgpu_put(&w->t, "d%d_unpack(d%d_bits(%s), 0u)", dtype, dtype, number);
}

/* ---- Elementwise ops ---- */

/* Words of f32 are those of the launch. */
static void put_on(ct_wgpu_writer *w, const char *s, size_t n, ct_wgpu_words words) {
    if (words == CT_WGPU_F32) ct_wgpu_put_bytes(&w->t, s, n);
    else ct_wgpu_put_on(&w->t, s, n, words);
}

static ct_wgpu_words words_of(const ct_call *call) {
    return ct_wgpu_words_of(call->in[ct_wgpu_formula_of(call->op)->typed]->dtype);
}

static ct_wgpu_attributes attributes_of(const ct_call *call) {
    ct_wgpu_attributes a;
    memset(&a, 0, sizeof a);
    ct_wgpu_attributes_of(call, call->in[ct_wgpu_formula_of(call->op)->typed]->dtype, &a);
    return a;
}

/* The first step whose function does the same: that one is called. */
static int function_of(const ct_fused *fused, int number) {
    const ct_call *call = &fused->steps[number].call;
    const ct_wgpu_attributes a = attributes_of(call);
    for (int i = 0; i < number; i++) {
        const ct_call *other = &fused->steps[i].call;
        if (other->op != call->op || words_of(other) != words_of(call)) continue;
        const ct_wgpu_attributes b = attributes_of(other);
        if (memcmp(&a, &b, sizeof a) == 0) return i;
    }
    return number;
}

/* The op's formula, under a name of its own, in which p and CHOICE are those of the call. To a compiler attributes
 * and numbers are no constants, as they are none in the kernel of the op: it would compute in another order with
 * them. */
static void put_formula(ct_wgpu_writer *w, int number) {
    static const char name[] = "fn formula";
    const ct_call *call = &w->fused->steps[number].call;
    const ct_wgpu_formula *f = ct_wgpu_formula_of(call->op);
    const ct_wgpu_words words = words_of(call);
    const char *from = f->text + sizeof name - 1, *body = strchr(from, '\n') + 1;
    const ct_wgpu_attributes a = attributes_of(call);
    ct_wgpu_put(&w->t, "fn step_%d", number);
    put_on(w, from, (size_t)(body - from), words);
    if (strstr(body, "p.attrs") || strstr(body, "p.given") || strstr(body, "p.highest"))
        ct_wgpu_put(&w->t,
                    "    let p = Attributes(array<vec4<u32>, 2>(vec4<u32>(%uu, %uu, %uu, %uu) ^ vec4<u32>(p.ct_zero), "
                    "vec4<u32>(%uu, %uu, %uu, %uu) ^ vec4<u32>(p.ct_zero)), %uu ^ p.ct_zero, ct_opaque(%af));\n",
                    a.attrs[0][0], a.attrs[0][1], a.attrs[1][0], a.attrs[1][1], a.attrs[2][0], a.attrs[2][1],
                    a.attrs[3][0], a.attrs[3][1], a.given, (double)a.highest);
    if (f->choice >= 0) ct_wgpu_put(&w->t, "    const CHOICE = %uu;\n", a.attrs[f->choice][0]);
    put_on(w, body, strlen(body), words);
}

static void put_operand(ct_wgpu_writer *w, const ct_fused_step *step, int i) {
    const ct_call *call = &step->call;
    const ct_wgpu_formula *f = ct_wgpu_formula_of(call->op);
    uint32_t words[2] = {0};
    char text[96];
    if (step->values[i] >= 0) {
        ct_wgpu_put(&w->t, i == f->mask ? "v%d != 0" : "v%d", step->values[i]);
        return;
    }
    ct_wgpu_number_words(words, call->in[i]->dtype, call->in[i]->buffer);
    if (i == f->mask) {
        ct_wgpu_put(&w->t, words[0] ? "true" : "false");
        return;
    }
    const int length =
        snprintf(text, sizeof text, "ct_from_words(vec2<u32>(%uu, %uu) ^ vec2<u32>(p.ct_zero))", words[0], words[1]);
    put_on(w, text, (size_t)length, words_of(call));
}

/* A mask and five numbers, of which the op may have fewer. */
static void put_elementwise(ct_wgpu_writer *w, int number) {
    const ct_fused_step *step = &w->fused->steps[number];
    const ct_wgpu_formula *f = ct_wgpu_formula_of(step->call.op);
    ct_wgpu_put(&w->t, "step_%d(", function_of(w->fused, number));
    if (f->mask >= 0) put_operand(w, step, f->mask);
    else ct_wgpu_put(&w->t, "false");
    for (int i = f->typed; i < f->typed + 5; i++) {
        ct_wgpu_put(&w->t, ", ");
        if (i < step->call.n_in) put_operand(w, step, i);
        else ct_wgpu_put(&w->t, "%s()", ct_wgpu_variable(step->call.in[f->typed]->dtype));
    }
    ct_wgpu_put(&w->t, ")");
}

/* ---- Others ---- */

static void put_cast(ct_wgpu_writer *w, const ct_fused_step *step) {
    const ct_dtype from = step->call.in[0]->dtype, to = step->call.out[0]->dtype;
    char value[32], bits[64], text[256];
    snprintf(value, sizeof value, "v%d", step->values[0]);
    if (from == to) {
        ct_wgpu_put(&w->t, "%s", value);
        return;
    }
    if (is_wide(from)) snprintf(bits, sizeof bits, "%s", value);
    else snprintf(bits, sizeof bits, "vec2<u32>(d%d_bits(%s), 0u)", from, value);
    ct_wgpu_put_conversion(text, sizeof text, from, to, bits, from <= CT_BF16 ? value : NULL);
    put_of_bits(w, to, text);
}

static void put_fill(ct_wgpu_writer *w, const ct_call *call) {
    uint32_t bits[2] = {0};
    char text[64];
    ct_wgpu_filled_with(call, bits);
    snprintf(text, sizeof text, "vec2<u32>(%uu, %uu)", bits[0], bits[1]);
    put_of_bits(w, call->out[0]->dtype, text);
}

/* As ops/dropout/webgpu has it: an element is kept where its word is at least p 2^32. */
static void put_dropout(ct_wgpu_writer *w, int number) {
    const ct_fused_step *step = &w->fused->steps[number];
    const double chance = ct_wgpu_fused_kind_of(&step->call) == CT_WGPU_DRAW
                              ? ((const dropout_draw_attrs *)step->call.attrs)->p
                              : ((const dropout_replay_attrs *)step->call.attrs)->p;
    const double threshold = chance * 0x1p32;
    char text[128];
    if (threshold >= 0x1p32) snprintf(text, sizeof text, "0.0"); /* it is 1, or as good as */
    else
        snprintf(text, sizeof text, "select(v%d * %af, 0.0, r%d < %uu)", step->values[0],
                 (double)(float)(1 / (1 - chance)), number, (uint32_t)threshold);
    ct_wgpu_put_rounding(w, step->call.out[0]->dtype, text);
}

void ct_wgpu_put_step(ct_wgpu_writer *w, int number) {
    const ct_fused_step *step = &w->fused->steps[number];
    const ct_call *call = &step->call;
    const int made = step->values[call->n_in];
    const ct_dtype dtype = call->out[0]->dtype;
    char name[32];
    switch (ct_wgpu_fused_kind_of(call)) {
    case CT_WGPU_CAST:
        ct_wgpu_put(&w->t, "    let v%d = ", made);
        put_cast(w, step);
        break;
    case CT_WGPU_COPY: ct_wgpu_put(&w->t, "    let v%d = v%d", made, step->values[0]); break;
    case CT_WGPU_FILL:
        ct_wgpu_put(&w->t, "    let v%d = ", made);
        put_fill(w, call);
        break;
    case CT_WGPU_DRAW:
    case CT_WGPU_REPLAY:
        ct_wgpu_put(&w->t, "    let v%d = ", made);
        put_dropout(w, number);
        break;
    default:
        ct_wgpu_put(&w->t, "    let c%d = ", number);
        put_elementwise(w, number);
        snprintf(name, sizeof name, "c%d", number);
        ct_wgpu_put(&w->t, ";\n    let v%d = ", made);
        ct_wgpu_put_rounding(w, dtype, name);
    }
    ct_wgpu_put(&w->t, ";\n");
}

/* ---- Functions ---- */

/* Which of the positions in Params a step that draws has. */
static int draw_number(const ct_fused *fused, int step) {
    int n = 0;
    for (int i = 0; i < step; i++) n += ct_wgpu_fused_kind_of(&fused->steps[i].call) == CT_WGPU_DRAW;
    return n;
}

/* The position of a step's words. */
static void put_position(ct_wgpu_writer *w, int number) {
    const ct_fused_step *step = &w->fused->steps[number];
    const bool replays = ct_wgpu_fused_kind_of(&step->call) == CT_WGPU_REPLAY;
    const ct_fused_value *value = replays ? &w->fused->values[step->values[1]] : NULL;
    ct_wgpu_put(&w->t, "fn position_%d() -> ct_position {\n    return ct_position(", number);
    if (value && value->input >= 0) {
        const ct_view *view = w->call->in[value->input];
        const int operand = ct_wgpu_operand_number(w, value->input);
        for (int i = 0; i < 3; i++)
            ct_wgpu_put(&w->t, view->dtype == CT_I64 ? "%so%d_load(%uu)" : "%sct_i64_from_i32(o%d_load(%uu))",
                        i ? ", " : "", operand, (uint32_t)(i * view->strides[0]));
    } else {
        const int draw = draw_number(w->fused, value ? value->made : number);
        ct_wgpu_put(&w->t, "p.draws[%d].xy, p.draws[%d].zw, p.draws[%d].xy", 2 * draw, 2 * draw, 2 * draw + 1);
    }
    ct_wgpu_put(&w->t, ");\n}\n");
}

void ct_wgpu_put_positions(ct_wgpu_writer *w) {
    for (int s = 0; s < w->fused->n_steps; s++) {
        const ct_fused_step *step = &w->fused->steps[s];
        if (ct_wgpu_fused_kind_of(&step->call) != CT_WGPU_DRAW || step->call.n_out < 2 || !step->call.out[1]) continue;
        const int output = w->fused->values[step->values[step->call.n_in + 1]].output;
        if (output < 0) continue;
        const int operand = ct_wgpu_operand_number(w, w->call->n_in + output), draw = 2 * draw_number(w->fused, s);
        const uint32_t stride = (uint32_t)w->call->out[output]->strides[0];
        ct_wgpu_put(&w->t,
                    "    if (i == 0u) {\n        o%d_store(0u, p.draws[%d].xy);\n        o%d_store(%uu, "
                    "p.draws[%d].zw);\n        o%d_store(%uu, p.draws[%d].xy);\n    }\n",
                    operand, draw, operand, stride, draw, operand, 2 * stride, draw + 1);
    }
}

void ct_wgpu_put_functions(ct_wgpu_writer *w) {
    uint32_t dtypes = 0;
    ct_wgpu_put(&w->t, "struct Attributes {\n    attrs: array<vec4<u32>, 2>,\n    given: u32,\n    highest: f32,\n}\n");
    for (int i = 0; i < w->fused->n_values; i++) {
        const ct_dtype dtype = w->fused->values[i].dtype;
        char name[16];
        snprintf(name, sizeof name, "d%d", dtype);
        if (!(dtypes >> dtype & 1)) ct_wgpu_put_coding(&w->t, name, dtype);
        dtypes |= 1u << dtype;
    }
    for (int i = 0; i < w->fused->n_steps; i++) {
        const ct_fused_step *step = &w->fused->steps[i];
        if (ct_wgpu_is_dropout(step)) put_position(w, i);
        if (ct_wgpu_fused_kind_of(&step->call) == CT_WGPU_ELEMENTWISE && function_of(w->fused, i) == i)
            put_formula(w, i);
    }
}

/* The host side of elementwise ops: which loop a call runs in, and its arguments. It is called for every small step of a program, so the
 * way of operands that all lie alike is short. */
#include "backends/webgpu/elementwise.h"

#include <math.h>
#include <stdlib.h>

enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4 };
/* The operands of the loops: output, mask and five numbers. */
enum { Y, MASK, TYPED, OPERANDS = 7, INPUTS = OPERANDS - 1, THREADS = 256 };
/* From so many elements on speed counts, below it how fast a shader compiles: costly formulas are then in it but once. */
enum { LONG = 1 << 20, COSTLY = 8 };
static const char *const names[OPERANDS] = {"y", "m", "a", "b", "c", "d", "e"};

static const ct_wgpu_formula entries[] = {
#define CT_WGPU_ELEMENTWISE(op, typed, mask, classes, cost, choice, formula) \
    {#op, typed, mask, classes, cost, choice, formula},
#include "gen/webgpu/elementwise.inc"
#undef CT_WGPU_ELEMENTWISE
};

static const ct_wgpu_formula **by_index; /* by the op's number */
static int index_count;

bool ct_wgpu_elementwise_start(void) {
    if (by_index) return true;
    index_count = ct_wgpu_host->op_count() + 1;
    by_index = calloc((size_t)index_count, sizeof *by_index);
    if (!by_index) return false;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const ct_op *op = ct_wgpu_host->op_find(entries[i].name);
        if (op) by_index[op->slot->index] = &entries[i];
    }
    return true;
}

const ct_wgpu_formula *ct_wgpu_formula_of(const ct_op *op) {
    return op->slot->index < index_count ? by_index[op->slot->index] : NULL;
}

bool ct_wgpu_formula_takes(const ct_wgpu_formula *f, ct_dtype dtype) {
    const unsigned class = dtype <= CT_BF16 ? FLOATS : dtype == CT_BOOL ? BOOLS : INTEGERS;
    return dtype <= CT_BOOL && f->classes & class;
}

static const char *can(const ct_call *call) {
    const ct_wgpu_formula *f = ct_wgpu_formula_of(call->op);
    if (!ct_wgpu_formula_takes(f, call->in[f->typed]->dtype)) return "it has no device code for this dtype";
    return ct_wgpu_refuses(call);
}

/* ---- Values that the host has ---- */

typedef struct values {
    uint32_t total, single; /* single: bit k of input k of the loop */
    ct_wgpu_attributes of_call;
    uint32_t numbers[INPUTS][2];
} values;

static uint32_t f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void put_integer(uint32_t words[2], int64_t x) {
    words[0] = (uint32_t)x;
    words[1] = (uint32_t)((uint64_t)x >> 32);
}

static uint32_t f16_to_f32(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
    return sign |
           f32_bits(magnitude < 0x400 ? (float)magnitude * 0x1p-24f
                                      : ldexpf((float)(0x400 | (magnitude & 0x3ff)), (int)(magnitude >> 10) - 25));
}

void ct_wgpu_number_words(uint32_t words[2], ct_dtype dtype, const void *number) {
    union {
        uint16_t u16;
        int16_t i16;
        int32_t i32;
        int64_t i64;
    } v;
    memcpy(&v, number, sizeof v);
    const int8_t byte = *(const int8_t *)number;
    switch (dtype) {
    case CT_F16: words[0] = f16_to_f32(v.u16); break;
    case CT_BF16: words[0] = (uint32_t)v.u16 << 16; break;
    case CT_I64: put_integer(words, v.i64); break;
    case CT_I16: put_integer(words, v.i16); break;
    case CT_I8: put_integer(words, byte); break;
    case CT_U8: put_integer(words, (uint8_t)byte); break;
    case CT_BOOL: put_integer(words, byte != 0); break;
    default: words[0] = (uint32_t)v.i32; break; /* i32 and f32: their bits */
    }
}

/* An attribute in the type that is computed in; integers saturate, and a bound of bool is 0 or 1. */
static void put_attribute(uint32_t words[2], ct_dtype dtype, double x) {
    static const int bits[] = {[CT_I8] = 7, [CT_I16] = 15, [CT_I32] = 31, [CT_I64] = 63, [CT_U8] = 8};
    if (dtype <= CT_BF16) {
        words[0] = f32_bits((float)x);
    } else if (dtype == CT_BOOL) {
        words[0] = x > 0;
    } else {
        const double end = ldexp(1.0, bits[dtype]), low = dtype == CT_U8 ? 0 : -end;
        const int64_t most = (int64_t)(((uint64_t)1 << bits[dtype]) - 1);
        put_integer(words, isnan(x)   ? 0
                           : x <= low ? (dtype == CT_I64 ? INT64_MIN : (int64_t)low)
                           : x >= end ? most
                                      : (int64_t)x);
    }
}

void ct_wgpu_attributes_of(const ct_call *call, ct_dtype dtype, ct_wgpu_attributes *v) {
    int n = 0;
    for (const ct_attr *attr = call->op->attrs; attr && attr->name && n < CT_WGPU_ATTRS; attr++, n++) {
        const char *at = (const char *)call->attrs + attr->offset;
        v->given |= 1u << n;
        switch (attr->type) {
        case CT_ATTR_INT: put_attribute(v->attrs[n], dtype, (double)*(const int64_t *)(const void *)at); break;
        case CT_ATTR_DOUBLE: put_attribute(v->attrs[n], dtype, *(const double *)(const void *)at); break;
        case CT_ATTR_BOOL: put_attribute(v->attrs[n], dtype, *(const bool *)at); break;
        case CT_ATTR_ENUM: v->attrs[n][0] = (uint32_t) * (const int *)(const void *)at; break;
        case CT_ATTR_OPT: {
            const ct_opt *option = (const ct_opt *)(const void *)at;
            put_attribute(v->attrs[n], dtype, option->value);
            if (!option->set) v->given &= ~(1u << n);
            break;
        }
        default: break;
        }
    }
    v->highest = dtype == CT_F16 ? 65504.0f : dtype == CT_BF16 ? 0x1.fep127f : 0x1.fffffep127f;
}

ct_wgpu_words ct_wgpu_words_of(ct_dtype dtype) {
    return dtype <= CT_BF16   ? CT_WGPU_F32
           : dtype == CT_I64  ? CT_WGPU_I64
           : dtype == CT_BOOL ? CT_WGPU_BOOL
                              : CT_WGPU_I32;
}

/* ---- Operands ---- */

static bool is_single(const ct_view *v) {
    for (int d = 0; d < v->ndim; d++)
        if (v->dims[d] != 1 && v->strides[d] != 0) return false;
    return true;
}

/* n elements next to each other, from where the view begins. Storages are padded, so that whole vectors of words can be read. */
static void put_dense(ct_wgpu_operand *o, const ct_view *v, int64_t n, unsigned mode) {
    const uint64_t size = ct_wgpu_dtype_size(v->dtype);
    o->buffer = v->buffer;
    o->begin = o->low = v->origin + (uint64_t)v->offset * size;
    o->high = (o->begin + (uint64_t)n * size + 15) & ~(uint64_t)15;
    o->dtype = (uint8_t)v->dtype;
    o->mode = (uint8_t)mode;
}

static void put_absent(ct_wgpu_operand *o, ct_dtype dtype, unsigned mode) {
    o->buffer = NULL;
    o->begin = o->low = o->high = 0;
    o->dtype = (uint8_t)dtype;
    o->mode = (uint8_t)mode;
}

/* ---- Loops ---- */

enum { QUAD = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY };
enum { NOTHING = -1, NUMBER = -2 }; /* what an operand of a loop is, if it is no input that lies in memory */

static bool run_linear(const ct_call *call, ct_wgpu_launch *l, const int *inputs, ct_dtype dtype, values *v) {
    CT_WGPU_UNIT(backend_elementwise);
    const bool is_long = v->total >= LONG;
    l->unit = &unit, l->function = is_long ? "octets" : "quads";
    put_dense(&l->operands[Y], call->out[0], v->total, QUAD | CT_WGPU_WRITTEN);
    for (int k = MASK; k < OPERANDS; k++) {
        if (inputs[k] < 0) put_absent(&l->operands[k], k == MASK ? CT_BOOL : dtype, QUAD);
        else put_dense(&l->operands[k], call->in[inputs[k]], v->single >> (k - 1) & 1 ? 1 : v->total, QUAD);
    }
    return ct_wgpu_enqueue(call, l, ct_wgpu_groups(ct_wgpu_ceil_div(v->total, is_long ? 8 : 4), THREADS), v, sizeof *v);
}

typedef struct nested {
    ct_wgpu_nest nest; /* its pad is `whole` and `dense` of the loops */
    values v;          /* its total is `still` there */
} nested;

/* Whether four neighbours along the last dimension can be read at once wherever a row of whole fours has them. */
static bool rows_are_dense(const nested *n, const ct_view *view, int k) {
    const uint32_t last = n->nest.rank - 1;
    if (n->nest.strides[k][last] != 1 || !ct_wgpu_fits(view, 4)) return false;
    for (uint32_t d = 0; d < last; d++)
        if (n->nest.strides[k][d] % 4) return false;
    return true;
}

static bool run_nested(const ct_call *call, ct_wgpu_launch *l, const int *inputs, ct_dtype dtype, const values *v,
                       bool quads) {
    CT_WGPU_UNIT(backend_elementwise_nest);
    nested n;
    const ct_view
        *views[OPERANDS]; /* the output also stands for what is not in memory: its strides are not looked at */
    for (int k = 0; k < OPERANDS; k++) views[k] = k > Y && inputs[k] >= 0 ? call->in[inputs[k]] : call->out[0];
    ct_wgpu_nest_of(&n.nest, views, OPERANDS);
    n.v = *v;
    n.v.total = 0;
    l->unit = &unit, l->function = quads ? "rows" : "strided";
    l->n = 0;
    const unsigned mode = quads ? QUAD : 0;
    const bool whole = n.nest.dims[n.nest.rank - 1] % 4 == 0;
    n.nest.pad[0] = whole, n.nest.pad[1] = 0;
    if (quads) put_dense(&l->operands[l->n++], call->out[0], v->total, mode | CT_WGPU_WRITTEN);
    else ct_wgpu_operand_of(l, names[Y], call->out[0], CT_WGPU_WRITTEN);
    for (int k = MASK; k < OPERANDS; k++) {
        if (inputs[k] < 0) {
            put_absent(&l->operands[l->n++], k == MASK ? CT_BOOL : dtype, mode);
            continue;
        }
        ct_wgpu_operand_of(l, names[k], views[k], mode);
        if (!quads) continue;
        ct_wgpu_operand *o = &l->operands[l->n - 1];
        o->high = (o->high + 15) & ~(uint64_t)15;
        if (!whole) continue;
        if (rows_are_dense(&n, views[k], k)) n.nest.pad[1] |= 1u << (k - 1);
        if (n.nest.strides[k][n.nest.rank - 1] == 0) n.v.total |= 1u << (k - 1);
    }
    const int64_t items = quads ? ct_wgpu_ceil_div(v->total, 4) : v->total;
    return ct_wgpu_enqueue(call, l, ct_wgpu_groups(items, THREADS), &n, sizeof n);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_formula *e = ct_wgpu_formula_of(call->op);
    const ct_view *out = call->out[0];
    const ct_dtype dtype = call->in[e->typed]->dtype;
    const int64_t total = ct_wgpu_count(out);
    if (total == 0) return true;
    ct_wgpu_launch l;
    l.threads = THREADS, l.words = ct_wgpu_words_of(dtype), l.n = OPERANDS, l.n_constants = 0, l.more = e->text;
    memset(l.whats, 0, sizeof l.whats);
    ct_wgpu_constant(&l, "COSTLY", e->cost > COSTLY && total < LONG);
    values v;
    memset(&v, 0, sizeof v);
    v.total = (uint32_t)total;
    if (call->op->attrs) ct_wgpu_attributes_of(call, dtype, &v.of_call);
    if (e->choice >= 0) ct_wgpu_constant(&l, "CHOICE", v.of_call.attrs[e->choice][0]);
    const bool quads = dtype != CT_I64 && ct_wgpu_is_dense(out) && ct_wgpu_fits(out, 4);
    bool linear = quads;
    int inputs[OPERANDS];
    for (int k = 0; k < OPERANDS; k++) {
        const int i = k == MASK ? e->mask : k < TYPED ? NOTHING : e->typed + k - TYPED;
        l.operands[k].name = names[k];
        inputs[k] = i < 0 || i >= call->n_in ? NOTHING : call->numbers >> i & 1 ? NUMBER : i;
        if (inputs[k] == NUMBER) ct_wgpu_number_words(v.numbers[k - 1], call->in[i]->dtype, call->in[i]->buffer);
        if (inputs[k] < 0) continue;
        const ct_view *in = call->in[i];
        if (is_single(in)) v.single |= 1u << (k - 1);
        else linear = linear && ct_wgpu_is_dense(in) && ct_wgpu_fits(in, 4);
    }
    return linear ? run_linear(call, &l, inputs, dtype, &v) : run_nested(call, &l, inputs, dtype, &v, quads);
}

static const ct_kernel candidates[] = {{"elementwise", can, NULL, run}, {0}};

const ct_kernel *ct_wgpu_elementwise_of(const ct_op *op) {
    return (op->flags & CT_OP_ELEMENTWISE) && ct_wgpu_formula_of(op) ? candidates : NULL;
}

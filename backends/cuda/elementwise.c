/* The host side of elementwise ops: which function of the generated device code, and its arguments. */
#include "backends/cuda/elementwise.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

/* One op of the generated code: CT_CUDA_ELEMENTWISE(name, part, typed, classes), classes being floats, integers and bool, a bit
 * each, one more for kernels of floats that go along rows, and one for formulas of which dense kernels take two packs for each thread. */
enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4, ROWS = 8, TWO_PACKS = 16, PARTS = 8, DTYPES = CT_BOOL + 1 };
typedef enum walk { FLAT, STRIDED, ALONG_ROWS, WALKS } walk; /* as in the device code */
typedef struct entry {
    const char *name;
    int part, typed;
    unsigned classes;
} entry;

static const entry entries[] = {
#define CT_CUDA_ELEMENTWISE(op, part, typed, classes) {#op, part, typed, classes},
#include "gen/cuda/elementwise.inc"
#undef CT_CUDA_ELEMENTWISE
};
enum { ENTRIES = sizeof entries / sizeof *entries };

/* What is found at the first use. Apart, since all of it is zero before and so takes no room in the module's file. */
static struct {
    ct_cuda_function functions[WALKS][DTYPES];
    char names[WALKS][DTYPES][48];
} found[ENTRIES];

#define PART(n) extern const unsigned char ct_fatbin_elementwise_##n[];
PART(0)
PART(1)
PART(2)
PART(3)
PART(4)
PART(5)
PART(6)
PART(7)
#undef PART
#define PART(n) CT_CUDA_UNIT_FROM("elementwise_" #n, ct_fatbin_elementwise_##n, true),
static ct_cuda_unit units[PARTS] = {PART(0) PART(1) PART(2) PART(3) PART(4) PART(5) PART(6) PART(7)};
#undef PART

static const char *const dtype_names[DTYPES] = {"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "b8"};

static const entry **by_index; /* by the op's number */
static int index_count;

bool ct_cuda_elementwise_start(void) {
    index_count = ct_cuda_host->op_count() + 1;
    by_index = calloc((size_t)index_count, sizeof *by_index);
    if (!by_index) return false;
    for (int i = 0; i < ENTRIES; i++) {
        const ct_op *op = ct_cuda_host->op_find(entries[i].name);
        if (op) by_index[op->slot->index] = &entries[i];
    }
    return true;
}

static const entry *find(const ct_op *op) { return op->slot->index < index_count ? by_index[op->slot->index] : NULL; }

static bool takes(const entry *e, ct_dtype dtype) {
    if (dtype > CT_BOOL) return false;
    return e->classes & (dtype <= CT_BF16 ? FLOATS : dtype == CT_BOOL ? BOOLS : INTEGERS);
}

static const char *can(const ct_call *call) {
    const entry *e = find(call->op);
    return takes(e, call->in[e->typed]->dtype) ? NULL : "it has no device code for this dtype";
}

/* Attributes of any type as numbers, in the order of the table. */
static void read_attrs(const ct_call *call, ct_cuda_flat *a) {
    int n = 0;
    for (const ct_attr *attr = call->op->attrs; attr && attr->name && n < CT_CUDA_ATTRS; attr++, n++) {
        const char *at = (const char *)call->attrs + attr->offset;
        a->given[n] = 1;
        switch (attr->type) {
        case CT_ATTR_INT: a->attrs[n] = (double)*(const int64_t *)(const void *)at; break;
        case CT_ATTR_DOUBLE: a->attrs[n] = *(const double *)(const void *)at; break;
        case CT_ATTR_BOOL: a->attrs[n] = *(const bool *)at; break;
        case CT_ATTR_ENUM: a->attrs[n] = *(const int *)(const void *)at; break;
        case CT_ATTR_OPT:
            a->attrs[n] = ((const ct_opt *)(const void *)at)->value;
            a->given[n] = ((const ct_opt *)(const void *)at)->set;
            break;
        default: break;
        }
    }
}

static bool is_single(const ct_view *v) {
    for (int d = 0; d < v->ndim; d++)
        if (v->dims[d] != 1 && v->strides[d] != 0) return false;
    return true;
}

/* Its name is made at its first use, the same by every thread. */
static ct_cuda_function *function_of(const entry *e, ct_dtype dtype, walk w) {
    static const char *const prefixes[WALKS] = {"", "strided_", "rows_"};
    const ptrdiff_t at = e - entries;
    ct_cuda_function *function = &found[at].functions[w][dtype];
    if (function->unit) return function;
    char *name = found[at].names[w][dtype];
    snprintf(name, sizeof found[0].names[0][0], "%s_%s%s", e->name, prefixes[w], dtype_names[dtype]);
    function->name = name;
    function->unit = &units[e->part];
    return function;
}

static int packs_of(const ct_call *call, const entry *e, ct_dtype dtype) { /* as in the device code */
    const bool half = dtype == CT_F16 || dtype == CT_BF16;
    return (e->classes & TWO_PACKS) && (dtype == CT_F32 || (half && call->n_in == 1)) ? 2 : 1;
}

static int pack_of(ct_dtype dtype) {
    const int size = (int)ct_cuda_dtype_size(dtype);
    return size == 1 ? 4 : 16 / size;
}

/* How many neighbors go at once: the largest power of two, up to 16, that divides all numbers that were joined by `or`. */
static int32_t unit_of(int64_t all) {
    int32_t unit = 1;
    while (unit < 16 && !(all & unit)) unit *= 2;
    return unit;
}

/* The address, counted in elements, joins the others; false where it is not one of whole elements. */
static bool join_address(const char *data, ct_dtype dtype, int64_t *all) {
    const int64_t size = (int64_t)ct_cuda_dtype_size(dtype);
    *all |= (intptr_t)data / size;
    return (intptr_t)data % size == 0;
}

/* What all kernels read. Returns whether an element's number is its place in every operand that is not one value. An only input that is one
 * value is no case for the dense kernels, which do not ask for it, unless there is but one element. */
static bool fill(const ct_call *call, ct_cuda_flat *a, int pack) {
    memset(a, 0, sizeof *a);
    a->total = ct_cuda_count(call->out[0]);
    a->out = ct_cuda_address(call->out[0]);
    int64_t all = 0;
    bool flat = ct_cuda_is_dense(call->out[0]), whole = join_address(a->out, call->out[0]->dtype, &all);
    for (int i = 0; i < call->n_in; i++) {
        const ct_view *in = call->in[i];
        const bool number = call->numbers >> i & 1, alone = call->n_in == 1;
        if (number) memcpy(a->numbers[i], in->buffer, CT_NUMBER_BYTES);
        else a->in[i] = ct_cuda_address(in);
        if (is_single(in) && (!alone || number || a->total > 1)) {
            a->single |= 1u << i;
            flat = flat && !alone;
            continue;
        }
        flat = flat && ct_cuda_is_dense(in);
        whole = join_address(a->in[i], in->dtype, &all) && whole;
    }
    a->packs = whole && unit_of(all) >= pack ? a->total / pack : 0;
    read_attrs(call, a);
    return flat;
}

/* Whether the rows along the last dimension consist of whole packs, in which an input is dense or stays where it is. */
static bool has_rows_of(int pack, ct_cuda_elementwise *a, const ct_cuda_view *views, int n_in) {
    const int last = a->ndim - 1;
    int64_t all = a->dims[last];
    for (int i = 0; i <= n_in; i++) {
        const ct_cuda_view *v = &views[i];
        if (i && a->flat.single >> (i - 1) & 1) continue;
        if (i && v->strides[last] == 0) {
            a->still |= 1u << (i - 1);
            continue;
        }
        if (v->strides[last] != 1 || !join_address(v->data, (ct_dtype)v->dtype, &all)) return false;
        for (int d = 0; d < last; d++) all |= v->strides[d];
    }
    return unit_of(all) >= pack;
}

static bool run_strided(const ct_call *call, const entry *e, ct_dtype dtype, ct_cuda_elementwise *a) {
    ct_cuda_view views[CT_CUDA_INPUTS + 1];
    views[0] = ct_cuda_view_of(call->out[0]);
    for (int i = 0; i < call->n_in; i++) views[i + 1] = ct_cuda_view_of(call->in[i]);
    a->ndim = ct_cuda_collapse(views, call->n_in + 1);
    a->still = 0;
    memcpy(a->dims, views[0].dims, sizeof a->dims);
    for (int i = 0; i <= call->n_in; i++) memcpy(a->strides[i], views[i].strides, sizeof a->strides[i]);
    const int pack = pack_of(dtype);
    const bool rows = (e->classes & ROWS) && dtype <= CT_BF16 && has_rows_of(pack, a, views, call->n_in);
    const int64_t threads = rows ? ct_cuda_ceil_div(a->flat.total, pack) : a->flat.total;
    const ct_cuda_shape shape = {.grid = ct_cuda_all_blocks(call, threads, 256), .block = 256};
    return ct_cuda_launch(call, function_of(e, dtype, rows ? ALONG_ROWS : STRIDED), shape, a);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const entry *e = find(call->op);
    const ct_dtype dtype = call->in[e->typed]->dtype;
    ct_cuda_elementwise a;
    const int pack = pack_of(dtype);
    const bool flat = fill(call, &a.flat, pack);
    if (a.flat.total == 0) return true;
    if (!flat) return run_strided(call, e, dtype, &a);
    const int each = a.flat.packs ? pack * packs_of(call, e, dtype) : 1;
    const ct_cuda_shape shape = {.grid = ct_cuda_all_blocks(call, ct_cuda_ceil_div(a.flat.total, each), 256),
                                 .block = 256};
    return ct_cuda_launch(call, function_of(e, dtype, FLAT), shape, &a);
}

static const ct_kernel candidates[] = {{"elementwise", can, NULL, run}, {0}};

const ct_kernel *ct_cuda_elementwise_of(const ct_op *op) {
    return (op->flags & CT_OP_ELEMENTWISE) && find(op) ? candidates : NULL;
}

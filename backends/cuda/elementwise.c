/* The host side of elementwise ops: which function of the generated device code, and its arguments. */
#include "backends/cuda/elementwise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

/* One op of the generated code: CT_CUDA_ELEMENTWISE(name, part, typed, classes), classes being floats, integers and bool, a bit
 * each, and one more for kernels of floats that go along rows. */
enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4, ROWS = 8, PARTS = 8, DTYPES = CT_BOOL + 1 };
typedef struct entry {
    const char *name;
    int part, typed;
    unsigned classes;
    ct_cuda_function functions[DTYPES], rows[CT_BF16 + 1];
    char names[DTYPES][48], row_names[CT_BF16 + 1][48];
} entry;

static entry entries[] = {
#define CT_CUDA_ELEMENTWISE(op, part, typed, classes) {#op, part, typed, classes, {{0}}, {{0}}, {{0}}, {{0}}},
#include "gen/cuda/elementwise.inc"
#undef CT_CUDA_ELEMENTWISE
};
enum { ENTRIES = sizeof entries / sizeof *entries };

#define PART(n) extern const unsigned char ct_fatbin_elementwise_##n[];
PART(0)
PART(1)
PART(2)
PART(3)
PART(4)
PART(5) PART(6) PART(7)
#undef PART
#define PART(n) {"elementwise_" #n, ct_fatbin_elementwise_##n, {0}, true},
    static ct_cuda_unit units[PARTS] = {PART(0) PART(1) PART(2) PART(3) PART(4) PART(5) PART(6) PART(7)};
#undef PART

static const char *const dtype_names[DTYPES] = {"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "b8"};

static entry **by_index; /* by the op's number */
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

static entry *find(const ct_op *op) { return op->slot->index < index_count ? by_index[op->slot->index] : NULL; }

static bool takes(const entry *e, ct_dtype dtype) {
    if (dtype > CT_BOOL) return false;
    return e->classes & (dtype <= CT_BF16 ? FLOATS : dtype == CT_BOOL ? BOOLS : INTEGERS);
}

static const char *can(const ct_call *call) {
    const entry *e = find(call->op);
    return takes(e, call->in[e->typed]->dtype) ? NULL : "it has no device code for this dtype";
}

/* Attributes of any type as numbers, in the order of the table. */
static void read_attrs(const ct_call *call, ct_cuda_elementwise *a) {
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

static bool is_single(const ct_cuda_view *v) {
    for (int d = 0; d < v->ndim; d++)
        if (v->dims[d] != 1 && v->strides[d] != 0) return false;
    return true;
}

/* Its name is made at its first use, the same by every thread. */
static ct_cuda_function *function_of(entry *e, ct_dtype dtype, bool rows) {
    ct_cuda_function *function = rows ? &e->rows[dtype] : &e->functions[dtype];
    if (function->unit) return function;
    char *name = rows ? e->row_names[dtype] : e->names[dtype];
    snprintf(name, sizeof e->names[0], "%s_%s%s", e->name, rows ? "rows_" : "", dtype_names[dtype]);
    function->name = name;
    function->unit = &units[e->part];
    return function;
}

/* How many neighbours go at once: where all is linear as the addresses allow; otherwise the rows along the last dimension have to consist
 * of whole packs, in which an input is dense or stays where it is. */
static void set_unit(ct_cuda_elementwise *a, const ct_cuda_view *views, int n_in) {
    const int last = a->ndim - 1;
    int64_t all = a->linear ? 0 : a->dims[last]; /* whose low bits are clear */
    for (int i = 0; i <= n_in; i++) {
        const ct_cuda_view *v = &views[i];
        const int64_t size = (int64_t)ct_cuda_dtype_size((ct_dtype)v->dtype);
        if (i && a->single >> (i - 1) & 1) continue;
        if (!a->linear && i && v->strides[last] == 0) {
            a->still |= 1u << (i - 1);
            continue;
        }
        if (v->strides[last] != 1) return;
        for (int d = 0; d < last && !a->linear; d++) all |= v->strides[d];
        if ((intptr_t)v->data % size) return;
        all |= (intptr_t)v->data / size;
    }
    for (a->unit = 1; a->unit < 16 && !(all & a->unit); a->unit *= 2) {
    }
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    entry *e = find(call->op);
    const ct_dtype dtype = call->in[e->typed]->dtype;
    ct_cuda_elementwise a;
    ct_cuda_view views[CT_CUDA_INPUTS + 1];
    memset(&a, 0, sizeof a);
    a.total = ct_cuda_count(call->out[0]);
    if (a.total == 0) return true;
    views[0] = ct_cuda_view_of(call->out[0]);
    for (int i = 0; i < call->n_in; i++) {
        views[i + 1] = ct_cuda_view_of(call->in[i]);
        if (call->numbers >> i & 1) {
            memcpy(a.numbers[i], call->in[i]->buffer, CT_NUMBER_BYTES);
            views[i + 1].data = NULL;
        }
    }
    a.ndim = ct_cuda_collapse(views, call->n_in + 1);
    a.out = views[0].data;
    a.linear = ct_cuda_is_dense(call->out[0]);
    memcpy(a.dims, views[0].dims, sizeof a.dims);
    memcpy(a.strides[0], views[0].strides, sizeof a.strides[0]);
    for (int i = 0; i < call->n_in; i++) {
        const ct_cuda_view *v = &views[i + 1];
        a.in[i] = v->data;
        memcpy(a.strides[i + 1], v->strides, sizeof a.strides[0]);
        if (is_single(v)) a.single |= 1u << i;
        else if (!ct_cuda_is_dense(call->in[i])) a.linear = 0;
    }
    set_unit(&a, views, call->n_in);
    read_attrs(call, &a);
    const bool rows =
        !a.linear && (e->classes & ROWS) && dtype <= CT_BF16 && a.unit >= 16 / (int)ct_cuda_dtype_size(dtype);
    const int size = (int)ct_cuda_dtype_size(dtype), pack = size == 1 ? 4 : 16 / size;
    const int64_t each = rows || (a.linear && a.unit >= pack) ? pack : 1;
    const ct_cuda_shape shape = {.grid = ct_cuda_all_blocks(call, ct_cuda_ceil_div(a.total, each), 256), .block = 256};
    return ct_cuda_launch(call, function_of(e, dtype, rows), shape, &a);
}

static const ct_kernel candidates[] = {{"elementwise", can, NULL, run}, {0}};

const ct_kernel *ct_cuda_elementwise_of(const ct_op *op) {
    return (op->flags & CT_OP_ELEMENTWISE) && find(op) ? candidates : NULL;
}

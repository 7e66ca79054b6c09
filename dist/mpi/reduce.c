/* Operations on f16 and bf16, computed in f32 and rounded, and the maximum and minimum of floats, which are NaN
 * where one of both is: MPI leaves that open. */
#include "dist/mpi/reduce.h"

#include <stdint.h>

#include "dist/mpi/half.h"

#define SUM(a, b)     ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define MAX(a, b)     ((a) != (a) || (a) > (b) ? (a) : (b))
#define MIN(a, b)     ((a) != (a) || (a) < (b) ? (a) : (b))
#define SAME(x)       (x)

/* MPI's user function: into[i] = from[i] op into[i]. */
#define REDUCTION(name, type, wide, widen, narrow, combine)                        \
    static void name(void *from, void *into, int *count, MPI_Datatype *datatype) { \
        const type *a = from;                                                      \
        type *b = into;                                                            \
        (void)datatype;                                                            \
        for (int i = 0; i < *count; i++) {                                         \
            const wide x = widen(a[i]), y = widen(b[i]);                           \
            b[i] = narrow(combine(x, y));                                          \
        }                                                                          \
    }
REDUCTION(max_f32, float, float, SAME, SAME, MAX)
REDUCTION(min_f32, float, float, SAME, SAME, MIN)
REDUCTION(max_f64, double, double, SAME, SAME, MAX)
REDUCTION(min_f64, double, double, SAME, SAME, MIN)
REDUCTION(sum_f16, uint16_t, float, float_of_f16, f16_of_float, SUM)
REDUCTION(product_f16, uint16_t, float, float_of_f16, f16_of_float, PRODUCT)
REDUCTION(max_f16, uint16_t, float, float_of_f16, f16_of_float, MAX)
REDUCTION(min_f16, uint16_t, float, float_of_f16, f16_of_float, MIN)
REDUCTION(sum_bf16, uint16_t, float, float_of_bf16, bf16_of_float, SUM)
REDUCTION(product_bf16, uint16_t, float, float_of_bf16, bf16_of_float, PRODUCT)
REDUCTION(max_bf16, uint16_t, float, float_of_bf16, bf16_of_float, MAX)
REDUCTION(min_bf16, uint16_t, float, float_of_bf16, bf16_of_float, MIN)

static struct {
    ct_dtype dtype;
    ct_dist_reduction reduction;
    MPI_User_function *function;
    MPI_Op op;
} own[] = {
    {.dtype = CT_F32, .reduction = CT_DIST_MAX, .function = max_f32},
    {.dtype = CT_F32, .reduction = CT_DIST_MIN, .function = min_f32},
    {.dtype = CT_F64, .reduction = CT_DIST_MAX, .function = max_f64},
    {.dtype = CT_F64, .reduction = CT_DIST_MIN, .function = min_f64},
    {.dtype = CT_F16, .reduction = CT_DIST_SUM, .function = sum_f16},
    {.dtype = CT_F16, .reduction = CT_DIST_PRODUCT, .function = product_f16},
    {.dtype = CT_F16, .reduction = CT_DIST_MAX, .function = max_f16},
    {.dtype = CT_F16, .reduction = CT_DIST_MIN, .function = min_f16},
    {.dtype = CT_BF16, .reduction = CT_DIST_SUM, .function = sum_bf16},
    {.dtype = CT_BF16, .reduction = CT_DIST_PRODUCT, .function = product_bf16},
    {.dtype = CT_BF16, .reduction = CT_DIST_MAX, .function = max_bf16},
    {.dtype = CT_BF16, .reduction = CT_DIST_MIN, .function = min_bf16},
};
enum { OWN = sizeof own / sizeof *own };

const char *ct__reduce_open(void) {
    const char *problem = NULL;
    for (int i = 0; !problem && i < OWN; i++) problem = ct__mpi_problem(MPI_Op_create(own[i].function, 1, &own[i].op));
    return problem;
}

const char *ct__type_find(ct_dtype dtype, MPI_Datatype *type) {
    switch (dtype) {
    case CT_F32: *type = MPI_FLOAT; return NULL;
    case CT_F64: *type = MPI_DOUBLE; return NULL;
    case CT_I8: *type = MPI_INT8_T; return NULL;
    case CT_I16: *type = MPI_INT16_T; return NULL;
    case CT_I32: *type = MPI_INT32_T; return NULL;
    case CT_I64: *type = MPI_INT64_T; return NULL;
    case CT_U8:
    case CT_BOOL:
    case CT_F8E4M3:
    case CT_F8E5M2: *type = MPI_UINT8_T; return NULL;
    case CT_F16:
    case CT_BF16:
    case CT_U16: *type = MPI_UINT16_T; return NULL;
    case CT_U32: *type = MPI_UINT32_T; return NULL;
    case CT_U64:
    case CT_COMPLEX64: *type = MPI_UINT64_T; return NULL;
    case CT_DTYPE_COUNT: break;
    }
    return "this dtype is not known to the module";
}

const char *ct__reduce_find(ct_dtype dtype, ct_dist_reduction reduction, MPI_Datatype *type, MPI_Op *op) {
    const ct_dist_reduction wanted = reduction == CT_DIST_MEAN ? CT_DIST_SUM : reduction;
    for (int i = 0; i < OWN; i++) {
        if (own[i].dtype != dtype || own[i].reduction != wanted) continue;
        *op = own[i].op;
        return ct__type_find(dtype, type);
    }
    switch (wanted) {
    case CT_DIST_SUM: *op = MPI_SUM; break;
    case CT_DIST_MAX: *op = MPI_MAX; break;
    case CT_DIST_MIN: *op = MPI_MIN; break;
    case CT_DIST_PRODUCT: *op = MPI_PROD; break;
    case CT_DIST_MEAN: break;
    }
    return ct__type_find(dtype, type);
}

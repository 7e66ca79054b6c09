/* cuBLASLt: opening it, and products whose plans are kept by shape. Its matrices lie by columns, so C is computed as its transpose,
 * C' = B' A', whose layouts are those of B and A as they lie. */
#include "backends/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                        \
    X(cublasLtCreate)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutSetAttribute)     \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmul)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} lt;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handles[CT_CUDA_DEVICES];

static void open_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    there = library != NULL;
#define X(name) there = there && (*(void **)&lt.name = dlsym(library, #name)) != NULL;
    FUNCTIONS(X)
#undef X
}

bool ct_cuda_blas_there(void) {
    pthread_once(&once, open_library);
    return there;
}

/* ---- Plans ---- */

typedef struct plan_key {
    int64_t numbers[12];
} plan_key;

typedef struct plan {
    plan_key key;
    bool known;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* of A, B and C as they lie, that is of A', B' and C' by columns */
    cublasLtMatmulAlgo_t algorithm;
} plan;

enum { PLANS = 1024 };
static plan *plans; /* by hash; the lock is held */

static int alignment(const void *address) {
    const uintptr_t at = (uintptr_t)address;
    int bytes = 256;
    while (at % (unsigned)bytes) bytes /= 2;
    return bytes;
}

static plan_key key_of(const ct_cuda_blas_product *p, int device) {
    const int least = alignment(p->a) < alignment(p->b) ? alignment(p->a) : alignment(p->b);
    const int all = least < alignment(p->c) ? least : alignment(p->c);
    return (plan_key){{(int64_t)p->dtype << 32 | device << 16 | all << 2 | p->a_transposed << 1 | p->b_transposed, p->m,
                       p->n, p->k, p->a_leading, p->b_leading, p->c_leading, p->batches, p->a_batch, p->b_batch,
                       p->c_batch, p->tf32}};
}

static void forget(plan *p) {
    if (p->operation) lt.cublasLtMatmulDescDestroy(p->operation);
    if (p->a) lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) lt.cublasLtMatrixLayoutDestroy(p->c);
    memset(p, 0, sizeof *p);
}

static cudaDataType_t type_of(ct_dtype dtype) {
    return dtype == CT_F64 ? CUDA_R_64F : dtype == CT_F16 ? CUDA_R_16F : dtype == CT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* rows x columns by rows of `leading` elements; by columns, as the library has it, the same memory is columns x rows. */
static bool layout(cublasLtMatrixLayout_t *made, const ct_cuda_blas_product *p, int64_t rows, int64_t columns,
                   int64_t leading, int64_t stride) {
    const int batches = (int)p->batches;
    return lt.cublasLtMatrixLayoutCreate(made, type_of(p->dtype), (uint64_t)columns, (uint64_t)rows, leading) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                               sizeof stride) == CUBLAS_STATUS_SUCCESS;
}

static bool choose(plan *made, const ct_cuda_blas_product *p, cublasLtHandle_t handle) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    const size_t room = CT_CUDA_BLAS_WORKSPACE;
    const uint32_t a = (uint32_t)alignment(p->b), b = (uint32_t)alignment(p->a), c = (uint32_t)alignment(p->c);
    /* sums over parts of k by atomics would not give the same bits every time */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
#define SET(which, value) \
    lt.cublasLtMatmulPreferenceSetAttribute(preference, which, &(value), sizeof(value)) == CUBLAS_STATUS_SUCCESS
    const bool ok =
        lt.cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS &&
        SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room) &&
        SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes) &&
        SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a) && SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b) &&
        SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c) && SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c) &&
        lt.cublasLtMatmulAlgoGetHeuristic(handle, made->operation, made->b, made->a, made->c, made->c, preference, 1,
                                          &found, &n) == CUBLAS_STATUS_SUCCESS &&
        n == 1;
#undef SET
    if (preference) lt.cublasLtMatmulPreferenceDestroy(preference);
    if (ok) made->algorithm = found.algo;
    return ok;
}

static bool make_plan(plan *made, const ct_cuda_blas_product *p, cublasLtHandle_t handle) {
    const bool twice = p->dtype == CT_F64;
    const cublasComputeType_t compute = twice                           ? CUBLAS_COMPUTE_64F
                                        : p->tf32 && p->dtype == CT_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                        : CUBLAS_COMPUTE_32F;
    /* The first operand is B', which lies by columns as B lies by rows; where B lies by columns, it is to be transposed. */
    const cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return lt.cublasLtMatmulDescCreate(&made->operation, compute, twice ? CUDA_R_64F : CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatmulDescSetAttribute(made->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.cublasLtMatmulDescSetAttribute(made->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) ==
               CUBLAS_STATUS_SUCCESS &&
           (p->a_transposed ? layout(&made->a, p, p->k, p->m, p->a_leading, p->a_batch)
                            : layout(&made->a, p, p->m, p->k, p->a_leading, p->a_batch)) &&
           (p->b_transposed ? layout(&made->b, p, p->n, p->k, p->b_leading, p->b_batch)
                            : layout(&made->b, p, p->k, p->n, p->b_leading, p->b_batch)) &&
           layout(&made->c, p, p->m, p->n, p->c_leading, p->c_batch) && choose(made, p, handle);
}

/* NULL: the library has no way to do it. */
static plan *plan_for(const ct_cuda_blas_product *p, int device) {
    const plan_key key = key_of(p, device);
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof key.numbers / sizeof *key.numbers; i++)
        hash = (hash ^ (uint64_t)key.numbers[i]) * 1099511628211ull;
    if (!plans && !(plans = calloc(PLANS, sizeof *plans))) return NULL;
    plan *found = &plans[(hash >> 32) % PLANS];
    if (found->known && memcmp(&found->key, &key, sizeof key) == 0) return found->operation ? found : NULL;
    forget(found);
    found->key = key;
    found->known = true;
    if (make_plan(found, p, handles[device])) return found;
    forget(found);
    found->key = key;
    found->known = true;
    return NULL;
}

bool ct_cuda_blas_multiply(const ct_call *call, const ct_cuda_blas_product *p, bool *refused) {
    static const float one = 1, zero = 0;
    static const double one_twice = 1, zero_twice = 0;
    CUcontext before;
    const int index = call->device.index;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool twice = p->dtype == CT_F64;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!handles[index]) status = lt.cublasLtCreate(&handles[index]);
    plan *made = status == CUBLAS_STATUS_SUCCESS ? plan_for(p, index) : NULL;
    if (made)
        status = lt.cublasLtMatmul(handles[index], made->operation, twice ? (const void *)&one_twice : &one, p->b,
                                   made->b, p->a, made->a, twice ? (const void *)&zero_twice : &zero, p->c, made->c,
                                   p->c, made->c, &made->algorithm, ct_cuda_scratch(call), call->scratch.bytes,
                                   ct_cuda_stream(d, call->stream));
    pthread_mutex_unlock(&lock);
    ct_cuda_leave(before);
    *refused = !made && status == CUBLAS_STATUS_SUCCESS;
    if (status == CUBLAS_STATUS_SUCCESS) return made != NULL;
    return ct_cuda_host->fail(CT_ERR_DEVICE, call->op->name, "cuBLASLt failed with status %d", (int)status);
}

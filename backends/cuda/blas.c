/* cuBLASLt: opening it, and products whose plans are kept by shape. Its matrices lie by columns, so C is computed as its transpose,
 * C' = B' A', whose layouts are those of B and A as they lie.
 *
 * A plan is plain data: the library's descriptors can be made in memory of ours. They are kept in a table by hash, in which a
 * later shape takes the place of an earlier one with the same slot, and are copied out, so that the lock is held for the time of a copy. */
#include "backends/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/tune.h"

#define FUNCTIONS(X)                         \
    X(cublasLtGetVersion)                    \
    X(cublasLtCreate)                        \
    X(cublasLtMatmulDescInit_internal)       \
    X(cublasLtMatmulDescSetAttribute)        \
    X(cublasLtMatrixLayoutInit_internal)     \
    X(cublasLtMatrixLayoutSetAttribute)      \
    X(cublasLtMatmulPreferenceInit_internal) \
    X(cublasLtMatmulPreferenceSetAttribute)  \
    X(cublasLtMatmulAlgoGetHeuristic)        \
    X(cublasLtMatmul)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} lt;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;
static char family[32];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(cublasLtHandle_t) handles[CT_CUDA_DEVICES];

static void open_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    there = library != NULL;
#define X(name) there = there && (*(void **)&lt.name = dlsym(library, #name)) != NULL;
    FUNCTIONS(X)
#undef X
    if (there) snprintf(family, sizeof family, "cublaslt-%zu", lt.cublasLtGetVersion());
}

bool ct_cuda_blas_there(void) {
    pthread_once(&once, open_library);
    return there;
}

/* The context is current. NULL: the library does not start. */
static cublasLtHandle_t handle_of(int device) {
    cublasLtHandle_t found = atomic_load_explicit(&handles[device], memory_order_acquire);
    if (found) return found;
    pthread_mutex_lock(&opening);
    found = atomic_load(&handles[device]);
    if (!found && lt.cublasLtCreate(&found) == CUBLAS_STATUS_SUCCESS) atomic_store(&handles[device], found);
    pthread_mutex_unlock(&opening);
    return found;
}

/* ---- Plans ---- */

enum {
    PLANS = 1024,
    CANDIDATES = 16,     /* of large products; of others half as many, since each may be of another shape */
    WORKSPACE = 32 << 20 /* bytes at most */
};
/* Below it a product takes about as long as its launch, whatever the algorithm; of such, as in generating token by token, shapes are many. */
static const double worth_measuring = 1e7, large = 1e11; /* multiplications and additions */

typedef struct plan_key {
    int64_t numbers[13]; /* all but the last, the device, are what choices are kept by */
} plan_key;

typedef struct plan {
    plan_key key;
    bool known;
    bool measured;  /* candidate[0] is the one to take */
    int candidates; /* in order of preference; 0: the library has no way to do it */
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* of A, B and C as they lie, that is of A', B' and C' by columns */
    struct {
        cublasLtMatmulAlgo_t algorithm;
        size_t workspace;
    } candidate[CANDIDATES];
} plan;

static plan *plans; /* by hash; the lock is held */

static int alignment(const void *address) {
    const uintptr_t at = (uintptr_t)address;
    int bytes = 256;
    while (at % (unsigned)bytes) bytes /= 2;
    return bytes;
}

static int least(int x, int y) { return x < y ? x : y; }

/* Of C, and of the bias with it, for which the library has no setting of its own. */
static int result_alignment(const ct_cuda_blas_product *p) {
    return p->bias ? least(alignment(p->c), alignment(p->bias)) : alignment(p->c);
}

static plan_key key_of(const ct_cuda_blas_product *p, size_t room, int device) {
    const int all = least(least(alignment(p->a), alignment(p->b)), result_alignment(p));
    const int64_t kind = (int64_t)p->dtype | (int64_t)p->c_dtype << 8 | (int64_t)p->epilogue << 16 |
                         (int64_t)p->a_transposed << 24 | (int64_t)p->b_transposed << 25 | (int64_t)p->tf32 << 26 |
                         (int64_t)all << 32;
    return (plan_key){{kind, p->m, p->n, p->k, p->a_leading, p->b_leading, p->c_leading, p->batches, p->a_batch,
                       p->b_batch, p->c_batch, room < WORKSPACE ? (int64_t)room : WORKSPACE, device}};
}

static plan *slot_of(const plan_key *key) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof key->numbers / sizeof *key->numbers; i++)
        hash = (hash ^ (uint64_t)key->numbers[i]) * 1099511628211u;
    return &plans[(hash >> 32) % PLANS];
}

static cudaDataType_t type_of(ct_dtype dtype) {
    return dtype == CT_F64 ? CUDA_R_64F : dtype == CT_F16 ? CUDA_R_16F : dtype == CT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* rows x columns by rows of `leading` elements; by columns, as the library has it, the same memory is columns x rows. */
static bool layout(cublasLtMatrixLayoutOpaque_t *made, const ct_cuda_blas_product *p, ct_dtype dtype, int64_t rows,
                   int64_t columns, int64_t leading, int64_t stride) {
    const int batches = (int)p->batches;
#define SET(which, value) \
    lt.cublasLtMatrixLayoutSetAttribute(made, which, &(value), sizeof(value)) == CUBLAS_STATUS_SUCCESS
    return lt.cublasLtMatrixLayoutInit_internal(made, sizeof *made, type_of(dtype), (uint64_t)columns, (uint64_t)rows,
                                                leading) == CUBLAS_STATUS_SUCCESS &&
           SET(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches) && SET(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
#undef SET
}

static bool layouts(plan *made, const ct_cuda_blas_product *p) {
    const int64_t m = p->m, n = p->n, k = p->k;
    const ct_dtype dtype = p->dtype;
    return (p->a_transposed ? layout(&made->a, p, dtype, k, m, p->a_leading, p->a_batch)
                            : layout(&made->a, p, dtype, m, k, p->a_leading, p->a_batch)) &&
           (p->b_transposed ? layout(&made->b, p, dtype, n, k, p->b_leading, p->b_batch)
                            : layout(&made->b, p, dtype, k, n, p->b_leading, p->b_batch)) &&
           layout(&made->c, p, p->c_dtype, m, n, p->c_leading, p->c_batch);
}

static bool set_bias(cublasLtMatmulDescOpaque_t *operation, const ct_cuda_blas_product *p) {
    const void *bias = p->bias;
    return !bias || lt.cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                      sizeof bias) == CUBLAS_STATUS_SUCCESS;
}

static bool describe(plan *made, const ct_cuda_blas_product *p) {
    static const cublasLtEpilogue_t epilogues[] = {[CT_CUDA_PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
                                                   [CT_CUDA_BIAS] = CUBLASLT_EPILOGUE_BIAS,
                                                   [CT_CUDA_RELU] = CUBLASLT_EPILOGUE_RELU,
                                                   [CT_CUDA_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
                                                   [CT_CUDA_BIAS_GRADIENT] = CUBLASLT_EPILOGUE_BGRADB};
    const bool twice = p->dtype == CT_F64;
    const cublasComputeType_t compute = twice     ? CUBLAS_COMPUTE_64F
                                        : p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    /* The first operand is B', which lies by columns as B lies by rows; where B lies by columns, it is to be transposed. */
    const cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
#define SET(which, value) \
    lt.cublasLtMatmulDescSetAttribute(&made->operation, which, &(value), sizeof(value)) == CUBLAS_STATUS_SUCCESS
    return lt.cublasLtMatmulDescInit_internal(&made->operation, sizeof made->operation, compute,
                                              twice ? CUDA_R_64F : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           SET(CUBLASLT_MATMUL_DESC_TRANSA, first) && SET(CUBLASLT_MATMUL_DESC_TRANSB, second) &&
           (p->epilogue == CT_CUDA_PLAIN || SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[p->epilogue])) &&
           set_bias(&made->operation, p) && layouts(made, p);
#undef SET
}

/* The library's proposals, its first choice first. */
static void propose(plan *made, const ct_cuda_blas_product *p, size_t room, cublasLtHandle_t handle) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0;
    const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batches;
    const uint32_t a = (uint32_t)alignment(p->b), b = (uint32_t)alignment(p->a), c = (uint32_t)result_alignment(p);
    /* Of sums over parts of k: by atomics they would not have the same bits every time, in the type of C halves would be rounded on the way. */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const size_t most = room < WORKSPACE ? room : WORKSPACE;
#define SET(which, value) \
    lt.cublasLtMatmulPreferenceSetAttribute(&preference, which, &(value), sizeof(value)) == CUBLAS_STATUS_SUCCESS
    const bool ok =
        describe(made, p) &&
        lt.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference) == CUBLAS_STATUS_SUCCESS &&
        SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most) &&
        SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes) &&
        SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a) && SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b) &&
        SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c) && SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c) &&
        lt.cublasLtMatmulAlgoGetHeuristic(handle, &made->operation, &made->b, &made->a, &made->c, &made->c, &preference,
                                          operations >= large ? CANDIDATES : CANDIDATES / 2, found,
                                          &n) == CUBLAS_STATUS_SUCCESS;
#undef SET
    made->candidates = 0;
    for (int i = 0; ok && i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > most) continue;
        made->candidate[made->candidates].algorithm = found[i].algo;
        made->candidate[made->candidates++].workspace = found[i].workspaceSize;
    }
    made->measured = operations < worth_measuring || made->candidates < 2;
}

/* A copy of the plan for it. The context is current. */
static void plan_for(plan *p, const ct_cuda_blas_product *product, size_t room, int device, cublasLtHandle_t handle) {
    const plan_key key = key_of(product, room, device);
    pthread_mutex_lock(&lock);
    if (!plans) plans = calloc(PLANS, sizeof *plans);
    const plan *found = plans ? slot_of(&key) : NULL;
    const bool known = found && found->known && memcmp(&found->key, &key, sizeof key) == 0;
    if (known) *p = *found;
    pthread_mutex_unlock(&lock);
    if (known) return;
    memset(p, 0, sizeof *p);
    p->key = key;
    p->known = true;
    propose(p, product, room, handle);
    pthread_mutex_lock(&lock);
    if (plans) *slot_of(&key) = *p;
    pthread_mutex_unlock(&lock);
}

/* ---- Multiplying ---- */

typedef struct task {
    const ct_cuda_blas_product *product;
    plan *plan;
    cublasLtHandle_t handle;
    void *workspace;
    size_t room;
    CUstream stream;
} task;

static cublasStatus_t enqueue(const task *t, int candidate) {
    static const float one = 1, zero = 0;
    static const double one_twice = 1, zero_twice = 0;
    const ct_cuda_blas_product *p = t->product;
    plan *made = t->plan;
    const bool twice = p->dtype == CT_F64;
    if (!set_bias(&made->operation, p)) return CUBLAS_STATUS_INTERNAL_ERROR;
    return lt.cublasLtMatmul(t->handle, &made->operation, twice ? (const void *)&one_twice : &one, p->b, &made->b, p->a,
                             &made->a, twice ? (const void *)&zero_twice : &zero, p->c, &made->c, p->c, &made->c,
                             &made->candidate[candidate].algorithm, t->workspace, t->room, t->stream);
}

static bool attempt(void *context, int candidate) {
    const task *t = context;
    return t->plan->candidate[candidate].workspace <= t->room && enqueue(t, candidate) == CUBLAS_STATUS_SUCCESS;
}

static void keep(const plan *p) {
    pthread_mutex_lock(&lock);
    plan *kept = plans ? slot_of(&p->key) : NULL;
    if (kept && memcmp(&kept->key, &p->key, sizeof p->key) == 0) *kept = *p;
    pthread_mutex_unlock(&lock);
}

/* Puts the fastest candidate first, here and in the table. */
static void measure(const ct_call *call, task *t) {
    plan *p = t->plan;
    if (ct_cuda_is_capturing(t->stream)) return; /* another time */
    const int choice =
        ct_cuda_tune(call, family, &p->key, sizeof p->key - sizeof p->key.numbers[0], p->candidates, attempt, t);
    if (choice) { /* the others follow in their order: it may refuse a later call */
        const __typeof__(p->candidate[0]) fastest = p->candidate[choice];
        memmove(&p->candidate[1], &p->candidate[0], (size_t)choice * sizeof fastest);
        p->candidate[0] = fastest;
    }
    p->measured = true;
    keep(p);
}

/* The library proposes what it then does not do, of operands that are not aligned for one: such candidates go. */
static cublasStatus_t enqueue_first(task *t, bool *refused) {
    plan *p = t->plan;
    const int proposed = p->candidates;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    while (p->candidates) {
        status = p->candidate[0].workspace <= t->room ? enqueue(t, 0) : CUBLAS_STATUS_NOT_SUPPORTED;
        if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) break;
        memmove(&p->candidate[0], &p->candidate[1], (size_t)--p->candidates * sizeof p->candidate[0]);
    }
    *refused = !p->candidates;
    if (p->candidates != proposed) keep(p);
    return *refused ? CUBLAS_STATUS_SUCCESS : status;
}

bool ct_cuda_blas_takes(const ct_call *call, const ct_cuda_blas_product *p, size_t *workspace) {
    CUcontext before;
    plan made = {.candidates = 0};
    *workspace = 0;
    if (!ct_cuda_blas_there()) return false;
    if (!ct_cuda_enter(call->device.index, &before)) return false;
    const cublasLtHandle_t handle = handle_of(call->device.index);
    if (handle) plan_for(&made, p, WORKSPACE, call->device.index, handle);
    ct_cuda_leave(before);
    const int n = made.measured && made.candidates ? 1 : made.candidates; /* those that may be tried */
    for (int i = 0; i < n; i++)
        if (made.candidate[i].workspace > *workspace) *workspace = made.candidate[i].workspace;
    return made.candidates > 0;
}

bool ct_cuda_blas_multiply(const ct_call *call, const ct_cuda_blas_product *p, void *workspace, size_t room,
                           bool *refused) {
    CUcontext before;
    plan made;
    const int index = call->device.index;
    *refused = !ct_cuda_blas_there();
    if (*refused) return false;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    task t = {p, &made, handle_of(index), workspace, room, ct_cuda_stream(d, call->stream)};
    cublasStatus_t status = CUBLAS_STATUS_NOT_INITIALIZED;
    if (t.handle) {
        plan_for(&made, p, WORKSPACE, index, t.handle);
        if (made.candidates && !made.measured) measure(call, &t);
        /* room was asked for where the addresses were aligned otherwise */
        if (made.candidates && made.candidate[0].workspace > room) plan_for(&made, p, room, index, t.handle);
        status = enqueue_first(&t, refused);
    }
    const bool ok = status == CUBLAS_STATUS_SUCCESS && !*refused && ct_cuda_enqueued(d, t.stream, call->op->name);
    ct_cuda_leave(before);
    if (status == CUBLAS_STATUS_SUCCESS) return ok;
    return ct_cuda_host->fail(CT_ERR_DEVICE, call->op->name, "cuBLASLt failed with status %d", (int)status);
}

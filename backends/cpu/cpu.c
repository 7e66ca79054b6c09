/* The CPU backend: which level of vector instructions is used, and that level's kernels. */
#include "backends/cpu/cpu.h"

#include <cotangent/dlpack.h>

#if defined(CT_HAVE_AVX2)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/arm.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/step.h"
#include "backends/kernel_list.h"
#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/registry.h"
#include "core/threads.h"

#include "gen/ops_decl.h"

/* CT_HAVE_AVX2 and so on: the build has that level, since its compiler could make it and it was wanted. */
extern const ct_kernel_row *const ct__cpu_kernels_base[];
static bool has_base(void) { return true; }
#if defined(CT_HAVE_AVX2)
extern const ct_kernel_row *const ct__cpu_kernels_avx2[];
/* Clang's __builtin_cpu_supports does not know this one. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
#endif
#if defined(CT_HAVE_AVX512)
extern const ct_kernel_row *const ct__cpu_kernels_avx512[];
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
#if defined(CT_HAVE_AVX512BF16)
static bool has_avx512bf16(void) {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}
#endif
#if defined(CT_HAVE_AVX512AMX)
static bool has_avx512amx(void) { return has_avx512bf16() && ct__amx_is_granted(); }
#endif
#if defined(CT_HAVE_NEON)
extern const ct_kernel_row *const ct__cpu_kernels_neon[];
static bool has_neon(void) { return true; }
#endif

/* From the plainest upward. Only the matrix products differ between avx512 or neon and what is above it. */
static const struct level {
    const char *name;
    int gemm;
    bool (*has)(void);
    const ct_kernel_row *const *files; /* tables of kernels, ended by NULL */
} levels[] = {
    {"base", 0, has_base, ct__cpu_kernels_base},
#if defined(CT_HAVE_AVX2)
    {"avx2", 1, has_avx2, ct__cpu_kernels_avx2},
#endif
#if defined(CT_HAVE_AVX512)
    {"avx512", 2, has_avx512, ct__cpu_kernels_avx512},
#endif
#if defined(CT_HAVE_AVX512BF16)
    {"avx512bf16", 3, has_avx512bf16, ct__cpu_kernels_avx512},
#endif
#if defined(CT_HAVE_AVX512AMX)
    {"avx512amx", 4, has_avx512amx, ct__cpu_kernels_avx512},
#endif
#if defined(CT_HAVE_NEON)
    {"neon", 1, has_neon, ct__cpu_kernels_neon},
#endif
#if defined(CT_HAVE_NEONBF16)
    {"neonbf16", 3, ct__arm_has_bf16, ct__cpu_kernels_neon},
#endif
};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int chosen;

static int find_level(const char *name) {
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(levels[i].name, name) == 0) return i;
    return -1;
}

/* The candidates of every op at each level that has been in use. */
static const ct_kernel *candidates[LEVELS][CT__OP_TOTAL];
static const ct_cpu_step *steps[LEVELS][CT__OP_TOTAL];

static int by_name(const void *name, const void *op) { return strcmp(name, (*(const ct_op *const *)op)->name); }

static void use_level(int level) {
    for (const ct_kernel_row *const *file = levels[level].files; *file; file++)
        for (const ct_kernel_row *row = *file; row->op; row++) {
            const ct_op *const *op = bsearch(row->op, ct__ops, CT__OP_TOTAL, sizeof *ct__ops, by_name);
            if (!op) continue;
            candidates[level][op - ct__ops] = row->candidates;
            steps[level][op - ct__ops] = row->step;
        }
    ct__gemm_init(levels[level].gemm);
    atomic_store(&chosen, level);
}

static void choose(void) {
    int best = 0;
    for (int i = 0; i < LEVELS; i++)
        if (levels[i].has()) best = i;
    const char *wanted = getenv("CT_ISA");
    int forced = wanted ? find_level(wanted) : -1;
    if (forced >= 0 && levels[forced].has()) best = forced;
    use_level(best);
}

static const ct_kernel *kernels(void *self, const ct_op *op) {
    (void)self;
    pthread_once(&once, choose);
    return op->slot->index <= CT__OP_TOTAL ? candidates[atomic_load(&chosen)][op->slot->index - 1] : NULL;
}

const ct_cpu_step *ct__cpu_step(const ct_call *call) {
    const ct_op *op = call->op;
    const int level = atomic_load(&chosen), i = op->slot->index - 1;
    if (i < 0 || i >= CT__OP_TOTAL || !steps[level][i]) return NULL;
    for (const ct_kernel *kernel = candidates[level][i]; kernel->name; kernel++)
        if (kernel == call->kernel) return steps[level][i];
    return NULL;
}

const char *ct_isa(void) {
    pthread_once(&once, choose);
    return levels[atomic_load(&chosen)].name;
}

bool ct_set_isa(const char *name) {
    if (!name) return ct__fail_null("set_isa", "name");
    pthread_once(&once, choose);
    int level = find_level(name);
    if (level < 0) return ct_fail(CT_ERR_VALUE, "set_isa", "there is no level named %s on this architecture", name);
    if (!levels[level].has())
        return ct_fail(CT_ERR_DEVICE, "set_isa", "this machine lacks the instructions of %s", name);
    use_level(level);
    ct__registry_start();
    ct__kernels_bind();
    atomic_fetch_add(&ct__tuning, 1);
    return true;
}

/* ---- Wrong values ---- */

static ct_wrong_value wrong_of(const ct_call *call, ct_code code, int argument, int64_t position) {
    return (ct_wrong_value){.op = call->op,
                            .called = call->called,
                            .flags = call->flags,
                            .code = code,
                            .argument = argument,
                            .position = position};
}

bool ct__wrong_index(const ct_call *call, int argument, int64_t position, int64_t value, int64_t count) {
    ct_wrong_value wrong = wrong_of(call, CT_ERR_INDEX, argument, position);
    wrong.value = value;
    wrong.high = count < 0 ? CT_NO_BOUND : count - 1;
    return ct_fail_value(&wrong);
}

bool ct__wrong_count(const ct_call *call, int argument, const char *what, int64_t position, int64_t value, int64_t low,
                     int64_t high) {
    ct_wrong_value wrong = wrong_of(call, CT_ERR_VALUE, argument, position);
    wrong.what = what;
    wrong.value = value;
    wrong.low = low;
    wrong.high = high;
    return ct_fail_value(&wrong);
}

bool ct__wrong_real(const ct_call *call, int argument, const char *what, int64_t position, double value, double low,
                    double high) {
    ct_wrong_value wrong = wrong_of(call, CT_ERR_VALUE, argument, position);
    wrong.what = what;
    wrong.is_real = true;
    wrong.real_value = value;
    wrong.real_low = low;
    wrong.real_high = high;
    return ct_fail_value(&wrong);
}

/* ---- The device: the host's memory, where all work is done when the call returns ---- */

static int device_count(void *self) {
    (void)self;
    return 1;
}

static bool device_info(void *self, int device, ct_device_info *info) {
    (void)self, (void)device;
    snprintf(info->name, sizeof info->name, "%d threads, %s", ct__threads(), ct_isa());
    return true;
}

static bool allocate(void *self, int device, size_t bytes, void **buffer) {
    (void)self, (void)device;
    return (*buffer = ct__alloc(bytes)) != NULL;
}

static void release(void *self, int device, void *buffer, size_t bytes) {
    (void)self, (void)device;
    ct__free(buffer, bytes);
}

static bool upload(void *self, int device, void *buffer, size_t offset, const void *host, size_t bytes,
                   ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    if (bytes) memcpy((char *)buffer + offset, host, bytes);
    return true;
}

static bool download(void *self, int device, void *host, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    if (bytes) memcpy(host, (const char *)buffer + offset, bytes);
    return true;
}

static bool copy(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    return upload(self, device, to, to_offset, (const char *)from + from_offset, bytes, stream);
}

static bool fill(void *self, int device, void *buffer, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    for (size_t i = 0; i < count; i++) memcpy((char *)buffer + offset + i * size, pattern, size);
    return true;
}

static bool wait_for(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    return true;
}

const ct_backend ct__cpu_backend = {.size = sizeof(ct_backend),
                                    .version = CT_BACKEND_VERSION,
                                    .name = "cpu",
                                    .alignment = 64,
                                    .device_count = device_count,
                                    .device_info = device_info,
                                    .allocate = allocate,
                                    .release = release,
                                    .upload = upload,
                                    .download = download,
                                    .copy = copy,
                                    .fill = fill,
                                    .wait = wait_for,
                                    .kernels = kernels,
                                    .kernel_size = sizeof(ct_kernel),
                                    .dlpack_type = CT_DL_CPU};

const ct_backend *const ct__builtin_backends[] = {&ct__cpu_backend, NULL};

/* Our GEMM engine against OpenBLAS, BLIS and oneDNN, in alternation within one run, beside the machine's own
 * multiply-add peak. One JSON line a measurement: {"name", "threads", "median_ms", "min_ms", "gflops"}; gflops is
 * that of the fastest round, since other work on the machine only ever adds time.
 *
 *   gemm_peers [-t threads, as in 1,all] [-r rounds] [substring of case names]
 *
 * Peers are opened at run time: apt-get install libopenblas-dev libblis-dev libdnnl-dev, or name others in
 * GEMM_OPENBLAS, GEMM_BLIS, GEMM_DNNL. */
#define _GNU_SOURCE
#include <cotangent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backends/cpu/gemm/gemm.h"
#include "core/threads.h"

/* On one thread its own processor time, which other programs disturb less; on several, the clock on the wall. */
static clockid_t clock_used = CLOCK_MONOTONIC;
static double now(void) {
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- peers ---- */

typedef void (*cblas_s)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                        int);
typedef void (*cblas_d)(int, int, int, int, int, int, double, const double *, int, const double *, int, double,
                        double *, int);
typedef int (*dnnl_s)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                      float, float *, int64_t);
typedef int (*dnnl_b)(char, char, int64_t, int64_t, int64_t, float, const uint16_t *, int64_t, const uint16_t *,
                      int64_t, float, float *, int64_t);
typedef void (*set_int)(int);
typedef void (*set_long)(long);

static struct {
    cblas_s openblas_s, blis_s;
    cblas_d openblas_d, blis_d;
    dnnl_s dnnl;
    set_int openblas_threads, omp_threads;
    set_long blis_threads;
} peer;

static void *open_library(const char *variable, const char *const *names) {
    const char *chosen = getenv(variable);
    if (chosen) return dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}
static void open_peers(void) {
    void *l;
    if ((l = open_library("GEMM_OPENBLAS", (const char *const[]){"libopenblas.so.0", "libopenblas.so", NULL}))) {
        *(void **)&peer.openblas_s = dlsym(l, "cblas_sgemm");
        *(void **)&peer.openblas_d = dlsym(l, "cblas_dgemm");
        *(void **)&peer.openblas_threads = dlsym(l, "openblas_set_num_threads");
    }
    if ((l = open_library("GEMM_BLIS", (const char *const[]){"libblis.so.4", "libblis.so", NULL}))) {
        *(void **)&peer.blis_s = dlsym(l, "cblas_sgemm");
        *(void **)&peer.blis_d = dlsym(l, "cblas_dgemm");
        *(void **)&peer.blis_threads = dlsym(l, "bli_thread_set_num_threads");
    }
    if ((l = open_library("GEMM_DNNL", (const char *const[]){"libdnnl.so.3", "libdnnl.so.2", NULL})))
        *(void **)&peer.dnnl = dlsym(l, "dnnl_sgemm");
    if ((l = dlopen("libgomp.so.1", RTLD_NOW))) *(void **)&peer.omp_threads = dlsym(l, "omp_set_num_threads");
}

/* ---- cases ---- */

typedef struct job {
    char name[80];
    ct_gemm_type type; /* F32, F64, BF16 (C is f32) or I8 (C is i32) */
    int64_t m, n, k, batch;
    bool ta, tb;
    void *a, *b, *c, *scratch;
    ct_gemm g;
} job;

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(2 << 20, (bytes + (4 << 20)) & ~(size_t)((2 << 20) - 1));
    madvise(p, bytes, MADV_HUGEPAGE); /* as the library's allocator does */
    memset(p, 0, bytes);
    return p;
}

static int64_t type_size(ct_gemm_type t) {
    return t == CT_GEMM_F64 ? 8 : t == CT_GEMM_F32 ? 4 : t == CT_GEMM_BF16 ? 2 : 1;
}

static void fill(void *p, ct_gemm_type t, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)(i * 2654435761u % 1021u) / 1021.0f - 0.5f;
        uint32_t u;
        memcpy(&u, &x, 4);
        if (t == CT_GEMM_F32) ((float *)p)[i] = x;
        if (t == CT_GEMM_F64) ((double *)p)[i] = x;
        if (t == CT_GEMM_BF16) ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
        if (t == CT_GEMM_I8) ((int8_t *)p)[i] = (int8_t)(x * 250.0f);
    }
}

static void prepare(job *j) {
    const int64_t size = type_size(j->type), c_size = j->type == CT_GEMM_F64 ? 8 : 4;
    j->a = allocate((size_t)(j->batch * j->m * j->k * size));
    j->b = allocate((size_t)(j->batch * j->n * j->k * size) + 4096);
    j->c = allocate((size_t)(j->batch * j->m * j->n * c_size) + 8192);
    fill(j->a, j->type, j->batch * j->m * j->k);
    fill(j->b, j->type, j->batch * j->n * j->k);
    ct_gemm *g = &j->g;
    memset(g, 0, sizeof *g);
    g->m = j->m, g->n = j->n, g->k = j->k;
    g->a_type = g->b_type = g->c_type = j->type;
    if (j->type == CT_GEMM_BF16) g->c_type = CT_GEMM_F32;
    if (j->type == CT_GEMM_I8) g->c_type = CT_GEMM_I32;
    g->a = j->a, g->a_row = j->ta ? 1 : j->k, g->a_col = j->ta ? j->m : 1;
    g->b = j->b, g->b_row = j->tb ? 1 : j->n, g->b_col = j->tb ? j->k : 1;
    g->c = j->c, g->c_row = j->n, g->c_col = 1;
    if (j->batch > 1) {
        g->batch_dims = 1, g->batch[0] = j->batch;
        g->a_batch[0] = j->m * j->k, g->b_batch[0] = j->k * j->n, g->c_batch[0] = j->m * j->n;
    }
    const size_t bytes = ct__gemm_scratch(g);
    j->scratch = bytes ? allocate(bytes) : NULL;
}
static void discard(job *j) { free(j->a), free(j->b), free(j->c), free(j->scratch); }

enum { ROW_MAJOR = 101, PLAIN = 111, TRANS = 112 };

static bool run_ours(job *j) { return ct__gemm(&j->g, j->scratch); }
static bool run_cblas(job *j, cblas_s s, cblas_d d) {
    if (j->type == CT_GEMM_BF16 || j->type == CT_GEMM_I8 || !s || !d) return false;
    const int lda = (int)(j->ta ? j->m : j->k), ldb = (int)(j->tb ? j->k : j->n);
    for (int64_t i = 0; i < j->batch; i++)
        if (j->type == CT_GEMM_F32)
            s(ROW_MAJOR, j->ta ? TRANS : PLAIN, j->tb ? TRANS : PLAIN, (int)j->m, (int)j->n, (int)j->k, 1,
              (float *)j->a + i * j->m * j->k, lda, (float *)j->b + i * j->k * j->n, ldb, 0,
              (float *)j->c + i * j->m * j->n, (int)j->n);
        else
            d(ROW_MAJOR, j->ta ? TRANS : PLAIN, j->tb ? TRANS : PLAIN, (int)j->m, (int)j->n, (int)j->k, 1,
              (double *)j->a + i * j->m * j->k, lda, (double *)j->b + i * j->k * j->n, ldb, 0,
              (double *)j->c + i * j->m * j->n, (int)j->n);
    return true;
}
static bool run_openblas(job *j) { return run_cblas(j, peer.openblas_s, peer.openblas_d); }
static bool run_blis(job *j) { return run_cblas(j, peer.blis_s, peer.blis_d); }
static bool run_dnnl(job *j) {
    if (j->type != CT_GEMM_F32 || !peer.dnnl) return false;
    for (int64_t i = 0; i < j->batch; i++)
        if (peer.dnnl(j->ta ? 'T' : 'N', j->tb ? 'T' : 'N', j->m, j->n, j->k, 1, (float *)j->a + i * j->m * j->k,
                      j->ta ? j->m : j->k, (float *)j->b + i * j->k * j->n, j->tb ? j->k : j->n, 0,
                      (float *)j->c + i * j->m * j->n, j->n))
            return false;
    return true;
}

/* ---- the peak: chains of independent multiply-adds from registers ---- */

static volatile double sink;
#if defined(__x86_64__)
#include <immintrin.h>
#define CHAINS 16
#define REPEAT 20000
#define PEAK(NAME, TARGET, VEC, ZERO, STEP, SUM)                                             \
    __attribute__((target(TARGET))) static void NAME(void *ctx, int64_t chunk, int worker) { \
        VEC x[CHAINS];                                                                       \
        (void)ctx, (void)chunk, (void)worker;                                                \
        for (int i = 0; i < CHAINS; i++) x[i] = ZERO;                                        \
        VEC y = ZERO;                                                                        \
        for (int r = 0; r < REPEAT; r++) {                                                   \
            __asm__ volatile("" : "+v"(y));                                                  \
            _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) x[i] = STEP(x[i], y);  \
        }                                                                                    \
        for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(x[i]));                   \
    }
#define STEP_F32(c, y)  _mm512_fmadd_ps(y, y, c)
#define STEP_F64(c, y)  _mm512_fmadd_pd(y, y, c)
#define STEP_BF16(c, y) _mm512_dpbf16_ps(c, (__m512bh)(y), (__m512bh)(y))
#define STEP_I8(c, y)   _mm512_dpbusd_epi32(c, y, y)
PEAK(peak_f32, "avx512f", __m512, _mm512_setzero_ps(), STEP_F32, 0)
PEAK(peak_f64, "avx512f", __m512d, _mm512_setzero_pd(), STEP_F64, 0)
PEAK(peak_bf16, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), STEP_BF16, 0)
PEAK(peak_i8, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), STEP_I8, 0)

static double peak_flops(ct_gemm_type t, int threads) {
    const double lanes = t == CT_GEMM_F64 ? 8 : t == CT_GEMM_F32 ? 16 : t == CT_GEMM_BF16 ? 32 : 64;
    if (!__builtin_cpu_supports("avx512f") ||
        (t >= CT_GEMM_BF16 && (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni"))))
        return 0;
    const double start = now();
    ct__parallel(threads * 4,
                 t == CT_GEMM_F32    ? peak_f32
                 : t == CT_GEMM_F64  ? peak_f64
                 : t == CT_GEMM_BF16 ? peak_bf16
                                     : peak_i8,
                 NULL);
    return 2.0 * lanes * CHAINS * REPEAT * threads * 4 / (now() - start) * 1e-9;
}
#else
static double peak_flops(ct_gemm_type t, int threads) { return (void)t, (void)threads, 0; }
#endif

/* ---- measuring ---- */

static const struct {
    const char *name;
    bool (*run)(job *);
} contenders[] = {{"ours", run_ours}, {"openblas", run_openblas}, {"blis", run_blis}, {"onednn", run_dnnl}};
enum { CONTENDERS = 4, ROUNDS_MAX = 101 };

static int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void line(const char *name, const char *who, int threads, double *ms, int rounds, double gflop) {
    qsort(ms, (size_t)rounds, sizeof *ms, by_value);
    printf("{\"name\": \"%s/%s\", \"threads\": %d, \"median_ms\": %.6g, \"min_ms\": %.6g, \"gflops\": %.1f}\n", name,
           who, threads, ms[rounds / 2], ms[0], gflop / ms[0] * 1e3);
}

static void measure(job *j, int threads, int rounds) {
    static double ms[CONTENDERS][ROUNDS_MAX];
    const double gflop = 2e-9 * (double)j->batch * (double)j->m * (double)j->n * (double)j->k;
    bool runs[CONTENDERS];
    double peak = 0;
    prepare(j);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 3; i++) {
            const double p = peak_flops(j->type, threads);
            if (p > peak) peak = p;
        }
        for (int c = 0; c < CONTENDERS; c++) {
            runs[c] = contenders[c].run(j); /* wakes its threads, warms the caches */
            if (!runs[c]) continue;
            contenders[c].run(j);
            int64_t repeats = (int64_t)(0.004 / (gflop / 60.0 + 1e-7)) + 1;
            double best = 1e30;
            for (int i = 0; i < 3; i++) {
                const double start = now();
                for (int64_t r = 0; r < repeats; r++) contenders[c].run(j);
                const double each = (now() - start) / (double)repeats;
                if (each < best) best = each;
            }
            ms[c][round] = best * 1e3;
            if (threads > 1) usleep(5000); /* idle threads of one pool spin a while: not at the next one's expense */
        }
    }
    printf("{\"name\": \"%s/peak\", \"threads\": %d, \"gflops\": %.1f}\n", j->name, threads, peak);
    double best = 0, ours = 0;
    for (int c = 0; c < CONTENDERS; c++) {
        if (!runs[c]) continue;
        line(j->name, contenders[c].name, threads, ms[c], rounds, gflop);
        const double g = gflop / ms[c][0] * 1e3;
        if (c == 0) ours = g;
        else if (g > best) best = g;
    }
    printf("{\"name\": \"%s/summary\", \"threads\": %d, \"of_peak\": %.3f, \"of_best_peer\": %.3f}\n", j->name, threads,
           peak > 0 ? ours / peak : 0, best > 0 ? ours / best : 0);
    fflush(stdout);
    discard(j);
}

static job jobs[200];
static int job_count;
static void add_job(ct_gemm_type type, int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t batch) {
    job *j = &jobs[job_count++];
    static const char *types[] = {"f32", "f64", "bf16", "f16", "i8"};
    *j = (job){.type = type, .m = m, .n = n, .k = k, .ta = ta, .tb = tb, .batch = batch};
    snprintf(j->name, sizeof j->name, "%s/%ldx%ldx%ld/%c%c/batch%ld", types[type], (long)m, (long)n, (long)k,
             ta ? 't' : 'n', tb ? 't' : 'n', (long)batch);
}

/* All cases on the number of threads at the beginning of a list; returns what follows it, or NULL. */
static const char *measure_all(const char *threads, int rounds, const char *only) {
    char *end = NULL;
    int count = (int)strtol(threads, &end, 10); /* of `all` 0, which is as many as there are */
    end += strncmp(end, "all", 3) == 0 ? 3 : 0;
    ct_set_threads(count);
    count = ct_get_threads();
    clock_used = count == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    if (peer.openblas_threads) peer.openblas_threads(count);
    if (peer.blis_threads) peer.blis_threads(count);
    if (peer.omp_threads) peer.omp_threads(count);
    for (int i = 0; i < job_count; i++)
        if (strstr(jobs[i].name, only)) measure(&jobs[i], count, rounds);
    return *end == ',' ? end + 1 : NULL;
}

int main(int argc, char **argv) {
    int rounds = 5;
    const char *only = "", *threads = "1,all";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-t") && i + 1 < argc) threads = argv[++i];
        else if (!strcmp(argv[i], "-r") && i + 1 < argc) rounds = atoi(argv[++i]);
        else only = argv[i];
    }
    if (rounds < 1 || rounds > ROUNDS_MAX) rounds = 5;
    for (int t = 0; t < 2; t++)
        for (int64_t size = 256; size <= 2048; size *= 2)
            for (int trans = 0; trans < 4; trans++)
                add_job(t ? CT_GEMM_F64 : CT_GEMM_F32, size, size, size, trans & 1, trans >> 1, 1);
    for (int64_t size = 8; size <= 128; size *= 2)
        for (int trans = 0; trans < 4; trans++) add_job(CT_GEMM_F32, size, size, size, trans & 1, trans >> 1, 1);
    for (int64_t size = 8; size <= 64; size *= 2)
        for (int trans = 0; trans < 4; trans++) add_job(CT_GEMM_F64, size, size, size, trans & 1, trans >> 1, 1);
    add_job(CT_GEMM_F32, 24, 24, 24, 0, 0, 1), add_job(CT_GEMM_F32, 48, 48, 48, 0, 0, 1);
    add_job(CT_GEMM_F32, 16, 16, 16, 0, 0, 1000), add_job(CT_GEMM_F32, 32, 32, 32, 0, 0, 1000);
    add_job(CT_GEMM_F32, 8, 8, 8, 0, 0, 1000), add_job(CT_GEMM_F32, 64, 64, 64, 0, 1, 1000);
    add_job(CT_GEMM_F32, 64, 1024, 4096, 0, 0, 1), add_job(CT_GEMM_F32, 64, 1024, 4096, 0, 1, 1);
    add_job(CT_GEMM_F32, 64, 512, 784, 0, 1, 1), add_job(CT_GEMM_F32, 64, 784, 512, 0, 0, 1);
    add_job(CT_GEMM_F32, 512, 784, 64, 1, 0, 1);
    add_job(CT_GEMM_F32, 128, 128, 64, 0, 1, 64), add_job(CT_GEMM_F32, 128, 64, 128, 0, 0, 64);
    add_job(CT_GEMM_F32, 128, 128, 64, 0, 0, 64);
    add_job(CT_GEMM_F32, 1, 4096, 4096, 0, 0, 1), add_job(CT_GEMM_F32, 1, 4096, 4096, 0, 1, 1);
    add_job(CT_GEMM_F32, 4096, 1, 4096, 0, 0, 1), add_job(CT_GEMM_F32, 4096, 1, 4096, 1, 0, 1);
    add_job(CT_GEMM_F32, 1, 512, 512, 0, 0, 1), add_job(CT_GEMM_F32, 1, 512, 512, 0, 1, 1);
    add_job(CT_GEMM_F32, 8, 1024, 1024, 0, 1, 1), add_job(CT_GEMM_F32, 8, 1024, 1024, 0, 0, 1);
    for (int trans = 0; trans < 4; trans++) add_job(CT_GEMM_BF16, 1024, 1024, 1024, trans & 1, trans >> 1, 1);
    add_job(CT_GEMM_BF16, 256, 256, 256, 0, 0, 1), add_job(CT_GEMM_BF16, 64, 512, 784, 0, 1, 1);
    add_job(CT_GEMM_I8, 1024, 1024, 1024, 0, 0, 1), add_job(CT_GEMM_I8, 1024, 1024, 1024, 0, 1, 1);
    open_peers();
    sink = 0;
    while (threads) threads = measure_all(threads, rounds, only);
    return 0;
}

/* Uniform, normal, integer and yes-or-no numbers: words of the stream, made into values, a block at a time. Normal
 * numbers are made in pairs (Box and Muller, 1958), integers by the upper half of a product with the range (Lemire, 2019). */
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "core/dtype.h"
#include "ops/create/cpu/generate.h"
#include "ops/random/cpu/philox/philox.h"
#include "ops/random/cpu/position.h"
#include "ops/random/random.h"

#include "gen/random.attrs.h"

enum { WORDS = GENERATE_BLOCK }; /* of a block of 32-bit values; those of 64 bits take twice as many */

static void store_half(ct_dtype dtype, const float *values, int n, uint16_t *to) {
    for (int i = 0; i < n; i += VF32_LANES) {
        int m = n - i < VF32_LANES ? n - i : VF32_LANES;
        if (dtype == CT_F16) vf32_store_f16_n(to + i, vf32_load(values + i), m);
        else vf32_store_bf16_n(to + i, vf32_load(values + i), m);
    }
}

/* ---- Words ---- */

static void make_words(const void *spec, int64_t first, int n, void *to) {
    uint32_t words[WORDS];
    CT_ISA_FN(ct__philox_fill)(*(const ct_random *)spec, (uint64_t)first, n, words);
    for (int i = 0; i < n; i++) ((int64_t *)to)[i] = words[i];
}

static bool run_words(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_random at = ct__position(call->in[0]);
    return generate(call->out[0], make_words, &at);
}

/* ---- Uniform ---- */

typedef struct uniform_spec {
    ct_random at;
    ct_dtype dtype;
    double lo, width, most; /* most: the largest value of the dtype below hi */
} uniform_spec;

/* lo + u * width may round to hi, which is not in the interval. */
static void uniform_f32(const uniform_spec *s, const uint32_t *words, int n, int bits, float *to) {
    float lo = (float)s->lo, width = (float)s->width, most = (float)s->most, unit = ldexpf(1, -bits);
    int shift = 32 - bits;
    for (int i = 0; i < n; i++) {
        float v = lo + (float)(int32_t)(words[i] >> shift) * unit * width;
        to[i] = v < most ? v : most;
    }
}

static void make_uniform(const void *spec, int64_t first, int n, void *to) {
    const uniform_spec *s = spec;
    uint32_t words[2 * WORDS];
    if (s->dtype == CT_F64) {
        double *y = to;
        CT_ISA_FN(ct__philox_fill)(s->at, 2 * (uint64_t)first, 2 * n, words);
        for (int i = 0; i < n; i++) {
            uint64_t w = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
            double v = s->lo + (double)(int64_t)(w >> 11) * 0x1p-53 * s->width;
            y[i] = v < s->most ? v : s->most;
        }
        return;
    }
    CT_ISA_FN(ct__philox_fill)(s->at, (uint64_t)first, n, words);
    if (s->dtype == CT_F32) {
        uniform_f32(s, words, n, 24, to);
        return;
    }
    float values[GENERATE_BLOCK];
    uniform_f32(s, words, n, s->dtype == CT_F16 ? 11 : 8, values);
    store_half(s->dtype, values, n, to);
}

static bool uniform_between(const ct_call *call, double lo, double hi) {
    const ct_view *y = call->out[0];
    uniform_spec s = {
        .at = call->random, .dtype = y->dtype, .lo = lo, .width = hi - lo, .most = ct__uniform_most(y->dtype, lo, hi)};
    return generate(y, make_uniform, &s);
}

static bool run_rand(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return uniform_between(call, 0, 1);
}

static bool run_uniform(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const uniform_attrs *a = call->attrs;
    return uniform_between(call, a->lo, a->hi);
}

/* ---- Normal ---- */

typedef struct normal_spec {
    ct_random at;
    ct_dtype dtype;
    double mean, std;
} normal_spec;

/* sin and cos of the turn that 32 bits are a fraction of. The top bits, rounded, count the quarters; what is left lies within
 * an eighth of a turn of zero, where short polynomials (minimax, error below 2^-28 of the sine) do. */
static inline void turn_f32(vi32 word, vf32 *sine, vf32 *cosine) {
    vi32 quarter = vi32_shr(vi32_add(word, vi32_set1(1 << 29)), 30);
    int32_t rest[VF32_LANES];
    vi32 shifted = vi32_shl(word, 2);
    memcpy(rest, &shifted, sizeof rest);
    float angle[VF32_LANES];
    for (int i = 0; i < VF32_LANES; i++) angle[i] = (float)rest[i];
    vf32 x = vf32_mul(vf32_load(angle), vf32_set1(0x1.921fb6p-32f)), z = vf32_mul(x, x); /* pi/2 * 2^-32 */
    vf32 s = vf32_fma(z, vf32_set1(-0x1.994eb2p-13f), vf32_set1(0x1.11076p-7f));
    s = vf32_fma(z, s, vf32_set1(-0x1.555546p-3f));
    s = vf32_fma(vf32_mul(z, x), s, x);
    vf32 c = vf32_fma(z, vf32_set1(0x1.9a025ap-16f), vf32_set1(-0x1.6c0c8cp-10f));
    c = vf32_fma(z, c, vf32_set1(0x1.55554ap-5f));
    c = vf32_fma(vf32_mul(z, z), c, vf32_fma(z, vf32_set1(-0.5f), vf32_set1(1)));
    mf32 odd = vi32_eq(vi32_and(quarter, vi32_set1(1)), vi32_set1(1));
    vi32 sine_sign = vi32_shl(vi32_and(quarter, vi32_set1(2)), 30);
    vi32 cosine_sign = vi32_shl(vi32_and(vi32_add(quarter, vi32_set1(1)), vi32_set1(2)), 30);
    *sine = vf32_xor(vf32_select(odd, c, s), vf32_from_bits(sine_sign));
    *cosine = vf32_xor(vf32_select(odd, s, c), vf32_from_bits(cosine_sign));
}

/* Box and Muller: of two words (u, v), r = sqrt(-2 log u), the normals r cos(2 pi v) and r sin(2 pi v). u is
 * (word + 1/2) / 2^32, never zero. */
static void normal_f32(const normal_spec *s, const uint32_t *words, int n, float *to /* whole blocks */) {
    vf32 mean = vf32_set1((float)s->mean), std = vf32_set1((float)s->std);
    for (int i = 0; i < n; i += 2 * VF32_LANES) {
        float u[VF32_LANES], a[VF32_LANES], b[VF32_LANES];
        uint32_t v[VF32_LANES];
        for (int k = 0; k < VF32_LANES; k++) {
            u[k] = (float)words[i + 2 * k] * 0x1p-32f + 0x1p-33f;
            v[k] = words[i + 2 * k + 1];
        }
        vi32 turns;
        memcpy(&turns, v, sizeof turns);
        vf32 sine, cosine, r = vf32_sqrt(vf32_mul(vf32_set1(-2), vf32_minb(vf32_log(vf32_load(u)), vf32_zero())));
        turn_f32(turns, &sine, &cosine);
        r = vf32_mul(r, std);
        vf32_store(a, vf32_fma(r, cosine, mean));
        vf32_store(b, vf32_fma(r, sine, mean));
        for (int k = 0; k < VF32_LANES; k++) {
            to[i + 2 * k] = a[k];
            to[i + 2 * k + 1] = b[k];
        }
    }
}

/* The same with 53 bits each: a pair of normals takes a block of four words. The turn is reduced as above. */
static void normal_f64(const normal_spec *spec, const uint32_t *words, int n, double *to /* whole blocks */) {
    vf64 mean = vf64_set1(spec->mean), std = vf64_set1(spec->std);
    for (int i = 0; i < n; i += 2 * VF64_LANES) {
        double u[VF64_LANES], v[VF64_LANES], a[VF64_LANES], b[VF64_LANES];
        double odd[VF64_LANES], cosine_sign[VF64_LANES], sine_sign[VF64_LANES];
        for (int k = 0; k < VF64_LANES; k++) {
            const uint32_t *w = words + 2 * (i + 2 * k);
            u[k] = (double)(int64_t)(((uint64_t)w[1] << 32 | w[0]) >> 11) * 0x1p-53 + 0x1p-54;
            const int64_t turn = (int64_t)(((uint64_t)w[3] << 32 | w[2]) >> 11);
            const int64_t quarter = (turn + ((int64_t)1 << 50)) >> 51;
            v[k] = (double)(turn - quarter * ((int64_t)1 << 51)) * 0x1.921fb54442d18p-51; /* 2 pi * 2^-53 */
            odd[k] = (double)(quarter & 1);
            cosine_sign[k] = (double)(1 - ((quarter + 1) & 2));
            sine_sign[k] = (double)(1 - (quarter & 2));
        }
        vf64 angle = vf64_load(v),
             r = vf64_sqrt(vf64_mul(vf64_set1(-2), vf64_minb(vf64_log(vf64_load(u)), vf64_zero())));
        r = vf64_mul(r, std);
        vf64 s = vf64_sin(angle), c = vf64_cos(angle);
        mf64 swap = vf64_lt(vf64_zero(), vf64_load(odd));
        vf64 cosine = vf64_mul(vf64_select(swap, s, c), vf64_load(cosine_sign)),
             sine = vf64_mul(vf64_select(swap, c, s), vf64_load(sine_sign));
        vf64_store(a, vf64_fma(r, cosine, mean));
        vf64_store(b, vf64_fma(r, sine, mean));
        for (int k = 0; k < VF64_LANES; k++) {
            to[i + 2 * k] = a[k];
            to[i + 2 * k + 1] = b[k];
        }
    }
}

static void make_normal(const void *spec, int64_t first, int n, void *to) {
    const normal_spec *s = spec;
    uint32_t words[2 * WORDS];
    bool whole = n == GENERATE_BLOCK;
    if (s->dtype == CT_F64) {
        double values[GENERATE_BLOCK];
        CT_ISA_FN(ct__philox_fill)(s->at, 2 * (uint64_t)first, 2 * n, words);
        normal_f64(s, words, n, whole ? to : values);
        if (!whole) memcpy(to, values, (size_t)n * sizeof *values);
        return;
    }
    float values[GENERATE_BLOCK];
    CT_ISA_FN(ct__philox_fill)(s->at, (uint64_t)first, n, words);
    normal_f32(s, words, n, whole && s->dtype == CT_F32 ? to : values);
    if (s->dtype != CT_F32) store_half(s->dtype, values, n, to);
    else if (!whole) memcpy(to, values, (size_t)n * sizeof *values);
}

static bool run_randn(const ct_call *call, ct_stream *stream) {
    (void)stream;
    normal_spec s = {.at = call->random, .dtype = call->out[0]->dtype, .mean = 0, .std = 1};
    return generate(call->out[0], make_normal, &s);
}

static bool run_normal(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const normal_attrs *a = call->attrs;
    normal_spec s = {.at = call->random, .dtype = call->out[0]->dtype, .mean = a->mean, .std = a->std};
    return generate(call->out[0], make_normal, &s);
}

/* ---- Integers ---- */

typedef struct randint_spec {
    ct_random at;
    size_t size;
    uint64_t lo, range;
} randint_spec;

/* The upper half of 64 random bits times the range: within 2^-64 of uniform, without rejection. */
static void make_randint(const void *spec, int64_t first, int n, void *to) {
    const randint_spec *s = spec;
    uint32_t words[2 * WORDS];
    uint64_t values[GENERATE_BLOCK];
    CT_ISA_FN(ct__philox_fill)(s->at, 2 * (uint64_t)first, 2 * n, words);
    for (int i = 0; i < n; i++) {
        uint64_t w = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
        values[i] = s->lo + (uint64_t)((unsigned __int128)w * s->range >> 64);
    }
    switch (s->size) {
    case 1:
        for (int i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)values[i];
        break;
    case 2:
        for (int i = 0; i < n; i++) ((uint16_t *)to)[i] = (uint16_t)values[i];
        break;
    case 4:
        for (int i = 0; i < n; i++) ((uint32_t *)to)[i] = (uint32_t)values[i];
        break;
    default: memcpy(to, values, (size_t)n * sizeof *values);
    }
}

static bool run_randint(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const randint_attrs *a = call->attrs;
    randint_spec s = {.at = call->random,
                      .size = ct_dtype_size(a->dtype),
                      .lo = (uint64_t)a->lo,
                      .range = (uint64_t)a->hi - (uint64_t)a->lo};
    return generate(call->out[0], make_randint, &s);
}

/* ---- Yes or no ---- */

typedef struct bernoulli_spec {
    ct_random at;
    size_t size;
    uint32_t bound; /* of 24 random bits: those below are yes */
    uint64_t one;   /* the bits of 1 */
} bernoulli_spec;

/* rand() < p, with the words and the 24 bits that rand has. */
static void make_bernoulli_full(const void *spec, int64_t first, int n, void *to) {
    const bernoulli_spec s = *(const bernoulli_spec *)spec;
    uint32_t words[WORDS];
    CT_ISA_FN(ct__philox_fill)(s.at, (uint64_t)first, n, words);
#define DRAW(type)                                                                                \
    do {                                                                                          \
        type one = (type)s.one, *y = to;                                                          \
        for (int i = 0; i < n; i++) y[i] = (int32_t)(words[i] >> 8) < (int32_t)s.bound ? one : 0; \
    } while (0)
    switch (s.size) {
    case 1: DRAW(uint8_t); break;
    case 2: DRAW(uint16_t); break;
    case 4: DRAW(uint32_t); break;
    default: DRAW(uint64_t);
    }
#undef DRAW
}

static bool run_bernoulli_full(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const bernoulli_full_attrs *a = call->attrs;
    bernoulli_spec s = {.at = call->random, .size = ct_dtype_size(a->dtype), .bound = (uint32_t)ceil(a->p * 0x1p24)};
    ct__dtype_put(a->dtype, &s.one, 1);
    return generate(call->out[0], make_bernoulli_full, &s);
}

typedef struct bernoulli_job {
    const ct_call *call;
    rows rows;
    ct_random at;
    ct_dtype dtype;
    size_t size;
    const char *p;
    char *y;
    uint64_t one;
    int64_t chunk;
    _Atomic bool failed;
} bernoulli_job;

/* A run of f32, the usual case, without branches: how many of its elements are no probabilities. */
static int bernoulli_f32(const uint32_t *words, const float *p, int64_t p_step, float *y, int n) {
    int bad = 0;
    for (int i = 0; i < n; i++) {
        float chance = p[i * p_step];
        bad += !(chance >= 0 && chance <= 1);
        y[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f < chance ? 1.0f : 0.0f;
    }
    return bad;
}

static void bernoulli_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    bernoulli_job *j = context;
    int64_t size = (int64_t)j->size, end = ct__min64((chunk + 1) * j->chunk, j->rows.count);
    for (int64_t first = chunk * j->chunk; first < end; first += WORDS) {
        uint32_t words[WORDS];
        int64_t last = ct__min64(first + WORDS, end);
        CT_ISA_FN(ct__philox_fill)(j->at, (uint64_t)first, (int)(last - first), words);
        for (int64_t i = first; i < last;) {
            rows_run run = rows_at(&j->rows, i, last);
            int64_t done = 0;
            if (j->dtype == CT_F32 && run.step[0] == 1) {
                const float *p = (const float *)(const void *)j->p + run.at[1];
                if (!bernoulli_f32(words + (i - first), p, run.step[1], (float *)(void *)j->y + run.at[0], (int)run.n))
                    done = run.n;
            }
            for (int64_t k = done; k < run.n; k++) {
                const char *from = j->p + (run.at[1] + k * run.step[1]) * size;
                double p = ct__dtype_get(j->dtype, from);
                if (!(p >= 0 && p <= 1)) {
                    j->failed = true;
                    ct__wrong_real(j->call, 0, NULL, i + k, p, 0, 1);
                    return;
                }
                uint64_t bits = (double)(words[i + k - first] >> 8) * 0x1p-24 < p ? j->one : 0;
                memcpy(j->y + (run.at[0] + k * run.step[0]) * size, &bits, j->size);
            }
            i += run.n;
        }
    }
}

static bool run_bernoulli(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *p = call->in[0], *y = call->out[0];
    bernoulli_job j = {
        .call = call, .rows = rows_of(y, p), .at = call->random, .dtype = y->dtype, .size = ct_dtype_size(y->dtype)};
    j.p = ct__address(p, j.size);
    j.y = ct__address(y, j.size);
    j.chunk = (ct__grain(GENERATE_CHUNK) + WORDS - 1) / WORDS * WORDS;
    ct__dtype_put(y->dtype, &j.one, 1);
    ct__parallel((j.rows.count + j.chunk - 1) / j.chunk, bernoulli_chunk, &j);
    return !j.failed;
}

CT_KERNELS(random_random) = {
    CT_CANDIDATES(random_words, {"philox", NULL, NULL, run_words}),
    CT_CANDIDATES(rand, {"philox", NULL, NULL, run_rand}),
    CT_CANDIDATES(uniform, {"philox", NULL, NULL, run_uniform}),
    CT_CANDIDATES(randn, {"philox_box_muller", NULL, NULL, run_randn}),
    CT_CANDIDATES(normal, {"philox_box_muller", NULL, NULL, run_normal}),
    CT_CANDIDATES(randint, {"philox_multiply_high", NULL, NULL, run_randint}),
    CT_CANDIDATES(bernoulli, {"philox", NULL, NULL, run_bernoulli}),
    CT_CANDIDATES(bernoulli_full, {"philox", NULL, NULL, run_bernoulli_full}),
    {0},
};

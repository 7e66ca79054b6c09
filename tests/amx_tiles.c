/* The registers of amx_tiles.h. What lies beyond the rows and columns of a configuration is zero at all times. */
#include "tests/amx_tiles.h"

#include <signal.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, COLUMNS = ROW_BYTES / 4, CONFIG_BYTES = 64 }; /* palette 1 */

typedef struct tile {
    alignas(64) unsigned char at[ROWS][ROW_BYTES];
    int rows, row_bytes;
} tile;

static _Thread_local struct {
    bool configured;
    int start_row; /* of a load or store that a fault interrupted */
    tile tiles[TILES];
} file;

/* ---- Faults ---- */

/* Says why, and ends the process as the kernel does. */
static _Noreturn void end(int signal_number, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (length > (int)sizeof text - 2) length = (int)sizeof text - 2;
    text[length++] = '\n';
    if (write(STDERR_FILENO, text, (size_t)length) < 0) length = 0; /* nobody reads it: the signal has to do */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
    _exit(127);
}

#define UNDEFINED(...) end(SIGILL, "AMX, #UD: " __VA_ARGS__)

static _Noreturn void refuse(const unsigned char *config, const char *what, int position, int value) {
    char bytes[2 * CONFIG_BYTES + CONFIG_BYTES / 8 + 1], *at = bytes;
    for (int i = 0; i < CONFIG_BYTES; i++) at += sprintf(at, i % 8 ? "%02x" : " %02x", config[i]);
    end(SIGSEGV, "AMX, #GP: ldtilecfg: %s %d is %d, in the configuration\n%s", what, position, value, bytes);
}

/* ---- The configuration ---- */

static void expect_zeros(const unsigned char *config, int from, int to) {
    for (int i = from; i < to; i++)
        if (config[i]) refuse(config, "reserved byte", i, config[i]);
}

void amx_release(void) { memset(&file, 0, sizeof file); }

void amx_configure(const void *from) {
    unsigned char config[CONFIG_BYTES];
    memcpy(config, from, sizeof config);
    if (config[0] > 1) refuse(config, "the palette, byte", 0, config[0]);
    if (config[0] == 1) {
        expect_zeros(config, 2, 16);
        expect_zeros(config, 16 + 2 * TILES, 48);
        expect_zeros(config, 48 + TILES, 64);
    }
    amx_release();
    for (int i = 0; i < TILES && config[0] == 1; i++) {
        tile *t = &file.tiles[i];
        t->row_bytes = config[16 + 2 * i] | config[17 + 2 * i] << 8;
        t->rows = config[48 + i];
        if (t->row_bytes > ROW_BYTES) refuse(config, "bytes of a row of register", i, t->row_bytes);
        if (t->rows > ROWS || !t->rows != !t->row_bytes) refuse(config, "rows of register", i, t->rows);
    }
    file.configured = config[0] == 1;
    file.start_row = file.configured ? config[1] : 0;
}

/* A register that an instruction names. */
static tile *named(const char *instruction, int i) {
    if (!file.configured) UNDEFINED("%s with no configuration loaded", instruction);
    if (i >= TILES || !file.tiles[i].rows) UNDEFINED("%s of register %d, which is not configured", instruction, i);
    return &file.tiles[i];
}

static tile *named_of_words(const char *instruction, int i) {
    tile *t = named(instruction, i);
    if (t->row_bytes % 4) UNDEFINED("%s of register %d, whose rows have %d bytes", instruction, i, t->row_bytes);
    return t;
}

void amx_zero(int i) {
    tile *t = named("tilezero", i);
    memset(t->at, 0, sizeof t->at);
    file.start_row = 0;
}

/* ---- Memory ---- */

static tile *named_from_row(const char *instruction, int i) {
    tile *t = named_of_words(instruction, i);
    if (file.start_row >= t->rows)
        UNDEFINED("%s of register %d from row %d on, of %d", instruction, i, file.start_row, t->rows);
    return t;
}

void amx_load(int i, const void *from, int64_t stride) {
    tile *t = named_from_row("tileloadd", i);
    memset(t->at[file.start_row], 0, (size_t)(ROWS - file.start_row) * ROW_BYTES);
    for (; file.start_row < t->rows; file.start_row++)
        memcpy(t->at[file.start_row], (const char *)from + file.start_row * stride, (size_t)t->row_bytes);
    file.start_row = 0;
}

void amx_store(int i, void *to, int64_t stride) {
    const tile *t = named_from_row("tilestored", i);
    for (; file.start_row < t->rows; file.start_row++)
        memcpy((char *)to + file.start_row * stride, t->at[file.start_row], (size_t)t->row_bytes);
    file.start_row = 0;
}

/* ---- Products ---- */

typedef void product_fn(tile *c, const tile *a, const tile *b);

/* A pair's elements are summed apart, each by fused multiply-adds over the k of one instruction, then with each other, then into c. */
static __attribute__((noinline)) void sum_pairs(tile *c, const tile *a, const tile *b) {
    for (int m = 0; m < c->rows; m++) {
        float sums[COLUMNS][2] = {{0}}, old;
        for (int k = 0; k < a->row_bytes / 4; k++)
            for (int n = 0; n < c->row_bytes / 4; n++)
                for (int of = 0; of < 2; of++) {
                    const int x = 4 * k + 2 * of, y = 4 * n + 2 * of;
                    const uint32_t left = (uint32_t)(a->at[m][x] | a->at[m][x + 1] << 8) << 16;
                    const uint32_t right = (uint32_t)(b->at[k][y] | b->at[k][y + 1] << 8) << 16;
                    float f, g;
                    memcpy(&f, &left, 4), memcpy(&g, &right, 4);
                    sums[n][of] += f * g; /* the product is exact: as if fused, but for the ends of f32's range */
                }
        for (int n = 0; n < c->row_bytes / 4; n++) {
            memcpy(&old, &c->at[m][4 * n], 4);
            old += sums[n][0] + sums[n][1];
            memcpy(&c->at[m][4 * n], &old, 4);
        }
    }
}

static __attribute__((noinline)) void sum_bytes(tile *c, const tile *a, const tile *b) {
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &c->at[m][4 * n], 4);
            for (int k = 0; k < a->row_bytes; k++) sum += (uint32_t)(a->at[m][k] * (int8_t)b->at[k / 4][4 * n + k % 4]);
            memcpy(&c->at[m][4 * n], &sum, 4);
        }
}

#if defined(__x86_64__)
/* The same in vectors, where there are any: fused, and some thirty times as fast. */
static __attribute__((noinline, target("avx512f"))) void sum_pairs_in_vectors(tile *c, const tile *a, const tile *b) {
    const __m512i second = _mm512_set1_epi32((int)0xffff0000);
    const __mmask16 columns = (__mmask16)((1u << c->row_bytes / 4) - 1);
    for (int m = 0; m < c->rows; m++) {
        __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int k = 0; k < a->row_bytes / 4; k++) {
            int pair;
            memcpy(&pair, &a->at[m][4 * k], 4);
            const __m512i x = _mm512_set1_epi32(pair), y = _mm512_load_si512(b->at[k]);
            sums[0] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                      _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), sums[0]);
            sums[1] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, second)),
                                      _mm512_castsi512_ps(_mm512_and_si512(y, second)), sums[1]);
        }
        const __m512 old = _mm512_load_ps(c->at[m]);
        _mm512_mask_store_ps(c->at[m], columns, _mm512_add_ps(old, _mm512_add_ps(sums[0], sums[1])));
    }
}

static __attribute__((noinline, target("avx512f,avx512vnni"))) void sum_bytes_in_vectors(tile *c, const tile *a,
                                                                                         const tile *b) {
    for (int m = 0; m < c->rows; m++) {
        __m512i sums = _mm512_load_si512(c->at[m]);
        for (int k = 0; k < a->row_bytes / 4; k++) {
            int group;
            memcpy(&group, &a->at[m][4 * k], 4);
            sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi32(group), _mm512_load_si512(b->at[k]));
        }
        _mm512_store_si512(c->at[m], sums);
    }
}

/* Numbers below the normal ones are zero, in what is read and in what is written; ties go to even; nothing is raised. */
static void in_its_rounding(product_fn *product, tile *c, const tile *a, const tile *b) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_NEAREST | _MM_FLUSH_ZERO_ON | 0x0040 /* denormals are zeros */);
    product(c, a, b);
    _mm_setcsr(before);
}
static bool has_vectors(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"); }
#else
#define sum_pairs_in_vectors sum_pairs
#define sum_bytes_in_vectors sum_bytes
static void in_its_rounding(product_fn *product, tile *c, const tile *a, const tile *b) { product(c, a, b); }
static bool has_vectors(void) { return false; }
#endif

static void multiply(const char *instruction, product_fn *product, int c, int a, int b) {
    tile *sums = named_of_words(instruction, c);
    const tile *left = named_of_words(instruction, a), *right = named_of_words(instruction, b);
    if (c == a || a == b || b == c) UNDEFINED("%s of registers %d, %d and %d, not three", instruction, c, a, b);
    if (sums->rows != left->rows || sums->row_bytes != right->row_bytes || left->row_bytes != 4 * right->rows)
        UNDEFINED(
            "%s of registers whose sizes do not fit: %d (%d rows of %d bytes) += %d (%d of %d) times %d (%d of %d)",
            instruction, c, sums->rows, sums->row_bytes, a, left->rows, left->row_bytes, b, right->rows,
            right->row_bytes);
    in_its_rounding(product, sums, left, right);
    file.start_row = 0;
}

void amx_product_bf16(int c, int a, int b) {
    multiply("tdpbf16ps", has_vectors() ? sum_pairs_in_vectors : sum_pairs, c, a, b);
}
void amx_product_u8(int c, int a, int b) {
    multiply("tdpbusd", has_vectors() ? sum_bytes_in_vectors : sum_bytes, c, a, b);
}

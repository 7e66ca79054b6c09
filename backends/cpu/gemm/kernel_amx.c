/* Blocks of 32 x 32 sums in AMX's tile registers: bf16 pairs with sums in f32, bytes with sums in i32. They read the panels of the vector
 * kernels of avx512bf16 (pack_b in gemm.h: rows of 16 columns by one k group are just what a B register takes), and take their place in
 * large products (plan.c).
 *
 * Registers: 0 to 3 are the sums, two rows of two; 4 and 5 hold 16 rows of A each, 6 and 7 16 columns of B each, 16 k groups deep. A step is
 * four loads of 1 KiB, some 32 cycles of the load ports, and four products of 16 cycles each: the products are what is waited for as long
 * as A comes from L1 and B from L2 at most. Rows that do not fill a register go by a configuration of their own. Loading one is costly,
 * so it stays until another number of rows comes, and is given up after each chunk (ct__kernel.leave): what other libraries do with the
 * registers in between is theirs. k groups that do not fill a register are copied between zeros. */
#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL == 4

#include <stdalign.h>
#include <string.h>

enum { ROWS = 16, GROUPS = 16, ROW_BYTES = 64, BLOCK = 2 * ROWS };

/* What LDTILECFG reads: palette 1, bytes of a row and rows of each register. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "as the processor reads it");

static _Thread_local int configured; /* for so many rows; 0: not at all */

/* For blocks of `rows` rows: the sums and A of the lower half have fewer than 16, or those of the upper half and no lower one. */
static void configure(int rows) {
    if (rows % ROWS == 0) rows = BLOCK; /* which do for 16 as well */
    if (rows == configured) return;
    configured = rows;
    alignas(64) tile_config c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    const int upper = rows < ROWS ? rows : ROWS, lower = rows > ROWS ? rows - ROWS : ROWS;
    for (int i = 0; i < 8; i++) {
        const bool is_lower = i == 2 || i == 3 || i == 5, is_b = i >= 6;
        c.row_bytes[i] = ROW_BYTES;
        c.rows[i] = (uint8_t)(is_b ? GROUPS : is_lower ? lower : upper);
    }
    AMX_CONFIGURE(&c);
}

static void enter(void) { configured = 0; }
static void leave(void) {
    if (configured) AMX_RELEASE();
    configured = 0;
}

/* The last k groups, fewer than 16, with zeros behind them. */
typedef struct last_groups {
    alignas(64) char a[BLOCK][ROW_BYTES], b[GROUPS][2 * ROW_BYTES];
} last_groups;

static void copy_last(const ct__tile *t, const char *a, const char *b, int64_t groups, last_groups *to) {
    memset(to, 0, sizeof *to);
    for (int i = 0; i < t->rows; i++) memcpy(to->a[i], a + i * t->a_row, (size_t)groups * 4);
    for (int64_t p = 0; p < groups; p++) memcpy(to->b[p], b + p * t->b_step, 2 * ROW_BYTES);
}

/* What the sums begin with: C itself, where nothing else has to be done to it afterwards; `start`, one row for all; or zero. */
#define BEGIN(TILE, i, j)                                                                           \
    if (from_c) AMX_LOAD(TILE, (const char *)t->c + (i)*t->c_row + (j)*ROW_BYTES / ROWS, t->c_row); \
    else if (t->start) AMX_LOAD(TILE, (const char *)t->start + (j)*ROW_BYTES / ROWS, 0);            \
    else AMX_ZERO(TILE);

#define PRODUCT(c, a, b)                    \
    {                                       \
        if (bytes) AMX_PRODUCT_U8(c, a, b); \
        else AMX_PRODUCT_BF16(c, a, b);     \
    }

/* One step of 16 k groups. */
static inline __attribute__((always_inline)) void step(const char *a, int64_t a_row, const char *b, int64_t b_step,
                                                       const bool bytes, bool right, bool below) {
    AMX_LOAD(6, b, b_step);
    if (right) AMX_LOAD(7, b + ROW_BYTES, b_step);
    AMX_LOAD(4, a, a_row);
    PRODUCT(0, 4, 6)
    if (right) PRODUCT(1, 4, 7)
    if (!below) return;
    AMX_LOAD(5, a + ROWS * a_row, a_row);
    PRODUCT(2, 5, 6)
    if (right) PRODUCT(3, 5, 7)
}

/* The sums of a block, into C (from_c, or what is there does not count) or into a buffer of 32 by 32. */
static inline __attribute__((always_inline)) void sum(const ct__tile *t, const bool bytes, bool from_c, char *to,
                                                      int64_t to_row) {
    const bool right = t->cols > ROWS, below = t->rows > ROWS;
    const int64_t rest = t->k % GROUPS, whole = t->k - rest, runs = t->n_runs ? t->n_runs : 1;
    last_groups last;
    AMX_FENCE;
    BEGIN(0, 0, 0)
    if (right) {
        BEGIN(1, 0, ROWS)
    }
    if (below) {
        BEGIN(2, ROWS, 0)
    }
    if (below && right) {
        BEGIN(3, ROWS, ROWS)
    }
    for (int64_t run = 0; run < runs; run++) {
        const char *a = (const char *)t->a + (t->n_runs ? t->runs[run].a : 0);
        const char *b = (const char *)t->b + (t->n_runs ? t->runs[run].b : 0);
        for (int64_t p = 0; p < whole; p += GROUPS, a += ROW_BYTES, b += GROUPS * t->b_step)
            step(a, t->a_row, b, t->b_step, bytes, right, below);
        if (!rest) continue;
        copy_last(t, a, b, rest, &last);
        AMX_FENCE;
        step(&last.a[0][0], ROW_BYTES, &last.b[0][0], 2 * ROW_BYTES, bytes, right, below);
        AMX_FENCE; /* the next run writes there */
    }
    AMX_STORE(0, to, to_row);
    if (right) AMX_STORE(1, to + ROW_BYTES, to_row);
    if (below) AMX_STORE(2, to + ROWS * to_row, to_row);
    if (below && right) AMX_STORE(3, to + ROWS * to_row + ROW_BYTES, to_row);
    AMX_FENCE;
}

/* Whether the registers hold just this block: whole columns, and nothing to be done to the sums but adding. */
static bool is_plain(const ct__tile *t) { return t->cols == BLOCK && !t->scale && !(t->accumulate && t->start); }

static void tile_bf16(const ct__tile *t) {
    configure(t->rows);
    if (is_plain(t)) {
        sum(t, false, t->accumulate, t->c, t->c_row);
    } else {
        /* Sums of fewer columns go on from C as those of whole ones do: which are whole hangs on which way round the product is computed,
         * and that on the number of threads. */
        alignas(64) float sums[BLOCK][BLOCK];
        const bool from_c = t->accumulate && !t->scale && !t->start;
        ct__tile block = *t;
        block.c = sums, block.c_row = sizeof *sums;
        for (int i = 0; i < t->rows && from_c; i++)
            memcpy(sums[i], (const char *)t->c + i * t->c_row, (size_t)t->cols * sizeof **sums);
        sum(&block, false, from_c, (char *)sums, sizeof *sums);
        for (int i = 0; i < t->rows; i++) {
            float *c = (float *)(void *)((char *)t->c + i * t->c_row);
            for (int j = 0; j < t->cols; j++) {
                const float x = t->scale ? sums[i][j] * (float)t->alpha : sums[i][j];
                c[j] = t->accumulate && !from_c ? c[j] + x : x;
            }
        }
    }
}

static void tile_u8(const ct__tile *t) {
    configure(t->rows);
    if (is_plain(t)) {
        sum(t, true, t->accumulate, t->c, t->c_row);
    } else {
        alignas(64) uint32_t sums[BLOCK][BLOCK];
        sum(t, true, false, (char *)sums, sizeof *sums);
        for (int i = 0; i < t->rows; i++) {
            uint32_t *c = (uint32_t *)(void *)((char *)t->c + i * t->c_row);
            for (int j = 0; j < t->cols; j++) c[j] = t->accumulate ? c[j] + sums[i][j] : sums[i][j];
        }
    }
}

const ct__kernel CT_ISA_FN(ct__gemm_bf16) = {
    .name = "bf16_32x32_avx512amx",
    .block = tile_bf16,
    .enter = enter,
    .leave = leave,
    .rows = BLOCK,
    .row_step = ROWS,
    .lanes = ROWS,
    .vecs = 2,
    .group = 2,
    .packed = CT_GEMM_BF16,
    .acc = CT_GEMM_F32,
    .depth = 1024,
    .block_cols = 256,
    .block_rows = 64, /* two blocks: B comes from L2 for the second */
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};

const ct__kernel CT_ISA_FN(ct__gemm_i8) = {
    .name = "i8_32x32_avx512amx",
    .block = tile_u8,
    .enter = enter,
    .leave = leave,
    .rows = BLOCK,
    .row_step = ROWS,
    .lanes = ROWS,
    .vecs = 2,
    .group = 4,
    .packed = CT_GEMM_I8,
    .acc = CT_GEMM_I32,
    .unsigned_a = true,
    .depth = 2048,
    .block_cols = 256,
    .block_rows = 64, /* two blocks: B comes from L2 for the second */
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};
#endif

/* The GEMM engine against a plain loop, at every instruction-set level this machine has: types, strides,
 * batches, epilogues, packers, edges, and the same bits for any number of threads. */
#include "backends/cpu/gemm/caches.h"
#include "tests/amx_level.h"
#include "tests/gemm_products.h"

static const int64_t edge[] = {0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 257};
static int64_t pick_edge(void) { return edge[pick(sizeof edge / sizeof *edge)]; }

static const ct_gemm_type triples[][3] = {
    {CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32},   {CT_GEMM_F64, CT_GEMM_F64, CT_GEMM_F64},
    {CT_GEMM_BF16, CT_GEMM_BF16, CT_GEMM_F32}, {CT_GEMM_BF16, CT_GEMM_BF16, CT_GEMM_BF16},
    {CT_GEMM_F16, CT_GEMM_F16, CT_GEMM_F32},   {CT_GEMM_F16, CT_GEMM_F16, CT_GEMM_F16},
    {CT_GEMM_F32, CT_GEMM_BF16, CT_GEMM_F32},  {CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_BF16},
    {CT_GEMM_I8, CT_GEMM_I8, CT_GEMM_I32},     {CT_GEMM_U8, CT_GEMM_I8, CT_GEMM_I32},
    {CT_GEMM_I8, CT_GEMM_I8, CT_GEMM_I8},      {CT_GEMM_U8, CT_GEMM_U8, CT_GEMM_U8},
    {CT_GEMM_I16, CT_GEMM_I16, CT_GEMM_I16},   {CT_GEMM_I32, CT_GEMM_I32, CT_GEMM_I32},
    {CT_GEMM_I64, CT_GEMM_I64, CT_GEMM_I64},   {CT_GEMM_I32, CT_GEMM_I8, CT_GEMM_I64},
};
enum { TRIPLES = sizeof triples / sizeof *triples };

/* Level avx512amx has kernels for pairs of bf16 and for bytes, and all others from the level below. */
static bool level_is_amx;
static bool level_has(ct_gemm_type a, ct_gemm_type b) {
    const bool bytes = (a == CT_GEMM_I8 || a == CT_GEMM_U8) && b == CT_GEMM_I8;
    return !level_is_amx || bytes || (a == CT_GEMM_BF16 && b == CT_GEMM_BF16);
}

static void random_case(const ct_gemm_type *types, int round) {
    setup s;
    memset(&s, 0, sizeof s);
    ct_gemm *g = &s.g;
    do g->m = pick_edge(), g->n = pick_edge(), g->k = pick_edge();
    while (g->m * g->n * g->k > 100000 || (g->m * g->n * g->k == 0 && pick(4)));
    g->a_type = types[0], g->b_type = types[1], g->c_type = types[2];
    const bool floats = is_float(types[0]);
    if (round % 3 == 0 && g->m * g->n * g->k < 100000) {
        g->batch_dims = 1 + (int)pick(3);
        for (int d = 0; d < g->batch_dims; d++) g->batch[d] = 1 + pick(3);
    }
    const int la = round < 4 ? round & 1 : (int)pick(LAYOUTS), lb = round < 4 ? round >> 1 : (int)pick(LAYOUTS);
    const int lc = round < 4 ? PLAIN : (int)pick(LAYOUTS);
    s.a = make(g->a_type, g->m, g->k, la, g, (unsigned)pick(8), true);
    s.b = make(g->b_type, g->k, g->n, lb, g, (unsigned)pick(8), true);
    s.c = make(g->c_type, g->m, g->n, lc, g, 0, true);
    point(&s);
    g->accumulate = pick(2);
    g->bias_type = floats                                               ? (g->a_type == CT_GEMM_F64 ? CT_GEMM_F64
                                                                           : pick(2)                ? CT_GEMM_F32
                                                                                                    : CT_GEMM_BF16)
                   : types[0] == CT_GEMM_I64 || types[2] == CT_GEMM_I64 ? CT_GEMM_I64
                                                                        : CT_GEMM_I32;
    s.bias = (char *)malloc((size_t)((g->m + g->n + 1) * sizes[g->bias_type]));
    for (int64_t i = 0; i < g->m + g->n; i++) put_random(g->bias_type, s.bias + i * sizes[g->bias_type]);
    if (floats) {
        g->scale = pick(2), g->alpha = -0.75;
        if (pick(2)) g->bias_row = s.bias;
        if (pick(3) == 0) {
            s.residual = make(g->c_type, g->m, g->n, (int)pick(LAYOUTS), g, (unsigned)pick(8), true);
            g->residual = s.residual.origin, g->residual_row = s.residual.row, g->residual_col = s.residual.col;
            memcpy(g->residual_batch, s.residual.batch, sizeof g->residual_batch);
        }
        if (g->a_type != CT_GEMM_F64 && pick(2)) g->activate = relu_half;
    }
    if (pick(2)) g->bias_col = s.bias + g->m * sizes[g->bias_type];
    char what[200];
    snprintf(what, sizeof what,
             "%s x %s -> %s, %ldx%ldx%ld, layouts %d %d %d, batch %d, acc %d scale %d bias %d%d res %d act %d",
             names[types[0]], names[types[1]], names[types[2]], (long)g->m, (long)g->n, (long)g->k, la, lb, lc,
             g->batch_dims, g->accumulate, g->scale, g->bias_row != NULL, g->bias_col != NULL, g->residual != NULL,
             g->activate != NULL);
    report(run_and_check(&s, round % 4 == 0), what);
    release(&s);
}

/* Shapes that take the engine's other roads: vectors, several stages of k, m or n, skinny, many small. */
static void shapes_that_need_several_blocks(void) {
    static const int64_t shapes[][3] = {{1, 700, 300},    {700, 1, 300},   {1, 1, 5000},    {1, 5000, 7},
                                        {3000, 1, 3},     {64, 300, 1700}, {300, 70, 1700}, {4300, 40, 9},
                                        {33, 2300, 70},   {260, 520, 410}, {600, 600, 30},  {5, 3, 9000},
                                        {1000, 300, 410}, {700, 430, 900}, {5300, 70, 850}, {260, 300, 4700}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int layout = 0; layout < 8; layout++)
            for (int t = 0; t < 2; t++) {
                if (t && layout > 3) continue;
                setup s;
                plain_setup(&s, t ? CT_GEMM_F64 : CT_GEMM_F32, shapes[i][0], shapes[i][1], shapes[i][2], layout & 1,
                            layout >> 1 & 1, layout >> 2 & 1);
                s.g.accumulate = layout == 1;
                if (layout == 2) s.g.scale = true, s.g.alpha = 0.5;
                s.bias = (char *)malloc((size_t)((shapes[i][0] + shapes[i][1]) * sizes[s.g.c_type]));
                for (int64_t e = 0; e < shapes[i][0] + shapes[i][1]; e++)
                    put_random(s.g.c_type, s.bias + e * sizes[s.g.c_type]);
                if (layout == 2 || layout == 3) s.g.bias_col = s.bias;
                if (layout == 5 || layout == 6) s.g.bias_row = s.bias;
                char what[100];
                snprintf(what, sizeof what, "%s %ldx%ldx%ld layout %d", names[s.g.c_type], (long)shapes[i][0],
                         (long)shapes[i][1], (long)shapes[i][2], layout);
                report(run_and_check(&s, layout < 4), what);
                release(&s);
            }
}

static void long_sums_of_halves_and_bytes(void) {
    for (int t = 0; t < TRIPLES; t++)
        for (int layout = 0; layout < 4; layout++) {
            if (!level_has(triples[t][0], triples[t][1])) continue;
            setup s;
            memset(&s, 0, sizeof s);
            ct_gemm *g = &s.g;
            g->m = 130, g->n = layout < 2 ? 70 : 600, g->k = layout & 1 ? 3301 : 1001;
            g->a_type = triples[t][0], g->b_type = triples[t][1], g->c_type = triples[t][2];
            s.a = make(g->a_type, g->m, g->k, layout & 1, g, 0, true);
            s.b = make(g->b_type, g->k, g->n, layout >> 1, g, 0, true);
            s.c = make(g->c_type, g->m, g->n, PLAIN, g, 0, true);
            point(&s);
            char what[100];
            snprintf(what, sizeof what, "%s x %s -> %s with k = %ld, layout %d", names[g->a_type], names[g->b_type],
                     names[g->c_type], (long)g->k, layout);
            report(run_and_check(&s, layout & 1), what);
            release(&s);
        }
}

static void a_thousand_small_products(void) {
    for (int layout = 0; layout < 8; layout++) {
        setup s;
        memset(&s, 0, sizeof s);
        s.g.m = 9, s.g.n = 11, s.g.k = 6, s.g.batch_dims = 2, s.g.batch[0] = 40, s.g.batch[1] = 25;
        s.g.a_type = s.g.b_type = s.g.c_type = s.g.bias_type = layout & 1 ? CT_GEMM_F64 : CT_GEMM_F32;
        s.a = make(s.g.a_type, 9, 6, layout >> 1 & 1, &s.g, 0, true);
        s.b = make(s.g.b_type, 6, 11, layout >> 2 & 1, &s.g, layout == 3 ? 1 : 0, true);
        s.c = make(s.g.c_type, 9, 11, PLAIN, &s.g, 0, true);
        point(&s);
        report(run_and_check(&s, true), "a thousand small products");
        release(&s);
    }
}

/* Both operands transposed, which many threads compute as a transposed product, with all that may follow it. */
static void transposed_products_and_what_follows_them(void) {
    static const ct_gemm_type types[] = {CT_GEMM_F32, CT_GEMM_BF16, CT_GEMM_F64};
    for (int i = 0; i < 3 * 8; i++) {
        setup s;
        if (!level_has(types[i % 3], types[i % 3])) continue;
        const int64_t m = 131 + pick(200), n = 129 + pick(300), k = i % 2 ? 140 + pick(600) : 1200 + pick(900);
        plain_setup(&s, types[i % 3], m, n, k, i & 1 ? GAPS_TRANSPOSED : TRANSPOSED, TRANSPOSED, i & 2 ? GAPS : PLAIN);
        s.bias = (char *)malloc((size_t)((m + n) * sizes[s.g.c_type]));
        for (int64_t e = 0; e < m + n; e++) put_random(s.g.c_type, s.bias + e * sizes[s.g.c_type]);
        if (i / 3 & 1) s.g.bias_row = s.bias;
        if (i / 3 & 2) s.g.bias_col = s.bias + m * sizes[s.g.c_type];
        if (i / 3 & 4) {
            s.residual = make(s.g.c_type, m, n, (int)pick(LAYOUTS), &s.g, 0, true);
            s.g.residual = s.residual.origin, s.g.residual_row = s.residual.row, s.g.residual_col = s.residual.col;
        }
        if (i & 1) s.g.scale = true, s.g.alpha = -0.75;
        if (s.g.c_type != CT_GEMM_F64 && pick(2)) s.g.activate = relu_half;
        char what[100];
        snprintf(what, sizeof what, "transposed %s %ldx%ldx%ld, bias %d%d res %d act %d", names[s.g.c_type], (long)m,
                 (long)n, (long)k, s.g.bias_row != NULL, s.g.bias_col != NULL, s.g.residual != NULL,
                 s.g.activate != NULL);
        report(run_and_check(&s, true), what);
        release(&s);
    }
    /* some k blocks, of which C shows every bit; columns that do not fill the last tile, and rows that would */
    setup s;
    memset(&s, 0, sizeof s);
    s.g.m = 256, s.g.n = 240, s.g.k = 2000;
    s.g.a_type = s.g.b_type = CT_GEMM_BF16, s.g.c_type = s.g.bias_type = CT_GEMM_F32;
    s.a = make(CT_GEMM_BF16, s.g.m, s.g.k, TRANSPOSED, &s.g, 0, true);
    s.b = make(CT_GEMM_BF16, s.g.k, s.g.n, TRANSPOSED, &s.g, 0, true);
    s.c = make(CT_GEMM_F32, s.g.m, s.g.n, PLAIN, &s.g, 0, true);
    point(&s);
    report(run_and_check(&s, true), "transposed bf16 to f32 256x240x2000");
    release(&s);
}

/* However long the sums are and however many threads: no worker keeps more than its L2 holds, beside what all share in L3. */
static void long_sums_need_little_scratch(void) {
    const ct_caches *caches = ct__caches();
    const double l2 = (double)(caches->l2_ways * caches->l2_way);
    static const int64_t shapes[][3] = {
        {256, 256, 1 << 20}, {512, 512, 1 << 16}, {130, 70, 1 << 22}, {768, 3072, 1 << 15}};
    static const ct_gemm_type types[] = {CT_GEMM_F32, CT_GEMM_BF16, CT_GEMM_F64};
    for (int i = 0; i < 4 * 3 * 16; i++) {
        const ct_gemm_type t = types[i / 4 % 3];
        const int64_t *shape = shapes[i % 4];
        ct_gemm g = {.m = shape[0], .n = shape[1], .k = shape[2], .a_type = t, .b_type = t, .c_type = t};
        const int layout = i / 12;
        g.a_row = layout & 1 ? 1 : g.k, g.a_col = layout & 1 ? g.m : 1;
        g.b_row = layout & 2 ? 1 : g.n, g.b_col = layout & 2 ? g.k : 1;
        g.c_row = layout & 4 ? 1 : g.n, g.c_col = layout & 4 ? g.m : 1;
        const int threads = layout & 8 ? 64 : 16;
        if (!level_has(t, t)) continue;
        ct_set_threads(threads);
        const double bytes = (double)ct__gemm_scratch(&g);
        char what[100];
        snprintf(what, sizeof what, "scratch of %s %ldx%ldx%ld, layout %d, %d threads: %.1f MiB", names[t], (long)g.m,
                 (long)g.n, (long)g.k, layout, threads, bytes / (1 << 20));
        report(bytes <= (32 << 20) + threads * l2, what);
    }
    ct_set_threads(2);
}

/* Products whose chunks are one job: few rows and many, A of each or of all, either operand along k, sums in C or in a strip. */
static void a_few_large_products(void) {
    static const int64_t shapes[][3] = {{64, 700, 60}, {150, 530, 40}, {40, 300, 410}, {14, 2000, 90}};
    static const ct_gemm_type types[] = {CT_GEMM_F32, CT_GEMM_BF16, CT_GEMM_F64};
    for (int i = 0; i < 4 * 3 * 4; i++) {
        const int layout = i / 12;
        if (!level_has(types[i / 4 % 3], types[i / 4 % 3])) continue;
        setup s;
        memset(&s, 0, sizeof s);
        s.g.m = shapes[i % 4][0], s.g.n = shapes[i % 4][1], s.g.k = shapes[i % 4][2];
        s.g.batch_dims = 2, s.g.batch[0] = 3, s.g.batch[1] = 1 + i % 2;
        s.g.a_type = s.g.b_type = s.g.c_type = s.g.bias_type = types[i / 4 % 3];
        s.a = make(s.g.a_type, s.g.m, s.g.k, layout & 1 ? TRANSPOSED : PLAIN, &s.g, pick(2) ? 3 : 0, true);
        s.b = make(s.g.b_type, s.g.k, s.g.n, layout >> 1 & 1 ? TRANSPOSED : PLAIN, &s.g, 0, true);
        s.c = make(s.g.c_type, s.g.m, s.g.n, PLAIN, &s.g, 0, true);
        point(&s);
        char what[100];
        snprintf(what, sizeof what, "products of a batch, %s %ldx%ldx%ld, layout %d", names[s.g.a_type], (long)s.g.m,
                 (long)s.g.n, (long)s.g.k, layout);
        report(run_and_check(&s, true), what);
        release(&s);
    }
}

/* ---- packers, stores, prepacked B ---- */

typedef struct source {
    const ct_gemm *g;
    ct_gemm_geometry geometry;
} source;

static void put_packed(char *dst, const source *s, ct_gemm_type from, const char *src) {
    if (s->geometry.packed == CT_GEMM_F32) {
        const float x = (float)get_float(from, src);
        memcpy(dst, &x, 4);
    } else if (s->geometry.packed == CT_GEMM_F64 || s->geometry.packed == from) {
        memcpy(dst, src, (size_t)sizes[from]);
    } else {
        const uint64_t x = get_int(from, src);
        memcpy(dst, &x, (size_t)sizes[s->geometry.packed]);
    }
}
static void gather_a(const void *ctx, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                     int64_t depth) {
    const source *s = (const source *)ctx;
    const int64_t size = sizes[s->g->a_type], to = sizes[s->geometry.packed];
    const char *a = (const char *)s->g->a + batch_offset(s->g, s->g->a_batch, batch) * size;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < depth; p++)
            put_packed((char *)dst + (i * ld + p) * to, s, s->g->a_type,
                       a + ((row0 + i) * s->g->a_row + (k0 + p) * s->g->a_col) * size);
}
static void gather_b(const void *ctx, int64_t batch, void *dst, int64_t k0, int64_t depth, int64_t col0, int64_t cols) {
    const source *s = (const source *)ctx;
    const int64_t size = sizes[s->g->b_type], to = sizes[s->geometry.packed], group = s->geometry.group;
    const int64_t width = s->geometry.width, padded = (depth + group - 1) / group * group;
    const char *b = (const char *)s->g->b + batch_offset(s->g, s->g->b_batch, batch) * size;
    for (int64_t p = 0; p < padded; p++)
        for (int64_t j = 0; j < width; j++) {
            char *at = (char *)dst + ((p / group) * width * group + j * group + p % group) * to;
            memset(at, 0, (size_t)to);
            if (p < depth && j < cols)
                put_packed(at, s, s->g->b_type, b + ((k0 + p) * s->g->b_row + (col0 + j) * s->g->b_col) * size);
        }
}
static void scatter_c(const void *ctx, int64_t batch, const void *tile, int64_t ld, int64_t row0, int64_t rows,
                      int64_t col0, int64_t cols) {
    const source *s = (const source *)ctx;
    const int64_t size = sizes[s->geometry.acc];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            memcpy((char *)s->g->c + (batch_offset(s->g, s->g->c_batch, batch) + (row0 + i) * s->g->c_row +
                                      (col0 + j) * s->g->c_col) *
                                         size,
                   (const char *)tile + (i * ld + j) * size, (size_t)size);
}

static void packers_and_stores_of_the_caller(void) {
    static const ct_gemm_type kinds[][3] = {{CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32},
                                            {CT_GEMM_F64, CT_GEMM_F64, CT_GEMM_F64},
                                            {CT_GEMM_BF16, CT_GEMM_BF16, CT_GEMM_F32},
                                            {CT_GEMM_I8, CT_GEMM_I8, CT_GEMM_I32},
                                            {CT_GEMM_U8, CT_GEMM_I8, CT_GEMM_I32}};
    static const int64_t shapes[][3] = {{37, 50, 29}, {300, 300, 501}, {20, 700, 1201}, {700, 20, 1201}, {9, 9, 0}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
            for (int which = 1; which < 16; which++) {
                if (shape > 0 && which % 4 != 3 && which != 4 && which != 8) continue;
                if (!level_has(kinds[kind][0], kinds[kind][1])) continue;
                setup s;
                memset(&s, 0, sizeof s);
                ct_gemm *g = &s.g;
                g->m = shapes[shape][0], g->n = shapes[shape][1], g->k = shapes[shape][2];
                g->a_type = kinds[kind][0], g->b_type = kinds[kind][1], g->c_type = kinds[kind][2];
                if (shape == 0) g->batch_dims = 1, g->batch[0] = 3;
                const unsigned share = which & 8 ? 1 : 0; /* a prepacked B serves all batches */
                s.a = make(g->a_type, g->m, g->k, which & 1 ? SPREAD : PLAIN, g, 0, true);
                s.b = make(g->b_type, g->k, g->n, which & 2 ? BACKWARDS : PLAIN, g, share, true);
                s.c = make(g->c_type, g->m, g->n, which & 4 ? GAPS_TRANSPOSED : PLAIN, g, 0, true);
                point(&s);
                source from = {.g = g};
                bool ok = ct__gemm_geometry(g, &from.geometry);
                ct_gemm call = *g;
                if (which & 1)
                    call.pack_a = gather_a, call.pack_a_ctx = &from, call.a = NULL, call.a_row = call.a_col = 0;
                if (which & 2)
                    call.pack_b = gather_b, call.pack_b_ctx = &from, call.b = NULL, call.b_row = call.b_col = 0;
                if (which & 4)
                    call.store = scatter_c, call.store_ctx = &from, call.c = NULL, call.c_row = call.c_col = 0;
                void *memory = NULL;
                if (which & 8) {
                    void *packed = aligned_scratch(ct__gemm_pack_b_size(&call), &memory);
                    ok = ct__gemm_pack_b(&call, packed) && ok;
                    call.packed_b = packed ? packed : memory;
                    call.b = NULL, call.pack_b = NULL;
                }
                ok = multiply(&call) && ok;
                for (int64_t e = 0; e < 400 && ok; e++)
                    ok = element_right(g, g->batch_dims ? pick(3) : 0, pick(g->m), pick(g->n),
                                       s.before + (s.c.origin - s.c.memory));
                ok = ok && gaps_untouched(g, &s.c, s.before);
                char what[100];
                snprintf(what, sizeof what, "caller's packers and stores (%d), %s, shape %d", which, names[g->a_type],
                         (int)shape);
                report(ok, what);
                free(memory);
                release(&s);
            }
}

static void an_empty_sum_gives_zero_or_bias(void) {
    for (int t = 0; t < TRIPLES; t++) {
        setup s;
        memset(&s, 0, sizeof s);
        ct_gemm *g = &s.g;
        g->m = 7, g->n = 40, g->k = 0;
        g->a_type = triples[t][0], g->b_type = triples[t][1], g->c_type = triples[t][2];
        s.a = make(g->a_type, 7, 0, PLAIN, g, 0, true), s.b = make(g->b_type, 0, 40, PLAIN, g, 0, true);
        s.c = make(g->c_type, 7, 40, t & 1 ? SPREAD : GAPS, g, 0, true);
        point(&s);
        report(run_and_check(&s, false), "k = 0");
        release(&s);
    }
}

static void infinities_stay_in_their_row_and_column(void) {
    setup s;
    plain_setup(&s, CT_GEMM_F32, 45, 70, 33, GAPS, GAPS, GAPS);
    ((float *)s.a.origin)[7 * s.a.row + 3] = INFINITY;
    ((float *)s.b.origin)[5 * s.b.row + 9] = NAN;
    bool ok = multiply(&s.g);
    for (int64_t i = 0; i < 45; i++)
        for (int64_t j = 0; j < 70; j++) {
            const float x = ((float *)s.c.origin)[i * s.c.row + j];
            ok = ok && (j == 9 ? isnan(x) : i == 7 ? !isfinite(x) : isfinite(x));
        }
    report(ok, "infinities stay in their row and column");
    release(&s);
}

static void unsupported_types_are_refused(void) {
    ct_gemm g = {.m = 1, .n = 1, .k = 1, .a_type = CT_GEMM_F32, .b_type = CT_GEMM_I32, .c_type = CT_GEMM_F32};
    report(!ct__gemm_supported(g.a_type, g.b_type, g.c_type) && !ct__gemm(&g, NULL), "unsupported types are refused");
}

int main(void) {
    static const char *levels[] = {"base", "level 1", "avx512", "level 3", "avx512amx"};
    enum { AMX = 4 };
    ct_set_threads(2);
    for (int level = 0; level <= AMX; level++) {
        level_name = levels[level];
        level_is_amx = level == AMX;
        if (level_is_amx) {
            level_name = gemm_use_amx();
            if (strcmp(level_name, AMX_IN_PLAIN_C) == 0) printf("skipped: avx512amx, but for its text in plain C\n");
        } else if (ct__gemm_init(level) != level) {
            printf("skipped: %s\n", level_name);
            continue;
        }
        rng_state = 12345;
        for (int t = 0; t < TRIPLES; t++)
            for (int round = 0; round < (t < 2 || level_is_amx ? 90 : 24); round++)
                if (level_has(triples[t][0], triples[t][1])) random_case(triples[t], round);
        long_sums_of_halves_and_bytes();
        a_few_large_products();
        transposed_products_and_what_follows_them();
        long_sums_need_little_scratch();
        if (!level_is_amx) {
            shapes_that_need_several_blocks();
            a_thousand_small_products();
        }
        packers_and_stores_of_the_caller();
        an_empty_sum_gives_zero_or_bias();
        infinities_stay_in_their_row_and_column();
        unsupported_types_are_refused();
    }
    report(blocks_done > 0, "large products of bf16 and of bytes are computed in matrix registers");
    amx_trap_stop();
    ct__gemm_init(-1);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

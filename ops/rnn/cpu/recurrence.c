/* The recurrence forward: at each step the product with the recurrent weights, packed once, and the gates while it
 * is in cache. */
#include "ops/rnn/cpu/recurrence.h"

typedef struct forward {
    recurrence p;
    ct__matrix weights;
    const char *gx, *b_hh, *h0, *c0; /* zeros in scratch where there is none */
    char *y, *kept;
    bool starts_from_zero;
    char *packed; /* W_hh^T, gate by gate, in panels */
    int64_t panel;
    char *terms[2]; /* of the states after the last step and after this one; NULL: weights are not bf16 */
    char *held[2];  /* the states of all sequences after the last step and after this one; NULL: they are in y */
    const int64_t *lengths;
    char *workers;
    size_t room;
    recurrence_cut cut;
    int64_t step; /* counted in the order of computation */
} forward;

static int64_t time_of(const recurrence *p, int64_t step) { return p->reverse ? p->steps - 1 - step : step; }

static void pack_chunk(void *ctx, int64_t chunk, int worker) {
    const forward *f = (const forward *)ctx;
    const recurrence *p = &f->p;
    const int64_t gate = chunk / p->blocks, block = chunk % p->blocks;
    (void)worker;
    const ct__matrix *w = &f->weights;
    const ct__matrix transposed = {(const char *)w->data +
                                       (gate * p->h + block * p->width) * w->row * ct__type_size(w->type),
                                   w->type, w->col, w->row};
    ct__gemm_isa->pack_b(recurrence_kernel(p), &transposed, f->packed + chunk * f->panel, p->h,
                         ct__min64(p->width, p->h - block * p->width));
}

enum { AHEAD = 2 };

/* Prefetches what row i of step t reads and writes, m hidden units from j0: the spans are too short and lie too far
 * apart for the hardware to foresee. */
SIMD_INLINE void prefetch_row(const forward *f, int64_t t, const char *before, int64_t i, int64_t j0, int64_t m) {
    const recurrence *p = &f->p;
    const int64_t row = p->h * p->size, j = j0 * p->size, at = t * p->n + i,
                  last = (p->reverse ? t + 1 : t - 1) * p->n + i;
    for (int64_t b = 0; b < m * p->size; b += 64) {
        for (int64_t g = 0; g < p->gates; g++) __builtin_prefetch(f->gx + (at * p->gates + g) * row + j + b);
        if (p->cell == CT_CELL_GRU) __builtin_prefetch(before + i * row + j + b);
        if (p->cell == CT_CELL_LSTM && f->step > 0) __builtin_prefetch(f->kept + (last * p->kept + 4) * row + j + b);
        for (int64_t k = 0; k < p->kept; k++) __builtin_prefetch(f->kept + (at * p->kept + k) * row + j + b, 1);
        __builtin_prefetch(f->y + at * row + j + b, 1);
    }
}

/* A state's terms, for the next step. */
SIMD_INLINE void f32_keep(const forward *f, int64_t i, int64_t j, const float *x, int64_t m) {
    if (f->terms[0]) recurrence_put_terms(&f->p, f->terms[f->step & 1], f->p.h, i, j, x, m);
}
SIMD_INLINE void f64_keep(const forward *f, int64_t i, int64_t j, const double *x, int64_t m) {
    (void)f, (void)i, (void)j, (void)x, (void)m; /* f64 has no terms */
}

#define R f32
#define T float
#include "ops/rnn/cpu/forward_rows.h"
#define R f64
#define T double
#include "ops/rnn/cpu/forward_rows.h"

static void step_part(const forward *f, recurrence_part part, int worker) {
    const recurrence *p = &f->p;
    const int64_t t = time_of(p, f->step), size = p->size, row = p->gates * p->width * size;
    char *products = f->workers + (size_t)worker * f->room;
    const char *before = f->step == 0 ? f->h0
                         : f->held[0] ? f->held[!(f->step & 1)]
                                      : f->y + time_of(p, f->step - 1) * p->n * p->h * size;
    for (int64_t block = part.block; block < part.end; block++) {
        const int64_t j0 = block * p->width, m = ct__min64(p->width, p->h - j0);
        for (int64_t r = part.first; r < part.stop; r += p->rows_at_once) {
            const int64_t rows = ct__min64(p->rows_at_once, part.stop - r), at = t * p->n + r,
                          last = (p->reverse ? t + 1 : t - 1) * p->n + r;
            recurrence_wants wants = {.stride = p->h * size, .bytes = m * size};
            recurrence_want(&wants, f->gx + (at * p->gates * p->h + j0) * size, rows * p->gates, 1);
            if (p->kept) recurrence_want(&wants, f->kept + (at * p->kept * p->h + j0) * size, rows * p->kept, 1);
            recurrence_want(&wants, f->y + (at * p->h + j0) * size, rows, 1);
            if (p->cell == CT_CELL_LSTM && f->step > 0)
                recurrence_want(&wants, f->kept + ((last * p->kept + 4) * p->h + j0) * size, rows, p->kept);
            ct__run runs[CT__TERMS];
            ct__block product = {.a = before + r * p->h * size,
                                 .a_row = p->h * size,
                                 .a_step = size,
                                 .b_step = p->width * size,
                                 .m = rows,
                                 .n = m,
                                 .k = p->h};
            if (p->in_terms) product = recurrence_by_terms(p, f->terms[!(f->step & 1)], p->h, r, rows, m, runs);
            if (f->step == 0 && f->starts_from_zero) product.k = 0;
            product.c_row = row;
            for (int64_t g = 0; g < p->gates; g++) {
                product.b = f->packed + (g * p->blocks + block) * f->panel;
                product.c = products + g * p->width * size;
                product.ahead = recurrence_ahead(&wants, g);
                product.lists = recurrence_lists(&wants, g, p->gates);
                ct__block_multiply(recurrence_kernel(p), &product);
            }
            if (p->wide) f64_rows(f, t, before, r, rows, j0, m, products);
            else f32_rows(f, t, before, r, rows, j0, m, products);
        }
    }
}

static void units_chunk(void *ctx, int64_t chunk, int worker) {
    const forward *f = (const forward *)ctx;
    recurrence_enter(&f->p);
    step_part(f, recurrence_part_of(&f->p, f->cut, chunk), worker);
    recurrence_leave(&f->p);
}

static void rows_chunk(void *ctx, int64_t chunk, int worker) {
    forward f = *(const forward *)ctx;
    const recurrence_part part = recurrence_part_of(&f.p, f.cut, chunk);
    recurrence_enter(&f.p);
    for (f.step = 0; f.step < f.p.steps; f.step++) step_part(&f, part, worker);
    recurrence_leave(&f.p);
}

/* ---- The call ---- */

static const char *forward_can(const ct_call *call) {
    if (call->n_out < 4 || !call->out[0] || !call->out[3]) return "y and states are computed together";
    const ct_view *views[] = {call->in[0],  call->in[1],  call->in[2],  call->in[3], call->in[4],
                              call->out[0], call->out[1], call->out[2], call->out[3]};
    return recurrence_refuses(views, 9);
}

static recurrence problem_of(const ct_call *call) {
    const recurrence_attrs *a = call->attrs;
    return recurrence_problem(call->out[0], a->cell, a->reverse, call->in[5]);
}

/* Stands for initial states and for a bias. */
static int64_t zero_bytes(const recurrence *p) { return ct__max64(p->n, p->gates) * p->h * p->size; }

static size_t forward_scratch(const ct_call *call) {
    const recurrence p = problem_of(call);
    const int64_t state = p.n * p.h * p.size;
    return ct__near_scratch(ct__room(p.n * 8) + ct__room(zero_bytes(&p)) + 2 * ct__room(state) +
                            ct__room(recurrence_panels_bytes(&p, p.gates, p.h)) +
                            ct__room(recurrence_terms_bytes(&p, p.h)) +
                            recurrence_room(&p, p.gates) * (size_t)ct__threads());
}

static const char *data_of(const recurrence *p, const ct_view *x) {
    return x ? (const char *)ct__address(x, (size_t)p->size) : NULL;
}

/* The states at the end: of a sequence without steps the initial ones. */
static void put_last(const forward *f, const ct_view *h_n, const ct_view *c_n) {
    const recurrence *p = &f->p;
    const size_t bytes = (size_t)(p->h * p->size);
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t length = f->lengths[i], t = p->reverse ? 0 : length - 1;
        const char *h = length ? f->y + (size_t)(t * p->n + i) * bytes : f->h0 + (size_t)i * bytes;
        const char *c = length ? f->kept + (size_t)((t * p->n + i) * 5 + 4) * bytes : f->c0 + (size_t)i * bytes;
        if (h_n && bytes) memcpy((char *)ct__address(h_n, (size_t)p->size) + (size_t)i * bytes, h, bytes);
        if (c_n && p->cell == CT_CELL_LSTM && bytes)
            memcpy((char *)ct__address(c_n, (size_t)p->size) + (size_t)i * bytes, c, bytes);
    }
}

/* Those of the initial states; pairs that an odd size leaves half empty stay zero. */
static void start_terms(forward *f, char *terms) {
    const recurrence *p = &f->p;
    memset(terms, 0, (size_t)recurrence_terms_bytes(p, p->h));
    f->terms[0] = terms, f->terms[1] = terms + recurrence_terms_bytes(p, p->h) / 2;
    for (int64_t i = 0; i < p->n; i++)
        recurrence_put_terms(p, f->terms[1], p->h, i, 0, (const float *)(const void *)f->h0 + i * p->h, p->h);
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    forward f = {.p = problem_of(call)};
    const recurrence *p = &f.p;
    const int64_t state = p->n * p->h * p->size;
    char *at = ct__scratch(call);
    (void)stream;
    int64_t *lengths = (int64_t *)(void *)ct__claim(&at, p->n * 8);
    char *zeros = ct__claim(&at, zero_bytes(p)), *held = ct__claim(&at, state), *other = ct__claim(&at, state);
    f.packed = ct__claim(&at, recurrence_panels_bytes(p, p->gates, p->h));
    char *terms = ct__claim(&at, recurrence_terms_bytes(p, p->h));
    f.workers = at, f.room = recurrence_room(p, p->gates);
    if (!recurrence_lengths(p, call, 5, lengths)) return false;
    f.lengths = lengths;
    if (p->n == 0 || p->h == 0) return true;
    memset(zeros, 0, (size_t)zero_bytes(p));
    const ct_view *w = call->in[1];
    if (p->registers) recurrence_use(&f.p, recurrence_is_bf16(p, w));
    f.panel = recurrence_panel(p, p->h);
    f.weights = recurrence_weights(p, w);
    ct__parallel(p->gates * p->blocks, pack_chunk, &f);
    f.gx = data_of(p, call->in[0]), f.b_hh = call->in[2] ? data_of(p, call->in[2]) : zeros;
    f.starts_from_zero = !call->in[3];
    f.h0 = call->in[3] ? data_of(p, call->in[3]) : zeros, f.c0 = call->in[4] ? data_of(p, call->in[4]) : zeros;
    f.y = (char *)ct__address(call->out[0], (size_t)p->size),
    f.kept = (char *)ct__address(call->out[3], (size_t)p->size);
    if (p->lengths) f.held[0] = held, f.held[1] = other;
    if (p->in_terms) start_terms(&f, terms);
    f.cut = recurrence_cut_of(p);
    const int64_t chunks = f.cut.rows * f.cut.units;
    if (recurrence_by_rows(&f.cut)) ct__parallel(chunks, rows_chunk, &f);
    else
        for (f.step = 0; f.step < p->steps; f.step++) ct__parallel(chunks, units_chunk, &f);
    put_last(&f, call->out[1], call->out[2]);
    return true;
}

CT_KERNELS(rnn_recurrence) = {
    CT_CANDIDATES(recurrence, {"recurrence_steps", forward_can, forward_scratch, forward_run}),
    {0},
};

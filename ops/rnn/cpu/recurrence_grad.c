/* The recurrence backward in time: at each step dh is made of the product of the later step's dgh with the recurrent
 * weights, packed once, and made into the gates' gradients at once. The weights' own gradient is one product over
 * all steps, elsewhere. */
#include "ops/rnn/cpu/recurrence.h"

enum { DEPTH = 256, AHEAD = 2 };

typedef struct backward {
    recurrence p;
    const char *w, *h0, *c0, *y, *kept, *gy; /* h0 and c0 are zeros in scratch where there are none */
    char *dgx, *dgh;                         /* dgh: NULL but for a gru */
    char *gates[2]; /* dgh of the step after and of this one, rows gates_ld bytes apart, not a power of two */
    int64_t gates_ld;
    char *terms[2]; /* of those; NULL: weights are not bf16 */
    char *dh, *dc;  /* (N,H) what goes from step to step */
    ct__matrix weights;
    char *packed; /* W_hh in panels */
    int64_t panel;
    const int64_t *lengths;
    char *workers;
    size_t room;
    recurrence_cut cut;
    int64_t step, last; /* counted in the order of the forward pass, to the last; -1 is the end, where dh becomes dh0 */
} backward;

static int64_t time_of(const recurrence *p, int64_t step) { return p->reverse ? p->steps - 1 - step : step; }

static void pack_chunk(void *ctx, int64_t block, int worker) {
    const backward *w = (const backward *)ctx;
    const recurrence *p = &w->p;
    (void)worker;
    ct__matrix part = w->weights;
    part.data = (const char *)part.data + block * p->width * part.col * ct__type_size(part.type);
    ct__gemm_isa->pack_b(recurrence_kernel(p), &part, w->packed + block * w->panel, p->gates * p->h,
                         ct__min64(p->width, p->h - block * p->width));
}

/* Prefetches what row i of step t reads: the spans lie too far apart for the hardware to foresee. */
SIMD_INLINE void prefetch_row(const backward *w, int64_t t, int64_t i, int64_t j0, int64_t m) {
    const recurrence *p = &w->p;
    const int64_t at = t * p->n + i, row = p->h * p->size, j = j0 * p->size,
                  before = (p->reverse ? t + 1 : t - 1) * p->n + i;
    const char *kept = w->kept + at * p->kept * row + j;
    for (int64_t b = 0; b < m * p->size; b += 64) {
        __builtin_prefetch(w->gy + at * row + j + b);
        __builtin_prefetch(w->dh + i * row + j + b, 1);
        __builtin_prefetch(w->dc + i * row + j + b, 1);
        for (int64_t k = 0; k < p->kept; k++) __builtin_prefetch(kept + k * row + b);
        for (int64_t g = 0; g < p->gates; g++) __builtin_prefetch(w->dgx + (at * p->gates + g) * row + j + b, 1);
        for (int64_t g = 0; w->dgh && g < p->gates; g++)
            __builtin_prefetch(w->dgh + (at * p->gates + g) * row + j + b, 1);
        if (p->cell == CT_CELL_LSTM && w->step > 0) __builtin_prefetch(w->kept + (before * p->kept + 4) * row + j + b);
    }
}

/* The terms of a row's gradients of gates, for the step before. */
SIMD_INLINE void f32_keep(const backward *w, int64_t i, int64_t j, const float *gates, int64_t m) {
    const recurrence *p = &w->p;
    for (int64_t g = 0; w->terms[0] && g < p->gates; g++)
        recurrence_put_terms(p, w->terms[w->step & 1], p->gates * p->h, i, g * p->h + j, gates + g * p->h, m);
}
SIMD_INLINE void f64_keep(const backward *w, int64_t i, int64_t j, const double *gates, int64_t m) {
    (void)w, (void)i, (void)j, (void)gates, (void)m; /* f64 has no terms */
}

#define R f32
#define T float
#include "ops/rnn/cpu/backward_rows.h"
#define R f64
#define T double
#include "ops/rnn/cpu/backward_rows.h"

/* The same for all rows. */
SIMD_INLINE void want_step(const backward *w, recurrence_wants *wants, int64_t t, int64_t r, int64_t rows, int64_t j0) {
    const recurrence *p = &w->p;
    const int64_t at = t * p->n + r, before = (p->reverse ? t + 1 : t - 1) * p->n + r, h = p->h * p->size,
                  j = j0 * p->size;
    if (p->kept) recurrence_want(wants, w->kept + at * p->kept * h + j, rows * p->kept, 1);
    recurrence_want(wants, w->dgx + at * p->gates * h + j, rows * p->gates, 1);
    if (w->dgh) recurrence_want(wants, w->dgh + at * p->gates * h + j, rows * p->gates, 1);
    recurrence_want(wants, w->gy + at * h + j, rows, 1);
    if (p->cell == CT_CELL_LSTM && w->step > 0)
        recurrence_want(wants, w->kept + (before * p->kept + 4) * h + j, rows, p->kept);
}

static void step_part(const backward *w, recurrence_part part, int worker) {
    const recurrence *p = &w->p;
    const int64_t t = time_of(p, w->step), size = p->size, deep = p->gates * p->h, later = w->step + 1;
    char *products = later < p->steps ? w->workers + (size_t)worker * w->room : NULL;
    const char *gates = w->gates[later & 1];
    for (int64_t block = part.block; block < part.end; block++) {
        const int64_t j0 = block * p->width, m = ct__min64(p->width, p->h - j0);
        for (int64_t r = part.first; r < part.stop; r += p->rows_at_once) {
            const int64_t rows = ct__min64(p->rows_at_once, part.stop - r);
            recurrence_wants wants = {.stride = p->h * size, .bytes = m * size};
            if (products && w->step >= 0) want_step(w, &wants, t, r, rows, j0);
            if (products && p->in_terms) {
                ct__run runs[CT__TERMS];
                ct__block product = recurrence_by_terms(p, w->terms[later & 1], deep, r, rows, m, runs);
                product.b = w->packed + block * w->panel;
                product.c = products, product.c_row = p->width * size;
                product.ahead = recurrence_ahead(&wants, 0), product.lists = wants.count;
                ct__block_multiply(p->registers, &product);
            }
            /* a part of the panel serves all rows while it is near */
            for (int64_t k = 0; products && !p->in_terms && k < deep; k += DEPTH) {
                const ct__block product = {.a = gates + r * w->gates_ld + k * size,
                                           .a_row = w->gates_ld,
                                           .a_step = size,
                                           .b = w->packed + block * w->panel + k * p->width * size,
                                           .b_step = p->width * size,
                                           .c = products,
                                           .c_row = p->width * size,
                                           .m = rows,
                                           .n = m,
                                           .k = ct__min64(DEPTH, deep - k),
                                           .accumulate = k > 0,
                                           .ahead = recurrence_ahead(&wants, k / DEPTH),
                                           .lists = recurrence_lists(&wants, k / DEPTH, ct__ceil_div(deep, DEPTH))};
                ct__block_multiply(p->kernel, &product);
            }
            if (p->wide) f64_rows(w, t, r, rows, j0, m, products);
            else f32_rows(w, t, r, rows, j0, m, products);
        }
    }
}

static void units_chunk(void *ctx, int64_t chunk, int worker) {
    const backward *w = (const backward *)ctx;
    recurrence_enter(&w->p);
    step_part(w, recurrence_part_of(&w->p, w->cut, chunk), worker);
    recurrence_leave(&w->p);
}

static void rows_chunk(void *ctx, int64_t chunk, int worker) {
    backward w = *(const backward *)ctx;
    const recurrence_part part = recurrence_part_of(&w.p, w.cut, chunk);
    recurrence_enter(&w.p);
    for (w.step = w.p.steps - 1; w.step >= w.last; w.step--) step_part(&w, part, worker);
    recurrence_leave(&w.p);
}

/* ---- The call ---- */

static const char *backward_can(const ct_call *call) {
    if (call->in[9]) return "states have a cotangent of their own";
    if (!call->out[0]) return "dgx is not wanted";
    const ct_view *views[] = {call->in[0],
                              call->in[1],
                              call->in[2],
                              call->in[4],
                              call->in[5],
                              call->in[6],
                              call->in[7],
                              call->in[8],
                              call->out[0],
                              call->n_out > 1 ? call->out[1] : NULL,
                              call->n_out > 2 ? call->out[2] : NULL,
                              call->n_out > 3 ? call->out[3] : NULL};
    return recurrence_refuses(views, 12);
}

static recurrence problem_of(const ct_call *call) {
    const recurrence_grad_attrs *a = call->attrs;
    return recurrence_problem(call->in[4], a->cell, a->reverse, call->in[3]);
}

static int64_t gates_ld(const recurrence *p) { return ct__round_up(p->gates * p->h * p->size, 64) + 64; }

static size_t backward_scratch(const ct_call *call) {
    const recurrence p = problem_of(call);
    const int64_t state = p.n * p.h * p.size;
    return ct__near_scratch(ct__room(p.n * 8) + 3 * ct__room(state) + 2 * ct__room(p.n * gates_ld(&p)) +
                            ct__room(recurrence_panels_bytes(&p, 1, p.gates * p.h)) +
                            ct__room(recurrence_terms_bytes(&p, p.gates * p.h)) +
                            recurrence_room(&p, 1) * (size_t)ct__threads());
}

static const char *data_of(const recurrence *p, const ct_view *x, const char *otherwise) {
    return x ? (const char *)ct__address(x, (size_t)p->size) : otherwise;
}

static void start_from(char *to, const char *from, size_t bytes) {
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    backward w = {.p = problem_of(call)};
    const recurrence *p = &w.p;
    const int64_t state = p->n * p->h * p->size;
    const ct_view *dgh = call->n_out > 1 ? call->out[1] : NULL, *dh0 = call->n_out > 2 ? call->out[2] : NULL,
                  *dc0 = call->n_out > 3 ? call->out[3] : NULL;
    char *at = ct__scratch(call);
    (void)stream;
    int64_t *lengths = (int64_t *)(void *)ct__claim(&at, p->n * 8);
    char *zeros = ct__claim(&at, state);
    w.dh = ct__claim(&at, state), w.dc = ct__claim(&at, state);
    w.gates_ld = gates_ld(p);
    w.gates[0] = ct__claim(&at, p->n * w.gates_ld), w.gates[1] = ct__claim(&at, p->n * w.gates_ld);
    w.packed = ct__claim(&at, recurrence_panels_bytes(p, 1, p->gates * p->h));
    char *terms = ct__claim(&at, recurrence_terms_bytes(p, p->gates * p->h));
    w.workers = at, w.room = recurrence_room(p, 1);
    if (!recurrence_lengths(p, call, 3, lengths)) return false;
    w.lengths = lengths;
    if (p->n == 0 || p->h == 0) return true;
    memset(zeros, 0, (size_t)state);
    const ct_view *weights = call->in[0];
    if (p->registers) recurrence_use(&w.p, recurrence_is_bf16(p, weights));
    w.panel = recurrence_panel(p, p->gates * p->h);
    if (p->in_terms) { /* pairs that an odd size leaves half empty stay zero */
        const int64_t bytes = recurrence_terms_bytes(p, p->gates * p->h);
        memset(terms, 0, (size_t)bytes);
        w.terms[0] = terms, w.terms[1] = terms + bytes / 2;
    }
    w.weights = recurrence_weights(p, weights);
    ct__parallel(p->blocks, pack_chunk, &w);
    w.h0 = data_of(p, call->in[1], zeros), w.c0 = data_of(p, call->in[2], zeros);
    w.y = data_of(p, call->in[4], NULL), w.kept = data_of(p, call->in[5], NULL), w.gy = data_of(p, call->in[6], NULL);
    w.dgx = (char *)ct__address(call->out[0], (size_t)p->size);
    w.dgh = p->cell == CT_CELL_GRU && dgh ? (char *)ct__address(dgh, (size_t)p->size) : NULL;
    start_from(w.dh, data_of(p, call->in[7], NULL), (size_t)state);
    start_from(w.dc, data_of(p, call->in[8], NULL), (size_t)state);
    w.cut = recurrence_cut_of(p);
    const int64_t chunks = w.cut.rows * w.cut.units;
    w.last = dh0 ? -1 : 0;
    if (recurrence_by_rows(&w.cut)) ct__parallel(chunks, rows_chunk, &w);
    else
        for (w.step = p->steps - 1; w.step >= w.last; w.step--) ct__parallel(chunks, units_chunk, &w);
    if (dh0) memcpy(ct__address(dh0, (size_t)p->size), w.dh, (size_t)state);
    if (dc0 && p->cell == CT_CELL_LSTM) memcpy(ct__address(dc0, (size_t)p->size), w.dc, (size_t)state);
    return true;
}

CT_KERNELS(rnn_recurrence_grad) = {
    CT_CANDIDATES(recurrence_grad, {"recurrence_steps_back", backward_can, backward_scratch, backward_run}),
    {0},
};

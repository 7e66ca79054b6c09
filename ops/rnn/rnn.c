/* rnn, lstm, gru and their single steps: the list of weights, layers and directions, in terms of `recurrence`. */
#include "ops/rnn/cells.h"

#include "ops/op_impl.h"

enum { MOST_STATES = 256 }; /* layers times directions */

/* The options that the three have in common, and where their inputs are. */
typedef struct network {
    int cell;
    int64_t layers, directions;
    bool batch_first, no_bias_ih;
    double dropout;
    int c0, lengths, weights; /* positions; c0 is 0 where there is none */
} network;

#define NETWORK                                                                                     \
    (network) {                                                                                     \
        .layers = a->layers, .directions = a->bidirectional ? 2 : 1, .batch_first = a->batch_first, \
        .no_bias_ih = a->no_bias_ih, .dropout = a->dropout                                          \
    }

static network rnn_network(const rnn_attrs *a) {
    network w = NETWORK;
    w.cell = a->relu ? CT_CELL_RELU : CT_CELL_TANH, w.lengths = 2, w.weights = 3;
    return w;
}
static network lstm_network(const lstm_attrs *a) {
    network w = NETWORK;
    w.cell = CT_CELL_LSTM, w.c0 = 2, w.lengths = 3, w.weights = 4;
    return w;
}
static network gru_network(const gru_attrs *a) {
    network w = NETWORK;
    w.cell = CT_CELL_GRU, w.lengths = 2, w.weights = 3;
    return w;
}

/* ---- Shapes ---- */

static bool infer_weights(const ct_infer *infer, const network *w, int64_t *hidden) {
    if (w->layers < 1 || w->layers > MOST_STATES / w->directions)
        return ct_infer_fail(infer, CT_ERR_VALUE, "layers is %lld; it has to be from 1 to %d", (long long)w->layers,
                             (int)(MOST_STATES / w->directions));
    const int64_t states = w->layers * w->directions, gates = ct__cell_gates(w->cell);
    const int count = infer->n_in - w->weights;
    const int64_t each = count / states;
    if (count % states || each < 2 || each > 4)
        return ct_infer_fail(
            infer, CT_ERR_VALUE,
            "%d weights for %lld layers in %lld directions; each takes 2 (w_ih, w_hh), 3 or 4 (b_ih, b_hh)", count,
            (long long)w->layers, (long long)w->directions);
    if (w->no_bias_ih && each != 3)
        return ct_infer_fail(infer, CT_ERR_VALUE, "no_bias_ih goes with 3 weights a layer and direction, not %lld",
                             (long long)each);
    const ct_view *first = infer->in[w->weights + 1], *x = infer->in[0];
    *hidden = first->ndim == 2 ? first->dims[1] : 0;
    for (int i = 0; i < count; i++) {
        const ct_view *v = infer->in[w->weights + i];
        const int64_t state = i / each, layer = state / w->directions;
        const int what = i % (int)each;
        const int64_t rows = gates * *hidden, cols = what    ? *hidden
                                                     : layer ? *hidden * w->directions
                                                             : x->dims[x->ndim - 1];
        const bool fits =
            what < 2 ? v->ndim == 2 && v->dims[0] == rows && v->dims[1] == cols : v->ndim == 1 && v->dims[0] == rows;
        if (!fits)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "weight %d (%s of layer %lld%s) is %s; it has to be %s", i,
                                 what == 0                     ? "w_ih"
                                 : what == 1                   ? "w_hh"
                                 : what == 2 && !w->no_bias_ih ? "b_ih"
                                                               : "b_hh",
                                 (long long)layer, state % w->directions ? ", reverse" : "", ct_view_text(v),
                                 ct_dims_text(what < 2 ? CT_DIMS(rows, cols) : CT_DIMS(rows)));
    }
    return true;
}

static bool infer_state(const ct_infer *infer, const ct_view *state, const char *name, const ct_dims *shape) {
    if (!state) return true;
    bool fits = state->ndim == shape->n;
    for (int i = 0; fits && i < shape->n; i++) fits = state->dims[i] == shape->d[i];
    return fits ? true
                : ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; it has to be %s", name, ct_view_text(state),
                                ct_dims_text(*shape));
}

static bool infer_network(ct_infer *infer, const network *w) {
    const ct_view *x = infer->in[0], *lengths = infer->in[w->lengths];
    int64_t hidden = 0;
    if (x->ndim != 2 && x->ndim != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s or [T, I]", ct_view_text(x),
                             w->batch_first ? "[N, T, I]" : "[T, N, I]");
    if (!(w->dropout >= 0 && w->dropout <= 1))
        return ct_infer_fail(infer, CT_ERR_VALUE, "dropout is %g; it has to be in [0, 1]", w->dropout);
    if (!infer_weights(infer, w, &hidden)) return false;
    const bool batched = x->ndim == 3;
    const int64_t n = batched ? x->dims[w->batch_first ? 0 : 1] : 1;
    ct_dims state =
        batched ? CT_DIMS(w->layers * w->directions, n, hidden) : CT_DIMS(w->layers * w->directions, hidden);
    if (!infer_state(infer, infer->in[1], "h0", &state)) return false;
    if (w->c0 && !infer_state(infer, infer->in[w->c0], "c0", &state)) return false;
    if (lengths && (!batched || lengths->ndim != 1 || lengths->dims[0] != n))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "lengths is %s; for x %s it has to be [%lld]", ct_view_text(lengths),
                             ct_view_text(x), (long long)n);
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[x->ndim - 1] = hidden * w->directions;
    for (int i = 1; i < infer->n_out; i++) ct__infer_set(infer, i, x->dtype, state.n, state.d);
    return true;
}

bool rnn_infer(ct_infer *infer) {
    const network w = rnn_network(infer->attrs);
    return infer_network(infer, &w);
}
bool lstm_infer(ct_infer *infer) {
    const network w = lstm_network(infer->attrs);
    return infer_network(infer, &w);
}
bool gru_infer(ct_infer *infer) {
    const network w = gru_network(infer->attrs);
    return infer_network(infer, &w);
}

/* ---- Layers ---- */

/* One layer and direction: x [T, N, I]. A gru multiplies b_hh by its reset gate; the others add it to b_ih beforehand. */
typedef struct layer {
    int cell;
    bool reverse;
    ct_tensor *w_ih, *w_hh, *b_ih, *b_hh, *h0, *c0, *lengths;
    ct_tensor *h_n, *c_n; /* results */
} layer;

static ct_tensor *run_layer(layer *l, ct_tensor *x) {
    const bool apart = l->cell == CT_CELL_GRU;
    ct_tensor *bias = l->b_ih && l->b_hh && !apart ? add(l->b_ih, l->b_hh) : l->b_ih ? l->b_ih : apart ? NULL : l->b_hh;
    ct_tensor *gx = linear(x, l->w_ih, .bias = bias), *states = NULL;
    return recurrence(gx, contiguous(l->w_hh), l->cell, .b_hh = apart && l->b_hh ? contiguous(l->b_hh) : NULL,
                      .h0 = l->h0 ? contiguous(l->h0) : NULL, .c0 = l->c0 ? contiguous(l->c0) : NULL,
                      .lengths = l->lengths, .reverse = l->reverse, .h_n = &l->h_n, .c_n = &l->c_n, .states = &states);
}

static void lower_network(ct_lower *l, const network *w) {
    ct_tensor *x = l->in[0], *h0 = l->in[1], *c0 = w->c0 ? l->in[w->c0] : NULL;
    const bool batched = ct_ndim(x) == 3;
    const int states = (int)(w->layers * w->directions), each = (l->n_in - w->weights) / states;
    ct_tensor *h_n[MOST_STATES], *c_n[MOST_STATES], *y[2];
    if (!batched) {
        x = unsqueeze(x, 1);
        if (h0) h0 = unsqueeze(h0, 1);
        if (c0) c0 = unsqueeze(c0, 1);
    } else if (w->batch_first) {
        x = transpose(x, 0, 1);
    }
    x = contiguous(x);
    for (int s = 0; s < states; s++) {
        ct_tensor *const *from = l->in + w->weights + s * each;
        const int direction = s % (int)w->directions;
        layer one = {.cell = w->cell,
                     .reverse = direction == 1,
                     .w_ih = from[0],
                     .w_hh = from[1],
                     .b_ih = each == 4 || (each == 3 && !w->no_bias_ih) ? from[2] : NULL,
                     .b_hh = each == 4                    ? from[3]
                             : each == 3 && w->no_bias_ih ? from[2]
                                                          : NULL,
                     .h0 = h0 ? select(h0, 0, s) : NULL,
                     .c0 = c0 ? select(c0, 0, s) : NULL,
                     .lengths = l->in[w->lengths]};
        y[direction] = run_layer(&one, x);
        h_n[s] = one.h_n, c_n[s] = one.c_n;
        if (direction + 1 < w->directions) continue;
        x = w->directions == 2 ? cat(y, 2, 2) : y[0];
        if (w->dropout > 0 && s + 1 < states && x) x = ct_dropout(x, w->dropout);
    }
    l->out[0] = !batched ? squeeze(x, .axes = CT_DIMS(1)) : w->batch_first ? transpose(x, 0, 1) : x;
    if (l->n_out > 1 && l->want[1]) {
        l->out[1] = stack(h_n, states, 0);
        if (!batched) l->out[1] = squeeze(l->out[1], .axes = CT_DIMS(1));
    }
    if (w->c0 && l->n_out > 2 && l->want[2]) {
        l->out[2] = stack(c_n, states, 0);
        if (!batched) l->out[2] = squeeze(l->out[2], .axes = CT_DIMS(1));
    }
}

void rnn_lower(ct_lower *l) {
    const network w = rnn_network(l->attrs);
    lower_network(l, &w);
}
void lstm_lower(ct_lower *l) {
    const network w = lstm_network(l->attrs);
    lower_network(l, &w);
}
void gru_lower(ct_lower *l) {
    const network w = gru_network(l->attrs);
    lower_network(l, &w);
}

/* ---- Single steps ---- */

static bool infer_cell(ct_infer *infer, int64_t gates) {
    const ct_view *x = infer->in[0], *w_ih = infer->in[1], *w_hh = infer->in[2];
    if ((x->ndim != 1 && x->ndim != 2) || w_ih->ndim != 2 || w_hh->ndim != 2 || w_ih->dims[1] != x->dims[x->ndim - 1] ||
        w_hh->dims[0] != gates * w_hh->dims[1] || w_ih->dims[0] != w_hh->dims[0])
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "takes x [N, I] or [I], w_ih [%lld H, I] and w_hh [%lld H, H]: x is %s, w_ih %s, w_hh %s",
                             (long long)gates, (long long)gates, ct_view_text(x), ct_view_text(w_ih),
                             ct_view_text(w_hh));
    const ct_dims bias = CT_DIMS(w_hh->dims[0]),
                  state = x->ndim == 2 ? CT_DIMS(x->dims[0], w_hh->dims[1]) : CT_DIMS(w_hh->dims[1]);
    if (!infer_state(infer, infer->in[3], "b_ih", &bias) || !infer_state(infer, infer->in[4], "b_hh", &bias))
        return false;
    for (int i = 5; i < infer->n_in; i++)
        if (!infer_state(infer, infer->in[i], i == 5 ? "h" : "c", &state)) return false;
    for (int i = 0; i < infer->n_out; i++) ct__infer_set(infer, i, x->dtype, state.n, state.d);
    return true;
}

bool rnn_cell_infer(ct_infer *infer) { return infer_cell(infer, 1); }
bool lstm_cell_infer(ct_infer *infer) { return infer_cell(infer, 4); }
bool gru_cell_infer(ct_infer *infer) { return infer_cell(infer, 3); }

/* A sequence of one step. */
static void lower_cell(ct_lower *l, int cell) {
    ct_tensor *x = l->in[0], *h = l->in[5], *c = cell == CT_CELL_LSTM ? l->in[6] : NULL;
    const bool batched = ct_ndim(x) == 2;
    if (!batched) {
        x = unsqueeze(x, 0);
        if (h) h = unsqueeze(h, 0);
        if (c) c = unsqueeze(c, 0);
    }
    layer one = {
        .cell = cell, .w_ih = l->in[1], .w_hh = l->in[2], .b_ih = l->in[3], .b_hh = l->in[4], .h0 = h, .c0 = c};
    ct_tensor *y = select(run_layer(&one, unsqueeze(x, 0)), 0, 0);
    l->out[0] = batched ? y : select(y, 0, 0);
    if (l->n_out > 1 && l->want[1]) l->out[1] = batched ? one.c_n : select(one.c_n, 0, 0);
}

void rnn_cell_lower(ct_lower *l) {
    lower_cell(l, ((const rnn_cell_attrs *)l->attrs)->relu ? CT_CELL_RELU : CT_CELL_TANH);
}
void lstm_cell_lower(ct_lower *l) { lower_cell(l, CT_CELL_LSTM); }
void gru_cell_lower(ct_lower *l) { lower_cell(l, CT_CELL_GRU); }

/* rnn, lstm and gru: whole sequences and single steps. The parameters lie in the order in which the ops want them. */
#include <math.h>
#include <stdio.h>

#include "nn/module.h"

enum { RECURRENT_LAYERS = 64 }; /* the most, so that a forward needs no memory for its list of weights */

typedef enum cell { RNN, LSTM, GRU } cell;

typedef struct recurrent {
    cell kind;
    int64_t in, hidden;
    ct_nn_recurrent_options o;
} recurrent;

static bool check_counts(const ct_module *self, cell kind, int n, int m, bool sequence) {
    const int states = kind == LSTM ? 2 : 1, in = 1 + states + sequence, out = states + sequence;
    return (n <= in && m <= out) || ct_fail(CT_ERR_VALUE, ct_module_type(self)->name,
                                            "%d tensors in and %d out, expected at most %d and %d", n, m, in, out);
}

static bool sequence_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const recurrent *r = ct_module_data(self);
    if (!check_counts(self, r->kind, n, m, true)) return false;
    ct_tensor *weights[8 * RECURRENT_LAYERS];
    const int count = self->params.count;
    for (int i = 0; i < count; i++) weights[i] = self->params.items[i].x;
    const int last = r->kind == LSTM ? 3 : 2; /* where the lengths are */
    ct_tensor *h0 = n > 1 ? in[1] : NULL, *c0 = n > 2 ? in[2] : NULL, *lengths = n > last ? in[last] : NULL;
    ct_tensor **h_n = m > 1 ? &out[1] : NULL, **c_n = m > 2 ? &out[2] : NULL;
    const double dropout = ct_module_training(self) ? r->o.dropout : 0;
#define COMMON                                                                                \
    .h0 = h0, .lengths = lengths, .layers = r->o.layers, .bidirectional = r->o.bidirectional, \
    .batch_first = r->o.batch_first, .dropout = dropout, .h_n = h_n
    switch (r->kind) {
    case RNN: out[0] = ct_rnn(in[0], weights, count, COMMON, .relu = r->o.relu); break;
    case LSTM: out[0] = ct_lstm(in[0], weights, count, COMMON, .c0 = c0, .c_n = c_n); break;
    case GRU: out[0] = ct_gru(in[0], weights, count, COMMON); break;
    }
#undef COMMON
    return out[0] != NULL;
}

static bool step_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const recurrent *r = ct_module_data(self);
    if (!check_counts(self, r->kind, n, m, false)) return false;
    ct_tensor *w_ih = ct_module_param(self, 0), *w_hh = ct_module_param(self, 1);
    ct_tensor *h = n > 1 ? in[1] : NULL, *c = n > 2 ? in[2] : NULL;
#define COMMON .b_ih = ct_module_param(self, 2), .b_hh = ct_module_param(self, 3), .h = h
    switch (r->kind) {
    case RNN: out[0] = ct_rnn_cell(in[0], w_ih, w_hh, COMMON, .relu = r->o.relu); break;
    case LSTM: out[0] = ct_lstm_cell(in[0], w_ih, w_hh, COMMON, .c = c, .c_next = m > 1 ? &out[1] : NULL); break;
    case GRU: out[0] = ct_gru_cell(in[0], w_ih, w_hh, COMMON); break;
    }
#undef COMMON
    return out[0] != NULL;
}

static void describe(const ct_module *self, char *text, size_t capacity) {
    const recurrent *r = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, %lld", (long long)r->in, (long long)r->hidden);
    if (r->o.layers > 1) ct__write(&w, ", layers=%lld", (long long)r->o.layers);
    if (r->o.bidirectional) ct__write(&w, ", bidirectional");
    if (r->o.batch_first) ct__write(&w, ", batch_first");
    if (r->o.relu) ct__write(&w, ", relu");
    if (r->o.no_bias) ct__write(&w, ", no_bias");
    if (r->o.dropout > 0) ct__write(&w, ", dropout=%g", r->o.dropout);
}

static bool add_weights(ct_module *module, const recurrent *r, int64_t in, const char *suffix) {
    const int64_t rows = r->hidden * (r->kind == LSTM ? 4 : r->kind == GRU ? 3 : 1);
    const double bound = 1 / sqrt((double)r->hidden);
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < (r->o.no_bias ? 2 : 4); i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%s", names[i], suffix);
        const ct_dims shape = i == 0 ? CT_DIMS(rows, in) : i == 1 ? CT_DIMS(rows, r->hidden) : CT_DIMS(rows);
        if (!ct__add_uniform(module, name, shape, bound)) return false;
    }
    return true;
}

static ct_module *make(const ct_module_class *type, const char *function, cell kind, bool sequence, int64_t in,
                       int64_t hidden, const ct_nn_recurrent_options *options) {
    recurrent r = {.kind = kind, .in = in, .hidden = hidden};
    ct__take_options("ct_nn_recurrent_options", &r.o, sizeof r.o, options);
    if (!ct_ok() || !ct__positive(function, "in", in) || !ct__positive(function, "hidden", hidden)) return NULL;
    if (r.o.layers == 0) r.o.layers = 1;
    if (r.o.layers < 1 || r.o.layers > (sequence ? RECURRENT_LAYERS : 1)) {
        ct_fail(CT_ERR_VALUE, function, "layers is %lld, expected 1 to %d", (long long)r.o.layers,
                sequence ? RECURRENT_LAYERS : 1);
        return NULL;
    }
    if (!sequence && (r.o.bidirectional || r.o.dropout != 0)) {
        ct_fail(CT_ERR_VALUE, function, "one step has neither two directions nor a dropout");
        return NULL;
    }
    if (!ct__is_probability(function, "dropout", r.o.dropout)) return NULL;
    ct_module *module = ct_module_new(type);
    if (!module) return NULL;
    *(recurrent *)ct_module_data(module) = r;
    if (!sequence) return ct__finish(module, add_weights(module, &r, in, ""));
    const int directions = r.o.bidirectional ? 2 : 1;
    bool ok = true;
    for (int64_t layer = 0; ok && layer < r.o.layers; layer++) {
        for (int d = 0; ok && d < directions; d++) {
            char suffix[32];
            snprintf(suffix, sizeof suffix, "_l%d%s", (int)layer, d ? "_reverse" : "");
            ok = add_weights(module, &r, layer ? hidden * directions : in, suffix);
        }
    }
    return ct__finish(module, ok);
}

#define RECURRENT(id, cell_kind, whole, function)                                                   \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class),                     \
                                               .name = #id,                                         \
                                               .state = sizeof(recurrent),                          \
                                               .forward_n = function,                               \
                                               .describe = describe};                               \
    ct_module *ct_nn_##id##_p(int64_t in, int64_t hidden, const ct_nn_recurrent_options *options) { \
        return make(&id##_class, "nn_" #id, cell_kind, whole, in, hidden, options);                 \
    }
RECURRENT(rnn, RNN, true, sequence_forward)
RECURRENT(lstm, LSTM, true, sequence_forward)
RECURRENT(gru, GRU, true, sequence_forward)
RECURRENT(rnn_cell, RNN, false, step_forward)
RECURRENT(lstm_cell, LSTM, false, step_forward)
RECURRENT(gru_cell, GRU, false, step_forward)

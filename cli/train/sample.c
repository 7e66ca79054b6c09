/* Text from a language model: one token after the other, each drawn from what the network says of the text so far. */
#include "cli/train/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: the same text for a seed, whatever else has drawn numbers. */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The logit below which nothing is drawn. */
static float threshold(const float *logits, int64_t n, int64_t top_k, float *scratch) {
    if (top_k < 1 || top_k >= n) return -INFINITY;
    memcpy(scratch, logits, (size_t)n * sizeof *scratch);
    qsort(scratch, (size_t)n, sizeof *scratch, descending);
    return scratch[top_k - 1];
}

static int64_t draw(const float *logits, int64_t n, const sampling *how, uint64_t *state, float *scratch) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (how->temperature <= 0) return best;
    const float least = threshold(logits, n, how->top_k, scratch);
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        const double weight = logits[i] < least ? 0 : exp((double)(logits[i] - logits[best]) / how->temperature);
        scratch[i] = (float)weight;
        total += (double)scratch[i];
    }
    double left = uniform(state) * total;
    for (int64_t i = 0; i < n; i++) {
        left -= (double)scratch[i];
        if (left < 0 && scratch[i] > 0) return i;
    }
    return best;
}

/* A text on its way: its tokens, and what the network remembers of those that it has seen. */
typedef struct writing {
    int64_t *tokens, n, seen;
    ct_tensor *memory[2]; /* of a recurrent network: h and c, kept; NULL at the start */
    ct_nn_cache *cache;   /* of a transformer; NULL: everything is computed anew */
} writing;

/* By convention a model of tokens that takes several tensors takes its state: tokens, h, c. */
static bool is_recurrent(const learner *l) { return ct_module_type(l->net)->forward_n != NULL; }

/* Only what is new goes through the network, so that a token costs about the same however long the text is. */
static ct_tensor *go_on(learner *l, writing *w, ct_tensor *x) {
    if (l->device.type != CT_CURRENT) x = ct_to(x, l->device);
    ct_tensor *in[3] = {x, w->memory[0], w->memory[1]}, *out[3] = {NULL};
    bool right = false;
    ct_autocast(l->recipe->precision) {
        if (w->cache) right = ct_forward_cached_n(w->cache, in, 1, out, 1);
        else right = ct_forward_n(l->net, in, w->seen ? 3 : 1, out, 3);
    }
    if (!right) return NULL;
    for (int i = 0; i < 2 && !w->cache; i++) {
        ct_drop(w->memory[i]);
        w->memory[i] = ct_keep(out[i + 1]);
    }
    w->seen = w->n;
    return ct_reshape(ct_cast(out[0], CT_F32), CT_DIMS(-1, l->classes));
}

/* What the network says after the tokens so far, into logits. A transformer sees the last of them, as many as it was trained on;
 * once there are more, each token moves all others to another place, and nothing that was computed for them can be kept. */
static bool look_ahead(learner *l, writing *w, float *logits) {
    const int64_t context = l->item.n ? l->item.d[0] : 1;
    const bool recurrent = is_recurrent(l);
    if (!recurrent && w->n > context) {
        ct_nn_cache_free(w->cache);
        w->cache = NULL;
    }
    const bool goes_on = recurrent || w->cache;
    const int64_t used = goes_on ? w->n - w->seen : w->n < context ? w->n : context;
    bool right = false;
    ct_no_grad {
        ct_scope {
            ct_tensor *x = ct_from_data(w->tokens + w->n - used, CT_DIMS(1, used), CT_I64);
            ct_tensor *y = !x ? NULL : goes_on ? go_on(l, w, x) : learner_forward(l, x);
            y = ct_contiguous(ct_narrow(y, 0, used - 1, 1));
            right = y && ct_read(y, logits, (size_t)l->classes * sizeof *logits);
        }
    }
    return right;
}

static bool encode(learner *l, const char *prompt, int64_t *tokens, int64_t *n) {
    bool right = true;
    ct_scope {
        ct_tensor *x = ct_vocabulary_encode(l->vocabulary, prompt, strlen(prompt), false);
        *n = x ? ct_numel(x) : 0;
        right = x && (*n == 0 || ct_read(x, tokens, (size_t)*n * sizeof *tokens));
    }
    return right;
}

/* The prompt, or where there is none a line end, or else the first token. */
static bool begin(learner *l, const char *prompt, writing *w) {
    if (!encode(l, prompt, w->tokens, &w->n)) return false;
    if (w->n > 0 || encode(l, "\n", w->tokens, &w->n)) return true;
    ct_error_clear();
    w->tokens[0] = 0;
    w->n = 1;
    return true;
}

char *generate(learner *l, const char *prompt, const sampling *how, void (*piece)(const char *bytes, int n)) {
    writing w = {.tokens = calloc(strlen(prompt) + (size_t)how->tokens + 2, sizeof *w.tokens)};
    float *logits = calloc((size_t)l->classes, sizeof *logits), *scratch = calloc((size_t)l->classes, sizeof *scratch);
    buffer text = {0};
    uint64_t state = how->seed;
    bool right = w.tokens && logits && scratch;
    if (!right) ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    right = right && begin(l, prompt, &w) && ct_eval(l->net);
    if (right && !how->no_cache && !is_recurrent(l)) {
        w.cache = ct_nn_cache_new(l->net, l->item.n ? l->item.d[0] : 1);
        right = w.cache != NULL;
    }
    if (right && piece) piece(prompt, (int)strlen(prompt));
    for (int64_t i = 0; right && i < how->tokens; i++) {
        char bytes[4];
        right = look_ahead(l, &w, logits);
        if (!right) break;
        w.tokens[w.n] = draw(logits, l->classes, how, &state, scratch);
        const int length = ct_vocabulary_decode(l->vocabulary, w.tokens[w.n++], bytes);
        buffer_bytes(&text, bytes, (size_t)length);
        if (piece) piece(bytes, length);
    }
    buffer_bytes(&text, "", 0);
    if (right && text.failed) right = ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    free(w.tokens);
    ct_drop(w.memory[0]);
    ct_drop(w.memory[1]);
    ct_nn_cache_free(w.cache);
    free(logits);
    free(scratch);
    if (right) return text.at;
    buffer_free(&text);
    return NULL;
}

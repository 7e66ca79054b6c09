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

/* What the network says after the last `context` of n tokens, into logits. */
static bool look_ahead(learner *l, const int64_t *tokens, int64_t n, int64_t context, float *logits) {
    bool right = false;
    ct_no_grad {
        ct_scope {
            const int64_t used = n < context ? n : context;
            ct_tensor *y = learner_forward(l, ct_from_data(tokens + n - used, CT_DIMS(1, used), CT_I64));
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

char *generate(learner *l, const char *prompt, const sampling *how, void (*piece)(const char *bytes, int n)) {
    const int64_t context = l->item.n ? l->item.d[0] : 1;
    int64_t n = 0;
    int64_t *tokens = calloc(strlen(prompt) + (size_t)how->tokens + 2, sizeof *tokens);
    float *logits = calloc((size_t)l->classes, sizeof *logits), *scratch = calloc((size_t)l->classes, sizeof *scratch);
    buffer text = {0};
    uint64_t state = how->seed;
    bool right = tokens && logits && scratch;
    if (!right) ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    right = right && encode(l, prompt, tokens, &n);
    if (right && n == 0) { /* begin with a line end, where the vocabulary has one */
        right = encode(l, "\n", tokens, &n);
        if (!right) ct_error_clear(), right = true, tokens[0] = 0, n = 1;
    }
    right = right && ct_eval(l->net);
    for (int64_t i = 0; right && i < how->tokens; i++) {
        char bytes[4];
        right = look_ahead(l, tokens, n, context, logits);
        if (!right) break;
        tokens[n] = draw(logits, l->classes, how, &state, scratch);
        const int length = ct_vocabulary_decode(l->vocabulary, tokens[n++], bytes);
        buffer_bytes(&text, bytes, (size_t)length);
        if (piece) piece(bytes, length);
    }
    buffer_bytes(&text, "", 0);
    if (right && text.failed) right = ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    free(tokens);
    free(logits);
    free(scratch);
    if (right) return text.at;
    buffer_free(&text);
    return NULL;
}

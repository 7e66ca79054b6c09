/* einsum: operands are brought to [batch, free, summed] form and contracted from left to right by batched products, so its
 * derivatives are those of permute, diagonal, sum and matmul. */
#include <string.h>

#include "ops/op_impl.h"

enum { LABELS = 52 + CT_MAX_DIMS }; /* letters, then the dimensions of the ellipsis, counted from its last */

/* The labels of one operand or of the result, one a dimension. */
typedef struct term {
    int n;
    unsigned char label[CT_MAX_DIMS];
} term;

static int letter(char c) { return c >= 'a' && c <= 'z' ? 26 + c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' : -1; }

static bool fail(const char *text, const char *what) {
    return ct_fail(CT_ERR_VALUE, "einsum", "subscripts \"%s\": %s", text, what);
}

/* Reads one term up to ',', '-' or the end. An ellipsis stands for the dimensions that the letters leave of the operand, and in the
 * result (operand NULL) for `dots`. */
static bool read_term(const char *whole, const char **at, const ct_tensor *operand, int *dots, term *out) {
    int ndim = operand ? ct_ndim(operand) : -1;
    int letters = 0, dot_position = -1;
    const char *end = *at;
    for (; *end && *end != ',' && *end != '-'; end++) {
        if (*end == ' ') continue;
        if (strncmp(end, "...", 3) == 0) {
            if (dot_position >= 0) return fail(whole, "a term has two ellipses");
            dot_position = letters;
            end += 2;
        } else if (letter(*end) >= 0) {
            letters++;
        } else {
            return fail(whole, "only letters, commas, an ellipsis and -> are allowed");
        }
    }
    int spread = dot_position < 0 ? 0 : ndim >= 0 ? ndim - letters : *dots;
    if (ndim >= 0 && (spread < 0 || letters + spread != ndim))
        return ct_fail(CT_ERR_SHAPE, "einsum",
                       "subscripts \"%s\": the term \"%.*s\" does not fit its operand, which is %s", whole,
                       (int)(end - *at), *at, ct_tensor_text(operand));
    if (letters + spread > CT_MAX_DIMS) return fail(whole, "the result has too many dimensions");
    out->n = 0;
    for (const char *c = *at; c < end; c++) {
        if (*c == ' ') continue;
        if (*c == '.') {
            for (int i = 0; i < spread; i++) out->label[out->n++] = (unsigned char)(52 + spread - 1 - i);
            c += 2;
        } else {
            out->label[out->n++] = (unsigned char)letter(*c);
        }
    }
    if (spread > *dots) *dots = spread;
    *at = end;
    return true;
}

static int find(const term *t, int label) {
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label) return i;
    return -1;
}

static void drop(term *t, int at) {
    t->n--;
    for (int i = at; i < t->n; i++) t->label[i] = t->label[i + 1];
}

/* A repeated label becomes a diagonal, which ct_diagonal puts last. */
static ct_tensor *take_diagonals(ct_tensor *x, term *t) {
    for (int i = 0; x && i < t->n; i++) {
        for (int j = i + 1; j < t->n; j++) {
            if (t->label[i] != t->label[j]) continue;
            unsigned char label = t->label[i];
            x = diagonal(x, .axis1 = i, .axis2 = CT_SET(j));
            drop(t, j);
            drop(t, i);
            t->label[t->n++] = label;
            i = -1;
            break;
        }
    }
    return x;
}

/* Sums over the labels that neither `keep` list has. */
static ct_tensor *sum_out(ct_tensor *x, term *t, const bool *keep) {
    ct_dims axes = {0};
    term rest = {0};
    for (int i = 0; i < t->n; i++) {
        if (keep[t->label[i]]) rest.label[rest.n++] = t->label[i];
        else axes.d[axes.n++] = i;
    }
    *t = rest;
    return axes.n ? sum(x, .axes = axes) : x;
}

/* x with its dimensions in the order of `order` (labels that it lacks become size 1). */
static ct_tensor *arrange(ct_tensor *x, const term *t, const term *order) {
    ct_dims axes = {0};
    for (int i = 0; i < order->n; i++) {
        int at = find(t, order->label[i]);
        if (at >= 0) axes.d[axes.n++] = at;
    }
    x = permute(x, axes);
    for (int i = 0; i < order->n; i++)
        if (find(t, order->label[i]) < 0) x = unsqueeze(x, i);
    return x;
}

static int64_t product(const int64_t *size, const term *t) {
    int64_t count = 1;
    for (int i = 0; i < t->n; i++) count *= size[t->label[i]];
    return count;
}

/* x, arranged as t, with the dimensions that broadcast spread to the label's size. */
static ct_tensor *spread(ct_tensor *x, const int64_t *size, const term *t) {
    ct_dims shape = {.n = t->n};
    for (int i = 0; i < t->n; i++) shape.d[i] = size[t->label[i]];
    return expand(x, shape);
}

/* Contracts a and b over the labels of both that are in `after` no more. */
static ct_tensor *contract(ct_tensor *a, term *ta, ct_tensor *b, const term *tb, const int64_t *size,
                           const bool *after) {
    term batch = {0}, left = {0}, right = {0}, inner = {0}, result;
    for (int i = 0; i < ta->n; i++) {
        unsigned char label = ta->label[i];
        term *to = find(tb, label) < 0 ? &left : after[label] ? &batch : &inner;
        to->label[to->n++] = label;
    }
    for (int i = 0; i < tb->n; i++)
        if (find(ta, tb->label[i]) < 0) right.label[right.n++] = tb->label[i];
    term order_a = {0}, order_b = {0};
    result = batch;
    if (batch.n + left.n + right.n > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "einsum", "an intermediate result has more than %d dimensions", CT_MAX_DIMS);
        return NULL;
    }
#define APPEND(to, from) (memcpy((to).label + (to).n, (from).label, (size_t)(from).n), (to).n += (from).n)
    APPEND(order_a, batch);
    APPEND(order_a, left);
    APPEND(order_a, inner);
    APPEND(order_b, batch);
    APPEND(order_b, inner);
    APPEND(order_b, right);
    APPEND(result, left);
    APPEND(result, right);
#undef APPEND
    int64_t nb = product(size, &batch), nl = product(size, &left), nr = product(size, &right),
            ni = product(size, &inner);
    a = reshape(spread(arrange(a, ta, &order_a), size, &order_a), CT_DIMS(nb, nl, ni));
    b = reshape(spread(arrange(b, tb, &order_b), size, &order_b), CT_DIMS(nb, ni, nr));
    ct_tensor *y = inner.n ? matmul(a, b) : mul(a, b); /* without a sum: (nb,nl,1) * (nb,1,nr) */
    *ta = result;
    ct_dims shape = {.n = result.n};
    for (int i = 0; i < result.n; i++) shape.d[i] = size[result.label[i]];
    return reshape(y, shape);
}

/* Sizes of labels over all operands; size 1 broadcasts in the ellipsis only. */
static bool measure(const char *text, ct_tensor *const *xs, const term *terms, int n, int64_t *size) {
    for (int label = 0; label < LABELS; label++) size[label] = -1;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < terms[k].n; i++) {
            int label = terms[k].label[i];
            int64_t dim = ct_dim(xs[k], i);
            if (size[label] < 0 || (label >= 52 && size[label] == 1)) size[label] = dim;
            if (size[label] == dim || (label >= 52 && dim == 1)) continue;
            return ct_fail(CT_ERR_SHAPE, "einsum",
                           "subscripts \"%s\": operand %d is %s, but its dimension %d has size %lld elsewhere", text, k,
                           ct_tensor_text(xs[k]), i, (long long)size[label]);
        }
    }
    return true;
}

/* The result's labels: those after ->, or the ellipsis and then the letters that appear once. */
static bool read_result(const char *text, const char *at, const term *terms, int n, int dots, term *out) {
    int count[LABELS] = {0};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < terms[k].n; i++) count[terms[k].label[i]]++;
    *out = (term){0};
    if (*at == 0) {
        for (int i = dots - 1; i >= 0; i--) out->label[out->n++] = (unsigned char)(52 + i);
        for (int label = 0; label < 52; label++) {
            if (count[label] != 1) continue;
            if (out->n == CT_MAX_DIMS) return fail(text, "the result has too many dimensions");
            out->label[out->n++] = (unsigned char)label;
        }
        return true;
    }
    if (strncmp(at, "->", 2) != 0) return fail(text, "a lone '-'");
    at += 2;
    if (!read_term(text, &at, NULL, &dots, out)) return false;
    if (*at) return fail(text, "something follows the result");
    for (int i = 0; i < out->n; i++) {
        if (!count[out->label[i]]) return fail(text, "the result has a letter that no operand has");
        if (find(out, out->label[i]) != i) return fail(text, "the result has a letter twice");
    }
    return true;
}

void einsum_lower(ct_lower *l) {
    const einsum_attrs *attrs = l->attrs;
    const char *text = attrs->subscripts.s, *at = text;
    enum { MAX = 32 };
    term terms[MAX], result;
    int64_t size[LABELS];
    int dots = 0;
    if (l->n_in < 1 || l->n_in > MAX) {
        ct_fail(CT_ERR_VALUE, "einsum", "takes 1 to %d operands, not %d", MAX, l->n_in);
        return;
    }
    for (int k = 0; k < l->n_in; k++) {
        if (k && *at++ != ',') {
            fail(text, "there are fewer terms than operands");
            return;
        }
        if (!ct__has_numbers(l->in[k], "einsum", "an operand") || !read_term(text, &at, l->in[k], &dots, &terms[k]))
            return;
    }
    if (*at == ',') {
        fail(text, "there are more terms than operands");
        return;
    }
    if (!read_result(text, at, terms, l->n_in, dots, &result) || !measure(text, l->in, terms, l->n_in, size)) return;
    ct_tensor *y = NULL;
    term ty = {0};
    for (int k = 0; k < l->n_in; k++) {
        bool later[LABELS] = {false}; /* labels that the result or an operand after this one still needs */
        for (int i = 0; i < result.n; i++) later[result.label[i]] = true;
        for (int j = k + 1; j < l->n_in; j++)
            for (int i = 0; i < terms[j].n; i++) later[terms[j].label[i]] = true;
        bool keep[LABELS];
        memcpy(keep, later, sizeof keep);
        for (int i = 0; i < ty.n; i++) keep[ty.label[i]] = true;
        ct_tensor *x = take_diagonals(l->in[k], &terms[k]);
        /* A dimension of size 1 that only broadcasts must not be summed size[label] times: sum_out sees its own size, 1. */
        x = sum_out(x, &terms[k], keep);
        if (!x) return;
        if (!y) {
            y = x;
            ty = terms[k];
        } else {
            y = contract(y, &ty, x, &terms[k], size, later);
        }
        if (!y) return;
    }
    l->out[0] = spread(arrange(y, &ty, &result), size, &result);
}

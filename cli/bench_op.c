/* Workloads that are one op on random inputs, described by text. */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { MOST_INPUTS = 16, MOST_OUTPUTS = 4 };

typedef struct work {
    const ct_op *op;
    bench_how how;
    void *attrs;
    ct_tensor *in[MOST_INPUTS];
    int n_in, n_out;
    ct_tensor *destination; /* of BENCH_OUT */
    ct_tensor *cotangent;   /* of BENCH_BACKWARD */
} work;

static bool wrong(const char *word) { return ct_fail(CT_ERR_VALUE, "bench", "the input '%s' is not understood", word); }

/* One word: [*][dtype][2,3][t][:int<9]. */
static ct_tensor *make_input(const char *word) {
    const char *p = word;
    bool wanted = *p == '*';
    if (wanted) p++;
    ct_dtype dtype = CT_F32;
    char name[16] = "";
    size_t length = strcspn(p, "[");
    if (length >= sizeof name || !p[length]) {
        wrong(word);
        return NULL;
    }
    memcpy(name, p, length);
    if (length && !ct_dtype_parse(name, &dtype)) {
        wrong(word);
        return NULL;
    }
    p += length + 1;
    ct_dims shape = {0};
    while (*p && *p != ']' && shape.n < CT_MAX_DIMS) {
        char *end;
        shape.d[shape.n++] = strtoll(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
    }
    if (*p++ != ']') {
        wrong(word);
        return NULL;
    }
    bool transposed = *p == 't' && shape.n >= 2;
    if (transposed) {
        p++;
        int64_t swap = shape.d[shape.n - 1];
        shape.d[shape.n - 1] = shape.d[shape.n - 2];
        shape.d[shape.n - 2] = swap;
    }
    ct_tensor *x;
    if (strncmp(p, ":int<", 5) == 0) x = ct_randint(shape, 0, strtoll(p + 5, NULL, 10));
    else if (dtype == CT_BOOL) x = ct_bernoulli_full(shape, 0.5, .dtype = CT_BOOL);
    else if (ct_dtype_is_float(dtype)) x = ct_randn(shape, .dtype = dtype);
    else x = ct_randint(shape, 0, 100, .dtype = dtype);
    if (transposed) x = ct_transpose(x, -1, -2);
    return wanted ? ct_set_requires_grad(x, true) : x;
}

static bool take_word(work *w, const char *word) {
    const char *equals = strchr(word, '=');
    if (word[0] == '[' || word[0] == '*' || !equals) {
        if (w->n_in == MOST_INPUTS) return ct_fail(CT_ERR_VALUE, "bench", "more than %d inputs", MOST_INPUTS);
        return (w->in[w->n_in++] = make_input(word)) != NULL;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
    if (strcmp(name, "outputs") == 0) {
        w->n_out = atoi(equals + 1);
        return w->n_out >= 1 && w->n_out <= MOST_OUTPUTS ? true : wrong(word);
    }
    return ct_attrs_set(w->op, w->attrs, name, equals + 1);
}

static bool take_inputs(work *w, const char *inputs) {
    char word[128];
    for (; *inputs; inputs += strspn(inputs, " ")) {
        size_t n = strcspn(inputs, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, inputs);
        if (!take_word(w, word)) return false;
        inputs += n;
    }
    return true;
}

static bool run_once(void *context) {
    work *w = context;
    bool ok = false;
    ct_scope {
        ct_tensor *out[MOST_OUTPUTS] = {NULL};
        if (w->destination) ct_into(w->destination);
        ok = ct_apply(w->op, w->in, w->n_in, w->attrs, out, w->n_out);
        if (ok && w->how == BENCH_BACKWARD) {
            ok = ct_backward_from(out[0], w->cotangent, 0);
            for (int i = 0; i < w->n_in; i++)
                if (w->in[i] && ct_is_leaf(w->in[i]) && ct_requires_grad(w->in[i])) ct_set_grad(w->in[i], NULL);
        }
    }
    return ok;
}

bool bench_op(const char *op, const char *inputs, bench_how how, double min_time, bench_result *result, bool *missing) {
    work w = {.op = ct_op_find(op), .how = how, .n_out = 1};
    *missing = !w.op;
    if (!w.op) return false;
    w.attrs = calloc(1, w.op->attr_size + 1);
    if (!w.attrs) return ct_fail(CT_ERR_MEMORY, "bench", "no memory for the attributes of %s", op);
    ct_attrs_default(w.op, w.attrs);
    bool ok = take_inputs(&w, inputs);
    for (int i = w.n_in; ok && w.op->inputs[i].name && (w.op->inputs[i].flags & CT_ARG_OPTIONAL) && i < MOST_INPUTS;
         i++)
        w.in[w.n_in++] = NULL;
    if (ok && how != BENCH_ALLOC) {
        ct_tensor *out[MOST_OUTPUTS] = {NULL};
        ct_no_grad {
            ok = ct_apply(w.op, w.in, w.n_in, w.attrs, out, w.n_out);
        }
        if (ok && how == BENCH_OUT) w.destination = out[0];
        if (ok && how == BENCH_BACKWARD)
            ok = (w.cotangent = ct_randn(ct_shape(out[0]), .dtype = ct_dtype_of(out[0]))) != NULL;
    }
    ok = ok && bench_measure(run_once, &w, min_time, result);
    free(w.attrs);
    return ok;
}

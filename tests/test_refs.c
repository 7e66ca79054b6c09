/* Results and gradients that other libraries computed (tests/refs, written by tools/refs) against ours, op by op.
 *
 * Numbers are written with 12 digits. Beyond that, a result may be off by lambda sqrt(L) u (|y| + S), with u the unit
 * roundoff of the dtype, L the elements of the case's largest tensor (the longest sum there can be) and S the largest number of the
 * case, among which any cancellation takes place; lambda = 16, twice the 8 of opcheck_values.c, since the other library
 * rounds as well. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { MAX_TENSORS = 24, LAMBDA = 16 };

typedef struct entry {
    bool skipped, is_float; /* is_float: of the dtype that the case runs in */
    ct_dtype dtype;
    ct_dims shape;
    int64_t count;
    double *values;
    int64_t *whole; /* integers, exactly */
} entry;

typedef struct reference_case {
    int line;
    const ct_op *op;
    char name[64];
    void *attrs;
    entry in[MAX_TENSORS], out[MAX_TENSORS], cot[MAX_TENSORS], grad[MAX_TENSORS];
    int n_in, n_out, n_cot, n_grad;
    char error[32];
    double largest;
    int64_t most;
} reference_case;

/* ---- Reading ---- */

static bool read_tensor(reference_case *c, const char *s, entry *e, bool has_dtype) {
    *e = (entry){.is_float = true, .dtype = CT_F64};
    if (*s == '-' && !isdigit((unsigned char)s[1])) return e->skipped = true;
    if (has_dtype) {
        char word[16] = "";
        int used = 0;
        sscanf(s, "%15s%n", word, &used);
        s += used;
        e->is_float = strcmp(word, "float") == 0;
        if (!e->is_float && !ct_dtype_parse(word, &e->dtype)) return false;
    }
    s += strspn(s, " ");
    if (*s++ != '[') return false;
    e->count = 1;
    while (*s && *s != ']') {
        char *end;
        e->shape.d[e->shape.n] = strtoll(s, &end, 10);
        e->count *= e->shape.d[e->shape.n++];
        s = *end == ',' ? end + 1 : end;
    }
    if (*s++ != ']') return false;
    e->values = calloc((size_t)e->count + 1, sizeof *e->values);
    e->whole = calloc((size_t)e->count + 1, sizeof *e->whole);
    for (int64_t i = 0; i < e->count; i++) {
        char *end;
        e->whole[i] = strtoll(s, &end, 10);
        e->values[i] = strtod(s, &end);
        if (end == s) return false;
        if (isfinite(e->values[i]) && fabs(e->values[i]) > c->largest && e->is_float) c->largest = fabs(e->values[i]);
        s = end;
    }
    if (e->count > c->most) c->most = e->count;
    return true;
}

static bool read_attrs(reference_case *c, char *text) {
    for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n")) {
        char *equals = strchr(word, '=');
        if (!equals) return false;
        *equals = 0;
        if (!ct_attrs_set(c->op, c->attrs, word, equals + 1)) return false;
    }
    return true;
}

static void free_entries(entry *list, int n) {
    for (int i = 0; i < n; i++) {
        free(list[i].values);
        free(list[i].whole);
    }
}

static void free_case(reference_case *c) {
    free_entries(c->in, c->n_in);
    free_entries(c->out, c->n_out);
    free_entries(c->cot, c->n_cot);
    free_entries(c->grad, c->n_grad);
    free(c->attrs);
    *c = (reference_case){0};
}

/* ---- Comparing ---- */

static ct_tensor *make(const entry *e, ct_dtype dtype) {
    if (e->skipped) return NULL;
    bool whole = ct_dtype_is_int(e->dtype) || e->dtype == CT_BOOL;
    if (whole) return ct_cast(ct_from_data(e->whole, e->shape, CT_I64), e->dtype);
    return ct_cast(ct_from_data(e->values, e->shape, CT_F64), e->is_float ? dtype : e->dtype);
}

static double unit(ct_dtype dtype) {
    return dtype == CT_F64 ? 0x1p-53 : dtype == CT_F32 ? 0x1p-24 : dtype == CT_F16 ? 0x1p-11 : 0x1p-8;
}

static bool compare(const reference_case *c, ct_dtype run, const char *what, int index, ct_tensor *got,
                    const entry *e) {
    ct_dtype dtype = e->is_float ? run : e->dtype;
    bool fits = got && ct_dtype_of(got) == dtype && ct_ndim(got) == e->shape.n;
    for (int i = 0; fits && i < e->shape.n; i++) fits = ct_dim(got, i) == e->shape.d[i];
    if (!harness_check(fits, "refs", c->line, "%s in %s: %s %d is %s, not %s%s", c->name, ct_dtype_name(run), what,
                       index, got ? ct_tensor_text(got) : "NULL", ct_dtype_name(dtype), ct_dims_text(e->shape)))
        return false;
    bool ok = true;
    size_t n = (size_t)e->count + 1;
    if (ct_dtype_is_float(dtype)) {
        double *values = calloc(n, sizeof *values);
        ok = ct_read(ct_cast(ct_detach(got), CT_F64), values, (size_t)e->count * sizeof *values);
        for (int64_t i = 0; ok && i < e->count; i++) {
            double y = e->values[i],
                   tolerance = 5e-12 * fabs(y) + LAMBDA * sqrt((double)c->most) * unit(dtype) * (fabs(y) + c->largest);
            if (run == CT_F32 && e->is_float && fabs(y) > 0x1.fffffep127) y = copysign(INFINITY, y);
            bool near = (isnan(y) && isnan(values[i])) || y == values[i] || fabs(y - values[i]) <= tolerance;
            ok = harness_check(near, "refs", c->line, "%s in %s: %s %d at %lld is %.12g, not %.12g (tolerance %.2g)",
                               c->name, ct_dtype_name(run), what, index, (long long)i, values[i], y, tolerance);
        }
        free(values);
    } else {
        int64_t *values = calloc(n, sizeof *values);
        ok = ct_read(ct_cast(got, CT_I64), values, (size_t)e->count * sizeof *values);
        for (int64_t i = 0; ok && i < e->count; i++)
            ok = harness_check(values[i] == e->whole[i], "refs", c->line, "%s: %s %d at %lld is %lld, not %lld",
                               c->name, what, index, (long long)i, (long long)values[i], (long long)e->whole[i]);
        free(values);
    }
    return ok;
}

static bool run_case(const reference_case *c, ct_dtype dtype) {
    bool ok = true;
    ct_scope {
        ct_tensor *in[MAX_TENSORS], *out[MAX_TENSORS], *xs[MAX_TENSORS], *ys[MAX_TENSORS], *cots[MAX_TENSORS],
            *grads[MAX_TENSORS];
        int nx = 0, ny = 0;
        for (int i = 0; i < c->n_in; i++) {
            in[i] = make(&c->in[i], dtype);
            if (!c->n_grad || c->in[i].skipped || !c->in[i].is_float) continue;
            ct_set_requires_grad(in[i], true);
            xs[nx++] = in[i];
        }
        int m = c->n_out ? c->n_out : 1;
        bool ran = ct_apply(c->op, in, c->n_in, c->attrs, out, m);
        if (c->error[0]) {
            char code[40];
            snprintf(code, sizeof code, "%d", (int)ct_error_code());
            static const char *const names[] = {"OK",     "NULL",   "SHAPE", "DTYPE",       "VALUE", "INDEX",
                                                "DEVICE", "MEMORY", "GRAD",  "UNSUPPORTED", "IO",    "STATE"};
            ok = harness_check(!ran && strcmp(names[ct_error_code()], c->error) == 0, "refs", c->line,
                               "%s: expected an error %s", c->name, c->error);
            ct_error_clear();
        } else {
            ok = harness_check(ran, "refs", c->line, "%s in %s", c->name, ct_dtype_name(dtype));
            for (int i = 0; ran && i < c->n_out; i++)
                if (!c->out[i].skipped) ok = compare(c, dtype, "result", i, out[i], &c->out[i]) && ok;
            for (int i = 0, k = 0; ok && c->n_grad && i < c->n_out; i++) {
                if (c->out[i].skipped || !c->out[i].is_float) continue;
                ys[ny] = out[i];
                cots[ny++] = make(&c->cot[k++], dtype);
            }
            if (ok && c->n_grad) {
                ok = harness_check(nx == c->n_grad && ct_grad(ys, ny, cots, xs, nx, grads, 0), "refs", c->line,
                                   "%s in %s: gradient", c->name, ct_dtype_name(dtype));
                for (int i = 0; ok && i < nx; i++) ok = compare(c, dtype, "gradient", i, grads[i], &c->grad[i]);
            }
        }
    }
    ct_error_clear();
    return ok;
}

/* ---- Files ---- */

static void finish(reference_case *c, int *cases) {
    if (!c->op) return;
    bool floats = false;
    for (int i = 0; i < c->n_in; i++) floats |= !c->in[i].skipped && c->in[i].is_float;
    for (int i = 0; i < c->n_out; i++) floats |= !c->out[i].skipped && c->out[i].is_float;
    run_case(c, CT_F64);
    if (floats) run_case(c, CT_F32);
    ++*cases;
    free_case(c);
}

static void read_file(const char *family) {
    char path[512];
    const char *root = getenv("CT_SOURCE_DIR");
    if (root) snprintf(path, sizeof path, "%s/tests/refs/%s.txt", root, family);
    else snprintf(path, sizeof path, "%.*s/refs/%s.txt", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__, family);
    FILE *file = fopen(path, "r");
    if (!harness_check(file != NULL, __FILE__, __LINE__, "%s cannot be opened", path)) return;
    char *line = NULL;
    size_t capacity = 0;
    reference_case c = {0};
    int number = 0, cases = 0;
    while (getline(&line, &capacity, file) >= 0) {
        number++;
        line[strcspn(line, "\n")] = 0;
        bool ok = true;
        if (strncmp(line, "case ", 5) == 0) {
            finish(&c, &cases);
            c.line = number;
            char *rest = line + 5;
            size_t length = strcspn(rest, " ");
            snprintf(c.name, sizeof c.name, "%.*s", (int)length, rest);
            c.op = ct_op_find(c.name);
            if (!harness_check(c.op != NULL, path, number, "there is no op %s", c.name)) continue;
            c.attrs = calloc(1, c.op->attr_size + 1);
            ct_attrs_default(c.op, c.attrs);
            ok = read_attrs(&c, rest + length);
            snprintf(c.name, sizeof c.name, "%s", c.op->name);
        } else if (!c.op || line[0] == '#' || line[0] == 0) {
            continue;
        } else if (strncmp(line, "in ", 3) == 0) {
            ok = c.n_in < MAX_TENSORS && read_tensor(&c, line + 3, &c.in[c.n_in++], true);
        } else if (strncmp(line, "out ", 4) == 0) {
            ok = c.n_out < MAX_TENSORS && read_tensor(&c, line + 4, &c.out[c.n_out++], true);
        } else if (strncmp(line, "cot ", 4) == 0) {
            ok = c.n_cot < MAX_TENSORS && read_tensor(&c, line + 4, &c.cot[c.n_cot++], false);
        } else if (strncmp(line, "grad ", 5) == 0) {
            ok = c.n_grad < MAX_TENSORS && read_tensor(&c, line + 5, &c.grad[c.n_grad++], false);
        } else if (strncmp(line, "error ", 6) == 0) {
            snprintf(c.error, sizeof c.error, "%s", line + 6);
        } else {
            ok = false;
        }
        if (!harness_check(ok, path, number, "the line cannot be read: %.60s", line)) {
            ct_error_clear();
            free_case(&c);
        }
    }
    finish(&c, &cases);
    harness_check(cases > 0, path, number, "no cases");
    free(line);
    fclose(file);
}

#define FAMILY(name) \
    TEST(name##_agrees_with_other_libraries) { read_file(#name); }

FAMILY(unary)
FAMILY(activation)
FAMILY(binary)
FAMILY(integer)
FAMILY(ternary)
FAMILY(reduction)
FAMILY(extremum)
FAMILY(scan)
FAMILY(softmax)
FAMILY(product)
FAMILY(linear)
FAMILY(einsum)
FAMILY(matrix)
FAMILY(making)
FAMILY(cast)
FAMILY(view)
FAMILY(copy)
FAMILY(index)
FAMILY(mask)
FAMILY(order)
FAMILY(count)
FAMILY(distinct)
FAMILY(crop)
FAMILY(gate)
FAMILY(max_pool)
FAMILY(avg_pool)
FAMILY(columns)
FAMILY(resize)
FAMILY(grid)
FAMILY(deform)
FAMILY(norm)
FAMILY(loss)
FAMILY(loss_sequence)
FAMILY(conv)
FAMILY(conv_transpose)
FAMILY(conv_errors)
FAMILY(attention)
FAMILY(attention_heads)
FAMILY(attention_positions)
FAMILY(rnn)
FAMILY(rnn_lstm)
FAMILY(rnn_gru)
FAMILY(rnn_cell)

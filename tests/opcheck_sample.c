/* Samples: reading their lines, drawing values from their domains, placing values in memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/capture.h>

#include "core/dtype.h"
#include "core/tensor.h"
#include "tests/opcheck.h"

/* ---- Reading a line ---- */

const ct_arg *opcheck_arg(const ct_op *op, int i) {
    int last = 0;
    while (last < i && op->inputs[last].name && op->inputs[last + 1].name && !(op->inputs[last].flags & CT_ARG_LIST))
        last++;
    return &op->inputs[last];
}

int opcheck_count_args(const ct_arg *args) {
    int n = 0;
    while (args[n].name) n++;
    return n;
}

/* One shape with its domain, [2,3]:pos; returns what follows, NULL when it is none. */
static const char *read_shape(const char *s, opcheck_input *input) {
    if (*s++ != '[') return NULL;
    while (*s && *s != ']') {
        char *end;
        if (input->shape.n == CT_MAX_DIMS) return NULL;
        input->shape.d[input->shape.n++] = strtoll(s, &end, 10);
        if (end == s) return NULL;
        s = *end == ',' ? end + 1 : end;
    }
    if (*s++ != ']') return NULL;
    snprintf(input->domain, sizeof input->domain, "any");
    if (*s == ':') {
        size_t length = strcspn(++s, ", \t\n");
        if (length >= sizeof input->domain) return NULL;
        memcpy(input->domain, s, length);
        input->domain[length] = 0;
        s += length;
    }
    return s;
}

static opcheck_input *add_input(opcheck_sample *sample) {
    if (sample->n_in == OPCHECK_INPUTS) return NULL;
    opcheck_input *input = &sample->in[sample->n_in];
    *input = (opcheck_input){.flags = opcheck_arg(sample->op, sample->n_in)->flags};
    sample->n_in++;
    return input;
}

static bool read_word(opcheck_sample *sample, const char *word, size_t length) {
    opcheck_input *input;
    if (length == 1 && *word == '-') {
        if (!(input = add_input(sample))) return false;
        input->skipped = true;
        return true;
    }
    if (*word == '[' || *word == '@') {
        const char *at = word + (*word == '@'), *end = word + length;
        while (at && at < end) {
            if (!(input = add_input(sample)) || !(at = read_shape(at, input))) return false;
            if (at < end && *at == ',') at++;
        }
        return at != NULL;
    }
    char name[64], value[160];
    const char *equals = memchr(word, '=', length);
    size_t name_length = equals ? (size_t)(equals - word) : 0, value_length = equals ? length - name_length - 1 : 0;
    if (!equals || name_length >= sizeof name || value_length >= sizeof value) return false;
    memcpy(name, word, name_length);
    name[name_length] = 0;
    memcpy(value, equals + 1, value_length);
    value[value_length] = 0;
    if (strcmp(name, "outputs") == 0) {
        sample->n_out = atoi(value);
        return sample->n_out > 0 && sample->n_out <= OPCHECK_OUTPUTS;
    }
    return ct_attrs_set(sample->op, sample->attrs, name, value);
}

bool opcheck_next_sample(opcheck *check, const char **at, opcheck_sample *sample) {
    const ct_op *op = check->op;
    const char *line = *at;
    check->sample = NULL;
    if (!line || !*line) return false;
    size_t length = strcspn(line, "\n");
    *at = line + length + (line[length] == '\n');
    *sample = (opcheck_sample){.op = op, .text = line, .length = (int)length, .attrs = calloc(1, op->attr_size + 1)};
    ct_attrs_default(op, sample->attrs);
    sample->n_out = op->outputs[0].flags & CT_ARG_LIST ? 1 : opcheck_count_args(op->outputs);
    bool ok = true;
    for (const char *s = line, *end = line + length; ok && s < end;) {
        size_t word = strcspn(s, " \t\n");
        if (word) ok = read_word(sample, s, word);
        s += word + 1;
    }
    int named = opcheck_count_args(op->inputs);
    bool list = named && (op->inputs[named - 1].flags & CT_ARG_LIST);
    while (ok && sample->n_in < named - list) { /* trailing optional inputs may be left out */
        opcheck_input *input = add_input(sample);
        input->skipped = true;
        ok = input->flags & CT_ARG_OPTIONAL;
    }
    for (int i = 0; i < sample->n_in; i++) {
        int64_t count = sample->in[i].skipped ? 0 : opcheck_count(sample->in[i].shape);
        if (count > sample->largest) sample->largest = count;
    }
    check->sample = sample;
    opcheck_expect(check, ok, "the sample cannot be read: %s", ct_error());
    ct_error_clear();
    if (!ok) opcheck_free_sample(sample);
    return ok;
}

void opcheck_free_sample(opcheck_sample *sample) {
    free(sample->attrs);
    sample->attrs = NULL;
}

/* ---- Values ---- */

int64_t opcheck_count(ct_dims shape) {
    int64_t count = 1;
    for (int i = 0; i < shape.n; i++) count *= shape.d[i];
    return count;
}

bool opcheck_is_index(const opcheck_input *input) {
    return strncmp(input->domain, "int<", 4) == 0 || strcmp(input->domain, "bool") == 0 ||
           (input->flags & (CT_ARG_INDEX | CT_ARG_BOOL));
}

bool opcheck_is_unset(const ct_op *op) { return strcmp(op->name, "empty") == 0 || strcmp(op->name, "empty_like") == 0; }

static uint64_t next_random(uint64_t *state) { /* splitmix64: no part of the library */
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(next_random(state) >> 11) * 0x1p-53);
}

void opcheck_fill(const opcheck_input *input, int position, bool integer, double *values, int64_t count) {
    static const struct {
        const char *name;
        double low, high;
    } ranges[] = {{"any", -2, 2},       {"pos", 0.2, 3}, {"nonneg", 0.01, 3}, {"unit", -0.9, 0.9},
                  {"open01", 0.1, 0.9}, {"ge1", 1.2, 4}, {"small", -2, 2}};
    const char *domain = input->domain;
    uint64_t state = 1000u + (uint64_t)position;
    for (const char *s = domain; *s; s++) state = state * 31 + (unsigned char)*s;
    if (strncmp(domain, "int<", 4) == 0) {
        uint64_t bound = strtoull(domain + 4, NULL, 10);
        for (int64_t i = 0; i < count; i++) values[i] = bound ? (double)(next_random(&state) % bound) : 0;
    } else if (strcmp(domain, "bool") == 0) {
        for (int64_t i = 0; i < count; i++) values[i] = (double)(next_random(&state) >> 62 != 0);
    } else if (integer || strcmp(domain, "i64") == 0) {
        bool positive = strcmp(domain, "pos") == 0 || strcmp(domain, "nonneg") == 0 || strcmp(domain, "ge1") == 0;
        bool bounded = strcmp(domain, "unit") == 0 || strcmp(domain, "open01") == 0;
        for (int64_t i = 0; i < count; i++) {
            uint64_t r = next_random(&state);
            values[i] = positive ? 1 + (double)(r % 4) : bounded ? (double)(r % 2) : (double)(r % 9) - 4;
        }
    } else if (strcmp(domain, "distinct") == 0) { /* a shuffled ladder of steps of 0.07, each moved by less than 0.01 */
        for (int64_t i = 0; i < count; i++) values[i] = 0.07 * (double)(i - count / 2) + uniform(&state, 0, 0.01);
        for (int64_t i = count - 1; i > 0; i--) {
            int64_t j = (int64_t)(next_random(&state) % (uint64_t)(i + 1));
            double swap = values[i];
            values[i] = values[j];
            values[j] = swap;
        }
    } else if (strcmp(domain, "away0") == 0) {
        for (int64_t i = 0; i < count; i++) values[i] = uniform(&state, 0.3, 2) * (next_random(&state) & 1 ? 1 : -1);
    } else {
        double low = -2, high = 2;
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
            if (strcmp(ranges[r].name, domain) == 0) low = ranges[r].low, high = ranges[r].high;
        for (int64_t i = 0; i < count; i++) values[i] = uniform(&state, low, high);
    }
}

/* ---- Memory ---- */

const char *opcheck_layout_name(opcheck_layout layout) {
    static const char *const names[OPCHECK_LAYOUTS] = {"dense",     "transposed", "slice",    "step",
                                                       "backwards", "mixed",      "stride 0", "broadcast"};
    return names[layout];
}

/* Strides and offset of a layout, and how many elements the memory behind it has. */
static int64_t lay_out(ct_view *view, opcheck_layout layout) {
    int64_t total = 1;
    int repeated = -1;
    if (layout == OPCHECK_TRANSPOSED) {
        for (int i = 0; i < view->ndim; i++) {
            view->strides[i] = total;
            total *= view->dims[i] ? view->dims[i] : 1;
        }
        return total;
    }
    if (layout == OPCHECK_BROADCAST && view->ndim > 0) repeated = 0;
    for (int i = 0; i < view->ndim && layout == OPCHECK_STRIDE0; i++)
        if (view->dims[i] > 1) repeated = i;
    for (int i = view->ndim - 1; i >= 0; i--) {
        int64_t size = view->dims[i] ? view->dims[i] : 1, step = layout == OPCHECK_STEP && i == view->ndim - 1 ? 2 : 1;
        view->strides[i] = i == repeated ? 0 : total * step;
        if (i == repeated) continue;
        total *= layout == OPCHECK_SLICE ? size + 2 : size * step;
    }
    if (layout == OPCHECK_SLICE) {
        view->offset = 3;
        for (int i = 0; i < view->ndim; i++) view->offset += view->strides[i];
        total += 3;
    }
    for (int i = view->ndim - 1; i >= 0 && layout == OPCHECK_BACKWARDS; i -= 2) {
        if (view->dims[i]) view->offset += (view->dims[i] - 1) * view->strides[i];
        view->strides[i] = -view->strides[i];
    }
    return total;
}

static void put_garbage(ct_dtype dtype, void *at) {
    ct__dtype_put(dtype, at, ct_dtype_is_float(dtype) ? NAN : dtype == CT_BOOL ? 1 : 1e18);
}

ct_tensor *opcheck_place(ct_dtype dtype, ct_dims shape, double *values, opcheck_layout layout) {
    ct_view view = {.dtype = dtype, .ndim = shape.n};
    memcpy(view.dims, shape.d, sizeof view.dims);
    int64_t total = lay_out(&view, layout), count = opcheck_count(shape);
    size_t size = ct_dtype_size(dtype);
    char *memory = malloc((size_t)total * size + 1);
    for (int64_t i = 0; i < total; i++) put_garbage(dtype, memory + (size_t)i * size);
    int64_t at[CT_MAX_DIMS] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t place = view.offset;
        bool first = true; /* along a repeated dimension only its first entry is written */
        for (int d = 0; d < view.ndim; d++) {
            place += at[d] * view.strides[d];
            if (view.strides[d] == 0 && at[d] > 0) first = false;
        }
        char *element = memory + (size_t)place * size;
        if (first) ct__dtype_put(dtype, element, values[i]);
        values[i] = ct__dtype_get(dtype, element);
        for (int d = view.ndim - 1; d >= 0 && ++at[d] == view.dims[d]; d--) at[d] = 0;
    }
    ct_tensor *all = ct_from_data(memory, (ct_dims){.n = 1, .d = {total}}, dtype);
    free(memory);
    return all ? ct__scope_adopt(ct__tensor_new(&view, all->storage)) : NULL;
}

double *opcheck_read(ct_tensor *x) {
    int64_t count = ct_numel(x);
    size_t size = ct_dtype_size(ct_dtype_of(x));
    char *raw = malloc((size_t)count * size + 1);
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    bool ok = raw && values && ct_read(x, raw, (size_t)count * size);
    for (int64_t i = 0; ok && i < count; i++) values[i] = ct__dtype_get(ct_dtype_of(x), raw + (size_t)i * size);
    free(raw);
    if (ok) return values;
    free(values);
    return NULL;
}

/* ---- Devices without f64 ---- */

bool opcheck_has_f64(void) { return ct_device_has_dtype(ct_get_device(), CT_F64); }

bool opcheck_is_beyond(const opcheck_sample *sample) {
    return !opcheck_has_f64() && memmem(sample->text, (size_t)sample->length, "=f64", 4);
}

ct_device opcheck_begin_f64(void) {
    const ct_device device = ct_get_device();
    if (!opcheck_has_f64()) ct_set_device((ct_device){.type = CT_CPU});
    return device;
}

void opcheck_end_f64(ct_device device) { ct_set_device(device); }

double opcheck_flushed(ct_dtype dtype) {
    const bool flushes = !opcheck_has_f64() && dtype != CT_F16; /* f16 is computed in f32 */
    return opcheck_smallest(dtype) * (flushes ? 256 : 1);
}

/* ---- Calls ---- */

bool opcheck_apply(const opcheck_sample *sample, ct_tensor *const *in, ct_tensor **out) {
    const bool suspended = ct_capture_suspend(); /* before a replay the caller does the same */
    ct_seed(20);
    ct_capture_resume(suspended);
    return ct_apply(sample->op, in, sample->n_in, sample->attrs, out, sample->n_out);
}

/* What dispatch does before a lowering sees its inputs: those that promote get one dtype, those that broadcast one shape. */
static bool agree(const opcheck_sample *sample, ct_tensor **in) {
    ct_dtype common = CT_DTYPE_COUNT;
    ct_dims shape = {0};
    for (int i = 0; i < sample->n_in; i++) {
        if (!in[i]) continue;
        if (sample->in[i].flags & CT_ARG_PROMOTE)
            common = common == CT_DTYPE_COUNT ? ct_dtype_of(in[i]) : ct_dtype_promote(common, ct_dtype_of(in[i]));
        if (!(sample->in[i].flags & CT_ARG_BROADCAST)) continue;
        ct_dims own = ct_shape(in[i]), merged = {.n = own.n > shape.n ? own.n : shape.n};
        for (int d = 1; d <= merged.n; d++) {
            int64_t a = d <= shape.n ? shape.d[shape.n - d] : 1, b = d <= own.n ? own.d[own.n - d] : 1;
            merged.d[merged.n - d] = a == 1 ? b : a;
        }
        shape = merged;
    }
    for (int i = 0; i < sample->n_in; i++) {
        if (!in[i]) continue;
        unsigned flags = sample->in[i].flags;
        if (flags & CT_ARG_PROMOTE) in[i] = ct_cast(in[i], common);
        if ((flags & CT_ARG_FLOAT) && in[i] && !ct_dtype_is_float(ct_dtype_of(in[i]))) in[i] = ct_cast(in[i], CT_F32);
        if ((flags & CT_ARG_BROADCAST) && in[i]) in[i] = ct_expand(in[i], shape);
        if (!in[i]) return false;
    }
    return true;
}

bool opcheck_lower(const opcheck_sample *sample, ct_tensor *const *in, ct_tensor **out) {
    ct_tensor *ready[OPCHECK_INPUTS];
    bool want[OPCHECK_OUTPUTS];
    for (int i = 0; i < sample->n_in; i++) ready[i] = in[i];
    for (int i = 0; i < sample->n_out; i++) out[i] = NULL, want[i] = true;
    if (!agree(sample, ready)) return false;
    const ct_random random = {.seed = 20}; /* the position that a random op would have been given */
    ct_seed(20);
    ct_lower lower = {.op = sample->op,
                      .attrs = sample->attrs,
                      .n_in = sample->n_in,
                      .n_out = sample->n_out,
                      .in = ready,
                      .out = out,
                      .want = want,
                      .random = &random};
    sample->op->lower(&lower);
    for (int i = 0; i < sample->n_out; i++)
        if (!out[i])
            return ct_ok() ? ct_fail(CT_ERR_STATE, sample->op->name, "its lowering gave no result %d", i) : false;
    return ct_ok();
}

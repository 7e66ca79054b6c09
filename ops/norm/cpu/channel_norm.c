/* Kernels of channel_norm, with relu and what is added before it too, and of its gradients. A line is one channel of one item of
 * the batch; with the channels last, lines lie side by side. Lines are cut into parts; each part gives its moments (or, for the
 * gradients, three sums), those of a set are put together, and every part is gone over once more with the coefficients that
 * follow. Where a set is small enough to stay in a cache, one task does all of this for it; else all first parts come before all
 * second ones. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/step.h"
#include "ops/norm/cpu/moments.h"
#include "ops/norm/norm.h"

#include "gen/norm.attrs.h"
#include "gen/ops_decl.h"

enum {
    PART = 65536,          /* elements of a part */
    LOCAL_BYTES = 4 << 20, /* a set that one task goes over twice: from a cache, if not the nearest */
    LOCAL_LINE = 8192,     /* of a set whose lines lie apart: shorter ones are better read as they lie in memory */
    LOCAL_SETS = 8,        /* tasks that are enough */
    SETTLED = 512,         /* parts whose sums one task puts together, */
    PARAMETERS = 32,       /* and channels whose gradients are summed at a time */
    ROWS = 64,             /* of neighboring lines that are summed in the dtype itself before they go to f64 */
    SPAN = 64              /* fewest neighboring lines that are gone over apart from others */
};

/* Of the parts of lines: count, mean, squared deviations; or the sums of g, g (x - m), x - m, with m the mean as given. */
typedef struct part_sums {
    double *a, *b, *c;
} part_sums;

/* What y is of the normalized x. */
typedef enum result_kind { PLAIN, RELU_OF_RESULT, RELU_OF_SUM } result_kind;

typedef struct channel_job {
    const void *x, *g, *weight, *bias, *g_mean, *g_var, *given_mean, *given_var;
    const void *other; /* the residual, or of a gradient y */
    void *y, *mean, *var, *dweight, *dbias;
    void *passed;                    /* what relu let pass of g, the gradient of the residual, or NULL */
    int64_t items, channels, places; /* x is (items, channels, places) or (items, places, channels) */
    int64_t groups, members;         /* groups of so many channels; one channel each when the batch is one set */
    int64_t parts, part;             /* of a line, and their places */
    int64_t span;                    /* neighboring lines that a visit is to, with the channels last */
    int64_t begin;                   /* the element that x, g and y begin with */
    double eps, count;               /* elements of a set */
    bool batch, last, streams, relu;
    bool passed_first;   /* the first pass leaves `passed`, which the second one takes for g */
    part_sums sums;      /* each (items, channels, parts) or (items, parts, channels) */
    double *rest, *rstd; /* by set: what the mean as given lacks */
    void *coefficients;  /* (5, items or 1, channels): m, those of g, x - m, 1, what g is taken from; or of x - m, 1 */
} channel_job;

static inline int64_t sum_at(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    return j->last ? (item * j->parts + part) * j->channels + channel
                   : (item * j->channels + channel) * j->parts + part;
}

static inline int64_t places_of(const channel_job *j, int64_t part) {
    return ct__min64(j->part, j->places - part * j->part);
}

/* Those of a visit that begins with a channel. */
static inline int64_t span_of(const channel_job *j, int64_t channel) {
    return ct__min64(j->span, j->channels - channel);
}

/* Where the first element of a part of a line lies. */
static inline int64_t place_of(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    const int64_t at = j->last ? (item * j->places + part * j->part) * j->channels + channel
                               : (item * j->channels + channel) * j->places + part * j->part;
    return at - j->begin;
}

/* Calls visit for every part of a set: of one channel of all items, or of the channels of a group of one item. */
typedef void (*part_visit)(const channel_job *j, int64_t item, int64_t channel, int64_t part);
static void each_part(const channel_job *j, int64_t set, part_visit visit) {
    const int64_t first_item = j->batch ? 0 : set / j->groups, end_item = j->batch ? j->items : first_item + 1;
    const int64_t first = set % j->groups * j->members;
    for (int64_t i = first_item; i < end_item; i++)
        for (int64_t c = first; c < first + j->members; c++)
            for (int64_t p = 0; p < j->parts; p++) visit(j, i, c, p);
}

#define D f32
#define T float
#define V vf32
#include "ops/norm/cpu/line_moments.h"
#define D f64
#define T double
#define V vf64
#include "ops/norm/cpu/line_moments.h"

#define FOLD_D f32
#include "ops/norm/cpu/channel_sets.h"
#define FOLD_D f64
#include "ops/norm/cpu/channel_sets.h"

#define FOLD_D  f32
#define FOLD_IN f32
#include "ops/norm/cpu/channel_parts.h"
#define FOLD_D  f64
#define FOLD_IN f64
#include "ops/norm/cpu/channel_parts.h"

/* bf16 is computed in f32, and rounded once. Without vectors it takes longer to convert than a tensor does. */
#if CT_ISA_LEVEL > 0
#define HAS_BF16    1
#define bf16_stream bf16_store
#define D           bf16
#define T           uint16_t
#define V           vf32
#include "ops/norm/cpu/line_moments.h"
#define FOLD_D  bf16
#define FOLD_IN f32
#include "ops/norm/cpu/channel_parts.h"
#else
#define HAS_BF16 0
#endif

/* ---- Tasks ---- */

typedef struct channel_code {
    part_visit first, second; /* the two passes over a part; with the channels last, over those of a span of channels */
    void (*settle)(const channel_job *j, int64_t set); /* between them */
    /* NULL, or what is formed of the sums by channel, of [first, end), once their sets are settled. */
    void (*parameters)(const channel_job *j, int64_t first, int64_t end);
} channel_code;

typedef struct channel_tasks {
    const channel_job *job;
    const channel_code *code;
} channel_tasks;

static void set_task(void *ctx, int64_t set, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    each_part(t->job, set, t->code->first);
    t->code->settle(t->job, set);
    if (t->job->batch && t->code->parameters) t->code->parameters(t->job, set, set + 1);
    each_part(t->job, set, t->code->second);
    if (t->job->streams) simd_fence();
}

static void item_task(void *ctx, int64_t item, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    const channel_job *j = t->job;
    for (int64_t p = 0; p < j->parts; p++) t->code->first(j, item, 0, p);
    for (int64_t g = 0; g < j->groups; g++) t->code->settle(j, item * j->groups + g);
    for (int64_t p = j->parts; p-- > 0;) t->code->second(j, item, 0, p);
    if (j->streams) simd_fence();
}

static int64_t spans(const channel_job *j) { return (j->channels + j->span - 1) / j->span; }
static int64_t units(const channel_job *j) { return j->items * j->parts * (j->last ? spans(j) : j->channels); }
static void visit_unit(const channel_job *j, int64_t unit, part_visit visit) {
    if (j->last) {
        const int64_t span = unit % spans(j), part = unit / spans(j);
        visit(j, part / j->parts, span * j->span, part % j->parts);
    } else {
        const int64_t part = unit % j->parts, line = unit / j->parts;
        visit(j, line / j->channels, line % j->channels, part);
    }
}
/* Short lines go several to a task. */
static int64_t units_a_task(const channel_job *j) {
    return ct__max64(ct__grain(PART / 4) / (j->part * (j->last ? j->span : 1)), 1);
}
/* Parts are as long as the order of sums has it, so channels are gone over apart where parts are too few for all threads. */
static void cut_spans(channel_job *j) {
    const int64_t least = ct__grain(SPAN), wanted = least < SPAN ? INT64_MAX : ct__threads();
    while (j->last && j->span > least && units(j) < wanted)
        j->span = ct__max64((j->span / 2 + least - 1) / least * least, least);
}
static void first_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    const int64_t each = units_a_task(t->job), end = ct__min64((chunk + 1) * each, units(t->job));
    for (int64_t u = chunk * each; u < end; u++) visit_unit(t->job, u, t->code->first);
}
/* Each thread from the end of its own: what it read last is still in its cache. */
static void second_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    const int64_t each = units_a_task(t->job), all = units(t->job), tasks = (all + each - 1) / each;
    const int64_t first = ct__mirrored(chunk, tasks) * each;
    for (int64_t u = ct__min64(first + each, all); u-- > first;) visit_unit(t->job, u, t->code->second);
    if (t->job->streams) simd_fence();
}
/* Sets of few parts go several to a task. */
static int64_t sets_of(const channel_job *j) { return (j->batch ? 1 : j->items) * j->groups; }
static int64_t sets_a_task(const channel_job *j) {
    return ct__max64(SETTLED / ct__max64(j->parts * (j->batch ? j->items : j->members), 1), 1);
}
static void settle_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    const int64_t each = sets_a_task(t->job), end = ct__min64((chunk + 1) * each, sets_of(t->job));
    for (int64_t set = chunk * each; set < end; set++) t->code->settle(t->job, set);
    for (int64_t c = chunk * each; t->job->batch && t->code->parameters && c < end; c += PARAMETERS)
        t->code->parameters(t->job, c, ct__min64(c + PARAMETERS, end));
}

static void settle_sets(channel_tasks *t) {
    const int64_t each = sets_a_task(t->job);
    ct__parallel((sets_of(t->job) + each - 1) / each, settle_task, t);
}

/* Whether one task goes over a set twice. */
static bool is_local(const channel_job *j, int64_t bytes_an_element) {
    const int64_t elements = j->last ? j->places * j->channels : (int64_t)j->count;
    /* with the channels last an item is gone over twice by itself, whatever its size: the whole batch would be further away */
    const bool near =
        elements * bytes_an_element <= LOCAL_BYTES && (!j->batch || j->places * bytes_an_element >= LOCAL_LINE);
    return (j->last ? j->items : sets_of(j)) >= LOCAL_SETS && (j->last ? !j->batch : near);
}

/* Where sets are not channels, the gradients of weight and bias come after all of them. */
static void parameters_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const channel_tasks *t = ctx;
    const int64_t first = chunk * PARAMETERS;
    t->code->parameters(t->job, first, ct__min64(first + PARAMETERS, t->job->channels));
}

static void settle_parameters(channel_tasks *t) {
    if (t->code->parameters && !t->job->batch)
        ct__parallel((t->job->channels + PARAMETERS - 1) / PARAMETERS, parameters_task, t);
}

static void run_passes(channel_job *j, const channel_code *code, int64_t bytes_an_element) {
    channel_tasks t = {j, code};
    if (is_local(j, bytes_an_element)) {
        ct__parallel(j->last ? j->items : sets_of(j), j->last ? item_task : set_task, &t);
        settle_parameters(&t);
        return;
    }
    cut_spans(j);
    const int64_t each = units_a_task(j), chunks = (units(j) + each - 1) / each;
    ct__parallel(chunks, first_task, &t);
    settle_sets(&t);
    ct__parallel(chunks, second_task, &t);
    settle_parameters(&t);
}

/* ---- Calls ---- */

static channel_job job_of(const ct_view *x, int64_t groups, double eps, bool last) {
    channel_job j = {
        .items = x->dims[0], .channels = x->dims[last ? 2 : 1], .places = x->dims[last ? 1 : 2], .eps = eps};
    if (j.channels == 0) j.places = 0; /* places without an element can be more than could ever be walked */
    j.last = last, j.batch = groups == 0;
    j.groups = j.batch ? j.channels : groups;
    j.members = j.batch ? 1 : j.channels / groups;
    j.count = (double)j.places * (double)(j.batch ? j.items : j.members);
    j.part = ct__max64(ct__grain(PART) / (last ? ct__max64(j.channels, 1) : 1), 1);
    if (last) j.part = (j.part + ROWS - 1) / ROWS * ROWS;
    j.part = ct__max64(ct__min64(j.part, j.places), 1);
    j.parts = (j.places + j.part - 1) / j.part;
    j.span = ct__max64(j.channels, 1);
    return j;
}

static size_t scratch_of(const channel_job *j) {
    const int64_t rows = j->batch ? 1 : j->items, lines = j->items * j->channels * j->parts;
    return (size_t)lines * 3 * sizeof(double) + (size_t)(rows * j->groups) * 2 * sizeof(double) +
           (size_t)(5 * rows * j->channels) * sizeof(double) + sizeof(channel_job) + 128;
}

static void place_scratch(channel_job *j, void *scratch) {
    const int64_t rows = j->batch ? 1 : j->items;
    const int64_t lines = j->items * j->channels * j->parts;
    j->sums.a = scratch;
    j->sums.b = j->sums.a + lines;
    j->sums.c = j->sums.b + lines;
    j->rest = j->sums.c + lines;
    j->rstd = j->rest + rows * j->groups;
    j->coefficients = j->rstd + rows * j->groups;
}

/* Operands, inputs and then outputs, that are one value a set or a channel: these are of the dtype that is computed in. */
enum {
    OF_NORM = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5,
    OF_RELU = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 6,
    OF_GRAD = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11,
};

static const char *can_parts(const ct_call *call, ct_dtype dtype, int of_sets) {
    if (dtype != CT_F32 && dtype != CT_F64 && !(dtype == CT_BF16 && HAS_BF16))
        return "not f32, f64 or, in vectors, bf16";
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (!view) continue;
        if (view->dtype != (of_sets >> i & 1 ? ct__norm_dtype(dtype) : dtype)) return "mixed dtypes";
        if (!ct__view_is_dense(view)) return "an operand is not dense";
    }
    return NULL;
}

static const char *can_norm(const ct_call *call) { return can_parts(call, call->in[0]->dtype, OF_NORM); }
static const char *can_relu(const ct_call *call) { return can_parts(call, call->in[0]->dtype, OF_RELU); }

static const char *can_gradients(const ct_call *call) {
    const channel_norm_grad_attrs *a = call->attrs;
    if (!a->relu && call->n_out > 3 && call->out[3]) return "a residual without a relu";
    if (a->relu && !call->in[8]) return "y is not given";
    if (a->fixed) return "the statistics are fixed";
    return can_parts(call, call->in[3]->dtype, OF_GRAD);
}

static void *address_of(const ct_view *view) { return view ? ct__address(view, ct_dtype_size(view->dtype)) : NULL; }

/* The passes of a dtype, by whether channels come last. */
#define NORM_CODES(D, IN)                                                                                  \
    {                                                                                                      \
        {D##_first, D##_second, IN##_settle, NULL}, { D##_last_first, D##_last_second, IN##_settle, NULL } \
    }
#define GRAD_CODES(D, IN)                                                                 \
    {                                                                                     \
        {D##_grad_first, D##_grad_second, IN##_grad_settle, IN##_param_grads}, {          \
            D##_last_grad_first, D##_last_grad_second, IN##_grad_settle, IN##_param_grads \
        }                                                                                 \
    }
static const channel_code norm_codes[][2] = {NORM_CODES(f32, f32), NORM_CODES(f64, f64),
#if HAS_BF16
                                             NORM_CODES(bf16, f32)
#endif
};
static const channel_code grad_codes[][2] = {GRAD_CODES(f32, f32), GRAD_CODES(f64, f64),
#if HAS_BF16
                                             GRAD_CODES(bf16, f32)
#endif
};
static const channel_code *norm_code(ct_dtype dtype, bool last) {
    return &norm_codes[dtype == CT_F32 ? 0 : dtype == CT_F64 ? 1 : 2][last];
}
static const channel_code *grad_code(ct_dtype dtype, bool last) {
    return &grad_codes[dtype == CT_F32 ? 0 : dtype == CT_F64 ? 1 : 2][last];
}

static void spread_means(const channel_job *j, ct_dtype dtype) {
    (dtype == CT_F64 ? f64_spread_means : f32_spread_means)(j);
}

/* Whether y goes past the caches. */
static bool streams(const channel_job *j, ct_dtype dtype) {
    const int64_t size = (int64_t)ct_dtype_size(dtype), line = (j->last ? j->channels : j->places) * size;
    /* chunks may be made so small that parts begin in the middle of a vector */
    const bool aligned = j->last ? ct__grain(SPAN) == SPAN : j->parts == 1 || j->part * size % 64 == 0;
    return j->y && aligned && norm_streams(j->y, line, j->items * j->channels * j->places * size);
}

/* Of channel_norm or channel_norm_relu: what the attributes say. */
static channel_job norm_job(const ct_call *call) {
    const bool relu = call->op == &ct__op_channel_norm_relu;
    const channel_norm_attrs *plain = call->attrs;
    const channel_norm_relu_attrs *with = call->attrs;
    channel_job j = relu ? job_of(call->in[0], with->groups, with->eps, with->channels_last)
                         : job_of(call->in[0], plain->groups, plain->eps, plain->channels_last);
    j.relu = relu;
    return j;
}

static size_t norm_scratch(const ct_call *call) {
    const channel_job j = norm_job(call);
    return scratch_of(&j);
}

static bool run_channel_norm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_dtype dtype = call->in[0]->dtype;
    channel_job j = norm_job(call);
    if (j.items * j.groups == 0) return true;
    place_scratch(&j, ct__scratch(call));
    const void **from[] = {&j.x, &j.weight, &j.bias, &j.other};
    for (int i = 0; i < call->n_in; i++) *from[i] = address_of(call->in[i]);
    void **to[] = {&j.y, &j.mean, &j.var};
    for (int i = 0; i < call->n_out; i++) *to[i] = address_of(call->out[i]);
    j.streams = streams(&j, dtype);
    run_passes(&j, norm_code(dtype, j.last), (int64_t)ct_dtype_size(dtype));
    return true;
}

static channel_job grad_job(const ct_call *call) {
    const channel_norm_grad_attrs *a = call->attrs;
    channel_job j = job_of(call->in[3], a->groups, a->eps, a->channels_last);
    j.relu = a->relu;
    return j;
}

/* Of what the first pass reads of an element. */
static int64_t grad_bytes(const ct_call *call) {
    const channel_job j = grad_job(call);
    return (j.relu ? 3 : 2) * (int64_t)ct_dtype_size(call->in[3]->dtype);
}

static size_t norm_grad_scratch(const ct_call *call) {
    const channel_job j = grad_job(call);
    return scratch_of(&j);
}

static bool run_channel_norm_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_dtype dtype = call->in[3]->dtype;
    channel_job j = grad_job(call);
    place_scratch(&j, ct__scratch(call));
    const void **from[] = {&j.g, &j.g_mean, &j.g_var, &j.x, &j.given_mean, &j.given_var, &j.weight, &j.bias, &j.other};
    for (int i = 0; i < call->n_in; i++) *from[i] = address_of(call->in[i]);
    void **to[] = {&j.y, &j.dweight, &j.dbias, &j.passed};
    for (int i = 0; i < call->n_out; i++) *to[i] = address_of(call->out[i]);
    j.passed_first = j.passed != NULL;
    j.streams = streams(&j, dtype);
    spread_means(&j, dtype);
    run_passes(&j, grad_code(dtype, j.last), grad_bytes(call));
    return true;
}

/* ---- As steps of fused calls: lines that are contiguous ---- */

static int64_t norm_line(const ct_call *call) {
    const channel_job j = norm_job(call);
    return j.last ? 0 : call->in[0]->dims[2];
}

/* Where a call of its own would read g and x once, from a cache the second time, two passes over all of them are no gain. */
static int64_t norm_grad_line(const ct_call *call) {
    const channel_job j = grad_job(call);
    const bool second = call->out[0] || call->n_out < 4 || !call->out[3]; /* which makes both */
    return j.last || !second || is_local(&j, grad_bytes(call)) ? 0 : j.places;
}

/* The job lies at the end of the scratch from `begin` on. */
static channel_job *job_in(const ct_call *call) {
    char *scratch = ct__scratch(call);
    return (channel_job *)(void *)(scratch + call->scratch.bytes / 64 * 64 - (sizeof(channel_job) + 63) / 64 * 64);
}

static void norm_begin(const ct_call *call, char *const *ptr) {
    channel_job j = norm_job(call);
    place_scratch(&j, ct__scratch(call));
    j.weight = ptr[1], j.bias = ptr[2];
    j.mean = call->n_out > 1 ? ptr[call->n_in + 1] : NULL;
    j.var = call->n_out > 2 ? ptr[call->n_in + 2] : NULL;
    *job_in(call) = j;
}

static void norm_grad_begin(const ct_call *call, char *const *ptr) {
    channel_job j = grad_job(call);
    place_scratch(&j, ct__scratch(call));
    j.g_mean = ptr[1], j.g_var = ptr[2], j.given_mean = ptr[4], j.given_var = ptr[5], j.weight = ptr[6];
    j.dweight = call->n_out > 1 ? ptr[call->n_in + 1] : NULL;
    j.dbias = call->n_out > 2 ? ptr[call->n_in + 2] : NULL;
    spread_means(&j, call->in[3]->dtype);
    *job_in(call) = j;
}

/* The lines of elements first to first + n - 1. */
static void visit_lines(channel_job *j, int64_t first, int64_t n, part_visit visit) {
    int64_t line = first / j->places, item = line / j->channels, channel = line - item * j->channels;
    j->begin = first;
    for (int64_t left = n; left > 0; left -= j->places) {
        for (int64_t p = 0; p < j->parts; p++) visit(j, item, channel, p);
        if (++channel == j->channels) channel = 0, item++;
    }
}

static void norm_first(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    channel_job j = *job_in(call);
    j.x = ptr[0];
    visit_lines(&j, first, n, norm_code(call->in[0]->dtype, false)->first);
}

static void norm_settle(const ct_call *call, char *const *ptr) {
    (void)ptr;
    settle_sets(&(channel_tasks){.job = job_in(call), .code = norm_code(call->in[0]->dtype, false)});
}

static void norm_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    channel_job j = *job_in(call);
    j.x = ptr[0], j.other = call->n_in > 3 ? ptr[3] : NULL, j.y = ptr[call->n_in];
    visit_lines(&j, first, n, norm_code(call->in[0]->dtype, false)->second);
}

static void norm_grad_first(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    channel_job j = *job_in(call);
    j.g = ptr[0], j.x = ptr[3], j.other = ptr[8];
    visit_lines(&j, first, n, grad_code(call->in[3]->dtype, false)->first);
}

static void norm_grad_settle(const ct_call *call, char *const *ptr) {
    (void)ptr;
    channel_tasks t = {.job = job_in(call), .code = grad_code(call->in[3]->dtype, false)};
    settle_sets(&t);
    settle_parameters(&t);
}

static void norm_grad_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    channel_job j = *job_in(call);
    j.g = ptr[0], j.x = ptr[3], j.other = ptr[8], j.y = ptr[call->n_in];
    j.passed = call->n_out > 3 ? ptr[call->n_in + 3] : NULL;
    visit_lines(&j, first, n, grad_code(call->in[3]->dtype, false)->second);
}

static const ct_cpu_step_more norm_more = {
    .row = norm_line, .begin = norm_begin, .first = norm_first, .settle = norm_settle};
static const ct_cpu_step norm_step = {.part = norm_part, .more = &norm_more, .whole = OF_NORM, .cost = 8};
static const ct_cpu_step norm_relu_step = {.part = norm_part, .more = &norm_more, .whole = OF_RELU, .cost = 10};
static const ct_cpu_step_more norm_grad_more = {
    .row = norm_grad_line, .begin = norm_grad_begin, .first = norm_grad_first, .settle = norm_grad_settle};
static const ct_cpu_step norm_grad_step = {
    .part = norm_grad_part, .more = &norm_grad_more, .whole = OF_GRAD, .cost = 12};

CT_KERNELS(norm_channel_norm) = {
    CT_CANDIDATES_STEP(channel_norm, &norm_step, {"channels", can_norm, norm_scratch, run_channel_norm}),
    CT_CANDIDATES_STEP(channel_norm_relu, &norm_relu_step, {"channels", can_relu, norm_scratch, run_channel_norm}),
    CT_CANDIDATES_STEP(channel_norm_grad, &norm_grad_step,
                       {"channels", can_gradients, norm_grad_scratch, run_channel_norm_grad}),
    {0},
};

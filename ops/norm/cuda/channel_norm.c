/* channel_norm, with or without a sum and relu behind it, and its gradients: how the work is cut, and which device code does it. */
#include "ops/norm/cuda/channel_norm.h"

#include <string.h>

#include "backends/cuda/tune.h"

#include "gen/norm.attrs.h"

enum {
    ENOUGH = 1584,    /* blocks that fill a large device several times; a constant, since bits hang on it */
    LINE_PART = 4096, /* elements of a part of a line, which a warp takes */
    ROWS = 16,        /* with the channels last: rows that a thread takes at least before lines are cut */
    DTYPES = CT_BF16 + 1,
};

extern const unsigned char ct_fatbin_norm_channel_norm[], ct_fatbin_norm_channel_resident[];
static ct_cuda_unit passes_unit = CT_CUDA_UNIT_FROM("norm_channel_norm", ct_fatbin_norm_channel_norm, false);
static ct_cuda_unit resident_unit = CT_CUDA_UNIT_FROM("norm_channel_resident", ct_fatbin_norm_channel_resident, false);

#define OF_DTYPES(unit, name)                                                                  \
    {                                                                                          \
        CT_CUDA_FUNCTION_OF(&unit, name "_f32"), CT_CUDA_FUNCTION_OF(&unit, name "_f64"),      \
            CT_CUDA_FUNCTION_OF(&unit, name "_f16"), CT_CUDA_FUNCTION_OF(&unit, name "_bf16"), \
    }
typedef ct_cuda_function by_dtype[DTYPES];
static by_dtype moments[2] = {OF_DTYPES(passes_unit, "channel_moments_lines"),
                              OF_DTYPES(passes_unit, "channel_moments_columns")};
/* Along lines, along columns, and both with a third tensor. */
static by_dtype normalization[4] = {OF_DTYPES(passes_unit, "channel_normalization_lines"),
                                    OF_DTYPES(passes_unit, "channel_normalization_columns"),
                                    OF_DTYPES(passes_unit, "channel_normalization_with_lines"),
                                    OF_DTYPES(passes_unit, "channel_normalization_with_columns")};
static by_dtype gradient_sums[4] = {OF_DTYPES(passes_unit, "channel_gradient_sums_lines"),
                                    OF_DTYPES(passes_unit, "channel_gradient_sums_columns"),
                                    OF_DTYPES(passes_unit, "channel_gradient_sums_with_lines"),
                                    OF_DTYPES(passes_unit, "channel_gradient_sums_with_columns")};
static by_dtype gradient[4] = {
    OF_DTYPES(passes_unit, "channel_gradient_lines"), OF_DTYPES(passes_unit, "channel_gradient_columns"),
    OF_DTYPES(passes_unit, "channel_gradient_with_lines"), OF_DTYPES(passes_unit, "channel_gradient_with_columns")};
static by_dtype settle[2] = {OF_DTYPES(passes_unit, "channel_settle"),
                             OF_DTYPES(passes_unit, "channel_settle_columns")};
static by_dtype fixed = OF_DTYPES(passes_unit, "channel_fixed");
static by_dtype settle_gradient[2] = {OF_DTYPES(passes_unit, "channel_settle_gradient"),
                                      OF_DTYPES(passes_unit, "channel_settle_gradient_columns")};
static by_dtype resident[2] = {OF_DTYPES(resident_unit, "channel_forward"),
                               OF_DTYPES(resident_unit, "channel_backward")};
static ct_cuda_function begin_rounds = CT_CUDA_FUNCTION_OF(&resident_unit, "channel_begin_rounds");
static ct_cuda_function parameters = CT_CUDA_FUNCTION_OF(&passes_unit, "channel_parameters");

/* ---- Arguments ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t pack_of(ct_dtype dtype) { return 16 / (int64_t)ct_cuda_dtype_size(dtype); }

/* By shapes alone. */
static ct_cuda_channels job_of(const ct_view *x, int64_t groups, double eps, bool last) {
    ct_cuda_channels j;
    memset(&j, 0, sizeof j);
    j.items = x->dims[0], j.channels = x->dims[last ? 2 : 1], j.places = x->dims[last ? 1 : 2];
    j.eps = eps;
    j.last = last, j.batch = groups == 0;
    j.groups = j.batch ? j.channels : groups;
    j.members = j.batch ? 1 : j.channels / groups;
    j.count = (double)j.places * (double)(j.batch ? j.items : j.members);
    j.share = 1 / j.count;
    const int64_t v = pack_of(x->dtype);
    j.packed = (last ? j.channels : j.places) % v == 0;
    if (last) {
        const int64_t columns = j.packed ? j.channels / v : j.channels;
        j.side = 1;
        while (j.side < columns && j.side < 32) j.side *= 2;
        const int64_t tiles = most(ct_cuda_ceil_div(columns, j.side), 1), threads = CT_CHANNEL_THREADS / j.side;
        const int64_t wanted = ENOUGH / most(tiles * j.items, 1);
        j.part = ct_cuda_ceil_div(j.places, most(least(wanted, j.places / (ROWS * threads)), 1));
        j.part = least(j.part, INT32_MAX / most(j.channels * (int64_t)ct_cuda_dtype_size(x->dtype), 1));
    } else {
        j.part = least(j.places, LINE_PART);
    }
    j.part = most(j.part, 1);
    j.parts = ct_cuda_ceil_div(j.places, j.part);
    return j;
}

static int64_t sets_of(const ct_cuda_channels *j) { return (j->batch ? 1 : j->items) * j->groups; }

/* Sums, rest, coefficients. */
static size_t scratch_of(const ct_cuda_channels *j, int sums, int coefficients) {
    const int64_t rows = j->batch ? 1 : j->items;
    return sizeof(double) *
           (size_t)(sums * j->items * j->channels * j->parts + 2 * sets_of(j) + coefficients * rows * j->channels);
}

static void place_scratch(ct_cuda_channels *j, const ct_call *call, int sums) {
    j->sums = (double *)(void *)ct_cuda_scratch(call);
    j->rest = j->sums + sums * j->items * j->channels * j->parts;
    j->coefficients = (char *)(j->rest + 2 * sets_of(j));
}

static char *address_of(const ct_view *view) { return view ? ct_cuda_address(view) : NULL; }
static ct_cuda_vector vector_of(const ct_view *view) {
    return view ? (ct_cuda_vector){ct_cuda_address(view), view->dtype} : (ct_cuda_vector){0};
}

static void check_packs(ct_cuda_channels *j) {
    const uintptr_t all =
        (uintptr_t)j->x | (uintptr_t)j->g | (uintptr_t)j->other | (uintptr_t)j->y | (uintptr_t)j->passed;
    if (all % 16 == 0 || !j->packed) return;
    j->packed = 0;
    if (j->last) /* the parts stay as they are */
        while (j->side < j->channels && j->side < 32) j->side *= 2;
}

/* ---- Launches ---- */

static unsigned grid_of(int64_t blocks) { return (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20); }

static bool pass(const ct_call *call, by_dtype *code, ct_cuda_channels *j, ct_dtype dtype, bool with) {
    const int64_t width = j->packed ? j->side * pack_of(dtype) : j->side;
    const int64_t blocks = j->last ? ct_cuda_ceil_div(j->channels, width) * j->items * j->parts
                                   : ct_cuda_ceil_div(j->items * j->channels * j->parts, CT_CHANNEL_THREADS / 32);
    return ct_cuda_launch(call, &code[j->last + (with ? 2 : 0)][dtype],
                          (ct_cuda_shape){.grid = grid_of(blocks), .block = CT_CHANNEL_THREADS}, j);
}

static bool over_sets(const ct_call *call, ct_cuda_function *code, ct_cuda_channels *j, int64_t sets) {
    return ct_cuda_launch(call, code, (ct_cuda_shape){.grid = grid_of(sets), .block = CT_CHANNEL_SETTLERS}, j);
}

/* Puts parts together: a block to a set, or to a few channels where those lie side by side. */
static bool put_together(const ct_call *call, by_dtype *code, ct_cuda_channels *j, ct_dtype dtype) {
    if (!j->last || !j->batch) return over_sets(call, &code[0][dtype], j, sets_of(j));
    const ct_cuda_shape shape = {.grid = grid_of(ct_cuda_ceil_div(j->channels, CT_CHANNEL_ABREAST)),
                                 .block = CT_CHANNEL_COLUMNS};
    return ct_cuda_launch(call, &code[1][dtype], shape, j);
}

/* ---- Chunks that stay in shared memory ---- */

enum {
    RESIDENT_LEAST = 1 << 20, /* elements: below, launches are the cost, and the cache holds everything */
    RESIDENT_SET = 2048,      /* elements of a set */
    CHUNK_BYTES = 25200,      /* so that CT_CHANNEL_ROOMS blocks of three chunks are on a multiprocessor of Hopper */
    FIXED_BYTES = 4 * 8 * (CT_CHANNEL_THREADS / 32), /* sums of warps */
};

/* How sets are cut into chunks, by shapes alone; false: they are not. */
static bool cut_chunks(ct_cuda_channels *j, ct_dtype dtype, bool backward) {
    const int64_t size = (int64_t)ct_cuda_dtype_size(dtype), warps = CT_CHANNEL_THREADS / 32;
    const int64_t most_elements = CHUNK_BYTES / size / (backward ? 2 : 1) / pack_of(dtype) * pack_of(dtype);
    if (j->last || !j->packed || j->count < RESIDENT_SET) return false;
    if ((double)sets_of(j) * j->count < RESIDENT_LEAST) return false;
    j->lines = j->batch ? j->items : j->members;
    j->line_step = (j->batch ? j->channels : 1) * j->places;
    j->parts = ct_cuda_ceil_div(j->places, most_elements);
    j->part = ct_cuda_ceil_div(ct_cuda_ceil_div(j->places, j->parts), pack_of(dtype)) * pack_of(dtype);
    j->parts = ct_cuda_ceil_div(j->places, j->part);
    /* sets of lines that are much shorter than a chunk are cut evenly */
    const int64_t fit = most(least(most_elements / j->places, j->lines), 1);
    j->chunk_lines = j->parts > 1 ? 1 : ct_cuda_ceil_div(j->lines, ct_cuda_ceil_div(j->lines, fit));
    j->pieces = j->parts > 1 ? j->lines * j->parts : ct_cuda_ceil_div(j->lines, j->chunk_lines);
    j->chunk_packs = j->chunk_lines * j->part / pack_of(dtype);
    j->line_sums = backward && !j->batch ? most(j->chunk_lines, warps) : 0;
    j->elements_at = 2 * ((FIXED_BYTES + 16 * j->line_sums + 4 * j->chunk_lines * (size == 8 ? 8 : 4) + 15) / 16 * 16);
    return true;
}

static size_t resident_scratch(const ct_cuda_channels *job, ct_dtype dtype, bool backward) {
    ct_cuda_channels j = *job;
    if (!cut_chunks(&j, dtype, backward)) return 0;
    return 16 * (size_t)(CT_CHANNEL_PARTIAL * sets_of(&j) * j.pieces + 2) + scratch_of(&j, backward ? 2 : 0, 0);
}

/* Whether the device holds as many blocks as a set has chunks: then *blocks and *bytes of shared memory for each. */
static bool fits_rounds(const ct_call *call, ct_cuda_channels *j, ct_dtype dtype, bool backward, int64_t *blocks,
                        int64_t *bytes) {
    if (!cut_chunks(j, dtype, backward)) return false;
    CUcontext before;
    const ct_cuda_device *d = ct_cuda_enter(call->device.index, &before);
    if (!d) return false;
    ct_cuda_leave(before);
    *bytes = j->elements_at + 3 * j->chunk_packs * 16 * (backward ? 2 : 1);
    const int64_t rooms = least((d->shared_limit + 1024) / (*bytes + 1024), CT_CHANNEL_ROOMS);
    *blocks = least(rooms * d->multiprocessors, sets_of(j) * j->pieces);
    return rooms > 0 && j->pieces <= rooms * d->multiprocessors;
}

static bool run_rounds(const ct_call *call, const ct_cuda_channels *job, ct_dtype dtype, bool backward) {
    ct_cuda_channels j = *job;
    int64_t blocks, bytes;
    if (!fits_rounds(call, &j, dtype, backward, &blocks, &bytes)) return false;
    const int64_t chunks = sets_of(&j) * j.pieces;
    place_scratch(&j, call, backward ? 2 : 0);
    j.partial = (uint64_t *)(void *)(((uintptr_t)j.coefficients + 15) / 16 * 16);
    j.nothing = (uint32_t *)(void *)(j.partial + 2 * CT_CHANNEL_PARTIAL * chunks);
    const ct_cuda_shape shape = {
        .grid = (unsigned)blocks, .block = CT_CHANNEL_THREADS + 64, .shared = (unsigned)bytes, .cooperative = true};
    const ct_cuda_shape begins = {
        .grid = (unsigned)least(ct_cuda_ceil_div(CT_CHANNEL_PARTIAL * chunks, CT_CHANNEL_THREADS), ENOUGH),
        .block = CT_CHANNEL_THREADS};
    if (!ct_cuda_launch(call, &begin_rounds, begins, &j) ||
        !ct_cuda_launch(call, &resident[backward][dtype], shape, &j))
        return false;
    if (!backward || j.batch || (!j.dweight.data && !j.dbias.data)) return true;
    return over_sets(call, &parameters, &j, j.channels);
}

/* ---- In passes ---- */

static bool run_forward_passes(const ct_call *call, ct_cuda_channels *j, ct_dtype dtype) {
    place_scratch(j, call, 2);
    return (j->count == 0 || pass(call, moments, j, dtype, false)) && put_together(call, settle, j, dtype) &&
           (!j->y || j->count == 0 || pass(call, normalization, j, dtype, j->other));
}

static bool run_backward_passes(const ct_call *call, ct_cuda_channels *j, ct_dtype dtype) {
    place_scratch(j, call, 3);
    const bool empty = j->items * j->channels * j->places == 0, apart = !j->batch && (j->dweight.data || j->dbias.data);
    if (!empty && !pass(call, gradient_sums, j, dtype, j->other)) return false;
    if (sets_of(j) && !put_together(call, settle_gradient, j, dtype)) return false;
    if (j->channels && apart && !over_sets(call, &parameters, j, j->channels)) return false;
    if (empty || !j->y) return true;
    if (j->passed) j->g = j->passed, j->relu = 0, j->other = NULL; /* relu has been done */
    return pass(call, gradient, j, dtype, j->other);
}

/* ---- The faster of both ---- */

typedef struct ways {
    const ct_call *call;
    const ct_cuda_channels *job;
    ct_dtype dtype;
    bool backward;
} ways;

static bool attempt(void *context, int candidate) {
    const ways *w = context;
    if (candidate == 0) return run_rounds(w->call, w->job, w->dtype, w->backward);
    ct_cuda_channels j = *w->job;
    return w->backward ? run_backward_passes(w->call, &j, w->dtype) : run_forward_passes(w->call, &j, w->dtype);
}

/* In one reading where that can be, and is faster. */
static bool run(const ct_call *call, ct_cuda_channels *j, ct_dtype dtype, bool backward) {
    check_packs(j);
    ways w = {call, j, dtype, backward};
    ct_cuda_channels cut = *j;
    int64_t blocks, bytes;
    if (!fits_rounds(call, &cut, dtype, backward, &blocks, &bytes)) return attempt(&w, 1);
    const int64_t key[] = {j->items, j->channels, j->places, j->groups,        j->batch,
                           dtype,    backward,    j->relu,   j->other != NULL, j->passed != NULL};
    return attempt(&w, ct_cuda_tune(call, "channels-1", key, sizeof key, 2, attempt, &w));
}

static size_t scratch_for(const ct_cuda_channels *j, ct_dtype dtype, bool backward) {
    const size_t passes = scratch_of(j, backward ? 3 : 2, backward ? 5 : 3),
                 rounds = resident_scratch(j, dtype, backward);
    return passes > rounds ? passes : rounds;
}

/* ---- What is taken ---- */

/* Elements of dtype, of the same layout, and vectors of any floating dtype; all dense. */
static const char *check_view(const ct_view *view, ct_dtype dtype) {
    if (!view) return NULL;
    if ((int)view->dtype >= DTYPES) return "floats only";
    if (view->ndim == 3 && view->dtype != dtype) return "mixed dtypes";
    return ct_cuda_is_dense(view) ? NULL : "a tensor is not dense";
}

static const char *can(const ct_call *call, const ct_view *x, bool last) {
    const char *why = last && x->dims[2] > INT32_MAX / 8 ? "more than 2^28 channels" : NULL;
    for (int i = 0; i < call->n_in && !why; i++) why = check_view(call->in[i], x->dtype);
    for (int i = 0; i < call->n_out && !why; i++) why = check_view(call->out[i], x->dtype);
    return why;
}

/* ---- Forward ---- */

static bool run_forward(const ct_call *call, ct_cuda_channels *j) {
    const ct_dtype dtype = call->in[0]->dtype;
    if (sets_of(j) == 0) return true;
    j->x = address_of(call->in[0]);
    j->weight = vector_of(call->in[1]), j->bias = vector_of(call->in[2]);
    j->y = address_of(call->out[0]);
    if (call->n_out > 1) j->mean = vector_of(call->out[1]);
    if (call->n_out > 2) j->var = vector_of(call->out[2]);
    return run(call, j, dtype, false);
}

#define FORWARD(op)                                                      \
    static const char *op##_can(const ct_call *call) {                   \
        const op##_attrs *a = call->attrs;                               \
        return can(call, call->in[0], a->channels_last);                 \
    }                                                                    \
    static ct_cuda_channels op##_job(const ct_call *call) {              \
        const op##_attrs *a = call->attrs;                               \
        return job_of(call->in[0], a->groups, a->eps, a->channels_last); \
    }                                                                    \
    static size_t op##_scratch(const ct_call *call) {                    \
        const ct_cuda_channels j = op##_job(call);                       \
        return scratch_for(&j, call->in[0]->dtype, false);               \
    }
FORWARD(channel_norm)
FORWARD(channel_norm_relu)

static bool run_norm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_channels j = channel_norm_job(call);
    return run_forward(call, &j);
}

static bool run_relu(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_channels j = channel_norm_relu_job(call);
    j.relu = 1;
    j.other = address_of(call->in[3]);
    return run_forward(call, &j);
}

/* ---- Gradients ---- */

enum { G, G_MEAN, G_VAR, X, MEAN, VAR, WEIGHT, BIAS, Y };

static const char *can_backward(const ct_call *call) {
    const channel_norm_grad_attrs *a = call->attrs;
    return can(call, call->in[X], a->channels_last);
}

static ct_cuda_channels gradient_job(const ct_call *call) {
    const channel_norm_grad_attrs *a = call->attrs;
    return job_of(call->in[X], a->groups, a->eps, a->channels_last);
}

static size_t gradient_scratch(const ct_call *call) {
    const ct_cuda_channels j = gradient_job(call);
    return scratch_for(&j, call->in[X]->dtype, true);
}

static bool run_backward(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const channel_norm_grad_attrs *a = call->attrs;
    const ct_dtype dtype = call->in[X]->dtype;
    ct_cuda_channels j = gradient_job(call);
    ct_view *const *out = call->out;
    j.relu = a->relu, j.fixed = a->fixed;
    j.x = address_of(call->in[X]), j.g = address_of(call->in[G]);
    j.other = a->relu ? address_of(call->in[Y]) : NULL;
    j.g_mean = vector_of(call->in[G_MEAN]), j.g_var = vector_of(call->in[G_VAR]);
    j.mean = vector_of(call->in[MEAN]), j.var = vector_of(call->in[VAR]);
    j.weight = vector_of(call->in[WEIGHT]), j.bias = vector_of(call->in[BIAS]);
    j.y = address_of(out[0]);
    if (call->n_out > 1) j.dweight = vector_of(out[1]);
    if (call->n_out > 2) j.dbias = vector_of(out[2]);
    if (call->n_out > 3) j.passed = address_of(out[3]);
    return run(call, &j, dtype, true);
}

/* ---- By given statistics ---- */

static const char *can_fixed(const ct_call *call) {
    const channel_norm_fixed_attrs *a = call->attrs;
    return can(call, call->in[0], a->channels_last);
}

static ct_cuda_channels fixed_job(const ct_call *call) {
    const channel_norm_fixed_attrs *a = call->attrs;
    return job_of(call->in[0], 0, a->eps, a->channels_last);
}

static size_t fixed_scratch(const ct_call *call) {
    const ct_cuda_channels j = fixed_job(call);
    return scratch_of(&j, 0, 3);
}

static bool run_fixed(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const channel_norm_fixed_attrs *a = call->attrs;
    const ct_dtype dtype = call->in[0]->dtype;
    ct_cuda_channels j = fixed_job(call);
    if (j.items * j.channels * j.places == 0) return true;
    j.x = address_of(call->in[0]), j.y = address_of(call->out[0]), j.other = address_of(call->in[5]);
    j.mean = vector_of(call->in[1]), j.var = vector_of(call->in[2]);
    j.weight = vector_of(call->in[3]), j.bias = vector_of(call->in[4]);
    j.relu = a->relu;
    place_scratch(&j, call, 0);
    check_packs(&j);
    return over_sets(call, &fixed[dtype], &j, ct_cuda_ceil_div(j.channels, CT_CHANNEL_SETTLERS)) &&
           pass(call, normalization, &j, dtype, j.other);
}

/* ---- Running statistics ---- */

static const char *can_move_averages(const ct_call *call) {
    if (call->out[0]) return "its result is asked for";
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && ((int)call->in[i]->dtype >= DTYPES || !ct_cuda_is_dense(call->in[i])))
            return "floats only, that lie side by side";
    return NULL;
}

static bool run_averages(const ct_call *call, ct_stream *stream) {
    (void)stream;
    static ct_cuda_function code = CT_CUDA_FUNCTION_OF(&passes_unit, "channel_running");
    const running_statistics_attrs *attrs = call->attrs;
    ct_cuda_running a;
    memset(&a, 0, sizeof a);
    for (int i = 0; i < 2; i++) a.running[i] = vector_of(call->in[i]), a.batch[i] = vector_of(call->in[2 + i]);
    a.channels = call->in[2]->dims[0];
    a.momentum = attrs->momentum, a.unbias = attrs->unbias;
    if (a.channels == 0) return true;
    const int64_t blocks = least(ct_cuda_ceil_div(a.channels, CT_CHANNEL_SETTLERS), ENOUGH);
    return ct_cuda_launch(call, &code, (ct_cuda_shape){.grid = (unsigned)blocks, .block = CT_CHANNEL_SETTLERS}, &a);
}

CT_CUDA_KERNELS(norm_channel_norm) = {
    CT_CANDIDATES(channel_norm, {"channels", channel_norm_can, channel_norm_scratch, run_norm}),
    CT_CANDIDATES(channel_norm_relu, {"channels", channel_norm_relu_can, channel_norm_relu_scratch, run_relu}),
    CT_CANDIDATES(channel_norm_grad, {"channels", can_backward, gradient_scratch, run_backward}),
    CT_CANDIDATES(channel_norm_fixed, {"channels", can_fixed, fixed_scratch, run_fixed}),
    CT_CANDIDATES(running_statistics, {"running", can_move_averages, NULL, run_averages}),
    {0},
};

/* flat_index: a number for several. slice_put: a copy, and a copy into it. */
#include <stdatomic.h>

#include "backends/cpu/copy.h"
#include "ops/index/cpu/walk.h"

#include "gen/index.attrs.h"

typedef struct job {
    const ct_call *call;
    int64_t count, chunk;
    _Atomic bool failed;
} job;

static int64_t place_of(const ct_view *view, int64_t i) {
    int64_t at = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        at += i % view->dims[d] * view->strides[d];
        i /= view->dims[d];
    }
    return at;
}

static void flat_chunk(void *context, int64_t chunk, int worker) {
    job *j = context;
    const ct_call *call = j->call;
    const ct_dims *sizes = &((const flat_index_attrs *)call->attrs)->sizes;
    int64_t *out = CT_AT(int64_t, call->out[0]);
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->count);
    for (int64_t i = chunk * j->chunk; i < end; i++) {
        int64_t flat = 0;
        for (int k = 0; k < call->n_in; k++) {
            const ct_view *index = call->in[k];
            const int64_t v = index_value(index, ct__address(index, ct_dtype_size(index->dtype)), place_of(index, i));
            if ((uint64_t)v >= (uint64_t)sizes->d[k]) {
                if (!atomic_exchange(&j->failed, true)) ct__wrong_index(call, k, i, v, sizes->d[k]);
                return;
            }
            flat = flat * sizes->d[k] + v;
        }
        out[place_of(call->out[0], i)] = flat;
    }
}

static bool run_flat(const ct_call *call, ct_stream *stream) {
    job j = {.call = call, .count = 1, .chunk = ct__grain(16 << 10)};
    (void)stream;
    for (int d = 0; d < call->out[0]->ndim; d++) j.count *= call->out[0]->dims[d];
    ct__parallel((j.count + j.chunk - 1) / j.chunk, flat_chunk, &j);
    return !atomic_load(&j.failed);
}

static bool run_slice(const ct_call *call, ct_stream *stream) {
    const slice_put_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *src = call->in[1];
    ct_view part = *call->out[0];
    const int axis = (int)(at->axis < 0 ? at->axis + x->ndim : at->axis);
    (void)stream;
    ct__copy_view(&part, x);
    part.offset += at->start * part.strides[axis];
    part.strides[axis] *= at->step;
    part.dims[axis] = src->dims[axis];
    ct__copy_view(&part, src);
    return true;
}

CT_KERNELS(index_put) = {
    CT_CANDIDATES(flat_index, {"flat_index", NULL, NULL, run_flat}),
    CT_CANDIDATES(slice_put, {"slice_put_copy", NULL, NULL, run_slice}),
    {0},
};

/* cat: each tensor is copied to its place. */
#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"

#include "gen/join.attrs.h"

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const int64_t wanted = ((const cat_attrs *)call->attrs)->axis;
    ct_view part = *call->out[0];
    const int axis = (int)(wanted < 0 ? wanted + part.ndim : wanted);
    for (int k = 0; k < call->n_in; k++) {
        const int64_t length = call->in[k]->dims[axis];
        part.dims[axis] = length;
        ct__copy_view(&part, call->in[k]);
        part.offset += length * part.strides[axis];
    }
    return true;
}

CT_KERNELS(join_cat) = {
    CT_CANDIDATES(cat, {"cat_copy", NULL, NULL, run}),
    {0},
};

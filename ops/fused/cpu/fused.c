/* The fused kernel of one ISA level: what it needs of the level are its conversions; its steps bring their own functions. */
#include "backends/cpu/kernel.h"
#include "ops/fused/cpu/once/tiles.h"

#include "gen/fused.attrs.h"

extern const ct_elementwise_isa CT_ISA_FN(ct__elementwise_isa);

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct__tiles_run(call, &CT_ISA_FN(ct__elementwise_isa));
}

CT_KERNELS(fused_fused) = {
    CT_CANDIDATES(fused, {"tiles", ct__tiles_can, ct__tiles_scratch, run}),
    {0},
};

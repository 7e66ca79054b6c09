/* A fused call on the CPU runs tile by tile: all steps for a few thousand elements whose intermediate values lie in buffers that stay in the
 * first-level caches, then the next tile. What a tile does is planned once (plan.c), from what the steps are and how the operands lie, and
 * kept in the room that the call has for it; tiles.c does it.
 *
 * Steps such as a batch norm need all of their input before the first of their results. Then all tiles are gone over twice: first by these
 * steps, which sum, and by those that make what they sum; then by them again, by those that wait for them, and by those whose values were
 * in no memory in between.
 *
 * A value comes in two forms: raw, as its dtype has it in memory, and of half types also wide, as f32, which the inner functions of
 * elementwise ops take. The wide form of what a step makes is rounded to the half type, so the bits are those of the steps one by one. */
#ifndef COTANGENT_OPS_FUSED_TILES_H
#define COTANGENT_OPS_FUSED_TILES_H

#include <cotangent/fused.h>

#include "backends/cpu/step.h"

typedef enum { TILE_NOWHERE, TILE_BUFFER, TILE_PLACE, TILE_WHOLE, TILE_CELL } tile_where;

/* An operand of a tile: in a buffer of the worker (at: bytes); in place, its elements of the tile or all of it (at: the view of the call,
 * inputs first); or a cell that all workers share (at: bytes): one value over a vector, or a few numbers. */
typedef struct tile_ref {
    int32_t at;
    uint8_t where, size; /* size: of an element */
} tile_ref;

typedef enum { TILE_MADE, TILE_DENSE, TILE_STRIDED, TILE_SPLAT, TILE_SMALL } tile_source;

typedef struct tile_value {
    tile_ref raw, wide, cell;    /* cell: of TILE_SPLAT in the form that inner functions take, and of TILE_SMALL */
    int16_t last_raw, last_wide; /* the last step that takes that form; -1: none */
    uint8_t source, ndim;
    bool half, streamed, strided; /* the last two are about where it goes to */
    bool kept;                    /* in scratch, from kept_at on */
    size_t kept_at;
    /* of TILE_STRIDED, and of a result that is strided: dimensions that cannot be joined, and their strides */
    int64_t dims[CT_MAX_DIMS], strides[CT_MAX_DIMS];
} tile_value;

typedef struct tile_step {
    const ct_cpu_step *how;
    ct_elementwise_fn fn;
    int64_t step[CT_ELEMENTWISE_INPUTS + 1]; /* as fn takes them: the output first */
    tile_ref operands[CT_STEP_OPERANDS];     /* inputs, then outputs, in the form that it takes; */
    tile_ref raw[CT_STEP_OPERANDS];          /* those that are converted or moved: raw */
    uint16_t load, widen;                    /* inputs that are gathered, and made wide, before it; a bit each */
    uint16_t store;                          /* outputs that go on from a buffer to their place */
    bool narrow, again;                      /* its output is rounded to a half type; and is wanted as f32 again */
} tile_step;

/* Bytes that lie on stacks, of a worker and of what workers share; what is larger is scratch. */
enum { TILE_STACK = 48 * 1024, TILE_SHARED_STACK = 4096 };
enum { TILE_AHEAD = 16 };

typedef struct tile_plan {
    bool ready;
    bool streams; /* some result goes past the caches */
    bool spreads; /* some buffers hold one value in all elements */
    bool begins;  /* some steps make small outputs, */
    bool ends;    /* or whole ones */
    int n_first;  /* steps up to the last that goes over its inputs twice; 0: none does */
    uint64_t early,
        late; /* steps of the first pass over all tiles and of the second, a bit each; all are late where there is one pass */
    int n_kept; /* values that lie in scratch between the two; as places they come behind the views of the call */
    size_t kept_bytes;
    int n_slots, n_ahead;
    struct {
        int16_t view;    /* of the call */
        uint8_t size;    /* of an element */
    } ahead[TILE_AHEAD]; /* inputs that are prefetched for the next tile */
    int64_t tile, chunk; /* elements */
    size_t slot_bytes, worker_bytes;
    size_t cell_bytes, step_bytes,
        shared_bytes; /* of what workers share: cells, then scratch of steps, then addresses */
    tile_value *values;
    tile_step *steps;
} tile_plan;

_Static_assert(sizeof(tile_plan) <= CT_FUSED_PREPARED, "the plan has its room");
_Static_assert(sizeof(tile_value) <= CT_FUSED_PREPARED, "a value has its room");
_Static_assert(sizeof(tile_step) <= CT_FUSED_PREPARED, "a step has its room");

/* The plan of a call, made where there is none yet. */
const tile_plan *ct__tiles_plan(const ct_call *call);

const char *ct__tiles_can(const ct_call *call);
size_t ct__tiles_scratch(const ct_call *call);
bool ct__tiles_run(const ct_call *call, const ct_elementwise_isa *isa);

/* Bytes of a step's own scratch. */
static inline size_t ct__tiles_step_scratch(const ct_call *call) {
    return call->kernel->scratch ? (call->kernel->scratch(call) + 63) & ~(size_t)63 : 0;
}
static inline const ct_cpu_step_more *ct__tiles_more(const ct_cpu_step *how) {
    static const ct_cpu_step_more nothing = {0};
    return how->more ? how->more : &nothing;
}
static inline bool ct__tiles_is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }
static inline const ct_view *ct__tiles_operand(const ct_call *call, int i) {
    return i < call->n_in ? call->in[i] : call->out[i - call->n_in];
}

#endif

/* The loops of pooling in f32 and f64, for one ISA level. */
#include "ops/pool/cpu/lines/isa.h"

#include <math.h>
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/simd/weave.h"
#include "ops/index/cpu/half_rows.h"
#include "ops/reduce/cpu/elements.h"

typedef int32_t f32_code __attribute__((may_alias));
typedef int64_t f64_code __attribute__((may_alias));

#define LINE_D        f32
#define LINE_FLOATS   vf32
#define LINE_INTEGERS vi32
#define LINE_MASKS    mf32
#include "ops/pool/cpu/lines/line_loops.h"

#define LINE_D        f64
#define LINE_FLOATS   vf64
#define LINE_INTEGERS vi64
#define LINE_MASKS    mf64
#include "ops/pool/cpu/lines/line_loops.h"

/* clang-format off */
#define LINES(D) {sizeof(D##_element),                                                                                  \
                  D##_load_line, D##_store_line, D##_fill_line, D##_load_codes, D##_store_codes, D##_fill_codes,        \
                  D##_max_line, D##_across_line, D##_has_nan, D##_pick_line, D##_sum_line,                              \
                  D##_deinterleave, D##_interleave}
#define PAIRS(D) {D##_max_row, D##_max_pixels, D##_mean_pairs, D##_spread_pairs, D##_pick_pairs}
/* clang-format on */
const pool_isa ct__pool_isa = {.lines = {LINES(f32), LINES(f64)},
                               .pairs = {PAIRS(f32), PAIRS(f64)},
                               .lanes = VF32_LANES,
                               .stream_worth = ct__stream_worth,
                               .stream = ct__stream_run,
                               .stream_end = ct__stream_end};

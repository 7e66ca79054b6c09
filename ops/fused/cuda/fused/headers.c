/* What the texts of fused kernels include: files of the repository, which the module carries as text, and what stands for the toolkit's. */
#include <pthread.h>
#include <stdio.h>

#include "ops/fused/cuda/fused/text.h"

#define TEXT(name) extern const char ct_text_##name[]
TEXT(alone);
TEXT(words);
TEXT(convert);
TEXT(thread);
TEXT(view);
TEXT(philox);
TEXT(arguments);
TEXT(fused);
TEXT(dropout);
TEXT(rows);
TEXT(row);
TEXT(row_division);
TEXT(lanes);
TEXT(number);
TEXT(row_norm);
TEXT(row_norm_arguments);

/* Numbers of dtypes, which templates are chosen by. */
static char dtypes[1024];

static const ct_nvrtc_header headers[] = {
    {"stdint.h", ct_text_alone},
    {"float.h", ct_text_alone},
    {"cuda_fp16.h", ct_text_alone},
    {"cuda_bf16.h", ct_text_alone},
    {"cotangent.h", dtypes},
    {"backends/cuda/words.cuh", ct_text_words},
    {"backends/cuda/convert.cuh", ct_text_convert},
    {"backends/cuda/thread.cuh", ct_text_thread},
    {"backends/cuda/view.h", ct_text_view},
    {"ops/random/cuda/philox.cuh", ct_text_philox},
    {"ops/fused/cuda/fused.h", ct_text_arguments},
    {"ops/fused/cuda/fused.cuh", ct_text_fused},
    {"ops/fused/cuda/dropout.cuh", ct_text_dropout},
    {"ops/fused/cuda/rows.cuh", ct_text_rows},
    {"backends/cuda/row.cuh", ct_text_row},
    {"backends/cuda/row.h", ct_text_row_division},
    {"backends/cuda/lanes.cuh", ct_text_lanes},
    {"backends/cuda/number.cuh", ct_text_number},
    {"ops/norm/cuda/row_norm.cuh", ct_text_row_norm},
    {"ops/norm/cuda/row_norm.h", ct_text_row_norm_arguments},
};

static void write_dtypes(void) {
    static const char *const names[CT_DTYPE_COUNT] = {
        [CT_F32] = "F32", [CT_F64] = "F64",       [CT_F16] = "F16",       [CT_BF16] = "BF16",
        [CT_I8] = "I8",   [CT_I16] = "I16",       [CT_I32] = "I32",       [CT_I64] = "I64",
        [CT_U8] = "U8",   [CT_BOOL] = "BOOL",     [CT_U16] = "U16",       [CT_U32] = "U32",
        [CT_U64] = "U64", [CT_F8E4M3] = "F8E4M3", [CT_F8E5M2] = "F8E5M2", [CT_COMPLEX64] = "COMPLEX64"};
    size_t used = (size_t)snprintf(dtypes, sizeof dtypes, "#pragma once\nenum {\n");
    for (int i = 0; i < CT_DTYPE_COUNT; i++)
        used += (size_t)snprintf(dtypes + used, sizeof dtypes - used, "    CT_%s = %d,\n", names[i], i);
    snprintf(dtypes + used, sizeof dtypes - used, "};\n");
}

const ct_nvrtc_header *ct_fused_headers(int *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_dtypes);
    *n = (int)(sizeof headers / sizeof *headers);
    return headers;
}

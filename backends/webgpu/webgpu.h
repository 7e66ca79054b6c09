/* What the files of the WebGPU module share: how the host side of a kernel describes one dispatch.
 *
 * A kernel lies in two files: ops/NAME/webgpu/FILE.wgsl has the device code, ops/NAME/webgpu/FILE.c the host side, with the table of
 * candidates (backends/kernel_list.h). The text in FILE.wgsl is never compiled as it is: shader.c writes the bindings, the functions that
 * load and store elements, constants and an entry point around it, once for every combination of dtypes that is met.
 *
 * What a text finds, for each operand that the host names x:
 *
 *   x_t                  what an element is computed in: f32 (f32, f16, bf16), i32 (i32, i16, i8, u8, bool), ct_i64 (i64; a vec2<u32>, low
 *                        word first)
 *   x_load(i) -> x_t     element i from where the view begins, in elements; i is u32, and strides below zero wrap as they should
 *   x_store(i, v)        of operands that are written. Of elements narrower than a word it keeps the neighbours, by two atomics
 *   x_load4(i) -> vec4<x_t>, x_store4(i, v)   of CT_WGPU_QUADS: elements i to i + 3
 *   x_word(w), x_put(w, bits)                 of CT_WGPU_WORDS: word w from where the view begins, which lies on a word
 *   x_unpack(word, k), x_bits(v)              element k of a word; the bits of an element as they are stored
 *   x_pack               const u32: elements in a word: 1, 2 or 4 (of i64: 1, and the last four are not there)
 *   x_given              const bool: false where the host gave NULL; x_load is then 0
 *
 * and p, the uniform that is a `struct Params` of the text (scalars, and vec4 and arrays of vec4 at multiples of 16 bytes; it need not
 * have one), which the host gives as a C struct of the same members; the constants that the host gives, as const u32; THREADS,
 * invocations of a workgroup; and every function, constant or alias ct_... of backends/webgpu/lib/ that it names, with those that these name. T
 * and the words of elementwise lines on it (ct_add, ct_max, ...) are those of the launch's `words`.
 *
 * The function that the host names is called as `fn name(group: u32, local: u32, groups: u32)`. A shader holds what of the unit that
 * function needs: declarations begin at the beginning of a line, and end with it, or with a line that is a brace alone. */
#ifndef COTANGENT_BACKENDS_WEBGPU_H
#define COTANGENT_BACKENDS_WEBGPU_H

#include <stdatomic.h>
#include <string.h>

#include "backends/kernel_list.h"

enum {
    CT_WGPU_ALIGNMENT = 256,
    CT_WGPU_OPERANDS = 16,
    CT_WGPU_CONSTANTS = 16,
    CT_WGPU_PARAMS = 640, /* bytes, without the head */
    CT_WGPU_WHATS = 4,
    CT_WGPU_DIMS = 8,
};

extern const ct_host *ct_wgpu_host;

/* What a device can; every kernel gets by with 256 invocations and 16 KiB. */
typedef struct ct_wgpu_limits {
    uint64_t binding, buffer;               /* bytes */
    uint32_t bindings;                      /* storage buffers of a shader */
    uint32_t invocations, shared, groups;   /* of a workgroup, bytes of a workgroup, workgroups in one direction */
    uint32_t subgroup_least, subgroup_most; /* 0: no subgroups */
    bool f16;                               /* the type in shaders */
    bool software; /* a driver for the CPU, which takes longer to compile than to run: loops stay loops */
} ct_wgpu_limits;
const ct_wgpu_limits *ct_wgpu_limits_of(const ct_call *call);

/* The device code of one .wgsl file: CT_WGPU_UNIT(reduce_sum) is that of ops/reduce/webgpu/sum.wgsl. */
typedef struct ct_wgpu_unit {
    const char *name, *text;
} ct_wgpu_unit;
#define CT_WGPU_UNIT(name)              \
    extern const char ct_wgsl_##name[]; \
    static const ct_wgpu_unit unit = {#name, ct_wgsl_##name}

/* How an operand is used. */
enum {
    CT_WGPU_WRITTEN = 1,
    CT_WGPU_QUADS =
        2, /* x_load4 and x_store4 are used as well: the view begins at a multiple of four elements (ct_wgpu_fits).
              x_load4(i) is x_of_words(x_load_words(i)), for texts that load early and unpack late */
    CT_WGPU_WORDS = 4, /* x_word and x_put, and no x_store: the view begins on a word */
    CT_WGPU_QUADS_ONLY =
        8, /* with QUADS: never x_store; the binding may then be of vec4<u32>, or of vec2<u32> for elements of two bytes */
};

typedef struct ct_wgpu_operand {
    const char *name;          /* of the text, the same for every launch of one function */
    void *buffer;              /* NULL: not given */
    uint64_t begin, low, high; /* bytes: where the view begins; of all that it may touch, first and end */
    uint8_t dtype, mode;
} ct_wgpu_operand;

/* Which words of elementwise lines (ct_add, ...) the text may use, and what T is. */
typedef enum ct_wgpu_words { CT_WGPU_NO_WORDS, CT_WGPU_F32, CT_WGPU_I32, CT_WGPU_I64, CT_WGPU_BOOL } ct_wgpu_words;

typedef struct ct_wgpu_launch {
    const ct_wgpu_unit *unit;
    const char *function; /* of the text */
    uint32_t threads;
    ct_wgpu_words words;
    int n, n_constants;
    ct_wgpu_operand operands[CT_WGPU_OPERANDS];
    struct {
        const char *name;
        uint32_t value;
    } constants[CT_WGPU_CONSTANTS];
    const char *whats[CT_WGPU_WHATS]; /* texts for ct_wrong_value; they live as long as the module */
    const char *more;                 /* text of its own beside the unit's (a formula), by its address; NULL: none */
} ct_wgpu_launch;

static inline ct_wgpu_launch ct_wgpu_begin(const ct_wgpu_unit *unit, const char *function, uint32_t threads) {
    ct_wgpu_launch l;
    l.unit = unit, l.function = function, l.threads = threads, l.words = CT_WGPU_NO_WORDS, l.n = l.n_constants = 0,
    l.more = NULL;
    memset(l.whats, 0, sizeof l.whats);
    return l;
}
/* The next operand; view NULL: not given. mode is 0 or CT_WGPU_ bits. */
void ct_wgpu_operand_of(ct_wgpu_launch *launch, const char *name, const ct_view *view, unsigned mode);
static inline void ct_wgpu_in(ct_wgpu_launch *launch, const char *name, const ct_view *view) {
    ct_wgpu_operand_of(launch, name, view, 0);
}
static inline void ct_wgpu_out(ct_wgpu_launch *launch, const char *name, const ct_view *view) {
    ct_wgpu_operand_of(launch, name, view, CT_WGPU_WRITTEN);
}
/* A part of the call's scratch as elements of dtype; offset is a multiple of 16. */
void ct_wgpu_scratch(ct_wgpu_launch *launch, const char *name, const ct_call *call, ct_dtype dtype, size_t offset,
                     size_t bytes, unsigned mode);
static inline void ct_wgpu_constant(ct_wgpu_launch *launch, const char *name, uint32_t value) {
    launch->constants[launch->n_constants].name = name;
    launch->constants[launch->n_constants++].value = value;
}

/* Enqueues it; params (may be NULL) is a C struct like the text's Params. Nothing happens for groups == 0. */
bool ct_wgpu_enqueue(const ct_call *call, const ct_wgpu_launch *launch, int64_t groups, const void *params,
                     size_t params_bytes);

/* ---- Views ---- */

size_t ct_wgpu_dtype_size(ct_dtype dtype);
int64_t ct_wgpu_count(const ct_view *view);
bool ct_wgpu_is_dense(const ct_view *view);
/* Whether it begins at a multiple of n elements (4: for quads; elements in a word: for words). */
bool ct_wgpu_fits(const ct_view *view, int64_t n);
static inline int64_t ct_wgpu_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Groups of `threads` for n items, each taken by one invocation, that step by all of them: enough to keep a device busy. */
int64_t ct_wgpu_groups(int64_t n, uint32_t threads);
/* NULL, or why webgpu does not take a call: an operand of f64, or with 2^31 elements and more. For `can`. */
const char *ct_wgpu_refuses(const ct_call *call);

/* The common loop nest of up to 7 views of the same sizes: sizes of 1 are gone, neighbours that all walk as one are one. In Params:
 * `total: u32, rank: u32, ct_a: u32, ct_b: u32, dims: array<vec4<u32>, 2>, strides: array<array<vec4<u32>, 2>, N>`. */
typedef struct ct_wgpu_nest {
    uint32_t total, rank, pad[2];
    uint32_t dims[CT_WGPU_DIMS];
    uint32_t strides[7][CT_WGPU_DIMS];
} ct_wgpu_nest;
void ct_wgpu_nest_of(ct_wgpu_nest *nest, const ct_view *const *views, int n);

#define CT_WGPU_KERNELS(file)                              \
    extern const ct_kernel_row ct_webgpu_kernels_##file[]; \
    const ct_kernel_row ct_webgpu_kernels_##file[]

#endif

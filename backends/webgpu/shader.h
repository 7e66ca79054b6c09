/* The text of a shader: bindings, accessors and entry point around the text of a unit. */
#ifndef COTANGENT_BACKENDS_WEBGPU_SHADER_H
#define COTANGENT_BACKENDS_WEBGPU_SHADER_H

#include "backends/webgpu/device.h"

/* library.c: text that grows. */
typedef struct ct_wgpu_text {
    char *s;
    size_t n, room;
    bool failed;
} ct_wgpu_text;
void ct_wgpu_put(ct_wgpu_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ct_wgpu_put_bytes(ct_wgpu_text *t, const char *s, size_t n);
/* A text in which the words of elementwise lines are those on that type, whatever the launch's are. */
void ct_wgpu_put_on(ct_wgpu_text *t, const char *s, size_t n, ct_wgpu_words words);
/* Appends the declarations of a unit (more: its text beside that; may be NULL) and of the library that the text names. */
void ct_wgpu_link(ct_wgpu_text *t, const char *unit, const char *more, ct_wgpu_words words);
bool ct_wgpu_library_start(void);

/* How the words of a range are declared. */
enum { CT_WGPU_PLAIN, CT_WGPU_QUAD, CT_WGPU_PAIR, CT_WGPU_ATOMIC }; /* words, four, two, atomic ones */

/* A range of a buffer that operands lie in: one binding, or several next to each other where it is longer than a binding may be. */
typedef struct ct_wgpu_range {
    const ct_wgpu_buffer *buffer;
    uint64_t low, high; /* bytes; low is a multiple of CT_WGPU_ALIGNMENT */
    uint8_t first, n;   /* bindings */
    uint8_t kind;
} ct_wgpu_range;

/* Which operand lies where. */
typedef struct ct_wgpu_plan {
    int n_ranges, n_slots;
    ct_wgpu_range ranges[CT_WGPU_SLOTS];
    uint8_t of[CT_WGPU_OPERANDS];    /* range of an operand; 255: not given */
    uint32_t base[CT_WGPU_OPERANDS]; /* in elements from where the range begins */
    uint32_t window;                 /* log2 of the words in one binding of a long range */
} ct_wgpu_plan;

/* How an element is coded: fn NAME_unpack(w: u32, k: u32), element k of a word, and fn NAME_bits(v) -> u32, what it is stored as; nothing for
 * what takes two words. */
void ct_wgpu_put_coding(ct_wgpu_text *t, const char *name, ct_dtype dtype);
const char *ct_wgpu_type_of(ct_dtype dtype); /* what it is computed in, or its bits */

/* The text, to be freed; NULL: no memory. *notes: it uses the error word, which is then bound behind the others. */
char *ct_wgpu_shader(const ct_wgpu_launch *launch, const ct_wgpu_plan *plan, bool lasting, bool *notes);

/* pipeline.c: a pipeline that will have that text; NULL after an error. */
ct_wgpu_pipeline *ct_wgpu_pipeline_of(ct_wgpu_device *device, const ct_wgpu_launch *launch, const ct_wgpu_plan *plan,
                                      bool lasting, const char *op);

#endif

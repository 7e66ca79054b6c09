/* How elementwise ops run on the CPU: the driver (elementwise.c) walks strided views and calls inner functions over
 * contiguous elements, which mkops writes from the lines in ops/elementwise and which are compiled once per ISA. */
#ifndef COTANGENT_BACKENDS_CPU_ELEMENTWISE_H
#define COTANGENT_BACKENDS_CPU_ELEMENTWISE_H

#include <cotangent/backend.h>

enum {
    CT_ELEMENTWISE_INPUTS = 5, /* at most */
    CT_ELEMENTWISE_SPLAT = 64, /* bytes of a repeated value: one vector of the widest ISA */
};

/* ptr[0] is the output, then the inputs; n contiguous elements. step is 1, or 0 for an input of which ptr addresses one
 * value repeated over CT_ELEMENTWISE_SPLAT bytes. Output and inputs may be the same memory, element by element. */
typedef void (*ct_elementwise_fn)(int64_t n, char *const *ptr, const int64_t *step, const void *attrs);

/* What the driver needs of the ISA beside the inner functions. */
typedef struct ct_elementwise_isa {
    void (*load_f16)(float *to, const uint16_t *from, int64_t n);
    void (*store_f16)(uint16_t *to, const float *from, int64_t n);
    void (*load_bf16)(float *to, const uint16_t *from, int64_t n);
    void (*store_bf16)(uint16_t *to, const float *from, int64_t n);
    void (*stream)(char *to, const char *from, int64_t bytes); /* past the caches; `to` is aligned to 64 bytes */
    void (*fence)(void);                                       /* makes streamed bytes visible to other threads */
} ct_elementwise_isa;

/* One op. An f16 or bf16 function gets f32 elements: the driver converts. */
typedef struct ct_elementwise {
    ct_elementwise_fn fn[CT_BOOL + 1]; /* by the dtype of input `typed` */
    const ct_elementwise_isa *isa;
    int n_in;
    int typed;      /* the first input that is not a mask */
    unsigned masks; /* inputs that are bool whatever the dtype, a bit each */
    bool to_bool;   /* the result is bool */
    bool plain;     /* on floats too every step has to be 1 */
    int cost;       /* of an element, in simple instructions */
} ct_elementwise;

bool ct__elementwise_run(const ct_call *call, const ct_elementwise *op);

#endif

/* The table of layers, which the build writes from cotangent/nn.h, and how it is asked. */
#ifndef COTANGENT_NN_LAYER_TABLE_H
#define COTANGENT_NN_LAYER_TABLE_H

#include <cotangent/nn.h>
#include <cotangent/op.h>

typedef struct ct__layer {
    ct_layer_info info;
    const ct_attr *params, *options; /* by place and by name; each list ended by an unnamed one */
    uint64_t takes;                  /* which of the options it takes, a bit each: the struct serves other layers too */
    uint32_t params_size, options_size; /* bytes of the structs that the offsets of the lists are in */
    ct_module *(*build)(const void *params, const void *options);
} ct__layer;

extern const ct__layer ct__layers[];
extern const int ct__layer_count;

#endif

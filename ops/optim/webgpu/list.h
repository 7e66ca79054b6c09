/* Lists of items for the device code in list.wgsl: which items go over in one dispatch, and their table. */
#ifndef COTANGENT_OPS_OPTIM_WEBGPU_LIST_H
#define COTANGENT_OPS_OPTIM_WEBGPU_LIST_H

#include "backends/webgpu/webgpu.h"
#include "ops/optim/optim.h"

/* As in list.wgsl. */
typedef enum optim_kind {
    OPTIM_SGD,
    OPTIM_ADAM,
    OPTIM_RMSPROP,
    OPTIM_ADAGRAD,
    OPTIM_ADADELTA,
    OPTIM_LION,
    OPTIM_LAMB,
    OPTIM_LARS,
    OPTIM_AVERAGE,
    OPTIM_CLIP,
    OPTIM_UNSCALE,
    OPTIM_NORM_2,
    OPTIM_NORM_MOST,
    OPTIM_NORM_POWERS,
} optim_kind;

enum { OPTIM_NUMBERS_BYTES = 256 }; /* of scratch, before the sums */
enum { OPTIM_SUM_BYTES = 16 };

/* A call: where its list begins, and what its items are. */
typedef struct optim_list {
    const ct_call *call;
    optim_kind kind;
    int first, width, items;
    bool master, nesterov, centered, late;
    bool scratch;         /* there is some: numbers, and after them sums */
    int sums;             /* by chunk: 0, 1, or 2 for the two lengths of an item */
    const ct_view *rate;  /* what steps without a clock read, or NULL */
    float number;         /* of the attributes */
    uint32_t chunk;       /* elements */
    const char *function; /* of list.wgsl */
} optim_list;

optim_list ct_wgpu_optim_list(const ct_call *call, optim_kind kind, int first, int width);
/* Of all items, one for each chunk. */
int64_t ct_wgpu_optim_chunks(const optim_list *list);
size_t ct_wgpu_optim_scratch(const optim_list *list);
/* Enqueues list->function for all items that hold anything. */
bool ct_wgpu_optim_run(const optim_list *list);
/* Enqueues `finish`: the result of all sums. */
bool ct_wgpu_optim_finish(const optim_list *list);

#endif

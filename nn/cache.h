/* What attention asks of the cache that a forward runs with. */
#ifndef COTANGENT_NN_CACHE_H
#define COTANGENT_NN_CACHE_H

#include "nn/module.h"

/* Whether this thread is inside ct_forward_cached. */
bool ct__cache_runs(void);
/* Adds the keys and values [..., T, D] of the tokens at hand to those of the tokens before; *k and *v are then those of all so
 * far. Each self-attention calls it once, in the same order in every pass. False with an error. */
bool ct__cache_extend(const ct_module *attention, ct_tensor **k, ct_tensor **v);

#endif

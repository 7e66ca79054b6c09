/* The op table and the binding of ops to kernels. */
#ifndef COTANGENT_CORE_REGISTRY_H
#define COTANGENT_CORE_REGISTRY_H

#include <cotangent/op.h>
#include <stdatomic.h>

extern const ct_op *const ct__ops[]; /* generated, sorted by name */
extern const int ct__op_total;

enum { CT__MAX_USER_OPS = 1024 };

/* The table's form of an op whose size is not that of this library's ct_op; NULL, with an error, if it is not registered. */
const ct_op *ct__op_known(const ct_op *op);

/* On first use: ops have their numbers and the library's own backends are open. */
extern _Atomic bool ct__registry_started;
void ct__registry_first(void);
static inline void ct__registry_start(void) {
    if (!atomic_load_explicit(&ct__registry_started, memory_order_acquire)) ct__registry_first();
}

#endif

/* The op table and the binding of ops to kernels. */
#ifndef COTANGENT_CORE_REGISTRY_H
#define COTANGENT_CORE_REGISTRY_H

#include <cotangent/op.h>

extern const ct_op *const ct__ops[]; /* generated, sorted by name */
extern const int ct__op_total;

void ct__registry_start(void); /* binds the kernels once, on first use */
void ct__registry_bind(void);  /* binds them again */

#endif

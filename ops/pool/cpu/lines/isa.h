/* The loops of this ISA level. */
#ifndef COTANGENT_OPS_POOL_ISA_H
#define COTANGENT_OPS_POOL_ISA_H

#include "backends/cpu/kernel.h"
#include "ops/pool/cpu/lines.h"

#define ct__pool_isa CT_ISA_FN(ct__pool_isa)
extern const pool_isa ct__pool_isa;

#endif

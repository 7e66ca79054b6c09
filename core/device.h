/* The table of backends, the current device of a thread, and what dispatch asks of both. */
#ifndef COTANGENT_CORE_DEVICE_H
#define COTANGENT_CORE_DEVICE_H

#include <cotangent/backend.h>
#include <stdatomic.h>

extern const ct_backend *const ct__builtin_backends[]; /* those that are part of the library; ended by NULL */

extern _Thread_local ct_device ct__current_device; /* never {CT_CURRENT}; the CPU to begin with */
extern _Atomic(const ct_backend *) ct__open_backends[CT_DEVICE_TYPES];
extern const ct_kernel **ct__kernel_lists[CT_DEVICE_TYPES]; /* of an open backend, by the op's number */

static inline bool ct__same_device(ct_device a, ct_device b) { return a.type == b.type && a.index == b.index; }
/* The zero device is the current one. */
static inline ct_device ct__resolved(ct_device device) {
    return device.type == CT_CURRENT ? ct__current_device : device;
}

void ct__devices_start(void);
const ct_backend *ct__backend(ct_device_type type); /* of an open one: where there is a tensor, its backend is open */
const ct_backend *ct__backend_named(const char *name); /* an open one, or NULL */
bool ct__device_ok(ct_device device, const char *op);  /* there, and open now; else an error */
/* Whether its backend, which is open, has such tensors: dtypes of 0 stands for all. */
static inline bool ct__device_has(ct_device device, ct_dtype dtype) {
    const ct_backend *backend = atomic_load_explicit(&ct__open_backends[device.type], memory_order_acquire);
    return !backend->dtypes || backend->dtypes >> dtype & 1;
}
bool ct__fail_dtype(const char *op, ct_device device, ct_dtype dtype); /* that it has none; false */
void ct__kernels_bind(void); /* some have other kernels now: another level of instructions */
/* The kernels of an op on a device whose backend is open; NULL: none. */
static inline const ct_kernel *ct__kernels_of(const ct_op *op, ct_device_type type) {
    return ct__kernel_lists[type][op->slot->index];
}

#endif

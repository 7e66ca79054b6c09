/* The backends that this build has. */
#ifndef COTANGENT_CORE_DEVICE_H
#define COTANGENT_CORE_DEVICE_H

#include <cotangent/backend.h>

const ct_backend *ct__backend(ct_device_type type); /* never NULL: a missing one says why in ->missing */
bool ct__device_ok(ct_device device, const char *op);

#endif

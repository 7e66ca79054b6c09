/* Backends in shared objects of their own. */
#ifndef COTANGENT_CORE_MODULE_H
#define COTANGENT_CORE_MODULE_H

#include <cotangent/backend.h>

/* Opens libcotangent_NAME.so: in the folders of CT_BACKEND_PATH, beside the library, where the loader looks. NULL and the
 * reason in why if there is none that can be used. Called once per name. */
const ct_backend *ct__module_open(const char *name, char *why, size_t room);

#endif

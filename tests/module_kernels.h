/* Which ops a module has kernels for. Its table can be looked at without a device, so this holds wherever the module can be built. */
#ifndef COTANGENT_TESTS_MODULE_KERNELS_H
#define COTANGENT_TESTS_MODULE_KERNELS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/layouts.h>

#include "tests/harness.h"

static ct_backend_kernels_entry module_kernels(const char *name) {
    const char *folder = getenv("CT_BACKEND_PATH");
    char path[4096];
    snprintf(path, sizeof path, "%s/libcotangent_%s.so", folder ? folder : CT_TEST_MODULES, name);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        printf("%s\n", dlerror());
        return NULL;
    }
    ct_backend_kernels_entry entry = NULL;
    *(void **)&entry = dlsym(module, CT_BACKEND_KERNELS);
    return entry;
}

static bool needs_kernel(const ct_op *op) { return !op->lower && !(op->flags & CT_OP_VIEW); }

static void every_primitive_has_a_kernel(ct_backend_kernels_entry kernels) {
    const ct_host host = {.size = sizeof host,
                          .version = CT_BACKEND_VERSION,
                          .layouts = CT_ATTRIBUTE_LAYOUTS,
                          .op_count = ct_op_count,
                          .op_at = ct_op_at,
                          .op_find = ct_op_find};
    ct_isa(); /* numbers the ops */
    int primitives = 0, others = 0;
    for (int i = 0; i < ct_op_count(); i++) {
        const ct_op *op = ct_op_at(i);
        const ct_kernel *list = kernels(&host, op);
        const bool has = list && list->name && list->run;
        if (needs_kernel(op) && !CHECK(has)) printf("%s has none\n", op->name);
        primitives += has && needs_kernel(op);
        others += has && !needs_kernel(op);
    }
    printf("%d primitives and %d other ops have kernels\n", primitives, others);
    CHECK(primitives > 100); /* the elementwise ones among them */
}

#endif

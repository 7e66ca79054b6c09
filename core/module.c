/* Opening a backend's module, and what the core hands to it. */
#include "core/module.h"

#include <cotangent/layouts.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/log.h"
#include "core/registry.h"
#include "core/threads.h"

static const ct_host *host(void) {
    static ct_host table;
    table = (ct_host){.size = sizeof table,
                      .version = CT_BACKEND_VERSION,
                      .layouts = CT_ATTRIBUTE_LAYOUTS,
                      .fail = ct_fail,
                      .ok = ct_ok,
                      .log = ct__log_line,
                      .allocate = ct__alloc,
                      .release = ct__free,
                      .parallel = ct__parallel,
                      .op_count = ct_op_count,
                      .op_at = ct_op_at,
                      .op_find = ct_op_find,
                      .backend = ct__backend_named,
                      .fail_value = ct_fail_value,
                      .call_size = sizeof(ct_call),
                      .hold_workers = ct__threads_hold};
    return &table;
}

/* An entry of a path list; returns what follows it, or NULL at the end. */
static const char *next_folder(const char *list, char *folder, size_t room) {
    if (!list || !*list) return NULL;
    const size_t length = strcspn(list, ":");
    snprintf(folder, room, "%.*s", (int)(length < room ? length : room - 1), list);
    return list + length + (list[length] == ':');
}

static void own_folder(char *folder, size_t room) { /* of the library, or of the program it is linked into */
    Dl_info info;
    folder[0] = 0;
    if (!dladdr((const void *)ct__builtin_backends, &info) || !info.dli_fname) return;
    snprintf(folder, room, "%s", info.dli_fname);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    else folder[0] = 0;
}

typedef struct module_path {
    char text[1200];
} module_path;

/* A file that is there and cannot be loaded says why; of one that is not, nothing is said. */
static void *open_at(const char *folder, const char *name, module_path *path, char *why, size_t room) {
    snprintf(path->text, sizeof path->text, "%s%slibcotangent_%s.so", folder, folder[0] ? "/" : "", name);
    void *module = dlopen(path->text, RTLD_NOW | RTLD_LOCAL);
    const char *problem = module ? NULL : dlerror();
    if (problem && !strstr(problem, "No such file")) snprintf(why, room, "%s", problem);
    return module;
}

static void *find(const char *name, module_path *path, char *why, size_t room) {
    char folder[1024];
    void *module = NULL;
    const char *list = getenv("CT_BACKEND_PATH");
    snprintf(why, room, "there is no module libcotangent_%s.so beside the library or in CT_BACKEND_PATH", name);
    while (!module && (list = next_folder(list, folder, sizeof folder)))
        module = open_at(folder, name, path, why, room);
    own_folder(folder, sizeof folder);
    if (!module && folder[0]) module = open_at(folder, name, path, why, room);
    if (!module && folder[0]) { /* a program that the library is linked into lies in bin, modules in lib */
        strncat(folder, "/../lib", sizeof folder - strlen(folder) - 1);
        module = open_at(folder, name, path, why, room);
    }
    return module ? module : open_at("", name, path, why, room);
}

ct_module_function ct_backend_symbol(const char *backend, const char *symbol) {
    char why[512];
    ct_module_function found = NULL;
    module_path path;
    if (!backend || !symbol) {
        ct__fail_null("backend_symbol", backend ? "symbol" : "backend");
        return NULL;
    }
    if (strlen(backend) > 31 || strspn(backend, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(backend)) {
        ct_fail(CT_ERR_VALUE, "backend_symbol", "'%s' is not the name of a backend", backend);
        return NULL;
    }
    void *module = find(backend, &path, why, sizeof why);
    if (!module) {
        ct_fail(CT_ERR_DEVICE, "backend_symbol", "%s", why);
        return NULL;
    }
    *(void **)&found = dlsym(module, symbol); /* it stays open, so that the function is good */
    if (!found) ct_fail(CT_ERR_UNSUPPORTED, "backend_symbol", "%s has no %s", path.text, symbol);
    return found;
}

const ct_backend *ct__module_open(const char *name, char *why, size_t room) {
    module_path path;
    void *module = find(name, &path, why, room);
    if (!module) return NULL;
    ct_backend_entry entry;
    *(void **)&entry = dlsym(module, CT_BACKEND_ENTRY);
    if (!entry) {
        snprintf(why, room, "%s has no function %s", path.text, CT_BACKEND_ENTRY);
        dlclose(module);
        return NULL;
    }
    snprintf(why, room, "its module gave no reason");
    const ct_backend *backend = entry(host(), why, room);
    if (!backend) dlclose(module); /* else it stays: its kernels are in use */
    return backend;
}

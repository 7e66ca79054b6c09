/* Loads the libraries of others. They stay loaded: another part of the program may hold their objects. */
#include "support/foreign.h"

#include <dlfcn.h>
#include <pthread.h>

enum { UNTRIED = 0, LOADED = 1, MISSING = 2, INCOMPLETE = 3 };

static int load(const ct__foreign *library) {
    void *handle = NULL;
    for (int i = 0; !handle && library->files[i]; i++) handle = dlopen(library->files[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle) return MISSING;
    for (int i = 0; library->symbols[i]; i++) {
        library->functions[i] = dlsym(handle, library->symbols[i]);
        if (!library->functions[i]) return INCOMPLETE;
    }
    return LOADED;
}

bool ct__foreign_load(const ct__foreign *library, int *state, const char *op) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int now = __atomic_load_n(state, __ATOMIC_ACQUIRE);
    if (now == UNTRIED) {
        pthread_mutex_lock(&lock);
        now = *state;
        if (now == UNTRIED) __atomic_store_n(state, now = load(library), __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    if (now == LOADED) return true;
    return ct_fail(CT_ERR_UNSUPPORTED, op, "%s %s; Debian's package is %s", library->name,
                   now == MISSING ? "is needed for this and could not be loaded" : "lacks a function that is needed",
                   library->package);
}

bool ct__foreign_absent(const char *op, const char *name, const char *package) {
    return ct_fail(CT_ERR_UNSUPPORTED, op,
                   "this build has no %s: it was made without its header (Debian's package is %s)", name, package);
}

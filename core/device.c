/* The table of backends and their devices. A backend has a number once it is known: those that cotangent.h lists have
 * theirs from the start, others get one when they are registered or when their module is first asked for. No backend is
 * treated by name here. */
#include "core/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/module.h"
#include "core/registry.h"
#include "core/sized.h"

_Thread_local ct_device ct__current_device = {CT_CPU, 0};
_Atomic(const ct_backend *) ct__open_backends[CT_DEVICE_TYPES];
const ct_kernel **ct__kernel_lists[CT_DEVICE_TYPES];

typedef struct backend_slot {
    char name[32];
    bool tried;        /* its module has been looked for */
    char missing[512]; /* why it is not open, once that has been tried */
} backend_slot;

/* Guarded by lock, but for the tables above, which only ever gain entries. */
static backend_slot slots[CT_DEVICE_TYPES];
static int known; /* slots in use, that of CT_CURRENT among them */
static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { FIRST_KERNEL_SIZE = 4 * sizeof(void *), LARGEST_KERNEL_SIZE = 1 << 10 };

static const ct_kernel *candidate(const ct_kernel *list, size_t size, size_t i) {
    return (const ct_kernel *)(const void *)((const char *)list + i * size);
}

/* The candidates of an op as this library's ct_kernel has them: the list itself, or a copy that stays, since threads remember
 * choices. `before` is what the op has now: a copy that is the same again is not made again. NULL: why says what is wrong. */
static const ct_kernel *full_size(const ct_kernel *list, size_t size, const ct_kernel *before, const char **why) {
    if (!list || size == sizeof *list) return list;
    size_t n = 0;
    while (candidate(list, size, n)->name) n++;
    ct_kernel *copy = ct__alloc((n + 1) * sizeof *copy);
    *why = copy ? NULL : "out of memory";
    for (size_t i = 0; copy && i < n; i++)
        if (!ct__sized_copy(&copy[i], sizeof *copy, candidate(list, size, i), size))
            *why = "a kernel sets what this library does not have";
    bool same = copy && before;
    if (copy) memset(&copy[n], 0, sizeof *copy);
    for (size_t i = 0; same && i <= n; i++) same = memcmp(&copy[i], &before[i], sizeof *copy) == 0;
    if (!*why && !same) return copy;
    ct__free(copy, (n + 1) * sizeof *copy);
    return *why ? NULL : before;
}

static const char *bind_kernels(int type, const ct_backend *backend) {
    const size_t size = backend->kernel_size ? backend->kernel_size : FIRST_KERNEL_SIZE;
    const char *why = NULL;
    for (int i = 1; i <= ct__op_total && !why; i++) {
        const ct_kernel **list = &ct__kernel_lists[type][i];
        const ct_kernel *bound = full_size(backend->kernels(backend->self, ct__ops[i - 1]), size, *list, &why);
        if (!why) *list = bound;
    }
    return why;
}

/* The kernels of every op that exists now; those of user code are added as they come. Why it cannot be, or NULL. */
static const char *open_slot(int type, const ct_backend *backend) {
    static ct_backend copies[CT_DEVICE_TYPES]; /* of those that are of another size than this library's */
    if (backend->size != sizeof *backend) {
        if (!ct__sized_copy(&copies[type], sizeof *backend, backend, backend->size))
            return "it needs what this library does not have";
        backend = &copies[type];
    }
    const ct_kernel **lists = calloc((size_t)ct__op_total + CT__MAX_USER_OPS + 1, sizeof *lists);
    if (!lists) return "out of memory";
    ct__kernel_lists[type] = lists;
    const char *wrong = bind_kernels(type, backend);
    if (wrong) {
        ct__kernel_lists[type] = NULL;
        free(lists);
        return wrong;
    }
    slots[type].missing[0] = 0;
    slots[type].tried = true;
    atomic_store(&ct__open_backends[type], backend);
    return NULL;
}

static void start(void) {
    pthread_mutexattr_t recursive; /* a module that is being opened may ask for another backend */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    for (int i = 0; i < ct__op_total; i++) ct__ops[i]->slot->index = i + 1; /* which kernels are found by */
    known = 1;
#define LISTED(type, text) snprintf(slots[known++].name, sizeof slots[0].name, "%s", text);
    CT_DEVICE_LIST(LISTED)
#undef LISTED
    for (int i = 0; ct__builtin_backends[i]; i++)
        for (int type = 1; type < known; type++)
            if (strcmp(slots[type].name, ct__builtin_backends[i]->name) == 0) open_slot(type, ct__builtin_backends[i]);
}

void ct__devices_start(void) { pthread_once(&once, start); }

/* ---- Opening ---- */

static int find_locked(const char *name, size_t length) {
    for (int type = 1; type < known; type++)
        if (strlen(slots[type].name) == length && memcmp(slots[type].name, name, length) == 0) return type;
    return 0;
}

static bool fits_kernel(size_t size) {
    return size >= FIRST_KERNEL_SIZE && size <= LARGEST_KERNEL_SIZE && size % sizeof(void *) == 0;
}

static const char *unfit(const ct_backend *backend) {
    enum { FIRST_SIZE = offsetof(ct_backend, kernel_size), LARGEST_SIZE = 1 << 12 };
    const bool sized = backend->size >= FIRST_SIZE && backend->size <= LARGEST_SIZE;
    if (backend->version != CT_BACKEND_VERSION || !sized)
        return "it was built for another version of cotangent/backend.h";
    if (backend->size >= offsetof(ct_backend, dlpack_type) && backend->kernel_size != 0 &&
        !fits_kernel(backend->kernel_size))
        return "its kernel_size is no size of a ct_kernel";
    if (!backend->device_count || !backend->device_info || !backend->allocate || !backend->release ||
        !backend->upload || !backend->download || !backend->copy || !backend->fill || !backend->wait ||
        !backend->kernels)
        return "it lacks a function that every backend has";
    if (backend->alignment < 16 || (backend->alignment & (backend->alignment - 1)))
        return "its alignment is not a power of two from 16 on";
    if (backend->stream_new && (!backend->stream_free || !backend->event_new || !backend->event_free ||
                                !backend->event_record || !backend->event_wait))
        return "it has streams, but not all that belongs to them";
    if (backend->size >= offsetof(ct_backend, dtypes) && !backend->host_allocate != !backend->host_release)
        return "it gives memory of the host that it does not take back";
    return NULL;
}

/* Opens the module of a slot, once. */
static void try_module_locked(int type) {
    backend_slot *slot = &slots[type];
    if (slot->tried) return;
    slot->tried = true;
    const ct_backend *backend = ct__module_open(slot->name, slot->missing, sizeof slot->missing);
    const char *wrong = backend ? unfit(backend) : NULL;
    if (backend && !wrong) wrong = open_slot(type, backend);
    if (wrong) snprintf(slot->missing, sizeof slot->missing, "its module cannot be used: %s", wrong);
}

static const ct_backend *opened(int type) {
    ct__devices_start();
    const ct_backend *backend = atomic_load(&ct__open_backends[type]);
    if (backend) return backend;
    pthread_mutex_lock(&lock);
    if (type < known) try_module_locked(type);
    pthread_mutex_unlock(&lock);
    return atomic_load(&ct__open_backends[type]);
}

const ct_backend *ct__backend(ct_device_type type) { return atomic_load(&ct__open_backends[type]); }

const ct_backend *ct__backend_named(const char *name) {
    ct__devices_start();
    pthread_mutex_lock(&lock);
    int type = name ? find_locked(name, strlen(name)) : 0;
    pthread_mutex_unlock(&lock);
    return type ? ct__backend((ct_device_type)type) : NULL;
}

bool ct_backend_register(const ct_backend *backend) {
    const char *me = "backend_register";
    if (ct__pending()) return false;
    if (!backend || !backend->name) return ct__fail_null(me, backend ? "backend->name" : "backend");
    const char *wrong = unfit(backend);
    const size_t length = strlen(backend->name);
    if (wrong) return ct_fail(CT_ERR_VALUE, me, "%s: %s", backend->name, wrong);
    if (length == 0 || length >= sizeof slots[0].name)
        return ct_fail(CT_ERR_VALUE, me, "the name '%s' has to have 1 to %zu characters", backend->name,
                       sizeof slots[0].name - 1);
    ct__devices_start();
    pthread_mutex_lock(&lock);
    int type = find_locked(backend->name, length);
    bool ok = true;
    if (type && ct__backend((ct_device_type)type))
        ok = ct_fail(CT_ERR_STATE, me, "there is a backend named %s already", backend->name);
    else if (!type && known == CT_DEVICE_TYPES)
        ok = ct_fail(CT_ERR_STATE, me, "no room for more than %d backends", CT_DEVICE_TYPES - 1);
    const bool is_new = type == 0;
    if (ok && is_new) type = known;
    if (ok && (wrong = open_slot(type, backend))) ok = ct_fail(CT_ERR_VALUE, me, "%s: %s", backend->name, wrong);
    if (ok && is_new) {
        known++;
        memcpy(slots[type].name, backend->name, length + 1);
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

/* ---- Kernels ---- */

bool ct_op_add_kernels_p(const ct_op *op, const char *backend, const ct_kernel *kernels, size_t kernel_size) {
    const char *me = "op_add_kernels", *why = NULL;
    if (ct__pending()) return false;
    if (!op || !backend || !kernels) return ct__fail_null(me, !op ? "op" : !backend ? "backend" : "kernels");
    if (!fits_kernel(kernel_size))
        return ct_fail(CT_ERR_VALUE, me, "kernel_size is %zu; it has to be sizeof(ct_kernel)", kernel_size);
    ct__registry_start();
    if (op->slot->index <= ct__op_total)
        return ct_fail(CT_ERR_STATE, me, "%s is not an op that this program has registered", op->name);
    pthread_mutex_lock(&lock);
    int type = find_locked(backend, strlen(backend));
    bool ok = type && opened(type);
    if (ok) {
        const ct_kernel *list = full_size(kernels, kernel_size, NULL, &why);
        if (list) ct__kernel_lists[type][op->slot->index] = list;
    }
    pthread_mutex_unlock(&lock);
    if (why) return ct_fail(CT_ERR_UNSUPPORTED, me, "%s: %s", op->name, why);
    return ok || ct_fail(CT_ERR_DEVICE, me, "there is no backend named %s", backend);
}

void ct__kernels_bind(void) {
    ct__devices_start();
    for (int type = 1; type < CT_DEVICE_TYPES; type++)
        if (ct__backend((ct_device_type)type)) bind_kernels(type, ct__backend((ct_device_type)type));
}

const ct_kernel *ct_op_kernel(const ct_op *op, ct_device_type type, int i) {
    if (!op || !op->slot || (unsigned)type >= CT_DEVICE_TYPES || ct_backend_missing(type)[0]) return NULL;
    ct__registry_start();
    const ct_kernel *list = ct__kernels_of(op, type == CT_CURRENT ? ct__current_device.type : type);
    for (; list && list->name && i > 0; i--) list++;
    return list && list->name && i == 0 ? list : NULL;
}

/* ---- Devices ---- */

const char *ct_backend_missing(ct_device_type type) {
    ct__devices_start();
    if (type == CT_CURRENT) return "";
    if ((unsigned)type >= CT_DEVICE_TYPES || !slots[type].name[0]) return "there is no such device type";
    return opened(type) ? "" : slots[type].missing;
}

const char *ct_backend_name(ct_device_type type) {
    ct__devices_start();
    if (type == CT_CURRENT) type = ct__current_device.type;
    return (unsigned)type < CT_DEVICE_TYPES && slots[type].name[0] ? slots[type].name : NULL;
}

int ct_device_count(ct_device_type type) {
    if ((unsigned)type >= CT_DEVICE_TYPES || ct_backend_missing(type)[0]) return 0;
    const ct_backend *backend = ct__backend(type == CT_CURRENT ? ct__current_device.type : type);
    return backend->device_count(backend->self);
}

bool ct__device_ok(ct_device device, const char *op) {
    device = ct__resolved(device);
    const char *name = ct_backend_name(device.type);
    if (!name || (int)device.type < 0) return ct_fail(CT_ERR_DEVICE, op, "%d is not a device type", (int)device.type);
    const ct_backend *backend = opened(device.type);
    if (!backend)
        return ct_fail(CT_ERR_DEVICE, op, "the device %s cannot be used: %s", name, slots[device.type].missing);
    const int count = backend->device_count(backend->self);
    if (device.index < 0 || device.index >= count)
        return ct_fail(CT_ERR_DEVICE, op, "there %s %d %s device%s, not %s:%d", count == 1 ? "is" : "are", count, name,
                       count == 1 ? "" : "s", name, device.index);
    return true;
}

bool ct_device_has_dtype(ct_device device, ct_dtype dtype) {
    const ct_device_type type = ct__resolved(device).type;
    const ct_backend *backend =
        (unsigned)type < CT_DEVICE_TYPES && !ct_backend_missing(type)[0] ? ct__backend(type) : NULL;
    return (unsigned)dtype < CT_DTYPE_COUNT && (!backend || !backend->dtypes || backend->dtypes >> dtype & 1);
}

bool ct__fail_dtype(const char *op, ct_device device, ct_dtype dtype) {
    const bool real = ct__dtype_is_float(dtype);
    return ct_fail(CT_ERR_DTYPE, op,
                   "there are no tensors of %s on %s; cast it where it is first: ct_cast(x, %s), or stay on the CPU: "
                   "ct_to(x, (ct_device){CT_CPU})",
                   ct_dtype_name(dtype), ct_device_text(device), real ? "CT_F32" : "CT_I32");
}

bool ct_set_device(ct_device device) {
    if (!ct__device_ok(device, "set_device")) return false;
    ct__current_device = ct__resolved(device);
    return true;
}

ct_device ct_get_device(void) { return ct__current_device; }

/* A name that nobody has heard of yet may be that of a module: it gets a number, and is tried. */
bool ct_device_parse(const char *text, ct_device *device) {
    const char *me = "device_parse";
    if (!text || !device) return ct__fail_null(me, text ? "device" : "text");
    const size_t length = strcspn(text, ":");
    char *end = NULL;
    const long index = text[length] ? strtol(text + length + 1, &end, 10) : 0;
    bool fits =
        length > 0 && length < sizeof slots[0].name && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") >= length;
    if (text[length]) fits = fits && end != text + length + 1 && *end == 0 && index >= 0 && index < 1 << 16;
    if (!fits)
        return ct_fail(CT_ERR_VALUE, me, "'%s' is not a device: a name such as cpu or cuda, or with a number, cuda:1",
                       text);
    char why[sizeof slots[0].missing] = "";
    ct__devices_start();
    pthread_mutex_lock(&lock);
    int type = find_locked(text, length);
    if (!type && known < CT_DEVICE_TYPES) {
        type = known;
        memcpy(slots[type].name, text, length);
        slots[type].name[length] = 0;
        try_module_locked(type);
        if (ct__backend((ct_device_type)type)) {
            known++;
        } else {
            memcpy(why, slots[type].missing, sizeof why);
            memset(&slots[type], 0, sizeof slots[type]);
            type = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!type && why[0] && strncmp(why, "there is no module", 18) != 0)
        return ct_fail(CT_ERR_DEVICE, me, "the device %.*s cannot be used: %s", (int)length, text, why);
    if (!type)
        return ct_fail(CT_ERR_DEVICE, me, "there is no device named %.*s, and no module for it", (int)length, text);
    const ct_device found = {(ct_device_type)type, (int)index};
    if (!ct__device_ok(found, me)) return false;
    *device = found;
    return true;
}

enum { LARGEST_INFO = 1 << 14 };

bool ct_device_describe(ct_device device, ct_device_info *info) {
    if (!info) return ct__fail_null("device_describe", "info");
    if (!ct__device_ok(device, "device_describe")) return false;
    device = ct__resolved(device);
    const ct_backend *backend = ct__backend(device.type);
    const uint32_t size = info->size;
    ct_device_info all = {.size = sizeof all};
    if (size < sizeof size || size > LARGEST_INFO)
        return ct_fail(CT_ERR_VALUE, "device_describe", "info->size is %u; it has to be sizeof(ct_device_info)", size);
    if (!backend->device_info(backend->self, device.index, &all)) return false;
    ct__sized_fill(info, size, &all, sizeof all);
    info->size = size;
    return true;
}

/* The op table: the built-in ops that the generator lists, then those that user code registers. */
#include "core/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/anomaly.h"
#include "core/device.h"
#include "core/error.h"
#include "core/sized.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const ct_op *user_ops[CT__MAX_USER_OPS];
static _Atomic int user_count;

static void start(void) {
    const char *anomaly = getenv("CT_ANOMALY");
    ct__anomaly_usual = anomaly && anomaly[0] == '1';
    ct__devices_start();
}

_Atomic bool ct__registry_started;
void ct__registry_first(void) {
    pthread_once(&once, start);
    atomic_store_explicit(&ct__registry_started, true, memory_order_release);
}

int ct_op_count(void) { return ct__op_total + atomic_load(&user_count); }

const ct_op *ct_op_at(int index) {
    if (index < 0 || index >= ct_op_count()) return NULL;
    ct__registry_start();
    return index < ct__op_total ? ct__ops[index] : user_ops[index - ct__op_total];
}

const ct_op *ct_op_find(const char *name) {
    if (!name) return NULL;
    ct__registry_start();
    int low = 0, high = ct__op_total;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(name, ct__ops[middle]->name);
        if (order == 0) return ct__ops[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    int count = atomic_load(&user_count);
    for (int i = 0; i < count; i++)
        if (strcmp(user_ops[i]->name, name) == 0) return user_ops[i];
    return NULL;
}

enum { FIRST_SIZE = offsetof(ct_op, context), LARGEST_SIZE = 1 << 12 };

static bool check_definition(const ct_op *op) {
    const char *me = "op_register";
    if (!op) return ct__fail_null(me, "op");
    if (op->size < FIRST_SIZE || op->size > LARGEST_SIZE)
        return ct_fail(CT_ERR_VALUE, me, "the op says that its size is %u; it has to be sizeof(ct_op)", op->size);
    if (!op->name || !op->name[0]) return ct__fail_null(me, "op->name");
    if (!op->inputs || !op->outputs || !op->outputs[0].name || !op->slot)
        return ct_fail(CT_ERR_NULL, me, "op %s lacks inputs, outputs or slot", op->name);
    if (!op->infer && !op->lower) return ct_fail(CT_ERR_VALUE, me, "op %s has neither infer nor lower", op->name);
    for (int i = 0; op->inputs[i].name; i++)
        if ((op->inputs[i].flags & CT_ARG_LIST) && op->inputs[i + 1].name)
            return ct_fail(CT_ERR_VALUE, me, "op %s: the list input %s has to be the last", op->name,
                           op->inputs[i].name);
    return true;
}

/* The op itself where it is of this library's size, else a copy that is and stays; NULL after an error. */
static const ct_op *full_size(const ct_op *op) {
    if (op->size == sizeof *op) return op;
    ct_op *copy = ct__alloc(sizeof *copy);
    if (!copy) {
        ct__fail_memory("op_register", sizeof *copy);
        return NULL;
    }
    if (!ct__sized_copy(copy, sizeof *copy, op, op->size)) {
        ct_fail(CT_ERR_UNSUPPORTED, "op_register", "op %s sets what version %s of the library does not have", op->name,
                ct_version_text());
        ct__free(copy, sizeof *copy);
        return NULL;
    }
    copy->size = sizeof *copy;
    return copy;
}

static bool register_locked(const ct_op *op) {
    const int count = atomic_load(&user_count);
    if (ct_op_find(op->name)) return ct_fail(CT_ERR_VALUE, "op_register", "there is an op named %s already", op->name);
    if (count == CT__MAX_USER_OPS)
        return ct_fail(CT_ERR_STATE, "op_register", "no room for more than %d user ops", CT__MAX_USER_OPS);
    const ct_op *kept = full_size(op);
    if (!kept) return false;
    user_ops[count] = kept;
    op->slot->index = ct__op_total + count + 1;
    atomic_store(&user_count, count + 1);
    return true;
}

bool ct_op_register(const ct_op *op) {
    if (ct__pending() || !check_definition(op)) return false;
    pthread_mutex_lock(&lock);
    const bool ok = register_locked(op);
    pthread_mutex_unlock(&lock);
    return ok;
}

const ct_op *ct__op_known(const ct_op *op) {
    if (op->size >= FIRST_SIZE && op->size <= LARGEST_SIZE && op->slot && op->slot->index > 0)
        return ct_op_at(op->slot->index - 1);
    ct_fail(
        CT_ERR_STATE, "apply",
        "the op says that its size is %u, not sizeof(ct_op), which is %zu; one of another version of cotangent/op.h "
        "has to be registered first",
        op->size, sizeof *op);
    return NULL;
}

bool ct_op_differentiable(const ct_op *op) { return op && !(op->flags & CT_OP_NO_GRAD) && (op->vjp || op->lower); }

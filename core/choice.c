/* The choice of a kernel among an op's candidates. */
#include <stdio.h>
#include <string.h>

#include "core/call.h"
#include "core/device.h"
#include "core/thread_block.h"

/* The choice for one combination of op, attributes, dtypes, shapes and strides is remembered, a few hundred a thread. */
enum { CHOICES = 512 };

static ct_choice *remembered(uint64_t key) { /* where the choice for key is, or would be; NULL: there is no memory */
    static _Thread_local ct_choice *choices;
    if (!choices && !ct__thread_block((void **)&choices, CHOICES * sizeof *choices)) return NULL;
    return &choices[key % CHOICES];
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash ^= word;
    hash *= 0x9FB21C651E98DF25ull;
    return hash ^ hash >> 29;
}

/* In four lanes, since each step waits for the one before it. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const char *at = bytes;
    if (size >= 64) {
        uint64_t lanes[4] = {hash, 1, 2, 3};
        for (; size >= 32; size -= 32, at += 32) {
            uint64_t words[4];
            memcpy(words, at, sizeof words);
            for (int i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ words[i]) * 0x9FB21C651E98DF25ull;
        }
        hash = mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
    }
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix(hash, word);
    }
    if (!size) return hash;
    uint64_t rest = 0;
    memcpy(&rest, at, size);
    return mix(hash, rest);
}

static uint64_t hash_view(uint64_t hash, const ct_view *view) {
    if (!view) return mix(hash, 0x51);
    hash = mix(hash, (uint64_t)view->dtype << 8 | (uint64_t)view->ndim);
    hash = hash_bytes(hash, view->dims, (size_t)view->ndim * sizeof view->dims[0]);
    return hash_bytes(hash, view->strides, (size_t)view->ndim * sizeof view->strides[0]);
}

const ct_kernel *ct__choose(const ct_call *call, ct_choice **place, char *refusals, size_t room) {
    const ct_device device = call->device;
    const ct_kernel *list = ct__kernels_of(call->op, device.type);
    *place = NULL;
    if (!list || !list->name) return NULL;
    bool single = list[1].name == NULL;
    if (single && !list->can) return list;
    uint64_t key = 0;
    ct_choice *known = NULL;
    if (!single && !refusals) {
        key = mix((uintptr_t)call->op, (uint64_t)device.type << 32 | (uint32_t)device.index);
        key = mix(key, call->flags & CT_CALL_LASTING);
        if (call->attrs) key = hash_bytes(key, call->attrs, call->op->attr_size);
        for (int i = 0; i < call->n_in; i++) key = hash_view(key, call->in[i]);
        for (int i = 0; i < call->n_out; i++) key = hash_view(key, call->out[i]);
        *place = known = remembered(key);
        if (known && known->key == key && known->list == list) return known->kernel;
    }
    const ct_kernel *found = NULL;
    for (const ct_kernel *kernel = list; kernel->name && !found; kernel++) {
        const char *reason = kernel->can ? kernel->can(call) : NULL;
        if (!reason) found = kernel;
        else if (refusals && strlen(refusals) < room)
            snprintf(refusals + strlen(refusals), room - strlen(refusals), " (%s: %s)", kernel->name, reason);
    }
    if (known) *known = (ct_choice){key, list, found, 0, 0};
    return found;
}

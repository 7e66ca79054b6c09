/* The choice of a kernel among an op's candidates. */
#include <stdio.h>
#include <string.h>

#include "core/call.h"
#include "core/device.h"
#include "core/hot.h"
#include "core/thread_block.h"
#include "core/threads.h"

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

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const char *at = bytes;
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

/* A hash waits for the product before it at every word. So each list and each view has one of its own, and the processor works on
 * several at a time. */
static uint64_t hash_list(const ct_dims *list) { /* only what is in use: most of its room is not */
    uint64_t hash = mix(1, (uint64_t)list->n);
    for (int i = 0; i < list->n; i++) hash = mix(hash, (uint64_t)list->d[i]);
    return hash;
}

CT__HOT static uint64_t hash_view(const ct_view *view) {
    if (!view) return 0x51;
    uint64_t hash = mix(1, (uint64_t)view->dtype << 8 | (uint64_t)view->ndim);
    for (int i = 0; i < view->ndim; i++)
        hash = mix(hash, (uint64_t)view->dims[i] + (uint64_t)view->strides[i] * 0xD6E8FEB86659FD93ull);
    return hash;
}

static uint64_t hash_attr(const ct_attr *attr, const char *at) {
    uint64_t word = 0;
    switch (attr->type) {
    case CT_ATTR_INT:
    case CT_ATTR_DOUBLE:
    case CT_ATTR_DEVICE: memcpy(&word, at, 8); break;
    case CT_ATTR_BOOL: word = *(const bool *)at; break;
    case CT_ATTR_DTYPE:
    case CT_ATTR_ENUM: memcpy(&word, at, 4); break;
    case CT_ATTR_OPT: {
        const ct_opt *opt = (const ct_opt *)(const void *)at;
        if (opt->set) memcpy(&word, &opt->value, 8);
        return mix(word, opt->set);
    }
    case CT_ATTR_TEXT: return hash_bytes(1, at, strnlen(at, sizeof(ct_text)));
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES: return hash_list((const ct_dims *)(const void *)at);
    }
    return word;
}

static uint64_t hash_attrs(uint64_t hash, const ct_op *op, const char *attrs) {
    if (!attrs) return hash;
    if (!op->attrs) return hash_bytes(hash, attrs, op->attr_size);
    for (const ct_attr *attr = op->attrs; attr->name; attr++) {
        const char *at = attrs + attr->offset;
        const bool list = attr->type == CT_ATTR_AXES || attr->type == CT_ATTR_DIMS;
        hash = mix(hash, list ? hash_list((const ct_dims *)(const void *)at) : hash_attr(attr, at));
    }
    return hash;
}

CT__HOT const ct_kernel *ct__choose(const ct_call *call, ct_choice **place, char *refusals, size_t room) {
    const ct_device device = call->device;
    const ct_kernel *list = ct__kernels_of(call->op, device.type);
    *place = NULL;
    if (!list || !list->name) return NULL;
    bool single = list[1].name == NULL;
    if (single && !list->can) return list;
    uint64_t key = 0;
    ct_choice *known = NULL;
    const bool described = !call->attrs || call->op->attr_size; /* what it cannot tell from another is not remembered */
    if (!single && !refusals && described) {
        key = mix((uintptr_t)call->op, (uint64_t)device.type << 32 | (uint32_t)device.index);
        key = mix(key, (call->flags & (CT_CALL_LASTING | CT_CALL_TF32)) |
                           (uint64_t)atomic_load_explicit(&ct__tuning, memory_order_relaxed) << 32);
        key = hash_attrs(key, call->op, call->attrs);
        for (int i = 0; i < call->n_in; i++) key = mix(key, hash_view(call->in[i]));
        for (int i = 0; i < call->n_out; i++) key = mix(key, hash_view(call->out[i]));
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

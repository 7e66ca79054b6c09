/* From a launch to a dispatch: which binding each operand lies in, the pipeline for that, the bind group, and the uniforms.
 *
 * Operands that lie apart are bound apart, even of one buffer: then the text does not depend on which buffers the allocator has put them
 * into, and few pipelines serve. Those that overlap share a binding, since one that is written may not overlap another; offsets within
 * bindings go with the uniforms. Where there are not enough bindings, a buffer is bound once and as a whole. */
#include <stdio.h>
#include <stdlib.h>

#include "backends/webgpu/shader.h"

/* ---- Operands ---- */

void ct_wgpu_operand_of(ct_wgpu_launch *launch, const char *name, const ct_view *view, unsigned mode) {
    ct_wgpu_operand *o = &launch->operands[launch->n++];
    o->name = name;
    o->mode = (uint8_t)mode;
    o->buffer = view ? view->buffer : NULL;
    o->dtype = (uint8_t)(view ? view->dtype : CT_F32);
    if (!view) return;
    const uint64_t size = ct_wgpu_dtype_size(view->dtype);
    int64_t low = 0, high = 0;
    o->begin = o->low = o->high = view->origin;
    for (int d = 0; d < view->ndim; d++) {
        if (view->dims[d] == 0) return; /* without an element it may begin anywhere, in front of its storage too */
        const int64_t reach = (view->dims[d] - 1) * view->strides[d];
        if (reach < 0) low += reach;
        else high += reach;
    }
    o->begin = view->origin + (uint64_t)view->offset * size;
    o->low = o->begin + (uint64_t)low * size;
    o->high = o->begin + (uint64_t)(high + 1) * size;
}

void ct_wgpu_scratch(ct_wgpu_launch *launch, const char *name, const ct_call *call, ct_dtype dtype, size_t offset,
                     size_t bytes, unsigned mode) {
    const uint64_t begin = call->scratch.offset + offset;
    launch->operands[launch->n++] = (ct_wgpu_operand){.name = name,
                                                      .buffer = call->scratch.buffer,
                                                      .begin = begin,
                                                      .low = begin,
                                                      .high = begin + bytes,
                                                      .dtype = (uint8_t)dtype,
                                                      .mode = (uint8_t)mode};
}

/* ---- Ranges ---- */

static uint32_t window_of(const ct_wgpu_limits *limits) {
    uint32_t shift = 6; /* 256 bytes */
    while (shift < 30 && (uint64_t)8 << shift <= limits->binding) shift++;
    return shift;
}

/* What of its buffer an operand touches. */
static void range_of(const ct_wgpu_operand *o, const ct_wgpu_buffer *buffer, uint64_t *low, uint64_t *high) {
    *low = o->low & ~(uint64_t)(CT_WGPU_ALIGNMENT - 1);
    *high = (o->high + CT_WGPU_ALIGNMENT - 1) & ~(uint64_t)(CT_WGPU_ALIGNMENT - 1);
    if (*high > buffer->size) *high = buffer->size;
}

/* Ranges that overlap become one. */
static void merge(ct_wgpu_plan *plan) {
    for (int i = 0; i < plan->n_ranges; i++)
        for (int k = i + 1; k < plan->n_ranges; k++) {
            ct_wgpu_range *a = &plan->ranges[i], *b = &plan->ranges[k];
            if (a->buffer != b->buffer || a->low >= b->high || b->low >= a->high) continue;
            if (b->low < a->low) a->low = b->low;
            if (b->high > a->high) a->high = b->high;
            for (int o = 0; o < CT_WGPU_OPERANDS; o++) {
                if (plan->of[o] == 255) continue;
                if (plan->of[o] == k) plan->of[o] = (uint8_t)i;
                else if (plan->of[o] > k) plan->of[o]--;
            }
            plan->n_ranges--;
            for (int m = k; m < plan->n_ranges; m++) plan->ranges[m] = plan->ranges[m + 1];
            i = -1; /* again */
            break;
        }
}

/* Whether a binding may be declared as vectors of four elements of that size: somebody takes quads alone, and nobody else takes any that
 * might lie otherwise, or stores one word of them where the device may write all. */
static bool takes_vectors(const ct_wgpu_device *d, const ct_wgpu_launch *launch, const ct_wgpu_plan *plan, int range,
                          size_t size) {
    bool taken = false, fits = plan->ranges[range].n == 1;
    for (int i = 0; i < launch->n; i++) {
        const ct_wgpu_operand *o = &launch->operands[i];
        if (plan->of[i] != range) continue;
        const bool only = o->mode & CT_WGPU_QUADS_ONLY;
        taken |= only && ct_wgpu_dtype_size((ct_dtype)o->dtype) == size;
        fits &= ct_wgpu_dtype_size((ct_dtype)o->dtype) == size &&
                (only || (!(o->mode & CT_WGPU_QUADS) && (d->stores_parts || !(o->mode & CT_WGPU_WRITTEN))));
    }
    return taken && fits;
}

/* Atomic where an element is less than a word and is stored by itself. */
static int kind_of(const ct_wgpu_device *d, const ct_wgpu_launch *launch, const ct_wgpu_plan *plan, int range) {
    for (int i = 0; i < launch->n; i++) {
        const ct_wgpu_operand *o = &launch->operands[i];
        const unsigned words = CT_WGPU_WORDS | CT_WGPU_QUADS_ONLY;
        if (plan->of[i] == range && ct_wgpu_dtype_size((ct_dtype)o->dtype) < 4 && o->mode & CT_WGPU_WRITTEN &&
            !(o->mode & words))
            return CT_WGPU_ATOMIC;
    }
    return takes_vectors(d, launch, plan, range, 4)   ? CT_WGPU_QUAD
           : takes_vectors(d, launch, plan, range, 2) ? CT_WGPU_PAIR
                                                      : CT_WGPU_PLAIN;
}

/* The ranges and their bindings: each operand's own, or (whole) one for all operands of a buffer, where it is no longer than a binding may
 * be. */
static bool make_ranges(const ct_wgpu_device *d, const ct_wgpu_launch *launch, ct_wgpu_plan *plan, bool whole,
                        const char *op) {
    plan->n_ranges = plan->n_slots = 0;
    plan->window = 0;
    memset(plan->of, 255, sizeof plan->of);
    for (int i = 0; i < launch->n; i++) {
        const ct_wgpu_operand *o = &launch->operands[i];
        const ct_wgpu_buffer *buffer = o->buffer;
        if (!buffer) continue;
        if (o->low >= o->high && o->begin > buffer->size)
            return ct_wgpu_host->fail(CT_ERR_STATE, op, "operand %s has no place", o->name);
        const bool all = o->low >= o->high || (whole && buffer->size <= d->limits.binding);
        if (plan->n_ranges == CT_WGPU_SLOTS)
            return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "it has too many operands for WebGPU");
        plan->of[i] = (uint8_t)plan->n_ranges;
        ct_wgpu_range *r = &plan->ranges[plan->n_ranges++];
        *r = (ct_wgpu_range){.buffer = buffer, .low = 0, .high = buffer->size};
        if (!all) range_of(o, buffer, &r->low, &r->high);
    }
    merge(plan);
    for (int r = 0; r < plan->n_ranges; r++) {
        ct_wgpu_range *range = &plan->ranges[r];
        const uint64_t bytes = range->high - range->low;
        range->first = (uint8_t)plan->n_slots;
        if (bytes > d->limits.binding) {
            plan->window = window_of(&d->limits);
            const uint64_t step = (uint64_t)4 << plan->window, n = (bytes + step - 1) / step;
            if (n > CT_WGPU_SLOTS)
                return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "a tensor is too large for the bindings of this device");
            range->n = (uint8_t)n;
        } else {
            range->n = 1;
        }
        plan->n_slots += range->n;
    }
    return true;
}

static bool make_plan(const ct_wgpu_device *d, const ct_wgpu_launch *launch, ct_wgpu_plan *plan, const char *op) {
    const int most = (int)d->limits.bindings - 1; /* one is kept for the error word */
    if (!make_ranges(d, launch, plan, false, op)) return false;
    if (plan->n_slots > most && !make_ranges(d, launch, plan, true, op)) return false;
    if (plan->n_slots > most)
        return ct_wgpu_host->fail(
            CT_ERR_DEVICE, op,
            "it needs %d bindings of storage buffers at once, and the device has %u, of %llu MiB each",
            plan->n_slots + 1, d->limits.bindings, (unsigned long long)(d->limits.binding >> 20));
    for (int r = 0; r < plan->n_ranges; r++) plan->ranges[r].kind = (uint8_t)kind_of(d, launch, plan, r);
    for (int i = 0; i < launch->n; i++) {
        if (plan->of[i] == 255) continue;
        const ct_wgpu_operand *o = &launch->operands[i];
        plan->base[i] = (uint32_t)((o->begin - plan->ranges[plan->of[i]].low) / ct_wgpu_dtype_size((ct_dtype)o->dtype));
    }
    return true;
}

/* ---- Tables ---- */

enum { KEY_WORDS = 80 };
typedef struct entry {
    uint64_t hash;
    uint64_t *key;
    int n;
    void *value; /* ct_wgpu_pipeline or WGPUBindGroup */
} entry;
struct ct_wgpu_table {
    entry *entries;
    size_t room, used;
};

static uint64_t hash_of(const uint64_t *key, int n) {
    uint64_t h = 0x9e3779b97f4a7c15u + (uint64_t)n;
    for (int i = 0; i < n; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static entry *look_up(ct_wgpu_table *t, const uint64_t *key, int n, uint64_t h) {
    for (size_t i = h & (t->room - 1); t->entries[i].key; i = (i + 1) & (t->room - 1)) {
        entry *e = &t->entries[i];
        if (e->hash == h && e->n == n && memcmp(e->key, key, (size_t)n * sizeof *key) == 0) return e;
    }
    return NULL;
}

static bool enlarge(ct_wgpu_table *t) {
    const size_t room = t->room ? 2 * t->room : 256;
    entry *entries = calloc(room, sizeof *entries);
    if (!entries) return false;
    for (size_t i = 0; i < t->room; i++) {
        if (!t->entries[i].key) continue;
        size_t at = t->entries[i].hash & (room - 1);
        while (entries[at].key) at = (at + 1) & (room - 1);
        entries[at] = t->entries[i];
    }
    free(t->entries);
    t->entries = entries;
    t->room = room;
    return true;
}

static entry *insert(ct_wgpu_table *t, const uint64_t *key, int n, uint64_t h, void *value) {
    uint64_t *kept = malloc((size_t)n * sizeof *kept);
    if (!kept) return NULL;
    memcpy(kept, key, (size_t)n * sizeof *kept);
    size_t at = h & (t->room - 1);
    while (t->entries[at].key) at = (at + 1) & (t->room - 1);
    t->entries[at] = (entry){h, kept, n, value};
    t->used++;
    return &t->entries[at];
}

static ct_wgpu_table *table_of(ct_wgpu_table **t) {
    if (!*t) *t = calloc(1, sizeof **t);
    if (*t && 2 * (*t)->used >= (*t)->room && !enlarge(*t)) return NULL;
    return *t;
}

static void empty(ct_wgpu_table *t, void (*let_go)(void *)) {
    for (size_t i = 0; t && i < t->room; i++) {
        if (!t->entries[i].key) continue;
        let_go(t->entries[i].value);
        free(t->entries[i].key);
        t->entries[i] = (entry){0};
    }
    if (t) t->used = 0;
}

static void let_pipeline_go(void *p) { ct_wgpu_pipeline_free(p); }
static void let_group_go(void *g) { ct_wgpu.BindGroupRelease(g); }

/* ---- Pipelines ---- */

static ct_wgpu_pipeline *pipeline_for(ct_wgpu_device *d, const ct_wgpu_launch *launch, const ct_wgpu_plan *plan,
                                      bool lasting, const char *op) {
    if (!table_of(&d->pipelines)) return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a shader"), NULL;
    uint64_t key[KEY_WORDS];
    int n = 0;
    key[n++] = (uintptr_t)launch->unit->text;
    key[n++] = (uintptr_t)launch->function;
    key[n++] = (uintptr_t)launch->more;
    key[n++] = (uint64_t)launch->threads << 32 | (uint64_t)launch->words << 24 | (uint64_t)launch->n << 16 |
               (uint64_t)launch->n_constants << 8 | plan->window << 1 | lasting;
    for (int i = 0; i < launch->n; i += 2) {
        uint64_t two = 0;
        for (int k = i; k < i + 2 && k < launch->n; k++)
            two = two << 32 | (uint64_t)launch->operands[k].dtype << 24 | (uint64_t)launch->operands[k].mode << 16 |
                  plan->of[k];
        key[n++] = two;
    }
    for (int i = 0; i < plan->n_ranges; i++)
        key[n++] = (uint64_t)plan->ranges[i].first << 16 | (uint64_t)plan->ranges[i].n << 8 | plan->ranges[i].kind;
    for (int i = 0; i < launch->n_constants; i += 2)
        key[n++] = (uint64_t)launch->constants[i].value << 32 |
                   (i + 1 < launch->n_constants ? launch->constants[i + 1].value : 0);
    const uint64_t h = hash_of(key, n);
    entry *found = look_up(d->pipelines, key, n, h);
    if (found) return found->value;
    ct_wgpu_pipeline *made = ct_wgpu_pipeline_of(d, launch, plan, lasting, op);
    if (!made || insert(d->pipelines, key, n, h, made)) return made;
    ct_wgpu_pipeline_drop(d, made);
    return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a shader"), NULL;
}

/* ---- Bind groups ---- */

enum { GROUPS_KEPT = 8192 };

static WGPUBindGroup group_for(ct_wgpu_device *d, const ct_wgpu_plan *plan, bool notes, const char *op) {
    if (d->groups && d->groups->used > GROUPS_KEPT) {
        if (!ct_wgpu_encode(d, op)) return NULL; /* what waits names some of them */
        empty(d->groups, let_group_go);
    }
    if (!table_of(&d->groups)) return ct_wgpu_host->fail(CT_ERR_MEMORY, op, "no memory for a bind group"), NULL;
    uint64_t key[KEY_WORDS];
    WGPUBindGroupEntry entries[CT_WGPU_SLOTS + 2];
    int n = 0, slots = plan->n_slots + notes;
    key[n++] = (uint64_t)slots << 8 | notes;
    for (int r = 0; r < plan->n_ranges; r++) {
        key[n++] = (uintptr_t)plan->ranges[r].buffer->buffer;
        key[n++] = plan->ranges[r].low;
        key[n++] = plan->ranges[r].high;
    }
    const uint64_t h = hash_of(key, n);
    entry *found = look_up(d->groups, key, n, h);
    if (found) return found->value;

    const WGPUBindGroupEntry none = WGPU_BIND_GROUP_ENTRY_INIT;
    for (int i = 0; i <= slots; i++) {
        entries[i] = none;
        entries[i].binding = (uint32_t)i;
    }
    entries[0].buffer = d->uniforms;
    entries[0].size = CT_WGPU_BLOCK;
    for (int r = 0; r < plan->n_ranges; r++) {
        const ct_wgpu_range *range = &plan->ranges[r];
        const uint64_t step = range->n > 1 ? (uint64_t)4 << plan->window : range->high - range->low;
        for (int k = 0; k < range->n; k++) {
            WGPUBindGroupEntry *e = &entries[range->first + k + 1];
            e->buffer = range->buffer->buffer;
            e->offset = range->low + (uint64_t)k * step;
            e->size = range->high - e->offset < step ? range->high - e->offset : step;
        }
    }
    if (notes) {
        entries[slots].buffer = d->word;
        entries[slots].size = CT_WGPU_WORD;
    }
    WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
    descriptor.layout = d->group_layouts[slots];
    descriptor.entryCount = (size_t)slots + 1;
    descriptor.entries = entries;
    ct_wgpu_push(d);
    WGPUBindGroup group = ct_wgpu.DeviceCreateBindGroup(d->device, &descriptor);
    const char *error = ct_wgpu_pop(d);
    if (error || !group || !insert(d->groups, key, n, h, group)) {
        if (group) ct_wgpu.BindGroupRelease(group);
        ct_wgpu_host->fail(CT_ERR_DEVICE, op, "its buffers cannot be bound: %s", error ? error : "there is no memory");
        return NULL;
    }
    return group;
}

void ct_wgpu_forget_buffer(ct_wgpu_device *d, const ct_wgpu_buffer *buffer) {
    ct_wgpu_table *t = d->groups;
    if (atomic_load(&d->lost)) d->n_waiting = 0;
    else ct_wgpu_encode(d, "free"); /* what waits may name it */
    if (!t) return;
    for (size_t i = 0; i < t->room; i++)
        for (int k = 1; t->entries[i].key && k < t->entries[i].n; k += 3)
            if (t->entries[i].key[k] == (uintptr_t)buffer->buffer) {
                empty(t, let_group_go); /* buffers are large and seldom given back */
                return;
            }
}

void ct_wgpu_launch_close(ct_wgpu_device *d) {
    empty(d->pipelines, let_pipeline_go);
    empty(d->groups, let_group_go);
    ct_wgpu_pipelines_close(d);
}

/* ---- Dispatches ---- */

static bool note(ct_wgpu_device *d, const ct_wgpu_caller *caller, const ct_wgpu_launch *launch) {
    if (d->n_noted == d->noted_room) {
        const int room = d->noted_room ? 2 * d->noted_room : 64;
        ct_wgpu_noted *grown = realloc(d->noted, (size_t)room * sizeof *grown);
        if (!grown) return ct_wgpu_host->fail(CT_ERR_MEMORY, caller->called, "no memory for a call");
        d->noted = grown;
        d->noted_room = room;
    }
    ct_wgpu_noted *noted = &d->noted[d->n_noted++];
    *noted = (ct_wgpu_noted){.op = caller->op, .called = caller->called, .flags = caller->flags};
    memcpy(noted->whats, launch->whats, sizeof noted->whats);
    return true;
}

static bool is_synchronous(void) {
    static _Atomic int known; /* 1 + it */
    if (!atomic_load(&known)) {
        const char *value = getenv("CT_SYNC");
        atomic_store(&known, value && *value && strcmp(value, "0") != 0 ? 2 : 1);
    }
    return atomic_load(&known) == 2;
}

bool ct_wgpu_dispatch(ct_wgpu_device *d, const ct_wgpu_caller *caller, const ct_wgpu_launch *launch, int64_t groups,
                      const void *params, size_t params_bytes) {
    const bool lasting = caller->flags & CT_CALL_LASTING;
    ct_wgpu_plan plan;
    if (groups <= 0) return true;
    if (launch->threads > d->limits.invocations || params_bytes > CT_WGPU_PARAMS || groups > UINT32_MAX)
        return ct_wgpu_host->fail(CT_ERR_STATE, caller->called, "shader %s of %s is beyond the limits",
                                  launch->function, launch->unit->name);
    if (!make_plan(d, launch, &plan, caller->called)) return false;
    ct_wgpu_pipeline *pipeline = pipeline_for(d, launch, &plan, lasting, caller->called);
    if (!pipeline) return false;
    if (!pipeline->made && !pipeline->waits && !ct_wgpu_pipeline_again(d, pipeline, caller->called)) return false;
    const bool notes = pipeline->notes;
    WGPUBindGroup group = group_for(d, &plan, notes, caller->called);
    if (!group) return false;
    const size_t bytes = (CT_WGPU_HEAD + params_bytes + CT_WGPU_ALIGNMENT - 1) & ~(size_t)(CT_WGPU_ALIGNMENT - 1);
    if ((d->dispatches >= CT_WGPU_BATCH || d->uniforms_used + bytes > CT_WGPU_RING) &&
        !ct_wgpu_flush(d, caller->called))
        return false;
    if (notes && !note(d, caller, launch)) return false;

    unsigned char *block = d->uniforms_here + d->uniforms_used;
    const uint32_t tail[4] = {(uint32_t)groups, notes ? (uint32_t)d->n_noted - 1 : 0, 0, 0};
    memcpy(block, plan.base, 16 * sizeof(uint32_t));
    memcpy(block + 64, tail, sizeof tail);
    if (params_bytes) memcpy(block + CT_WGPU_HEAD, params, params_bytes);
    const uint32_t offset = (uint32_t)d->uniforms_used;
    d->uniforms_used += bytes;
    d->dispatches++;

    const uint32_t most = d->limits.groups;
    const uint32_t y = (uint32_t)((groups + most - 1) / most), x = (uint32_t)((groups + y - 1) / y);
    const ct_wgpu_command command = {.pipeline = pipeline, .group = group, .offset = offset, .x = x, .y = y};
    if (!ct_wgpu_record(d, &command, caller->called)) return false;
    return !is_synchronous() || ct_wgpu_wait(d, caller->called);
}

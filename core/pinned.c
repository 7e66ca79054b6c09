/* Host memory that a device copies from and to directly. It comes from the device's backend in large parts, which an arena
 * divides; a tensor in it is one of the CPU whose memory is given back here. */
#include "core/alloc.h"
#include "core/device.h"
#include "core/device_memory.h"
#include "core/error.h"
#include "core/stream.h"

enum { GRANULE = 64, PART = 2 << 20 };

static ct_block *take_locked(ct_device_state *state, size_t size) {
    const ct_backend *backend = state->backend;
    void *memory;
    if (!state->pinned) {
        if (!(state->pinned = ct__alloc(sizeof *state->pinned))) return NULL;
        *state->pinned = (ct_arena){.books = &state->books, .least = GRANULE};
    }
    ct_block *block = ct__arena_take(state->pinned, size);
    if (block) return block;
    const size_t whole = ct__whole(size, PART);
    if (!backend->host_allocate(backend->self, state->device.index, whole, &memory)) return NULL;
    if (ct__arena_add(state->pinned, memory, whole)) return ct__arena_take(state->pinned, size);
    backend->host_release(backend->self, state->device.index, memory, whole);
    return NULL;
}

void ct__pinned_trim_locked(ct_device_state *state) {
    void *memory;
    size_t size;
    for (int bin = 0; state->pinned && ct__arena_remove(state->pinned, &bin, &memory, &size);)
        state->backend->host_release(state->backend->self, state->device.index, memory, size);
}

static void give(void *context, void *data) {
    ct_device_state *state = data;
    pthread_mutex_lock(&state->lock);
    ct__arena_give(context);
    pthread_mutex_unlock(&state->lock);
}

ct_tensor *ct_empty_pinned(ct_dims shape, ct_dtype dtype, ct_device device) {
    const char *me = "empty_pinned";
    const ct_device cpu = {CT_CPU, 0};
    ct_view view;
    if (!ct__device_ok(device, me) || !ct__view_of_shape(me, shape, dtype, &view)) return NULL;
    device = ct__resolved(device);
    if (!ct__backend(device.type)->host_allocate) return ct__scope_adopt(ct__tensor_dense(&view, cpu, me));
    ct_device_state *state = ct__device_state(device);
    const size_t bytes = (size_t)ct__view_count(&view) * ct_dtype_size(dtype);
    ct_block *block = NULL;
    if (state && bytes <= SIZE_MAX / 4) {
        pthread_mutex_lock(&state->lock);
        block = take_locked(state, ct__whole(bytes ? bytes : 1, GRANULE));
        pthread_mutex_unlock(&state->lock);
    }
    if (!block) {
        ct_fail(CT_ERR_MEMORY, me, "out of memory: %zu bytes of pinned memory could not be had from %s", bytes,
                ct_device_text(device));
        return NULL;
    }
    const ct_wrapped owner = {.release = give, .context = block, .data = state};
    ct_storage *storage = ct__storage_wrap(cpu, (char *)block->buffer + block->offset, bytes, owner, me);
    ct_tensor *x = storage ? ct__tensor_new(&view, storage) : NULL;
    ct__storage_release(storage); /* now the tensor's, or given back */
    return x ? ct__scope_adopt(x) : NULL;
}

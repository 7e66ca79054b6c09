/* Copies between devices: straight where one of them is the host or both are of one backend, else through the host. */
#include "core/transfer.h"

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/node.h"
#include "core/stream.h"

/* Events order the streams of one device; between two the host waits, before and after. */
static bool copy_peer(const ct_backend *backend, ct_storage *to, const ct_storage *from, size_t offset, size_t bytes) {
    ct_stream *stream = ct__stream_now(to->device), *source = ct__stream_now(from->device);
    return ct__stream_use(from, source, false) && ct__stream_wait(from->device, source) &&
           ct__stream_use(to, stream, true) &&
           backend->copy_peer(backend->self, to->device.index, to->buffer, to->block->offset, from->device.index,
                              from->buffer, from->block->offset + offset, bytes, stream) &&
           ct__stream_wait(to->device, stream);
}

static bool copy_bytes(ct_storage *to, const ct_storage *from, size_t offset, size_t bytes, const char *op) {
    const ct_backend *backend = ct__backend(to->device.type);
    if (!bytes) return true;
    if (from->device.type == CT_CPU) return ct__storage_put(to, 0, (const char *)from->buffer + offset, bytes);
    if (to->device.type == CT_CPU) return ct__storage_get(from, offset, to->buffer, bytes);
    if (from->device.type == to->device.type && backend->copy_peer) return copy_peer(backend, to, from, offset, bytes);
    void *host = ct__alloc(bytes);
    bool ok = host ? ct__storage_get(from, offset, host, bytes) && ct__storage_put(to, 0, host, bytes)
                   : ct__fail_memory(op, bytes);
    ct__free(host, bytes);
    return ok;
}

ct_tensor *ct__transfer(ct_tensor *x, ct_device device, const char *op) {
    if (!ct__valid(x, op, "x") || !ct__device_ok(device, op)) return NULL;
    if (!x->storage) {
        ct_fail(CT_ERR_STATE, op, "x has a shape but no data");
        return NULL;
    }
    device = ct__resolved(device);
    if (ct__same_device(x->storage->device, device)) return x;
    ct_tensor *dense = ct__view_is_dense(&x->view) ? x : ct_contiguous(x); /* where x is */
    if (!dense) return NULL;
    ct_view view = dense->view;
    const size_t size = ct_dtype_size(view.dtype);
    ct_tensor *y = ct__tensor_dense(&view, device, op);
    if (y && !copy_bytes(y->storage, dense->storage, (size_t)dense->view.offset * size, y->storage->bytes, op)) {
        ct__tensor_release(y);
        return NULL;
    }
    return ct__scope_adopt(y);
}

/* Replays of a captured graph: a loop over its records. Nothing is allocated, locked or counted here. */
#include <string.h>

#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/sized.h"
#include "core/stream.h"
#include "core/threads.h"

/* On a device, what the records read and write is used in the order of the stream of this thread. */
static bool enter(ct_graph *g) {
    for (int i = 0; i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        if (!s->kept || s->first > s->last || s->device.type == CT_CPU) continue;
        if (!ct__stream_use(s->kept, ct__stream_now(s->device), s->written)) return false;
    }
    for (int i = 0; i < g->n_blocks; i++) {
        const ct_device device = g->blocks[i]->device;
        if (device.type != CT_CPU && !ct__stream_use(g->blocks[i], ct__stream_now(device), true)) return false;
    }
    return true;
}

static void set_one(const ct_graph *g, const ct_drawn_at *drawn) {
    ct_random at = g->generators[drawn->generator].first;
    at.call += drawn->draw;
    if (drawn->position) {
        drawn->position[0] = (int64_t)at.seed;
        drawn->position[1] = (int64_t)at.stream;
        drawn->position[2] = (int64_t)at.call;
    } else {
        *drawn->random = at;
    }
}

static void set_position(const ct_graph *g, ct_record *record) {
    const ct_drawn_at own = {record->generator, record->draw, record->position, &record->call.random};
    if (!record->draws) set_one(g, &own);
    for (int i = 0; i < record->n_draws; i++) set_one(g, &record->draws[i]);
}

static bool run_call(ct_graph *g, ct_record *record) {
    ct_call *call = &record->call;
    if (record->generator >= 0) set_position(g, record);
    call->stream = call->device.type == CT_CPU ? NULL : ct__stream_now(call->device);
    ct__threads_hold(call->workers);
    const bool ok = call->kernel->run(call, call->stream);
    ct__threads_hold(0);
    return ok;
}

bool ct__graph_put(const ct_graph *g, ct_record *record) {
    if (record->generator >= 0) set_position(g, record);
    const ct_graph_slot *s = &g->slots[record->slot];
    ct_storage *storage = s->kept ? s->kept : ct__graph_block(g, s->device);
    const size_t offset = record->offset + (s->kept ? 0 : s->offset);
    if (record->kind == CT__PUT) return ct__storage_put(storage, offset, record->data, record->bytes);
    for (size_t k = 0; k + record->bytes <= s->bytes; k += record->bytes)
        if (!ct__storage_put(storage, offset + k, record->data, record->bytes)) return false;
    return true;
}

/* ---- Calls as one ---- */

/* Calls from record i on that a device can do as one: those of one device, without what changes from replay to replay. */
static int run_length(const ct_graph *g, int i, const ct_backend *backend) {
    const ct_device device = g->records[i].call.device;
    int n = 0;
    if (!backend->record_begin || !backend->record_end || !backend->record_launch || !backend->record_free) return 1;
    for (; i + n < g->n_records; n++) {
        const ct_record *record = &g->records[i + n];
        if (record->kind != CT__CALL || record->generator >= 0 || !ct__same_device(record->call.device, device)) break;
    }
    return n > 1 ? n : 1;
}

/* Records them at the first replay; what cannot be recorded is done one by one. */
static bool record_together(ct_graph *g, int i, const ct_backend *backend) {
    ct_record *first = &g->records[i];
    const ct_device device = first->call.device;
    ct_stream *stream = ct__stream_now(device);
    const int n = run_length(g, i, backend);
    first->together = 1;
    if (n == 1) return true;
    if (!backend->record_begin(backend->self, device.index, stream)) return false;
    bool ok = true;
    for (int k = 0; ok && k < n; k++) ok = run_call(g, &g->records[i + k]);
    void *handle = NULL;
    if (!backend->record_end(backend->self, device.index, stream, &handle)) return false;
    if (!ok || !handle) {
        if (handle) backend->record_free(backend->self, device.index, handle);
        ct_error_clear(); /* what a library does in it cannot be recorded */
        for (int k = 0; k < n; k++) g->records[i + k].together = 1;
        return true;
    }
    first->together = n;
    first->handle = handle;
    return true;
}

/* Does record i, and those that go with it; *i becomes the last of them. */
static bool run_calls(ct_graph *g, int *i) {
    ct_record *record = &g->records[*i];
    const ct_device device = record->call.device;
    if (device.type == CT_CPU) return run_call(g, record);
    const ct_backend *backend = ct__backend(device.type);
    if (!record->together && !record_together(g, *i, backend)) return false;
    if (!record->handle) return run_call(g, record);
    *i += record->together - 1;
    return backend->record_launch(backend->self, device.index, record->handle, ct__stream_now(device));
}

void ct__graph_forget(ct_graph *g) {
    for (int i = 0; i < g->n_records; i++) {
        const ct_device device = g->records[i].call.device;
        if (!g->records[i].handle) continue;
        const ct_backend *backend = ct__backend(device.type);
        ct_synchronize(device);
        backend->record_free(backend->self, device.index, g->records[i].handle);
        g->records[i].handle = NULL;
        g->records[i].together = 0;
    }
}

bool ct__graph_run(ct_graph *g, ct_record *record) {
    if (record->kind == CT__EFFECT) return record->effect(record->context) && ct_ok();
    if (record->kind != CT__CALL) return ct__graph_put(g, record);
    const ct_device device = record->call.device;
    if (device.type == CT_CPU) return run_call(g, record);
    ct_stream *stream = ct__stream_now(device);
    bool ok = true;
    for (int i = 0; ok && i < record->n_views; i++) {
        const ct_graph_slot *s = record->slots[i] >= 0 ? &g->slots[record->slots[i]] : NULL;
        if (s && s->device.type != CT_CPU)
            ok = ct__stream_use(s->kept ? s->kept : ct__graph_block(g, s->device), stream, !s->kept || s->written);
    }
    const ct_graph_slot *scratch = record->scratch >= 0 ? &g->slots[record->scratch] : NULL;
    ok = ok && (!scratch || ct__stream_use(ct__graph_block(g, device), stream, true));
    return ok && run_call(g, record);
}

/* ---- Public ---- */

bool ct__graph_replay(ct_graph *g, bool effects) {
    for (int i = 0; i < g->n_generators; i++)
        g->generators[i].first = ct__rng_take(g->generators[i].rng, g->generators[i].drawn);
    bool ok = !g->on_devices || enter(g);
    for (int i = 0; ok && i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        ok = record->kind == CT__CALL     ? run_calls(g, &i)
             : record->kind == CT__EFFECT ? !effects || (record->effect(record->context) && ct_ok())
                                          : ct__graph_put(g, record);
    }
    for (int i = 0; i < g->n_changed; i++) /* graphs that have saved them can tell */
        atomic_fetch_add_explicit(&g->slots[g->changed[i]].kept->version, 1, memory_order_relaxed);
    return ok;
}

bool ct_replay(ct_graph *g) {
    if (ct__pending()) return false;
    if (!g) return ct__fail_null("replay", "graph");
    if (ct__capturing) return ct_fail(CT_ERR_STATE, "replay", "a replay cannot be part of a capture");
    if (g->replaying)
        return ct_fail(CT_ERR_STATE, "replay", "the graph is being replayed already, by this thread or another");
    const char *fault = ct__graph_fault(g);
    if (fault) return ct_fail(CT_ERR_STATE, "replay", "%s: capture it again", fault);
    g->replaying = true;
    const bool ok = ct__variables_send(g) &&
                    ((g->flags & CT_CAPTURE_CHECK) ? ct__graph_check_replay(g) : ct__graph_replay(g, true));
    g->replaying = false;
    return ok;
}

bool ct_graph_describe(const ct_graph *g, ct_graph_info *info) {
    if (!g) return ct__fail_null("graph_describe", "graph");
    if (!info) return ct__fail_null("graph_describe", "info");
    ct_graph_info all = {.size = sizeof all, .records = g->n_records, .needed_bytes = g->needed};
    for (int i = 0; i < g->n_blocks; i++) all.planned_bytes += (int64_t)g->blocks[i]->bytes;
    for (int i = 0; i < g->n_slots; i++)
        if (g->slots[i].made && g->slots[i].kept) all.kept_bytes += (int64_t)g->slots[i].bytes;
    const uint32_t size = info->size;
    if (size < sizeof size)
        return ct_fail(CT_ERR_VALUE, "graph_describe", "info->size is %u; it has to be sizeof(ct_graph_info)", size);
    ct__sized_fill(info, size, &all, sizeof all);
    info->size = size;
    return true;
}

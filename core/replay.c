/* Replays of a captured graph: a loop over its records. Nothing is allocated, locked or counted here. */
#include <stdatomic.h>
#include <string.h>

#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/sized.h"
#include "core/stream.h"
#include "core/threads.h"

/* On a device, what the records read and write is used in the order of the stream of this thread. */
static bool enter(ct_graph *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        if (!s->kept || s->first > s->last || s->device.type == CT_CPU) continue;
        ok = ct__stream_use(s->kept, ct__stream_now(s->device), s->written);
    }
    for (int i = 0; ok && i < g->n_blocks; i++) {
        const ct_device device = g->blocks[i]->device;
        ok = device.type == CT_CPU || ct__stream_use(g->blocks[i], ct__stream_now(device), true);
    }
    for (int i = 0; ok && i < g->n_data; i++)
        ok = ct__stream_use(g->data[i].there, ct__stream_now(g->data[i].device), false);
    return ok;
}

void ct__graph_draw(const ct_graph *g, const ct_drawn_at *drawn) {
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
    if (!record->draws) ct__graph_draw(g, &own);
    for (int i = 0; i < record->n_draws; i++) ct__graph_draw(g, &record->draws[i]);
}

bool ct__graph_call(ct_graph *g, ct_record *record) {
    ct_call *call = &record->call;
    if (record->generator >= 0) set_position(g, record);
    call->stream = call->device.type == CT_CPU ? NULL : ct__stream_now(call->device);
    ct__threads_hold(call->workers);
    const bool ok = call->kernel->run(call, call->stream);
    ct__threads_hold(0);
    return ok;
}

/* On a device: a pattern over a slot, or what has been brought over, to where it is changed. */
static bool put_there(const ct_graph *g, const ct_record *record, const ct_storage *to, size_t offset) {
    const ct_graph_slot *s = &g->slots[record->slot];
    const ct_backend *backend = ct__backend(s->device.type);
    ct_stream *stream = ct__stream_now(s->device);
    const size_t at = to->block->offset + offset;
    if (record->kind == CT__FILL)
        return backend->fill(backend->self, s->device.index, to->buffer, at, record->data, record->bytes,
                             s->bytes / record->bytes, stream);
    for (int i = 0; i < g->n_data; i++) {
        const ct_storage *from = g->data[i].there;
        if (ct__same_device(from->device, s->device))
            return backend->copy(backend->self, s->device.index, to->buffer, at, from->buffer,
                                 from->block->offset + record->place, record->bytes, stream);
    }
    return false;
}

bool ct__graph_put(const ct_graph *g, ct_record *record) {
    const ct_graph_slot *s = &g->slots[record->slot];
    size_t offset;
    ct_storage *storage = ct__graph_place(g, s, &offset);
    if (s->data) return true; /* it came with all of the graph's data */
    if (s->device.type != CT_CPU && (record->kind == CT__FILL || record->in_data))
        return ct__stream_use(storage, ct__stream_now(s->device), true) &&
               put_there(g, record, storage, offset + record->offset);
    if (record->generator >= 0) set_position(g, record);
    if (record->kind == CT__PUT) return ct__storage_put(storage, offset + record->offset, record->data, record->bytes);
    for (size_t k = 0; k + record->bytes <= s->bytes; k += record->bytes)
        if (!ct__storage_put(storage, offset + k, record->data, record->bytes)) return false;
    return true;
}

bool ct__graph_run(ct_graph *g, ct_record *record) {
    if (record->kind != CT__CALL) return ct__graph_put(g, record);
    const ct_device device = record->call.device;
    if (device.type == CT_CPU) return ct__graph_call(g, record);
    ct_stream *stream = ct__stream_now(device);
    bool ok = true;
    for (int i = 0; ok && i < record->n_views; i++) {
        const ct_graph_slot *s = record->slots[i] >= 0 ? &g->slots[record->slots[i]] : NULL;
        size_t offset;
        if (s && s->device.type != CT_CPU)
            ok = ct__stream_use(ct__graph_place(g, s, &offset), stream, !s->kept || s->written);
    }
    const ct_graph_slot *scratch = record->scratch >= 0 ? &g->slots[record->scratch] : NULL;
    ok = ok && (!scratch || ct__stream_use(ct__graph_block(g, device), stream, true));
    return ok && ct__graph_call(g, record);
}

/* ---- Public ---- */

/* Of a device that does work as one. */
static bool is_there(const ct_graph *g, const ct_record *record) {
    return record->together ||
           ct__records_work(record->kind == CT__CALL ? record->call.device : g->slots[record->slot].device);
}

static bool run_effect(const ct_record *record) {
    if (record->effect(record->context)) return ct_ok();
    return ct_ok() ? ct_fail(CT_ERR_STATE, "replay", "an effect failed without an error") : false;
}

bool ct__graph_replay(ct_graph *g, bool effects) {
    for (int i = 0; i < g->n_generators; i++)
        g->generators[i].first = ct__rng_take(g->generators[i].rng, g->generators[i].drawn);
    bool ok = (!g->on_devices || enter(g)) && ct__graph_data_send(g);
    const bool timed = ct__replay_is_timed(g);
    for (int i = 0; ok && i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        const int first = i;
        if (timed) ct__replay_time_begin(g);
        ok = record->kind == CT__EFFECT ? !effects || run_effect(record)
             : is_there(g, record)      ? ct__graph_run_together(g, &i)
             : record->kind == CT__CALL ? ct__graph_call(g, record)
                                        : ct__graph_put(g, record);
        if (timed) ct__replay_time_end(g, first, i);
    }
    if (ok && timed) ok = ct__replay_times_read(g);
    for (int i = 0; i < g->n_changed; i++) /* graphs that have saved them can tell */
        atomic_fetch_add_explicit(&g->slots[g->changed[i]].kept->version, 1, memory_order_relaxed);
    return ok;
}

bool ct_replay(ct_graph *g) {
    if (ct__pending()) return false;
    if (!g) return ct__fail_null("replay", "graph");
    if (ct__capturing) return ct_fail(CT_ERR_STATE, "replay", "a replay cannot be part of a capture");
    if (atomic_exchange(&g->replaying, true))
        return ct_fail(CT_ERR_STATE, "replay", "the graph is being replayed already, by this thread or another");
    const char *fault = ct__graph_fault(g);
    const bool ok = fault ? ct_fail(CT_ERR_STATE, "replay", "%s: capture it again", fault)
                          : ct__variables_send(g) &&
                                ((g->flags & CT_CAPTURE_CHECK) ? ct__graph_check_replay(g) : ct__graph_replay(g, true));
    atomic_store(&g->replaying, false);
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

/* Work as one: what lies between two things that only the host can do is recorded by a device that can, at the first replay, and launched at
 * once from then on. What the host writes in a replay does not come between: it lies in one block for each such device, brought over in one
 * copy before all else. */
#include <string.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/passes/passes.h"
#include "core/stream.h"

bool ct__records_work(ct_device device) {
    if (device.type == CT_CPU) return false;
    const ct_backend *backend = ct__backend(device.type);
    return backend->record_begin && backend->record_end && backend->record_launch && backend->record_free;
}

/* ---- Data ---- */

enum { DATA_ALIGNMENT = 256 };

/* The number of a device's data; -1 after an error. */
static int data_of(ct_graph *g, ct_device device) {
    for (int i = 0; i < g->n_data; i++)
        if (ct__same_device(g->data[i].device, device)) return i;
    if (g->n_data == CT__GRAPH_BLOCKS) {
        ct_fail(CT_ERR_STATE, "capture", "it uses more than %d devices", CT__GRAPH_BLOCKS);
        return -1;
    }
    g->data[g->n_data].device = device;
    return g->n_data++;
}

static bool is_put_in_replays(const ct_graph *g, const ct_record *record) {
    return record->kind == CT__PUT && !record->once && ct__records_work(g->slots[record->slot].device);
}

/* A place for what the record puts; its slot lies there too where nothing else writes to it. */
static bool take_place(ct_graph *g, ct_record *record, bool writes_alone) {
    ct_graph_slot *s = &g->slots[record->slot];
    const int number = data_of(g, s->device);
    if (number < 0) return false;
    ct_graph_data *data = &g->data[number];
    const bool holds_slot = writes_alone && !s->kept;
    record->in_data = true;
    record->place = data->bytes + (holds_slot ? record->offset : 0);
    if (holds_slot) {
        s->data = number + 1;
        s->offset = data->bytes;
    }
    const size_t taken = holds_slot ? s->bytes : record->bytes;
    data->bytes += (taken + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    data->moving_room += record->generator >= 0;
    return true;
}

static bool allocate_data(ct_graph_data *data) {
    const size_t moving = (size_t)data->moving_room * sizeof *data->moving;
    data->here = ct__alloc(data->bytes);
    data->moving = moving ? ct__alloc(moving) : NULL;
    if (!data->here || (moving && !data->moving)) return ct__fail_memory("capture", data->bytes + moving);
    memset(data->here, 0, data->bytes);
    data->there = ct__storage_new(data->device, data->bytes, "capture");
    return data->there != NULL;
}

static void move_into_data(ct_graph_data *data, ct_record *record) {
    record->data = memcpy(data->here + record->place, record->data, record->bytes);
    if (record->generator < 0) return;
    record->position = (int64_t *)(void *)record->data;
    data->moving[data->n_moving++] = (ct_drawn_at){record->generator, record->draw, record->position, NULL};
}

bool ct__graph_data_plan(ct_graph *g) {
    int *writers = ct__graph_writers(g);
    bool ok = writers != NULL;
    for (int i = 0; ok && i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        if (is_put_in_replays(g, record)) ok = take_place(g, record, writers[record->slot] == 1);
    }
    for (int i = 0; ok && i < g->n_data; i++) ok = allocate_data(&g->data[i]);
    for (int i = 0; ok && i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        if (record->in_data) move_into_data(&g->data[data_of(g, g->slots[record->slot].device)], record);
    }
    ct__free(writers, (size_t)g->n_slots * sizeof *writers);
    return ok;
}

bool ct__graph_data_send(ct_graph *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n_data; i++) {
        ct_graph_data *data = &g->data[i];
        if (data->sent && !data->n_moving) continue;
        for (int k = 0; k < data->n_moving; k++) ct__graph_draw(g, &data->moving[k]);
        ok = data->sent = ct__storage_put(data->there, 0, data->here, data->bytes);
    }
    return ok;
}

void ct__graph_data_free(ct_graph *g) {
    for (int i = 0; i < g->n_data; i++) {
        ct_graph_data *data = &g->data[i];
        ct__storage_release(data->there);
        ct__free(data->here, data->here ? data->bytes : 0);
        ct__free(data->moving, data->moving ? (size_t)data->moving_room * sizeof *data->moving : 0);
    }
    g->n_data = 0;
}

/* ---- Recording ---- */

ct_device ct__record_device(const ct_graph *g, const ct_record *record) {
    return record->kind == CT__EFFECT ? (ct_device){CT_CPU, 0}
           : record->kind == CT__CALL ? record->call.device
                                      : g->slots[record->slot].device;
}

/* It is the same in every replay, and the device's. */
static bool is_recordable(const ct_graph *g, const ct_record *record, ct_device device) {
    if (record->kind == CT__EFFECT || !ct__same_device(ct__record_device(g, record), device)) return false;
    if (record->kind == CT__CALL) return record->generator < 0;
    return record->kind == CT__FILL || record->in_data;
}

static bool run(ct_graph *g, ct_record *record) {
    return record->kind == CT__CALL ? ct__graph_call(g, record) : ct__graph_put(g, record);
}

/* Tells the backend what the k-th record of a recording comes after. */
static bool branch_off(const ct_backend *backend, ct_device device, ct_stream *stream, const ct_branch *branches,
                       int k) {
    int parts[64], n = 0;
    for (int d = 0; d < 64; d++)
        if (branches[k].after >> d & 1) parts[n++] = k - 1 - d;
    return backend->record_from(backend->self, device.index, stream, parts, n);
}

/* A handle for n records from record i on; NULL without an error where what a library does in them cannot be recorded. With branches, of those
 * that have them. */
static bool record_as_one(ct_graph *g, int i, int n, ct_device device, const ct_branch *branches, void **handle) {
    const ct_backend *backend = ct__backend(device.type);
    ct_stream *stream = ct__stream_now(device);
    *handle = NULL;
    if (!backend->record_begin(backend->self, device.index, stream)) return false;
    bool ok = ct__replay_mark(g, i, CT__MARK_BEFORE);
    for (int k = 0; ok && k < n; k++)
        ok = (!branches || branch_off(backend, device, stream, branches, k)) && run(g, &g->records[i + k]) &&
             ct__replay_mark(g, i + k, CT__MARK_BEHIND);
    ok = ok && ct__replay_mark(g, i + n - 1, CT__MARK_AGAIN);
    if (!backend->record_end(backend->self, device.index, stream, handle)) return false;
    if (ok && *handle) return true;
    if (*handle) backend->record_free(backend->self, device.index, *handle);
    *handle = NULL;
    ct_error_clear();
    return true;
}

/* A second recording with branches, and a handle of both. */
static bool add_branches(ct_graph *g, int i, int n, ct_device device, void **handle) {
    const ct_backend *backend = ct__backend(device.type);
    void *by_parts = NULL;
    if (!*handle || !g->window || !backend->record_from || !backend->record_either) return true;
    if (ct__replay_is_marked(g, device)) return true; /* between marks, records are done one by one */
    ct_branch *branches = ct__branches_find(g, i, n, g->window, true);
    if (!branches) return false;
    const bool ok = record_as_one(g, i, n, device, branches, &by_parts);
    ct__branches_free(branches, n);
    if (by_parts) *handle = backend->record_either(backend->self, device.index, *handle, by_parts);
    return ok;
}

/* Records what goes together from record i on, at the first replay; what cannot be recorded is done one by one. */
static bool record_together(ct_graph *g, int i, ct_device device) {
    ct_record *first = &g->records[i];
    void *handle = NULL;
    int n = 0;
    first->together = 1;
    while (i + n < g->n_records && is_recordable(g, &g->records[i + n], device)) n++;
    if (n < 2) return true;
    const bool ok = record_as_one(g, i, n, device, NULL, &handle) && add_branches(g, i, n, device, &handle);
    if (handle) first->together = n, first->handle = handle;
    else
        for (int k = 0; k < n; k++) g->records[i + k].together = 1;
    return ok;
}

bool ct__graph_run_together(ct_graph *g, int *i) {
    ct_record *record = &g->records[*i];
    const ct_device device = ct__record_device(g, record);
    if (!record->together && !record_together(g, *i, device)) return false;
    if (!record->handle)
        return ct__replay_mark(g, *i, CT__MARK_BEFORE) && run(g, record) && ct__replay_mark(g, *i, CT__MARK_BEHIND) &&
               ct__replay_mark(g, *i, CT__MARK_AGAIN);
    const ct_backend *backend = ct__backend(device.type);
    *i += record->together - 1;
    return backend->record_launch(backend->self, device.index, record->handle, ct__stream_now(device));
}

void ct__graph_forget(ct_graph *g) {
    for (int i = 0; i < g->n_records; i++) {
        if (!g->records[i].handle) continue;
        const ct_device device = ct__record_device(g, &g->records[i]);
        const ct_backend *backend = ct__backend(device.type);
        ct_synchronize(device);
        backend->record_free(backend->self, device.index, g->records[i].handle);
        g->records[i].handle = NULL;
        g->records[i].together = 0;
    }
}

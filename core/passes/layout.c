/* Channels last, by CT_CAPTURE_LAYOUT: images between convolutions lie in memory as [N, places, C] where they were recorded as [N, C, places],
 * so that a network written channels first runs kernels for channels last without transposing at each of them. The bits change, since
 * kernels add in another order.
 *
 * An image is a slot of the graph's own that records see as a whole [N,C,H,W], [N,C,D,H,W] or [N,C,places]. Those that convolutions touch
 * change, weights of the graph's own too, such as casts: [out, kernel..., in] is what such kernels want. So do those that elementwise ops
 * and ops with an option channels_last have beside them. Such an op gets the option and views with the channels at the end, an elementwise
 * op views whose axes have changed places, and any other op other strides. Kernels are chosen anew; where an op has none for that, the
 * images that it touches stay as they were. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/passes.h"

typedef enum image_state { UNKNOWN, IMAGE, REFUSED } image_state;

typedef struct image {
    image_state state;
    bool last; /* it changes */
    int64_t items, channels, places;
} image;

typedef struct relayout {
    ct_graph *graph;
    image *images;     /* of each slot; slots that are added later are none */
    ct_record *copies; /* of the records that change, in order */
    int *changed;      /* which they are */
    int n_copies, n_slots;
} relayout;

/* ---- Images ---- */

/* [N, C, places], whatever axes the places have. */
static image image_of(const ct_view *view) {
    image im = {.state = IMAGE, .items = view->dims[0], .channels = view->dims[1], .places = 1};
    for (int d = 2; d < view->ndim; d++) im.places *= view->dims[d];
    return im;
}

static bool is_whole_image(const ct_graph *g, const ct_view *view, int slot) {
    return view->ndim >= 3 && view->ndim <= 5 && !view->offset && ct__view_is_dense(view) &&
           (size_t)ct__view_count(view) * ct_dtype_size(view->dtype) == g->slots[slot].bytes;
}

static void see(relayout *r, const ct_record *record, int i) {
    image *known = &r->images[record->slots[i]];
    const ct_graph_slot *s = &r->graph->slots[record->slots[i]];
    if (known->state == REFUSED) return;
    if (s->kept || record->once || !is_whole_image(r->graph, &record->views[i], record->slots[i])) {
        known->state = REFUSED;
        return;
    }
    const image now = image_of(&record->views[i]);
    const bool same = now.items == known->items && now.channels == known->channels && now.places == known->places;
    if (known->state == UNKNOWN) *known = now;
    else if (!same) known->state = REFUSED;
}

static void find_images(relayout *r) {
    const ct_graph *g = r->graph;
    for (int k = 0; k < g->n_records; k++) {
        const ct_record *record = &g->records[k];
        for (int i = 0; i < record->n_views; i++)
            if (record->slots[i] >= 0) see(r, record, i);
        const int other = record->kind == CT__CALL ? record->scratch : record->slot;
        if (other >= 0) r->images[other].state = REFUSED;
    }
}

static bool is_last(const relayout *r, int slot) { return slot >= 0 && slot < r->n_slots && r->images[slot].last; }

/* ---- Ops ---- */

/* The option channels_last of an op, if it has one. */
static const ct_attr *layout_option(const ct_op *op) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (attr->type == CT_ATTR_BOOL && strcmp(attr->name, "channels_last") == 0) return attr;
    return NULL;
}

static bool is_channels_first(const ct_record *record) {
    const ct_attr *option = layout_option(record->call.op);
    return option && record->call.attrs && !*((const bool *)record->call.attrs + option->offset);
}

/* The axes of all its operands may change places together: elementwise ops, casts and copies. */
static bool is_elementwise(const ct_record *record) {
    const ct_op *op = record->call.op;
    if (op->flags & CT_OP_ELEMENTWISE) return true;
    if (!(op->flags & CT_OP_MOVES) || record->call.n_in != 1 || record->call.n_out != 1 || record->generator >= 0 ||
        (op->attr_size && !op->attrs))
        return false;
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (attr->type != CT_ATTR_DTYPE) return false;
    return ct__view_same_shape(record->call.in[0], record->call.out[0]);
}

/* The weight of a convolution is [out, in, kernel...], and with channels last [kernel..., in, out]. */
static bool is_weight(const ct_record *record, int i) {
    int last = 0;
    const ct_op *op = record->call.op;
    const ct_arg *arg = i < record->call.n_in ? ct__input_arg(op, i, &last) : &op->outputs[i - record->call.n_in];
    return strcmp(arg->name, "w") == 0;
}

static bool has_weight(const ct_record *record) {
    for (int i = 0; i < record->n_views; i++)
        if (record->call.in[i] && is_weight(record, i)) return true;
    return false;
}

/* ---- Which images change ---- */

/* Those beside the ones that change do so too; true if there were any. */
static bool spread(relayout *r, const ct_record *record) {
    const bool first = is_channels_first(record);
    bool touched = first && has_weight(record), more = false;
    if (!first && !is_elementwise(record)) return false;
    for (int i = 0; i < record->n_views && !touched; i++) touched = is_last(r, record->slots[i]);
    for (int i = 0; touched && i < record->n_views; i++) {
        const int slot = record->slots[i];
        if (slot < 0 || r->images[slot].state != IMAGE || r->images[slot].last) continue;
        r->images[slot].last = more = true;
    }
    return more;
}

static int choose_images(relayout *r) {
    const ct_graph *g = r->graph;
    int n = 0;
    for (int i = 0; i < r->n_slots; i++) r->images[i].last = false;
    for (bool more = true; more;) { /* there and back: most are found in the first round */
        more = false;
        for (int k = 0; k < g->n_records; k++) more |= g->records[k].kind == CT__CALL && spread(r, &g->records[k]);
        for (int k = g->n_records - 1; k >= 0; k--) more |= g->records[k].kind == CT__CALL && spread(r, &g->records[k]);
    }
    for (int i = 0; i < r->n_slots; i++) n += r->images[i].last;
    return n;
}

/* ---- Records with other views ---- */

static void restride(const image *im, ct_view *view) {
    int64_t next = im->channels;
    view->strides[0] = im->channels * im->places;
    view->strides[1] = 1;
    for (int d = view->ndim - 1; d >= 2; d--) {
        view->strides[d] = next;
        next *= view->dims[d];
    }
}

static void permute(ct_view *view, const int *axes) {
    const ct_view old = *view;
    for (int d = 0; d < view->ndim; d++) view->dims[d] = old.dims[axes[d]], view->strides[d] = old.strides[axes[d]];
}

static void channels_to_the_end(ct_view *view) {
    int axes[CT_MAX_DIMS] = {0};
    for (int d = 2; d < view->ndim; d++) axes[d - 1] = d;
    axes[view->ndim - 1] = 1;
    permute(view, axes);
}

static void transpose_weight(ct_view *view) {
    int axes[CT_MAX_DIMS];
    for (int d = 2; d < view->ndim; d++) axes[d - 2] = d;
    axes[view->ndim - 2] = 1;
    axes[view->ndim - 1] = 0;
    permute(view, axes);
}

/* What the op says of these inputs is what its results are. */
static bool infers_the_same(const ct_record *record) {
    const ct_call *call = &record->call;
    enum { MOST = 8 };
    ct_view out[MOST];
    if (!call->op->infer || call->n_out > MOST) return false;
    memset(out, 0, sizeof out);
    ct_infer infer = {
        .op = call->op, .attrs = call->attrs, .n_in = call->n_in, .n_out = call->n_out, .in = call->in, .out = out};
    bool same = call->op->infer(&infer);
    ct_error_clear(); /* that it does not fit is all there is to know */
    for (int i = 0; same && i < call->n_out; i++)
        same = !call->out[i] || (ct__view_same_shape(&out[i], call->out[i]) && out[i].dtype == call->out[i]->dtype);
    return same;
}

/* The record for images that have changed, with a kernel for it. False: there is none, or after an error (ct_ok tells). */
static bool change(relayout *r, ct_record *record) {
    const bool first = is_channels_first(record), elementwise = is_elementwise(record);
    const int rank = record->call.n_out && record->call.out[0] ? record->call.out[0]->ndim : 0;
    for (int i = 0; i < record->n_views; i++)
        if (is_last(r, record->slots[i])) restride(&r->images[record->slots[i]], &record->views[i]);
    for (int i = 0; i < record->n_views; i++) {
        ct_view *view = &record->views[i];
        if (!record->call.in[i]) continue;
        if (first && view->ndim >= 3) is_weight(record, i) ? transpose_weight(view) : channels_to_the_end(view);
        if (elementwise && view->ndim == rank && rank >= 3) channels_to_the_end(view);
    }
    if (first) *((bool *)(uintptr_t)record->call.attrs + layout_option(record->call.op)->offset) = true;
    return infers_the_same(record) && ct__record_choose(r->graph, record);
}

static void free_copies(relayout *r) {
    for (int i = 0; i < r->n_copies; i++) ct__free(r->copies[i].block, r->copies[i].block_bytes);
    r->n_copies = 0;
}

static bool touches(const relayout *r, const ct_record *record) {
    for (int i = 0; i < record->n_views; i++)
        if (is_last(r, record->slots[i])) return true;
    return false;
}

/* Copies of all records that change. *refused: one could not, and the images that it touches will stay as they are. False after an error. */
static bool try_change(relayout *r, bool *refused) {
    ct_graph *g = r->graph;
    *refused = false;
    for (int k = 0; k < g->n_records && !*refused; k++) {
        if (g->records[k].kind != CT__CALL || !touches(r, &g->records[k])) continue;
        if (!ct__record_clone(&g->records[k], &r->copies[r->n_copies])) return false;
        r->changed[r->n_copies] = k;
        *refused = !change(r, &r->copies[r->n_copies++]);
        if (!ct_ok()) return false;
        for (int i = 0; *refused && i < g->records[k].n_views; i++)
            if (is_last(r, g->records[k].slots[i])) r->images[g->records[k].slots[i]].state = REFUSED;
    }
    return true;
}

bool ct__pass_layout(ct_graph *g) {
    const size_t image_bytes = (size_t)g->n_slots * sizeof(image),
                 copy_bytes = (size_t)g->n_records * sizeof(ct_record),
                 changed_bytes = (size_t)g->n_records * sizeof(int);
    relayout r = {.graph = g, .n_slots = g->n_slots};
    r.images = ct__alloc(image_bytes);
    r.copies = ct__alloc(copy_bytes);
    r.changed = ct__alloc(changed_bytes);
    bool ok = r.images && r.copies && r.changed, refused = true;
    int n = 0;
    if (!ok) ct__fail_memory("capture", image_bytes + copy_bytes + changed_bytes);
    if (ok) {
        memset(r.images, 0, image_bytes);
        find_images(&r);
    }
    while (ok && refused && (n = choose_images(&r)) > 0) {
        free_copies(&r);
        ok = try_change(&r, &refused);
    }
    if (ok && n > 0) {
        for (int i = 0; i < r.n_copies; i++) {
            const ct_record old = g->records[r.changed[i]];
            g->records[r.changed[i]] = r.copies[i];
            ct__free(old.block, old.block_bytes);
        }
        ct__pass_note(g, "%d images have their channels last, in %d records", n, r.n_copies);
        r.n_copies = 0;
    }
    free_copies(&r);
    ct__free(r.images, image_bytes);
    ct__free(r.copies, copy_bytes);
    ct__free(r.changed, changed_bytes);
    return ok;
}

/* Numbers of the program's own that change from replay to replay. In a captured function each is a place in one small block of data, which
 * ct_graph_set writes on the host's side and the next replay brings over in one copy. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/graph.h"

enum { NAME_BYTES = 48, MOST = 64, PLACE = CT_NUMBER_BYTES };

struct ct_graph_variables {
    ct_storage *block;
    unsigned char values[MOST * PLACE]; /* what the block holds, or will in the next replay */
    struct {
        char name[NAME_BYTES];
        ct_dtype dtype;
    } of[MOST];
    int n;
    bool changed;
};

static int find(const struct ct_graph_variables *v, const char *name) {
    for (int i = 0; v && i < v->n; i++)
        if (strcmp(v->of[i].name, name) == 0) return i;
    return -1;
}

static bool fits(const char *me, const char *name, ct_dtype dtype, double value) {
    return ct_dtype_is_float(dtype) || (value == floor(value) && !isinf(value)) ||
           ct_fail(CT_ERR_DTYPE, me, "%s is %g, which no %s is", name, value, ct_dtype_name(dtype));
}

/* The block lies on a device from the beginning: what writes to it is the host, between replays. */
static struct ct_graph_variables *block_of(ct_graph *g, ct_device device) {
    if (g->variables) return g->variables;
    struct ct_graph_variables *v = ct__alloc(sizeof *v);
    if (!v) return ct__fail_memory("capture_variable", sizeof *v), NULL;
    memset(v, 0, sizeof *v);
    if (!(v->block = ct__storage_new(device, sizeof v->values, "capture_variable"))) {
        ct__free(v, sizeof *v);
        return NULL;
    }
    return g->variables = v;
}

static bool add(ct_graph *g, const char *name, double value, const ct_tensor *like) {
    const char *me = "capture_variable";
    struct ct_graph_variables *v = block_of(g, like->storage->device);
    if (!v) return false;
    if (v->n == MOST) return ct_fail(CT_ERR_STATE, me, "a graph has at most %d variables", MOST);
    unsigned char *place = v->values + (size_t)v->n * PLACE;
    ct__dtype_put(like->view.dtype, place, value);
    if (!ct__storage_put(v->block, (size_t)v->n * PLACE, place, PLACE)) return false;
    snprintf(v->of[v->n].name, NAME_BYTES, "%s", name);
    v->of[v->n++].dtype = like->view.dtype;
    return true;
}

/* The same name twice in a function is one variable, so it has to be one number. Eager steps do not mind: it cannot be captured. */
static bool agrees(const struct ct_graph_variables *v, int i, double value, const ct_tensor *like, bool checking) {
    const char *me = "capture_variable", *name = v->of[i].name;
    unsigned char number[PLACE] = {0};
    if (v->of[i].dtype != like->view.dtype)
        return ct_fail(CT_ERR_STATE, me, "%s is %s and %s in one function", name, ct_dtype_name(v->of[i].dtype),
                       ct_dtype_name(like->view.dtype));
    if (v->block->device.type != like->storage->device.type || v->block->device.index != like->storage->device.index)
        return ct_fail(CT_ERR_STATE, me, "%s is on %s and like on %s", name, ct_device_text(v->block->device),
                       ct_device_text(like->storage->device));
    ct__dtype_put(v->of[i].dtype, number, value);
    return checking || memcmp(number, v->values + (size_t)i * PLACE, PLACE) == 0 ||
           ct_fail(CT_ERR_STATE, me, "%s is %g and %g in one function; two numbers need two names", name,
                   ct__dtype_get(v->of[i].dtype, v->values + (size_t)i * PLACE), value);
}

static ct_tensor *place_of(const struct ct_graph_variables *v, int i) {
    const ct_view view = {.dtype = v->of[i].dtype,
                          .offset = (int64_t)i * PLACE / (int64_t)ct__dtype_size(v->of[i].dtype)};
    ct_tensor *x = ct__tensor_new(&view, v->block);
    return x ? ct__scope_adopt(x) : NULL;
}

/* The number of the variable; -1 after an error: it cannot be captured, or not be checked against what was. */
static int find_or_add(ct_graph *g, const char *name, double value, const ct_tensor *like, bool checking) {
    int i = find(g->variables, name);
    if (i < 0 && checking) {
        ct_fail(CT_ERR_STATE, "capture_variable", "%s is none of the variables that the graph was captured with", name);
        return -1;
    }
    if (i < 0) {
        const bool suspended = ct_capture_suspend(), ok = add(g, name, value, like);
        ct_capture_resume(suspended);
        if (!ok) return -1;
        i = find(g->variables, name);
    }
    return agrees(g->variables, i, value, like, checking) ? i : -1;
}

ct_tensor *ct_capture_variable(const char *name, double value, const ct_tensor *like) {
    const char *me = "capture_variable";
    if (!name) return ct__fail_null(me, "name"), NULL;
    if (!ct__valid(like, me, "like")) return NULL;
    if (!*name || strlen(name) >= NAME_BYTES)
        return ct_fail(CT_ERR_VALUE, me, "name has to have 1 to %d characters", NAME_BYTES - 1), NULL;
    if (!like->storage) return ct_fail(CT_ERR_STATE, me, "like has a shape but no data"), NULL;
    if (!fits(me, name, like->view.dtype, value)) return NULL;
    ct_graph *g = ct__capturing, *owner = g && g->checked ? g->checked : g;
    if (g) {
        const bool was_pending = ct__pending();
        const int i = find_or_add(owner, name, value, like, owner != g);
        if (i >= 0) return place_of(owner->variables, i);
        ct__capture_give_up(was_pending);
    }
    return ct_full(CT_DIMS0, value, .dtype = like->view.dtype, .device = like->storage->device);
}

static bool fail_unknown(const struct ct_graph_variables *v, const char *name) {
    char all[512] = "none";
    size_t used = 0;
    for (int i = 0; v && i < v->n && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", v->of[i].name);
    return ct_fail(CT_ERR_VALUE, "graph_set", "the graph has no variable named %s; there are: %s", name, all);
}

bool ct_graph_set(ct_graph *g, const char *name, double value) {
    const char *me = "graph_set";
    if (ct__pending()) return false;
    if (!g || !name) return ct__fail_null(me, g ? "name" : "graph");
    struct ct_graph_variables *v = g->variables;
    const int i = find(v, name);
    if (i < 0) return fail_unknown(v, name);
    if (!fits(me, name, v->of[i].dtype, value)) return false;
    ct__dtype_put(v->of[i].dtype, v->values + (size_t)i * PLACE, value);
    v->changed = true;
    return true;
}

bool ct__variables_send(ct_graph *g) {
    struct ct_graph_variables *v = g->variables;
    if (!v || !v->changed) return true;
    if (!ct__storage_put(v->block, 0, v->values, (size_t)v->n * PLACE)) return false;
    atomic_fetch_add(&v->block->version, 1);
    v->changed = false;
    return true;
}

void ct__variables_free(struct ct_graph_variables *v) {
    if (!v) return;
    ct__storage_release(v->block);
    ct__free(v, sizeof *v);
}

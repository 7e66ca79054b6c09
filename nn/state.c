/* ct_state: tensors and texts by name, in the order in which they were put. Two lists of the same kind, each with an index
 * by name beside it, so that a state of a hundred thousand tensors is still put together in linear time. */
#include <cotangent/op.h>
#include <cotangent/state.h>
#include <stdlib.h>
#include <string.h>

#include "support/text.h"

typedef struct item {
    char *name;
    ct_tensor *x; /* in the list of tensors */
    char *text;   /* in that of texts */
} item;

typedef struct list {
    item *items;
    int64_t count, capacity;
    int64_t *slots; /* open addressing: place in items + 1, 0 where empty; a power of two, at least twice the count */
    int64_t slot_count;
} list;

struct ct_state {
    list tensors, texts;
};

static uint64_t hash_of(const char *name) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* The slot that holds the name, or the empty one where it would go. */
static int64_t slot_of(const list *l, const char *name) {
    const int64_t mask = l->slot_count - 1;
    int64_t i = (int64_t)(hash_of(name) & (uint64_t)mask);
    while (l->slots[i] && strcmp(l->items[l->slots[i] - 1].name, name) != 0) i = (i + 1) & mask;
    return i;
}

static const item *find(const list *l, const char *name) {
    if (!name || l->slot_count == 0) return NULL;
    const int64_t place = l->slots[slot_of(l, name)];
    return place ? &l->items[place - 1] : NULL;
}

static bool out_of_memory(const char *function) { return ct_fail(CT_ERR_MEMORY, function, "out of memory"); }

static bool make_room(list *l, const char *function) {
    if (l->count < l->capacity) return true;
    const int64_t larger = l->capacity ? 2 * l->capacity : 32;
    item *items = ct_realloc(l->items, (size_t)larger * sizeof *items);
    if (!items) return out_of_memory(function);
    l->items = items;
    int64_t *slots = ct_calloc((size_t)(2 * larger), sizeof *slots);
    if (!slots) return out_of_memory(function);
    ct_free(l->slots);
    l->slots = slots;
    l->slot_count = 2 * larger;
    l->capacity = larger;
    for (int64_t i = 0; i < l->count; i++) l->slots[slot_of(l, l->items[i].name)] = i + 1;
    return true;
}

static bool valid(const ct_state *state, const char *name, const char *function) {
    if (!ct_ok()) return false;
    if (!state) return ct_fail(CT_ERR_NULL, function, "argument state is NULL");
    if (!name) return ct_fail(CT_ERR_NULL, function, "argument name is NULL");
    return true;
}

/* Adds an item of that name; the caller sets what it holds. NULL, with an error, when it cannot. */
static item *add(list *l, const char *name, const char *function) {
    if (find(l, name)) {
        ct_fail(CT_ERR_VALUE, function, "\"%s\" is in the state already", name);
        return NULL;
    }
    char *copy = make_room(l, function) ? ct__text_copy(name, strlen(name)) : NULL;
    if (!copy) {
        out_of_memory(function);
        return NULL;
    }
    item *added = &l->items[l->count];
    *added = (item){.name = copy};
    l->slots[slot_of(l, name)] = ++l->count;
    return added;
}

ct_state *ct_state_new(void) {
    ct_state *state = ct_calloc(1, sizeof *state);
    if (!state) out_of_memory("state_new");
    return state;
}

static void free_list(list *l) {
    for (int64_t i = 0; i < l->count; i++) {
        ct_drop(l->items[i].x);
        ct_free(l->items[i].text);
        ct_free(l->items[i].name);
    }
    ct_free(l->items);
    ct_free(l->slots);
}

void ct_state_free(ct_state *state) {
    if (!state) return;
    free_list(&state->tensors);
    free_list(&state->texts);
    ct_free(state);
}

bool ct_state_put(ct_state *state, const char *name, ct_tensor *x) {
    if (!valid(state, name, "state_put")) return false;
    if (!x) return ct_fail(CT_ERR_NULL, "state_put", "\"%s\": argument x is NULL", name);
    if (!ct_keep(x)) return false;
    item *added = add(&state->tensors, name, "state_put");
    if (!added) {
        ct_drop(x);
        return false;
    }
    added->x = x;
    return true;
}

bool ct_state_put_text(ct_state *state, const char *name, const char *text) {
    if (!valid(state, name, "state_put_text")) return false;
    if (!text) return ct_fail(CT_ERR_NULL, "state_put_text", "\"%s\": argument text is NULL", name);
    char *copy = ct__text_copy(text, strlen(text));
    if (!copy) return out_of_memory("state_put_text");
    item *added = add(&state->texts, name, "state_put_text");
    if (!added) {
        ct_free(copy);
        return false;
    }
    added->text = copy;
    return true;
}

static bool put_list(ct_state *state, const char *name, const void *values, int64_t count, ct_dtype dtype,
                     const char *function) {
    if (!valid(state, name, function)) return false;
    if (count < 0) return ct_fail(CT_ERR_VALUE, function, "\"%s\": count is %lld", name, (long long)count);
    if (!values && count) return ct_fail(CT_ERR_NULL, function, "\"%s\": argument values is NULL", name);
    ct_scope {
        /* on the CPU: not every device has f64 */
        ct_tensor *x = ct_zeros(CT_DIMS(count), .dtype = dtype, .device = {CT_CPU, 0});
        return x && ct_write(x, values, (size_t)count * ct_dtype_size(dtype)) && ct_state_put(state, name, x);
    }
    return false;
}

bool ct_state_put_numbers(ct_state *state, const char *name, const double *values, int64_t count) {
    return put_list(state, name, values, count, CT_F64, "state_put_numbers");
}

bool ct_state_put_integers(ct_state *state, const char *name, const int64_t *values, int64_t count) {
    return put_list(state, name, values, count, CT_I64, "state_put_integers");
}

ct_tensor *ct_state_get(const ct_state *state, const char *name) {
    const item *found = state ? find(&state->tensors, name) : NULL;
    return found ? found->x : NULL;
}

const char *ct_state_text(const ct_state *state, const char *name) {
    const item *found = state ? find(&state->texts, name) : NULL;
    return found ? found->text : NULL;
}

static bool get_list(const ct_state *state, const char *name, void *values, int64_t count, ct_dtype dtype,
                     const char *function) {
    if (!valid(state, name, function)) return false;
    if (!values && count) return ct_fail(CT_ERR_NULL, function, "\"%s\": argument values is NULL", name);
    ct_tensor *x = ct_state_get(state, name);
    if (!x) return ct_fail(CT_ERR_VALUE, function, "the state has no \"%s\"", name);
    if (ct_dtype_of(x) != dtype || ct_ndim(x) != 1 || ct_dim(x, 0) != count)
        return ct_fail(CT_ERR_SHAPE, function, "\"%s\" is %s, expected %s[%lld]", name, ct_tensor_text(x),
                       ct_dtype_name(dtype), (long long)count);
    return count == 0 || ct_read(x, values, (size_t)count * ct_dtype_size(dtype));
}

bool ct_state_numbers(const ct_state *state, const char *name, double *values, int64_t count) {
    return get_list(state, name, values, count, CT_F64, "state_numbers");
}

bool ct_state_integers(const ct_state *state, const char *name, int64_t *values, int64_t count) {
    return get_list(state, name, values, count, CT_I64, "state_integers");
}

static const item *at(const list *l, int64_t i) { return i >= 0 && i < l->count ? &l->items[i] : NULL; }

int64_t ct_state_count(const ct_state *state) { return state ? state->tensors.count : 0; }

const char *ct_state_name(const ct_state *state, int64_t i) {
    const item *found = state ? at(&state->tensors, i) : NULL;
    return found ? found->name : NULL;
}

ct_tensor *ct_state_at(const ct_state *state, int64_t i) {
    const item *found = state ? at(&state->tensors, i) : NULL;
    return found ? found->x : NULL;
}

int64_t ct_state_text_count(const ct_state *state) { return state ? state->texts.count : 0; }

const char *ct_state_text_name(const ct_state *state, int64_t i) {
    const item *found = state ? at(&state->texts, i) : NULL;
    return found ? found->name : NULL;
}

const char *ct_state_text_at(const ct_state *state, int64_t i) {
    const item *found = state ? at(&state->texts, i) : NULL;
    return found ? found->text : NULL;
}

const ct_setting *ct_setting_at(const ct_setting *settings, int i) { return settings && i >= 0 ? settings + i : NULL; }

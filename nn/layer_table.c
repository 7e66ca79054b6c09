/* Layers by name: for bindings, and for programs that let people choose. Values come as texts, as those of ops do. */
#include "nn/layer_table.h"

#include <stdio.h>
#include <string.h>

const ct_layer_info *ct_layer_at(int i) { return i >= 0 && i < ct__layer_count ? &ct__layers[i].info : NULL; }

const ct_layer_info *ct_layer_find(const char *name) {
    for (int i = 0; name && i < ct__layer_count; i++)
        if (strcmp(ct__layers[i].info.name, name) == 0) return &ct__layers[i].info;
    return NULL;
}

/* The whole entry of one that ct_layer_at or ct_layer_find gave; NULL for any other. */
static const ct__layer *entry_of(const ct_layer_info *info) {
    for (int i = 0; info && i < ct__layer_count; i++)
        if (&ct__layers[i].info == info) return &ct__layers[i];
    return NULL;
}

const ct_attr *ct_layer_argument(const ct_layer_info *info, int i) {
    const ct__layer *layer = entry_of(info);
    if (!layer || i < 0) return NULL;
    for (const ct_attr *a = layer->params; a->name; a++)
        if (i-- == 0) return a;
    for (const ct_attr *a = layer->options; a->name; a++)
        if ((layer->takes >> (a - layer->options) & 1) && i-- == 0) return a;
    return NULL;
}

static bool has(const ct_attr *list, uint64_t takes, const char *name) {
    for (const ct_attr *a = list; name && a->name; a++)
        if ((takes >> (a - list) & 1) && strcmp(a->name, name) == 0) return true;
    return false;
}

static bool fill(const ct__layer *layer, const char *function, void *params, void *options, const ct_named_text *given,
                 int n) {
    for (int i = 0; i < n; i++) {
        const char *name = given[i].name;
        const bool option = has(layer->options, layer->takes, name);
        if (!option && !has(layer->params, UINT64_MAX, name))
            return ct_fail(CT_ERR_VALUE, function, "has no argument named %s", name ? name : "NULL");
        const ct_op as_op = {.size = sizeof as_op, .name = function, .attrs = option ? layer->options : layer->params};
        if (!ct_attrs_set(&as_op, option ? options : params, name, given[i].text)) return false;
    }
    for (const ct_attr *a = layer->params; a->name; a++) {
        bool found = !a->required;
        for (int i = 0; i < n && !found; i++) found = strcmp(given[i].name, a->name) == 0;
        if (!found) return ct_fail(CT_ERR_VALUE, function, "%s has to be given", a->name);
    }
    return true;
}

ct_module *ct_layer_build(const ct_layer_info *info, const ct_named_text *given, int n) {
    const ct__layer *layer = entry_of(info);
    if (!ct_ok()) return NULL;
    if (!layer || (n > 0 && !given)) {
        ct_fail(info && !layer ? CT_ERR_VALUE : CT_ERR_NULL, "layer_build", "argument %s",
                !info    ? "info is NULL"
                : !layer ? "info is not one of the table's"
                         : "given is NULL");
        return NULL;
    }
    char function[64];
    snprintf(function, sizeof function, "nn_%s", info->name);
    /* the options begin with their size; a line apart, both are aligned for anything */
    const size_t room = ((size_t)layer->params_size / 64 + 1) * 64;
    char *params = ct_calloc(1, room + layer->options_size), *options = params ? params + room : NULL;
    if (!params) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
        return NULL;
    }
    const size_t size = layer->options_size;
    if (size) memcpy(options, &size, sizeof size);
    ct_module *module = fill(layer, function, params, options, given, n) ? layer->build(params, options) : NULL;
    ct_free(params);
    return module;
}

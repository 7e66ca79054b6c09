/* A module's parameters and buffers as a state, and back: everything is compared before anything changes. */
#include "nn/module.h"

#include <stdio.h>
#include <stdlib.h>

static bool given(const ct_module *module, const void *state, const char *prefix, const char *function) {
    if (!ct_ok()) return false;
    if (module && state && prefix) return true;
    return ct_fail(CT_ERR_NULL, function, "argument %s is NULL", !module ? "module" : !state ? "state" : "prefix");
}

/* prefix and name joined, in memory that the caller frees. */
static char *join(const char *prefix, const char *name, const char *function) {
    const size_t bytes = strlen(prefix) + strlen(name) + 1;
    char *text = malloc(bytes);
    if (text) snprintf(text, bytes, "%s%s", prefix, name);
    else ct_fail(CT_ERR_MEMORY, function, "out of memory");
    return text;
}

bool ct_module_put_state(ct_module *module, ct_state *state, const char *prefix) {
    if (!given(module, state, prefix, "module_put_state")) return false;
    ct_parameters *list = ct_module_parameters(module);
    bool ok = list != NULL;
    for (int i = 0; ok && i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        char *name = join(prefix, p->name, "module_put_state");
        ok = name && ct_state_put(state, name, ct_parameter_tensor(p));
        free(name);
    }
    ct_parameters_free(list);
    return ok;
}

static bool same_kind(const ct_tensor *a, const ct_tensor *b) {
    const ct_dims p = ct_shape(a), q = ct_shape(b);
    return ct_dtype_of(a) == ct_dtype_of(b) && p.n == q.n && memcmp(p.d, q.d, (size_t)p.n * sizeof *p.d) == 0;
}

static bool listed(const ct_parameters *list, const char *name) {
    for (int i = 0; i < ct_parameters_count(list); i++)
        if (strcmp(ct_parameters_at(list, i)->name, name) == 0) return true;
    return false;
}

/* Whether state fits; values[i], NULL where it has none, is what the i-th gets. */
static bool match(const ct_parameters *list, const ct_state *state, const char *prefix, bool partial,
                  ct_tensor **values) {
    const char *function = "module_take_state";
    int64_t matched = 0;
    for (int i = 0; i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        char *name = join(prefix, p->name, function);
        if (!name) return false;
        values[i] = ct_state_get(state, name);
        bool ok = true;
        if (!values[i]) ok = partial || ct_fail(CT_ERR_VALUE, function, "the state has no \"%s\"", name);
        else if (!same_kind(values[i], ct_parameter_tensor(p)))
            ok = ct_fail(CT_ERR_SHAPE, function, "\"%s\" is %s, the module's is %s", name, ct_tensor_text(values[i]),
                         ct_tensor_text(ct_parameter_tensor(p)));
        else matched++;
        free(name);
        if (!ok) return false;
    }
    if (partial) return true;
    const size_t length = strlen(prefix);
    for (int64_t i = 0; i < ct_state_count(state); i++) {
        const char *name = ct_state_name(state, i);
        if (strncmp(name, prefix, length) != 0) continue;
        if (matched-- > 0 && listed(list, name + length)) continue;
        return ct_fail(CT_ERR_VALUE, function, "the state has a \"%s\" that the module lacks", name);
    }
    return true;
}

bool ct_module_take_state(ct_module *module, const ct_state *state, const char *prefix, bool partial) {
    if (!given(module, state, prefix, "module_take_state")) return false;
    ct_parameters *list = ct_module_parameters(module);
    if (!list) return false;
    const int count = ct_parameters_count(list);
    ct_tensor **values = calloc((size_t)count + 1, sizeof(ct_tensor *));
    bool ok = values || ct_fail(CT_ERR_MEMORY, "module_take_state", "out of memory");
    ok = ok && match(list, state, prefix, partial, values);
    ct_scope {
        ct_no_grad {
            for (int i = 0; ok && i < count; i++) {
                ct_tensor *x = ct_parameter_tensor(ct_parameters_at(list, i));
                if (values[i] && values[i] != x) ok = ct_assign(x, values[i]) != NULL;
            }
        }
    }
    free(values);
    ct_parameters_free(list);
    return ok;
}

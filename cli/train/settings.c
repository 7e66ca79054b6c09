/* Things that are chosen by name and have settings that are numbers: models, optimizers, schedules, transforms. What there
 * is comes from the tables of the library; this file reads a choice and says what is wrong with it. */
#include "cli/train/recipe.h"

#include "cli/cli.h"
#include "support/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The same four functions over each of the library's tables. */
#define PART_TYPE(id, what, info_type, at_function, field, count)                              \
    static const void *id##_at(int i) { return at_function(i); }                               \
    static const char *id##_name(const void *info) { return ((const info_type *)info)->name; } \
    static const char *id##_doc(const void *info) { return ((const info_type *)info)->doc; }   \
    static int id##_settings(const void *info, const ct_setting **list) {                      \
        const info_type *from = info;                                                          \
        *list = from->field;                                                                   \
        return from->count < MOST_SETTINGS ? from->count : MOST_SETTINGS;                      \
    }                                                                                          \
    const part_type part_##id = {what, id##_at, id##_name, id##_doc, id##_settings};
PART_TYPE(models, "model", ct_model_info, model_at, settings, count)
PART_TYPE(optimizers, "optimizer", ct_optim_info, ct_optim_info_at, settings, count)
PART_TYPE(schedules, "schedule", ct_schedule_info, ct_schedule_info_at, settings, count)
PART_TYPE(transforms, "transform", ct_transform_info, ct_transform_at, settings, count)

const char *nearest_text(char *text, size_t capacity, const char *word, const char *const *names, int n) {
    const char *near = cli_nearest(word, names, n);
    if (near) {
        snprintf(text, capacity, "; did you mean '%s'?", near);
        return text;
    }
    size_t used = (size_t)snprintf(text, capacity, "%s", n == 0 ? "" : n == 1 ? "; there is" : "; there are");
    for (int i = 0; i < n && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : " ", names[i]);
    return text;
}

static const void *find(const part_type *type, const char *name) {
    for (int i = 0;; i++) {
        const void *info = type->at(i);
        if (!info || strcmp(type->name(info), name) == 0) return info;
    }
}

static bool fail_name(const part_type *type, const tree *node) {
    char near[512];
    const char *names[128];
    int n = 0;
    for (const void *info; n < 128 && (info = type->at(n)); n++) names[n] = type->name(info);
    return tree_fail(node, "there is no %s '%s'%s", type->what, node->text,
                     nearest_text(near, sizeof near, node->text, names, n));
}

/* The value of one setting, which has to be of its kind: what is wrong is said as it is written. */
static bool read_value(const ct_setting *setting, const char *of, const tree *node, double *value) {
    const bool flag = setting->kind == CT_SETTING_FLAG;
    const char *wanted = flag ? "true or false" : setting->kind == CT_SETTING_WHOLE ? "a whole number" : "a number";
    bool truth;
    if (flag && tree_bool(node, &truth)) {
        *value = truth;
        return true;
    }
    if (tree_number(node, value)) {
        const char *more = ct__setting_wants(setting, *value);
        if (!more) return true;
        if (!flag) wanted = more;
    }
    buffer is = {0};
    tree_write_short(node, &is);
    tree_fail(node, "%s of %s is %s, not %s", node->key, of, wanted, is.failed ? "this" : is.at);
    buffer_free(&is);
    return false;
}

static bool read_setting(const part_type *type, part *p, const ct_setting *list, int n, const tree *node) {
    const char *names[MOST_SETTINGS];
    for (int i = 0; i < n; i++) {
        names[i] = list[i].name;
        if (strcmp(node->key, names[i]) != 0) continue;
        return p->given[i] = read_value(&list[i], p->name, node, &p->values[i]);
    }
    char near[512];
    if (n == 0) return tree_fail_key(node, "the %s %s has no settings, so no '%s'", type->what, p->name, node->key);
    return tree_fail_key(node, "the %s %s has no setting '%s'%s", type->what, p->name, node->key,
                         nearest_text(near, sizeof near, node->key, names, n));
}

bool part_read(const part_type *type, const tree *node, part *p) {
    *p = (part){.node = node};
    const tree *name = node->kind == TREE_TEXT ? node : tree_get(node, "name");
    const tree *settings = node->kind == TREE_MAP ? node : NULL;
    tree inner = {0};
    /* `- flip: {p: 0.5}` is the same as `- {name: flip, p: 0.5}` */
    if (!name && node->kind == TREE_MAP && node->n == 1 && node->at[0]->kind == TREE_MAP) {
        inner =
            (tree){.kind = TREE_TEXT, .text = node->at[0]->key, .source = node->source, .line = node->at[0]->key_line};
        name = &inner;
        settings = node->at[0];
    }
    if (!name) return tree_fail(node, "a %s needs a name, as in %s: {name: ...}", type->what, type->what);
    if (name->kind != TREE_TEXT) return tree_fail(name, "the name of a %s is one word", type->what);
    p->info = find(type, name->text);
    if (!p->info) return fail_name(type, name);
    p->name = type->name(p->info);
    const ct_setting *list;
    const int n = type->settings(p->info, &list);
    for (int i = 0; i < n; i++) p->values[i] = list[i].value;
    for (int i = 0; settings && i < settings->n; i++)
        if (settings->at[i] != name && !read_setting(type, p, list, n, settings->at[i])) return false;
    for (int i = 0; i < n; i++)
        if (isnan(p->values[i]))
            return tree_fail(node, "the %s %s needs '%s' (%s)", type->what, p->name, list[i].name, list[i].doc);
    return true;
}

int part_index(const part_type *type, const part *p, const char *setting_name) {
    const ct_setting *list = NULL;
    const int n = p->info ? type->settings(p->info, &list) : 0;
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, setting_name) == 0) return i;
    return -1;
}

bool recipe_capture(const char *text, ct_train_mode *mode) {
    static const char *const names[] = {"auto", "true", "false"}; /* as the modes are counted */
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) return *mode = (ct_train_mode)i, true;
    return false;
}

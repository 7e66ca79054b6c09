/* Reading a recipe: a reader for each key of recipe.def, into the struct of recipe.h. */
#include "cli/train/recipe.h"

#include "cli/cli.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Texts and numbers ---- */

static bool read_text(const tree *node, const char **text) {
    if (node->kind != TREE_TEXT) return tree_fail(node, "%s is a text", node->key);
    *text = node->text;
    return true;
}

/* One byte that can stand between the fields of a line. */
static bool read_character(const tree *node, const char **text) {
    if (!read_text(node, text)) return false;
    return ((*text)[0] && !(*text)[1] && !strchr("\"\r\n", (*text)[0])) ||
           tree_fail_value(node, "one character, neither a quote nor a line end");
}

static bool read_integer(const tree *node, int64_t least, int64_t most, int64_t *value) {
    char wanted[96];
    if (tree_integer(node, value) && *value >= least && *value <= most) return true;
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)least, (long long)most);
    return tree_fail_value(node, wanted);
}

static bool read_number(const tree *node, double least, double most, double *value) {
    char wanted[96];
    if (tree_number(node, value) && *value >= least && *value <= most) return true;
    if (isinf(most)) snprintf(wanted, sizeof wanted, "a number, %g or more", least);
    else snprintf(wanted, sizeof wanted, "a number from %g to %g", least, most);
    return tree_fail_value(node, wanted);
}

static bool read_flag(const tree *node, bool *value) {
    return tree_bool(node, value) || tree_fail_value(node, "true or false");
}

#define KEY_TEXT(name) \
    static bool read_text_##name(recipe *r, const tree *node) { return read_text(node, &r->name); }
#define KEY_INTEGER(name, least, most) \
    static bool read_integer_##name(recipe *r, const tree *node) { return read_integer(node, least, most, &r->name); }
#define KEY_NUMBER(name, least, most) \
    static bool read_number_##name(recipe *r, const tree *node) { return read_number(node, least, most, &r->name); }
#define KEY_FLAG(name) \
    static bool read_flag_##name(recipe *r, const tree *node) { return read_flag(node, &r->name); }
#define KEY_PART(name, type) \
    static bool read_part_##name(recipe *r, const tree *node) { return part_read(&type, node, &r->name); }
KEY_TEXT(about)
KEY_INTEGER(epochs, 1, MOST_EPOCHS)
KEY_INTEGER(batch, 1, 1 << 24)
KEY_INTEGER(seed, 0, INT64_MAX)
KEY_INTEGER(early_stopping, 0, 1000000)
KEY_INTEGER(loader_threads, 0, 64)
KEY_INTEGER(accumulate, 1, 1 << 20)
KEY_FLAG(recompute)
KEY_FLAG(channels_last)
KEY_INTEGER(shards, 0, 4096)
KEY_NUMBER(clip_norm, 0, INFINITY)
KEY_NUMBER(ema, 0, 0.999999)
KEY_NUMBER(checkpoint_seconds, 0, INFINITY)
KEY_PART(model, part_models)
KEY_PART(schedule, part_schedules)

static bool read_part_optimizer(recipe *r, const tree *node) {
    if (!part_read(&part_optimizers, node, &r->optimizer)) return false;
    if (!((const ct_optim_info *)r->optimizer.info)->needs_loss) return true;
    return tree_fail(node, "%s evaluates the loss itself several times per step, which the command does not do",
                     r->optimizer.name);
}

static bool read_precision(recipe *r, const tree *node) {
    static const char *const names[] = {"f32", "tf32", "bf16", "f16"};
    char near[128];
    if (node->kind != TREE_TEXT) return tree_fail_value(node, "f32, tf32, bf16 or f16");
    r->tf32 = strcmp(node->text, "tf32") == 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(node->text, names[i]) == 0) return ct_dtype_parse(r->tf32 ? "f32" : names[i], &r->precision);
    return tree_fail(node, "there is no precision '%s'%s", node->text,
                     nearest_text(near, sizeof near, node->text, names, 4));
}

static bool read_capture(recipe *r, const tree *node) {
    return (node->kind == TREE_TEXT && recipe_capture(node->text, &r->capture)) ||
           tree_fail_value(node, "true, false or auto");
}

/* ---- Data ---- */

typedef enum field_type { TYPE_TEXT, TYPE_CHARACTER, TYPE_NUMBER, TYPE_INTEGER, TYPE_BOOL } field_type;
static const struct {
    const char *name;
    field_type type;
    size_t offset;
    const char *doc;
} fields[] = {
#define FIELD(type, name, value, doc) {#name, TYPE_##type, offsetof(recipe_data, name), doc},
#include "cli/train/recipe.def"
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const struct {
    const char *name, *fields, *doc;
} kinds[] = {
#define KIND(name, fields, doc) {#name, fields, doc},
#include "cli/train/recipe.def"
#undef KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *data_kind_name(data_kind kind) { return kinds[kind].name; }

/* Whether a word is among those of a list with blanks between them. */
static bool listed(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    return false;
}

static bool read_field(recipe_data *data, int i, const tree *node) {
    void *to = (char *)data + fields[i].offset;
    switch (fields[i].type) {
    case TYPE_TEXT: return read_text(node, to);
    case TYPE_CHARACTER: return read_character(node, to);
    case TYPE_NUMBER: return read_number(node, 0, 1, to); /* fractions only, so far */
    case TYPE_INTEGER: return read_integer(node, 0, INT32_MAX, to);
    case TYPE_BOOL: return read_flag(node, to);
    }
    return false;
}

static bool read_data(recipe *r, const tree *node) {
    char near[512];
    const char *names[(int)FIELDS + (int)KINDS];
    const tree *kind = node->kind == TREE_TEXT ? node : tree_get(node, "kind");
    if (!kind || kind->kind != TREE_TEXT)
        return tree_fail(node, "data needs a kind, as in data: {kind: mnist, path: ...}");
    int k = 0;
    for (; k < KINDS && strcmp(kinds[k].name, kind->text) != 0; k++) names[k] = kinds[k].name;
    if (k == KINDS)
        return tree_fail(kind, "there is no kind of data '%s'%s", kind->text,
                         nearest_text(near, sizeof near, kind->text, names, KINDS));
    r->data.kind = (data_kind)k;
    for (int c = 0; node->kind == TREE_MAP && c < node->n; c++) {
        const tree *child = node->at[c];
        if (child == kind) continue;
        int n = 0, found = -1;
        for (int i = 0; i < FIELDS; i++) {
            if (!listed(kinds[k].fields, fields[i].name)) continue;
            if (strcmp(fields[i].name, child->key) == 0) found = i;
            names[n++] = fields[i].name;
        }
        if (found < 0)
            return tree_fail_key(child, "data of kind %s has no '%s'%s", kinds[k].name, child->key,
                                 nearest_text(near, sizeof near, child->key, names, n));
        if (!read_field(&r->data, found, child)) return false;
    }
    return true;
}

/* A number, or a list of them. */
static bool read_channels(const tree *node, double *values, int *n) {
    *n = node->kind == TREE_LIST ? node->n : 1;
    if (*n < 1 || *n > MOST_CHANNELS)
        return tree_fail(node, "%s is a number or a list of up to %d", node->key, MOST_CHANNELS);
    for (int i = 0; i < *n; i++)
        if (!tree_number(node->kind == TREE_LIST ? node->at[i] : node, &values[i]))
            return tree_fail_value(node, "a number or a list of numbers");
    return true;
}

static bool read_normalize(recipe *r, const tree *node) {
    bool on;
    if (node->kind == TREE_TEXT && strcmp(node->text, "auto") == 0) r->normalize = NORMALIZE_AUTO;
    else if (node->kind == TREE_TEXT && strcmp(node->text, "none") == 0) r->normalize = NORMALIZE_NONE;
    else if (tree_bool(node, &on)) r->normalize = on ? NORMALIZE_AUTO : NORMALIZE_NONE;
    else {
        const tree *mean = tree_get(node, "mean"), *std = tree_get(node, "std");
        int n = 0;
        if (!mean || !std || node->n != 2) return tree_fail_value(node, "auto, none or {mean: ..., std: ...}");
        if (!read_channels(mean, r->mean, &r->channels) || !read_channels(std, r->std, &n)) return false;
        if (n != r->channels) return tree_fail(node, "normalize has %d means and %d deviations", r->channels, n);
        for (int i = 0; i < n; i++)
            if (!(r->std[i] > 0)) return tree_fail(std, "a deviation is above 0, not %g", r->std[i]);
        r->normalize = NORMALIZE_GIVEN;
    }
    return true;
}

/* ---- Lists ---- */

static bool read_transforms(recipe *r, const tree *node) {
    if (node->kind != TREE_LIST || node->n > MOST_TRANSFORMS)
        return tree_fail(node, "transforms is a list of at most %d", MOST_TRANSFORMS);
    for (int i = 0; i < node->n; i++)
        if (!part_read(&part_transforms, node->at[i], &r->transforms[r->transform_count++])) return false;
    return true;
}

static bool read_group(recipe *r, const tree *node) {
    static const char *const names[] = {"pattern", "lr", "weight_decay", "momentum"};
    ct_group_options *to = &r->groups[r->group_count].options;
    char near[128];
    *to = (ct_group_options){.size = sizeof *to};
    r->groups[r->group_count].node = node;
    const tree *pattern = tree_get(node, "pattern");
    if (!pattern)
        return tree_fail(node,
                         "a group needs a pattern of parameters' names, as in {pattern: \"*.bias\", weight_decay: 0}");
    if (!read_text(pattern, &r->groups[r->group_count++].pattern)) return false;
    for (int i = 0; i < node->n; i++) {
        const tree *child = node->at[i];
        double value = 0;
        if (child == pattern) continue;
        int which = 1;
        while (which < 4 && strcmp(child->key, names[which]) != 0) which++;
        if (which == 4)
            return tree_fail_key(child, "a group has no '%s'%s", child->key,
                                 nearest_text(near, sizeof near, child->key, names, 4));
        if (!read_number(child, 0, INFINITY, &value)) return false;
        /* zero would be taken for the optimizer's own; what is not to be learned is frozen */
        if (which == 1 && value == 0) return tree_fail_value(child, "a number above 0");
        if (which == 1) to->lr = value;
        else if (which == 2) to->weight_decay = CT_SET(value);
        else to->momentum = CT_SET(value);
    }
    return true;
}

static bool read_groups(recipe *r, const tree *node) {
    if (node->kind != TREE_LIST || node->n > MOST_GROUPS)
        return tree_fail(node, "groups is a list of at most %d", MOST_GROUPS);
    for (int i = 0; i < node->n; i++)
        if (!read_group(r, node->at[i])) return false;
    return true;
}

static bool read_metrics(recipe *r, const tree *node) {
    char near[256];
    const char *names[64];
    int n = 0;
    while (n < 64 && metric_name_at(n)) names[n] = metric_name_at(n), n++;
    if (node->kind != TREE_LIST || node->n > MOST_METRICS)
        return tree_fail(node, "metrics is a list of at most %d", MOST_METRICS);
    for (int i = 0; i < node->n; i++) {
        const tree *child = node->at[i];
        if (child->kind != TREE_TEXT) return tree_fail(child, "a metric is a name");
        int m = 0;
        while (m < n && strcmp(names[m], child->text) != 0) m++;
        if (m == n)
            return tree_fail(child, "there is no metric '%s'%s", child->text,
                             nearest_text(near, sizeof near, child->text, names, n));
        for (int k = 0; k < r->metric_count; k++)
            if (r->metrics[k] == names[m]) return tree_fail(child, "the metric '%s' stands here twice", names[m]);
        r->metrics[r->metric_count++] = names[m];
    }
    return true;
}

static bool read_distributed(recipe *r, const tree *node) {
    static const char *const names[] = {"shard", "tensor", "bf16", "sync_batch_norm"};
    char near[128];
    if (node->kind != TREE_MAP) return tree_fail(node, "distributed is a map, as in {shard: 3, tensor: 2}");
    r->distributed.node = node;
    for (int i = 0; i < node->n; i++) {
        const tree *child = node->at[i];
        if (strcmp(child->key, "shard") == 0) {
            if (!read_integer(child, 0, 3, &r->distributed.shard)) return false;
        } else if (strcmp(child->key, "tensor") == 0) {
            if (!read_integer(child, 1, 4096, &r->distributed.tensor)) return false;
        } else if (strcmp(child->key, "bf16") == 0) {
            if (!read_flag(child, &r->distributed.bf16)) return false;
        } else if (strcmp(child->key, "sync_batch_norm") == 0) {
            if (!read_flag(child, &r->distributed.sync_batch_norm)) return false;
        } else
            return tree_fail_key(child, "distributed has no '%s'%s", child->key,
                                 nearest_text(near, sizeof near, child->key, names, 4));
    }
    return true;
}

/* ---- The loss: any op of two tensors, x and target, that can be reduced ---- */

static bool is_loss(const ct_op *op) {
    if (op->flags & CT_OP_INTERNAL || cli_count(op->inputs) < 2) return false;
    if (strcmp(op->inputs[0].name, "x") != 0 || strcmp(op->inputs[1].name, "target") != 0) return false;
    for (int i = 2; op->inputs[i].name; i++)
        if (!(op->inputs[i].flags & CT_ARG_OPTIONAL)) return false;
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, "reduction") == 0) return true;
    return false;
}

static bool read_loss_option(recipe *r, const tree *node) {
    const char *names[64];
    char near[256];
    int n = 0;
    for (const ct_attr *attr = r->loss->attrs; attr && attr->name && n < 64; attr++) {
        if (strcmp(attr->name, "reduction") == 0) continue; /* the mean is what is learned from */
        names[n++] = attr->name;
        if (strcmp(attr->name, node->key) != 0) continue;
        if (node->kind != TREE_TEXT) return tree_fail_value(node, "a number or a word");
        return ct_attrs_set(r->loss, r->loss_options, node->key, node->text) || recipe_fail_at(node, "loss");
    }
    return tree_fail_key(node, "the loss %s has no option '%s'%s", r->loss->name, node->key,
                         nearest_text(near, sizeof near, node->key, names, n));
}

static bool read_loss(recipe *r, const tree *node) {
    const tree *name = node->kind == TREE_TEXT ? node : tree_get(node, "name");
    if (!name || name->kind != TREE_TEXT)
        return tree_fail(node, "a loss needs a name, as in loss: {name: cross_entropy_loss}");
    r->loss = ct_op_find(name->text);
    if (!r->loss || !is_loss(r->loss)) {
        const char *names[64];
        char near[512];
        int n = 0;
        for (int i = 0; i < ct_op_count() && n < 64; i++)
            if (is_loss(ct_op_at(i))) names[n++] = ct_op_at(i)->name;
        return tree_fail(name, "there is no loss '%s'%s", name->text,
                         nearest_text(near, sizeof near, name->text, names, n));
    }
    r->loss_options = calloc(1, r->loss->attr_size + 1);
    if (!r->loss_options) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    ct_attrs_default(r->loss, r->loss_options);
    for (int i = 0; node->kind == TREE_MAP && i < node->n; i++)
        if (node->at[i] != name && !read_loss_option(r, node->at[i])) return false;
    return true;
}

/* ---- The whole ---- */

static const struct {
    const char *name;
    bool (*read)(recipe *r, const tree *node);
    const char *doc;
} keys[] = {
#define KEY(name, reader, doc) {#name, read_##reader, doc},
#include "cli/train/recipe.def"
#undef KEY
};
enum { KEYS = sizeof keys / sizeof *keys };

static bool read_key(recipe *r, const tree *node) {
    const char *names[KEYS];
    for (int i = 0; i < KEYS; i++) {
        names[i] = keys[i].name;
        if (strcmp(node->key, keys[i].name) == 0) return keys[i].read(r, node);
    }
    char near[512];
    return tree_fail_key(node, "a recipe has no key '%s'%s", node->key,
                         nearest_text(near, sizeof near, node->key, names, KEYS));
}

static bool read_all(recipe *r) {
    if (r->root->kind != TREE_MAP) return tree_fail(r->root, "a recipe is a map, with keys such as model and data");
    for (int i = 0; i < r->root->n; i++)
        if (!read_key(r, r->root->at[i])) return false;
    static const char *const required[] = {"model", "data", "optimizer"};
    for (int i = 0; i < 3; i++)
        if (!tree_get(r->root, required[i]))
            return ct_fail(CT_ERR_VALUE, NULL, "%s: the recipe has no '%s'", r->source, required[i]);
    return true;
}

static bool apply_set(recipe *r, const char *set) {
    const char *equals = strchr(set, '=');
    if (!equals || equals == set)
        return ct_fail(CT_ERR_VALUE, NULL, "--set %s: this is not of the form key=value", set);
    char path[256];
    if (equals - set >= (ptrdiff_t)sizeof path)
        return ct_fail(CT_ERR_VALUE, NULL, "--set %s: the key is too long", set);
    snprintf(path, sizeof path, "%.*s", (int)(equals - set), set);
    tree *value = tree_parse(equals + 1, strlen(equals + 1), "");
    if (value && value->kind == TREE_MAP && value->n == 0) { /* nothing after the = */
        tree_free(value);
        value = tree_new(TREE_TEXT, NULL, "");
    }
    if (!value) { /* ":1: this is not YAML": what is given has one line, and no file */
        char text[1024];
        const char *at = ct_error();
        if (at[0] == ':') at += 1 + strspn(at + 1, "0123456789: ");
        snprintf(text, sizeof text, "%s", at);
        const ct_code code = ct_error_code();
        ct_error_clear();
        return ct_fail(code, NULL, "--set %s: %s", set, text);
    }
    tree_set_place(value, set);
    return tree_put(r->root, path, value);
}

recipe *recipe_parse(const char *text, size_t n, const char *name, const char *source, const char *const *sets,
                     int set_count) {
    recipe *r = calloc(1, sizeof *r);
    if (!r) {
        ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        return NULL;
    }
    r->about = "";
    r->epochs = 10;
    r->batch = 64;
    r->seed = 1;
    r->loader_threads = 1;
    r->checkpoint_seconds = 60;
#define FIELD(type, field, value, doc) r->data.field = value;
#include "cli/train/recipe.def"
#undef FIELD
    r->name = text_copy(name);
    r->source = text_copy(source);
    r->root = r->name && r->source ? tree_parse(text, n, r->source) : NULL;
    bool right = r->root != NULL;
    for (int i = 0; right && i < set_count; i++) right = apply_set(r, sets[i]);
    if (right && read_all(r)) return r;
    recipe_free(r);
    return NULL;
}

void recipe_free(recipe *r) {
    if (!r) return;
    tree_free(r->root);
    free(r->loss_options);
    free(r->name);
    free(r->source);
    free(r);
}

bool recipe_text(const recipe *r, buffer *b) {
    tree_write(r->root, b);
    return !b->failed || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
}

/* Whether a text has that word in it. */
static bool mentions(const char *text, const char *word) {
    static const char inside[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    const size_t n = strlen(word);
    for (const char *at = text; n && (at = strstr(at, word)); at++)
        if ((at == text || !strchr(inside, at[-1])) && (!at[n] || !strchr(inside, at[n]))) return true;
    return false;
}

bool recipe_fail_at(const tree *node, const char *what) {
    if (ct_ok()) return false;
    const ct_code code = ct_error_code();
    char text[1024];
    snprintf(text, sizeof text, "%s", ct_error());
    ct_error_clear();
    for (int i = 0; node && node->kind == TREE_MAP && i < node->n; i++)
        if (mentions(text, node->at[i]->key)) { /* a setting may stand elsewhere than what it is of */
            node = node->at[i];
            break;
        }
    if (node && node->line) return ct_fail(code, NULL, "%s:%d: %s", node->source, node->line, text);
    if (node && *node->source) return ct_fail(code, NULL, "--set %s: %s", node->source, text);
    return ct_fail(code, NULL, "%s: %s", what, text);
}

/* Data may lie elsewhere when a run goes on. */
static bool same_data(const tree *a, const tree *b) {
    for (int i = 0; a && a->kind == TREE_MAP && i < a->n; i++) {
        const char *key = a->at[i]->key;
        if (strcmp(key, "path") != 0 && strcmp(key, "test") != 0 && !tree_same(a->at[i], tree_get(b, key)))
            return false;
    }
    return true;
}

bool recipe_set_epochs(recipe *r, int64_t epochs) {
    char text[32];
    if (epochs > MOST_EPOCHS)
        return ct_fail(CT_ERR_VALUE, NULL, "--epochs: that makes %lld epochs, and %d are the most", (long long)epochs,
                       MOST_EPOCHS);
    snprintf(text, sizeof text, "%lld", (long long)epochs);
    r->epochs = epochs;
    return tree_put(r->root, "epochs", tree_new(TREE_TEXT, NULL, text));
}

/* The first key in which two recipes differ, with both values as texts; NULL: there is none. except: keys that do not count. */
static const char *difference(const tree *now, const tree *before, const char *except, buffer *is, buffer *was) {
    for (int i = 0; i < KEYS; i++) {
        const tree *a = tree_get(now, keys[i].name), *b = tree_get(before, keys[i].name);
        if (mentions(except, keys[i].name) || tree_same(a, b)) continue;
        if (strcmp(keys[i].name, "data") == 0 && same_data(a, b) && same_data(b, a)) continue;
        if (b) tree_write_short(b, was);
        else buffer_text(was, "nothing");
        if (a) tree_write_short(a, is);
        else buffer_text(is, "nothing");
        return keys[i].name;
    }
    return NULL;
}

bool recipe_check_same(const recipe *now, const recipe *before, const char *folder, bool other_epochs) {
    const bool same_epochs = other_epochs || now->epochs == before->epochs;
    buffer was = {0}, is = {0};
    const char *key = difference(now->root, before->root,
                                 same_epochs ? "about checkpoint_seconds capture recompute distributed epochs"
                                             : "about checkpoint_seconds capture recompute distributed",
                                 &is, &was);
    if (key)
        ct_fail(CT_ERR_STATE, NULL,
                "the run in %s was begun with another recipe: %s was %.300s, and is %.300s now; to go on with it leave "
                "the recipe away%s, to begin anew choose another --out",
                folder, key, was.failed ? "" : was.at, is.failed ? "" : is.at,
                strcmp(key, "epochs") == 0 ? " or say --epochs" : "");
    buffer_free(&was);
    buffer_free(&is);
    return !key;
}

bool recipe_check_rank(const recipe *mine, int rank, const char *text, size_t n) {
    tree *first = tree_parse(text, n, "the recipe of rank 0");
    buffer theirs = {0}, is = {0};
    if (!first) return false;
    const char *key = difference(mine->root, first, "about", &is, &theirs);
    if (key)
        ct_fail(CT_ERR_STATE, NULL, "ranks disagree about the recipe: %s is %.300s on rank %d, and %.300s on rank 0",
                key, is.failed ? "" : is.at, rank, theirs.failed ? "" : theirs.at);
    buffer_free(&theirs);
    buffer_free(&is);
    tree_free(first);
    return !key;
}

/* ---- What there is, for people ---- */

static void describe_part(const part_type *type, const void *info) {
    const ct_setting *list;
    const int n = type->settings(info, &list);
    printf("%s %s: %s\n", type->what, type->name(info), type->doc(info));
    for (int i = 0; i < n; i++) {
        if (isnan(list[i].value)) printf("  %-20s %-10s %s\n", list[i].name, "required", list[i].doc);
        else printf("  %-20s %-10g %s\n", list[i].name, list[i].value, list[i].doc);
    }
}

/* One that the command would refuse is not offered. */
static bool is_offered(const part_type *type, const void *info) {
    return type != &part_optimizers || !((const ct_optim_info *)info)->needs_loss;
}

bool recipe_describe(const char *name) {
    static const part_type *const types[] = {&part_models, &part_optimizers, &part_schedules, &part_transforms};
    bool found = false;
    for (int t = 0; t < 4; t++) {
        if (!name) printf("%s%ss:", t ? "\n" : "", types[t]->what);
        for (int i = 0;; i++) {
            const void *info = types[t]->at(i);
            if (!info) break;
            if (!is_offered(types[t], info)) continue;
            if (!name) printf("%s %s", i ? "," : "", types[t]->name(info));
            else if (strcmp(types[t]->name(info), name) == 0) {
                describe_part(types[t], info);
                found = true;
            }
        }
    }
    for (int k = 0; k < KINDS; k++) {
        if (!name) printf("%s %s", k ? "," : "\ndata kinds:", kinds[k].name);
        else if (strcmp(kinds[k].name, name) == 0) {
            printf("data of kind %s: %s\n", name, kinds[k].doc);
            for (int i = 0; i < FIELDS; i++)
                if (listed(kinds[k].fields, fields[i].name)) printf("  %-20s %s\n", fields[i].name, fields[i].doc);
            found = true;
        }
    }
    if (!name) {
        printf("\nlosses:");
        for (int i = 0, n = 0; i < ct_op_count(); i++)
            if (is_loss(ct_op_at(i))) printf("%s %s", n++ ? "," : "", ct_op_at(i)->name);
        printf("\nmetrics:");
        for (int i = 0; metric_name_at(i); i++) printf("%s %s", i ? "," : "", metric_name_at(i));
        printf("\n\nkeys of a recipe:\n");
        for (int i = 0; i < KEYS; i++) printf("  %-20s %s\n", keys[i].name, keys[i].doc);
        printf("\n'cotangent train --describe NAME' says more of one of these.\n");
    }
    return found || !name ||
           ct_fail(CT_ERR_VALUE, NULL,
                   "there is no model, optimizer, schedule, transform or kind of data '%s'; 'cotangent train "
                   "--describe' lists them",
                   name);
}

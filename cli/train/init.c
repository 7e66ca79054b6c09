/* Beginning with the weights of a file, and leaving some of them as they are. */
#include "cli/train/learner.h"

#include <fnmatch.h>
#include <string.h>

/* ---- What the recipe says ---- */

/* A pattern, or a list of them. */
static bool read_frozen(recipe *r, const tree *node) {
    const bool list = node->kind == TREE_LIST;
    if (node->kind == TREE_MAP || (list && (node->n < 1 || node->n > MOST_FROZEN)))
        return tree_fail(node, "freeze is a pattern of parameters' names, as in \"features.*\", or a list of up to %d",
                         MOST_FROZEN);
    for (int i = 0; i < (list ? node->n : 1); i++) {
        const tree *pattern = list ? node->at[i] : node;
        if (pattern->kind != TREE_TEXT || !pattern->text[0])
            return tree_fail(pattern, "what is frozen is a pattern of parameters' names, as in \"features.*\"");
        r->init.frozen[r->init.frozen_count++] = pattern;
    }
    return true;
}

/* {"module.*": "*", "head.*": ""}: what a tensor of the file is called here; nothing: it is left out. */
static bool read_renames(recipe *r, const tree *node) {
    if (node->kind != TREE_MAP || node->n > MOST_RENAMES)
        return tree_fail(node, "rename is a map of up to %d names, as in {\"module.*\": \"*\"}", MOST_RENAMES);
    for (int i = 0; i < node->n; i++) {
        const tree *to = node->at[i];
        if (to->kind != TREE_TEXT) return tree_fail(to, "a new name is a text, not this");
        r->init.renames[r->init.rename_count++] = (ct_rename){to->key, to->text[0] ? to->text : NULL};
    }
    return true;
}

bool read_init(recipe *r, const tree *node) {
    static const char *const names[] = {"file", "partial", "rename", "freeze"};
    char near[128];
    const tree *file = node->kind == TREE_TEXT ? node : tree_get(node, "file");
    if (!file || file->kind != TREE_TEXT || !file->text[0])
        return tree_fail(node, "init needs a file, as in init: {file: weights.safetensors}");
    r->init.file = file->text;
    r->init.node = node;
    for (int i = 0; node->kind == TREE_MAP && i < node->n; i++) {
        const tree *child = node->at[i];
        if (child == file) continue;
        if (strcmp(child->key, "partial") == 0) {
            if (!tree_bool(child, &r->init.partial)) return tree_fail_value(child, "true or false");
        } else if (strcmp(child->key, "freeze") == 0) {
            if (!read_frozen(r, child)) return false;
        } else if (strcmp(child->key, "rename") == 0) {
            if (!read_renames(r, child)) return false;
        } else
            return tree_fail_key(child, "init has no '%s'%s", child->key,
                                 nearest_text(near, sizeof near, child->key, names, 4));
    }
    return true;
}

/* ---- Weights of a file ---- */

/* Adds the names of an outcome to the note: at most a few of all that it tells of. */
static void note_names(buffer *note, const ct_load_report *report, ct_load_outcome outcome, int *told) {
    enum { NAMED = 4 };
    const ct_load_entry *entry;
    for (int64_t i = 0; (entry = ct_load_report_at(report, outcome, i)); i++) {
        if (++*told > NAMED) continue;
        buffer_text(note, *told == 1 ? "; random as before: " : ", ");
        buffer_clean(note, entry->name, "");
        if (outcome == CT_LOAD_MISSING || !entry->note[0]) continue; /* of what differs it says how */
        buffer_text(note, " (");
        buffer_clean(note, entry->note, "");
        buffer_text(note, ")");
    }
    if (outcome == CT_LOAD_MISSING && *told > NAMED) buffer_add(note, " and %d more", *told - NAMED);
}

/* How many tensors were taken, and which were not. */
static bool note_report(learner *l, const ct_load_report *report) {
    buffer note = {0};
    int told = 0;
    const int64_t taken = ct_load_report_count(report, CT_LOAD_LOADED),
                  left = ct_load_report_count(report, CT_LOAD_MISSING) + ct_load_report_count(report, CT_LOAD_MISMATCH);
    buffer_add(&note, "init: %lld of %lld tensors are those of ", (long long)taken, (long long)(taken + left));
    buffer_clean(&note, l->recipe->init.file, "");
    note_names(&note, report, CT_LOAD_MISMATCH, &told);
    note_names(&note, report, CT_LOAD_MISSING, &told); /* last: it closes the list */
    return learner_note(l, &note);
}

bool learner_init(learner *l) {
    const recipe *r = l->recipe;
    ct_load_report *report = NULL;
    if (!r->init.file) return true;
    bool right = ct_load(r->init.file, l->net, .lenient = r->init.partial, .cast = true, .renames = r->init.renames,
                         .rename_count = r->init.rename_count, .report = &report);
    if (right && r->init.partial) right = note_report(l, report);
    ct_load_report_free(report);
    return right || recipe_fail_at(r->init.node, "init");
}

/* ---- Freezing ---- */

static bool freeze(const ct_parameters *list, const tree *pattern) {
    int fitting = 0, count = 0;
    const char *first = "";
    for (int i = 0; i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        if (p->buffer) continue;
        if (count++ == 0) first = p->name;
        if (fnmatch(pattern->text, p->name, 0) != 0) continue;
        fitting++;
        if (!ct_set_requires_grad(ct_parameter_tensor(p), false)) return false;
    }
    return fitting || tree_fail(pattern, "the pattern %s fits none of the %d parameters, of which the first is %s",
                                pattern->text, count, first);
}

bool learner_freeze(learner *l) {
    const recipe *r = l->recipe;
    if (r->init.frozen_count == 0) return true;
    const int64_t all = ct_module_size(l->net);
    ct_parameters *list = ct_module_parameters(l->net);
    bool right = list != NULL;
    for (int i = 0; right && i < r->init.frozen_count; i++) right = freeze(list, r->init.frozen[i]);
    ct_parameters_free(list);
    const int64_t learned = ct_module_size(l->net);
    if (right && learned == 0)
        right = tree_fail(r->init.frozen[0], "every parameter is frozen: there is nothing left to learn");
    buffer note = {0};
    if (right) buffer_add(&note, "frozen: %lld of %lld parameters", (long long)(all - learned), (long long)all);
    return right && learner_note(l, &note);
}

/* Evaluation mode for each largest part whose parameters are all frozen. */
static bool quiet(ct_module *module) {
    ct_parameters *list = ct_module_parameters(module);
    if (!list) return false;
    bool any = false, all = true;
    for (int i = 0; i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        if (p->buffer) continue;
        any = true;
        all = all && p->frozen;
    }
    ct_parameters_free(list);
    if (!any) return true;
    if (all) return ct_eval(module);
    for (int i = 0; i < ct_module_child_count(module); i++)
        if (!quiet(ct_module_child(module, i))) return false;
    return true;
}

bool learner_train_mode(learner *l) { return ct_train(l->net) && (l->recipe->init.frozen_count == 0 || quiet(l->net)); }

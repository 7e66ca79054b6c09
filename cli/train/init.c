/* Beginning with the weights of a file, and leaving some of them as they are. */
#include "cli/train/learner.h"

#include "io/checked.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- Weights of a file ---- */

enum { NAMED = 4 }; /* tensors, in a note */

static bool same_kind(const ct_tensor *a, const ct_tensor *b) {
    const ct_dims p = ct_shape(a), q = ct_shape(b);
    return ct_dtype_of(a) == ct_dtype_of(b) && p.n == q.n && memcmp(p.d, q.d, (size_t)p.n * sizeof *p.d) == 0;
}

/* Adds what was left as it was to the note: its name and, where the file has one of another shape, both shapes. */
static void note_left(buffer *note, int left, const char *name, const ct_tensor *own, const ct_tensor *other) {
    if (left > NAMED) return;
    buffer_text(note, left == 1 ? "; random as before: " : ", ");
    buffer_clean(note, name, "");
    if (other) buffer_add(note, " (%s, in the file %s)", ct_tensor_text(own), ct_tensor_text(other));
}

/* Takes every tensor that fits by name and shape, and says which did not. */
static bool take_what_fits(learner *l, const ct_state *state, const char *prefix) {
    ct_parameters *list = ct_module_parameters(l->net);
    buffer note = {0}, others = {0};
    int taken = 0, left = 0;
    bool right = list != NULL;
    for (int i = 0; right && i < ct_parameters_count(list); i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        ct_tensor *own = ct_parameter_tensor(p);
        buffer name = {0};
        buffer_add(&name, "%s%s", prefix, p->name);
        ct_tensor *from = name.failed ? NULL : ct_state_get(state, name.at);
        buffer_free(&name);
        if (from && same_kind(own, from)) {
            ct_no_grad {
                right = ct_assign(own, from) != NULL;
            }
            taken++;
        } else note_left(&others, ++left, p->name, own, from);
    }
    if (right && taken == 0)
        right =
            ct_fail(CT_ERR_VALUE, NULL, "init: of the %lld tensors in %s none has a name and shape of the network's",
                    (long long)ct_state_count(state), l->recipe->init.file);
    if (right) {
        buffer_add(&note, "init: %d of %d tensors are those of ", taken, taken + left);
        buffer_clean(&note, l->recipe->init.file, "");
        if (left && !others.failed) buffer_text(&note, others.at);
        if (left > NAMED) buffer_add(&note, " and %d more", left - NAMED);
        right = learner_note(l, &note);
    }
    buffer_free(&others);
    ct_parameters_free(list);
    return right;
}

bool learner_init(learner *l) {
    const char *path = l->recipe->init.file;
    if (!path) return true;
    if (!l->recipe->init.partial) return ct_load(path, l->net) || recipe_fail_at(l->recipe->init.node, "init");
    bool has_checksum;
    ct_state *state = ct__open_checked(path, false, "init", &has_checksum);
    const bool run = state && ct_state_text(state, CT__RUN_FORMAT) != NULL; /* a checkpoint: its network */
    const bool right = state && take_what_fits(l, state, run ? "net." : "");
    ct_state_free(state);
    return right || recipe_fail_at(l->recipe->init.node, "init");
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
        if (!ct_forgo_grad(ct_parameter_tensor(p))) return false;
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

/* The network of a recipe, and how a batch goes through it. */
#include "cli/train/learner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool learner_is_image(const learner *l) { return l->item.n == 3; }

/* What the data decides. A recipe may say it too, and is then held to it: other numbers would fail later, and less clearly. */
static bool set_from_data(const learner *l, const part *model, double *values) {
    int64_t inputs = 1;
    for (int i = 0; i < l->item.n; i++) inputs *= l->item.d[i];
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {{"inputs", inputs},
                 {"channels", l->item.n == 3 ? l->item.d[0] : 1},
                 {"image", l->item.n ? l->item.d[l->item.n - 1] : 1},
                 {"classes", l->classes},
                 {"vocabulary", l->classes},
                 {"context", l->item.n ? l->item.d[0] : 1}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const int at = part_index(&part_models, model, facts[i].name);
        if (at < 0) continue;
        const bool room = strcmp(facts[i].name, "context") == 0 && values[at] > (double)facts[i].value;
        if (model->given[at] && !room && values[at] != (double)facts[i].value) {
            const tree *node = tree_get(model->node, facts[i].name);
            return tree_fail(node ? node : model->node, "%s of %s is %.10g, and by the data it is %lld", facts[i].name,
                             model->name, values[at], (long long)facts[i].value);
        }
        if (!model->given[at]) values[at] = (double)facts[i].value;
    }
    return true;
}

static bool check_input(const learner *l, const ct_model_info *info) {
    const char *is = l->task == TASK_LANGUAGE ? "tokens" : learner_is_image(l) ? "image" : "vector";
    /* a network for vectors takes the pixels of an image as one */
    if (strcmp(info->input, is) == 0 || (strcmp(info->input, "vector") == 0 && strcmp(is, "image") == 0)) return true;
    return tree_fail(l->recipe->model.node, "the model %s takes %s%s and the data gives %s%s", info->name, info->input,
                     strcmp(info->input, "tokens") == 0 ? "" : "s", is, strcmp(is, "tokens") == 0 ? "" : "s");
}

/* A network gives a class for each image or for each pixel, as the data has it. */
static bool check_output(const learner *l, const ct_model_info *info) {
    static const char *const each[] = {"each item", "each pixel"};
    const bool pixels = model_is_for_pixels(info), wanted = l->task == TASK_SEGMENTATION;
    if (pixels == wanted) return true;
    return tree_fail(l->recipe->model.node, "the model %s gives a class for %s and the data has one for %s", info->name,
                     each[pixels], each[wanted]);
}

static bool set_loss(learner *l) {
    l->loss = l->recipe->loss ? l->recipe->loss : ct_op_find(tasks[l->task].loss);
    l->loss_options = calloc(1, l->loss->attr_size + 1);
    if (!l->loss_options) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    if (l->recipe->loss) memcpy(l->loss_options, l->recipe->loss_options, l->loss->attr_size);
    else ct_attrs_default(l->loss, l->loss_options);
    return true;
}

bool learner_build(learner *l) {
    const part *model = &l->recipe->model;
    double values[MOST_SETTINGS];
    memcpy(values, model->values, sizeof values);
    if (!check_input(l, model->info) || !check_output(l, model->info) || !learner_check_metrics(l) || !set_loss(l))
        return false;
    if (!set_from_data(l, model, values)) return false;
    ct_seed((uint64_t)l->recipe->seed);
    ct_scope {
        l->net = ct_model_build(model->info, values);
    }
    if (!l->net || !ct_ok()) return recipe_fail_at(model->node, "model");
    l->parameters = ct_module_size(l->net);
    return true;
}

bool learner_note(learner *l, buffer *text) {
    buffer all = {0};
    if (l->notes) buffer_add(&all, "%s\n", l->notes);
    if (text->at) buffer_text(&all, text->at);
    const bool right = !text->failed && !all.failed;
    buffer_free(text);
    if (!right) {
        buffer_free(&all);
        return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    }
    free(l->notes);
    l->notes = all.at;
    return true;
}

void learner_close(learner *l) {
    ct_dataset_free(l->train);
    ct_dataset_free(l->valid);
    ct_dataset_free(l->encoding);
    ct_vocabulary_free(l->vocabulary);
    ct_drop(l->mean);
    ct_drop(l->std);
    ct_module_free(l->net);
    free(l->class_names);
    free(l->notes);
    free(l->loss_options);
    *l = (learner){0};
}

static ct_tensor *on_device(const learner *l, ct_tensor *x) {
    return l->device.type == CT_CURRENT ? x : ct_to(x, l->device);
}

ct_tensor *learner_on_host(const learner *l, ct_tensor *x) {
    return l->device.type == CT_CURRENT ? x : ct_to(x, (ct_device){CT_CPU, 0});
}

bool learner_to_device(learner *l, ct_device device) {
    if (l->recipe->tf32) ct_set_tf32(true);
    if (device.type == CT_CURRENT || device.type == CT_CPU) return true;
    ct_tensor **const statistics[2] = {&l->mean, &l->std};
    bool ok = ct_module_to_device(l->net, device);
    for (int i = 0; ok && i < 2; i++) {
        if (!*statistics[i]) continue;
        ct_scope {
            ct_tensor *moved = ct_keep(ct_to(*statistics[i], device));
            ok = moved != NULL;
            if (ok) ct_drop(*statistics[i]), *statistics[i] = moved;
        }
    }
    l->device = device;
    return ok;
}

ct_tensor *learner_forward(learner *l, ct_tensor *x) {
    x = on_device(l, x);
    if (l->mean) x = ct_div(ct_sub(x, l->mean), l->std);
    ct_tensor *y = NULL;
    ct_autocast(l->recipe->precision) { y = ct_forward(l->net, x); }
    if (l->recipe->precision != CT_F32) y = ct_cast(y, CT_F32);
    return l->task == TASK_LANGUAGE ? ct_reshape(y, CT_DIMS(-1, l->classes)) : y;
}

ct_tensor *learner_target(learner *l, ct_tensor *y) {
    y = on_device(l, y);
    if (l->task == TASK_LANGUAGE) return ct_reshape(y, CT_DIMS(-1));
    if (l->task == TASK_SEGMENTATION) return ct_cast(y, CT_I64);
    if (l->task == TASK_REGRESSION) return ct_div_s(ct_sub_s(y, l->target_mean), l->target_std);
    return y;
}

ct_tensor *learner_loss(learner *l, ct_tensor *outputs, ct_tensor *target) {
    ct_tensor *in[8] = {outputs, target}, *loss = NULL;
    int n = 0;
    while (l->loss->inputs[n].name) n++; /* further ones are optional, and left out */
    if (!outputs || !target) return NULL;
    ct_apply(l->loss, in, n, l->loss_options, &loss, 1);
    return loss;
}

const char *learner_class_name(const learner *l, int64_t label) {
    static char text[8][80];
    static unsigned next;
    char *to = text[next++ % 8];
    const char *at = l->class_names ? l->class_names : "";
    for (int64_t i = 0; i < label && at; i++) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    const size_t length = at ? strcspn(at, "\n") : 0, most = sizeof text[0] - 1;
    if (length == 0) snprintf(to, sizeof text[0], "%lld", (long long)label);
    else snprintf(to, sizeof text[0], "%.*s", (int)(length <= most ? length : text_cut(at, most)), at);
    return to;
}

/* ---- Checkpoints ---- */

enum { FORM = 3 }; /* counts up when what is stored changes */

bool learner_put(const learner *l, ct_state *extra) {
    buffer text = {0};
    const int64_t form[] = {FORM};
    const int64_t facts[] = {l->task, l->classes, l->item.n, l->item.d[0], l->item.d[1], l->item.d[2]};
    const double numbers[] = {l->target_mean, l->target_std};
    bool right = recipe_text(l->recipe, &text) && ct_state_put_text(extra, "recipe", text.at) &&
                 ct_state_put_text(extra, "recipe_name", l->recipe->name) &&
                 ct_state_put_text(extra, "class_names", l->class_names) &&
                 ct_state_put_integers(extra, "form", form, 1) && ct_state_put_integers(extra, "facts", facts, 6) &&
                 ct_state_put_numbers(extra, "target", numbers, 2);
    buffer_free(&text);
    if (right && l->vocabulary) right = ct_state_put_text(extra, "vocabulary", ct_vocabulary_text(l->vocabulary));
    if (right && l->encoding) right = ct_csv_put_state(l->encoding, extra, "csv.");
    if (right && l->mean) right = ct_state_put(extra, "mean", l->mean) && ct_state_put(extra, "std", l->std);
    return right;
}

bool learner_take_encoding(learner *l, const ct_state *state, const char *path) {
    int64_t form = 0;
    if (!ct_state_get(state, "extra.form") || !ct_state_integers(state, "extra.form", &form, 1) || form != FORM) {
        ct_error_clear();
        return ct_fail(CT_ERR_IO, NULL, "%s: the checkpoint is of the form %lld, and this program knows %d", path,
                       (long long)form, FORM);
    }
    if (!ct_state_get(state, "extra.csv.facts")) return true;
    l->encoding = ct_csv_take_state(state, "extra.csv.");
    return l->encoding || recipe_fail_at(NULL, path);
}

/* Sizes of an item and of what comes out, as far as they can be real. */
static bool are_sizes(const int64_t *facts) {
    enum { MOST = 1 << 24 };
    int64_t items = 1;
    if (facts[0] < 0 || facts[0] >= TASK_COUNT || facts[1] < 1 || facts[1] > MOST || facts[2] < 0 || facts[2] > 3)
        return false;
    for (int i = 0; i < facts[2]; i++) {
        if (facts[3 + i] < 1 || facts[3 + i] > INT32_MAX || items > MOST) return false;
        items *= facts[3 + i];
    }
    return true;
}

static bool take(learner *l, const ct_state *state, const char *path) {
    buffer class_names = {0};
    int64_t facts[6];
    double numbers[2];
    const char *names = ct_state_text(state, "extra.class_names"),
               *vocabulary = ct_state_text(state, "extra.vocabulary");
    if (!learner_take_encoding(l, state, path)) return false;
    if (!ct_state_integers(state, "extra.facts", facts, 6) || !ct_state_numbers(state, "extra.target", numbers, 2))
        return false;
    if (!are_sizes(facts)) return ct_fail(CT_ERR_IO, NULL, "%s: the checkpoint contradicts itself", path);
    l->task = (task_kind)facts[0];
    l->classes = facts[1];
    l->item.n = (int)facts[2];
    for (int i = 0; i < 3; i++) l->item.d[i] = facts[3 + i];
    l->target_mean = numbers[0];
    l->target_std = numbers[1];
    buffer_clean(&class_names, names ? names : "", "\n");
    if (class_names.failed) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    l->class_names = class_names.at;
    if (vocabulary)
        l->vocabulary = *vocabulary ? ct_vocabulary_characters(vocabulary, strlen(vocabulary)) : ct_vocabulary_bytes();
    if (ct_state_get(state, "extra.mean")) l->mean = ct_keep(ct_state_get(state, "extra.mean"));
    if (ct_state_get(state, "extra.std")) l->std = ct_keep(ct_state_get(state, "extra.std"));
    if (!l->mean != !l->std) return ct_fail(CT_ERR_IO, NULL, "%s: the checkpoint contradicts itself", path);
    return l->class_names && ct_ok();
}

static recipe *read_recipe(const ct_state *state, const char *path) {
    const char *text = ct_state_text(state, "extra.recipe"), *name = ct_state_text(state, "extra.recipe_name");
    if (text && name) return recipe_parse(text, strlen(text), name, path, NULL, 0);
    ct_fail(CT_ERR_IO, NULL, "%s: this is not a checkpoint of 'cotangent train': it holds no recipe", path);
    return NULL;
}

bool learner_load(learner *l, const char *path, recipe **own) {
    ct_state *state = ct_safetensors_load(path);
    if (!state) return false;
    *own = read_recipe(state, path);
    l->recipe = *own;
    const bool right = *own && take(l, state, path) && learner_build(l) && ct_load(path, l->net) && ct_eval(l->net);
    ct_state_free(state);
    return right;
}

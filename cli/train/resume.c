/* The folder of a run, its checkpoints, and going on from one. Nothing in a checkpoint depends on the clock: a run that was
 * stopped and went on ends with the same bytes as one that was not. */
#include "cli/train/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void checkpoint_path(const trainer *t, char *path, size_t capacity) {
    snprintf(path, capacity, "%s/last.safetensors", t->out);
}

/* Makes a folder and those above it. */
static bool make_folders(const char *path) {
    char part_of[4096];
    snprintf(part_of, sizeof part_of, "%s", path);
    for (char *slash = part_of + 1;; slash++) {
        if (*slash && *slash != '/') continue;
        const char was = *slash;
        *slash = 0;
        if (mkdir(part_of, 0777) != 0 && errno != EEXIST)
            return ct_fail(CT_ERR_IO, NULL, "%s: the folder cannot be made: %s", part_of, strerror(errno));
        *slash = was;
        if (!was) return true;
    }
}

/* runs/RECIPE-N: the first N that is free or, to go on, the last that is there. */
static bool number_folder(trainer *t, const char *name) {
    int n = 1;
    char path[4096];
    for (;; n++) {
        snprintf(path, sizeof path, "runs/%s-%d", name, n);
        if (!file_exists(path)) break;
    }
    if (t->options->resume) n--;
    if (n == 0)
        return ct_fail(CT_ERR_IO, NULL, "there is no run runs/%s-1 to go on with; --out names another folder", name);
    snprintf(t->out, sizeof t->out, "runs/%s-%d", name, n);
    return true;
}

bool trainer_choose_folder(trainer *t) {
    char last[4096 + 32];
    if (t->options->out) snprintf(t->out, sizeof t->out, "%s", t->options->out);
    else if (!number_folder(t, t->recipe ? t->recipe->name : "")) return false;
    if (strlen(t->out) > 4000) return ct_fail(CT_ERR_IO, NULL, "--out: the name is too long");
    checkpoint_path(t, last, sizeof last);
    if (t->options->resume)
        return file_exists(last) || ct_fail(CT_ERR_IO, NULL, "%s: there is no checkpoint to go on from", last);
    if (file_exists(last)) /* a run that was killed before its first checkpoint has nothing to lose */
        return ct_fail(CT_ERR_STATE, NULL,
                       "%s already holds a run; --resume goes on with it, and another --out begins a new one", t->out);
    return true;
}

bool trainer_make_folder(trainer *t) { return make_folders(t->out); }

bool trainer_open_recipe(trainer *t) {
    const trainer_options *o = t->options;
    if (o->recipe) {
        t->recipe = recipe_open(o->recipe, o->sets, o->set_count);
        if (!t->recipe) return false;
    } else if (!o->out)
        return ct_fail(CT_ERR_VALUE, NULL, "--resume without a recipe needs --out FOLDER, that of the run");
    if (!trainer_choose_folder(t)) return false;
    if (!o->resume) return true;
    char path[4096 + 32];
    checkpoint_path(t, path, sizeof path);
    ct_state *state = ct_safetensors_load(path);
    const char *text = state ? ct_state_text(state, "extra.recipe") : NULL,
               *name = state ? ct_state_text(state, "extra.recipe_name") : NULL;
    if (state && !text)
        ct_fail(CT_ERR_IO, NULL, "%s: this is not a checkpoint of 'cotangent train': it holds no recipe", path);
    recipe *before = text ? recipe_parse(text, strlen(text), name ? name : "recipe", path, NULL, 0) : NULL;
    /* without a recipe on the command line, that of the checkpoint, with what --set says */
    if (before && !t->recipe)
        t->recipe = recipe_parse(text, strlen(text), name ? name : "recipe", path, o->sets, o->set_count);
    const bool right = before && t->recipe && recipe_check_same(t->recipe, before, t->out);
    recipe_free(before);
    ct_state_free(state);
    return right;
}

enum { NUMBERS = 6, INTEGERS = 3 };

static ct_state *make_extra(trainer *t) {
    ct_state *extra = ct_state_new();
    const double numbers[NUMBERS] = {t->loss_sum,      t->score_sum,       t->best_score,
                                     (double)t->items, (double)t->targets, t->best_loss};
    const int64_t integers[INTEGERS] = {t->best_epoch, t->total_steps, 1 /* version of this form */};
    if (extra && learner_put(&t->learner, extra) && ct_state_put_numbers(extra, "progress", numbers, NUMBERS) &&
        ct_state_put_integers(extra, "counts", integers, INTEGERS))
        return extra;
    ct_state_free(extra);
    return NULL;
}

bool trainer_save(trainer *t) {
    t->run.extra = make_extra(t);
    const bool right = t->run.extra && ct_run_save(&t->run, t->out, "last");
    ct_state_free(t->run.extra);
    t->run.extra = NULL;
    t->saved = seconds_now();
    return right;
}

bool trainer_save_best(trainer *t) {
    ct_run run = {.net = t->learner.net, .epoch = t->run.epoch, .step = t->run.step};
    run.extra = make_extra(t);
    const bool right = run.extra && ct_run_save(&run, t->out, "best");
    ct_state_free(run.extra);
    return right;
}

bool trainer_resume(trainer *t) {
    char path[4096 + 32];
    double numbers[NUMBERS];
    int64_t integers[INTEGERS];
    checkpoint_path(t, path, sizeof path);
    t->run.extra = ct_state_new();
    bool right = t->run.extra && ct_run_load(&t->run, path);
    right = right && ct_state_numbers(t->run.extra, "progress", numbers, NUMBERS) &&
            ct_state_integers(t->run.extra, "counts", integers, INTEGERS);
    ct_state_free(t->run.extra);
    t->run.extra = NULL;
    if (!right) return false;
    t->loss_sum = numbers[0];
    t->score_sum = numbers[1];
    t->best_score = numbers[2];
    t->items = (int64_t)numbers[3];
    t->targets = (int64_t)numbers[4];
    t->best_loss = numbers[5];
    t->best_epoch = integers[0];
    if (integers[1] == t->total_steps) return true;
    return ct_fail(CT_ERR_STATE, NULL, "%s was to take %lld steps and would now take %lld: the data has changed",
                   t->out, (long long)integers[1], (long long)t->total_steps);
}

/* The folder of a run, its checkpoints, and going on from one. Nothing in a checkpoint depends on the clock: a run that was
 * stopped and went on ends with the same bytes as one that was not. */
#include "cli/train/trainer.h"

#include "io/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void checkpoint_path(const trainer *t, char *path, size_t capacity) {
    snprintf(path, capacity, "%s/last.safetensors", t->out);
}

/* Makes the entries of a folder survive a power cut, where the system can. */
static void sync_above(const char *path) {
    char above[4096];
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    if (slash) slash[slash == above] = 0;
    const int folder = open(slash ? above : ".", O_RDONLY);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

/* Makes a folder and those above it. */
static bool make_folders(const char *path) {
    char part_of[4096];
    snprintf(part_of, sizeof part_of, "%s", path);
    for (char *slash = part_of + 1;; slash++) {
        if (*slash && *slash != '/') continue;
        const char was = *slash;
        *slash = 0;
        if (mkdir(part_of, 0777) == 0) sync_above(part_of);
        else if (errno != EEXIST)
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

bool trainer_make_folder(trainer *t) {
    if (t->options->out) return make_folders(t->out);
    /* The number may have been taken meanwhile by another run that was begun at the same time. */
    while (make_folders("runs")) {
        if (mkdir(t->out, 0777) == 0) {
            sync_above(t->out);
            return true;
        }
        if (errno != EEXIST)
            return ct_fail(CT_ERR_IO, NULL, "%s: the folder cannot be made: %s", t->out, strerror(errno));
        number_folder(t, t->recipe->name);
    }
    return false;
}

bool trainer_lock(trainer *t) {
    t->lock = open(t->out, O_RDONLY);
    if (t->lock < 0) return ct_fail(CT_ERR_IO, NULL, "%s: %s", t->out, strerror(errno));
    /* Where the file system knows no locks it goes without. One that was just killed may take a moment to be gone. */
    for (int tries = 0; tries < 20; tries++) {
        if (flock(t->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return ct_fail(CT_ERR_STATE, NULL, "%s: another process is training in this folder", t->out);
}

/* A word as a shell takes it. */
static void add_word(buffer *b, const char *word) {
    const bool plain = *word && !strpbrk(word, " \t\n'\"\\$`!*?[](){}<>|&;#~");
    buffer_text(b, plain ? " " : " '");
    for (const char *c = word; *c; c++)
        if (*c == '\'') buffer_text(b, "'\\''");
        else buffer_bytes(b, c, 1);
    if (!plain) buffer_text(b, "'");
}

/* The words of a command that change its numbers. */
static bool write_command(trainer *t, const char *before, bool resumed) {
    buffer raw = {0}, clean = {0};
    const trainer_options *o = t->options;
    if (before) buffer_add(&raw, "%s\n", before);
    buffer_text(&raw, "cotangent train");
    if (resumed) {
        buffer_text(&raw, " --resume --out");
        add_word(&raw, t->out);
        buffer_add(&raw, " --epochs %lld", (long long)t->recipe->epochs);
    } else add_word(&raw, o->recipe);
    for (int i = 0; !resumed && i < o->set_count; i++) {
        buffer_text(&raw, " --set");
        add_word(&raw, o->sets[i]);
    }
    if (!resumed && o->more_epochs) buffer_add(&raw, " --epochs +%lld", (long long)o->more_epochs);
    if (!raw.failed) buffer_clean(&clean, raw.at, "\n\t");
    t->command = clean.at;
    const bool right = !raw.failed && !clean.failed;
    buffer_free(&raw);
    return right || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
}

/* ---- The recipe, of the command line and of the checkpoint ---- */

enum { NUMBERS = 6, INTEGERS = 3 };

static bool is_patient(const recipe *r, int64_t epoch, int64_t best_epoch, int64_t patient_from) {
    const int64_t since = best_epoch > patient_from ? best_epoch : patient_from;
    return r->early_stopping == 0 || best_epoch == 0 || epoch - since < r->early_stopping;
}

bool trainer_stopped_early(const trainer *t) {
    return !is_patient(t->recipe, t->run.epoch, t->best_epoch, t->patient_from);
}

/* What --epochs +N is added to: all epochs of the run or, where it was stopped early, those that it did. */
static bool epochs_so_far(const recipe *before, const ct_state *state, int64_t *epochs) {
    int64_t counters[CT__RUN_COUNTER_COUNT], counts[INTEGERS];
    if (!ct_state_integers(state, CT__RUN_COUNTERS, counters, CT__RUN_COUNTER_COUNT) ||
        !ct_state_integers(state, "extra.counts", counts, INTEGERS))
        return false;
    const bool early =
        counters[0] > 0 && counters[0] < before->epochs && !is_patient(before, counters[0], counts[0], counts[2]);
    *epochs = early ? counters[0] : before->epochs;
    return true;
}

bool trainer_sets_epochs(const trainer_options *o) {
    for (int i = 0; i < o->set_count; i++)
        if (strncmp(o->sets[i], "epochs=", 7) == 0) return true;
    return false;
}

/* Takes over what the checkpoint says; text and name are its recipe. */
static bool compare_recipe(trainer *t, const ct_state *state, const char *path, const char *text, const char *name) {
    const trainer_options *o = t->options;
    const char *command = ct_state_text(state, "extra.command");
    int64_t so_far = 0;
    if (!learner_take_encoding(&t->learner, state, path)) return false;
    recipe *before = recipe_parse(text, strlen(text), name, path, NULL, 0);
    /* without a recipe on the command line, that of the checkpoint, with what --set says */
    if (before && !t->recipe) t->recipe = recipe_parse(text, strlen(text), name, path, o->sets, o->set_count);
    bool right = before && t->recipe;
    if (right && o->more_epochs)
        right = epochs_so_far(before, state, &so_far) && recipe_set_epochs(t->recipe, so_far + o->more_epochs);
    right = right && recipe_check_same(t->recipe, before, t->out, trainer_sets_epochs(o) || o->more_epochs > 0);
    if (right) {
        t->epochs_before = before->epochs;
        if (t->recipe->epochs != before->epochs) right = write_command(t, command ? command : "", true);
        else right = (t->command = text_copy(command ? command : "")) != NULL;
    }
    recipe_free(before);
    return right;
}

bool trainer_open_recipe(trainer *t) {
    const trainer_options *o = t->options;
    if (o->recipe) {
        t->recipe = recipe_open(o->recipe, o->sets, o->set_count);
        if (!t->recipe) return false;
    }
    if (!trainer_choose_folder(t)) return false;
    if (!o->resume)
        return (!o->more_epochs || recipe_set_epochs(t->recipe, t->recipe->epochs + o->more_epochs)) &&
               write_command(t, NULL, false);
    char path[4096 + 32];
    checkpoint_path(t, path, sizeof path);
    ct_state *state = ct_safetensors_load(path);
    if (!state) return false;
    const char *text = ct_state_text(state, "extra.recipe"), *name = ct_state_text(state, "extra.recipe_name");
    const bool right =
        text ? compare_recipe(t, state, path, text, name ? name : "recipe")
             : ct_fail(CT_ERR_IO, NULL, "%s: this is not a checkpoint of 'cotangent train': it holds no recipe", path);
    ct_state_free(state);
    return right;
}

/* ---- Checkpoints ---- */

static ct_state *make_extra(const trainer *t) {
    ct_state *extra = ct_state_new();
    const double numbers[NUMBERS] = {t->loss_sum,      t->score_sum,       t->best_score,
                                     (double)t->items, (double)t->targets, t->best_loss};
    const int64_t integers[INTEGERS] = {t->best_epoch, t->total_steps, t->patient_from};
    if (extra && learner_put(&t->learner, extra) && ct_state_put_text(extra, "command", t->command) &&
        ct_state_put_numbers(extra, "progress", numbers, NUMBERS) &&
        ct_state_put_integers(extra, "counts", integers, INTEGERS))
        return extra;
    ct_state_free(extra);
    return NULL;
}

/* A folder that was removed is not made anew: its log would be missing. */
static bool is_there(const trainer *t) {
    return file_exists(t->out) || ct_fail(CT_ERR_IO, NULL, "%s: the folder of the run is gone", t->out);
}

/* By all ranks, each what it has; also by one that cannot, so that the others hear of it. */
static bool save(const trainer *t, ct_run *run, const char *name) {
    run->extra = is_there(t) ? make_extra(t) : NULL;
    const bool right = ct_dist_run_save(run, t->out, name);
    ct_state_free(run->extra);
    run->extra = NULL;
    return right;
}

bool trainer_save(trainer *t) {
    if (!trainer_read(t)) return false; /* what a loss that is not finite has ruined is not saved */
    const bool right = save(t, &t->run, "last");
    t->saved = seconds_now();
    t->stored = t->stored || right;
    return right;
}

bool trainer_save_best(trainer *t) {
    ct_run run = {.size = sizeof run, .net = t->learner.net, .epoch = t->run.epoch, .step = t->run.step};
    return save(t, &run, "best");
}

/* What a checkpoint says of where the run is. */
static bool is_sane(const trainer *t, const double *numbers, const int64_t *integers) {
    const int64_t an_epoch = ct_loader_batches(t->batches), epoch = t->run.epoch, step = t->run.step;
    return epoch >= 0 && epoch <= t->recipe->epochs && step >= epoch * an_epoch && step <= (epoch + 1) * an_epoch &&
           step <= t->total_steps && numbers[3] >= 0 && numbers[3] < 0x1p53 && numbers[4] >= 0 && numbers[4] < 0x1p53 &&
           integers[0] >= 0 && integers[0] <= epoch && integers[2] >= 0 && integers[2] <= epoch;
}

bool trainer_resume(trainer *t) {
    char path[4096 + 32];
    double numbers[NUMBERS];
    int64_t integers[INTEGERS];
    checkpoint_path(t, path, sizeof path);
    t->run.extra = ct_state_new();
    bool right = t->run.extra && ct_dist_run_load(&t->run, path);
    right = right && ct_state_numbers(t->run.extra, "progress", numbers, NUMBERS) &&
            ct_state_integers(t->run.extra, "counts", integers, INTEGERS);
    ct_state_free(t->run.extra);
    t->run.extra = NULL;
    if (!right) return false;
    const int64_t an_epoch = ct_loader_batches(t->batches), expected = t->epochs_before * an_epoch;
    if (integers[1] != expected)
        return ct_fail(CT_ERR_STATE, NULL, "%s was to take %lld steps and would now take %lld: the data has changed",
                       t->out, (long long)integers[1], (long long)expected);
    if (t->run.step > t->total_steps && t->run.step <= expected)
        return ct_fail(CT_ERR_VALUE, NULL, "--epochs %lld: the run in %s has done %lld already",
                       (long long)t->recipe->epochs, t->out, (long long)((t->run.step + an_epoch - 1) / an_epoch));
    if (!is_sane(t, numbers, integers)) return ct_fail(CT_ERR_IO, NULL, "%s: the checkpoint contradicts itself", path);
    t->loss_sum = numbers[0];
    t->score_sum = numbers[1];
    t->best_score = numbers[2];
    t->items = (int64_t)numbers[3];
    t->targets = (int64_t)numbers[4];
    t->best_loss = numbers[5];
    t->best_epoch = integers[0];
    t->patient_from = t->recipe->epochs != t->epochs_before ? t->run.epoch : integers[2];
    return true;
}

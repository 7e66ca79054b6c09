/* The training loop: steps, evaluations, checkpoints, and stopping when a signal asks for it. */
#include "cli/train/ranks.h"

#include "cli/train/picture.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Signals: the first one asks to stop after the step, a second one kills as usual ---- */

static volatile int stop_wanted;

static void on_signal(int signal_number) {
    stop_wanted = signal_number;
    /* A reader that is gone is written to once more, to say how to go on; that must not end it before all is saved. */
    if (signal_number != SIGPIPE) signal(signal_number, SIG_DFL);
}

static void catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) /* what is ignored stays so: nohup */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

/* ---- Making the parts ---- */

static ct_transform *make_transform(const recipe *r) {
    ct_transform *list[MOST_TRANSFORMS];
    for (int i = 0; i < r->transform_count; i++) {
        list[i] = ct_transform_build(r->transforms[i].info, r->transforms[i].values);
        if (list[i]) continue;
        while (i > 0) ct_transform_free(list[--i]);
        return NULL;
    }
    return ct_transform_list(list, r->transform_count);
}

/* What moves pixels has to move the mask along, and only some do. */
static bool check_transforms(const recipe *r, const learner *l) {
    static const char *const refused[] = {"resize", "random_resized_crop", "rotate", "mixup", "cutmix"};
    for (int i = 0; l->task == TASK_SEGMENTATION && i < r->transform_count; i++)
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
            if (strcmp(r->transforms[i].name, refused[k]) == 0)
                return tree_fail(r->transforms[i].node, "the transform %s would leave the classes of the pixels behind",
                                 refused[k]);
    return true;
}

static bool make_loaders(trainer *t) {
    const recipe *r = t->recipe;
    const learner *l = &t->learner;
    ct_transform *transform = NULL;
    if (!check_transforms(r, l)) return false;
    if (r->transform_count && !(transform = make_transform(r)))
        return recipe_fail_at(r->transforms[0].node, "transforms");
    /* a last batch of one item would make no statistics for batch norm */
    const bool drop = ct_dataset_count(l->train) > r->batch;
    const int parts = r->shards > 0 ? (int)r->shards : t->sharers, here = parts / t->sharers;
    t->batches = ct_batches(l->train, r->batch, .shuffle = true, .drop_last = drop, .seed = (uint64_t)r->seed,
                            .threads = CT_SET(r->loader_threads), .transform = transform, .device = l->device,
                            .parts = parts, .part = here * t->share, .part_count = here);
    t->valid = t->batches ? learner_valid_batches(l) : NULL;
    return t->valid != NULL;
}

/* A warm-up that leaves no step for what comes after it, as few items and epochs can make it, is cut. */
static bool cut_warmup(const recipe *r, int64_t total, double *values) {
    const int at = part_index(&part_schedules, &r->schedule, "warmup");
    if (at < 0 || !(values[at] > 0)) return false;
    const double steps = values[at] < 1 ? fmax(1, floor(values[at] * (double)total + 0.5)) : values[at];
    if (steps < (double)total) return false;
    values[at] = (double)(total - 1);
    return steps == r->schedule.values[at]; /* it was given as a number of steps, so somebody may wonder */
}

static bool make_optimizer(trainer *t) {
    const recipe *r = t->recipe;
    t->optim = ct_optim_build(r->optimizer.info, t->learner.net, r->optimizer.values);
    if (!t->optim) return recipe_fail_at(r->optimizer.node, "optimizer");
    for (int i = 0; i < r->group_count; i++)
        if (!ct_optim_group_p(t->optim, r->groups[i].pattern, &r->groups[i].options))
            return recipe_fail_at(r->groups[i].node, "groups");
    if (!r->schedule.info) return true;
    const ct_schedule_info *info = r->schedule.info;
    const int64_t total = info->needs_metric ? r->epochs : t->total_steps;
    double values[MOST_SETTINGS];
    memcpy(values, r->schedule.values, sizeof values);
    t->warmup_cut = cut_warmup(r, total, values);
    t->schedule = ct_schedule_build(info, t->optim, values, total);
    return t->schedule || recipe_fail_at(r->schedule.node, "schedule");
}

ct_tensor *trainer_loss(void *context, ct_tensor *const *batch, int n, ct_tensor **score) {
    learner *l = context;
    (void)n;
    ct_tensor *outputs = learner_forward(l, batch[0]), *target = learner_target(l, batch[1]);
    ct_tensor *loss = learner_loss(l, outputs, target);
    ct_no_grad {
        if (loss) *score = trainer_score(l, ct_detach(outputs), target);
    }
    return loss;
}

static ct_train_mode capture_mode(const trainer *t) {
    ct_train_mode mode = t->recipe->capture;
    if (t->options->capture) recipe_capture(t->options->capture, &mode);
    return mode;
}

/* In a line; "": they are, or nobody has asked for it. */
static const char *why_not_captured(const trainer *t) {
    const bool wanted = capture_mode(t) == CT_TRAIN_CAPTURED || t->recipe->recompute || t->recipe->channels_last;
    if (!t->parallel) return ct_train_step_note(t->step);
    return wanted ? "gradients are those of several processes, or of shards" : "";
}

static bool make_step(trainer *t) {
    const recipe *r = t->recipe;
    t->step = ct_train_step_new(t->optim, trainer_loss, &t->learner, .scaler = t->scaler, .ema = t->ema,
                                .clip_norm = t->learner.divided ? 0 : r->clip_norm, .accumulate = r->accumulate,
                                .mode = capture_mode(t), .recompute = r->recompute, .channels_last = r->channels_last);
    return t->step != NULL;
}

/* Ranks of one machine take its devices in turn, unless one is named by its number. */
static ct_device own_device(const trainer *t) {
    ct_device device = t->options->device;
    const int count = t->ranks > 1 && device.type != CT_CURRENT ? ct_device_count(device.type) : 0;
    if (count > 1 && device.index == 0) device.index = ct_dist_local_rank() % count;
    return device;
}

static bool make_parts(trainer *t) {
    const recipe *r = t->recipe;
    learner *l = &t->learner;
    l->recipe = r;
    const bool made = learner_open_data(l) && learner_measure(l) && learner_build(l) &&
                      (t->options->resume || learner_init(l)) && /* a checkpoint has its own weights */
                      learner_freeze(l) && learner_to_device(l, own_device(t));
    if (!ranks_ready(t, made) || !ranks_ready(t, ranks_begin(t) && make_loaders(t))) return false;
    t->total_steps = r->epochs * ct_loader_batches(t->batches);
    t->log_every = t->total_steps / 2000 + 1;
    if (!make_optimizer(t)) return false;
    if (r->precision == CT_F16 && !(t->scaler = ct_scaler_new(0))) return false;
    if (r->ema > 0 && !(t->ema = ct_ema_new(l->net, .decay = CT_SET(r->ema), .warmup = true))) return false;
    if (!make_step(t)) return false;
    t->run = (ct_run){.size = sizeof t->run,
                      .net = l->net,
                      .optim = t->optim,
                      .schedule = t->schedule,
                      .scaler = t->scaler,
                      .ema = t->ema,
                      .loader = t->batches};
    return true;
}

static void free_parts(trainer *t) {
    trainer_drop_unread(t);
    evaluation_free(&t->best);
    for (int i = 0; i < 3; i++) free(t->samples[i]);
    board_close(t->board);
    journal_close(&t->journal);
    ct_train_step_free(t->step);
    ct_ema_free(t->ema);
    ct_scaler_free(t->scaler);
    ct_schedule_free(t->schedule);
    ct_optim_free(t->optim);
    ct_loader_free(t->batches);
    ct_loader_free(t->valid);
    learner_close(&t->learner);
    ranks_end(t);
    recipe_free(t->recipe);
    free(t->command);
    if (t->lock >= 0) close(t->lock);
}

/* ---- One step ---- */

static double epoch_score(const trainer *t) {
    const double n = (double)t->targets;
    if (t->learner.task == TASK_LANGUAGE) return exp(t->loss_sum / n);
    if (t->learner.task == TASK_SEGMENTATION) return t->score_sum / (double)t->items;
    return t->learner.task == TASK_CLASSIFICATION ? t->score_sum / n : sqrt(t->score_sum / n);
}

static bool step(trainer *t, const ct_batch *b) {
    const double lr = ct_optim_lr(t->optim);
    const int64_t position = b->position, items = b->n;
    ct_scope {
        ct_tensor *loss = NULL, *score = NULL;
        const int64_t targets = t->learner.task == TASK_CLASSIFICATION ? b->n : ct_numel(b->y);
        if (t->parallel ? !ranks_step(t, b, lr)
                        : !ct_train_step_take(t->step, b->field, 2, &loss, &score) ||
                              !trainer_note(t, loss, score, b, targets, lr))
            return false;
    }
    if (t->schedule && !ct_schedule_needs_metric(t->schedule) && !ct_schedule_step(t->schedule)) return false;
    if (!t->note_said && why_not_captured(t)[0]) {
        progress_say(&t->progress, "note: steps are not captured: %s", why_not_captured(t));
        t->note_said = true;
    }
    t->epoch_items += t->parallel ? t->recipe->batch : items;
    t->run.step++;
    const bool draw = progress_due(&t->progress), alone = t->ranks == 1;
    const bool read =
        alone ? draw || t->unread_count == MOST_UNREAD || seconds_now() - t->read > 1 : t->run.step % RANKS_MEET == 0;
    if (read && !trainer_read(t)) return false;
    progress_step(&t->progress, t->run.epoch, position, t->loss_sum / (double)t->targets, epoch_score(t), lr,
                  draw && (alone || read));
    return ct_ok();
}

/* Whether to stop, and whether a checkpoint is due: what all ranks do alike. */
static bool decide(trainer *t, bool *save) {
    /* The first step is saved: one that fails leaves nothing behind that a corrected recipe would have to go round. */
    unsigned flags =
        (stop_wanted ? RANKS_STOP : 0u) | (seconds_now() - t->saved > t->recipe->checkpoint_seconds ? RANKS_SAVE : 0u);
    *save = !t->stored;
    if (t->ranks > 1 && t->run.step % RANKS_MEET != 0) return true;
    if (t->ranks > 1 && !ranks_agree(&flags)) return false;
    *save = *save || (flags & RANKS_SAVE);
    t->stopping = flags & RANKS_STOP;
    return true;
}

/* ---- One epoch ---- */

/* Trains to the end of the epoch, or until a signal. */
static bool train_epoch(trainer *t) {
    if (!learner_train_mode(&t->learner)) return false;
    t->epoch_start = seconds_now();
    t->epoch_items = 0;
    /* A run that was stopped between the last step of an epoch and its evaluation has only the latter left to do. */
    if (t->run.step >= (t->run.epoch + 1) * ct_loader_batches(t->batches))
        return ct_loader_seek(t->batches, t->run.epoch + 1);
    bool save = false;
    for (ct_batch b; !t->stopping && ct_next(t->batches, &b);)
        if (!step(t, &b) || !decide(t, &save) || (save && !trainer_save(t))) return false;
    return ct_ok();
}

static bool is_better(const trainer *t, const evaluation *e) {
    if (t->best_epoch == 0) return true;
    if (isnan(t->best_score) || isnan(e->score)) return !isnan(e->score);
    if (e->score == t->best_score) return e->loss < t->best_loss; /* right as often, but surer of it */
    return tasks[t->learner.task].higher ? e->score > t->best_score : e->score < t->best_score;
}

static bool write_board(trainer *t, const epoch_record *r, const evaluation *e) {
    const char *score = tasks[t->learner.task].score;
    char tag[80];
    const int64_t at = t->run.step;
    bool right =
        board_scalar(t->board, at, "loss/train", r->loss) && board_scalar(t->board, at, "loss/valid", r->valid_loss);
    snprintf(tag, sizeof tag, "%s/train", score);
    right = right && board_scalar(t->board, at, tag, r->score);
    snprintf(tag, sizeof tag, "%s/valid", score);
    right = right && board_scalar(t->board, at, tag, r->valid_score);
    for (int i = 0; right && i < t->recipe->metric_count; i++) {
        snprintf(tag, sizeof tag, "metric/%s", t->recipe->metrics[i]);
        right = board_scalar(t->board, at, tag, e->metrics[i]);
    }
    return right;
}

/* After the last step of an epoch. False without an error: a signal came meanwhile, and the epoch is still open. */
static bool finish_epoch(trainer *t) {
    evaluation e = {0};
    if (!trainer_read(t)) return false;
    const double train_seconds = seconds_now() - t->epoch_start;
    if (!ranks_note_waiting(t, train_seconds)) return false;
    progress_note(&t->progress, "validating ...");
    if (t->ema && !ct_ema_swap_in(t->ema)) return false;
    if (t->parallel && !ct_dist_broadcast_network(t->parallel)) return false; /* running statistics */
    const uint64_t position = ct_rng_position(NULL);
    const bool whole = evaluate(&t->learner, t->valid, t->ranks == 1 ? &stop_wanted : NULL, &e);
    /* each process evaluates some batches: what those have drawn is not part of the run, whose state is saved */
    if (t->parallel && !ct_rng_set_position(NULL, position)) return false;
    const bool best = whole && is_better(t, &e);
    epoch_record record = {(double)t->run.epoch + 1,
                           (double)t->run.step,
                           t->loss_sum / (double)t->targets,
                           epoch_score(t),
                           e.loss,
                           e.score,
                           ct_optim_lr(t->optim),
                           train_seconds + e.seconds,
                           train_seconds > 0 ? (double)t->epoch_items / train_seconds : 0};
    bool right = whole;
    if (whole) {
        t->run.epoch++;
        t->loss_sum = t->score_sum = 0;
        t->items = t->targets = 0;
        if (best) {
            t->best_score = e.score;
            t->best_loss = e.loss;
            t->best_epoch = t->run.epoch;
            right = trainer_save_best(t);
        }
    }
    if (t->ema) right = ct_ema_swap_out(t->ema) && right;
    if (right && t->schedule && ct_schedule_needs_metric(t->schedule))
        right = ct_schedule_step_metric(t->schedule, e.score);
    /* Epochs that take no time are not saved one by one: the disk would be all that is waited for. */
    const bool due = seconds_now() - t->saved > 2 || t->run.epoch == t->recipe->epochs || trainer_stopped_early(t);
    /* The log first: what it says of steps after a checkpoint is forgotten when the run goes on, what it lacks is lost. */
    right = right && journal_epoch(&t->journal, &record, t->recipe, &e, best) && write_board(t, &record, &e) &&
            (!due || trainer_save(t));
    if (right) progress_epoch(&t->progress, &record, best);
    if (right && (best || t->best.count == 0)) {
        evaluation_free(&t->best);
        t->best = e;
        t->best_is_old = !best;
        e = (evaluation){0};
    }
    evaluation_free(&e);
    return right && (!due || report_write(t));
}

/* ---- The run ---- */

static bool log_start(trainer *t) {
    buffer line = {0};
    buffer_add(&line, "\"event\":\"start\",\"step\":%lld,\"recipe\":", (long long)t->run.step);
    buffer_json(&line, t->recipe->name);
    buffer_add(
        &line,
        ",\"version\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"train\":%lld,\"valid\":%lld,\"out\":",
        ct_version_text(), ct_isa(), ct_get_threads(), (long long)t->learner.parameters,
        (long long)ct_dataset_count(t->learner.train), (long long)ct_dataset_count(t->learner.valid));
    buffer_json(&line, t->out);
    const bool right = line.failed ? ct_fail(CT_ERR_MEMORY, NULL, "out of memory") : journal_line(&t->journal, line.at);
    buffer_free(&line);
    return right;
}

/* The recipe, among the texts of TensorBoard. */
static bool show_recipe(trainer *t) {
    buffer text = {0};
    buffer_text(&text, "```\n");
    tree_write(t->recipe->root, &text);
    buffer_text(&text, "```\n");
    const bool right = text.failed ? ct_fail(CT_ERR_MEMORY, NULL, "out of memory")
                                   : board_text(t->board, t->run.step, "recipe", text.at);
    buffer_free(&text);
    return right;
}

static void say_notes(trainer *t) {
    const learner *l = &t->learner;
    if (t->warmup_cut)
        progress_say(&t->progress, "note: the warm-up is cut to %lld, since there are %lld steps in all",
                     (long long)t->total_steps - 1, (long long)t->total_steps);
    for (const char *note = l->notes; note;) {
        const char *end = strchr(note, '\n');
        progress_say(&t->progress, "note: %.*s", end ? (int)(end - note) : (int)strlen(note), note);
        note = end ? end + 1 : NULL;
    }
    int64_t *items = l->task == TASK_CLASSIFICATION ? calloc((size_t)l->classes, sizeof *items) : NULL;
    for (int64_t i = 0; items && i < ct_dataset_count(l->train); i++) {
        const int64_t label = ct_dataset_label(l->train, i);
        if (label >= 0 && label < l->classes) items[label]++;
    }
    ct_error_clear(); /* data without labels has no such note */
    if (items && t->recipe->data.kind == DATA_csv && l->classes > 20 && 3 * l->classes > ct_dataset_count(l->train))
        progress_say(&t->progress,
                     "note: the target has %lld classes; where it is a number, data.regression=true predicts that",
                     (long long)l->classes);
    int64_t empty = 0, first = 0;
    for (int64_t i = l->classes - 1; items && i >= 0; i--)
        if (items[i] == 0) empty++, first = i;
    if (empty <= l->empty_folders) empty = 0; /* it is said */
    if (empty == 1)
        progress_say(&t->progress, "note: there is nothing to train on of the class %s", learner_class_name(l, first));
    else if (empty)
        progress_say(&t->progress, "note: there is nothing to train on of %lld classes, such as %s", (long long)empty,
                     learner_class_name(l, first));
    free(items);
}

static bool begin(trainer *t) {
    const task_info *task = &tasks[t->learner.task];
    const bool first = t->rank == 0; /* writes, and prints */
    if (first && ((!t->options->resume && !trainer_make_folder(t)) || !trainer_lock(t))) return false;
    if (!ranks_share_folder(t) || (t->options->resume && !trainer_resume(t)) || !ranks_compare_progress(t))
        return false;
    if (!journal_open(&t->journal, first ? t->out : NULL, task, t->options->resume, t->run.step, t->run.epoch,
                      t->options->json))
        return false;
    if (first && !(t->board = board_open(t->out, t->options->resume ? t->run.step + 1 : 0))) return false;
    if (!log_start(t) || !show_recipe(t)) return false;
    progress_begin(&t->progress, t->options->json || !first, task, t->recipe->epochs, ct_loader_batches(t->batches),
                   t->recipe->batch, t->learner.device);
    progress_say(&t->progress, "%s: %s, %lld parameters; %lld items to train on, %lld to validate on; %d thread%s, %s",
                 t->recipe->name, t->recipe->model.name, (long long)t->learner.parameters,
                 (long long)ct_dataset_count(t->learner.train), (long long)ct_dataset_count(t->learner.valid),
                 ct_get_threads(), ct_get_threads() == 1 ? "" : "s", ct_isa());
    if (t->ranks > 1) {
        const int64_t batch = t->recipe->batch, least = batch / t->sharers;
        char more[32] = "";
        if (batch % t->sharers) snprintf(more, sizeof more, " or %lld", (long long)least + 1);
        progress_say(&t->progress, "%d processes by %s, each with %lld%s of the %lld items of a batch%s", t->ranks,
                     ct_dist_engine(), (long long)least, more, (long long)batch, ranks_text(t));
    }
    if (t->options->resume) {
        progress_say(&t->progress, "going on in %s after step %lld of %lld", t->out, (long long)t->run.step,
                     (long long)t->total_steps);
        if (t->recipe->epochs != t->epochs_before)
            progress_say(&t->progress, "note: %lld epochs in place of %lld%s", (long long)t->recipe->epochs,
                         (long long)t->epochs_before,
                         t->schedule ? "; the learning rate goes on where a run of that length has it" : "");
        if (ct_run_note(&t->run)[0]) progress_say(&t->progress, "note: %s", ct_run_note(&t->run));
    }
    say_notes(t);
    t->saved = seconds_now();
    t->stored = t->options->resume;
    return ct_ok();
}

static int stop(trainer *t) {
    if (!trainer_save(t)) return TRAIN_FAILED;
    buffer line = {0};
    buffer_add(&line, "\"event\":\"stopped\",\"step\":%lld", (long long)t->run.step);
    if (!line.failed) journal_line(&t->journal, line.at);
    buffer_free(&line);
    progress_say(&t->progress,
                 "stopped after step %lld of %lld; everything is saved. To go on:\n  cotangent train --resume --out %s",
                 (long long)t->run.step, (long long)t->total_steps, t->out);
    return ct_ok() ? TRAIN_STOPPED : TRAIN_FAILED;
}

/* The last report shows the best network, also when that was found by an earlier process. Nothing is trained after it. */
static bool show_best(trainer *t) {
    char path[4096 + 32];
    if (t->best_epoch == 0) return true;
    snprintf(path, sizeof path, "%s/best.safetensors", t->out);
    if (t->learner.divided) {
        ct_run best = {.size = sizeof best, .net = t->learner.net};
        if (!ct_dist_run_load(&best, path)) return false;
    } else if (t->rank == 0 && !ct_load(path, t->learner.net)) return false;
    if (t->parallel && !ct_dist_broadcast_network(t->parallel)) return false;
    if (t->best_is_old || t->best.count == 0) {
        evaluation_free(&t->best);
        if (!evaluate(&t->learner, t->valid, NULL, &t->best)) return false;
    }
    if (t->rank > 0 && !t->learner.divided) return true;
    for (int i = 0; i < 3 && t->learner.task == TASK_LANGUAGE; i++) {
        const sampling how = {
            .tokens = 240, .temperature = 0.5 + 0.25 * i, .seed = (uint64_t)i + 1, .no_cache = t->learner.divided};
        t->samples[i] = generate(&t->learner, "", &how, NULL);
        if (!t->samples[i]) return false;
    }
    if (t->rank > 0) return true;
    picture filters;
    bool right = picture_of_filters(&t->learner, &filters);
    if (!right && ct_error_code() == CT_ERR_UNSUPPORTED) { /* no libpng here */
        ct_error_clear();
        return true;
    }
    if (right && filters.png)
        right =
            board_image(t->board, t->run.step, "filters", filters.width, filters.height, filters.png, filters.bytes);
    picture_free(&filters);
    return right;
}

static int finish(trainer *t) {
    char score[64];
    t->finished = true;
    if (!show_best(t) || !report_write(t)) return TRAIN_FAILED;
    const task_info *task = &tasks[t->learner.task];
    buffer line = {0};
    buffer_add(&line, "\"event\":\"done\",\"step\":%lld,\"replayed\":%lld,\"best_epoch\":%lld", (long long)t->run.step,
               (long long)ct_train_step_replays(t->step), (long long)t->best_epoch);
    json_number(&line, "best_score", t->best_score);
    if (!line.failed) journal_line(&t->journal, line.at);
    buffer_free(&line);
    format_score(task, t->best_score, score, sizeof score);
    progress_say(&t->progress, "best: %s %s in epoch %lld\nreport: %s/report.html", task->score, score,
                 (long long)t->best_epoch, t->out);
    return ct_ok() ? TRAINED : TRAIN_FAILED;
}

static int run_epochs(trainer *t) {
    while (t->run.epoch < t->recipe->epochs && !trainer_stopped_early(t)) {
        if (!train_epoch(t)) return TRAIN_FAILED;
        if (t->stopping) return stop(t);
        if (!finish_epoch(t)) return ct_ok() && stop_wanted ? stop(t) : TRAIN_FAILED;
    }
    return finish(t);
}

int trainer_run(const trainer_options *options) {
    trainer *t = calloc(1, sizeof *t);
    int status = TRAIN_FAILED;
    if (!t) {
        ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        return status;
    }
    t->options = options;
    t->lock = -1;
    const bool joined = ct_dist_init();
    t->rank = ct_dist_rank();
    t->ranks = ct_dist_size();
    if (joined && ranks_ready(t, trainer_open_recipe(t)) && ranks_compare_recipe(t) && make_parts(t) && begin(t)) {
        catch_signals();
        status = run_epochs(t);
        progress_clear(&t->progress);
    }
    free_parts(t);
    free(t);
    if (status != TRAIN_FAILED && !ct_dist_end()) status = TRAIN_FAILED;
    return status;
}

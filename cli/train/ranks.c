/* What a step, a decision and a figure are where several processes train one network. */
#include "cli/train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Agreeing ---- */

/* Numbers that are the same on all ranks; or the first that is not, with the rank that has another than rank 0. */
static bool compare_numbers(const trainer *t, const double *mine, const char *const *names, int n) {
    double *all = ranks_gather(mine, n);
    bool same = all != NULL;
    for (int i = 0; same && i < n; i++)
        for (int r = 1; same && r < t->ranks; r++)
            if (all[r * n + i] != all[i])
                same = ct_fail(CT_ERR_STATE, NULL, "ranks disagree: %s: %.17g on rank %d, and %.17g on rank 0",
                               names[i], all[r * n + i], r, all[i]);
    free(all);
    return same;
}

static double hash_of(const char *text) { /* FNV-1a, in what a double holds */
    uint64_t h = 14695981039346656037u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (double)(h >> 12);
}

bool ranks_ready(const trainer *t, bool mine) {
    const ct_code code = ct_error_code();
    char why[1024];
    if (t->ranks == 1) return mine;
    snprintf(why, sizeof why, "%s", ct_error());
    ct_error_clear();
    const double told[2] = {!mine, mine ? 0 : hash_of(why)};
    double *all = ranks_gather(told, 2);
    int first = -1;
    bool said = false; /* by a rank before this one */
    for (int r = t->ranks - 1; all && r >= 0; r--) {
        if (all[2 * r] == 0) continue;
        first = r;
        said = said || (r < t->rank && all[2 * r + 1] == told[1]);
    }
    const bool heard = all != NULL;
    free(all);
    if (!mine) ct_error_clear();
    if (!mine && !said) return ct_fail(code, NULL, "%s", why);
    if (mine && first > 0 && t->rank == 0) return ct_fail(CT_ERR_STATE, NULL, "rank %d could not begin", first);
    return heard && first < 0;
}

bool ranks_compare_recipe(const trainer *t) {
    static const char *const names[] = {"the version of cotangent"};
    buffer text = {0};
    bool right = t->ranks == 1 || recipe_text(t->recipe, &text);
    if (t->ranks > 1 && right) {
        double sizes[2] = {ct_version(), (double)text.n};
        right = compare_numbers(t, sizes, names, 1) && ranks_take_first(&sizes[1], 1);
        const int64_t n = right ? (int64_t)sizes[1] : 0;
        char *first = calloc((size_t)n + 1, 1);
        if (first && right) memcpy(first, text.at, (size_t)n < text.n ? (size_t)n : text.n);
        if (right && !first) right = ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        ct_scope {
            ct_tensor *all = right ? ct_dist_broadcast(ct_from_data(first, CT_DIMS(n), CT_U8), 0, NULL) : NULL;
            right = all && ct_read(all, first, (size_t)n);
        }
        right = right && ranks_ready(t, recipe_check_rank(t->recipe, t->rank, first, (size_t)n));
        free(first);
    }
    buffer_free(&text);
    return right;
}

bool ranks_compare_progress(const trainer *t) {
    static const char *const names[] = {"items to train on", "items to validate on", "parameters", "steps done",
                                        "epochs done"};
    const learner *l = &t->learner;
    const double mine[] = {(double)ct_dataset_count(l->train), (double)ct_dataset_count(l->valid),
                           (double)l->parameters, (double)t->run.step, (double)t->run.epoch};
    return t->ranks == 1 || compare_numbers(t, mine, names, (int)(sizeof mine / sizeof *mine));
}

/* ---- Dividing ---- */

/* What cannot be had of a network that is divided; in stage 1 every process has all of it. */
static bool check_division(const trainer *t) {
    const recipe *r = t->recipe;
    const int64_t cut = r->distributed.tensor > 1 ? r->distributed.tensor : 1;
    const tree *node = r->distributed.node;
    static const char *const whole[] = {"lars", "lamb"}; /* norms of whole parameters */
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(r->optimizer.name, whole[i]) == 0)
            return tree_fail(node, "%s needs parameters that are whole", r->optimizer.name);
    if (cut == 1 && r->distributed.shard == 1) return true;
    if (t->ranks % cut != 0)
        return tree_fail(node, "tensor is %lld, and %d processes are no multiple of it", (long long)cut, t->ranks);
    if (r->shards > 0) return tree_fail(node, "shards (--deterministic) is for networks that every process has whole");
    if (r->precision == CT_F16) return tree_fail(node, "a network that is divided trains in f32, tf32 or bf16");
    if (r->distributed.shard > 1 && (r->group_count > 0 || r->init.frozen_count > 0))
        return tree_fail(node, "what is sharded has no names for %s",
                         r->group_count > 0 ? "groups of parameters" : "parts to freeze");
    return true;
}

static bool divide(trainer *t) {
    const recipe *r = t->recipe;
    const int cut = r->distributed.tensor > 1 ? (int)r->distributed.tensor : 1;
    if (!check_division(t)) return false;
    if (!(t->near = ct_dist_split(NULL, t->rank / cut, 0)) || !(t->across = ct_dist_split(NULL, t->rank % cut, 0)))
        return false;
    t->share = ct_dist_group_rank(t->across);
    t->sharers = ct_dist_group_size(t->across);
    t->learner.divided = cut > 1 || r->distributed.shard > 1; /* a pass is one of all; not so in stage 1 */
    return ct_dist_divide(t->learner.net, .tensor = t->near, .data = t->across, .stage = (int)r->distributed.shard) ||
           recipe_fail_at(r->distributed.node, "distributed");
}

bool ranks_begin(trainer *t) {
    const recipe *r = t->recipe;
    t->share = t->rank;
    t->sharers = t->ranks;
    if (t->ranks == 1 && r->shards == 0) return true;
    if (ct_dataset_count(t->learner.train) < r->batch)
        return ct_fail(
            CT_ERR_VALUE, NULL,
            "batch: %lld items to train on are less than a batch of %lld, of which each process has its part",
            (long long)ct_dataset_count(t->learner.train), (long long)r->batch);
    if (r->shards > 0 && (r->distributed.bf16 || r->distributed.sync_batch_norm))
        return tree_fail(r->distributed.node,
                         "with shards (--deterministic) gradients go as they are, and statistics are a shard's");
    if (r->distributed.sync_batch_norm && t->ranks > 1 && !ct_nn_sync_batch_norm(t->learner.net, NULL)) return false;
    if (r->shards > 0 && r->accumulate > 1)
        return ct_fail(CT_ERR_VALUE, NULL, "accumulate: with shards a batch is cut already");
    if (t->ranks > 1 && (r->distributed.shard || r->distributed.tensor > 1) && !divide(t)) return false;
    t->parallel = ct_dist_data_parallel(t->learner.net, .group = t->across, .bf16 = r->distributed.bf16,
                                        .shards = (int)r->shards);
    return t->parallel != NULL;
}

void ranks_end(trainer *t) {
    ct_dist_parallel_free(t->parallel);
    ct_dist_group_free(t->near);
    ct_dist_group_free(t->across);
}

const char *ranks_text(const trainer *t) {
    static char text[112];
    const int cut = t->ranks / t->sharers, stage = t->sharers > 1 ? (int)t->recipe->distributed.shard : 0;
    size_t n = 0;
    text[0] = 0;
    if (cut > 1) n = (size_t)snprintf(text, sizeof text, "; layers are cut among %d", cut);
    if (stage == 1) snprintf(text + n, sizeof text - n, "; the optimizer's state is divided among %d", t->sharers);
    if (stage > 1)
        snprintf(text + n, sizeof text - n, "%s sharded among %d", cut > 1 ? " and" : "; layers are", t->sharers);
    return text;
}

bool ranks_share_folder(trainer *t) {
    bool right = true;
    if (t->ranks == 1) return true;
    ct_scope {
        ct_tensor *name = ct_dist_broadcast(ct_from_data(t->out, CT_DIMS((int64_t)sizeof t->out), CT_U8), 0, NULL);
        right = name && ct_read(name, t->out, sizeof t->out);
    }
    return right;
}

/* ---- One step ---- */

static bool add_part(trainer *t, ct_tensor *const *fields, double weight, ct_tensor **loss, ct_tensor **score) {
    ct_tensor *value = trainer_loss(&t->learner, fields, 2, score);
    if (value && weight != 1) value = ct_mul_s(value, weight);
    *loss = value ? ct_detach(value) : NULL;
    return value && ct_backward(t->scaler ? ct_scaler_scale(t->scaler, value) : value);
}

/* What the mean loss of n items counts where `parts` of such are averaged to that of the batch: 1 where all have as many. */
static double weight_of(const trainer *t, int64_t n, int64_t parts) {
    return (double)(n * parts) / (double)t->recipe->batch;
}

/* The part of the batch, cut once more where gradients are accumulated; all but the last pass keep them here. */
static bool plain_step(trainer *t, const ct_batch *b, ct_tensor **loss, ct_tensor **score) {
    const int64_t parts = t->recipe->accumulate > b->n ? b->n : t->recipe->accumulate > 1 ? t->recipe->accumulate : 1;
    *loss = *score = NULL;
    /* other random numbers on every rank and in every step, whatever came before */
    if (!ct_rng_set_position(NULL, (uint64_t)(t->run.step * t->sharers + t->share) << 20)) return false;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = b->n * i / parts, n = b->n * (i + 1) / parts - first;
        ct_tensor *fields[2], *value = NULL, *more = NULL;
        for (int f = 0; f < 2; f++) fields[f] = parts == 1 ? b->field[f] : ct_narrow(b->field[f], 0, first, n);
        ct_dist_set_sync(t->parallel, i + 1 == parts);
        if (!ct_ok() || !add_part(t, fields, weight_of(t, n, t->sharers), &value, &more)) return false;
        *loss = *loss ? ct_add(*loss, value) : value;
        if (more) *score = *score ? ct_add(*score, more) : more;
    }
    *loss = ct_unsqueeze(*loss, 0);
    if (*score) *score = ct_unsqueeze(*score, 0);
    return ct_ok();
}

/* Each part by itself, of which this rank has several. */
static bool sharded_step(trainer *t, const ct_batch *first, ct_tensor **loss, ct_tensor **score) {
    const int begin = ct_dist_first_shard(t->parallel), n = ct_dist_last_shard(t->parallel) - begin;
    ct_tensor **list = calloc(2 * (size_t)n, sizeof *list);
    ct_batch b = *first;
    bool right = list || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int i = 0; right && i < n; i++) {
        right = (i == 0 || ct_next(t->batches, &b)) && ct_dist_shard(t->parallel, t->run.step, begin + i) &&
                add_part(t, b.field, weight_of(t, b.n, t->recipe->shards), &list[i], &list[n + i]);
    }
    *loss = right ? ct_stack(list, n, 0) : NULL;
    *score = right && list[n] ? ct_stack(list + n, n, 0) : NULL;
    free(list);
    return right && ct_ok();
}

bool ranks_step(trainer *t, const ct_batch *first, double lr) {
    ct_tensor *loss = NULL, *score = NULL;
    const int64_t of_each = t->learner.task == TASK_CLASSIFICATION ? 1 : ct_numel(first->y) / first->n;
    ct_batch noted = *first; /* its tensors go with the next one; what is noted is the size of the whole batch */
    noted.n = t->recipe->batch;
    if (!(t->recipe->shards > 0 ? sharded_step(t, first, &loss, &score) : plain_step(t, first, &loss, &score)))
        return false;
    if (!ct_dist_reduce_gradients(t->parallel)) return false;
    if (t->learner.divided && t->recipe->clip_norm > 0) ct_dist_clip_grad_norm(t->learner.net, t->recipe->clip_norm);
    if (!ct_train_step_update(t->step)) return false;
    return trainer_note(t, loss, score, &noted, noted.n * of_each, lr);
}

/* Who computes longest waits least: the least is communication, what others have more of imbalance. */
bool ranks_note_waiting(trainer *t, double seconds) {
    static double before;
    ct_dist_stats stats = {.size = sizeof stats};
    if (t->ranks == 1) return true;
    if (!ct_dist_get_stats(&stats)) return false;
    const double mine = seconds > 0 ? (stats.seconds - before) / seconds : 0;
    before = stats.seconds;
    double *all = ranks_gather(&mine, 1);
    for (int i = 0; all && i < t->ranks; i++) {
        if (i == 0 || all[i] < t->waited[0]) t->waited[0] = all[i];
        if (i == 0 || all[i] > t->waited[1]) t->waited[1] = all[i];
    }
    free(all);
    return all != NULL;
}

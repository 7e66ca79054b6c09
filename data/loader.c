/* The loader: threads that make batches ahead, in a ring of places, and ct_next, which takes them in order. A batch
 * depends on its number alone, so it does not matter which thread makes it, or when. For another device the same threads bring it
 * there, on a stream beside the one that trains: a copy goes on while the batch before is computed with, and who uses the batch
 * waits for it on the device. */
#include "data/loader.h"

#include <cotangent/capture.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "support/signals.h"

enum { MOST_THREADS = 256, MOST_PREFETCH = 4096 };

typedef enum place_state { FREE = 0, BUSY, READY } place_state;

typedef struct place {
    place_state state;
    ct__made made;
} place;

struct ct_loader {
    ct__recipe recipe;
    ct_sampler *sampler;
    int64_t batch, items, batches; /* items and batches of an epoch */
    int64_t parts, part,
        given_out; /* a batch is cut into parts, of which this loader gives out given_out, from part on */
    int threads, prefetch;
    int64_t epoch, position; /* of the next part of a batch to be given out: given_out of them are a batch */
    int64_t *order;          /* the items of this epoch, where `begun` */
    bool begun;
    place *places; /* prefetch + 1, batch i in i % (prefetch + 1): one more is in the user's hands */
    place *given;  /* that one, or NULL */

    /* Everything below and the states of the places are guarded by lock while threads are there. */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t *running;
    int started, busy;
    int64_t next; /* the first batch that nobody has begun */
    bool stop;
    _Atomic bool cancel; /* batches that are being made are not wanted any more */
    pid_t owner;         /* a forked child has no threads */
};

static int64_t part_total(const ct_loader *loader) { return loader->batches * loader->given_out; } /* of an epoch */
static int place_count(const ct_loader *loader) { return loader->prefetch + 1; }
static place *place_of(ct_loader *loader, int64_t number) { return &loader->places[number % place_count(loader)]; }

/* ---- Threads ---- */

/* How many items the part of that number has, and where they begin in the epoch. */
static int64_t part_items(const ct_loader *loader, int64_t number, int64_t *begin) {
    const int64_t batch = number / loader->given_out, part = loader->part + number % loader->given_out;
    const int64_t size = loader->batch / loader->parts, longer = loader->batch % loader->parts; /* by one item */
    *begin = batch * loader->batch + part * size + (part < longer ? part : longer);
    const int64_t left = loader->items - *begin;
    const int64_t whole = size + (part < longer);
    return left < 0 ? 0 : left < whole ? left : whole;
}

static void fill_place(ct_loader *loader, int64_t epoch, int64_t number, place *at) {
    const int64_t batch = number / loader->given_out, part = loader->part + number % loader->given_out;
    at->made.n = part_items(loader, number, &at->made.first);
    if (at->made.n == 0) return;
    memcpy(at->made.index, loader->order + at->made.first, (size_t)at->made.n * sizeof *at->made.index);
    ct__make_batch(&loader->recipe, epoch, batch * loader->parts + part, &at->made);
}

static void *run(void *context) {
    ct_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop && (atomic_load(&loader->cancel) || loader->next >= part_total(loader) ||
                                 loader->next >= loader->position + loader->prefetch))
            pthread_cond_wait(&loader->work, &loader->lock);
        if (loader->stop) break;
        const int64_t number = loader->next++, epoch = loader->epoch;
        place *at = place_of(loader, number);
        at->state = BUSY;
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        fill_place(loader, epoch, number, at);
        pthread_mutex_lock(&loader->lock);
        at->state = READY;
        loader->busy--;
        pthread_cond_broadcast(&loader->done);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static void init_locks(ct_loader *loader) {
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, NULL);
}

/* In a forked child: the threads are gone, and with them what they were making. */
static void notice_fork(ct_loader *loader) {
    if (loader->owner == getpid()) return;
    loader->owner = getpid();
    init_locks(loader);
    loader->started = loader->busy = 0;
    atomic_store(&loader->cancel, false);
    for (int i = 0; i < place_count(loader); i++) {
        place *at = &loader->places[i];
        if (at == loader->given) continue;
        if (at->state == READY) ct__made_drop(&at->made);
        else memset(at->made.field, 0, sizeof at->made.field);
        at->state = FREE;
    }
    loader->next = loader->position;
}

static void start_threads(ct_loader *loader) {
    sigset_t before;
    ct__signals_block(&before);
    while (loader->started < loader->threads &&
           pthread_create(&loader->running[loader->started], NULL, run, loader) == 0)
        loader->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (loader->started == 0) loader->threads = 0; /* none can be had: the work is done in ct_next */
}

static void drop_place(place *at) {
    ct__made_drop(&at->made);
    at->state = FREE;
}

/* Throws away whatever was made ahead; afterwards nobody is at work. */
static void settle(ct_loader *loader) {
    notice_fork(loader);
    pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->cancel, true);
    while (loader->busy) pthread_cond_wait(&loader->done, &loader->lock);
    for (int i = 0; i < place_count(loader); i++)
        if (&loader->places[i] != loader->given) drop_place(&loader->places[i]);
    loader->next = part_total(loader);
    atomic_store(&loader->cancel, false);
    pthread_mutex_unlock(&loader->lock);
}

/* ---- Making and freeing ---- */

void ct_loader_free(ct_loader *loader) {
    if (!loader) return;
    if (loader->owner == getpid() && loader->started) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        atomic_store(&loader->cancel, true);
        pthread_cond_broadcast(&loader->work);
        pthread_mutex_unlock(&loader->lock);
        for (int i = 0; i < loader->started; i++) pthread_join(loader->running[i], NULL);
    } else {
        notice_fork(loader);
    }
    for (int i = 0; loader->places && i < place_count(loader); i++) {
        drop_place(&loader->places[i]);
        ct_free(loader->places[i].made.index);
        ct_free(loader->places[i].made.length);
    }
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->done);
    ct_free(loader->places);
    ct_free(loader->running);
    ct_free(loader->order);
    ct_sampler_free(loader->sampler);
    ct_transform_free(loader->recipe.items);
    ct_transform_free(loader->recipe.transform);
    ct_dataset_free(loader->recipe.dataset);
    ct_stream_free(loader->recipe.stream);
    ct_free(loader);
}

static bool check(const ct_dataset *dataset, int64_t batch, const ct_batches_options *o) {
    if (!dataset) return ct__null("batches", "dataset");
    if (!ct_ok()) return false;
    if (batch < 1) return ct_fail(CT_ERR_VALUE, "batches", "batch is %lld; expected 1 or more", (long long)batch);
    const double threads = o->threads.set ? o->threads.value : 1;
    if (!(threads >= 0 && threads <= MOST_THREADS) || threads != (int)threads)
        return ct_fail(CT_ERR_VALUE, "batches", "threads is %g; expected 0 to %d", threads, MOST_THREADS);
    if (o->prefetch < 0 || o->prefetch > MOST_PREFETCH)
        return ct_fail(CT_ERR_VALUE, "batches", "prefetch is %d; expected 0 to %d", o->prefetch, MOST_PREFETCH);
    if (o->parts < 0 || o->parts > batch)
        return ct_fail(CT_ERR_VALUE, "batches", "a batch of %lld items cannot be cut into %d parts", (long long)batch,
                       o->parts);
    const int parts = o->parts ? o->parts : 1, count = o->part_count ? o->part_count : 1;
    if (o->part < 0 || count < 0 || o->part >= parts || count > parts - o->part)
        return ct_fail(CT_ERR_VALUE, "batches", "%d parts from %d on, of %d", count, o->part, parts);
    if (o->sampler && o->shuffle)
        return ct_fail(CT_ERR_VALUE, "batches", "shuffle and a sampler are given; the sampler decides the order");
    return true;
}

static bool fill_loader(ct_loader *loader, const ct_batches_options *o) {
    loader->threads = o->threads.set ? (int)o->threads.value : 1;
    loader->prefetch = o->prefetch ? o->prefetch : loader->threads + 1;
    if (loader->threads == 0) loader->prefetch = 0;
    if (!loader->sampler) loader->sampler = o->shuffle ? ct_sampler_random() : ct_sampler_sequential();
    if (!loader->sampler) return false;
    const int64_t count = loader->recipe.dataset->count;
    loader->items = loader->sampler->items ? loader->sampler->items : count;
    if (count == 0) loader->items = 0;
    loader->batches = loader->items / loader->batch;
    if (!o->drop_last && loader->items % loader->batch) loader->batches++;
    loader->parts = o->parts ? o->parts : 1;
    loader->part = o->part;
    loader->given_out = o->part_count ? o->part_count : 1;
    loader->next = part_total(loader);
    loader->recipe.seed = o->seed;
    loader->recipe.raw = o->raw;
    loader->recipe.once = loader->sampler->once;
    loader->recipe.pad = o->pad.set;
    loader->recipe.pad_value = o->pad.value;
    loader->recipe.cancel = &loader->cancel;
    loader->recipe.device = o->device.type == CT_CURRENT ? ct_get_device() : o->device;
    if (loader->recipe.device.type != CT_CPU && !(loader->recipe.stream = ct_stream_new(loader->recipe.device)))
        return false;
    loader->recipe.items = ct__transform_cut(loader->recipe.transform, &loader->recipe.last);
    if (!ct_ok()) return false;
    loader->order = ct__zeroed("batches", loader->items, sizeof *loader->order);
    loader->running = loader->order ? ct__zeroed("batches", loader->threads, sizeof *loader->running) : NULL;
    loader->places = loader->running ? ct__zeroed("batches", place_count(loader), sizeof *loader->places) : NULL;
    if (!loader->places) return false;
    const int64_t room = loader->batch < loader->items ? loader->batch : loader->items;
    for (int i = 0; i < place_count(loader); i++) {
        ct__made *made = &loader->places[i].made;
        made->index = ct__zeroed("batches", room, sizeof *made->index);
        made->length = made->index ? ct__zeroed("batches", room, sizeof *made->length) : NULL;
        if (!made->length) return false;
    }
    return true;
}

ct_loader *ct_batches_p(ct_dataset *dataset, int64_t batch, const ct_batches_options *options) {
    TAKE_OPTIONS(ct_batches_options, o, options);
    ct_loader *loader = check(dataset, batch, &o) ? ct__zeroed("batches", 1, sizeof *loader) : NULL;
    if (!loader) {
        ct_sampler_free(o.sampler);
        ct_transform_free(o.transform);
        return NULL;
    }
    init_locks(loader);
    loader->owner = getpid();
    loader->recipe.dataset = ct_dataset_keep(dataset);
    loader->recipe.transform = o.transform;
    loader->sampler = o.sampler;
    loader->batch = batch;
    if (fill_loader(loader, &o)) return loader;
    ct_loader_free(loader);
    return NULL;
}

int64_t ct_loader_batches(const ct_loader *loader) { return loader ? loader->batches : 0; }
int64_t ct_loader_items(const ct_loader *loader) {
    if (!loader) return 0;
    const int64_t most = loader->batches * loader->batch;
    return most < loader->items ? most : loader->items;
}
ct_dataset *ct_loader_dataset(const ct_loader *loader) { return loader ? loader->recipe.dataset : NULL; }

/* ---- Giving out ---- */

/* Draws the order of the epoch and sets the threads to work. */
static bool begin_epoch(ct_loader *loader) {
    ct_draw draw = ct__draw_begin(loader->recipe.seed, CT__DRAW_ORDER, loader->epoch, 0);
    const int64_t count = loader->recipe.dataset->count;
    const bool done =
        loader->sampler->fill(loader->sampler->context, loader->recipe.dataset, loader->order, loader->items, &draw);
    ct__draw_end(&draw);
    if (!ct_ok()) return false;
    if (!done) return ct_fail(CT_ERR_VALUE, "batches", "the sampler failed without a reason given");
    for (int64_t i = 0; i < loader->items; i++)
        if (loader->order[i] < 0 || loader->order[i] >= count)
            return ct_fail(CT_ERR_INDEX, "batches", "the sampler chose item %lld of %lld", (long long)loader->order[i],
                           (long long)count);
    loader->begun = true;
    if (loader->threads && loader->started == 0) start_threads(loader);
    pthread_mutex_lock(&loader->lock);
    loader->next = loader->position;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return true;
}

/* Back to where an epoch begins, or into the middle of one. */
static void move_to(ct_loader *loader, int64_t epoch, int64_t position) {
    settle(loader);
    pthread_mutex_lock(&loader->lock);
    loader->epoch = epoch;
    loader->position = position;
    loader->begun = false;
    pthread_mutex_unlock(&loader->lock);
}

/* The place of the next batch, once it is made. */
static place *await(ct_loader *loader) {
    place *at = place_of(loader, loader->position);
    if (loader->threads == 0) {
        fill_place(loader, loader->epoch, loader->position, at);
        at->state = READY;
        return at;
    }
    pthread_mutex_lock(&loader->lock);
    while (at->state != READY) pthread_cond_wait(&loader->done, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return at;
}

static void advance(ct_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    loader->position++;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

/* Past a part that has no items; a thread may have made it, or be at it. */
static void skip(ct_loader *loader) {
    if (loader->threads && loader->begun && loader->started) drop_place(await(loader));
    advance(loader);
}

static void give_back(ct_loader *loader) {
    if (!loader->given) return;
    pthread_mutex_lock(&loader->lock);
    drop_place(loader->given);
    loader->given = NULL;
    pthread_mutex_unlock(&loader->lock);
}

bool ct_next_p(ct_loader *loader, ct_batch *batch, size_t size) {
    if (size > sizeof *batch) size = sizeof *batch; /* a newer caller does not look for what this version lacks */
    if (batch) memset(batch, 0, size);
    if (!loader || !batch) return ct__null("next", loader ? "batch" : "loader");
    if (!ct_ok()) return false;
    ct_capture_refuse("next", "the batch of a loader", NULL);
    notice_fork(loader);
    give_back(loader);
    int64_t begin;
    while (loader->position < part_total(loader) && part_items(loader, loader->position, &begin) == 0) skip(loader);
    if (loader->position >= part_total(loader)) {
        move_to(loader, loader->epoch + 1, 0);
        return false;
    }
    if (!loader->begun || (loader->threads && loader->started == 0)) {
        if (!begin_epoch(loader)) return false;
    }
    place *at = await(loader);
    const ct__made *made = &at->made;
    if (made->code != CT_OK) {
        ct_fail(made->code, made->op, "%s", made->text);
        drop_place(at);
        advance(loader);
        return false;
    }
    const ct_batch whole = {.n = made->n,
                            .x = made->field[0],
                            .y = made->field[1],
                            .field = made->field,
                            .index = made->index,
                            .length = loader->recipe.pad ? made->length : NULL,
                            .epoch = loader->epoch,
                            .position = loader->position / loader->given_out,
                            .part = (int)(loader->part + loader->position % loader->given_out)};
    memcpy(batch, &whole, size);
    loader->given = at;
    advance(loader);
    return true;
}

bool ct_loader_seek(ct_loader *loader, int64_t epoch) {
    if (!loader) return ct__null("loader_seek", "loader");
    if (!ct_ok()) return false;
    if (epoch < 0) return ct_fail(CT_ERR_VALUE, "loader_seek", "epoch %lld", (long long)epoch);
    notice_fork(loader);
    give_back(loader);
    move_to(loader, epoch, 0);
    return true;
}

/* ---- State ---- */

enum { STATE_VERSION = 1, STATE_NUMBERS = 6 };

static bool state_name(const char *op, const char *prefix, char name[256]) {
    if (snprintf(name, 256, "%sloader", prefix ? prefix : "") < 256) return true;
    return ct_fail(CT_ERR_VALUE, op, "the prefix has more than 240 characters");
}

bool ct_loader_put_state(ct_loader *loader, ct_state *state, const char *prefix) {
    char name[256];
    if (!loader || !state) return ct__null("loader_put_state", loader ? "state" : "loader");
    if (!ct_ok() || !state_name("loader_put_state", prefix, name)) return false;
    const int64_t numbers[STATE_NUMBERS] = {STATE_VERSION, (int64_t)loader->recipe.seed,
                                            loader->epoch, loader->position / loader->given_out,
                                            loader->items, loader->batch};
    return ct_state_put_integers(state, name, numbers, STATE_NUMBERS);
}

bool ct_loader_take_state(ct_loader *loader, const ct_state *state, const char *prefix) {
    char name[256];
    int64_t numbers[STATE_NUMBERS];
    if (!loader || !state) return ct__null("loader_take_state", loader ? "state" : "loader");
    if (!ct_ok() || !state_name("loader_take_state", prefix, name)) return false;
    if (!ct_state_integers(state, name, numbers, STATE_NUMBERS)) return false;
    if (numbers[0] != STATE_VERSION)
        return ct_fail(CT_ERR_VALUE, "loader_take_state", "%s is of version %lld; expected %d", name,
                       (long long)numbers[0], STATE_VERSION);
    if (numbers[4] != loader->items || numbers[5] != loader->batch)
        return ct_fail(CT_ERR_VALUE, "loader_take_state",
                       "%s is of %lld items in batches of %lld; this loader has %lld in batches of %lld", name,
                       (long long)numbers[4], (long long)numbers[5], (long long)loader->items,
                       (long long)loader->batch);
    if (numbers[2] < 0 || numbers[3] < 0 || numbers[3] > loader->batches)
        return ct_fail(CT_ERR_VALUE, "loader_take_state", "%s says epoch %lld, batch %lld of %lld", name,
                       (long long)numbers[2], (long long)numbers[3], (long long)loader->batches);
    notice_fork(loader);
    give_back(loader);
    move_to(loader, numbers[2], numbers[3] * loader->given_out);
    loader->recipe.seed = (uint64_t)numbers[1];
    return true;
}

/* The loader: order, the same bits at any number of threads, resuming, errors of its threads, padding, samplers,
 * forks. */
#include "tests/harness.h"

#include <cotangent/data.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"

/* n items: x f32 [2] = (i, 10 i), y i64 [] = i % 3 */
static ct_dataset *numbers(int64_t n) {
    ct_dataset *set = NULL;
    ct_scope {
        ct_tensor *x = ct_empty(CT_DIMS(n, 2)), *y = ct_empty(CT_DIMS(n), .dtype = CT_I64);
        float *a = ct_data_mut(x);
        int64_t *b = ct_data_mut(y);
        for (int64_t i = 0; i < n; i++) {
            a[2 * i] = (float)i;
            a[2 * i + 1] = (float)(10 * i);
            b[i] = i % 3;
        }
        set = ct_dataset_tensors((ct_tensor *[]){x, y}, 2);
    }
    return set;
}

static uint64_t digest_tensor(uint64_t h, ct_tensor *x) {
    if (!x) return h;
    const size_t bytes = (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x));
    unsigned char *copy = malloc(bytes + 1);
    if (copy && ct_read(x, copy, bytes))
        for (size_t i = 0; i < bytes; i++) h = (h ^ copy[i]) * 1099511628211u;
    free(copy);
    return h;
}

/* Everything that one epoch gives out, as one number. */
static uint64_t digest_epoch(ct_loader *loader) {
    uint64_t h = 14695981039346656037u;
    for (ct_batch b; ct_next(loader, &b);) {
        for (int f = 0; f < CT_MAX_FIELDS; f++) h = digest_tensor(h, b.field[f]);
        for (int64_t i = 0; i < b.n; i++) h = (h ^ (uint64_t)b.index[i]) * 1099511628211u;
        h = (h ^ (uint64_t)(b.epoch * 1000 + b.position)) * 1099511628211u;
    }
    return h;
}

TEST(an_epoch_has_every_item_once_and_in_order) {
    ct_dataset *set = numbers(10);
    ct_loader *loader = ct_batches(set, 4);
    CHECK(ct_loader_batches(loader) == 3 && ct_loader_items(loader) == 10);
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t seen = 0, batches = 0;
        for (ct_batch b; ct_next(loader, &b); batches++) {
            CHECK(b.epoch == epoch && b.position == batches);
            CHECK(b.n == (batches < 2 ? 4 : 2) && ct_dim(b.x, 0) == b.n && ct_dim(b.x, 1) == 2);
            CHECK(b.x == b.field[0] && b.y == b.field[1] && !b.field[2] && !b.length);
            for (int64_t i = 0; i < b.n; i++, seen++) {
                CHECK(b.index[i] == seen && harness_at(b.x, 2 * i + 1) == (double)(10 * seen));
                CHECK(harness_at(b.y, i) == (double)(seen % 3));
            }
        }
        CHECK(seen == 10 && ct_ok());
    }
    ct_loader_free(loader);
    ct_dataset_free(set);
}

TEST(drop_last_leaves_the_small_batch_out) {
    ct_dataset *set = numbers(10);
    ct_loader *loader = ct_batches(set, 4, .drop_last = true);
    CHECK(ct_loader_batches(loader) == 2 && ct_loader_items(loader) == 8);
    int n = 0;
    for (ct_batch b; ct_next(loader, &b); n++) CHECK(b.n == 4);
    CHECK(n == 2);
    ct_loader_free(loader);
    ct_dataset_free(set);
}

TEST(shuffling_gives_every_item_once_in_another_order_each_epoch) {
    ct_dataset *set = numbers(50);
    ct_loader *loader = ct_batches(set, 7, .shuffle = true, .seed = 3);
    int64_t first[50], order[50];
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[50] = {0}, n = 0, moved = 0;
        for (ct_batch b; ct_next(loader, &b);)
            for (int64_t i = 0; i < b.n; i++) {
                order[n] = b.index[i];
                moved += order[n] != n;
                seen[order[n++]]++;
            }
        for (int i = 0; i < 50; i++) CHECK(seen[i] == 1);
        CHECK(n == 50 && moved > 25);
        if (epoch == 0) memcpy(first, order, sizeof first);
    }
    CHECK(memcmp(first, order, sizeof first) != 0);
    ct_loader_free(loader);
    ct_dataset_free(set);
}

static ct_transform *augmentation(void) {
    return ct_transform_chain(ct_transform_random_crop(20, 20, 3), ct_transform_flip(0.5), ct_transform_cutout(6, 0.7),
                              ct_transform_random_rotate(20, false), ct_transform_color_jitter(0.3, 0.3, 0, 0),
                              ct_transform_normalize((double[]){0.4}, (double[]){0.3}, 1), ct_transform_mixup(0.4, 0.5),
                              ct_transform_cutmix(1, 0.5));
}

TEST(the_same_bits_at_any_number_of_threads) {
    ct_dataset *set = ct_dataset_shapes(70, 20, 1);
    uint64_t expected[3] = {0};
    static const int threads[] = {0, 1, 3};
    for (int t = 0; t < 3; t++) {
        ct_loader *loader = ct_batches(set, 16, .shuffle = true, .seed = 9, .threads = CT_SET(threads[t]),
                                       .prefetch = t == 2 ? 5 : 0, .transform = augmentation());
        REQUIRE(loader);
        for (int epoch = 0; epoch < 3; epoch++) {
            const uint64_t digest = digest_epoch(loader);
            if (t == 0) expected[epoch] = digest;
            CHECK(digest == expected[epoch]);
        }
        ct_loader_free(loader);
    }
    CHECK(expected[0] != expected[1]);
    ct_loader *other = ct_batches(set, 16, .shuffle = true, .seed = 10, .transform = augmentation());
    CHECK(digest_epoch(other) != expected[0]);
    ct_loader_free(other);
    ct_dataset_free(set);
    CHECK(ct_ok());
}

TEST(the_fast_path_gives_the_bits_of_the_slow_one) {
    ct_dataset *set = ct_dataset_shapes(33, 16, 2), *slow = ct_dataset_map(set, ct_transform_flip(0));
    ct_transform *normalize = ct_transform_normalize((double[]){0.2860}, (double[]){0.3530}, 1);
    ct_loader *a = ct_batches(set, 8, .transform = ct_transform_keep(normalize));
    ct_loader *b = ct_batches(slow, 8, .transform = ct_transform_keep(normalize));
    /* a transform behind it keeps the normalizing with the items */
    ct_loader *c = ct_batches(set, 8, .transform = ct_transform_chain(normalize, ct_transform_flip(0)));
    const uint64_t expected = digest_epoch(a);
    CHECK(digest_epoch(b) == expected && digest_epoch(c) == expected);
    ct_loader_free(a);
    ct_loader_free(b);
    ct_loader_free(c);
    ct_dataset_free(slow);
    ct_dataset_free(set);
}

TEST(pixels_become_numbers_unless_they_are_wanted_raw) {
    ct_dataset *set = NULL;
    ct_scope {
        set = ct_dataset_tensors((ct_tensor *[]){TENSOR(CT_U8, CT_DIMS(2, 1, 1, 3), 0, 51, 255, 102, 204, 1)}, 1);
    }
    ct_loader *loader = ct_batches(set, 2), *raw = ct_batches(set, 2, .raw = true);
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    CHECK(!b.y);
    CHECK_VALUES(b.x, CT_DIMS(2, 1, 1, 3), 1e-7, 0, 0.2, 1, 0.4, 0.8, 1.0 / 255);
    REQUIRE(ct_next(raw, &b));
    CHECK(ct_dtype_of(b.x) == CT_U8);
    CHECK_VALUES(b.x, CT_DIMS(2, 1, 1, 3), 0, 0, 51, 255, 102, 204, 1);
    ct_loader_free(loader);
    ct_loader_free(raw);
    ct_dataset_free(set);
}

TEST(a_run_resumes_in_the_middle_of_an_epoch) {
    ct_dataset *set = ct_dataset_shapes(40, 20, 4);
    for (int stop = 0; stop <= 5; stop++) {
        ct_loader *loader = ct_batches(set, 8, .shuffle = true, .seed = 5, .transform = augmentation());
        ct_batch b;
        while (ct_next(loader, &b)) {
        }
        for (int i = 0; i < stop; i++) REQUIRE(ct_next(loader, &b));
        ct_state *state = ct_state_new();
        CHECK(ct_loader_put_state(loader, state, "run."));
        const uint64_t rest = digest_epoch(loader), next = digest_epoch(loader);
        /* another seed and other threads: the state decides */
        ct_loader *again =
            ct_batches(set, 8, .shuffle = true, .seed = 77, .threads = CT_SET(2), .transform = augmentation());
        CHECK(ct_next(again, &b));
        CHECK(ct_loader_take_state(again, state, "run."));
        CHECK(digest_epoch(again) == rest && digest_epoch(again) == next);
        ct_state_free(state);
        ct_loader_free(loader);
        ct_loader_free(again);
    }
    ct_dataset_free(set);
    CHECK(ct_ok());
}

/* What `ranks` loaders, each with its part of every batch, give out together, batch by batch in the order of ranks; from a state. */
static int order_of_parts(ct_dataset *set, int parts, int ranks, int threads, const ct_state *state, int64_t *order) {
    enum { BATCH = 8, MOST = 64 };
    const int here = parts / ranks;
    int64_t items[MOST][BATCH] = {{0}};
    int counts[MOST] = {0}, n = 0;
    for (int r = 0; r < ranks; r++) {
        ct_loader *loader = ct_batches(set, BATCH, .shuffle = true, .seed = 5, .threads = CT_SET(threads),
                                       .parts = parts, .part = here * r, .part_count = here);
        if (state) CHECK(ct_loader_take_state(loader, state, ""));
        CHECK(ct_loader_batches(loader) == 7 && ct_loader_items(loader) == 51);
        for (ct_batch b; ct_next(loader, &b);) {
            CHECK(b.part >= here * r && b.part < here * (r + 1) && ct_dim(b.x, 0) == b.n);
            CHECK(b.position == 6 || b.n == BATCH / parts || (b.part < BATCH % parts && b.n == BATCH / parts + 1));
            for (int64_t i = 0; i < b.n; i++) items[b.position][counts[b.position]++] = b.index[i];
        }
        CHECK(ct_ok());
        ct_loader_free(loader);
    }
    for (int batch = 0; batch < MOST; batch++)
        for (int i = 0; i < counts[batch]; i++) order[n++] = items[batch][i];
    return n;
}

TEST(parts_of_batches_are_together_the_epoch_whatever_their_number) {
    ct_dataset *set = numbers(51); /* the last batch has three items: parts of 2, 1, 0 and 0 */
    ct_loader *whole = ct_batches(set, 8, .shuffle = true, .seed = 5);
    ct_state *state = ct_state_new();
    int64_t expected[64], got[64], from = 0, n = 0;
    for (ct_batch b; ct_next(whole, &b);) {
        memcpy(expected + n, b.index, (size_t)b.n * sizeof *expected);
        n += b.n;
        if (b.position == 2) CHECK(ct_loader_put_state(whole, state, "")), from = n;
    }
    CHECK(n == 51);
    static const int divisions[][2] = {{4, 1}, {4, 2}, {4, 4}, {3, 3},
                                       {5, 5}, {6, 3}, {7, 1}, {8, 8}}; /* parts, ranks */
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++)
        for (int threads = 0; threads <= 2; threads += 2) {
            const int parts = divisions[i][0], ranks = divisions[i][1];
            CHECK(order_of_parts(set, parts, ranks, threads, NULL, got) == 51 &&
                  memcmp(got, expected, 51 * sizeof *got) == 0);
            /* from the middle of an epoch, which another number of processes had begun */
            CHECK(order_of_parts(set, parts, ranks, threads, state, got) == 51 - from &&
                  memcmp(got, expected + from, (size_t)(51 - from) * sizeof *got) == 0);
        }
    CHECK(!ct_batches(set, 8, .parts = 9));
    CHECK_ERROR(CT_ERR_VALUE, "batches: a batch of 8 items cannot be cut into 9 parts");
    CHECK(!ct_batches(set, 8, .parts = 4, .part = 3, .part_count = 2));
    CHECK_ERROR(CT_ERR_VALUE, "batches: 2 parts from 3 on, of 4");
    ct_state_free(state);
    ct_loader_free(whole);
    ct_dataset_free(set);
}

TEST(a_state_of_another_loader_is_refused_and_nothing_moves) {
    ct_dataset *set = numbers(10), *more = numbers(11);
    ct_loader *loader = ct_batches(set, 4), *other = ct_batches(more, 4);
    ct_state *state = ct_state_new();
    ct_batch b;
    REQUIRE(ct_next(loader, &b) && ct_loader_put_state(other, state, ""));
    CHECK(!ct_loader_take_state(loader, state, ""));
    CHECK_ERROR(CT_ERR_VALUE,
                "loader_take_state: loader is of 11 items in batches of 4; this loader has 10 in batches of 4");
    CHECK(!ct_loader_take_state(loader, state, "missing."));
    CHECK(!ct_ok());
    ct_error_clear();
    REQUIRE(ct_next(loader, &b));
    CHECK(b.position == 1);
    ct_state_free(state);
    ct_loader_free(loader);
    ct_loader_free(other);
    ct_dataset_free(set);
    ct_dataset_free(more);
}

TEST(seeking_begins_an_epoch_anew) {
    ct_dataset *set = numbers(30);
    ct_loader *loader = ct_batches(set, 4, .shuffle = true, .threads = CT_SET(2));
    const uint64_t first = digest_epoch(loader), second = digest_epoch(loader);
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    CHECK(ct_loader_seek(loader, 1) && digest_epoch(loader) == second);
    CHECK(ct_loader_seek(loader, 0) && digest_epoch(loader) == first);
    CHECK(!ct_loader_seek(loader, -1));
    CHECK_ERROR(CT_ERR_VALUE, "loader_seek: epoch -1");
    ct_loader_free(loader);
    ct_dataset_free(set);
}

/* ---- Data of the user ---- */

static bool fail_at_seven(ct_dataset *self, int64_t index, ct_tensor **fields) {
    (void)self;
    if (index == 7) return ct_fail(CT_ERR_IO, "my_get", "item %d is broken", 7);
    if (index == 12) return false;
    fields[0] = ct_scalar((double)index, CT_F32);
    return fields[0] != NULL;
}
static const ct_dataset_class failing = {
    .size = sizeof(ct_dataset_class), .name = "failing", .fields = 1, .get = fail_at_seven};

TEST(an_error_in_a_loader_thread_reaches_ct_next_and_the_rest_goes_on) {
    for (int threads = 0; threads < 3; threads++) {
        ct_dataset *set = ct_dataset_new(&failing, 16);
        ct_loader *loader = ct_batches(set, 4, .threads = CT_SET(threads));
        ct_batch b;
        CHECK(ct_next(loader, &b) && b.position == 0);
        CHECK(!ct_next(loader, &b));
        CHECK(b.n == 0 && !b.x);
        CHECK(!ct_next(loader, &b)); /* still pending: nothing moves */
        CHECK_TEXT(ct_error_op(), "my_get");
        CHECK_ERROR(CT_ERR_IO, "my_get: item 7 is broken");
        CHECK(ct_next(loader, &b) && b.position == 2);
        CHECK(!ct_next(loader, &b));
        CHECK_ERROR(CT_ERR_VALUE, "dataset_get: item 12 of failing could not be had, without a reason given");
        CHECK(!ct_next(loader, &b) && ct_ok()); /* the end */
        CHECK(ct_next(loader, &b) && b.epoch == 1);
        ct_loader_free(loader);
        ct_dataset_free(set);
    }
}

static _Atomic int slow_calls;
static bool slow_get(ct_dataset *self, int64_t index, ct_tensor **fields) {
    (void)self;
    atomic_fetch_add(&slow_calls, 1);
    usleep(2000);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    fields[0] = ct_scalar((double)index, CT_F32);
    fields[1] = ct_scalar(sigismember(&mask, SIGINT), CT_I64);
    return true;
}
static const ct_dataset_class slow = {.size = sizeof(ct_dataset_class), .name = "slow", .fields = 2, .get = slow_get};

TEST(freeing_while_batches_are_made_waits_for_no_whole_batch) {
    ct_dataset *set = ct_dataset_new(&slow, 100000);
    ct_loader *loader = ct_batches(set, 5000, .threads = CT_SET(2), .prefetch = 6);
    ct_loader *small = ct_batches(set, 2, .threads = CT_SET(2), .prefetch = 6);
    ct_batch b;
    REQUIRE(ct_next(small, &b));
    CHECK(harness_at(b.y, 0) == 1); /* the loader's threads take no signals */
    (void)loader;
    const double begin = harness_seconds();
    ct_loader_free(small);
    ct_loader_free(loader);
    ct_dataset_free(set);
    CHECK(harness_seconds() - begin < 2);
}

TEST(nothing_is_read_before_the_first_next_and_no_more_than_asked_for_after_it) {
    ct_dataset *set = ct_dataset_new(&slow, 100);
    atomic_store(&slow_calls, 0);
    ct_loader *loader = ct_batches(set, 1, .prefetch = 3);
    usleep(20000);
    CHECK(atomic_load(&slow_calls) == 0);
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    usleep(100000);
    CHECK(atomic_load(&slow_calls) == 4); /* the one that was given out, and three ahead */
    ct_loader_free(loader);
    ct_dataset_free(set);
}

TEST(a_batch_outlives_scopes_and_what_is_kept_of_it_outlives_the_loader) {
    ct_dataset *set = numbers(8);
    ct_loader *loader = ct_batches(set, 4);
    ct_batch b = {0};
    ct_scope {
        CHECK(ct_next(loader, &b));
    }
    CHECK_VALUES(b.y, CT_DIMS(4), 0, 0, 1, 2, 0);
    ct_tensor *kept = ct_keep(b.x);
    CHECK(ct_next(loader, &b));
    ct_loader_free(loader);
    ct_dataset_free(set);
    CHECK_VALUES(kept, CT_DIMS(4, 2), 0, 0, 0, 1, 10, 2, 20, 3, 30);
    ct_drop(kept);
}

TEST(a_forked_child_goes_on_by_itself) {
#ifdef __SANITIZE_THREAD__
    SKIP("the thread sanitizer does not allow threads in a forked child");
#endif
    ct_dataset *set = numbers(64);
    ct_loader *loader = ct_batches(set, 4, .shuffle = true, .threads = CT_SET(2));
    const uint64_t expected = digest_epoch(loader);
    CHECK(ct_loader_seek(loader, 0));
    ct_batch b;
    for (int i = 0; i < 3; i++) REQUIRE(ct_next(loader, &b));
    const int64_t here = b.position;
    const pid_t child = fork();
    if (child == 0) {
        ct_batch c;
        int64_t seen = 0;
        while (ct_next(loader, &c)) seen += c.n;
        bool ok = seen == 64 - 12 && ct_loader_seek(loader, 0) && digest_epoch(loader) == expected;
        ct_loader_free(loader);
        ct_dataset_free(set);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ct_next(loader, &b) && b.position == here + 1);
    ct_loader_free(loader);
    ct_dataset_free(set);
}

/* ---- Collation ---- */

static bool get_sequence(ct_dataset *self, int64_t index, ct_tensor **fields) {
    (void)self;
    fields[0] = ct_full(CT_DIMS(index + 1, 2), (double)(index + 1));
    fields[1] = ct_scalar((double)index, CT_I64);
    return fields[0] && fields[1];
}
static const ct_dataset_class sequences = {
    .size = sizeof(ct_dataset_class), .name = "sequences", .fields = 2, .get = get_sequence};

TEST(items_of_different_length_are_padded_or_refused) {
    ct_dataset *set = ct_dataset_new(&sequences, 3);
    ct_loader *padded = ct_batches(set, 3, .pad = CT_SET(-1)), *plain = ct_batches(set, 3);
    ct_batch b;
    REQUIRE(ct_next(padded, &b));
    CHECK_VALUES(b.x, CT_DIMS(3, 3, 2), 0, 1, 1, -1, -1, -1, -1, 2, 2, 2, 2, -1, -1, 3, 3, 3, 3, 3, 3);
    CHECK(b.length && b.length[0] == 1 && b.length[1] == 2 && b.length[2] == 3);
    CHECK(!ct_next(plain, &b));
    CHECK_ERROR(CT_ERR_SHAPE,
                "batches: field 0 of item 1 is f32[2,2], that of item 0 is f32[1,2]; a transform (resize, "
                "crop) or .pad makes them alike");
    ct_loader_free(padded);
    ct_loader_free(plain);
    ct_dataset_free(set);
}

TEST(an_empty_dataset_has_no_batches) {
    ct_dataset *set = ct_dataset_new(&sequences, 0);
    ct_loader *loader = ct_batches(set, 3, .shuffle = true);
    ct_batch b;
    CHECK(ct_loader_batches(loader) == 0 && !ct_next(loader, &b) && ct_ok());
    ct_loader_free(loader);
    ct_dataset_free(set);
}

/* ---- Samplers ---- */

static void count_labels(ct_loader *loader, int64_t *count, int64_t *total) {
    *total = 0;
    for (ct_batch b; ct_next(loader, &b);)
        for (int64_t i = 0; i < b.n; i++, ++*total) count[b.index[i]]++;
}

TEST(samplers_choose_as_they_say) {
    ct_dataset *set = numbers(9); /* labels 0 1 2 0 1 2 ... */
    int64_t total, count[9] = {0};
    double weights[9] = {0, 0, 1, 0, 0, 3, 0, 0, 0};
    ct_loader *loader = ct_batches(set, 50, .sampler = ct_sampler_weighted(weights, 9, 4000));
    CHECK(ct_loader_items(loader) == 4000);
    count_labels(loader, count, &total);
    CHECK(total == 4000 && count[2] + count[5] == 4000);
    CHECK_NEAR((double)count[5] / 4000, 0.75, 5 * sqrt(0.75 * 0.25 / 4000)); /* five deviations */
    ct_loader_free(loader);

    /* one class is four times as frequent: balanced, it is drawn as often as the other */
    ct_dataset *uneven = ct_dataset_subset(set, (int64_t[]){0, 3, 6, 0, 1}, 5);
    CHECK(ct_dataset_classes(uneven) == 3);
    loader = ct_batches(uneven, 50, .sampler = ct_sampler_balanced(4000));
    memset(count, 0, sizeof count);
    count_labels(loader, count, &total);
    CHECK(total == 4000);
    CHECK_NEAR((double)count[4] / 4000, 0.5, 5 * sqrt(0.25 / 4000));
    CHECK_NEAR((double)count[1] / 4000, 0.125, 5 * sqrt(0.125 * 0.875 / 4000));
    ct_loader_free(loader);
    ct_dataset_free(uneven);

    loader = ct_batches(set, 2, .sampler = ct_sampler_subset((int64_t[]){8, 1, 4}, 3));
    memset(count, 0, sizeof count);
    count_labels(loader, count, &total);
    CHECK(total == 3 && count[8] == 1 && count[1] == 1 && count[4] == 1);
    ct_loader_free(loader);

    loader = ct_batches(set, 7, .sampler = ct_sampler_replacement(900));
    memset(count, 0, sizeof count);
    count_labels(loader, count, &total);
    for (int i = 0; i < 9; i++) CHECK_NEAR((double)count[i], 100, 5 * sqrt(100 * 8.0 / 9));
    ct_loader_free(loader);
    ct_dataset_free(set);
}

TEST(an_item_that_comes_twice_is_drawn_anew) {
    ct_dataset *set = ct_dataset_shapes(1, 16, 1);
    uint64_t expected = 0;
    for (int threads = 0; threads < 3; threads++) {
        ct_loader *loader = ct_batches(set, 3, .sampler = ct_sampler_replacement(9), .threads = CT_SET(threads),
                                       .transform = ct_transform_random_rotate(90, false));
        ct_batch b;
        REQUIRE(ct_next(loader, &b));
        ct_tensor *parts[3];
        REQUIRE(ct_split(b.x, 0, CT_DIMS(1), parts, 3));
        CHECK(!harness_same_bits(parts[0], parts[1]) && !harness_same_bits(parts[1], parts[2]));
        CHECK(ct_loader_seek(loader, 0));
        const uint64_t digest = digest_epoch(loader);
        if (threads == 0) expected = digest;
        CHECK(digest == expected);
        ct_loader_free(loader);
    }
    ct_dataset_free(set);
}

static int released;
static bool reversed(void *context, ct_dataset *dataset, int64_t *indices, int64_t n, ct_draw *draw) {
    (void)draw;
    for (int64_t i = 0; i < n; i++) indices[i] = ct_dataset_count(dataset) - 1 - i + *(int *)context;
    return true;
}
static void count_release(void *context) {
    (void)context;
    released++;
}

TEST(a_sampler_of_the_user_is_checked) {
    ct_dataset *set = numbers(4);
    int shift = 0;
    ct_loader *loader = ct_batches(set, 4, .sampler = ct_sampler_call(reversed, &shift, 0, count_release));
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    CHECK(b.index[0] == 3 && b.index[3] == 0);
    CHECK(!ct_next(loader, &b));
    shift = 1;
    CHECK(!ct_next(loader, &b));
    CHECK_ERROR(CT_ERR_INDEX, "batches: the sampler chose item 4 of 4");
    ct_loader_free(loader);
    CHECK(released == 1);
    ct_dataset_free(set);
}

TEST(bad_options_are_refused_and_what_was_given_away_is_freed) {
    ct_dataset *set = numbers(4);
    released = 0;
    int shift = 0;
    CHECK(!ct_batches(set, 0, .sampler = ct_sampler_call(reversed, &shift, 0, count_release),
                      .transform = ct_transform_flip(0.5)));
    CHECK_ERROR(CT_ERR_VALUE, "batches: batch is 0; expected 1 or more");
    CHECK(released == 1);
    CHECK(!ct_batches(NULL, 4, .transform = ct_transform_flip(0.5)));
    CHECK_ERROR(CT_ERR_NULL, "batches: argument dataset is NULL");
    CHECK(!ct_batches(set, 4, .threads = CT_SET(-1)));
    CHECK_ERROR(CT_ERR_VALUE, "batches: threads is -1; expected 0 to 256");
    CHECK(!ct_batches(set, 4, .shuffle = true, .sampler = ct_sampler_random()));
    CHECK_ERROR(CT_ERR_VALUE, "batches: shuffle and a sampler are given; the sampler decides the order");
    ct_batch b;
    CHECK(!ct_next(NULL, &b));
    CHECK_ERROR(CT_ERR_NULL, "next: argument loader is NULL");
    CHECK(!ct_sampler_weighted((double[]){1, -1}, 2, 0));
    CHECK_ERROR(CT_ERR_VALUE, "sampler_weighted: weight 1 is -1; expected 0 or more");
    ct_loader_free(NULL);
    ct_dataset_free(set);
}

TEST(a_shorter_struct_of_options_is_an_older_caller) {
    ct_dataset *set = numbers(4);
    ct_batches_options older = {
        .size = offsetof(ct_batches_options, threads), .drop_last = true, .threads = CT_SET(-5), .raw = true};
    ct_loader *loader = ct_batches_p(set, 3, &older), *plain = ct_batches_p(set, 3, NULL);
    CHECK(ct_loader_batches(loader) == 1 && ct_loader_batches(plain) == 2 && ct_ok());
    ct_loader_free(loader);
    ct_loader_free(plain);
    ct_dataset_free(set);
}

TEST(mixed_batches_have_labels_that_add_up_and_feed_cross_entropy) {
    ct_dataset *set = ct_dataset_shapes(32, 16, 3);
    ct_loader *loader =
        ct_batches(set, 16, .transform = ct_transform_chain(ct_transform_mixup(0.5, 1), ct_transform_cutmix(1, 1)));
    for (ct_batch b; ct_next(loader, &b);)
        ct_scope {
            CHECK(ct_dtype_of(b.y) == CT_F32 && ct_dim(b.y, 0) == 16 && ct_dim(b.y, 1) == 10);
            for (int i = 0; i < 16; i++) {
                double sum = 0;
                for (int c = 0; c < 10; c++) sum += harness_at(b.y, 10 * i + c);
                CHECK_NEAR(sum, 1, 1e-6);
            }
            ct_tensor *loss = ct_cross_entropy_loss(ct_zeros(CT_DIMS(16, 10)), b.y);
            CHECK_NEAR(ct_item(loss), log(10), 1e-5);
        }
    ct_loader_free(loader);
    ct_loader *raw = ct_batches(set, 16, .raw = true, .transform = ct_transform_mixup(0.5, 1));
    ct_batch b;
    CHECK(!ct_next(raw, &b));
    CHECK_ERROR(CT_ERR_DTYPE, "transform_mixup: field 0 is u8; expected f32");
    ct_loader_free(raw);
    ct_dataset_free(set);
}

/* Every allocation of tensors that an epoch makes fails once: an error of that batch, no crash, no leak, and the epoch
 * after it is as if nothing had happened. */
TEST(a_lack_of_memory_is_an_error_of_one_batch) {
    ct_dataset *set = ct_dataset_shapes(10, 20, 1);
    for (int threads = 0; threads < 2; threads++) {
        ct_loader *loader = ct_batches(set, 5, .seed = 2, .threads = CT_SET(threads), .transform = augmentation());
        const uint64_t expected = digest_epoch(loader);
        bool reached = true;
        int64_t n = 1;
        for (; reached && n < 10000; n++) {
            CHECK(ct_loader_seek(loader, 0));
            ct__alloc_fail_at(n);
            int64_t batches = 0;
            ct_batch b;
            for (int64_t i = 0; i < 2; i++) {
                if (ct_next(loader, &b)) batches++;
                else CHECK(ct_error_code() == CT_ERR_MEMORY);
                ct_error_clear();
            }
            reached = ct__alloc_fail_left() <= 0;
            ct__alloc_fail_at(0);
            CHECK(batches == (reached ? 1 : 2));
        }
        CHECK(n > 20 && n < 10000);
        CHECK(ct_loader_seek(loader, 0) && digest_epoch(loader) == expected);
        ct_loader_free(loader);
    }
    ct_dataset_free(set);
}

/* Work that a device does later and in another order, on the guarded one with its calls queued (tests/guard/queue.c): streams that
 * exchange tensors, memory that is used again, and the error of a value that is found when nobody looks. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "core/threads.h"
#include "tests/harness.h"

static const ct_device cpu = {CT_CPU, 0};

/* mode: "1", what a wait needs runs and no more; "2", everything else runs first */
static ct_device queued(const char *mode) {
    ct_device device = {0};
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", mode, 1);
    CHECK(ct_device_parse("guard", &device));
    return device;
}

static bool all_are(ct_tensor *x, float value) {
    float data[4096];
    const size_t n = (size_t)ct_numel(x);
    bool same = n <= 4096 && ct_read(x, data, n * sizeof(float));
    for (size_t i = 0; same && i < n; i++) same = data[i] == value;
    return same;
}

static ct_tensor *made(ct_device d, float value) { return ct_full(CT_DIMS(1000), value, .device = d); }

TEST(work_that_is_queued_comes_out_as_work_that_is_not) {
    const ct_device d = queued("1");
    ct_tensor *sums[2];
    for (int i = 0; i < 2; i++) {
        ct_tensor *x = ct_to(harness_randn(CT_DIMS(40, 30)), i ? d : cpu);
        for (int k = 0; k < 20; k++) { /* a block is freed and taken again at every step, before any of it has run */
            ct_tensor *next = NULL;
            ct_scope {
                ct_tensor *y = ct_softmax(ct_add_s(ct_mul_s(x, 0.5), k), 1);
                next = ct_pass(ct_sub(ct_matmul(y, ct_matmul(ct_t(y), x)), x));
            }
            x = next;
        }
        sums[i] = ct_to(x, cpu);
    }
    CHECK(harness_same_bits(sums[0], sums[1]));
}

/* Its scratch is for the threads that there were. */
TEST(a_call_that_was_queued_runs_with_as_many_threads_as_there_were) {
    const ct_device d = queued("1");
    ct_tensor *x = harness_randn(CT_DIMS(512, 700)), *expected = ct_sort(x, 1);
    ct__set_grain(1);
    REQUIRE(ct_set_threads(1));
    ct_tensor *sorted = ct_sort(ct_to(x, d), 1);
    REQUIRE(ct_set_threads(7));
    CHECK(harness_same_bits(ct_to(sorted, cpu), expected));
    ct__set_grain(0);
    ct_set_threads(0);
}

TEST(memory_goes_back_to_the_device_only_when_its_work_is_done) {
    const ct_device d = queued("1");
    ct_stream *other = ct_stream_new(d);
    ct_tensor *kept = NULL;
    ct_scope {
        ct_tensor *x = ct_full(CT_DIMS(1 << 20), 2, .device = d);
        REQUIRE(ct_set_stream(d, other));
        kept = ct_pass(ct_sum(ct_add_s(x, 1)));
        REQUIRE(ct_set_stream(d, NULL));
    }
    ct_memory before = {.size = sizeof before}, after = before;
    CHECK(ct_memory_stats(d, &before) && ct_memory_trim(d) && ct_memory_stats(d, &after));
    CHECK(after.reserved <= before.reserved - (4 << 20) && ct_ok());
    CHECK(ct_item(kept) == 3 << 20);
    ct_stream_free(other);
}

/* ---- Two streams ---- */

static void a_reader_waits(const char *mode) {
    const ct_device d = queued(mode);
    ct_stream *other = ct_stream_new(d);
    ct_tensor *x = ct_add_s(made(d, 1), 1); /* on the device's own */
    REQUIRE(ct_set_stream(d, other));
    CHECK(all_are(ct_mul_s(x, 3), 6));
    ct_stream_free(other);
}
TEST(a_stream_reads_what_another_has_written) { a_reader_waits("1"); }
TEST(a_stream_reads_what_another_has_written_in_the_other_order) { a_reader_waits("2"); }

static void a_writer_waits(const char *mode) {
    const ct_device d = queued(mode);
    ct_stream *other = ct_stream_new(d);
    ct_tensor *x = made(d, 1);
    REQUIRE(ct_set_stream(d, other));
    ct_tensor *before = ct_mul_s(x, 3); /* has not run when x is changed */
    REQUIRE(ct_set_stream(d, NULL));
    CHECK(ct_add_(x, x) && ct_synchronize(d));
    CHECK(all_are(x, 2) && all_are(before, 3));
    REQUIRE(ct_set_stream(d, other));
    CHECK(all_are(ct_mul_s(x, 5), 10));
    ct_stream_free(other);
}
TEST(a_stream_changes_what_another_reads_only_after_it) { a_writer_waits("1"); }
TEST(a_stream_changes_what_another_reads_only_after_it_in_the_other_order) { a_writer_waits("2"); }

static void memory_waits(const char *mode) {
    const ct_device d = queued(mode);
    ct_stream *other = ct_stream_new(d);
    ct_tensor *kept = NULL;
    ct_scope {
        ct_tensor *x = made(d, 1);
        REQUIRE(ct_set_stream(d, other));
        kept = ct_pass(ct_mul_s(x, 3));
        REQUIRE(ct_set_stream(d, NULL));
    }
    ct_tensor *next = made(d, 7); /* where x was */
    CHECK(all_are(next, 7) && all_are(kept, 3));
    /* and what another stream made, freed here, goes on there */
    REQUIRE(ct_set_stream(d, other));
    ct_scope {
        ct_tensor *y = made(d, 5);
        REQUIRE(ct_set_stream(d, NULL));
        kept = ct_pass(ct_add_s(y, 1));
    }
    REQUIRE(ct_set_stream(d, other));
    next = made(d, 9);
    CHECK(all_are(next, 9));
    REQUIRE(ct_set_stream(d, NULL));
    CHECK(all_are(kept, 6));
    ct_stream_free(other);
}
TEST(memory_is_used_again_only_after_every_reader) { memory_waits("1"); }
TEST(memory_is_used_again_only_after_every_reader_in_the_other_order) { memory_waits("2"); }

TEST(a_freed_stream_has_done_its_work) {
    const ct_device d = queued("1");
    ct_stream *other = ct_stream_new(d);
    REQUIRE(ct_set_stream(d, other));
    ct_tensor *x = ct_add_s(made(d, 1), 1);
    ct_stream_free(other);
    CHECK(all_are(ct_mul_s(x, 2), 4));
}

/* A stream of the program's own is used as it is, and stays. */
static void wraps(const char *mode) {
    const ct_device d = queued(mode);
    ct_stream *theirs = ct_stream_new(d), *wrapped = ct_stream_wrap(d, theirs->handle);
    REQUIRE(theirs && wrapped && wrapped != theirs && wrapped->handle == theirs->handle);
    REQUIRE(ct_set_stream(d, wrapped));
    ct_tensor *x = ct_add_s(made(d, 1), 1);
    REQUIRE(ct_set_stream(d, NULL));
    ct_tensor *y = ct_mul(x, x);
    REQUIRE(ct_set_stream(d, wrapped));
    CHECK(all_are(ct_add(x, y), 6) && ct_set_stream(d, NULL));
    ct_stream_free(wrapped);
    CHECK(!ct_set_stream(d, wrapped));
    CHECK_ERROR(CT_ERR_STATE, "set_stream: the stream has been freed");
    CHECK(ct_set_stream(d, theirs) && all_are(ct_add_s(x, 1), 3) && ct_stream_synchronize(theirs));
    int nothing;
    CHECK(!ct_stream_wrap(d, &nothing));
    CHECK_ERROR(CT_ERR_VALUE, "stream_wrap: it is no stream");
    ct_stream_free(theirs);
    CHECK(ct_stream_wrap(cpu, &nothing)); /* which has one order for all */
}
TEST(a_stream_of_the_program_is_wrapped) { wraps("1"); }
TEST(a_stream_of_the_program_is_wrapped_in_the_other_order) { wraps("2"); }

/* ---- Batches ---- */

/* Batches that the loader brings to the device by its own stream are those of the CPU, also those whose memory was another's before. */
static void batches_arrive(const char *mode, int threads) {
    const ct_device d = queued(mode);
    ct_tensor *fields[2] = {harness_randn(CT_DIMS(50, 6)), ct_arange(0, 50, 1, .dtype = CT_I64)};
    ct_dataset *data = ct_dataset_tensors(fields, 2);
    ct_loader *here = ct_batches(data, 7, .shuffle = true, .seed = 3, .threads = CT_SET(0)),
              *there = ct_batches(data, 7, .shuffle = true, .seed = 3, .threads = CT_SET(threads), .device = d);
    ct_tensor *sums[2] = {ct_keep(ct_zeros(CT_DIMS(6))), ct_keep(ct_zeros(CT_DIMS(6), .device = d))};
    REQUIRE(here && there);
    for (int epoch = 0; epoch < 6; epoch++)
        for (ct_batch a, b; (int)ct_next(there, &b) & (int)ct_next(here, &a);)
            ct_scope {
                CHECK(a.n == b.n && ct_device_of(b.x).type == d.type && ct_device_of(b.y).type == d.type);
                for (int i = 0; i < 2; i++) {
                    const ct_batch *batch = i ? &b : &a;
                    ct_tensor *weight = ct_cast(ct_unsqueeze(batch->y, 1), CT_F32);
                    ct_tensor *sum =
                        ct_keep(ct_add(ct_mul_s(sums[i], 0.9), ct_sum(ct_mul(batch->x, weight), .axes = CT_DIMS(0))));
                    ct_drop(sums[i]);
                    sums[i] = sum;
                }
                if (a.position == 3) CHECK(harness_same_bits(a.x, ct_to(b.x, cpu))); /* most are never waited for */
            }
    CHECK(ct_ok() && harness_same_bits(sums[0], ct_to(sums[1], cpu)));
    ct_loader_free(here);
    ct_loader_free(there);
    ct_dataset_free(data);
    ct_drop(sums[0]);
    ct_drop(sums[1]);
}
TEST(batches_are_brought_to_the_device_ahead) { batches_arrive("1", 2); }
TEST(batches_are_brought_to_the_device_ahead_in_the_other_order) { batches_arrive("2", 2); }
TEST(batches_are_brought_to_the_device_without_threads) { batches_arrive("1", 0); }

/* ---- Two threads ---- */

enum { ROUNDS = 60 };

typedef struct seat {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ct_tensor *offered; /* one that the other thread may take */
    int taken;
} seat;

typedef struct player {
    ct_device device;
    seat *gives, *takes;
    int number;
    bool ok;
} player;

static void give(seat *s, ct_tensor *x, int round) {
    pthread_mutex_lock(&s->lock);
    while (s->taken != round) pthread_cond_wait(&s->changed, &s->lock);
    s->offered = x;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static ct_tensor *take(seat *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->offered) pthread_cond_wait(&s->changed, &s->lock);
    ct_tensor *x = s->offered;
    s->offered = NULL;
    s->taken++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return x;
}

/* Each gives the other a tensor a round and makes the next of what it gets: the other's value + 1. */
static void *play(void *context) {
    player *p = context;
    ct_stream *own = ct_stream_new(p->device);
    p->ok = own && ct_set_device(p->device) && ct_set_stream(p->device, own);
    ct_tensor *mine = NULL;
    ct_scope {
        mine = ct_keep(made(p->device, (float)p->number));
    }
    for (int round = 0; round < ROUNDS; round++) {
        give(p->gives, mine, round);
        ct_tensor *theirs = take(p->takes);
        ct_scope {
            for (int i = 0; i < 3; i++) ct_mul_s(made(p->device, -1), 2); /* takes and frees memory meanwhile */
            mine = ct_keep(ct_add_s(theirs, 1));
            if (round % 7 == p->number) p->ok = p->ok && ct_stream_synchronize(own);
        }
        ct_drop(theirs); /* freed here, while the other's stream may still be about to write it */
    }
    /* A value that began as 0 or 1 has been passed back and forth and has grown by one each time. */
    const float start = (float)(ROUNDS % 2 ? 1 - p->number : p->number);
    p->ok = p->ok && mine && all_are(mine, start + ROUNDS) && ct_ok();
    ct_drop(mine);
    ct_stream_free(own);
    return NULL;
}

static void threads_exchange(const char *mode) {
    const ct_device d = queued(mode);
    seat seats[2] = {{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0},
                     {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0}};
    player players[2] = {{d, &seats[0], &seats[1], 0, false}, {d, &seats[1], &seats[0], 1, false}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, play, &players[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(players[0].ok && players[1].ok);
    CHECK(ct_synchronize(d));
}
TEST(threads_with_streams_of_their_own_exchange_tensors) { threads_exchange("1"); }
TEST(threads_with_streams_of_their_own_exchange_tensors_in_the_other_order) { threads_exchange("2"); }

/* ---- The error word ---- */

static const char *const bad_target = "cross_entropy_loss: target is 7 at element 4; it has to be in 0 to 2";

TEST_LIMIT(a_bad_index_changes_no_weights_and_is_reported_at_the_next_wait, 120) {
    const ct_device d = queued("1");
    ct_seed(3);
    ct_module *net = ct_nn_sequential(ct_nn_linear(8, 6), ct_nn_batch_norm(6), ct_nn_relu(), ct_nn_linear(6, 3));
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(6, 8)), d), *good = ct_to(I64(CT_DIMS(6), 0, 1, 2, 0, 1, 2), d);
    ct_tensor *bad = ct_to(I64(CT_DIMS(6), 0, 1, 2, 0, 7, 2), d);
    REQUIRE(ct_module_to_device(net, d));
    ct_optim *opt = ct_adamw(net, .lr = 1e-2);
    ct_scope {
        CHECK(ct_backward(ct_cross_entropy_loss(ct_forward(net, x), good)) && ct_optim_step(opt));
    }
    ct_tensor *weight = ct_module_find(net, "0.weight"), *mean = ct_module_find(net, "1.running_mean");
    ct_tensor *before = ct_to(weight, cpu), *mean_before = NULL;
    ct_scope {
        ct_tensor *loss = ct_cross_entropy_loss(ct_forward(net, x), bad);
        CHECK(loss && ct_ok()); /* nobody knows yet */
        ct_forward(net, x);     /* running statistics after the error */
        CHECK(ct_backward(loss) && ct_optim_step(opt) && ct_ok());
        CHECK(!ct_synchronize(d));
        CHECK_ERROR(CT_ERR_INDEX, bad_target);
    }
    CHECK(ct_optim_zero_grad(opt));
    CHECK(harness_same_bits(before, ct_to(weight, cpu)));
    mean_before = ct_to(mean, cpu);
    CHECK(ct_synchronize(d) && ct_ok()); /* it is reported once */
    ct_scope {                           /* and the device can be used on */
        CHECK(ct_backward(ct_cross_entropy_loss(ct_forward(net, x), good)) && ct_optim_step(opt));
        CHECK(!harness_same_bits(before, ct_to(weight, cpu)) && !harness_same_bits(mean_before, ct_to(mean, cpu)));
    }
    CHECK(ct_ok());
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(running_statistics_do_not_change_after_an_error) {
    const ct_device d = queued("1");
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(5, 3)), d), *mean = ct_zeros(CT_DIMS(3), .device = d),
              *var = ct_ones(CT_DIMS(3), .device = d), *table = ct_zeros(CT_DIMS(4, 2), .device = d);
    CHECK(ct_embedding(table, ct_to(I64(CT_DIMS(2), 3, 4), d)));
    CHECK(ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true) && ct_add_(table, table) &&
          ct_fill(var, 5));
    CHECK(ct_into(table) && ct_exp(table));
    float values[3] = {9, 9, 9};
    CHECK(!ct_read(mean, values, sizeof values)); /* a read waits too */
    CHECK_ERROR(CT_ERR_INDEX, "embedding: index is 4 at element 1; it has to be in 0 to 3");
    CHECK_VALUES(ct_to(mean, cpu), CT_DIMS(3), 0, 0, 0, 0);
    CHECK_VALUES(ct_to(var, cpu), CT_DIMS(3), 0, 1, 1, 1);
    CHECK(all_are(table, 0));
}

/* Another thread's step was held back because of this thread's index, so it has to hear of that too; one that changed nothing
 * does not. */
typedef struct bystander {
    ct_device device;
    ct_tensor *weight;
    bool changes, heard, fine;
    pthread_barrier_t *ready;
} bystander;

static void *stand_by(void *context) {
    bystander *b = context;
    pthread_barrier_wait(b->ready); /* the bad call is in the queue */
    ct_scope {
        ct_tensor *pure = ct_add_s(b->weight, 1);
        if (b->changes) ct_add_(b->weight, b->weight);
        pthread_barrier_wait(b->ready); /* now the other thread waits */
        pthread_barrier_wait(b->ready); /* and has heard */
        const bool ok = ct_synchronize(b->device);
        b->heard = !ok && strcmp(ct_error(), "embedding: index is 4 at element 1; it has to be in 0 to 3") == 0;
        ct_error_clear();
        b->fine = all_are(b->weight, 3) && all_are(pure, 4) && ct_synchronize(b->device);
    }
    return NULL;
}

static bystander beside_an_error(bool changes) {
    const ct_device d = queued("1");
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, 2);
    bystander b = {.device = d, .weight = made(d, 3), .changes = changes, .ready = &ready};
    ct_tensor *table = ct_zeros(CT_DIMS(4, 2), .device = d), *bad = ct_to(I64(CT_DIMS(2), 3, 4), d);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, stand_by, &b) == 0 && ct_embedding(table, bad));
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&ready);
    CHECK(!ct_synchronize(d) && ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    pthread_barrier_wait(&ready);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&ready);
    return b;
}

TEST(a_thread_whose_changes_were_held_back_hears_why) {
    const bystander b = beside_an_error(true);
    CHECK(b.heard && b.fine);
}

TEST(a_thread_that_changed_nothing_hears_nothing_of_it) {
    const bystander b = beside_an_error(false);
    CHECK(!b.heard && b.fine);
}

TEST(an_error_names_the_op_that_was_called_then_and_not_the_one_that_waits) {
    const ct_device d = queued("1");
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3), .device = d), *bad = ct_to(I64(CT_DIMS(2), 0, 3), d);
    CHECK(ct_cross_entropy_loss(x, bad));
    CHECK(!ct_nonzero(x)); /* reads how many there are */
    CHECK_ERROR(CT_ERR_INDEX, "cross_entropy_loss: target is 3 at element 1; it has to be in 0 to 2");
    CHECK(ct_bernoulli(ct_full(CT_DIMS(4), 1.5, .device = d)) && !ct_synchronize(d));
    CHECK_ERROR(CT_ERR_VALUE, "bernoulli: p is 1.5 at element 0; it has to be in 0 to 1");
    CHECK(ct_one_hot(bad, 3) && ct_gather(x, 1, ct_reshape(bad, CT_DIMS(2, 1))) && !ct_synchronize(d));
    CHECK_ERROR(CT_ERR_INDEX, "one_hot: indices is 3 at element 1; it has to be in 0 to 2"); /* the first */
    ct_tensor *weights = ct_zeros(CT_DIMS(1, 3), .device = d);
    CHECK(ct_multinomial(weights, 1, .replacement = true) && !ct_synchronize(d));
    CHECK_ERROR(CT_ERR_VALUE, "multinomial: the sum of the weights in row 0 is 0; it has to be finite and above 0");
}

/* The CPU, the guarded device at once and the guarded device later: one text. */
TEST(the_cpu_tells_at_once_in_the_same_words) {
    ct_tensor *x = ct_zeros(CT_DIMS(6, 3)), *bad = I64(CT_DIMS(6), 0, 1, 2, 0, 7, 2);
    CHECK(!ct_cross_entropy_loss(x, bad));
    CHECK_ERROR(CT_ERR_INDEX, bad_target);
    ct_device d = queued("0");
    CHECK(!ct_cross_entropy_loss(ct_to(x, d), ct_to(bad, d)));
    CHECK_ERROR(CT_ERR_INDEX, bad_target);
}

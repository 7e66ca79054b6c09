/* Copies to an NVIDIA device and back, of every size, from memory of every kind, by several threads and by the loader; streams and contexts
 * beside them. No kernel runs, so all of it holds with the tests' own driver too (tests/cuda), whose streams take their time. */
#include <pthread.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/capture.h>
#include <cotangent/data.h>

#include "tests/cuda_device.h"
#include "tests/cuda_driver.h"

static const ct_device cpu = {CT_CPU, 0};
static cuda_driver cu;

static void fill(unsigned char *bytes, int64_t n, unsigned seed) {
    for (int64_t i = 0; i < n; i++) bytes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

/* What is given to the library may be changed as soon as it returns. */
static bool there_and_back(ct_device d, int64_t n, bool pinned, unsigned seed) {
    bool same = false;
    ct_scope {
        ct_tensor *given = pinned ? ct_empty_pinned(CT_DIMS(n), CT_U8, d) : ct_empty(CT_DIMS(n), .dtype = CT_U8),
                  *kept = ct_empty(CT_DIMS(n), .dtype = CT_U8);
        if (n) fill(ct_data_mut(given), n, seed), memcpy(ct_data_mut(kept), ct_data(given), (size_t)n);
        ct_tensor *there = ct_to(given, d);
        if (n) memset(ct_data_mut(given), 0, (size_t)n);
        same = there && (n == 0 || ct_read(there, ct_data_mut(given), (size_t)n)) && harness_same_bits(kept, given) &&
               harness_same_bits(kept, ct_to(there, cpu));
    }
    return same && ct_ok();
}

TEST_LIMIT(copies_of_every_size_arrive, 120) {
    CUDA(d);
    static const int64_t sizes[] = {
        0, 1, 100, 4096, 4097, 65536, 65537, 2 << 20, (2 << 20) + 1, 5 << 20, (9 << 20) - 3, 40 << 20, 300 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int pinned = 0; pinned < 2; pinned++)
            if (!CHECK(there_and_back(d, sizes[i], pinned, (unsigned)i))) printf("%lld bytes\n", (long long)sizes[i]);
}

typedef struct sender {
    ct_device device;
    unsigned seed;
    bool ok;
} sender;

static void *send_some(void *context) {
    sender *s = context;
    s->ok = true;
    for (int i = 0; s->ok && i < 12; i++)
        s->ok =
            there_and_back(s->device, i % 3 ? (int64_t)(3 + i) << 20 : 5000 * (i + 1), i % 2, s->seed + (unsigned)i);
    return NULL;
}

TEST_LIMIT(threads_copy_at_once, 120) {
    CUDA(d);
    pthread_t threads[6];
    sender senders[6];
    for (int i = 0; i < 6; i++) {
        senders[i] = (sender){d, (unsigned)(100 * i), false};
        REQUIRE(pthread_create(&threads[i], NULL, send_some, &senders[i]) == 0);
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++) CHECK(senders[i].ok);
}

/* Also while the stream has much to do before it gets there. */
TEST_LIMIT(pinned_memory_of_the_program_may_be_changed_after_a_copy, 120) {
    CUDA(d);
    enum { N = 8 << 20, BUSY = 64 << 20 };
    void *memory = NULL, *context = NULL;
    REQUIRE(cuda_driver_find(&cu) && cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 &&
            cu.cuCtxSetCurrent(context) == 0 && cu.cuMemHostAlloc(&memory, N, 0) == 0);
    ct_tensor *busy = ct_empty(CT_DIMS(BUSY), .dtype = CT_U8, .device = d),
              *much = ct_zeros(CT_DIMS(BUSY), .dtype = CT_U8);
    unsigned char *back = malloc(N);
    for (int round = 0; round < 12; round++)
        ct_scope {
            const size_t bytes = (size_t)(round % 4 == 0 ? N : round % 4 == 1 ? 100000 : round % 4 == 2 ? 40000 : 100);
            CHECK(ct_write(busy, ct_data(much), BUSY));
            memset(memory, round, bytes);
            ct_tensor *x = ct_empty(CT_DIMS((int64_t)bytes), .dtype = CT_U8, .device = d);
            CHECK(ct_write(x, memory, bytes));
            memset(memory, 99, bytes);
            CHECK(ct_read(x, back, bytes));
            for (size_t i = 0; i < bytes; i++)
                if (!CHECK(back[i] == round)) break;
        }
    free(back);
    CHECK(cu.cuMemFreeHost(memory) == 0 && cu.cuCtxSetCurrent(NULL) == 0);
}

/* Batches that are uploaded by four threads on one stream, and whose memory is used again and again. */
TEST_LIMIT(batches_arrive_by_the_stream_of_the_loader, 120) {
    CUDA(d);
    ct_tensor *fields[2] = {ct_rand(CT_DIMS(96, 70000)), ct_arange(0, 96, 1, .dtype = CT_I64)};
    ct_dataset *data = ct_dataset_tensors(fields, 2);
    ct_loader *here = ct_batches(data, 8, .shuffle = true, .seed = 5, .threads = CT_SET(0)),
              *there = ct_batches(data, 8, .shuffle = true, .seed = 5, .threads = CT_SET(4), .device = d);
    REQUIRE(here && there);
    int n = 0;
    for (int epoch = 0; epoch < 4; epoch++)
        for (ct_batch a, b; (int)ct_next(there, &b) & (int)ct_next(here, &a); n++)
            ct_scope {
                CHECK(ct_device_of(b.x).type == d.type && ct_device_of(b.y).type == d.type);
                CHECK(harness_same_bits(a.x, ct_to(b.x, cpu)) && harness_same_bits(a.y, ct_to(b.y, cpu)));
            }
    CHECK(n == 48 && ct_ok());
    ct_loader_free(here);
    ct_loader_free(there);
    ct_dataset_free(data);
}

TEST_LIMIT(the_context_of_the_program_stays_current_around_copies, 120) {
    CUDA(d);
    void *own = NULL, *now = NULL;
    REQUIRE(cuda_driver_find(&cu));
    CHECK(there_and_back(d, 9 << 20, false, 1) && cu.cuCtxGetCurrent(&now) == 0 && now == NULL); /* there was none */
    REQUIRE(cu.cuCtxCreate_v2(&own, 0, 0) == 0);
    CHECK(there_and_back(d, 9 << 20, true, 1) && cu.cuCtxGetCurrent(&now) == 0 && now == own);
    CHECK(ct_memory_trim(d) && ct_synchronize(d) && cu.cuCtxGetCurrent(&now) == 0 && now == own);
    /* a stream of that context is none of the library's */
    void *theirs = NULL;
    CHECK(cu.cuStreamCreate(&theirs, 1) == 0 && !ct_stream_wrap(d, theirs) && ct_error_code() == CT_ERR_DEVICE);
    CHECK(strstr(ct_error(), "not the primary") && cu.cuCtxGetCurrent(&now) == 0 && now == own);
    ct_error_clear();
    CHECK(cu.cuCtxDestroy_v2(own) == 0);
}

TEST_LIMIT(copies_on_a_stream_of_the_program_are_in_its_order, 120) {
    CUDA(d);
    enum { N = 1 << 20 };
    static unsigned back[N];
    cuda_address memory;
    void *context = NULL, *theirs = NULL;
    REQUIRE(cuda_driver_find(&cu) && cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 &&
            cu.cuCtxSetCurrent(context) == 0 && cu.cuStreamCreate(&theirs, 1) == 0 &&
            cu.cuMemAlloc_v2(&memory, sizeof back) == 0);
    ct_stream *stream = ct_stream_wrap(d, theirs);
    REQUIRE(stream && ct_set_stream(d, stream));
    for (unsigned i = 0; i < 10; i++)
        ct_scope {
            CHECK(cu.cuMemsetD32Async(memory, i, N, theirs) == 0);
            ct_tensor *x = ct_wrap((void *)(uintptr_t)memory, CT_DIMS(N), CT_I32, .device = d);
            ct_tensor *seen = ct_to(x, cpu);
            CHECK(seen && ((const unsigned *)ct_data(seen))[N - 1] == i);
            for (unsigned k = 0; k < N; k++) back[k] = i + 100;
            CHECK(ct_write(x, back, sizeof back));
            memset(back, 0, sizeof back);
            CHECK(cu.cuMemcpyDtoHAsync_v2(back, memory, sizeof back, theirs) == 0 &&
                  cu.cuStreamSynchronize(theirs) == 0);
            CHECK(back[0] == i + 100 && back[N - 1] == i + 100);
        }
    CHECK(ct_set_stream(d, NULL));
    ct_stream_free(stream);
    CHECK(cu.cuMemFree_v2(memory) == 0 && cu.cuStreamDestroy_v2(theirs) == 0 && cu.cuCtxSetCurrent(NULL) == 0);
}

TEST_LIMIT(a_device_tells_its_memory_driver_and_libraries, 120) {
    CUDA(d);
    ct_device_info info = {.size = sizeof info};
    REQUIRE(ct_device_describe(d, &info));
    printf("%s: %s; %s\n", info.name, info.driver, info.libraries);
    CHECK(info.name[0] && strstr(info.driver, "CUDA ") && info.memory > 0 && info.memory_free <= info.memory);
    CHECK(strstr(info.libraries, "cuBLASLt") && strstr(info.libraries, "cuDNN") && strstr(info.libraries, "NVRTC") &&
          strstr(info.libraries, "NCCL"));
}

/* What the host writes in each replay, into tensors that the function leaves behind. */
typedef struct written {
    ct_tensor *first, *second; /* kept */
} written;

static bool write_both(void *context) {
    written *w = context;
    const float numbers[5] = {1, 2, 3, 4, 5};
    ct_drop(w->first), ct_drop(w->second);
    w->first = ct_from_data(numbers, CT_DIMS(5), CT_F32);
    w->second = ct_from_data(numbers, CT_DIMS(3), CT_F32);
    return w->first && w->second && ct_keep(w->first) && ct_keep(w->second);
}

TEST_LIMIT(what_the_host_writes_in_a_captured_function_is_there_after_each_replay, 120) {
    CUDA(d);
    written w = {0};
    CHECK(ct_set_device(d));
    ct_graph *graph = ct_capture(write_both, &w, 0);
    REQUIRE(graph != NULL);
    for (int round = 0; round < 4; round++) {
        float other[5] = {9, 9, 9, 9, 9}, first[5], second[3];
        CHECK(ct_write(w.first, other, sizeof other) && ct_write(w.second, other, sizeof second));
        CHECK(ct_replay(graph) && ct_read(w.first, first, sizeof first) && ct_read(w.second, second, sizeof second));
        for (int i = 0; i < 5; i++) CHECK(first[i] == (float)(i + 1) && (i > 2 || second[i] == (float)(i + 1)));
    }
    ct_graph_free(graph);
    ct_drop(w.first), ct_drop(w.second);
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Times of records, by events of the device ---- */

enum { LITTLE = 1000, MUCH = 128 << 20 };
typedef struct parts {
    const unsigned char *bytes;
    ct_tensor *little, *much; /* kept */
} parts;

static bool write_parts(void *context) {
    parts *p = context;
    ct_drop(p->little), ct_drop(p->much);
    p->little = ct_from_data(p->bytes, CT_DIMS(LITTLE), CT_U8);
    p->much = ct_from_data(p->bytes, CT_DIMS(MUCH), CT_U8);
    return p->little && p->much && ct_keep(p->little) && ct_keep(p->much);
}

typedef struct timed_log {
    int replays, records;
    double all, largest;
    bool on_device, enqueued;
} timed_log;

static void take_time(void *context, const char *line) {
    timed_log *log = context;
    double took, share;
    if (sscanf(line, " %lf us %lf %%", &took, &share) == 2) {
        log->records++;
        if (took > log->largest) log->largest = took;
    }
    if (sscanf(line, "replay: %d replays; the least time of each record, %lf us in all", &log->replays, &log->all) < 2)
        return;
    log->on_device = strstr(line, "on the device") != NULL;
    log->enqueued = strstr(line, "to enqueue") != NULL;
}

/* A replay copies both from the graph's own data: to enqueue the one takes as long as to enqueue the other. */
TEST_LIMIT(the_log_of_replays_tells_times_on_the_device, 120) {
    CUDA(d);
    unsigned char *bytes = calloc(MUCH, 1);
    parts p = {.bytes = bytes};
    timed_log log = {0};
    ct_graph_info info = {.size = sizeof info};
    REQUIRE(bytes && ct_set_device(d));
    ct_graph *graph = ct_capture(write_parts, &p, 0);
    REQUIRE(graph && ct_replay(graph) && ct_graph_describe(graph, &info));
    CHECK(info.records == 2);
    ct_set_log_sink(take_time, &log);
    CHECK(ct_set_log("replay") && ct_replay(graph) && ct_replay(graph) && ct_set_log(NULL) && ct_replay(graph));
    CHECK(ct_set_log("replay") && ct_replay(graph) && ct_set_log(NULL)); /* recorded anew */
    CHECK(log.records == 0);
    ct_graph_free(graph);
    ct_set_log_sink(NULL, NULL);
    CHECK(log.replays == 3 && log.records == 2 && log.on_device && !log.enqueued);
    harness_check(log.largest > 20 && log.largest > 0.9 * log.all, __FILE__, __LINE__, "%.1f of %.1f us", log.largest,
                  log.all);
    ct_drop(p.little), ct_drop(p.much);
    free(bytes);
    CHECK(ct_set_device(cpu) && ct_ok());
}

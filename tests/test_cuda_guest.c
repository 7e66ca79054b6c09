/* A program that uses CUDA itself, beside the library: its context stays current, its streams and its memory can be used by the library,
 * and tensors go out and come in by DLPack. The driver's functions are found by name, so that this compiles without CUDA. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/data.h>
#include <cotangent/dlpack.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

typedef unsigned long long address; /* CUdeviceptr */

/* The driver's functions that these tests call. */
static struct {
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxDestroy_v2)(void *context);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuMemAlloc_v2)(address *memory, size_t bytes);
    int (*cuMemFree_v2)(address memory);
    int (*cuMemsetD32Async)(address memory, unsigned value, size_t n, void *stream);
    int (*cuMemcpyDtoHAsync_v2)(void *host, address memory, size_t bytes, void *stream);
    int (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned flags);
    int (*cuMemFreeHost)(void *memory);
} cu;

static bool find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool all = library != NULL;
#define FIND(name) all = all && (*(void **)&cu.name = dlsym(library, #name)) != NULL
    FIND(cuCtxGetCurrent);
    FIND(cuCtxSetCurrent);
    FIND(cuCtxCreate_v2);
    FIND(cuCtxDestroy_v2);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
    FIND(cuStreamDestroy_v2);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemsetD32Async);
    FIND(cuMemcpyDtoHAsync_v2);
    FIND(cuMemHostAlloc);
    FIND(cuMemFreeHost);
#undef FIND
    return all;
}

/* ---- The context ---- */

static bool some_work(ct_device d) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = ct_set_requires_grad(ct_to(harness_randn(CT_DIMS(30, 30)), d), true);
        ct_stream *stream = ct_stream_new(d);
        ok = ct_backward(ct_sum(ct_softmax(ct_matmul(x, ct_t(x)), 1))) && ct_set_stream(d, stream);
        ct_tensor *y = ct_add(ct_grad_of(x), ct_rand(CT_DIMS(30, 30), .device = d));
        ok = ok && ct_to(y, cpu) && ct_set_stream(d, NULL) && ct_synchronize(d) && ct_memory_trim(d);
        ct_stream_free(stream);
    }
    return ok && ct_ok();
}

TEST_LIMIT(the_context_of_the_program_stays_current, 120) {
    CUDA(d);
    void *own = NULL, *now = NULL;
    REQUIRE(find_driver());
    CHECK(some_work(d) && cu.cuCtxGetCurrent(&now) == 0 && now == NULL); /* there was none */
    REQUIRE(cu.cuCtxCreate_v2(&own, 0, 0) == 0);
    for (int i = 0; i < 3; i++) CHECK(some_work(d) && cu.cuCtxGetCurrent(&now) == 0 && now == own);
    /* also after an error */
    CHECK(!ct_empty(CT_DIMS((int64_t)1 << 50), .device = d) && cu.cuCtxGetCurrent(&now) == 0 && now == own);
    ct_error_clear();
    CHECK(cu.cuCtxDestroy_v2(own) == 0 && some_work(d));
}

/* ---- Streams and memory of the program's ---- */

static int released;
static void note_release(void *context, void *data) {
    (void)data;
    released++;
    CHECK(cu.cuMemFree_v2(*(address *)context) == 0);
}

TEST_LIMIT(a_stream_and_memory_of_the_program_are_used_in_its_order, 120) {
    CUDA(d);
    enum { N = 1 << 20 };
    static float back[N];
    static address memory;
    void *context = NULL, *theirs = NULL;
    REQUIRE(find_driver() && cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 && cu.cuCtxSetCurrent(context) == 0 &&
            cu.cuStreamCreate(&theirs, 1) == 0 && cu.cuMemAlloc_v2(&memory, N * sizeof(float)) == 0);
    ct_stream *stream = ct_stream_wrap(d, theirs);
    REQUIRE(stream && stream->handle == theirs && ct_set_stream(d, stream));
    ct_scope {
        for (int i = 0; i < 50; i++) { /* written, changed and read in turn, without a wait but at the end */
            const float value = 1.5f + (float)i;
            unsigned bits;
            memcpy(&bits, &value, sizeof bits);
            CHECK(cu.cuMemsetD32Async(memory, bits, N, theirs) == 0);
            ct_scope {
                ct_tensor *x = ct_wrap((void *)(uintptr_t)memory, CT_DIMS(N), CT_F32, .device = d);
                CHECK(x && ct_device_of(x).type == CT_CUDA && (ct_into(x), ct_add_s(x, 1)));
                CHECK(ct_set_stream(d, NULL) && (ct_into(x), ct_mul_s(x, 2)) && ct_set_stream(d, stream));
                CHECK((ct_into(x), ct_add_s(x, 0.5)));
            }
            CHECK(cu.cuMemcpyDtoHAsync_v2(back, memory, N * sizeof(float), theirs) == 0);
            CHECK(cu.cuStreamSynchronize(theirs) == 0);
            CHECK(back[0] == 2 * (value + 1) + 0.5f && back[N - 1] == back[0]);
        }
        ct_tensor *last = ct_wrap((void *)(uintptr_t)memory, CT_DIMS(N), CT_F32, .device = d, .release = note_release,
                                  .context = &memory);
        CHECK(last && ct_item(ct_mean(last)) == back[0] && released == 0);
    }
    CHECK(released == 1 && ct_set_stream(d, NULL));
    ct_stream_free(stream);
    CHECK(cu.cuStreamSynchronize(theirs) == 0 && cu.cuStreamDestroy_v2(theirs) == 0); /* it is theirs still */
    CHECK(ct_stream_wrap(d, NULL) != NULL);                                           /* the default stream */
    CHECK(cu.cuCtxSetCurrent(NULL) == 0);
}

TEST_LIMIT(a_stream_of_another_context_is_an_error, 120) {
    CUDA(d);
    void *own = NULL, *theirs = NULL;
    REQUIRE(find_driver() && cu.cuCtxCreate_v2(&own, 0, 0) == 0 && cu.cuStreamCreate(&theirs, 1) == 0);
    CHECK(!ct_stream_wrap(d, theirs) && ct_error_code() == CT_ERR_DEVICE && strstr(ct_error(), "not the primary"));
    ct_error_clear();
    CHECK(cu.cuCtxDestroy_v2(own) == 0);
}

/* ---- DLPack ---- */

TEST_LIMIT(tensors_go_out_and_come_in_by_dlpack, 120) {
    CUDA(d);
    ct_tensor *x = ct_t(ct_to(harness_randn(CT_DIMS(40, 30)), d));
    ct_dl_managed *out = ct_to_dlpack(x);
    REQUIRE(out);
    CHECK(out->tensor.device.type == CT_DL_CUDA && out->tensor.device.index == d.index && out->tensor.strides[0] == 1);
    ct_tensor *y = ct_from_dlpack(out);
    REQUIRE(y);
    CHECK(harness_same_bits(ct_to(x, cpu), ct_to(y, cpu)));
    CHECK(ct_fill(y, 3) && ct_item(ct_mean(x)) == 3); /* it is the same memory */
}

/* ---- Copies ---- */

static bool there_and_back(ct_device d, int64_t n, bool pinned, unsigned seed) {
    bool same = false;
    ct_scope {
        ct_tensor *x = pinned ? ct_empty_pinned(CT_DIMS(n), CT_U8, d) : ct_empty(CT_DIMS(n), .dtype = CT_U8);
        unsigned char *bytes = x && n ? ct_data_mut(x) : NULL;
        for (int64_t i = 0; bytes && i < n; i++)
            bytes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
        ct_tensor *there = ct_to(x, d);
        ct_tensor *again = ct_add_s(there, 0);
        ct_tensor *back = pinned ? ct_empty_pinned(CT_DIMS(n), CT_U8, d) : NULL;
        if (pinned && n) same = ct_read(again, ct_data_mut(back), (size_t)n) && harness_same_bits(x, back);
        else same = harness_same_bits(x, ct_to(again, cpu));
    }
    return same && ct_ok();
}

TEST_LIMIT(copies_of_every_size_arrive, 120) {
    CUDA(d);
    static const int64_t sizes[] = {
        0, 1, 100, 65536, 65537, 2 << 20, (2 << 20) + 1, 5 << 20, (9 << 20) - 3, 40 << 20, 300 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int pinned = 0; pinned < 2; pinned++)
            if (!CHECK(there_and_back(d, sizes[i], pinned, (unsigned)i))) printf("%lld bytes\n", (long long)sizes[i]);
}

typedef struct sender {
    ct_device device;
    unsigned seed;
    bool ok;
} sender;

static void *send(void *context) {
    sender *s = context;
    s->ok = true;
    for (int i = 0; s->ok && i < 12; i++)
        s->ok = there_and_back(s->device, (int64_t)(3 + i) << 20, i % 2, s->seed + (unsigned)i);
    return NULL;
}

TEST_LIMIT(threads_copy_at_once, 120) {
    CUDA(d);
    pthread_t threads[6];
    sender senders[6];
    for (int i = 0; i < 6; i++) {
        senders[i] = (sender){d, (unsigned)(100 * i), false};
        REQUIRE(pthread_create(&threads[i], NULL, send, &senders[i]) == 0);
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++) CHECK(senders[i].ok);
}

/* Memory of the program's that is pinned is the program's again when the call returns. */
TEST_LIMIT(pinned_memory_may_be_changed_after_a_copy_that_the_device_has_not_made_yet, 120) {
    CUDA(d);
    enum { N = 8 << 20 };
    void *memory = NULL;
    REQUIRE(find_driver() && ct_synchronize(d));
    ct_tensor *busy = ct_ones(CT_DIMS(2048, 2048), .device = d);
    void *context = NULL;
    REQUIRE(cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 && cu.cuCtxSetCurrent(context) == 0 &&
            cu.cuMemHostAlloc(&memory, N, 0) == 0);
    for (int round = 0; round < 20; round++) {
        ct_scope {
            for (int i = 0; i < 20; i++) busy = ct_tanh(busy); /* so that the stream has something to do before */
            const size_t bytes = (size_t)(round % 4 == 0 ? N : round % 4 == 1 ? 100000 : round % 4 == 2 ? 40000 : 100);
            memset(memory, round, bytes);
            ct_tensor *x = ct_empty(CT_DIMS((int64_t)bytes), .dtype = CT_U8, .device = d);
            CHECK(ct_write(x, memory, bytes));
            memset(memory, 99, bytes);
            CHECK(ct_item_i64(ct_amax(x)) == round && ct_item_i64(ct_amin(x)) == round);
        }
        busy = ct_ones(CT_DIMS(2048, 2048), .device = d);
    }
    CHECK(cu.cuMemFreeHost(memory) == 0 && cu.cuCtxSetCurrent(NULL) == 0);
}

/* ---- What it says of itself ---- */

TEST_LIMIT(a_device_tells_its_memory_driver_and_libraries, 120) {
    CUDA(d);
    ct_device_info info = {.size = sizeof info};
    REQUIRE(ct_device_describe(d, &info));
    printf("%s: %s; %s\n", info.name, info.driver, info.libraries);
    CHECK(info.name[0] && strstr(info.driver, "CUDA ") && info.memory > 0 && info.memory_free <= info.memory);
    CHECK(strstr(info.libraries, "cuBLASLt") && strstr(info.libraries, "cuDNN") && strstr(info.libraries, "NVRTC") &&
          strstr(info.libraries, "NCCL"));
}

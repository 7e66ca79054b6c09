/* A program that uses CUDA itself, beside the library: its context stays current, its streams and its memory can be used by the library,
 * and tensors go out and come in by DLPack. */
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/dlpack.h>

#include "tests/cuda_device.h"
#include "tests/cuda_driver.h"

static const ct_device cpu = {CT_CPU, 0};

static cuda_driver cu;

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
    REQUIRE(cuda_driver_find(&cu));
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
    CHECK(cu.cuMemFree_v2(*(cuda_address *)context) == 0);
}

TEST_LIMIT(a_stream_and_memory_of_the_program_are_used_in_its_order, 120) {
    CUDA(d);
    enum { N = 1 << 20 };
    static float back[N];
    static cuda_address memory;
    void *context = NULL, *theirs = NULL;
    REQUIRE(cuda_driver_find(&cu) && cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 &&
            cu.cuCtxSetCurrent(context) == 0 && cu.cuStreamCreate(&theirs, 1) == 0 &&
            cu.cuMemAlloc_v2(&memory, N * sizeof(float)) == 0);
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

/* The gradient of a small network's loss, into memory that stays: products, a convolution, rows, sums. */
static bool gradient_into(ct_tensor *into, ct_tensor *x, ct_tensor *kernel, ct_tensor *weight, ct_tensor *classes) {
    bool ok = false;
    ct_scope {
        ct_tensor *images = ct_relu(ct_conv2d(ct_reshape(x, CT_DIMS(32, 4, 8, 8)), kernel, .pad = 1)), *grad = NULL;
        ct_tensor *rows = ct_layer_norm(ct_reshape(images, CT_DIMS(32, 8 * 64)), CT_DIMS(8 * 64));
        ct_tensor *loss = ct_cross_entropy_loss(ct_matmul(rows, weight), classes);
        ok = ct_grad(&loss, 1, NULL, &weight, 1, &grad, 0) && (ct_into(into), ct_mul_s(grad, 2));
    }
    return ok;
}

TEST_LIMIT(what_is_enqueued_on_a_stream_of_the_program_can_be_captured, 120) {
    CUDA(d);
    void *context = NULL, *theirs = NULL, *graph = NULL, *executable = NULL;
    static cuda_graphs graphs;
    REQUIRE(cuda_driver_find(&cu) && cuda_graphs_find(&graphs) && cu.cuDevicePrimaryCtxRetain(&context, d.index) == 0 &&
            cu.cuCtxSetCurrent(context) == 0 && cu.cuStreamCreate(&theirs, 1) == 0);
    ct_stream *stream = ct_stream_wrap(d, theirs);
    REQUIRE(stream && ct_set_stream(d, stream));
    ct_scope {
        ct_tensor *x = ct_to(harness_randn(CT_DIMS(32, 4 * 64)), d),
                  *kernel = ct_to(harness_randn(CT_DIMS(8, 4, 3, 3)), d),
                  *weight = ct_set_requires_grad(ct_to(harness_randn(CT_DIMS(8 * 64, 10)), d), true),
                  *classes = ct_randint(CT_DIMS(32), 0, 10, .device = d),
                  *into = ct_zeros(CT_DIMS(8 * 64, 10), .device = d);
        /* Before: algorithms are measured and memory is taken when a size comes for the first time. */
        for (int i = 0; i < 2; i++) REQUIRE(gradient_into(into, x, kernel, weight, classes));
        REQUIRE(ct_stream_synchronize(stream) && graphs.cuStreamBeginCapture_v2(theirs, 0) == 0);
        const bool enqueued = gradient_into(into, x, kernel, weight, classes);
        REQUIRE(graphs.cuStreamEndCapture(theirs, &graph) == 0 && enqueued);
        REQUIRE(graphs.cuGraphInstantiateWithFlags(&executable, graph, 0) == 0);
        for (int i = 0; i < 3; i++) { /* of other numbers each time, which the graph reads where they lie */
            CHECK((ct_into(x), ct_mul_s(x, 0.75)) && graphs.cuGraphLaunch(executable, theirs) == 0);
            ct_tensor *replayed = ct_to(into, cpu);
            CHECK(replayed && gradient_into(into, x, kernel, weight, classes));
            CHECK(harness_same_bits(replayed, ct_to(into, cpu)));
        }
        CHECK(graphs.cuGraphExecDestroy(executable) == 0 && graphs.cuGraphDestroy(graph) == 0 &&
              ct_set_stream(d, NULL));
    }
    ct_stream_free(stream);
    CHECK(cu.cuStreamDestroy_v2(theirs) == 0 && cu.cuCtxSetCurrent(NULL) == 0);
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

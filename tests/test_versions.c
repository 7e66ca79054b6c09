/* Programs and modules that were compiled against other versions of the headers: their structs are shorter or longer. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/nn.h>

#include "tests/guarded_page.h"
#include "tests/harness.h"
#include "tests/harness_backend.h"

TEST(the_version_is_a_number_and_a_text) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", CT_VERSION_MAJOR, CT_VERSION_MINOR, CT_VERSION_PATCH);
    CHECK_TEXT(ct_version_text(), text);
    CHECK(ct_version() == CT_VERSION);
    CHECK(CT_VERSION == CT_VERSION_MAJOR * 10000 + CT_VERSION_MINOR * 100 + CT_VERSION_PATCH);
}

/* ---- Ops ---- */

static bool same_as_input(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static void twice(ct_lower *l) { l->out[0] = ct_add(l->in[0], l->in[0]); }
static void times_context(ct_lower *l) { l->out[0] = ct_mul_s(l->in[0], *(const double *)l->op->context); }
static const ct_arg one_input[] = {{"x", CT_ARG_FLOAT}, {NULL, 0}};
static const ct_arg one_output[] = {{"y", 0}, {NULL, 0}};

static ct_op definition(const char *name, ct_op_slot *slot) {
    return (ct_op){.size = sizeof(ct_op),
                   .name = name,
                   .doc = "2 x.",
                   .inputs = one_input,
                   .outputs = one_output,
                   .infer = same_as_input,
                   .lower = twice,
                   .slot = slot};
}

static bool call(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    return ct_apply(context, in, n, NULL, out, m);
}

TEST(an_op_of_an_older_header_registers_and_runs) {
    static ct_op_slot slot;
    ct_op op = definition("test_older", &slot);
    op.size = offsetof(ct_op, context);
    ct_op *older = at_the_end(&op, op.size);
    REQUIRE(older != NULL);
    ct_tensor *x = F64(CT_DIMS(2), 1, -2), *y = NULL;
    CHECK(!ct_apply(older, &x, 1, NULL, &y, 1));
    char expected[192];
    snprintf(expected, sizeof expected,
             "apply: the op says that its size is %zu, not sizeof(ct_op), which is %zu; one of another "
             "version of cotangent/op.h has to be registered first",
             offsetof(ct_op, context), sizeof(ct_op));
    CHECK_ERROR(CT_ERR_STATE, expected);
    REQUIRE(ct_op_register(older));
    const ct_op *known = ct_op_find("test_older");
    REQUIRE(known != NULL);
    CHECK(known != older && known->size == sizeof(ct_op) && known->context == NULL && known->lower == twice);
    CHECK(ct_apply(older, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 2, -4);
    CHECK(ct_apply(known, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 2, -4);
    CHECK(ct_check_grad(call, older, &x, 1, 1));
}

TEST(an_op_of_a_newer_header_registers_unless_it_sets_what_is_not_known) {
    static ct_op_slot slot, other_slot;
    static struct {
        ct_op op;
        void *later;
    } newer, beyond;
    newer.op = definition("test_newer", &slot);
    newer.op.size = sizeof newer;
    beyond.op = definition("test_beyond", &other_slot);
    beyond.op.size = sizeof beyond;
    beyond.later = &beyond;
    ct_tensor *x = F64(CT_DIMS(2), 1, -2), *y = NULL;
    REQUIRE(ct_op_register(&newer.op));
    CHECK(ct_apply(&newer.op, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 2, -4);
    CHECK(!ct_op_register(&beyond.op));
    char expected[128];
    snprintf(expected, sizeof expected, "op_register: op test_beyond sets what version %s of the library does not have",
             ct_version_text());
    CHECK_ERROR(CT_ERR_UNSUPPORTED, expected);
    CHECK(ct_op_find("test_beyond") == NULL);
    beyond.op.size = 16;
    CHECK(!ct_op_register(&beyond.op));
    CHECK_ERROR(CT_ERR_VALUE, "op_register: the op says that its size is 16; it has to be sizeof(ct_op)");
}

TEST(an_op_has_a_context_for_its_functions) {
    static ct_op_slot slots[2];
    static double factors[2] = {3, -1};
    static ct_op ops[2];
    ct_tensor *x = F64(CT_DIMS(2), 1, -2), *y[2];
    for (int i = 0; i < 2; i++) {
        ops[i] = definition(i ? "test_minus" : "test_three", &slots[i]);
        ops[i].lower = times_context;
        ops[i].context = &factors[i];
        REQUIRE(ct_op_register(&ops[i]) && ct_apply(&ops[i], &x, 1, NULL, &y[i], 1));
    }
    CHECK_VALUES(y[0], CT_DIMS(2), 0, 3, -6);
    CHECK_VALUES(y[1], CT_DIMS(2), 0, -1, 2);
}

/* ---- Kernels ---- */

typedef struct later_kernel {
    ct_kernel kernel;
    void *later;
} later_kernel;

static const char *refuse(const ct_call *call) { return call->n_in ? "not this one" : NULL; }
static const char *chosen;
static bool run_twice(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0], *y = call->out[0];
    chosen = call->kernel->name;
    for (int64_t i = 0; i < x->dims[0]; i++)
        ((double *)y->buffer)[y->offset + i] = 2 * ((const double *)x->buffer)[x->offset + i * x->strides[0]];
    return true;
}

TEST(kernels_of_a_newer_header_are_found_by_their_size) {
    static ct_op_slot slot;
    static ct_op op;
    static later_kernel kernels[] = {
        {{"first", refuse, NULL, run_twice}, NULL}, {{"second", NULL, NULL, run_twice}, NULL}, {{0}, NULL}};
    op = definition("test_kernels", &slot);
    REQUIRE(ct_op_register(&op));
    CHECK(!ct_op_add_kernels_p(&op, "cpu", &kernels[0].kernel, 12));
    CHECK_ERROR(CT_ERR_VALUE, "op_add_kernels: kernel_size is 12; it has to be sizeof(ct_kernel)");
    kernels[1].later = &op;
    CHECK(!ct_op_add_kernels_p(&op, "cpu", &kernels[0].kernel, sizeof *kernels));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "op_add_kernels: test_kernels: a kernel sets what this library does not have");
    CHECK(ct_op_kernel(&op, CT_CPU, 0) == NULL);
    kernels[1].later = NULL;
    REQUIRE(ct_op_add_kernels_p(&op, "cpu", &kernels[0].kernel, sizeof *kernels));
    CHECK_TEXT(ct_op_kernel(&op, CT_CPU, 0)->name, "first");
    CHECK_TEXT(ct_op_kernel(&op, CT_CPU, 1)->name, "second");
    CHECK(ct_op_kernel(&op, CT_CPU, 2) == NULL && ct_op_kernel(&op, CT_CPU, -1) == NULL);
    ct_tensor *x = F64(CT_DIMS(2), 1, -2), *y = NULL;
    CHECK(ct_apply(&op, &x, 1, NULL, &y, 1));
    CHECK_VALUES(y, CT_DIMS(2), 0, 2, -4);
    CHECK_TEXT(chosen, "second");
}

/* ---- Backends ---- */

static const ct_kernel *wide_kernels(void *self, const ct_op *op) {
    (void)self;
    return harness_kernels_sized(op, sizeof(later_kernel));
}

static void check_that_it_computes(const char *name) {
    ct_device device;
    REQUIRE(ct_device_parse(name, &device));
    ct_tensor *x = ct_to(F32(CT_DIMS(2, 2), 1, 2, 3, -4), device), *y = ct_matmul(ct_softmax(x, 1), ct_add_s(x, 1));
    CHECK(ct_device_of(y).type == device.type);
    ct_tensor *z = F32(CT_DIMS(2, 2), 1, 2, 3, -4), *expected = ct_matmul(ct_softmax(z, 1), ct_add_s(z, 1));
    CHECK(harness_same_bits(ct_to(y, (ct_device){CT_CPU, 0}), expected));
}

TEST(a_backend_of_the_first_header_opens) {
    ct_backend backend = harness_backend("older");
    backend.size = offsetof(ct_backend, kernel_size);
    REQUIRE(ct_backend_register(at_the_end(&backend, backend.size)));
    check_that_it_computes("older");
}

TEST(a_backend_of_a_newer_header_opens_unless_it_sets_what_is_not_known) {
    static struct {
        ct_backend backend;
        void *later;
    } newer;
    newer.backend = harness_backend("newer");
    newer.backend.size = sizeof newer;
    newer.backend.kernels = wide_kernels;
    newer.backend.kernel_size = sizeof(later_kernel);
    newer.later = &newer;
    CHECK(!ct_backend_register(&newer.backend));
    CHECK_ERROR(CT_ERR_VALUE, "backend_register: newer: it needs what this library does not have");
    newer.later = NULL;
    newer.backend.kernel_size = 5;
    CHECK(!ct_backend_register(&newer.backend));
    CHECK_ERROR(CT_ERR_VALUE, "backend_register: newer: its kernel_size is no size of a ct_kernel");
    newer.backend.kernel_size = sizeof(later_kernel);
    REQUIRE(ct_backend_register(&newer.backend));
    check_that_it_computes("newer");
    CHECK(ct_set_isa("base")); /* binds all kernels anew */
    check_that_it_computes("newer");
}

TEST(memory_is_told_as_far_as_the_struct_of_the_caller_goes) {
    const ct_device cpu = {CT_CPU, 0};
    ct_memory stats = {0};
    CHECK(!ct_memory_stats(cpu, &stats));
    CHECK_ERROR(CT_ERR_VALUE, "memory_stats: stats->size is 0; it has to be sizeof(ct_memory)");
    stats = (ct_memory){.size = offsetof(ct_memory, reserved), .reserved = -1, .limit = -1};
    ct_ones(CT_DIMS(1000));
    CHECK(ct_memory_stats(cpu, &stats));
    CHECK(stats.size == offsetof(ct_memory, reserved) && stats.in_use >= 4000 && stats.peak >= stats.in_use);
    CHECK(stats.reserved == -1 && stats.limit == -1);
    struct {
        ct_memory known;
        int64_t later;
    } longer = {.known = {.size = sizeof longer}, .later = -1};
    CHECK(ct_memory_stats(cpu, &longer.known) && longer.known.reserved > 0 && longer.later == 0);
}

TEST(a_device_is_described_in_as_many_bytes_as_there_are) {
    static ct_backend backend;
    backend = harness_backend("described");
    ct_device device;
    ct_device_info info = {0};
    REQUIRE(ct_backend_register(&backend) && ct_device_parse("described", &device));
    CHECK(!ct_device_describe(device, &info));
    CHECK_ERROR(CT_ERR_VALUE, "device_describe: info->size is 0; it has to be sizeof(ct_device_info)");
    info.size = offsetof(ct_device_info, memory);
    info.memory = info.memory_free = -1;
    CHECK(ct_device_describe(device, &info));
    CHECK(info.size == offsetof(ct_device_info, memory) && info.memory == -1 && info.memory_free == -1);
    CHECK_TEXT(info.name, "host memory");
    info.size = sizeof info;
    CHECK(ct_device_describe(device, &info) && info.memory == (int64_t)1 << 40 && info.memory_free == 0);
}

/* ---- Options ---- */

TEST(options_without_a_size_are_refused) {
    ct_sum_options none = {0};
    ct_tensor *x = F32(CT_DIMS(2), 1, 2);
    CHECK(!ct_sum_p(x, &none));
    CHECK_ERROR(CT_ERR_VALUE,
                "sum: the options say that their size is 0: zero the struct and set size to that of its type");
    ct_check_options unchecked = {0};
    CHECK(!ct_check_grad_p(call, NULL, &x, 1, 1, &unchecked));
    CHECK_ERROR(CT_ERR_VALUE,
                "check_grad: the options say that their size is 0: zero the struct and set size to that of its type");
    ct_wrap_options unwrapped = {0};
    CHECK(!ct_wrap_p(&none, CT_DIMS(1), CT_U8, &unwrapped));
    CHECK_ERROR(CT_ERR_VALUE,
                "wrap: the options say that their size is 0: zero the struct and set size to that of its type");
}

TEST(options_of_an_older_header_are_not_read_beyond_their_end) {
    ct_sum_options options = {.size = offsetof(ct_sum_options, keepdim), .keepdim = true};
    options.axes = CT_DIMS(0);
    const ct_sum_options *older = at_the_end(&options, options.size);
    REQUIRE(older != NULL);
    CHECK_VALUES(ct_sum_p(F32(CT_DIMS(2, 2), 1, 2, 3, 4), older), CT_DIMS(2), 0, 4, 6);
}

TEST(options_of_a_newer_header_are_taken_unless_one_is_set_that_is_not_known) {
    struct {
        ct_sum_options options;
        int64_t later;
    } newer = {.options = {.size = sizeof newer, .keepdim = true}};
    ct_tensor *x = F32(CT_DIMS(2), 1, 2);
    CHECK_VALUES(ct_sum_p(x, &newer.options), CT_DIMS(1), 0, 3);
    newer.later = 1;
    CHECK(!ct_sum_p(x, &newer.options));
    char expected[128];
    snprintf(expected, sizeof expected, "sum: an option is set that version %s of the library does not have",
             ct_version_text());
    CHECK_ERROR(CT_ERR_UNSUPPORTED, expected);
}

/* A depthwise convolution is made with what the separable one was given. */
TEST(options_that_are_given_on_say_the_size_that_they_have) {
    struct {
        ct_nn_conv_options options;
        int64_t later[2];
    } newer = {.options = {.size = sizeof newer, .pad = 1}};
    ct_nn_conv_options older = {.size = offsetof(ct_nn_conv_options, pad), .stride = 1};
    const ct_nn_conv_options *given[] = {NULL, at_the_end(&newer, sizeof newer), at_the_end(&older, older.size)};
    for (int i = 0; i < 3; i++) {
        ct_module *module = ct_nn_separable_conv2d_p(2, 3, 3, given[i]);
        REQUIRE(module != NULL);
        const int64_t side = i == 1 ? 5 : 3;
        ct_tensor *y = ct_forward(module, ct_ones(CT_DIMS(1, 2, 5, 5)));
        CHECK(y && ct_dim(y, 1) == 3 && ct_dim(y, 2) == side && ct_dim(y, 3) == side);
        ct_module_free(module);
    }
}

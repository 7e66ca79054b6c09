/* Tensors exchanged by DLPack: layouts, dtypes, who owns what, and what is refused. */
#include <cotangent/backend.h>
#include <cotangent/dlpack.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/harness.h"
#include "tests/harness_backend.h"

/* ---- Out ---- */

TEST(a_tensor_goes_out_with_its_layout) {
    int64_t before = ct_live_objects();
    ct_dl_managed *out = NULL;
    ct_scope {
        ct_tensor *x = ct_t(F32(CT_DIMS(2, 3), 0, 1, 2, 3, 4, 5));
        out = ct_to_dlpack(ct_slice(x, 0, 1));
    }
    REQUIRE(out != NULL);
    const ct_dl_tensor *t = &out->tensor;
    CHECK(out->major == 1 && out->minor == 0 && out->flags == 0);
    CHECK(t->device.type == 1 && t->device.index == 0 && t->ndim == 2);
    CHECK(t->dtype.kind == 2 && t->dtype.bits == 32 && t->dtype.lanes == 1);
    CHECK(t->shape[0] == 2 && t->shape[1] == 2 && t->strides[0] == 1 && t->strides[1] == 3);
    const float *data = (const float *)(const void *)((const char *)t->data + t->byte_offset);
    CHECK(data[0] == 1 && data[1] == 2 && data[3] == 4 && data[4] == 5);
    CHECK(ct_live_objects() > before); /* the scope is gone, and it is still there */
    out->deleter(out);
    CHECK(ct_live_objects() == before);
}

TEST(the_older_form_goes_out_too) {
    int64_t before = ct_live_objects();
    ct_dl_unversioned *out = NULL;
    ct_scope {
        out = ct_to_dlpack_unversioned(I64(CT_DIMS(2), 7, -8));
    }
    REQUIRE(out != NULL && out->tensor.dtype.kind == 0 && out->tensor.dtype.bits == 64);
    CHECK(((int64_t *)out->tensor.data)[1] == -8 && out->tensor.strides[0] == 1);
    out->deleter(out);
    CHECK(ct_live_objects() == before);
}

TEST(what_cannot_go_out_says_why) {
    ct_tensor *w = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true);
    CHECK(!ct_to_dlpack(w));
    CHECK_ERROR(CT_ERR_GRAD,
                "to_dlpack: x, f32[2], requires grad, which another library would not know of; give it ct_detach(x)");
    ct_dl_managed *out = ct_to_dlpack(ct_detach(w));
    CHECK(out != NULL);
    out->deleter(out);
    static const float memory[2] = {1, 2};
    ct_tensor *fixed = ct_wrap((void *)(uintptr_t)memory, CT_DIMS(2), CT_F32, .read_only = true);
    out = ct_to_dlpack(fixed);
    REQUIRE(out != NULL && out->flags == 1);
    out->deleter(out);
    CHECK(!ct_to_dlpack_unversioned(fixed) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK(!ct_to_dlpack(NULL));
    CHECK_ERROR(CT_ERR_NULL, "to_dlpack: argument x is NULL");
}

TEST_BARE(it_may_be_the_first_call_of_a_program) {
    const float one = 1;
    ct_tensor *x = ct_from_data(&one, CT_DIMS0, CT_F32);
    ct_dl_managed *out = ct_to_dlpack(x);
    REQUIRE(out != NULL);
    out->deleter(out);
    harness_may_leak(); /* of x, in the root scope */
}

/* ---- There and back ---- */

TEST(every_dtype_comes_back_as_it_was) {
    /* kind, bits: as the specification numbers them */
    static const uint8_t expected[CT_DTYPE_COUNT][2] = {
        [CT_F32] = {2, 32}, [CT_F64] = {2, 64},    [CT_F16] = {2, 16},    [CT_BF16] = {4, 16},
        [CT_I8] = {0, 8},   [CT_I16] = {0, 16},    [CT_I32] = {0, 32},    [CT_I64] = {0, 64},
        [CT_U8] = {1, 8},   [CT_BOOL] = {6, 8},    [CT_U16] = {1, 16},    [CT_U32] = {1, 32},
        [CT_U64] = {1, 64}, [CT_F8E4M3] = {10, 8}, [CT_F8E5M2] = {12, 8}, [CT_COMPLEX64] = {5, 64}};
    for (int d = 0; d < CT_DTYPE_COUNT; d++) {
        ct_tensor *x = ct_cast(F32(CT_DIMS(2, 3), 0, 1, 1, 0, 1, 0), (ct_dtype)d);
        ct_dl_managed *out = ct_to_dlpack(x);
        REQUIRE(out != NULL);
        CHECK(out->tensor.dtype.kind == expected[d][0] && out->tensor.dtype.bits == expected[d][1] &&
              out->tensor.dtype.lanes == 1);
        ct_tensor *y = ct_from_dlpack(out);
        CHECK(y && ct_dtype_of(y) == (ct_dtype)d && harness_same_bits(x, y) && ct_data(x) == ct_data(y));
        ct_tensor *z = ct_from_dlpack_unversioned(ct_to_dlpack_unversioned(x));
        CHECK(z && ct_dtype_of(z) == (ct_dtype)d && harness_same_bits(x, z) && ct_data(x) == ct_data(z));
    }
}

TEST(every_layout_comes_back_as_it_was) {
    ct_tensor *x = F32(CT_DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    ct_tensor *layouts[] = {x,
                            ct_t(x),
                            ct_flip(x, CT_DIMS(0, 1)),
                            ct_expand(ct_slice(x, 0, 1), CT_DIMS(4, 3)),
                            ct_sum(x),
                            ct_zeros(CT_DIMS(0, 3)),
                            ct_reshape(x, CT_DIMS(1, 1, 1, 1, 1, 2, 3, 1))};
    for (int i = 0; i < 7; i++) {
        ct_tensor *y = ct_from_dlpack(ct_to_dlpack(layouts[i]));
        REQUIRE(y != NULL);
        CHECK(harness_same_bits(layouts[i], y));
        ct_dims a = ct_strides(layouts[i]), b = ct_strides(y);
        CHECK(a.n == b.n && memcmp(a.d, b.d, (size_t)a.n * sizeof *a.d) == 0);
    }
    ct_fill(ct_from_dlpack(ct_to_dlpack(x)), 9); /* the memory is shared */
    CHECK_VALUES(x, CT_DIMS(2, 3), 0, 9, 9, 9, 9, 9, 9);
}

/* ---- In ---- */

static int deleted;
static void count_managed(ct_dl_managed *self) {
    (void)self;
    deleted++;
}
static void count_unversioned(ct_dl_unversioned *self) {
    (void)self;
    deleted++;
}

static int64_t shape[9] = {2, 2}, strides[9] = {2, 1};
static float memory[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static ct_dl_managed from_outside(void) {
    shape[0] = shape[1] = strides[0] = 2;
    strides[1] = 1;
    return (ct_dl_managed){
        .major = 1,
        .minor = 3,
        .deleter = count_managed,
        .tensor = {.data = memory, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape}};
}

TEST(memory_of_another_library_is_shown_and_let_go) {
    static ct_dl_managed given; /* tensors of the test's scope outlive this function */
    given = from_outside();
    deleted = 0;
    ct_scope {
        ct_tensor *x = ct_from_dlpack(&given); /* strides NULL: dense */
        CHECK_VALUES(x, CT_DIMS(2, 2), 0, 0, 1, 2, 3);
        CHECK(ct_data(x) == memory);
        ct_tensor *view = ct_keep(ct_slice(x, 0, 1));
        ct_scope_end((ct_scope_mark){1});
        CHECK(deleted == 0); /* the view still shows it */
        CHECK_VALUES(view, CT_DIMS(1, 2), 0, 2, 3);
        ct_drop(view);
    }
    CHECK(deleted == 1);
    given = from_outside();
    given.tensor.strides = strides;
    given.tensor.byte_offset = 7 * sizeof(float);
    strides[0] = -4, strides[1] = -1;
    ct_tensor *x = ct_from_dlpack(&given);
    CHECK_VALUES(x, CT_DIMS(2, 2), 0, 7, 6, 3, 2);
    CHECK(ct_data_strided(x, NULL) == memory + 7);
    static ct_dl_unversioned older;
    older = (ct_dl_unversioned){.tensor = from_outside().tensor, .deleter = NULL};
    CHECK_VALUES(ct_from_dlpack_unversioned(&older), CT_DIMS(2, 2), 0, 0, 1, 2, 3);
    older.tensor.device = (ct_dl_device){3, 1}; /* pinned memory, of the second GPU */
    CHECK_VALUES(ct_from_dlpack_unversioned(&older), CT_DIMS(2, 2), 0, 0, 1, 2, 3);
    older.tensor.data = NULL;
    shape[1] = 0;
    CHECK(ct_numel(ct_from_dlpack_unversioned(&older)) == 0 && ct_ok());
}

TEST(read_only_memory_stays_so) {
    static ct_dl_managed given; /* tensors of the test's scope outlive this function */
    given = from_outside();
    given.flags = CT_DL_READ_ONLY | CT_DL_COPIED;
    ct_tensor *x = ct_from_dlpack(&given);
    CHECK(!ct_fill(x, 0) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK_VALUES(ct_add_s(x, 1), CT_DIMS(2, 2), 0, 1, 2, 3, 4);
}

static void refuse(ct_dl_managed given, ct_code code, const char *text) {
    deleted = 0;
    CHECK(ct_from_dlpack(&given) == NULL && deleted == 1);
    CHECK_ERROR(code, text);
}

TEST(what_cannot_be_shown_is_refused_and_let_go) {
    static ct_dl_managed given; /* tensors of the test's scope outlive this function */
    given = from_outside();
    given.major = 2;
    refuse(given, CT_ERR_UNSUPPORTED, "from_dlpack: the tensor is of version 2.3 of DLPack; 1.x can be read");
    given = from_outside();
    given.tensor.dtype.lanes = 4;
    refuse(given, CT_ERR_DTYPE, "from_dlpack: elements of kind 2, 32 bits and 4 lanes are none of the dtypes here");
    given.tensor.dtype = (ct_dl_dtype){17, 4, 1};
    refuse(given, CT_ERR_DTYPE, "from_dlpack: elements of kind 17, 4 bits and 1 lanes are none of the dtypes here");
    given = from_outside();
    given.tensor.ndim = 9;
    refuse(given, CT_ERR_SHAPE, "from_dlpack: the tensor has 9 dimensions; 0 to 8 can be had");
    given.tensor.ndim = -1;
    refuse(given, CT_ERR_SHAPE, "from_dlpack: the tensor has -1 dimensions; 0 to 8 can be had");
    given = from_outside();
    given.tensor.data = NULL;
    refuse(given, CT_ERR_NULL, "from_dlpack: argument data is NULL");
    given = from_outside();
    given.tensor.shape = NULL;
    refuse(given, CT_ERR_NULL, "from_dlpack: argument shape is NULL");
    given = from_outside();
    given.tensor.strides = strides;
    strides[0] = INT64_MAX;
    refuse(given, CT_ERR_SHAPE, "from_dlpack: the strides of f32[2,2] reach beyond what can be addressed");
    strides[0] = INT64_MIN / 8;
    refuse(given, CT_ERR_SHAPE, "from_dlpack: the strides of f32[2,2] reach beyond what can be addressed");
    given = from_outside();
    shape[0] = -3;
    refuse(given, CT_ERR_SHAPE, "from_dlpack: size -3 of dimension 0 is negative");
    given = from_outside();
    given.tensor.device.type = 8;
    refuse(given, CT_ERR_DEVICE,
           "from_dlpack: the tensor is on a device of DLPack's type 8, which no backend here has");
    given.tensor.device.type = 2;
    deleted = 0;
    if (ct_backend_missing(CT_CUDA)[0]) {
        CHECK(!ct_from_dlpack(&given) && deleted == 1 && ct_error_code() == CT_ERR_DEVICE);
        CHECK(strstr(ct_error(), "DLPack's type 2, which no backend here has: ") != NULL);
        ct_error_clear();
    }
    given = from_outside();
    given.tensor.byte_offset = 2;
    deleted = 0;
    CHECK(!ct_from_dlpack(&given) && deleted == 1 && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    given = from_outside();
    given.tensor.dtype = (ct_dl_dtype){6, 8, 1};
    uint8_t truth[4] = {0, 1, 1, 3};
    given.tensor.data = truth;
    refuse(given, CT_ERR_VALUE, "from_dlpack: a byte of the bool tensor is neither 0 nor 1");
    truth[3] = 0;
    CHECK_VALUES(ct_cast(ct_from_dlpack(&given), CT_F32), CT_DIMS(2, 2), 0, 0, 1, 1, 0);
    CHECK(!ct_from_dlpack(NULL));
    CHECK_ERROR(CT_ERR_NULL, "from_dlpack: argument managed is NULL");
    static ct_dl_unversioned older;
    older = (ct_dl_unversioned){.tensor = from_outside().tensor, .deleter = count_unversioned};
    older.tensor.ndim = 10;
    deleted = 0;
    CHECK(!ct_from_dlpack_unversioned(&older) && deleted == 1 && ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
}

/* ---- Threads ---- */

static void *let_go(void *managed) {
    ct_dl_managed *out = managed;
    out->deleter(out);
    return NULL;
}

TEST(a_deleter_may_be_called_on_any_thread) {
    for (int i = 0; i < 20; i++) {
        ct_dl_managed *out = NULL;
        ct_scope {
            out = ct_to_dlpack(ct_rand(CT_DIMS(100)));
        }
        pthread_t thread;
        REQUIRE(out && pthread_create(&thread, NULL, let_go, out) == 0);
        pthread_join(thread, NULL);
    }
}

/* ---- Devices ---- */

TEST(a_backend_says_which_device_of_dlpack_it_is) {
    static ct_backend backend;
    backend = harness_backend("extra");
    backend.dlpack_type = 12;
    ct_device device;
    REQUIRE(ct_backend_register(&backend) && ct_device_parse("extra:1", &device));
    ct_tensor *x = ct_slice(ct_to(F32(CT_DIMS(4), 1, 2, 3, 4), device), 0, 1);
    atomic_store(&harness_waits, 0);
    ct_dl_managed *out = ct_to_dlpack(x);
    REQUIRE(out != NULL);
    CHECK(out->tensor.device.type == 12 && out->tensor.device.index == 1 && atomic_load(&harness_waits) > 0);
    ct_tensor *y = ct_from_dlpack(out);
    REQUIRE(y != NULL);
    CHECK(ct_device_of(y).type == device.type && ct_device_of(y).index == 1);
    CHECK_VALUES(ct_to(ct_mul(y, y), (ct_device){CT_CPU, 0}), CT_DIMS(3), 0, 4, 9, 16);
    const float *shared = (const float *)out->tensor.data;
    CHECK(shared[0] == 2 && shared[2] == 4 && ct_fill(y, 8) && ct_synchronize(device) && shared[2] == 8);
    /* memory of another library, there: it is let go when the work is done */
    static ct_dl_managed given; /* tensors of the test's scope outlive this function */
    given = from_outside();
    given.tensor.device = (ct_dl_device){12, 0};
    deleted = 0;
    ct_scope {
        ct_tensor *foreign = ct_from_dlpack(&given);
        REQUIRE(foreign != NULL);
        CHECK_VALUES(ct_to(ct_add_s(ct_t(foreign), 1), (ct_device){CT_CPU, 0}), CT_DIMS(2, 2), 0, 1, 3, 2, 4);
        CHECK(ct_data(foreign) == NULL && ct_error_code() == CT_ERR_DEVICE);
        ct_error_clear();
        CHECK(ct_fill(foreign, 3) && ct_synchronize(ct_device_of(foreign)) && memory[3] == 3 && deleted == 0);
        atomic_store(&harness_waits, 0);
    }
    CHECK(deleted == 1 && atomic_load(&harness_waits) > 0);
    /* and the same by its address alone */
    static float there[4] = {5, 6, 7, 8};
    ct_scope {
        ct_tensor *wrapped = ct_wrap(there + 1, CT_DIMS(2), CT_F32, .device = device, .strides = CT_DIMS(2));
        REQUIRE(wrapped != NULL);
        CHECK(ct_device_of(wrapped).index == 1 && ct_item(ct_sum(wrapped)) == 14 && ct_fill(wrapped, 1));
    }
    CHECK(there[0] == 5 && there[1] == 1 && there[2] == 7 && there[3] == 1);
    CHECK(!ct_wrap(there, CT_DIMS(2), CT_F32, .device = {device.type, 7}) && ct_error_code() == CT_ERR_DEVICE);
    ct_error_clear();
    const ct_device opaque = harness_device(HARNESS_ALL_KERNELS);
    CHECK(!ct_wrap(there, CT_DIMS(2), CT_F32, .device = opaque));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "wrap: memory of plain has no addresses that could be wrapped");
    given = from_outside();
    given.tensor.device = (ct_dl_device){12, 2};
    deleted = 0;
    CHECK(!ct_from_dlpack(&given) && deleted == 1);
    CHECK_ERROR(CT_ERR_DEVICE, "from_dlpack: there are 2 extra devices, not extra:2");
}

/* ---- Without memory ---- */

static bool there_and_back(void) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = ct_from_data(memory, CT_DIMS(2, 2), CT_F32);
        ct_dl_managed *out = x ? ct_to_dlpack(x) : NULL;
        ct_dl_unversioned *older = out ? ct_to_dlpack_unversioned(x) : NULL;
        if (out && !older) out->deleter(out);
        ct_tensor *y = older ? ct_from_dlpack(out) : NULL, *z = older ? ct_from_dlpack_unversioned(older) : NULL;
        ok = y && z && ct_set_user(y, memory, NULL) && ct_user(y) == memory;
    }
    return ok;
}

static int takes;
static bool from_another_library(void) {
    static ct_dl_managed given; /* tensors of the test's scope outlive this function */
    given = from_outside();
    bool ok = false;
    deleted = 0;
    takes++;
    ct_scope {
        ok = ct_from_dlpack(&given) != NULL;
    }
    return CHECK(deleted == 1) && ok; /* made or not, it was let go */
}

TEST(nothing_is_lost_where_memory_is_short) {
    CHECK(FAIL_EVERYWHERE(there_and_back) > 4);
    CHECK(FAIL_EVERYWHERE(from_another_library) > 2 && takes > 3);
}

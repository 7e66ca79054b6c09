/* Tensors for other libraries and from them, by DLPack. */
#include <cotangent/dlpack.h>

#include <string.h>

#include "core/alloc.h"
#include "core/capture.h"
#include "core/device.h"
#include "core/error.h"
#include "core/node.h"
#include "core/registry.h"

/* The layout is the specification's, whatever the names. */
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(ct_dl_tensor) == 48 && offsetof(ct_dl_tensor, device) == 8 &&
                   offsetof(ct_dl_tensor, ndim) == 16 && offsetof(ct_dl_tensor, dtype) == 20 &&
                   offsetof(ct_dl_tensor, shape) == 24 && offsetof(ct_dl_tensor, strides) == 32 &&
                   offsetof(ct_dl_tensor, byte_offset) == 40,
               "DLTensor");
_Static_assert(sizeof(ct_dl_managed) == 80 && offsetof(ct_dl_managed, context) == 8 &&
                   offsetof(ct_dl_managed, deleter) == 16 && offsetof(ct_dl_managed, flags) == 24 &&
                   offsetof(ct_dl_managed, tensor) == 32,
               "DLManagedTensorVersioned");
_Static_assert(sizeof(ct_dl_unversioned) == 64 && offsetof(ct_dl_unversioned, context) == 48 &&
                   offsetof(ct_dl_unversioned, deleter) == 56,
               "DLManagedTensor");
#endif

static const ct_dl_dtype dtypes[CT_DTYPE_COUNT] = {
    [CT_F32] = {CT_DL_FLOAT, 32, 1},        [CT_F64] = {CT_DL_FLOAT, 64, 1},      [CT_F16] = {CT_DL_FLOAT, 16, 1},
    [CT_BF16] = {CT_DL_BFLOAT, 16, 1},      [CT_I8] = {CT_DL_INT, 8, 1},          [CT_I16] = {CT_DL_INT, 16, 1},
    [CT_I32] = {CT_DL_INT, 32, 1},          [CT_I64] = {CT_DL_INT, 64, 1},        [CT_U8] = {CT_DL_UINT, 8, 1},
    [CT_BOOL] = {CT_DL_BOOL, 8, 1},         [CT_U16] = {CT_DL_UINT, 16, 1},       [CT_U32] = {CT_DL_UINT, 32, 1},
    [CT_U64] = {CT_DL_UINT, 64, 1},         [CT_F8E4M3] = {CT_DL_F8E4M3FN, 8, 1}, [CT_F8E5M2] = {CT_DL_F8E5M2, 8, 1},
    [CT_COMPLEX64] = {CT_DL_COMPLEX, 64, 1}};

/* ---- Out ---- */

/* What a deleter frees: the struct that others see, its lists, and the tensor that it shows. */
typedef struct shown {
    union {
        ct_dl_managed managed;
        ct_dl_unversioned unversioned;
    } as;
    ct_tensor *tensor;
    int64_t shape[CT_MAX_DIMS], strides[CT_MAX_DIMS];
} shown;

static void let_go(shown *s) {
    ct__tensor_release(s->tensor);
    ct__free(s, sizeof *s);
}
static void managed_deleter(ct_dl_managed *self) { let_go(self->context); }
static void unversioned_deleter(ct_dl_unversioned *self) { let_go(self->context); }

static bool can_be_shown(const ct_tensor *x, const char *op) {
    if (!ct__valid(x, op, "x")) return false;
    if (!x->storage) return ct_fail(CT_ERR_STATE, op, "x has a shape but no data");
    if (x->node)
        return ct_fail(CT_ERR_GRAD, op,
                       "x, %s, requires grad, which another library would not know of; give it ct_detach(x)",
                       ct_view_text(&x->view));
    ct__registry_start(); /* it may be the first call of all */
    const ct_backend *backend = ct__backend(x->storage->device.type);
    if (!backend->dlpack_type)
        return ct_fail(CT_ERR_DEVICE, op, "x is on %s, whose tensors are not exchanged by DLPack; bring it over: ct_to",
                       ct_device_text(x->storage->device));
    ct_capture_refuse(op, "what others do with a tensor", NULL);
    /* the consumer knows nothing of our streams */
    return x->storage->device.type == CT_CPU || ct_synchronize(x->storage->device);
}

static shown *show(ct_tensor *x, ct_dl_tensor *to, const char *op) {
    if (!can_be_shown(x, op)) return NULL;
    shown *s = ct__alloc(sizeof *s);
    if (!s) {
        ct__fail_memory(op, sizeof *s);
        return NULL;
    }
    memset(s, 0, sizeof *s);
    s->tensor = ct__tensor_retain(x);
    const ct_view *view = &x->view;
    const ct_device device = x->storage->device;
    for (int i = 0; i < view->ndim; i++) s->shape[i] = view->dims[i], s->strides[i] = view->strides[i];
    const int64_t size = (int64_t)ct_dtype_size(view->dtype);
    *to = (ct_dl_tensor){.data = (char *)view->buffer + view->origin + view->offset * size,
                         .device = {ct__backend(device.type)->dlpack_type, device.index},
                         .ndim = view->ndim,
                         .dtype = dtypes[view->dtype],
                         .shape = s->shape,
                         .strides = s->strides};
    return s;
}

ct_dl_managed *ct_to_dlpack(ct_tensor *x) {
    ct_dl_tensor tensor;
    shown *s = show(x, &tensor, "to_dlpack");
    if (!s) return NULL;
    s->as.managed = (ct_dl_managed){.major = CT_DL_MAJOR,
                                    .minor = CT_DL_MINOR,
                                    .context = s,
                                    .deleter = managed_deleter,
                                    .flags = x->storage->read_only ? CT_DL_READ_ONLY : 0,
                                    .tensor = tensor};
    return &s->as.managed;
}

ct_dl_unversioned *ct_to_dlpack_unversioned(ct_tensor *x) {
    ct_dl_tensor tensor;
    shown *s = show(x, &tensor, "to_dlpack_unversioned");
    if (!s) return NULL;
    if (x->storage->read_only) {
        let_go(s);
        ct_fail(CT_ERR_STATE, "to_dlpack_unversioned",
                "x lies in memory that is not to be written, and this form has no place to say so; use ct_to_dlpack");
        return NULL;
    }
    s->as.unversioned = (ct_dl_unversioned){.tensor = tensor, .context = s, .deleter = unversioned_deleter};
    return &s->as.unversioned;
}

/* ---- In ---- */

static bool take_dtype(ct_dl_dtype given, const char *op, ct_dtype *dtype) {
    for (int i = 0; i < CT_DTYPE_COUNT; i++) {
        if (memcmp(&dtypes[i], &given, sizeof given) != 0) continue;
        *dtype = (ct_dtype)i;
        return true;
    }
    return ct_fail(CT_ERR_DTYPE, op, "elements of kind %d, %d bits and %d lanes are none of the dtypes here",
                   given.kind, given.bits, given.lanes);
}

static bool take_device(ct_dl_device given, const char *op, ct_device *device) {
    const bool host = given.type == CT_DL_CPU || given.type == CT_DL_CUDA_HOST || given.type == CT_DL_ROCM_HOST;
    if (host) {
        *device = (ct_device){CT_CPU, 0}; /* the number of pinned memory is that of a GPU */
        return true;
    }
    ct__registry_start();
    const char *missing = given.type == CT_DL_CUDA     ? ct_backend_missing(CT_CUDA)
                          : given.type == CT_DL_WEBGPU ? ct_backend_missing(CT_WEBGPU)
                                                       : "";
    for (int type = CT_CPU; type < CT_DEVICE_TYPES; type++) {
        const ct_backend *backend = ct__backend((ct_device_type)type);
        if (!backend || backend->dlpack_type != given.type) continue;
        *device = (ct_device){(ct_device_type)type, given.index};
        return ct__device_ok(*device, op);
    }
    return ct_fail(CT_ERR_DEVICE, op, "the tensor is on a device of DLPack's type %d, which no backend here has%s%s",
                   given.type, missing[0] ? ": " : "", missing);
}

static bool take_layout(const ct_dl_tensor *t, const char *op, ct_view *view) {
    ct_dims shape = {.n = t->ndim};
    ct_dtype dtype = CT_F32;
    if (t->ndim < 0 || t->ndim > CT_MAX_DIMS)
        return ct_fail(CT_ERR_SHAPE, op, "the tensor has %d dimensions; 0 to %d can be had", t->ndim, CT_MAX_DIMS);
    if (t->ndim && !t->shape) return ct__fail_null(op, "shape");
    for (int i = 0; i < t->ndim; i++) shape.d[i] = t->shape[i];
    if (!take_dtype(t->dtype, op, &dtype) || !ct__view_of_shape(op, shape, dtype, view)) return false;
    for (int i = 0; t->strides && i < t->ndim; i++) view->strides[i] = t->strides[i];
    return true;
}

/* Other bytes than 0 and 1 would be neither true nor false to the kernels. */
static bool are_truth_values(ct_tensor *x, const char *op) {
    bool fine = true;
    if (x->view.dtype != CT_BOOL || x->storage->device.type != CT_CPU) return true;
    ct_scope {
        ct_view view = x->view;
        view.dtype = CT_U8;
        ct_tensor *bytes = ct__scope_adopt(ct__tensor_new(&view, x->storage));
        fine = bytes && ct_item_i64(ct_any(ct_gt_s(bytes, 1))) == 0;
    }
    return fine || ct_fail(CT_ERR_VALUE, op, "a byte of the bool tensor is neither 0 nor 1");
}

static ct_tensor *wrap(const ct_dl_tensor *t, bool read_only, ct_wrapped owner, const char *op) {
    static const int64_t nowhere[2]; /* an empty tensor may have no address */
    ct_device device;
    ct_view view;
    char *lowest;
    size_t bytes;
    bool ok = take_device(t->device, op, &device) && take_layout(t, op, &view);
    const bool empty = ok && ct__view_count(&view) == 0;
    void *first = empty ? (void *)(uintptr_t)nowhere : (void *)((uintptr_t)t->data + (uintptr_t)t->byte_offset);
    if (ok && !empty && !t->data) ok = ct__fail_null(op, "data");
    if (ok && !empty && (uintptr_t)first % ct_dtype_size(view.dtype))
        ok = ct_fail(CT_ERR_VALUE, op, "data at %p is not aligned for %s", first, ct_dtype_name(view.dtype));
    if (ok && !ct__view_place(&view, first, &lowest, &bytes))
        ok = ct_fail(CT_ERR_SHAPE, op, "the strides of %s reach beyond what can be addressed", ct_view_text(&view));
    if (!ok) {
        owner.release(owner.context, owner.data);
        return NULL;
    }
    ct_storage *storage = ct__storage_wrap(device, lowest, bytes, owner, op);
    if (!storage) return NULL;
    storage->read_only = read_only;
    ct_tensor *x = ct__tensor_new(&view, storage);
    ct__storage_release(storage); /* now the tensor's; without one the owner has been told */
    if (x && !are_truth_values(x, op)) {
        ct__tensor_release(x);
        x = NULL;
    }
    return x ? ct__scope_adopt(x) : NULL;
}

static void release_managed(void *context, void *data) {
    ct_dl_managed *managed = context;
    (void)data;
    if (managed->deleter) managed->deleter(managed);
}

static void release_unversioned(void *context, void *data) {
    ct_dl_unversioned *managed = context;
    (void)data;
    if (managed->deleter) managed->deleter(managed);
}

ct_tensor *ct_from_dlpack(ct_dl_managed *managed) {
    if (!managed) {
        ct__fail_null("from_dlpack", "managed");
        return NULL;
    }
    const ct_wrapped owner = {.release = release_managed, .context = managed};
    if (managed->major != CT_DL_MAJOR) { /* of which nothing but the deleter's place is known */
        ct_fail(CT_ERR_UNSUPPORTED, "from_dlpack", "the tensor is of version %u.%u of DLPack; %d.x can be read",
                (unsigned)managed->major, (unsigned)managed->minor, CT_DL_MAJOR);
        release_managed(managed, NULL);
        return NULL;
    }
    return wrap(&managed->tensor, managed->flags & CT_DL_READ_ONLY, owner, "from_dlpack");
}

ct_tensor *ct_from_dlpack_unversioned(ct_dl_unversioned *managed) {
    if (!managed) {
        ct__fail_null("from_dlpack_unversioned", "managed");
        return NULL;
    }
    const ct_wrapped owner = {.release = release_unversioned, .context = managed};
    return wrap(&managed->tensor, false, owner, "from_dlpack_unversioned");
}

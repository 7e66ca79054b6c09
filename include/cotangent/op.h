/* What an op is. Everything the library knows of an op hangs off one constant ct_op: the built-in ones are
 * written by the generator from ops/NAME/NAME.def and NAME.c; user code fills one by hand and registers it.
 *
 * Structs grow at their ends. ct_op says its size, so an op that was compiled with a shorter one registers; ct_infer, ct_vjp and
 * ct_lower are made by the library and only read. ct_view, ct_arg, ct_attr, ct_text, ct_saves and ct_op_slot stay as they are.
 *
 * Threads: the table may be read and added to from any thread. An op is registered, and its kernels are added, before any thread
 * calls it. Its infer, vjp and lower run on the thread of the call, several at once where several threads call, so they keep no
 * state of their own without a lock. A kernel runs there too, and on threads of the pool as far as it hands work to them. */
#ifndef COTANGENT_OP_H
#define COTANGENT_OP_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A strided view of a device buffer: plain data, no reference counts, no autograd. buffer is opaque (on the CPU
 * it is the address of element 0 of the storage); element 0 of the storage lies origin bytes behind its beginning. */
typedef struct ct_view {
    void *buffer;
    size_t origin;  /* in bytes, a multiple of every element's size; 0 on the CPU */
    int64_t offset; /* of the view in its storage, in elements */
    ct_dtype dtype;
    int ndim;
    int64_t dims[CT_MAX_DIMS];
    int64_t strides[CT_MAX_DIMS]; /* in elements */
} ct_view;

/* Flags of an input or an output. */
enum {
    CT_ARG_OPTIONAL = 1,  /* input: may be NULL. output: computed only when asked for */
    CT_ARG_LIST = 2,      /* the last input (or the only output): any number of tensors */
    CT_ARG_BROADCAST = 4, /* expanded to the common shape of all such inputs before infer sees it */
    CT_ARG_PROMOTE = 8,   /* cast to the common dtype of all such inputs before infer sees it */
    CT_ARG_FLOAT = 16,    /* must be floating; integers and bool are cast to f32 first */
    CT_ARG_INDEX = 32,    /* must be i32 or i64 */
    CT_ARG_BOOL = 64,     /* must be bool */
    CT_ARG_MUTATED = 128, /* the op changes it (running statistics, ...), but not while ct_is_recomputing() */
};

typedef struct ct_arg {
    const char *name;
    unsigned flags;
} ct_arg;

typedef enum ct_attr_type {
    CT_ATTR_INT,    /* int64_t */
    CT_ATTR_DOUBLE, /* double */
    CT_ATTR_BOOL,   /* bool */
    CT_ATTR_DIMS,   /* ct_dims */
    CT_ATTR_OPT,    /* ct_opt: may be unset */
    CT_ATTR_DTYPE,  /* ct_dtype */
    CT_ATTR_ENUM,   /* int; values names it */
    CT_ATTR_TEXT,   /* ct_text */
    CT_ATTR_AXES,   /* ct_dims, spelled `stride` (one number for every axis) or `strides` (a list) */
    CT_ATTR_DEVICE, /* ct_device */
} ct_attr_type;

/* Text inside an attribute struct, by value, so that a struct can be copied byte for byte. */
typedef struct ct_text {
    char s[128];
} ct_text;

typedef struct ct_attr {
    const char *name;   /* singular spelling for CT_ATTR_AXES */
    const char *plural; /* its list spelling, else NULL */
    ct_attr_type type;
    bool required;             /* positional in C; has no default */
    uint32_t offset;           /* in the op's attribute struct */
    double number;             /* the default of numbers, bools, enums, dtypes, axes */
    const char *const *values; /* names of an enum's values, NULL-terminated */
    const char *doc;
} ct_attr;

/* Flags of an op. */
enum {
    CT_OP_ELEMENTWISE = 1,
    CT_OP_VIEW = 2,         /* output 0 is a view of input 0's storage: no kernel; infer sets strides and offset */
    CT_OP_RANDOM = 4,       /* takes a position in the random stream */
    CT_OP_NO_GRAD = 8,      /* not differentiable: its results never require grad, and say so when differentiated */
    CT_OP_MUTATES = 16,     /* some input is CT_ARG_MUTATED */
    CT_OP_INTERNAL = 32,    /* a helper of other ops (a fused gradient): not in ops.h */
    CT_OP_ALIAS_OK = 64,    /* may write where it reads an input; not elementwise: the first of the result's shape */
    CT_OP_MOVES = 128,      /* moves elements and computes nothing: its lowering takes half types as they are */
    CT_OP_NARROW = 256,     /* under ct_set_autocast its inputs are cast to that dtype */
    CT_OP_WIDE = 512,       /* under ct_set_autocast its inputs of half precision are cast to f32 */
    CT_OP_RECOMPUTE = 1024, /* a half result has too few digits for its vjp: all inputs are saved in place of results */
    CT_OP_TRANSFERS = 2048, /* its results are on the device that its attribute names, not on that of its inputs */
    CT_OP_WAITS = 4096,   /* reads values of its inputs to know the shape of its result, so it waits for their device */
    CT_OP_PARTIAL = 8192, /* its vjp takes NULL for the cotangent of a result that no gradient reached, not zeros */
};

typedef struct ct_op ct_op;

/* What infer sees: the inputs' views (NULL where an optional one is skipped) and the attributes. It fills out[i]:
 * dtype, ndim, dims (and strides and offset when the op is a view). It raises errors through ct_infer_fail only. */
typedef struct ct_infer {
    const ct_op *op;
    const void *attrs;
    int n_in, n_out;
    const ct_view *const *in;
    ct_view *out;
} ct_infer;

/* What a vector-Jacobian product sees, written in ops so that it can be differentiated again. in[i] and out[i]
 * hold data only if the op saves them; the others know their shape and dtype alone. cot[i] is the cotangent of
 * out[i] (NULL for integer results, and where the op is CT_OP_PARTIAL for those that no gradient reached). Where
 * need[i], it sets grad[i]; NULL there means zero. */
typedef struct ct_vjp {
    const ct_op *op;
    const void *attrs;
    int n_in, n_out;
    ct_tensor *const *in;
    ct_tensor *const *out;
    ct_tensor *const *cot;
    const bool *need;
    ct_tensor **grad;
    ct_device device; /* that its inputs were on */
    /* Input i is a half that was cast from f32 (ct_set_autocast): grad[i] may be f32, which saves rounding it and casting it back. */
    const bool *wide;
} ct_vjp;

/* What lower sees: it sets out[i] for every i that want[i] asks for. */
struct ct_random;
typedef struct ct_lower {
    const ct_op *op;
    const void *attrs;
    int n_in, n_out;
    ct_tensor *const *in;
    ct_tensor **out;
    const bool *want;
    ct_device device;               /* that its attribute names, of an op that is CT_OP_TRANSFERS */
    const struct ct_random *random; /* of an op that is CT_OP_RANDOM, its position in the stream (backend.h) */
} ct_lower;

/* What hand_on sees: a call whose arguments agree, as infer sees it. Where another op computes the very same, it fills the results'
 * shapes as infer does (for a view strides and offset too), and says which op that is, with its inputs and attributes; dispatch then
 * goes on with that one, in the same call. Otherwise it leaves `to` NULL, and the op is inferred and lowered. False after an error. */
enum { CT_HANDED_INPUTS = 6, CT_HANDED_BYTES = 640 };
typedef struct ct_handing {
    ct_infer infer;
    bool recording; /* a gradient will be wanted */
    const ct_op *to;
    int n_in;
    signed char in[CT_HANDED_INPUTS]; /* which of the call's inputs the others' are; they have to agree as they are */
    void *attrs;                      /* room for CT_HANDED_BYTES; or set to the call's own, if alike */
} ct_handing;

/* Mutable companion of an op, owned by the library: zero-initialized beside the op. It never grows. */
typedef struct ct_op_slot {
    int index; /* its place in the op table, counted from 1; 0 until it is registered */
} ct_op_slot;

/* What is saved, a bit each input and output. */
typedef struct ct_saves {
    uint64_t in, out;
} ct_saves;

/* What saves_less sees: a call that has run and is about to be recorded, and what is to be saved of it for vjp. It takes away what the vjp
 * of this very call will not read; that tensor may then be changed in place, or let go. */
typedef struct ct_saving {
    const ct_op *op;
    const void *attrs;
    int n_in, n_out;
    ct_tensor *const *in;  /* NULL where an optional one is skipped */
    ct_tensor *const *out; /* likewise */
    ct_device device;      /* that its inputs are on */
    ct_saves saves;
} ct_saving;

struct ct_op {
    uint32_t size; /* sizeof(ct_op), as the one who fills it knows it */
    const char *name;
    const char *doc;
    const ct_arg *inputs;  /* ended by an unnamed one */
    const ct_arg *outputs; /* likewise */
    const ct_attr *attrs;  /* likewise; NULL for none */
    size_t attr_size;
    unsigned flags;
    uint64_t saves_in;  /* which inputs' data vjp reads, a bit each; a list input is the bits from its position on */
    uint64_t saves_out; /* which outputs' data vjp reads */
    const ct_saves
        *saves_for; /* by input, what its own gradient reads, so that no more is saved; NULL: all of the above */
    bool (*infer)(ct_infer *infer);
    void (*vjp)(ct_vjp *vjp);
    void (*lower)(ct_lower *lower);
    const char *samples; /* inputs worth testing, a line each; see docs/howto-op.md */
    ct_op_slot *slot;
    void *context; /* of an op that a program registers, for its infer, vjp and lower: theirs is call->op->context */
    bool (*hand_on)(ct_handing *handing);  /* of an op that has a lowering: see above */
    void (*saves_less)(ct_saving *saving); /* of an op whose calls do not all need what is saved: see above */
};

/* Raises an error for the op being inferred. The texts, "f32[2,3]" of a view or tensor and "[2,3]" of a list, are for messages: each is
 * in one of the thread's eight buffers, which take turns. */
CT_API bool ct_infer_fail(const ct_infer *infer, ct_code code, const char *format, ...) CT_PRINTF(3, 4);
CT_API const char *ct_view_text(const ct_view *view);
CT_API const char *ct_tensor_text(const ct_tensor *x);
CT_API const char *ct_dims_text(ct_dims dims);

/* The table: built-in ops first, in order of name, then registered ones. */
CT_API int ct_op_count(void);
CT_API const ct_op *ct_op_at(int index);
CT_API const ct_op *ct_op_find(const char *name); /* NULL when there is none; no error */
/* op must live as long as the process. Where its size is not that of this library's ct_op, the table holds a copy that is: what
 * an older one lacks is zero, and a newer one may set nothing that this library does not know. Either may be given to ct_apply. */
CT_API bool ct_op_register(const ct_op *op);
CT_API bool ct_op_differentiable(const ct_op *op);

/* Fills attrs (op->attr_size bytes) with the defaults; sets one attribute from text ("2,1", "true", "same"). */
CT_API void ct_attrs_default(const ct_op *op, void *attrs);
CT_API bool ct_attrs_set(const ct_op *op, void *attrs, const char *name, const char *text);

/* Runs any op. inputs has n entries in the order of the table, optional ones NULL, a list flattened at the end.
 * The first m outputs are computed and belong to the current scope. attrs NULL: the defaults. */
CT_API bool ct_apply(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m);
/* The same with a choice among the optional outputs (want NULL: all m) and a generator (NULL: the default one). */
CT_API bool ct_apply_with(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs,
                          int m, const bool *want, ct_rng *rng);
/* For bindings: the same without scopes. Each result is a reference that the caller owns and gives back with ct_drop, on any
 * thread; nothing is left in the current scope. On failure all outputs are NULL. */
CT_API bool ct_apply_owned(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs,
                           int m, const bool *want, ct_rng *rng);

#ifdef __cplusplus
}
#endif
#endif

/* The sweep that the op table generates: every op, at every sample, in every dtype, memory layout and level of vector
 * instructions that applies, against an independent computation; its gradients against differences; its bits against
 * the number of threads. Shared by the tests and by `cotangent check`. */
#ifndef COTANGENT_TESTS_OPCHECK_H
#define COTANGENT_TESTS_OPCHECK_H

#include <cotangent/op.h>

/* What to look at. */
enum {
    OPCHECK_VALUES = 1, /* kernels against `lower` in f64, or against their own f64 results */
    OPCHECK_GRADIENTS =
        2, /* first and second order against central differences, on a device without f64 against the CPU's in f64;
                            * cotangents of any layout */
    OPCHECK_THREADS = 4,  /* the same bits for 1, 2 and 7 threads */
    OPCHECK_CAPTURE = 16, /* the same bits when captured and replayed */
    OPCHECK_ALL = 23,
    OPCHECK_SMALLEST = 8, /* of each op only the samples of few elements, for builds that are slow */
    OPCHECK_WIDE = 32,    /* only f32, f64 and i64, for devices that compile a kernel for every dtype */
};

typedef struct opcheck_counts {
    int ops, checks, failures;
} opcheck_counts;

/* Checks the ops named (n 0: every op of the table) by `jobs` processes at a time, each of which checks at_once of them (0: one, of a device
 * some); writes failures, and with verbose a line an op, to standard output. Returns what it counted. */
opcheck_counts opcheck_run(const char *const *names, int n, const char *device, unsigned what, int jobs, int at_once,
                           bool verbose);

/* Levels of vector instructions that were asked for and that this machine lacks, by name, NULL-terminated. */
const char *const *opcheck_missing_levels(void);

/* Where a trap executes AMX's instructions (amx_trap.h), its count of them: then level avx512amx is looked at in the dtypes and the samples
 * that use them. NULL: as any other level. */
extern int64_t (*opcheck_trapped)(void);

/* ---- One op (opcheck_*.c) ---- */

enum { OPCHECK_INPUTS = 24, OPCHECK_OUTPUTS = 16 };

typedef struct opcheck_input {
    bool skipped;   /* an optional input that the sample leaves out */
    unsigned flags; /* CT_ARG_* */
    ct_dims shape;
    char domain[24];
} opcheck_input;

/* A line of op->samples. */
typedef struct opcheck_sample {
    const ct_op *op;
    const char *text; /* of length bytes */
    int length;
    opcheck_input in[OPCHECK_INPUTS];
    int n_in, n_out;
    void *attrs;     /* owned */
    int64_t largest; /* elements of the largest input */
} opcheck_sample;

/* An op under check, and what was found so far. */
typedef struct opcheck {
    const ct_op *op;
    const opcheck_sample *sample; /* being looked at, for messages */
    unsigned what;
    int checks, failures;
} opcheck;

const ct_arg *opcheck_arg(const ct_op *op, int i); /* of input i */
int opcheck_count_args(const ct_arg *args);

/* The next line of the op's samples, from *at on; false at the end, or (with a failure recorded) when it cannot be
 * read. */
bool opcheck_next_sample(opcheck *check, const char **at, opcheck_sample *sample);
void opcheck_free_sample(opcheck_sample *sample);
/* Counts a check; one that does not hold is printed with op and sample. */
bool opcheck_expect(opcheck *check, bool held, const char *format, ...) CT_PRINTF(3, 4);

bool opcheck_is_unset(const ct_op *op); /* ct_empty and the like: the elements of the result mean nothing */

/* How an input lies in memory. */
typedef enum opcheck_layout {
    OPCHECK_DENSE,
    OPCHECK_TRANSPOSED, /* first dimension fastest */
    OPCHECK_SLICE,      /* inside a larger array, at an odd offset */
    OPCHECK_STEP,       /* every second element of the last dimension */
    OPCHECK_BACKWARDS,  /* the last dimension, and every second one before it, from its end to its start */
    OPCHECK_MIXED,      /* each input in another of these */
    OPCHECK_STRIDE0,    /* the last dimension of more than one entry repeats its first */
    OPCHECK_BROADCAST,  /* dimension 0 does */
    OPCHECK_LAYOUTS
} opcheck_layout;
const char *opcheck_layout_name(opcheck_layout layout);
static inline bool opcheck_repeats(opcheck_layout layout) {
    return layout == OPCHECK_STRIDE0 || layout == OPCHECK_BROADCAST;
}

/* Fills values (row-major) with a sample of the input's domain; integer asks for small integers instead of fractions. */
void opcheck_fill(const opcheck_input *input, int position, bool integer, double *values, int64_t count);
int64_t opcheck_count(ct_dims shape);
/* An index or a mask: its values are no subject of dtype or gradient. */
bool opcheck_is_index(const opcheck_input *input);

/* A tensor with these values (rounded to dtype) in that layout; memory that is no element holds NaN or a huge number. With
 * layouts that repeat values is changed to what the tensor then holds. Belongs to the scope. */
ct_tensor *opcheck_place(ct_dtype dtype, ct_dims shape, double *values, opcheck_layout layout);
/* The elements of x as doubles, in row-major order; owned by the caller; NULL after an error. */
double *opcheck_read(ct_tensor *x);

/* A function from tensors to tensors: the op itself, its lowering, or its vector-Jacobian product. */
typedef bool (*opcheck_function)(const opcheck_sample *sample, ct_tensor *const *in, ct_tensor **out);
/* As ct_apply, at a fixed random position; and op->lower, called directly. */
bool opcheck_apply(const opcheck_sample *sample, ct_tensor *const *in, ct_tensor **out);
bool opcheck_lower(const opcheck_sample *sample, ct_tensor *const *in, ct_tensor **out);

/* What results of a device are compared with is computed by the CPU: until ct_set_device with what this returns, tensors are made there. */
static inline ct_device opcheck_to_cpu(void) {
    const ct_device device = ct_get_device();
    ct_set_device((ct_device){CT_CPU, 0});
    return device;
}

/* Relative spacing of a dtype (half of it bounds the error of rounding), its largest and its smallest number. */
double opcheck_unit(ct_dtype dtype);
double opcheck_largest(ct_dtype dtype);
double opcheck_smallest(ct_dtype dtype);

/* What is computed in f64 is computed on the CPU where the device under check has no f64: between these two the current device has it.
 * The end takes what the begin gave. */
ct_device opcheck_begin_f64(void);
void opcheck_end_f64(ct_device device);
bool opcheck_has_f64(void);                           /* the device under check */
bool opcheck_is_beyond(const opcheck_sample *sample); /* it asks for f64, which that device has not */
/* What may become 0: numbers below the normal ones; on such devices, that is those of WebGPU, on the way to a result too, times what they
 * are multiplied by. */
double opcheck_flushed(ct_dtype dtype);

void opcheck_values(opcheck *check, opcheck_sample *sample);
void opcheck_gradients(opcheck *check, opcheck_sample *sample);
void opcheck_threads(opcheck *check);
void opcheck_capture(opcheck *check, opcheck_sample *sample);

#endif

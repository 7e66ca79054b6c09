/* Named tensors and texts: what modules, optimizers, schedules and loaders hand over to be stored, and take back.
 *
 * Threads: a state may be read by many threads at once; what puts something into it, or frees it, is for one thread alone. */
#ifndef COTANGENT_STATE_H
#define COTANGENT_STATE_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An ordered list of tensors by name, and of texts by name. Names are unique. Putting a tensor shares it, it does not
 * copy: what is put and later changed in place has changed in the state as well. */
typedef struct ct_state ct_state;

CT_API ct_state *ct_state_new(void); /* NULL, with an error, when there is no memory */
CT_API void ct_state_free(ct_state *state);

CT_API bool ct_state_put(ct_state *state, const char *name,
                         ct_tensor *x); /* a name that is there already is an error */
CT_API bool ct_state_put_text(ct_state *state, const char *name, const char *text);
/* Numbers are tensors of one dimension: f64 or i64, bit for bit. */
CT_API bool ct_state_put_numbers(ct_state *state, const char *name, const double *values, int64_t count);
CT_API bool ct_state_put_integers(ct_state *state, const char *name, const int64_t *values, int64_t count);

/* What is stored under a name; the tensor stays the state's. NULL where there is none, which is not an error. */
CT_API ct_tensor *ct_state_get(const ct_state *state, const char *name);
CT_API const char *ct_state_text(const ct_state *state, const char *name);
/* Exactly count numbers under that name, or false with an error that says what is there instead. */
CT_API bool ct_state_numbers(const ct_state *state, const char *name, double *values, int64_t count);
CT_API bool ct_state_integers(const ct_state *state, const char *name, int64_t *values, int64_t count);

/* In the order in which they were put; NULL past the end. */
CT_API int64_t ct_state_count(const ct_state *state);
CT_API const char *ct_state_name(const ct_state *state, int64_t i);
CT_API ct_tensor *ct_state_at(const ct_state *state, int64_t i);
CT_API int64_t ct_state_text_count(const ct_state *state);
CT_API const char *ct_state_text_name(const ct_state *state, int64_t i);
CT_API const char *ct_state_text_at(const ct_state *state, int64_t i);

/* ---- Weights under other names ----------------------------------------------------------------------
 * How ct_load (cotangent/io.h) and ct_module_take_state (cotangent/nn.h) take tensors: by default every name, shape and dtype
 * has to fit, or nothing is changed. */

/* A name that becomes another one. `from` has to fit the whole name; a * in it stands for any characters, dots too, the
 * first one for as few as possible, then the second, ...; `to` is the new name, and its first * what the first * of
 * `from` stood for, its second * the second. {"module.*", "*"} takes a prefix away,
 * {"layers.*.attn.q.*", "layers.*.self_attn.q.*"} renames in every layer. to NULL: the tensor is left out, on purpose.
 * At most 16 stars. Matching takes time in proportion to both lengths, whatever is in them. */
typedef struct ct_rename {
    const char *from, *to;
} ct_rename;

/* How the weights of convolutions lie in a file. Where the module wants the other layout they are converted. */
typedef enum ct_weight_layout {
    CT_LAYOUT_BY_SHAPE = 0,   /* as the shape says; one that fits both ways: as the file's metadata says, or first */
    CT_LAYOUT_CHANNELS_FIRST, /* [out, in, kernel...]: PyTorch's */
    CT_LAYOUT_CHANNELS_LAST,  /* [kernel..., in, out]: TensorFlow's and JAX's */
    CT_LAYOUT_SAME            /* by shape, and the other layout is a mismatch: what belongs to the weights has it too */
} ct_weight_layout;

/* What became of each name. */
typedef enum ct_load_outcome {
    CT_LOAD_LOADED,   /* taken */
    CT_LOAD_MISSING,  /* the module has it, the file has not: it stays as it was */
    CT_LOAD_UNUSED,   /* the file has it, the module has not */
    CT_LOAD_MISMATCH, /* both have it, with shapes or dtypes that differ: it stays as it was */
    CT_LOAD_IGNORED,  /* the file has it, and a rename or the module's class says that it is not needed */
    CT_LOAD_OUTCOMES
} ct_load_outcome;

typedef struct ct_load_entry {
    ct_load_outcome outcome;
    const char *name;   /* in the module; NULL where it has none */
    const char *source; /* in the file; NULL where it has none */
    const char *note;   /* shapes that differ, or what was converted; "" where there is nothing to say */
} ct_load_entry;

/* What was loaded and what was not: of each outcome a list, in the module's order or, of what the file has alone, in the
 * file's. */
typedef struct ct_load_report ct_load_report;
CT_API void ct_load_report_free(ct_load_report *report);
CT_API int64_t ct_load_report_count(const ct_load_report *report, ct_load_outcome outcome);
CT_API const ct_load_entry *ct_load_report_at(const ct_load_report *report, ct_load_outcome outcome,
                                              int64_t i); /* NULL past the end */
/* A line with the counts, then one for each name that is missing, differs or is unused; as ct_to_string does. */
CT_API size_t ct_load_report_to_string(const ct_load_report *report, char *text, size_t capacity);

typedef struct ct_load_options {
    size_t size;
    bool lenient;             /* what does not fit is left alone; at least one tensor has to fit */
    bool cast;                /* floating dtypes that differ are converted */
    const ct_rename *renames; /* for each name of the file, without prefix, the first one that fits */
    int rename_count;
    ct_weight_layout layout; /* of the file */
    ct_load_report *
        *report; /* receives one, for the caller to free; also when loading fails because of what it says, else NULL */
} ct_load_options;

/* A number that a model, an optimizer, a schedule or a transform takes when it is made by name (ct_model_find and so on), for
 * programs that let people choose. A value that is not of its setting's kind is refused when the thing is made. */
typedef enum ct_setting_kind {
    CT_SETTING_NUMBER = 0,
    CT_SETTING_WHOLE, /* a whole number, at most 2^53 either way */
    CT_SETTING_FLAG,  /* 0 or 1 */
    CT_SETTING_STEPS  /* of a schedule: a whole number, or below 1 a part of all steps */
} ct_setting_kind;
typedef struct ct_setting {
    const char *name; /* as in the options: "weight_decay" */
    double value;     /* the default; NaN: it has to be given */
    const char *doc;
    ct_setting_kind kind;
} ct_setting;
/* The i-th of a list of settings, which has as many as its owner says. ct_setting may grow: a program that was compiled with this
 * header would miss the second one of a later library's list if it counted bytes itself. */
CT_API const ct_setting *ct_setting_at(const ct_setting *settings, int i);

#ifdef __cplusplus
}
#endif
#endif

/* Named tensors and texts: what modules, optimizers, schedules and loaders hand over to be stored, and take back. */
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

/* A number that a model, an optimizer, a schedule or a transform takes when it is made by name (ct_model_find and so on), for
 * programs that let people choose. A flag is 0 or 1. */
typedef struct ct_setting {
    const char *name; /* as in the options: "weight_decay" */
    double value;     /* the default */
    const char *doc;
} ct_setting;

#ifdef __cplusplus
}
#endif
#endif

/* Networks: modules with named parameters and buffers, the layers, initialisers and ready models. Written on cotangent.h
 * alone: a module of your own is made the same way as those here (see ct_module_class).
 *
 *     ct_module *net = ct_nn_sequential(ct_nn_conv2d(1, 32, 3, .pad = 1), ct_nn_relu(), ct_nn_max_pool2d(2),
 *                                       ct_nn_flatten(), ct_nn_linear(32 * 14 * 14, 10));
 *     ct_tensor *y = ct_forward(net, x);
 *
 * A constructor owns the modules that it is given even when it fails: it then frees them and returns NULL. A NULL child
 * makes its parent NULL, so a whole network is built in one expression and checked once. */
#ifndef COTANGENT_NN_H
#define COTANGENT_NN_H

#include <cotangent.h>
#include <cotangent/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Modules ------------------------------------------------------------------------------------- */

typedef struct ct_module ct_module;

/* What a kind of module does. Fill one (constant, it outlives its modules) for a module of your own. */
typedef struct ct_module_class {
    const char *name; /* "conv2d": for printing and errors */
    size_t state;     /* bytes of its own plain data, zeroed at first: ct_module_data */
    /* One tensor to one. It may make what it likes: the caller has opened a scope and passes the result on. */
    ct_tensor *(*forward)(ct_module *self, ct_tensor *x);
    /* n tensors to m, for modules that take or give more. A class has one of the two. */
    bool (*forward_n)(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m);
    /* The options as they were given, for printing ("32, 64, kernel=3"). May be NULL. */
    void (*describe)(const ct_module *self, char *text, size_t capacity);
    /* Makes a copy's plain data its own, where bytes alone are not enough. May be NULL. */
    bool (*copy)(const ct_module *from, ct_module *to);
    /* Frees what the plain data owns; not parameters, buffers or children. May be NULL. */
    void (*release)(ct_module *self);
} ct_module_class;

/* A module is counted: it is made with one reference, ct_module_keep adds one and ct_module_free gives one back. */
CT_API ct_module *ct_module_new(const ct_module_class *type);
CT_API ct_module *ct_module_keep(ct_module *module);
CT_API void ct_module_free(ct_module *module);
CT_API void *ct_module_data(const ct_module *module); /* its plain data, `state` bytes */
CT_API const ct_module_class *ct_module_type(const ct_module *module);

/* Adding to a module, in the order in which names are listed. A parameter is kept and requires grad from now on; a
 * buffer is kept and saved with the parameters, but not learned (running statistics). NULL, a name that is taken or has
 * a dot, and a NULL tensor are errors. ct_module_add owns the child. */
CT_API bool ct_module_add_param(ct_module *module, const char *name, ct_tensor *x);
CT_API bool ct_module_add_buffer(ct_module *module, const char *name, ct_tensor *x);
CT_API bool ct_module_add(ct_module *module, const char *name, ct_module *child);

/* The i-th own parameter, buffer or child, in the order of adding; NULL past the end. Made for forward functions. */
CT_API ct_tensor *ct_module_param(const ct_module *module, int i);
CT_API ct_tensor *ct_module_buffer(const ct_module *module, int i);
CT_API ct_module *ct_module_child(const ct_module *module, int i);
CT_API int ct_module_child_count(const ct_module *module);
/* By path from here ("layers.0.weight"; "layers.0"): NULL when there is none, no error. */
CT_API ct_tensor *ct_module_find(const ct_module *module, const char *path);
CT_API ct_module *ct_module_find_child(const ct_module *module, const char *path);

/* Runs the module. */
CT_API ct_tensor *ct_forward(ct_module *module, ct_tensor *x);
CT_API bool ct_forward_n(ct_module *module, ct_tensor *const *in, int n, ct_tensor **out, int m);

/* Every parameter and buffer below here, each tensor once (one that is shared goes by its first name). */
typedef struct ct_parameter {
    const char *name; /* whole path */
    ct_module *owner;
    int index;   /* among the owner's parameters, or buffers */
    bool buffer; /* not learned */
    bool frozen; /* not learned for now */
} ct_parameter;
typedef struct ct_parameters ct_parameters;
CT_API ct_parameters *ct_module_parameters(ct_module *module); /* free with ct_parameters_free; holds the module */
CT_API void ct_parameters_free(ct_parameters *list);
CT_API int ct_parameters_count(const ct_parameters *list);
CT_API const ct_parameter *ct_parameters_at(const ct_parameters *list, int i);
CT_API ct_tensor *ct_parameter_tensor(const ct_parameter *parameter); /* as it is now: a move replaces tensors */

/* Calls fn for the module and everything below it, parents first; stops when fn returns false and returns that. */
CT_API bool ct_module_apply(ct_module *module, bool (*fn)(void *context, const char *path, ct_module *module),
                            void *context);

CT_API bool ct_train(ct_module *module); /* training mode, also the mode at first: dropout drops, batch norm learns */
CT_API bool ct_eval(ct_module *module);
CT_API bool ct_module_training(const ct_module *module);
CT_API bool ct_module_freeze(ct_module *module, bool frozen); /* everything below: gradients wanted or not */
/* Converts every floating parameter and buffer, and moves all of them. Optimizers made before refuse to step after. */
CT_API bool ct_module_to_dtype(ct_module *module, ct_dtype dtype);
CT_API bool ct_module_to_device(ct_module *module, ct_device device);
CT_API ct_module *ct_module_copy(ct_module *module); /* deep; tensors that are shared inside stay so */
CT_API bool ct_module_zero_grad(ct_module *module);
CT_API int64_t ct_module_size(const ct_module *module); /* numbers that are learned, shared ones once */
/* A tree with options, shapes and counts: on standard output, or into text as ct_to_string does. */
CT_API bool ct_module_print(const ct_module *module);
CT_API size_t ct_module_to_string(const ct_module *module, char *text, size_t capacity);

/* Parameters and buffers into a state, and back, under prefix ("net." or ""). Loading checks every name, shape and dtype
 * before it changes anything; with partial, names that are missing on either side are left alone (shapes still have to fit). */
CT_API bool ct_module_put_state(ct_module *module, ct_state *state, const char *prefix);
CT_API bool ct_module_take_state(ct_module *module, const ct_state *state, const char *prefix, bool partial);

/* ---- Initialisers: in place, on any tensor. Fans are those of a weight [out, in, kernel...] unless channels_last, where
 * it is [kernel..., in, out]. Random ones draw from rng, NULL for the default generator. ---- */
typedef enum ct_init_fan { CT_FAN_IN = 0, CT_FAN_OUT, CT_FAN_AVERAGE } ct_init_fan;
typedef struct ct_init_options {
    size_t size;
    double gain;        /* 1; for kaiming sqrt(2) */
    ct_init_fan fan;    /* kaiming: in */
    bool channels_last; /* layout of the weight */
    ct_rng *rng;
} ct_init_options;
CT_API bool ct_init_uniform(ct_tensor *x, double lo, double hi, ct_rng *rng);
CT_API bool ct_init_normal(ct_tensor *x, double mean, double std, ct_rng *rng);
CT_API bool ct_init_truncated_normal(ct_tensor *x, double mean, double std, double lo, double hi, ct_rng *rng);
CT_API bool ct_init_xavier_uniform_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_xavier_normal_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_kaiming_uniform_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_kaiming_normal_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_lecun_normal_p(ct_tensor *x, const ct_init_options *options);
CT_API bool ct_init_orthogonal_p(ct_tensor *x, const ct_init_options *options); /* rows or columns, whichever are fewer */
CT_API bool ct_init_dirac(ct_tensor *x, int64_t groups); /* a convolution that passes its channels through */

/* (the layers and models follow: see nn/) */

#ifdef __cplusplus
}
#endif
#endif

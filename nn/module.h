/* What the files of nn/ share: the module itself, and the little helpers of layers. Everything else that they use is in
 * cotangent/nn.h, as for a module from outside. */
#ifndef COTANGENT_NN_MODULE_H
#define COTANGENT_NN_MODULE_H

#include <cotangent/nn.h>
#include <cotangent/op.h>
#include <stdatomic.h>
#include <string.h>

#include "support/options.h"
#include "support/text.h"

typedef struct ct__slot {
    char *name;
    ct_tensor *x;     /* of a parameter or buffer, kept */
    ct_module *child; /* of a child, owned */
} ct__slot;

typedef struct ct__slots {
    ct__slot *items;
    int count, capacity;
} ct__slots;

struct ct_module {
    const ct_module_class *type;  /* the whole of it: given, or own where that is shorter */
    const ct_module_class *given; /* as it was handed over */
    ct_module_class own;
    _Atomic int refs;
    bool training;
    int depth;     /* how many modules are above it, along the longest way */
    int height;    /* how many are below it, likewise; as of the walk that measured it (module.c) */
    uint64_t walk; /* the last one that came by */
    char *name;    /* in the module that it was first added to, for errors; NULL at the top */
    ct__slots params, buffers, children;
    ct_division division; /* of what it learns; parts is 0: it is not divided */
    _Alignas(max_align_t) unsigned char data[];
};

/* ct_forward, followed by an activation (CT_ACT_NONE: nothing) in the same pass where the class can. */
ct_tensor *ct__forward_then(ct_module *module, ct_tensor *x, ct_activation activation);
ct_tensor *ct__activate(ct_tensor *x, ct_activation activation);
/* relu(norm(x) + residual), in the same pass where the norm can. NULL where x or residual is. */
ct_tensor *ct__norm_add_relu(ct_module *norm, ct_tensor *x, ct_tensor *residual);

/* Steps one after the other, each on the result of the one before, which is given up as soon as the next is there: it then lives
 * on only where the graph needs it. The last step runs in the current scope, so that its result belongs there.
 *     ct__chain chain = {.x = x};
 *     for (...) { ct__chain_open(&chain, last); ct__chain_close(&chain, step(chain.x)); }
 *     return ct__chain_end(&chain); */
typedef struct ct__chain {
    ct_tensor *x;    /* the result so far; NULL after a failure */
    ct_tensor *held; /* the result before the last step, where this chain holds it */
    bool inside;     /* a scope is open */
    ct_scope_mark mark;
} ct__chain;
void ct__chain_open(ct__chain *chain, bool last);
void ct__chain_close(ct__chain *chain, ct_tensor *y);
ct_tensor *ct__chain_end(ct__chain *chain);

/* A text that is written piece by piece into what room there is; length counts everything. */
typedef struct ct__writer {
    char *text;
    size_t capacity, length;
} ct__writer;
void ct__write(ct__writer *writer, const char *format, ...) CT_PRINTF(2, 3);
/* ", stride=2" or ", stride=2x1": nothing where it is the default. */
void ct__write_axes(ct__writer *writer, const char *name, int64_t one, const ct_dims *each);
void ct__write_activation(ct__writer *writer, ct_activation activation); /* ", relu" */

/* A path, which grows and shrinks as a tree is walked. */
typedef struct ct__path {
    char *text;
    size_t length, capacity;
} ct__path;
bool ct__path_push(ct__path *path, const char *name, size_t *before); /* before: for ct__path_pop */
void ct__path_pop(ct__path *path, size_t before);

/* Every parameter and buffer below, also those that occur twice; parents first, parameters before buffers. */
typedef bool (*ct__slot_fn)(void *context, const char *path, ct_module *owner, ct__slot *slot, bool buffer, int index);
bool ct__each_slot(const ct_module *module, ct__slot_fn fn, void *context);

static inline ct_opt ct__opt(ct_opt given, double normal) { return given.set ? given : CT_SET(normal); }

/* Makes a parameter, or a buffer, and adds it; false when that fails. */
bool ct__add_uniform(ct_module *module, const char *name, ct_dims shape, double bound);
bool ct__add_constant(ct_module *module, const char *name, ct_dims shape, double value, bool buffer);
/* The module, or NULL with the module freed when ok is false. */
ct_module *ct__finish(ct_module *module, bool ok);
/* A sequential without modules yet, under that class name (of those in container.c). */
ct_module *ct__sequential_new(const char *name);
bool ct__is_activation(const char *function, ct_activation activation); /* or an error */
/* An error unless value is from 1 to 2^31 - 1: the product of two sizes then never overflows. */
bool ct__positive(const char *function, const char *what, int64_t value);
bool ct__is_probability(const char *function, const char *what, double value); /* from 0 to below 1, or an error */
bool ct__is_list(const char *function, const char *what, ct_dims list);        /* of 0 to CT_MAX_LIST numbers */
/* An error unless so many modules like this one fit into the memory of the machine: said before they are made one by one. */
bool ct__affordable(const char *function, const char *what, int64_t count, ct_module *one);

#endif

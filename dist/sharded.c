/* Parameters that are divided among ranks, as in ZeRO (Rajbhandari et al., 2020). A module's parameters become one
 * flat tensor, of which every rank has a part and learns it: gradients and the optimizer's state are of that part
 * alone. A forward pass gathers the whole; its derivative scatters the sum of the gradients. In stage 3 the pass is
 * checkpointed: what was gathered is let go after it, and gathered once more in backward. */
#include <stdio.h>
#include <string.h>

#include "dist/parallel.h"
#include "support/options.h"

typedef struct sharded {
    ct_module *inner;
    ct_dist_group *group;
    bool checkpointed;
    ct__place *places;
    ct_tensor **wholes; /* the parameters themselves, while they are counted; not kept */
    int count, capacity;
    int64_t elements, padded; /* of all parameters; and a multiple of the number of ranks */
    ct_tensor *nothing;       /* kept: what a parameter is between passes */
} sharded;

/* ---- A pass ---- */

static bool put_parameters(const sharded *s, ct_tensor *flat) {
    bool fine = true;
    for (int i = 0; i < s->count && fine; i++) {
        const ct__place *p = &s->places[i];
        ct_tensor *x = flat ? ct_reshape(ct_narrow(flat, 0, p->offset, p->elements), p->shape) : s->nothing;
        fine = x && ct_module_set_param(p->owner, p->index, x);
    }
    return fine;
}

static ct_tensor *gather(const sharded *s, ct_tensor *shard) {
    return ct__dist_apply(CT__ALL_GATHER, shard, CT_DIST_MEAN, 0, s->group, NULL); /* the mean is of the gradients */
}

/* in[0] is the shard. */
static bool pass(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    ct_module *self = context;
    const sharded *s = ct_module_data(self);
    if (ct_module_training(self) != ct_module_training(s->inner) &&
        !(ct_module_training(self) ? ct_train(s->inner) : ct_eval(s->inner)))
        return false;
    ct_tensor *flat = gather(s, in[0]);
    const bool fine = flat && put_parameters(s, flat) && ct_forward_n(s->inner, in + 1, n - 1, out, m);
    return put_parameters(s, NULL) && fine;
}

static void release_module(void *module) { ct_module_free(module); }

static bool forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    enum { MOST = 8 };
    const sharded *s = ct_module_data(self);
    ct_tensor *all[1 + MOST] = {ct_module_param(self, 0)};
    if (n > MOST) return ct_fail(CT_ERR_VALUE, "sharded", "%d tensors in, expected at most %d", n, MOST);
    for (int i = 0; i < n; i++)
        if (!(all[1 + i] = in[i])) return ct_fail(CT_ERR_NULL, "sharded", "tensor %d is NULL", i);
    if (!s->checkpointed || !ct_grad_enabled()) return pass(self, all, n + 1, out, m);
    return ct_checkpoint(pass, ct_module_keep(self), release_module, all, n + 1, out, m);
}

static void describe(const ct_module *self, char *text, size_t capacity) {
    const sharded *s = ct_module_data(self);
    snprintf(text, capacity, "%s, %lld numbers, stage %d", ct_module_type(s->inner)->name, (long long)s->elements,
             s->checkpointed ? 3 : 2);
}

static void release(ct_module *self) {
    sharded *s = ct_module_data(self);
    ct_module_free(s->inner);
    ct_free(s->places);
    ct_free(s->wholes);
    ct_drop(s->nothing);
}

static const ct_module_class sharded_class = {.size = sizeof(ct_module_class),
                                              .name = "sharded",
                                              .state = sizeof(sharded),
                                              .forward_n = forward,
                                              .describe = describe,
                                              .release = release};

bool ct__is_sharded(const ct_module *module) { return ct_module_type(module) == &sharded_class; }

int ct__sharded_places(const ct_module *module, const ct__place **places, ct_module **inner, ct_dist_group **group) {
    const sharded *s = ct_module_data(module);
    *places = s->places;
    *inner = s->inner;
    *group = s->group;
    return s->count;
}

/* ---- Making ---- */

/* One place for each name; a tensor that goes by two has one offset. */
static bool count_parameters(void *context, const char *path, ct_module *module) {
    sharded *s = context;
    for (int i = 0; i < ct_module_param_count(module); i++) {
        ct_tensor *x = ct_module_param(module, i);
        if (s->count == s->capacity) {
            const int larger = s->capacity ? 2 * s->capacity : 16;
            ct__place *places = ct_realloc(s->places, (size_t)larger * sizeof *places);
            if (places) s->places = places;
            ct_tensor **wholes = ct_realloc(s->wholes, (size_t)larger * sizeof(ct_tensor *));
            if (wholes) s->wholes = wholes;
            if (!places || !wholes)
                return ct_fail(CT_ERR_MEMORY, "dist_sharded", "no memory for %d parameters", larger);
            s->capacity = larger;
        }
        s->wholes[s->count] = x;
        ct__place *p = &s->places[s->count++];
        *p = (ct__place){module, i, ct_shape(x), s->elements, ct_numel(x)};
        if (ct_dtype_of(x) != ct_dtype_of(s->wholes[0]))
            return ct_fail(CT_ERR_DTYPE, "dist_sharded",
                           "'%s%s%s' is %s and the first parameter %s: they become one tensor", path, *path ? "." : "",
                           ct_module_param_name(module, i), ct_dtype_name(ct_dtype_of(x)),
                           ct_dtype_name(ct_dtype_of(s->wholes[0])));
        int same = 0;
        while (s->wholes[same] != x) same++;
        if (&s->places[same] != p) p->offset = s->places[same].offset;
        else s->elements += p->elements;
    }
    return true;
}

/* Rank 0's parameters, flat and filled up; this rank keeps its part. */
static ct_tensor *own_part(const sharded *s) {
    const int ranks = ct_dist_group_size(s->group), rank = ct_dist_group_rank(s->group);
    ct_tensor *first = s->wholes[0];
    ct_tensor *flat = ct_zeros(CT_DIMS(s->padded), .dtype = ct_dtype_of(first), .device = ct_device_of(first));
    for (int i = 0; i < s->count && flat; i++) {
        const ct__place *p = &s->places[i];
        if (!ct_assign(ct_narrow(flat, 0, p->offset, p->elements),
                       ct_reshape(ct_detach(s->wholes[i]), CT_DIMS(p->elements))))
            return NULL;
    }
    return ct_clone(ct_narrow(ct_dist_broadcast(flat, 0, s->group), 0, s->padded / ranks * rank, s->padded / ranks));
}

static bool set_up(ct_module *self, const ct_dist_sharded_options *o) {
    sharded *s = ct_module_data(self);
    const int ranks = ct_dist_group_size(o->group);
    s->group = o->group;
    s->checkpointed = o->stage != 2;
    if (!ct_module_apply(s->inner, count_parameters, s)) return false;
    if (s->elements == 0) return ct_fail(CT_ERR_VALUE, "dist_sharded", "the module has no parameters");
    s->padded = (s->elements + ranks - 1) / ranks * ranks;
    bool fine = false;
    ct_scope {
        ct_no_grad {
            s->nothing = ct_keep(ct_zeros(CT_DIMS(0)));
            ct_tensor *mine = own_part(s);
            fine = s->nothing && mine && ct_module_add_param(self, "shard", mine);
        }
    }
    ct_free(s->wholes);
    s->wholes = NULL;
    return fine && put_parameters(s, NULL);
}

ct_module *ct_dist_sharded_p(ct_module *inner, const ct_dist_sharded_options *options) {
    TAKE_OPTIONS(ct_dist_sharded_options, o, options);
    bool fine = ct_ok() && inner && ct__group(o.group, "dist_sharded");
    if (fine && (o.stage < 0 || o.stage > 3))
        fine = ct_fail(CT_ERR_VALUE, "dist_sharded", "stage is %d; expected 1, 2 or 3", o.stage);
    if (fine && o.stage == 1 && ct__divide_learning(inner, o.group)) return inner; /* it stays as it is */
    ct_module *self = fine && ct_ok() ? ct_module_new(&sharded_class) : NULL;
    if (!self) {
        if (ct_ok()) ct_fail(CT_ERR_NULL, "dist_sharded", "inner is NULL");
        ct_module_free(inner);
        return NULL;
    }
    ((sharded *)ct_module_data(self))->inner = inner;
    if (set_up(self, &o)) return self;
    ct_module_free(self);
    return NULL;
}

ct_module *ct_dist_whole(ct_module *module) {
    if (!module) {
        ct_fail(CT_ERR_NULL, "dist_whole", "module is NULL");
        return NULL;
    }
    if (!ct__is_sharded(module)) return ct_module_copy(module);
    const sharded *s = ct_module_data(module);
    ct_module *copy = NULL;
    ct_scope {
        ct_no_grad {
            ct_tensor *flat = gather(s, ct_detach(ct_module_param(module, 0)));
            /* what is copied has tensors of its own, which are learned */
            if (flat && put_parameters(s, flat)) copy = ct_module_copy(s->inner);
            if (!put_parameters(s, NULL) || !copy || !ct_module_freeze(copy, false)) {
                ct_module_free(copy);
                copy = NULL;
            }
        }
    }
    return copy;
}

/* A network of transformer layers, divided in place: matrices among neighbors, and what each has of a layer among those that
 * have the same. Also the norm of its gradients, to which every rank adds what it has. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dist/parts.h"
#include "support/options.h"

/* ---- Dividing ---- */

static const struct {
    const char *name, *type;
    ct_module *(*cut)(ct_module *whole, ct_dist_group *group);
} cut_children[] = {{"self_attn", "multi_head_attention", ct__cut_heads},
                    {"linear1", "linear", ct__cut_columns},
                    {"linear2", "linear", ct__cut_rows}};
enum { CUT_CHILDREN = sizeof cut_children / sizeof *cut_children };

/* Before anything is changed. */
static bool can_divide(ct_module *layers, bool cut) {
    for (int i = 0; i < ct_module_child_count(layers); i++) {
        const ct_module *layer = ct_module_child(layers, i);
        if (strcmp(ct_module_type(layer)->name, "transformer_encoder_layer") != 0)
            return ct_fail(CT_ERR_VALUE, "dist_divide", "layer %d is a %s; transformer_encoder_layer is expected", i,
                           ct_module_type(layer)->name);
        for (int k = 0; k < CUT_CHILDREN && cut; k++) {
            const ct_module *child = ct_module_find_child(layer, cut_children[k].name);
            const char *is = child ? ct_module_type(child)->name : "missing";
            if (strcmp(is, cut_children[k].type) != 0)
                return ct_fail(CT_ERR_VALUE, "dist_divide", "%s of layer %d is %s%s; a %s is expected%s",
                               cut_children[k].name, i, child ? "a " : "", is, cut_children[k].type,
                               child ? ": a network is divided once" : "");
        }
    }
    return true;
}

static bool divide_layer(ct_module *layers, int i, bool cut, const ct_dist_divide_options *o) {
    ct_module *layer = ct_module_child(layers, i);
    for (int k = 0; k < CUT_CHILDREN && cut; k++) { /* each is replaced by this rank's part, under its own name */
        const char *name = cut_children[k].name;
        ct_module *part = cut_children[k].cut(ct_module_find_child(layer, name), o->tensor);
        if (!part || !ct_module_replace(layer, name, part)) return false;
    }
    if (o->stage < 2) return true;
    char name[24]; /* the child that is replaced is freed, and with it what it is called */
    snprintf(name, sizeof name, "%.23s", ct_module_child_name(layers, i));
    ct_module *sharded = ct_dist_sharded(ct_module_keep(layer), .group = o->data, .stage = o->stage);
    return sharded && ct_module_replace(layers, name, sharded);
}

static bool overlap_in_one(const ct_dist_group *a, const ct_dist_group *b) {
    int both = 0;
    for (int i = 0; i < a->size; i++)
        for (int k = 0; k < b->size; k++) both += a->ranks[i] == b->ranks[k];
    return both == 1;
}

/* What is sharded has to be the same on all ranks that share it, so the groups are the rows and columns of all ranks. */
static bool fit_together(const ct_dist_group *tensor, const ct_dist_group *data) {
    const int ranks = ct_dist_size(), cut = tensor->size, shared = data ? data->size : ranks;
    if (data && cut * shared == ranks && overlap_in_one(tensor, data)) return true;
    return ct_fail(
        CT_ERR_VALUE, "dist_divide",
        "layers are cut among %d of %d ranks and shared among %d; data has to be the group of the %d ranks with "
        "the same part: ct_dist_split(NULL, ct_dist_group_rank(tensor), 0)",
        cut, ranks, shared, ranks / cut);
}

/* Also what is neither cut nor sharded: all ranks of `tensor` compute with it. */
static bool begin_alike(ct_module *net, const ct_dist_divide_options *o) {
    ct_parameters *list = ct_module_parameters(net);
    const bool fine = list && (!o->tensor || ct__broadcast_parameters(list, o->tensor)) &&
                      (o->stage == 0 || ct__broadcast_parameters(list, o->data));
    ct_parameters_free(list);
    return fine;
}

bool ct_dist_divide_p(ct_module *net, const ct_dist_divide_options *options) {
    TAKE_OPTIONS(ct_dist_divide_options, o, options);
    if (!ct_ok()) return false;
    if (!net) return ct_fail(CT_ERR_NULL, "dist_divide", "net is NULL");
    if (o.stage < 0 || o.stage > 3)
        return ct_fail(CT_ERR_VALUE, "dist_divide", "stage is %d; expected 1, 2 or 3, or 0 for none", o.stage);
    ct_module *layers = ct_module_find_child(net, "layers");
    const bool cut = o.tensor && ct_dist_group_size(o.tensor) > 1;
    if (o.stage == 1 && !cut) return ct__group(o.data, "dist_divide") && ct__divide_learning(net, o.data);
    if (!layers || ct_module_child_count(layers) == 0)
        return ct_fail(CT_ERR_VALUE, "dist_divide", "a %s has no \"layers\"; ct_nn_gpt and ct_nn_vit have",
                       ct_module_type(net)->name);
    bool fine = ct__group(o.data, "dist_divide") && (!cut || o.stage == 0 || fit_together(o.tensor, o.data)) &&
                can_divide(layers, cut) && begin_alike(net, &o);
    for (int i = 0; fine && i < ct_module_child_count(layers); i++) fine = divide_layer(layers, i, cut, &o);
    return fine && (o.stage != 1 || ct__divide_learning(net, o.data));
}

/* ---- The norm of all gradients ---- */

/* The squares of what this rank has; of what several have, its share. */
static double own_squares(const ct__parts *parts) {
    double sum = 0;
    for (int i = 0; i < parts->count; i++) {
        const ct__part *part = &parts->parts[i];
        ct_tensor *grad = ct_grad_of(parts->locals[part->local].x);
        if (!grad || part->count == 0) continue;
        ct_scope {
            ct_tensor *flat = ct_reshape(ct_detach(grad), CT_DIMS(ct_numel(grad)));
            ct_tensor *x = ct_narrow(flat, 0, part->at, part->count);
            if (ct_dtype_of(x) != CT_F64) x = ct_cast(x, CT_F32);
            sum += ct_item(ct_sum(ct_square(x))) / part->copies;
        }
    }
    return sum;
}

double ct_dist_clip_grad_norm(ct_module *net, double max_norm) {
    ct__parts parts = {0};
    double norm = (double)NAN;
    if (!ct_ok() || (!net && !ct_fail(CT_ERR_NULL, "dist_clip_grad_norm", "net is NULL"))) return norm;
    if (!(max_norm >= 0)) {
        ct_fail(CT_ERR_VALUE, "dist_clip_grad_norm", "max_norm is %g; it has to be 0 or more", max_norm);
        return norm;
    }
    ct_no_grad {
        bool fine = ct__parts_of(net, &parts);
        ct_scope {
            ct_tensor *mine = fine ? ct_scalar(own_squares(&parts), CT_F64) : NULL;
            ct_tensor *all = mine ? ct_dist_all_reduce(mine, CT_DIST_SUM, NULL) : NULL;
            fine = all != NULL;
            if (fine) norm = sqrt(ct_item(all));
        }
        const double factor = max_norm / (norm + 1e-6);
        for (int i = 0; fine && factor < 1 && i < parts.local_count; i++) {
            ct_tensor *leaf = parts.locals[i].x, *grad = ct_grad_of(leaf);
            if (grad)
                ct_scope
                    fine = ct_set_grad(leaf, ct_mul_s(ct_detach(grad), factor));
        }
        if (!fine) norm = (double)NAN;
    }
    ct__parts_free(&parts);
    return norm;
}

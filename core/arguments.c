/* Arguments: what a call was given is counted, checked, and brought to common dtypes and shapes. */
#include "core/call.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/hot.h"
#include "core/inplace.h"
#include "core/node.h"
#include "core/number.h"
#include "gen/ops_decl.h"

bool ct__check_counts(const ct_op *op, ct_tensor *const *inputs, int n, ct_tensor **outputs, int m, const bool *want) {
    int named = 0;
    bool list = false, list_out = op->outputs[0].flags & CT_ARG_LIST;
    for (; op->inputs[named].name; named++) list = op->inputs[named].flags & CT_ARG_LIST;
    if (list ? n < named - 1 : n != named)
        return ct_fail(CT_ERR_VALUE, op->name, "takes %s%d inputs, not %d", list ? "at least " : "",
                       list ? named - 1 : named, n);
    if (!inputs && n) return ct__fail_null(op->name, "inputs");
    if (!outputs || m < 1) return ct__fail_null(op->name, "outputs");
    for (int i = 0; !list_out && i < m; i++)
        if (!op->outputs[i].name) return ct_fail(CT_ERR_VALUE, op->name, "has %d results, not %d", i, m);
    /* an internal op is called by code that knows which of its results it can be without; not the only one, unless it is what
     * the op changes that matters */
    const bool knows = (op->flags & CT_OP_INTERNAL) && (m > 1 || (op->flags & CT_OP_MUTATES));
    for (int i = 0; want && i < m && !knows; i++)
        if (!want[i] && (list_out || !(op->outputs[i].flags & CT_ARG_OPTIONAL)))
            return ct_fail(CT_ERR_VALUE, op->name, "result %d, %s, is always computed; it cannot be left out", i,
                           op->outputs[list_out ? 0 : i].name);
    return true;
}

/* Casts and expansions live only as long as the call. */
static void open_scope(ct_request *r) {
    if (!r->scoped) r->scope = ct_scope_begin();
    r->scoped = true;
}

static bool is_among(uint32_t set, int i) { return i < 32 && (set >> i & 1); }

static int count_of(uint32_t set) {
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

static bool replace(ct_tensor **in, ct_tensor *by) {
    if (by) *in = by;
    return by != NULL;
}

ct_tensor *ct__cast_input(ct_tensor *x, ct_dtype dtype) {
    return ct__is_number(x) ? ct__number_cast(x, dtype) : ct_cast(x, dtype);
}

/* Dtypes: promotion among the inputs that declare it, then floats where floats are asked for. */
static bool agree_dtypes(const ct_op *op, ct_tensor **in, int n) {
    ct_dtype common = CT_BOOL;
    bool any = false;
    int last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(ct__input_arg(op, i, &last)->flags & CT_ARG_PROMOTE)) continue;
        common = any ? ct_dtype_promote(common, in[i]->view.dtype) : in[i]->view.dtype;
        any = true;
    }
    last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i]) continue;
        const ct_arg *arg = ct__input_arg(op, i, &last);
        ct_dtype dtype = in[i]->view.dtype, wanted = arg->flags & CT_ARG_PROMOTE ? common : dtype;
        if ((arg->flags & CT_ARG_FLOAT) && !ct_dtype_is_float(wanted)) {
            if (!ct_dtype_is_int(wanted) && wanted != CT_BOOL)
                return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; there is no arithmetic on %s, cast it first",
                               arg->name, ct_view_text(&in[i]->view), ct_dtype_name(dtype));
            wanted = CT_F32;
        }
        if ((arg->flags & CT_ARG_INDEX) && dtype != CT_I32 && dtype != CT_I64)
            return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; indices are i32 or i64", arg->name,
                           ct_view_text(&in[i]->view));
        if ((arg->flags & CT_ARG_BOOL) && dtype != CT_BOOL)
            return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; it has to be bool", arg->name,
                           ct_view_text(&in[i]->view));
        if (wanted != dtype && !replace(&in[i], ct__cast_input(in[i], wanted))) return false;
    }
    return true;
}

/* Mixed precision. An f64 among the inputs says that the caller wants more precision, not less. What the op changes is
 * given as it is: the change of a copy would be lost. */
static bool autocast(const ct_op *op, ct_tensor **in, int n) {
    const ct_dtype to = op->flags & CT_OP_NARROW ? ct__autocast : CT_F32;
    int last = 0;
    for (int i = 0; i < n; i++)
        if (in[i] && in[i]->view.dtype == CT_F64) return true;
    for (int i = 0; i < n; i++) {
        if (!in[i] || in[i]->view.dtype == to || !ct__dtype_is_float(in[i]->view.dtype)) continue;
        if (ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED) continue;
        if (!replace(&in[i], ct__cast_input(in[i], to))) return false;
    }
    return true;
}

/* Names the two arguments that disagree about a dimension, counted from the last. */
static bool fail_broadcast(const ct_op *op, ct_tensor *const *in, int i, int d, int64_t expected) {
    int last = 0, first = 0;
    const char *names[2] = {"", ""};
    for (int j = 0; j <= i; j++) {
        const ct_arg *arg = ct__input_arg(op, j, &last);
        if (!in[j] || !(arg->flags & CT_ARG_BROADCAST)) continue;
        const ct_view *view = &in[j]->view;
        if (j == i) names[1] = arg->name;
        if (j < i && d < view->ndim && view->dims[view->ndim - 1 - d] == expected && !names[0][0]) {
            names[0] = arg->name;
            first = j;
        }
    }
    const ct_view *a = &in[first]->view, *b = &in[i]->view;
    return ct_fail(CT_ERR_SHAPE, op->name, "shapes do not broadcast: %s is %s, %s is %s (%lld vs %lld)", names[0],
                   ct_view_text(a), names[1], ct_view_text(b), (long long)expected,
                   (long long)b->dims[b->ndim - 1 - d]);
}

/* The common shape of those that broadcast. Numbers have any. */
static bool common_shape(const ct_op *op, ct_tensor *const *in, int n, uint32_t numbers, ct_dims *common) {
    int last = 0;
    common->n = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(ct__input_arg(op, i, &last)->flags & CT_ARG_BROADCAST) || is_among(numbers, i)) continue;
        for (; common->n < in[i]->view.ndim; common->n++) common->d[common->n] = 1;
    }
    last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(ct__input_arg(op, i, &last)->flags & CT_ARG_BROADCAST) || is_among(numbers, i)) continue;
        const ct_view *view = &in[i]->view;
        for (int d = 0; d < view->ndim; d++) {
            int64_t *a = &common->d[common->n - 1 - d], b = view->dims[view->ndim - 1 - d];
            if (*a != b && *a != 1 && b != 1) return fail_broadcast(op, in, i, d, *a);
            if (*a == 1) *a = b;
        }
    }
    return true;
}

static bool has_shape(const ct_tensor *x, int ndim, const int64_t *shape) {
    if (x->view.ndim != ndim) return false;
    for (int d = 0; d < ndim; d++)
        if (x->view.dims[d] != shape[d]) return false;
    return true;
}

static ct_dims shape_of(const ct_request *r) {
    ct_dims shape = {.n = r->ndim};
    ct__copy_dims(shape.d, r->shape, r->ndim);
    return shape;
}

/* Whether a view can be expanded to the shape of another. */
static bool expands_to(const ct_view *x, const ct_view *to) {
    const int missing = to->ndim - x->ndim;
    if (missing < 0) return false;
    for (int d = 0; d < x->ndim; d++)
        if (x->dims[d] != to->dims[d + missing] && x->dims[d] != 1) return false;
    return true;
}

/* The input whose shape is the common one, as nearly always one is; NULL: there is none. */
static const ct_view *widest(const ct_request *r) {
    const ct_view *found = NULL;
    int last = 0;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i] || !(ct__input_arg(r->op, i, &last)->flags & CT_ARG_BROADCAST) || is_among(r->numbers, i))
            continue;
        const ct_view *view = &r->in[i]->view;
        if (!found || expands_to(found, view)) found = view;
        else if (!expands_to(view, found)) return NULL;
    }
    return found;
}

/* An input with fewer elements becomes a view with strides of 0. Where it wants a gradient that is an op, whose gradient is the sum;
 * else the kernel is shown such a view, and no handle is made. The derivatives of the elementwise ops that we know need none either. */
static bool agree_shapes(ct_request *r, ct_dims *common) {
    const ct_op *op = r->op;
    const bool shown = (op->flags & CT_OP_ELEMENTWISE) && ct__op_is_builtin(op);
    const ct_view *whole = widest(r);
    int last = 0, room = CT__EXPANDED - count_of(r->numbers);
    if (!whole && !common_shape(op, r->in, r->n_in, r->numbers, common)) return false;
    r->ndim = whole ? whole->ndim : common->n;
    r->shape = whole ? whole->dims : common->d;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i] || !(ct__input_arg(op, i, &last)->flags & CT_ARG_BROADCAST) || is_among(r->numbers, i)) continue;
        if (has_shape(r->in[i], r->ndim, r->shape)) continue;
        const bool graph = ct__grad_mode && r->in[i]->node;
        if (shown && !graph && room-- > 0) {
            r->expanded |= 1u << i;
            continue;
        }
        open_scope(r);
        if (!replace(&r->in[i], ct_expand(r->in[i], shape_of(r)))) return false;
    }
    return true;
}

bool ct__expand_inputs(ct_request *r) {
    for (int i = 0; i < r->n_in; i++)
        if (is_among(r->expanded & ~r->numbers, i) && !replace(&r->in[i], ct_expand(r->in[i], shape_of(r))))
            return false;
    r->expanded &= r->numbers;
    return true;
}

/* Numbers stay numbers where the op is elementwise, has a tensor beside them, and room for their views. */
static bool takes_numbers(const ct_request *r) {
    return (r->op->flags & CT_OP_ELEMENTWISE) && r->op->infer && r->shape && count_of(r->numbers) <= CT__EXPANDED;
}

static bool numbers_to_tensors(ct_request *r) {
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i] && ct__is_number(r->in[i]) && !replace(&r->in[i], ct__number_tensor(r->in[i]))) return false;
    r->numbers = 0;
    return true;
}

CT__HOT bool ct__agree(ct_request *r, bool mixed, ct_dims *common) {
    if (mixed || (r->disagree & CT__DTYPES) || (r->numbers && !r->expanded)) open_scope(r);
    if (r->numbers && !r->expanded && !numbers_to_tensors(r)) return false;
    if (mixed && !autocast(r->op, r->in, r->n_in)) return false;
    if ((mixed || (r->disagree & CT__DTYPES)) && !agree_dtypes(r->op, r->in, r->n_in)) return false;
    return !(r->disagree & CT__SHAPES) || agree_shapes(r, common);
}

CT__HOT bool ct__check_inputs(ct_request *r, ct_tensor *const *inputs) {
    const ct_op *op = r->op;
    const ct_view *broadcast = NULL;
    ct_dtype promote = CT_DTYPE_COUNT;
    int last = 0;
    bool device_set = false;
    for (int i = 0; i < r->n_in; i++) {
        const ct_arg *arg = ct__input_arg(op, i, &last);
        ct_tensor *x = r->in[i] = inputs[i];
        if (!x) {
            /* While an error is pending, nobody knows whether it was left out or is what failed. */
            if ((arg->flags & CT_ARG_OPTIONAL) && !ct__pending()) continue;
            return ct__fail_null(op->name, arg->name);
        }
        if (!ct__valid(x, op->name, arg->name)) return false;
        /* of a list the op changes some, and knows which; memory that is not to be written is among none of them */
        if ((arg->flags & CT_ARG_MUTATED) && (!(arg->flags & CT_ARG_LIST) || (x->storage && x->storage->read_only)) &&
            !ct__writable(x, op->name, arg->name))
            return false;
        if (!x->storage) {
            if (!ct__is_number(x))
                return ct_fail(CT_ERR_STATE, op->name, "%s has a shape but no data: a vjp reads only what its op saves",
                               arg->name);
            r->numbers |= 1u << (i < 31 ? i : 31); /* as much as says that there are any */
            if (arg->flags & CT_ARG_PROMOTE) {
                if (promote == CT_DTYPE_COUNT) promote = x->view.dtype;
                if (promote != x->view.dtype) r->disagree |= CT__DTYPES;
            }
            continue;
        }
        if (x->base && x->changes != x->base->changes && !ct__view_refresh(x)) return false;
        if (!device_set) {
            r->device = x->storage->device;
            device_set = true;
        } else if (!ct__same_device(x->storage->device, r->device)) {
            return ct_fail(CT_ERR_DEVICE, op->name,
                           "%s is on %s and the arguments before it on %s; bring it over: ct_to", arg->name,
                           ct_device_text(x->storage->device), ct_device_text(r->device));
        }
        if (!(arg->flags & ~(unsigned)CT_ARG_OPTIONAL)) continue; /* nothing is asked of it */
        if (arg->flags & (CT_ARG_INDEX | CT_ARG_BOOL)) r->disagree |= CT__DTYPES;
        if ((arg->flags & CT_ARG_FLOAT) && !ct__dtype_is_float(x->view.dtype)) r->disagree |= CT__DTYPES;
        if (arg->flags & CT_ARG_PROMOTE) {
            if (promote == CT_DTYPE_COUNT) promote = x->view.dtype;
            if (promote != x->view.dtype) r->disagree |= CT__DTYPES;
        }
        if (arg->flags & CT_ARG_BROADCAST) {
            if (!broadcast) broadcast = &x->view;
            if (!ct__view_same_shape(broadcast, &x->view)) r->disagree |= CT__SHAPES;
        }
    }
    if (!r->numbers) return true;
    if (broadcast) { /* theirs, unless shapes have to be made to agree */
        r->ndim = broadcast->ndim;
        r->shape = broadcast->dims;
    }
    if (takes_numbers(r)) r->expanded = r->numbers;
    else r->disagree = CT__SHAPES | CT__DTYPES; /* ct__agree makes tensors of them */
    return true;
}

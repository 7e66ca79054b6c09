/* L-BFGS (Nocedal 1980): the direction from the last steps by the two-loop recursion, with steps of a fixed length or by a
 * line search for the strong Wolfe conditions (Nocedal and Wright, chapter 3). All parameters are seen as one flat vector. */
#include "optim/optim.h"
#include "optim/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct lbfgs {
    int64_t iterations;
    double length, curvature;        /* of the last step; s y / y y of the last pair */
    ct_tensor *direction, *previous; /* of the last step, and the gradient before it; kept */
    int count, capacity;
    ct_tensor **change, **step; /* pairs y, s, oldest first; kept */
    double *inverse;            /* 1 / s y of each */
};

PLACES(lbfgs, LBFGS)

void optim_lbfgs_free(lbfgs *h) {
    if (!h) return;
    for (int i = 0; i < h->count; i++) {
        ct_drop(h->change[i]);
        ct_drop(h->step[i]);
    }
    ct_drop(h->direction);
    ct_drop(h->previous);
    ct_free(h->change);
    ct_free(h->step);
    ct_free(h->inverse);
    ct_free(h);
}

static lbfgs *history_new(int capacity) {
    lbfgs *h = ct_calloc(1, sizeof *h);
    if (h) {
        h->capacity = capacity;
        h->curvature = 1;
        h->change = ct_calloc((size_t)capacity, sizeof *h->change);
        h->step = ct_calloc((size_t)capacity, sizeof *h->step);
        h->inverse = ct_calloc((size_t)capacity, sizeof *h->inverse);
        if (h->change && h->step && h->inverse) return h;
    }
    optim_lbfgs_free(h);
    ct_fail(CT_ERR_MEMORY, "lbfgs", "out of memory");
    return NULL;
}

/* ---- Vectors ---- */

static double dot(ct_tensor *a, ct_tensor *b) {
    double value = (double)NAN;
    ct_scope {
        value = ct_item(ct_sum(ct_mul(a, b)));
    }
    return value;
}

static double largest(ct_tensor *a) {
    double value = (double)NAN;
    ct_scope {
        value = ct_item(ct_amax(ct_abs(a)));
    }
    return value;
}

static ct_tensor *plus(ct_tensor *a, ct_tensor *b, double times) { return ct_add(a, ct_mul_s(b, times)); }

static ct_tensor *flat(ct_tensor *x) { return ct_reshape(x, CT_DIMS(ct_numel(x))); }

/* Values of the parameters, or their gradients, one behind the other. */
static ct_tensor *gather(ct_optim *o, bool gradients) {
    ct_tensor *all = NULL;
    ct_scope {
        for (int i = 0; i < o->count; i++) {
            ct_tensor *x = o->params[i].x, *g = gradients ? ct_grad_of(x) : x;
            o->items[i] = g ? flat(ct_detach(g)) : ct_zeros(CT_DIMS(ct_numel(x)), .dtype = ct_dtype_of(x));
        }
        all = ct_pass(ct_cat(o->items, o->count, 0));
    }
    return all;
}

/* All but those of frozen parameters, which the history may still want to move. */
static bool put_values(ct_optim *o, ct_tensor *values) {
    bool ok = values != NULL;
    int64_t start = 0;
    ct_scope {
        for (int i = 0; ok && i < o->count; i++) {
            ct_tensor *x = o->params[i].x;
            if (ct_requires_grad(x))
                ok = ct_assign(x, ct_reshape(ct_narrow(values, 0, start, ct_numel(x)), ct_shape(x))) != NULL;
            start += ct_numel(x);
        }
    }
    return ok;
}

/* ---- The loss along a direction ---- */

typedef struct search {
    ct_optim *o;
    ct_loss_fn fn;
    void *context;
    ct_tensor *start, *direction; /* flat; start is where the step began */
    int evaluations;
} search;

/* A place on the line: how far, the loss there, its slope, and the gradient. */
typedef struct point {
    double t, loss, slope;
    ct_tensor *gradient;
} point;

/* The loss and the gradient where the parameters are; the gradient in the current scope. */
static bool evaluate(search *s, double *loss, ct_tensor **gradient) {
    if (!ct_optim_zero_grad(s->o)) return false;
    *gradient = NULL;
    ct_scope {
        const bool before = ct_set_grad_enabled(true);
        ct_tensor *y = s->fn(s->context);
        if (!y && ct_ok()) ct_fail(CT_ERR_NULL, "optim_step_with", "fn gave no loss");
        if (y && ct_backward(y)) *loss = ct_item(y);
        ct_set_grad_enabled(before);
        if (ct_ok()) *gradient = ct_pass(gather(s->o, true));
    }
    s->evaluations++;
    return ct_ok() && *gradient;
}

static bool look(search *s, double t, point *p) {
    p->t = t;
    if (!put_values(s->o, plus(s->start, s->direction, t)) || !evaluate(s, &p->loss, &p->gradient)) return false;
    p->slope = dot(p->gradient, s->direction);
    return ct_ok();
}

/* The minimum of the cubic through two points with these slopes, within bounds. */
static double cubic(const point *a, const point *b, double low, double high) {
    const double d = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t);
    const double square = d * d - a->slope * b->slope;
    if (!(square >= 0)) return (low + high) / 2;
    const point *left = a->t <= b->t ? a : b, *right = left == a ? b : a;
    const double root = sqrt(square);
    const double t =
        right->t - (right->t - left->t) * ((right->slope + root - d) / (right->slope - left->slope + 2 * root));
    return fmin(fmax(t, low), high);
}

enum { MOST_POINTS = 25 };
static const double sufficient = 1e-4, flatter = 0.9;

/* From t on until two points enclose a minimum, then between them. */
static bool strong_wolfe(search *s, point begin, double t, double tolerance, point *found) {
    point before = begin, now, ends[2];
    const double reach = largest(s->direction);
    bool enclosed = false, stuck = false;
    int count = 0;
    if (!look(s, t, &now)) return false;
    while (count < MOST_POINTS) {
        const bool rises =
            now.loss > begin.loss + sufficient * now.t * begin.slope || (count > 1 && now.loss >= before.loss);
        if (!rises && fabs(now.slope) <= -flatter * begin.slope) {
            *found = now;
            return true;
        }
        if (rises || now.slope >= 0) {
            enclosed = true;
            break;
        }
        const double next = cubic(&before, &now, now.t + 0.01 * (now.t - before.t), now.t * 10);
        before = now;
        if (!look(s, next, &now)) return false;
        count++;
    }
    ends[0] = enclosed ? before : begin;
    ends[1] = now;
    int low = ends[0].loss <= ends[1].loss ? 0 : 1;
    bool done = false;
    while (!done && count < MOST_POINTS) {
        const double first = fmin(ends[0].t, ends[1].t), last = fmax(ends[0].t, ends[1].t);
        if ((last - first) * reach < tolerance) break;
        double next = cubic(&ends[0], &ends[1], first, last);
        const double margin = 0.1 * (last - first);
        /* near an end twice in a row: move inside */
        if (fmin(last - next, next - first) < margin) {
            if (stuck || next >= last || next <= first) {
                next = fabs(next - last) < fabs(next - first) ? last - margin : first + margin;
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        if (!look(s, next, &now)) return false;
        count++;
        if (now.loss > begin.loss + sufficient * now.t * begin.slope || now.loss >= ends[low].loss) {
            ends[1 - low] = now;
            low = ends[0].loss <= ends[1].loss ? 0 : 1;
        } else {
            if (fabs(now.slope) <= -flatter * begin.slope) done = true;
            else if (now.slope * (ends[1 - low].t - ends[low].t) >= 0) ends[1 - low] = ends[low];
            ends[low] = now;
        }
    }
    *found = ends[low];
    return true;
}

/* ---- The direction ---- */

static void replace(ct_tensor **slot, ct_tensor *x) {
    ct_tensor *before = *slot;
    *slot = ct_keep(x);
    ct_drop(before);
}

static bool remember(lbfgs *h, ct_tensor *gradient) {
    ct_tensor *y = ct_sub(gradient, h->previous), *s = ct_mul_s(h->direction, h->length);
    const double product = dot(y, s), square = dot(y, y);
    if (!ct_ok() || !(product > 1e-10)) return ct_ok();
    if (h->count == h->capacity) {
        ct_drop(h->change[0]);
        ct_drop(h->step[0]);
        h->count--;
        memmove(h->change, h->change + 1, (size_t)h->count * sizeof *h->change);
        memmove(h->step, h->step + 1, (size_t)h->count * sizeof *h->step);
        memmove(h->inverse, h->inverse + 1, (size_t)h->count * sizeof *h->inverse);
    }
    h->change[h->count] = ct_keep(y);
    h->step[h->count] = ct_keep(s);
    h->inverse[h->count++] = 1 / product;
    h->curvature = product / square;
    return true;
}

static ct_tensor *new_direction(const lbfgs *h, ct_tensor *gradient) {
    double *alpha = ct_malloc(((size_t)h->count + 1) * sizeof *alpha);
    if (!alpha) {
        ct_fail(CT_ERR_MEMORY, "lbfgs", "out of memory");
        return NULL;
    }
    ct_tensor *q = ct_neg(gradient);
    for (int i = h->count - 1; i >= 0; i--) {
        alpha[i] = dot(h->step[i], q) * h->inverse[i];
        q = plus(q, h->change[i], -alpha[i]);
    }
    q = ct_mul_s(q, h->curvature);
    for (int i = 0; i < h->count; i++) q = plus(q, h->step[i], alpha[i] - dot(h->change[i], q) * h->inverse[i]);
    ct_free(alpha);
    return q;
}

/* ---- A step ---- */

static bool check_params(const ct_optim *o) {
    if (o->count == 0) return ct_fail(CT_ERR_STATE, "lbfgs", "there are no parameters");
    for (int i = 0; i < o->count; i++) {
        const ct_dtype dtype = ct_dtype_of(o->params[i].x);
        if (dtype == ct_dtype_of(o->params[0].x) && !optim_half(dtype)) continue;
        return ct_fail(CT_ERR_DTYPE, "lbfgs", "%s is %s; all parameters have to be f32 or all f64", o->params[i].name,
                       ct_tensor_text(o->params[i].x));
    }
    return true;
}

/* One iteration: *stop when the step is over; *done counts iterations of this step. */
static bool iterate(search *s, lbfgs *h, double *loss, ct_tensor **gradient, int64_t done, bool *stop) {
    const double *setting = s->o->groups[0].s, change = setting[lbfgs_tolerance_change], lr = setting[lbfgs_lr];
    const bool last = done == (int64_t)setting[lbfgs_max_iter];
    const double before = *loss;
    h->iterations++;
    if (h->iterations > 1 && !remember(h, *gradient)) return false;
    ct_tensor *direction = h->iterations == 1 ? ct_neg(*gradient) : new_direction(h, *gradient);
    double t = lr;
    if (h->iterations == 1) t = fmin(1, 1 / ct_item(ct_sum(ct_abs(*gradient)))) * lr;
    const double slope = direction ? dot(*gradient, direction) : (double)NAN;
    if (!ct_ok()) return false;
    replace(&h->previous, *gradient);
    replace(&h->direction, direction);
    h->length = t;
    *stop = slope > -change;
    if (*stop) return true;
    s->start = gather(s->o, false);
    s->direction = direction;
    if (!s->start) return false;
    if (setting[lbfgs_strong_wolfe]) {
        point found;
        if (!strong_wolfe(s, (point){0, *loss, slope, *gradient}, t, 1e-9, &found)) return false;
        h->length = t = found.t;
        *loss = found.loss;
        *gradient = found.gradient;
        if (!put_values(s->o, plus(s->start, direction, t))) return false;
    } else {
        if (!put_values(s->o, plus(s->start, direction, t))) return false;
        if (!last && !evaluate(s, loss, gradient)) return false;
    }
    const double most = setting[lbfgs_max_eval] > 0 ? setting[lbfgs_max_eval] : floor(setting[lbfgs_max_iter] * 5 / 4);
    *stop = last || s->evaluations >= most || largest(*gradient) <= setting[lbfgs_tolerance_grad] ||
            largest(direction) * fabs(t) <= change || fabs(*loss - before) < change;
    return ct_ok();
}

/* After an error the parameters are as they were before the step. */
static void roll_back(ct_optim *o, ct_tensor *values) {
    optim_error pending;
    optim_error_take(&pending);
    put_values(o, values);
    optim_error_put(&pending);
}

double optim_lbfgs_step(ct_optim *o, ct_loss_fn fn, void *context) {
    double first = (double)NAN;
    if (!check_params(o) || !optim_collect(o, "optim_step_with")) return first;
    if (!o->history && !(o->history = history_new((int)o->groups[0].s[lbfgs_history_size]))) return first;
    search s = {.o = o, .fn = fn, .context = context};
    const bool before = ct_set_grad_enabled(false);
    ct_scope {
        ct_tensor *values = gather(o, false), *gradient = NULL;
        double loss = 0;
        bool ok = values && evaluate(&s, &loss, &gradient);
        if (ok) first = loss;
        bool stop = !ok || largest(gradient) <= o->groups[0].s[lbfgs_tolerance_grad];
        for (int64_t i = 1; ok && !stop; i++) {
            ct_scope {
                ok = iterate(&s, o->history, &loss, &gradient, i, &stop);
                gradient = ok ? ct_pass(gradient) : NULL;
            }
        }
        if (!ok) {
            roll_back(o, values);
            optim_lbfgs_free(o->history); /* it has seen steps that were taken back */
            o->history = NULL;
        }
    }
    ct_set_grad_enabled(before);
    if (!ct_ok()) return (double)NAN;
    o->steps++;
    return optim_forget(o) ? first : (double)NAN;
}

/* ---- State ---- */

static bool put_one(ct_state *state, const char *prefix, const char *what, int i, ct_tensor *x) {
    char number[32] = "";
    if (i >= 0) snprintf(number, sizeof number, ".%d", i);
    char *name = optim_name("optim_put_state", prefix, what, number);
    const bool ok = name && ct_state_put(state, name, x);
    ct_free(name);
    return ok;
}

bool optim_lbfgs_put(ct_optim *o, ct_state *state, const char *prefix) {
    const lbfgs *h = o->history;
    if (!h || !h->direction) return true;
    double *numbers = ct_malloc((4 + (size_t)h->count) * sizeof *numbers);
    char *name = optim_name("optim_put_state", prefix, "lbfgs", "");
    bool ok = numbers && name;
    if (!numbers) ct_fail(CT_ERR_MEMORY, "optim_put_state", "out of memory");
    if (ok) {
        const double head[] = {(double)h->iterations, h->length, h->curvature, (double)h->count};
        memcpy(numbers, head, sizeof head);
        for (int i = 0; i < h->count; i++) numbers[4 + i] = h->inverse[i];
        ok = ct_state_put_numbers(state, name, numbers, 4 + h->count);
    }
    ok = ok && put_one(state, prefix, "lbfgs.direction", -1, h->direction) &&
         put_one(state, prefix, "lbfgs.previous", -1, h->previous);
    for (int i = 0; ok && i < h->count; i++)
        ok = put_one(state, prefix, "lbfgs.change", i, h->change[i]) &&
             put_one(state, prefix, "lbfgs.step", i, h->step[i]);
    ct_free(name);
    ct_free(numbers);
    return ok;
}

static ct_tensor *take_one(const ct_state *state, const char *prefix, const char *what, int i, const ct_tensor *like) {
    const char *me = "optim_take_state";
    char number[32] = "";
    if (i >= 0) snprintf(number, sizeof number, ".%d", i);
    char *name = optim_name(me, prefix, what, number);
    ct_tensor *x = name ? optim_take_tensor(me, state, name, like, ct_dtype_of(like)) : NULL;
    ct_free(name);
    return x;
}

static bool take_history(ct_optim *o, const ct_state *state, const char *prefix, const double *numbers, lbfgs *h) {
    const int64_t count = (int64_t)numbers[3];
    bool ok = true;
    ct_scope {
        ct_no_grad {
            ct_tensor *like = gather(o, false);
            ok = like && (h->direction = take_one(state, prefix, "lbfgs.direction", -1, like)) &&
                 (h->previous = take_one(state, prefix, "lbfgs.previous", -1, like));
            for (int i = 0; ok && i < count; i++) {
                h->count = i + 1; /* what is NULL is not dropped */
                ok = (h->change[i] = take_one(state, prefix, "lbfgs.change", i, like)) &&
                     (h->step[i] = take_one(state, prefix, "lbfgs.step", i, like));
                h->inverse[i] = numbers[4 + i];
            }
        }
    }
    h->iterations = (int64_t)numbers[0];
    h->length = numbers[1];
    h->curvature = numbers[2];
    return ok;
}

bool optim_lbfgs_take(const ct_optim *o, const ct_state *state, const char *prefix, lbfgs **taken) {
    const char *me = "optim_take_state";
    const int capacity = (int)o->groups[0].s[lbfgs_history_size];
    *taken = NULL;
    char *name = optim_name(me, prefix, "lbfgs", "");
    if (!name) return false;
    ct_tensor *found = ct_state_get(state, name);
    if (!found) { /* before its first step */
        ct_free(name);
        return true;
    }
    const int64_t n = ct_numel(found);
    double *numbers = ct_malloc(((size_t)n + 4) * sizeof *numbers);
    if (!numbers) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    bool ok = numbers && n >= 4 && check_params(o) && ct_state_numbers(state, name, numbers, n);
    if (ok && !(numbers[3] == (double)(n - 4) && n - 4 <= capacity && numbers[0] >= 1 && numbers[0] < 0x1p53))
        ok = false;
    if (!ok && ct_ok())
        ct_fail(CT_ERR_VALUE, me, "%s is %s, which does not fit a history of %d", name, ct_tensor_text(found),
                capacity);
    ok = ok && (*taken = history_new(capacity)) && take_history((ct_optim *)o, state, prefix, numbers, *taken);
    if (!ok) {
        optim_lbfgs_free(*taken);
        *taken = NULL;
    }
    ct_free(numbers);
    ct_free(name);
    return ok;
}

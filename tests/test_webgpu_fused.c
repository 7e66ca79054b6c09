/* Fused calls on WebGPU: elementwise ops as steps in every kind of dtype, casts, dropout, operands that lie anyhow,
 * several results, steps along rows, training; and what must stay apart. Steps are rounded as calls of their own
 * are, and compilers are kept from joining them, so the bits are those of eager calls. */
#include <cotangent/capture.h>
#include <cotangent/fused.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph.h"
#include "tests/count_calls.h"
#include "tests/random_graph.h"
#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Looking at graphs ---- */

static int most_operands(const ct_graph *graph) {
    int most = 0;
    for (int i = 0; i < graph->n_records; i++) {
        const ct_call *call = &graph->records[i].call;
        if (graph->records[i].kind == CT__CALL && strcmp(call->op->name, "fused") == 0 &&
            call->n_in + call->n_out > most)
            most = call->n_in + call->n_out;
    }
    return most;
}

/* ---- The same function, captured and eager ---- */

enum { INPUTS_MOST = 20, RESULTS = 24 };
typedef struct work {
    ct_tensor *x[INPUTS_MOST];
    ct_tensor *y[RESULTS];   /* kept */
    const char *of[RESULTS]; /* ops, if they are known */
    int n, from, to;         /* from, to: ops of a table, of those functions that take some of them */
    ct_dtype dtype;
    int64_t length; /* of rows */
} work;

static void leave(work *w, ct_tensor *y) {
    if (y && w->n < RESULTS) w->y[w->n++] = ct_keep(y);
}

static void drop_results(work *w) {
    for (int i = 0; i < w->n; i++) ct_drop(w->y[i]);
    w->n = 0;
}

static void add_input(work *w, int i, ct_dims shape, ct_rng *rng) { w->x[i] = ct_randn(shape, .rng = rng); }

static work make_work(int n, ct_dims shape, uint64_t stream) {
    work w = {.n = 0};
    ct_rng *rng = ct_rng_new(11, stream);
    for (int i = 0; i < n; i++) add_input(&w, i, shape, rng);
    ct_rng_free(rng);
    return w;
}

/* Captured on some values and replayed on those of `eager`, twice; the graph, or NULL. */
static ct_graph *capture_and_compare(bool (*function)(void *), work *captured, work *eager, const char *what) {
    ct_graph *graph = ct_capture(function, captured, CT_CAPTURE_WARM);
    if (!harness_check(graph != NULL, __FILE__, __LINE__, "%s: %s", what, ct_error())) return NULL;
    for (int round = 0; round < 2; round++) {
        ct_no_grad {
            for (int i = 0; i < INPUTS_MOST; i++)
                if (captured->x[i]) CHECK(ct_assign(captured->x[i], ct_detach(eager->x[i])));
        }
        ct_seed(7 + (uint64_t)round);
        ct_scope {
            CHECK(function(eager));
        }
        ct_seed(7 + (uint64_t)round);
        harness_check(ct_replay(graph), __FILE__, __LINE__, "%s: %s", what, ct_error());
        CHECK(captured->n == eager->n);
        for (int i = 0; i < captured->n; i++)
            harness_check(same_tensor(captured->y[i], eager->y[i]), __FILE__, __LINE__,
                          "%s: result %d%s%s has other bits in round %d", what, i, captured->of[i] ? " of " : "",
                          captured->of[i] ? captured->of[i] : "", round);
        for (int i = 0; i < INPUTS_MOST; i++)
            if (captured->x[i])
                harness_check(same_tensor(ct_detach(captured->x[i]), ct_detach(eager->x[i])), __FILE__, __LINE__,
                              "%s: input %d has other bits in round %d", what, i, round);
    }
    drop_results(captured);
    drop_results(eager);
    return graph;
}

/* ---- Elementwise ops ---- */

enum { TOGETHER = 9, ATTRIBUTES = 256 };

static void set_attributes(const ct_op *op, char *attrs) {
    memset(attrs, 0, ATTRIBUTES);
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        void *at = attrs + attr->offset;
        if (attr->type == CT_ATTR_INT) *(int64_t *)at = 1;
        if (attr->type == CT_ATTR_DOUBLE) *(double *)at = 0.75;
        if (attr->type == CT_ATTR_OPT) *(ct_opt *)at = (ct_opt){.set = true, .value = 0.5};
        if (attr->type == CT_ATTR_ENUM) *(int *)at = attr->values[1] ? 1 : 0;
    }
}

/* NULL: it is no elementwise op, not for that dtype, or would cast it. Gradients are of the same words. */
static ct_tensor *apply(const ct_op *op, const work *w) {
    if (!(op->flags & CT_OP_ELEMENTWISE) || strstr(op->name, "_grad")) return NULL;
    if (w->dtype == CT_F32 && op->slot->index % 3) return NULL; /* its words are those of the op's own kernel */
    _Alignas(16) char attrs[ATTRIBUTES];
    ct_tensor *in[8] = {NULL}, *out = NULL;
    int n = 0;
    set_attributes(op, attrs);
    for (; op->inputs[n].name; n++) in[n] = op->inputs[n].flags & CT_ARG_BOOL ? w->x[0] : w->x[1 + n % 5];
    if (!ct_apply(op, in, n, attrs, &out, 1)) return NULL;
    return ct_dtype_is_float(ct_dtype_of(out)) == ct_dtype_is_float(w->dtype) || ct_dtype_of(out) == CT_BOOL ? out
                                                                                                             : NULL;
}

/* All of a dtype that read x[1] are one call, or as few as bindings allow. */
static bool apply_several(void *context) {
    work *w = context;
    drop_results(w);
    for (int i = w->from, n = 0; n < w->to; i++) {
        const ct_op *op = ct_op_at(i);
        ct_tensor *y = apply(op, w);
        if (!y) ct_error_clear();
        else w->of[n++] = op->name, leave(w, y);
    }
    return ct_ok();
}

static work inputs_of(ct_dtype dtype, uint64_t stream) {
    work w = make_work(6, CT_DIMS(3, 7, 5), stream);
    for (int i = 0; i < 6; i++) {
        ct_tensor *x = i ? ct_mul_s(w.x[i], dtype <= CT_BF16 ? 0.8 : 4) : w.x[i];
        w.x[i] = ct_cast(i ? x : ct_gt_s(x, 0), i ? dtype : CT_BOOL);
    }
    w.dtype = dtype;
    return w;
}

TEST_LIMIT(elementwise_ops_are_steps_with_the_bits_of_the_ops, 300) {
    WEBGPU(device);
    static const ct_dtype dtypes[] = {CT_F32, CT_I32, CT_I64, CT_BOOL};
    CHECK(ct_set_device(device));
    int steps = 0, fused = 0;
    for (int d = 0; d < 4; d++)
        for (int from = 0, next; from < ct_op_count(); from = next)
            ct_scope {
                work captured = inputs_of(dtypes[d], 1), eager = inputs_of(dtypes[d], 2);
                int n = 0;
                for (next = from; next < ct_op_count() && n < TOGETHER; next++) {
                    ct_no_grad {
                        n += apply(ct_op_at(next), &captured) != NULL;
                    }
                    ct_error_clear();
                }
                captured.from = eager.from = from, captured.to = eager.to = n;
                ct_graph *graph =
                    n ? capture_and_compare(apply_several, &captured, &eager, ct_dtype_name(dtypes[d])) : NULL;
                if (graph) steps += n, fused += count_calls(graph, "fused");
                ct_graph_free(graph);
            }
    printf("%d calls became %d\n", steps, fused);
    CHECK(fused > 0 && steps > 3 * fused);
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Shapes, layouts, dtypes ---- */

static bool mixed(void *context) { /* broadcasts, casts, reshapes, dropout */
    work *w = context;
    drop_results(w);
    ct_tensor *bias = ct_reshape(ct_slice(w->x[1], 0, 0, .stop = CT_SET(1)), CT_DIMS(40));
    ct_tensor *y = ct_gelu(ct_cast(ct_add(w->x[0], bias), CT_BF16));
    y = ct_dropout(ct_reshape(y, CT_DIMS(-1)), 0.25);
    leave(w, ct_add(ct_cast(ct_reshape(y, CT_DIMS(30, 40)), CT_F32), w->x[0]));
    return ct_ok();
}

static bool lying(void *context) { /* transposed, cut out, one value, a row, a column, backwards, not aligned */
    work *w = context;
    drop_results(w);
    ct_tensor *x = w->x[0], *turned = ct_t(ct_reshape(w->x[1], CT_DIMS(40, 30)));
    ct_tensor *column = ct_narrow(w->x[2], 1, 3, 1), *row = ct_narrow(w->x[2], 0, 3, 1);
    ct_tensor *cut = ct_narrow(ct_reshape(w->x[3], CT_DIMS(1200)), 0, 1, 1170); /* [39, 30], from element 1 on */
    leave(w, ct_mul(ct_add(ct_add(x, turned), column), ct_sub(row, ct_reshape(ct_narrow(column, 0, 0, 1), CT_DIMS0))));
    leave(w, ct_relu(ct_neg(ct_reshape(cut, CT_DIMS(39, 30)))));
    leave(w, ct_exp(ct_mul_s(ct_slice(w->x[1], 1, 0, .step = 3), 0.5)));
    return ct_ok();
}

static bool many_dtypes(void *context) { /* and results of each */
    work *w = context;
    drop_results(w);
    ct_tensor *x = w->x[0], *i = ct_cast(ct_mul_s(x, 300), CT_I32), *l = ct_cast(i, CT_I64);
    ct_tensor *mask = ct_logical_and(ct_gt(x, w->x[1]), ct_logical_not(ct_lt_s(i, -5)));
    leave(w, ct_mul(ct_add_s(l, 7), l));
    leave(w, ct_cast(ct_cast(i, CT_I8), CT_I16));
    leave(w, ct_add(ct_cast(i, CT_U8), ct_cast(mask, CT_U8)));
    leave(w, mask);
    leave(w, ct_where(mask, ct_cast(x, CT_F16), ct_cast(l, CT_F16)));
    leave(w, ct_cast(ct_cast(ct_mul_s(x, 3), CT_F8E4M3), CT_F32));
    leave(w, ct_cast(ct_cast(x, CT_BF16), CT_U32));
    leave(w, ct_add(ct_zeros_like(l), ct_cast(ct_full(CT_DIMS(30, 40), 2.5), CT_I64)));
    return ct_ok();
}

static bool dropped(void *context) { /* dropout, its gradient, and the position between them */
    work *w = context;
    ct_tensor *dx = NULL;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true);
    ct_tensor *y = ct_exp(ct_dropout(ct_mul_s(x, 0.5), 0.4)), *one = ct_ones_like(ct_detach(y));
    if (!ct_grad(&y, 1, &one, &x, 1, &dx, 0)) return false;
    leave(w, y);
    leave(w, dx);
    return ct_ok();
}

static bool dropped_before_a_product(void *context) { /* its gradient finds the position in memory */
    work *w = context;
    ct_tensor *dx = NULL;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true);
    ct_tensor *y = ct_matmul(ct_dropout(ct_mul_s(x, 0.5), 0.4), ct_reshape(w->x[1], CT_DIMS(40, 30)));
    ct_tensor *cotangent = ct_reshape(ct_narrow(ct_reshape(w->x[2], CT_DIMS(-1)), 0, 0, 900), CT_DIMS(30, 30));
    if (!ct_grad(&y, 1, &cotangent, &x, 1, &dx, 0)) return false;
    leave(w, y);
    leave(w, dx);
    return ct_ok();
}

static bool in_place(void *context) {
    work *w = context;
    drop_results(w);
    bool ok = ct_mul_(w->x[0], w->x[1]) && ct_add_(w->x[0], w->x[1]);
    leave(w, ct_exp(ct_mul_s(w->x[0], 0.1)));
    return ok;
}

static bool sharing_words(void *context) { /* results that share words of memory: nobody's neighbours are lost */
    work *w = context;
    drop_results(w);
    ct_tensor *x = ct_narrow(ct_reshape(w->x[0], CT_DIMS(1200)), 0, 0, 5),
              *all = ct_zeros(CT_DIMS(20), .dtype = CT_BF16);
    ct_tensor *y = ct_cast(ct_mul_s(x, 2), CT_BF16), *z = ct_cast(ct_add_s(x, 2), CT_BF16);
    bool ok = ct_assign(ct_narrow(all, 0, 0, 5), y) && ct_assign(ct_narrow(all, 0, 5, 5), z) &&
              ct_assign(ct_slice(all, 0, 11, .step = 2), y);
    leave(w, all);
    return ok;
}

TEST_LIMIT(operands_of_any_layout_and_dtype_are_taken, 300) {
    WEBGPU(device);
    static const struct {
        const char *name;
        bool (*function)(void *);
        int most; /* records; 0: any number of them. What lasts and what does not are not one call */
    } cases[] = {{"mixed", mixed, 1},
                 {"lying", lying, 4},
                 {"dtypes", many_dtypes, 3},
                 {"dropped", dropped, 1},
                 {"product", dropped_before_a_product, 4},
                 {"in place", in_place, 2},
                 {"sharing words", sharing_words, 0}};
    CHECK(ct_set_device(device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ct_scope {
            work captured = make_work(4, CT_DIMS(30, 40), 1), eager = make_work(4, CT_DIMS(30, 40), 2);
            ct_graph *graph = capture_and_compare(cases[i].function, &captured, &eager, cases[i].name);
            if (graph && cases[i].most)
                harness_check(graph->n_records <= cases[i].most && count_calls(graph, "fused") &&
                                  !count_calls(graph, "dropout_draw") && !count_calls(graph, "dropout_replay"),
                              __FILE__, __LINE__, "%s: %d records", cases[i].name, graph->n_records);
            ct_graph_free(graph);
        }
    CHECK(ct_set_device(cpu) && ct_ok());
}

static bool chained(void *context) {
    work *w = context;
    drop_results(w);
    leave(w, ct_add(ct_mul_s(ct_relu(ct_add(ct_mul(w->x[0], w->x[1]), w->x[0])), 0.5), w->x[1]));
    return ct_ok();
}

TEST_LIMIT(long_operands_are_read_ahead_to_their_last_element, 300) {
    setenv("CT_WEBGPU_AS_GPU", "1", 1);
    WEBGPU(device);
    CHECK(ct_set_device(device));
    ct_scope {
        const int64_t n = (1 << 20) + 4099; /* the last four are fewer, and not every invocation has twice four */
        work captured = make_work(2, CT_DIMS(n), 1), eager = make_work(2, CT_DIMS(n), 2);
        ct_graph *graph = capture_and_compare(chained, &captured, &eager, "long");
        CHECK(graph && graph->n_records == 1);
        ct_graph_free(graph);
    }
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Rows ---- */

static bool block(void *context) { /* bias, gelu, dropout, residual, norm, there and back */
    work *w = context;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true), *residual = w->x[1];
    ct_tensor *bias = ct_set_requires_grad(w->x[2], true), *weight = ct_set_requires_grad(w->x[3], true);
    ct_tensor *y = ct_add(ct_dropout(ct_gelu(ct_cast(ct_add(x, bias), w->dtype)), 0.1), ct_cast(residual, w->dtype));
    y = ct_layer_norm(y, CT_DIMS(w->length), .weight = weight, .bias = bias);
    ct_tensor *in[] = {x, bias, weight}, *grads[3], *cotangent = ct_cast(w->x[4], w->dtype);
    if (!ct_grad(&y, 1, &cotangent, in, 3, grads, 0)) return false;
    leave(w, y);
    for (int i = 0; i < 3; i++) leave(w, grads[i]);
    return ct_ok();
}

static bool attended(void *context) { /* softmax, log_softmax and rms_norm, there and back */
    work *w = context;
    drop_results(w);
    ct_tensor *x = ct_set_requires_grad(w->x[0], true), *dx = NULL, *cotangent = ct_cast(w->x[1], w->dtype);
    ct_tensor *y = ct_softmax(ct_mul_s(ct_cast(x, w->dtype), 2), -1);
    y = ct_mul(y, ct_log_softmax(ct_rms_norm(ct_add(y, ct_cast(x, w->dtype)), CT_DIMS(w->length)), -1));
    if (!ct_grad(&y, 1, &cotangent, &x, 1, &dx, 0)) return false;
    leave(w, y);
    leave(w, dx);
    return ct_ok();
}

static work rows_work(int64_t rows, int64_t n, ct_dtype dtype, uint64_t stream) {
    work w = make_work(5, CT_DIMS(rows, n), stream), vectors = make_work(4, CT_DIMS(n), stream + 7);
    w.x[2] = vectors.x[2], w.x[3] = vectors.x[3];
    w.dtype = dtype, w.length = n;
    return w;
}

TEST_LIMIT(norms_and_softmax_join_what_surrounds_them, 300) {
    WEBGPU(device);
    static const struct {
        bool (*function)(void *);
        int64_t rows, n;
        ct_dtype dtype;
    } cases[] = {{block, 37, 48, CT_F32},
                 {block, 5, 1088, CT_BF16},
                 {attended, 5, 1088, CT_BF16},
                 {attended, 11, 20, CT_F32},
                 {block, 9, 18, CT_F32}}; /* the last has no whole quads: it stays apart */
    CHECK(ct_set_device(device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ct_scope {
            work captured = rows_work(cases[i].rows, cases[i].n, cases[i].dtype, 1),
                 eager = rows_work(cases[i].rows, cases[i].n, cases[i].dtype, 2);
            ct_graph *graph = capture_and_compare(cases[i].function, &captured, &eager, "rows");
            const int apart = graph ? count_calls(graph, "row_norm") + count_calls(graph, "row_norm_grad") +
                                          count_calls(graph, "softmax") + count_calls(graph, "softmax_grad")
                                    : -1;
            harness_check(cases[i].n % 4 ? apart > 0 : apart == 0, __FILE__, __LINE__, "case %d: %d apart", (int)i,
                          apart);
            ct_graph_free(graph);
        }
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Limits ---- */

static bool of_many(void *context) { /* more operands than any device binds at once */
    work *w = context;
    drop_results(w);
    ct_tensor *sum = w->x[0];
    for (int i = 1; i < INPUTS_MOST; i++) sum = ct_tanh(ct_add(ct_mul(sum, w->x[i]), w->x[0]));
    leave(w, sum);
    return ct_ok();
}

TEST_LIMIT(a_call_takes_no_more_operands_than_the_device_binds, 300) {
    WEBGPU(device);
    CHECK(ct_set_device(device));
    ct_scope {
        work captured = make_work(INPUTS_MOST, CT_DIMS(50), 1), eager = make_work(INPUTS_MOST, CT_DIMS(50), 2);
        ct_graph *graph = capture_and_compare(of_many, &captured, &eager, "many");
        CHECK(graph && count_calls(graph, "fused") > 1 && most_operands(graph) > 4 && most_operands(graph) < 16);
        ct_graph_free(graph);
    }
    CHECK(ct_set_device(cpu) && ct_ok());
}

/* ---- Random graphs ---- */

TEST_LIMIT(random_graphs_with_fusion_have_the_bits_of_eager_calls, 600) {
    WEBGPU(device);
    const char *text = getenv("CT_TEST_GRAPHS");
    const int n = text ? atoi(text) : 16;
    for (int seed = 0; seed < n && !harness_failed(); seed++) {
        char passes[256];
        ct_graph_info info;
        random_passes((uint64_t)seed + 31, NULL, passes, sizeof passes);
        random_check((uint64_t)seed, OPS, seed % 2 ? passes : "", device, &info);
    }
}

/* ---- Training ---- */

enum { STEPS = 6 };
typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *target, *loss;
} training;

static bool step(void *context) {
    training *t = context;
    ct_tensor *loss = ct_cross_entropy_loss(ct_forward(t->net, t->x), t->target);
    return ct_assign(t->loss, ct_detach(loss)) && ct_backward(loss) && ct_optim_step(t->optim) &&
           ct_optim_zero_grad(t->optim);
}

static training make_training(ct_device device) {
    ct_seed(3);
    training t = {.net = ct_nn_sequential(ct_nn_linear(20, 32), ct_nn_layer_norm(32), ct_nn_gelu(), ct_nn_dropout(0.2),
                                          ct_nn_linear(32, 32), ct_nn_relu(), ct_nn_linear(32, 5))};
    ct_module_to_device(t.net, device);
    t.optim = ct_adamw(t.net, .lr = 1e-2);
    t.x = ct_keep(ct_to(ct_randn(CT_DIMS(24, 20)), device));
    t.target = ct_keep(ct_to(ct_randint(CT_DIMS(24), 0, 5), device));
    t.loss = ct_keep(ct_to(ct_zeros(CT_DIMS0), device));
    return t;
}

TEST_LIMIT(a_fused_training_step_goes_the_way_of_the_eager_one, 300) {
    WEBGPU(device);
    double losses[2][STEPS];
    for (int captured = 0; captured < 2; captured++) {
        training t = make_training(device);
        ct_seed(9);
        ct_graph *graph = captured ? ct_capture(step, &t, 0) : NULL; /* two steps */
        if (captured) harness_check(graph && count_calls(graph, "fused"), __FILE__, __LINE__, "%s", ct_error());
        else CHECK(step(&t) && step(&t));
        for (int k = 0; k < STEPS; k++) {
            CHECK(graph ? ct_replay(graph) : step(&t));
            losses[captured][k] = ct_item(t.loss);
        }
        ct_graph_free(graph);
        ct_optim_free(t.optim), ct_module_free(t.net);
        ct_drop(t.x), ct_drop(t.target), ct_drop(t.loss);
    }
    for (int k = 0; k < STEPS; k++) /* of steps that round alike, some units of the last place */
        CHECK_NEAR(losses[1][k], losses[0][k], 64 * 0x1p-24);
    CHECK(losses[1][STEPS - 1] < losses[1][0] && ct_ok());
}

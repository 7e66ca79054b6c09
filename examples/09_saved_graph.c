/* A network trained by one part of a program and used by another that knows nothing of it: the forward pass is captured, saved with its
 * weights, loaded and replayed. Half of the program could be another one, which links the library for that alone. */
#include <cotangent/graph.h>
#include <cotangent/nn.h>
#include <cotangent/train.h>
#include <math.h>
#include <stdio.h>

enum { POINTS = 64 };

/* ---- The one that trains ---- */

typedef struct model {
    ct_module *net;
    ct_tensor *x, *y; /* (POINTS,1) */
} model;

static ct_tensor *loss_of(void *net, ct_tensor *const *batch, int n, ct_tensor **extra) {
    (void)n, (void)extra;
    return ct_mse_loss(ct_forward(net, batch[0]), batch[1]);
}

static bool train(ct_module *net) {
    ct_optim *optim = ct_adamw(net, .lr = 1e-2);
    ct_train_step *step = ct_train_step_new(optim, loss_of, net); /* its steps are captured too */
    ct_tensor *x = ct_reshape(ct_linspace(-3, 3, POINTS), CT_DIMS(POINTS, 1)), *batch[] = {x, ct_sin(x)};
    bool ok = true;
    for (int i = 0; ok && i < 1500; i++) ok = ct_train_step_take(step, batch, 2, NULL, NULL);
    printf("%lld of 1500 steps were replays\n", (long long)ct_train_step_replays(step));
    ct_train_step_free(step);
    ct_optim_free(optim);
    return ok && ct_ok();
}

static bool forward(void *context) {
    model *m = context;
    bool ok = false;
    ct_no_grad {
        ok = ct_assign(m->y, ct_forward(m->net, m->x)) != NULL;
    }
    return ok;
}

static bool write_graph(const char *path) {
    model m = {.net = ct_nn_mlp(CT_DIMS(1, 32, 32, 1), CT_ACT_TANH),
               .x = ct_zeros(CT_DIMS(POINTS, 1)),
               .y = ct_zeros(CT_DIMS(POINTS, 1))};
    bool ok = train(m.net) && ct_eval(m.net);
    ct_graph *graph = ok ? ct_capture(forward, &m, CT_CAPTURE_SAVE) : NULL;
    ok = graph && ct_graph_name(graph, "x", m.x) && ct_graph_name(graph, "y", m.y) && ct_graph_save(path, graph);
    ct_graph_free(graph);
    ct_module_free(m.net);
    return ok;
}

/* ---- The one that uses it ---- */

static bool use_graph(const char *path) {
    float x[POINTS], y[POINTS], worst = 0;
    ct_graph *graph = ct_graph_load(path, (ct_device){0});
    for (int i = 0; i < POINTS; i++) x[i] = -2.9f + 5.8f * (float)i / (POINTS - 1);
    bool ok = graph && ct_write(ct_graph_tensor(graph, "x"), x, sizeof x) && ct_replay(graph) &&
              ct_read(ct_graph_tensor(graph, "y"), y, sizeof y);
    for (int i = 0; ok && i < POINTS; i++) worst = fmaxf(worst, fabsf(y[i] - sinf(x[i])));
    if (ok) printf("largest distance from the sine: %.3f\n", worst);
    ct_graph_free(graph);
    return ok;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "sine.graph";
    if (!write_graph(path) || !use_graph(path)) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() ? 0 : 1;
}

/* cotangent graph: a step of a recipe's training, captured, as a picture. */
#include "cli/graph.h"

#include "cli/cli.h"
#include "cli/train/learner.h"
#include "cli/train/options.h"

#include <string.h>

static void print_help(void) {
    printf("usage: cotangent graph RECIPE [OPTIONS]\n\n"
           "Captures one training step of a recipe and draws what a replay does: a box for each call of a kernel, with "
           "the shape\n"
           "of its result, and a line wherever one reads what another wrote. SVG, to be looked at in a browser, which "
           "shows\n"
           "kernels and memory where the mouse points; or DOT, for the tools of Graphviz.\n\n"
           "  --out FILE         where it goes (default: standard output)\n"
           "  --dot              DOT; also where FILE ends in .dot\n"
           "  --data PATH, --batch N, --set KEY=VALUE, --device D, --threads N\n"
           "                     as 'cotangent train' has them\n"
           "  --passes LIST      which passes improve the graph, as CT_PASSES says it: \"none\" draws what was "
           "recorded\n\n"
           "In green elementwise ops and several calls done as one, in orange what changes weights and other tensors "
           "that stay.\n");
}

typedef struct graph_options {
    const char *recipe, *out;
    ct_device device;
    bool dot;
} graph_options;

/* The parts of a training that a step needs. */
typedef struct drawn_step {
    recipe *recipe;
    learner learner;
    ct_loader *batches;
    ct_optim *optim;
    ct_scaler *scaler;
    ct_ema *ema;
    ct_tensor *x, *y, *loss; /* kept */
} drawn_step;

/* Loss and gradients of the items from `first` on, of all; *sum becomes the loss so far. */
static bool run_part(drawn_step *s, int64_t first, int64_t items, int64_t all, ct_tensor **sum) {
    learner *l = &s->learner;
    ct_tensor *x = items == all ? s->x : ct_narrow(s->x, 0, first, items),
              *y = items == all ? s->y : ct_narrow(s->y, 0, first, items);
    ct_tensor *outputs = learner_forward(l, x), *loss = learner_loss(l, outputs, learner_target(l, y));
    if (loss && items != all) loss = ct_mul_s(loss, (double)items / (double)all);
    if (!loss || !ct_backward(s->scaler ? ct_scaler_scale(s->scaler, loss) : loss)) return false;
    ct_no_grad {
        *sum = *sum ? ct_add(*sum, ct_detach(loss)) : ct_detach(loss);
    }
    return ct_ok();
}

static bool step(void *context) {
    drawn_step *s = context;
    const int64_t all = ct_dim(s->x, 0), wanted = s->recipe->accumulate,
                  parts = wanted > all ? all
                          : wanted > 1 ? wanted
                                       : 1;
    ct_tensor *loss = NULL;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t first = all * i / parts;
        if (!run_part(s, first, all * (i + 1) / parts - first, all, &loss)) return false;
    }
    if (!ct_assign(s->loss, loss)) return false;
    if (s->scaler && !ct_scaler_unscale(s->scaler, s->optim)) return false;
    if (s->recipe->clip_norm > 0 && !ct_optim_clip_grad_norm_tensor(s->optim, s->recipe->clip_norm)) return false;
    if (!(s->scaler ? ct_scaler_step(s->scaler, s->optim) && ct_scaler_update(s->scaler) : ct_optim_step(s->optim)))
        return false;
    return (!s->ema || ct_ema_update(s->ema)) && ct_optim_zero_grad(s->optim);
}

static bool take_batch(drawn_step *s) {
    const recipe *r = s->recipe;
    ct_batch b;
    s->batches = ct_batches(s->learner.train, r->batch, .seed = (uint64_t)r->seed, .threads = CT_SET(0),
                            .device = s->learner.device);
    if (!s->batches || !ct_next(s->batches, &b)) return false;
    ct_scope {
        s->x = ct_keep(b.x);
        s->y = ct_keep(b.y);
        s->loss = ct_keep(ct_to(ct_zeros(CT_DIMS0), ct_device_of(b.x)));
    }
    return s->loss != NULL;
}

static bool make_step(drawn_step *s, const graph_options *o, const option_sets *sets) {
    s->recipe = recipe_open(o->recipe, sets->at.at, sets->at.n);
    learner *l = &s->learner;
    l->recipe = s->recipe;
    if (!s->recipe || !learner_open_data(l) || !learner_measure(l) || !learner_build(l) || !learner_freeze(l) ||
        !learner_to_device(l, o->device) || !learner_train_mode(l) || !take_batch(s))
        return false;
    const recipe *r = s->recipe;
    s->optim = ct_optim_build(r->optimizer.info, l->net, r->optimizer.values);
    if (!s->optim) return recipe_fail_at(r->optimizer.node, "optimizer");
    for (int i = 0; i < r->group_count; i++)
        if (!ct_optim_group_p(s->optim, r->groups[i].pattern, &r->groups[i].options))
            return recipe_fail_at(r->groups[i].node, "groups");
    if (r->precision == CT_F16 && !(s->scaler = ct_scaler_new(0))) return false;
    return !(r->ema > 0) || (s->ema = ct_ema_new(l->net, .decay = CT_SET(r->ema), .warmup = true));
}

static void free_step(drawn_step *s) {
    ct_drop(s->x), ct_drop(s->y), ct_drop(s->loss);
    ct_ema_free(s->ema);
    ct_scaler_free(s->scaler);
    ct_optim_free(s->optim);
    ct_loader_free(s->batches);
    learner_close(&s->learner);
    recipe_free(s->recipe);
}

static bool write_drawing(const graph_options *o, const buffer *b) {
    if (o->out) return file_write(o->out, b->at, b->n, false);
    return (fwrite(b->at, 1, b->n, stdout) == b->n && fflush(stdout) == 0) ||
           ct_fail(CT_ERR_IO, NULL, "standard output cannot be written");
}

static int draw(const graph_options *o, const option_sets *sets) {
    drawn_step s = {0};
    buffer b = {0};
    bool ok = make_step(&s, o, sets);
    const unsigned flags = (ok && s.recipe->recompute ? CT_CAPTURE_RECOMPUTE : 0) |
                           (ok && s.recipe->channels_last ? CT_CAPTURE_LAYOUT : 0);
    ct_graph *graph = ok ? ct_capture(step, &s, flags) : NULL;
    ok = graph && (o->dot ? graph_draw_dot : graph_draw_svg)(graph, s.recipe->name, &b) && write_drawing(o, &b);
    ct_graph_free(graph);
    buffer_free(&b);
    free_step(&s);
    return ok ? CLI_DONE : option_failed(CLI_FAILED);
}

static bool ends_in(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const struct {
    const char *option, *key;
} shorthands[] = {{"--data", "data.path"}, {"--batch", "batch"}, {"--set", NULL}};

/* 1: argv[*i] is one of the shorthands, and taken; 0: it is not; -1: it is wrong, and that was said. */
static int take_shorthand(int argc, char **argv, int *i, option_sets *sets) {
    const char *value = NULL;
    for (size_t k = 0; k < sizeof shorthands / sizeof *shorthands; k++) {
        if (!option_value(argc, argv, i, shorthands[k].option, &value)) continue;
        if (!value) return option_lacks(shorthands[k].option), -1;
        return option_set(sets, shorthands[k].key, value) ? 1 : (option_failed(0), -1);
    }
    return 0;
}

static int parse(int argc, char **argv, graph_options *o, option_sets *sets) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        const int taken = take_shorthand(argc, argv, &i, sets);
        if (taken < 0) return CLI_USAGE;
        if (taken) continue;
        if (option_value(argc, argv, &i, "--out", &o->out)) {
            if (!o->out || !*o->out) return option_lacks("--out");
        } else if (option_value(argc, argv, &i, "--device", &value)) {
            if (!value) return option_lacks("--device");
            if (!option_device(value, &o->device)) return CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--threads", &value)) {
            if (!value) return option_lacks("--threads");
            if (!option_threads(value)) return CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--passes", &value)) {
            if (!value) return option_lacks("--passes");
            if (!ct_capture_passes(value)) return option_failed(CLI_USAGE);
        } else if (strcmp(word, "--dot") == 0) o->dot = true;
        else if (word[0] == '-')
            return option_unknown("graph", word, "--out --dot --data --batch --set --device --threads --passes --help");
        else if (o->recipe) {
            fprintf(stderr, "error: one recipe at a time, not '%s' and '%s'\n", o->recipe, word);
            return CLI_USAGE;
        } else o->recipe = word;
    }
    if (!o->recipe) {
        fprintf(stderr, "error: 'cotangent graph' needs a recipe; 'cotangent train --list' lists those that ship\n");
        return CLI_USAGE;
    }
    o->dot |= o->out && ends_in(o->out, ".dot");
    return CLI_DONE;
}

int cli_graph(int argc, char **argv) {
    graph_options options = {0};
    option_sets sets = {0};
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    int status = parse(argc, argv, &options, &sets);
    if (status == CLI_DONE) status = draw(&options, &sets);
    option_sets_free(&sets);
    return status;
}

/* Every allocation fails once while networks are built, copied, converted, stored and run: an error or success, no crash, no
 * leak. */
#include <cotangent/nn.h>
#include <string.h>

#include "tests/fail_everywhere.h"

static ct_module *build_layers(void) {
    return ct_nn_sequential(
        ct_nn_conv2d(2, 4, 3, .pad = 1), ct_nn_relu(), ct_nn_batch_norm(4), ct_nn_separable_conv2d(4, 4, 3, .pad = 1),
        ct_nn_residual(ct_nn_deform_conv2d(4, 4, 3, .pad = 1, .modulated = true), ct_nn_conv2d(4, 4, 1), CT_ACT_RELU),
        ct_nn_adaptive_avg_pool2d(2), ct_nn_flatten(), ct_nn_linear(16, 8), ct_nn_dropout(0.1), ct_nn_linear(8, 3));
}

static ct_module *build_gpt(void) {
    return ct_nn_gpt(7, .context = 4, .dim = 6, .heads = 2, .layers = 1, .dropout = 0.1, .tied = true);
}

/* Everything that is done to networks; false when something failed. */
static bool use(ct_module *net, ct_tensor *x, bool convert) {
    bool ok = false;
    ct_module *copy = NULL;
    ct_state *state = NULL;
    ct_scope {
        if (!net || !x) break;
        ok = ct_backward(ct_mean(ct_forward(net, x))) && ct_module_zero_grad(net);
        copy = ok ? ct_module_copy(net) : NULL;
        state = copy ? ct_state_new() : NULL;
        ok = state && ct_module_put_state(net, state, "net.") && ct_module_take_state(copy, state, "net.") &&
             ct_module_freeze(copy, true) && ct_eval(copy) && ct_module_freeze(copy, false);
        ct_no_grad {
            ok = ok && ct_forward(copy, x);
        }
        ok = ok && (!convert || ct_module_to_dtype(copy, CT_F64));
    }
    ct_state_free(state);
    ct_module_free(copy);
    ct_module_free(net);
    return ok;
}

static bool use_layers(void) {
    ct_scope {
        return use(build_layers(), ct_ones(CT_DIMS(2, 2, 5, 5)), true);
    }
    return false;
}

static bool use_gpt(void) {
    ct_scope {
        return use(build_gpt(), ct_zeros(CT_DIMS(2, 3), .dtype = CT_I64), true);
    }
    return false;
}

TEST_LIMIT(layers_survive_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(use_layers) > 100); }
TEST_LIMIT(a_model_survives_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(use_gpt) > 100); }

/* ---- Each layer of the table, with its required arguments ---- */

static const ct_layer_info *layer;
static bool make_layer(void) {
    static const struct {
        const char *name, *text;
    } values[] = {{"p", "0.5"},    {"groups", "2"}, {"shape", "2,2"}, {"axes", "1,0"},
                  {"pads", "1,1"}, {"heads", "2"},  {"slope", "0.5"}};
    ct_named_text given[8];
    int n = 0;
    const ct_attr *a;
    for (int i = 0; (a = ct_layer_argument(layer, i)); i++) {
        if (!a->required) continue;
        given[n] = (ct_named_text){a->name, "4"};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            if (strcmp(values[k].name, a->name) == 0) given[n].text = values[k].text;
        n++;
    }
    ct_module *module = ct_layer_build(layer, given, n);
    const bool ok = module != NULL;
    ct_module_free(module);
    return ok;
}
TEST_LIMIT(every_layer_survives_the_failure_of_any_allocation, 600) {
    for (int i = 0; (layer = ct_layer_at(i)); i++) CHECK(fail_everywhere(layer->name, make_layer) >= 2);
}

/* ---- Containers, lists, names, texts, caches ---- */

static int released;
static ct_tensor *same(void *context, ct_tensor *x) {
    (void)context;
    return x;
}
static void release(void *context) {
    (void)context;
    released++;
}
static bool visit(void *context, const char *path, ct_module *module) {
    (void)path, (void)module;
    return ++*(int *)context > 0;
}

static bool use_tree(void) {
    const int before = released;
    ct_module *net = ct_nn_sequential(ct_nn_embedding(5, 4), ct_nn_lambda("same", same, NULL, release),
                                      ct_nn_linear(4, 5, .no_bias = true));
    ct_parameters *list = NULL;
    ct_state *state = NULL;
    ct_load_report *report = NULL;
    char text[512];
    int visited = 0;
    bool ok = net && ct_nn_append(net, ct_nn_identity()) && ct_module_tie(net, "2.weight", "0.weight") &&
              (list = ct_module_parameters(net)) && ct_module_to_string(net, text, sizeof text) > 0 && ct_ok() &&
              ct_module_apply(net, visit, &visited) && (state = ct_state_new()) &&
              ct_module_put_state(net, state, "a.") &&
              ct_module_take_state(net, state, "", .lenient = true, .report = &report,
                                   .renames = (ct_rename[]){{"a.*", "*"}}, .rename_count = 1) &&
              ct_load_report_to_string(report, text, sizeof text) > 0;
    ct_load_report_free(report);
    ct_state_free(state);
    ct_parameters_free(list);
    ct_module_free(net);
    /* the function's context is given back exactly once, whatever happens */
    return CHECK(released == before + 1), ok;
}

static bool use_cache(void) {
    ct_module *gpt = build_gpt();
    ct_nn_cache *cache = gpt ? ct_nn_cache_new(gpt, 4) : NULL;
    bool ok = cache && ct_eval(gpt);
    ct_scope {
        ct_tensor *tokens = ct_zeros(CT_DIMS(1, 2), .dtype = CT_I64);
        ok = ok && tokens && ct_forward_cached(cache, tokens) && ct_forward_cached(cache, tokens);
    }
    ct_nn_cache_free(cache);
    ct_module_free(gpt);
    return ok;
}

static bool use_models(void) {
    ct_module *nets[] = {ct_nn_lstm_lm(5, .dim = 4, .hidden = 4, .layers = 1), ct_nn_unet(1, 2, .channels = 1),
                         ct_nn_mlp(CT_DIMS(3, 4, 2), CT_ACT_NONE),
                         ct_nn_vit(.image = 4, .patch = 2, .dim = 4, .layers = 1, .heads = 2)};
    bool ok = true;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        ok = ok && nets[i];
        ct_module_free(nets[i]);
    }
    return ok && ct_ok();
}

TEST_LIMIT(trees_of_modules_survive_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(use_tree) > 50); }
TEST_LIMIT(caches_survive_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(use_cache) > 100); }
TEST_LIMIT(models_survive_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(use_models) > 100); }

/* The table of layers: every one of them is made from it, with each of its arguments, and is what C makes. */
#include <cotangent/nn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

/* A value that fits wherever an argument has that name. */
static const ct_named_text usual[] = {
    {"in", "4"},
    {"out", "6"},
    {"kernel", "3"},
    {"channels", "4"},
    {"features", "4"},
    {"groups", "2"},
    {"count", "4"},
    {"dim", "4"},
    {"hidden", "5"},
    {"heads", "2"},
    {"layers", "1"},
    {"p", "0.5"},
    {"output", "2"},
    {"slope", "0.1"},
    {"alpha", "0.5"},
    {"beta", "1"},
    {"threshold", "0.25"},
    {"value", "0.5"},
    {"axis", "1"},
    {"scale", "2"},
    {"factor", "2"},
    {"start", "1"},
    {"end", "2"},
    {"shape", "2,2"},
    {"axes", "0,1,3,2"},
    {"pads", "1,1"},
    {"neighbors", "3"},
    {"kernels", "3"},
    {"stride", "2"},
    {"strides", "2"},
    {"dilation", "2"},
    {"dilations", "2"},
    {"pad", "1"},
    {"pad_mode", "same"},
    {"border", "reflect"},
    {"multiplier", "2"},
    {"offset_groups", "2"},
    {"output_padding", "1"},
    {"output_paddings", "1"},
    {"activation", "relu"},
    {"divisor_override", "3"},
    {"eps", "0.001"},
    {"momentum", "0.2"},
    {"k", "2"},
    {"padding_idx", "1"},
    {"std", "0.5"},
    {"dropout", "0.25"},
    {"kv_heads", "1"},
    {"key_dim", "8"},
    {"value_dim", "8"},
    {"feedforward", "7"},
    {"output_size", "8,8"},
    {"mode", NULL},
};

static const char *value_of(const ct_layer_info *info, const ct_attr *a) {
    if (strcmp(a->name, "shape") == 0 && strstr(info->name, "norm")) return "4";
    if (a->type == CT_ATTR_BOOL) return "true";
    if (a->type == CT_ATTR_ENUM && strcmp(a->name, "mode") == 0) return a->values[0];
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i].name, a->name) == 0) return usual[i].text;
    return NULL;
}

static int required_of(const ct_layer_info *info, ct_named_text *given) {
    const ct_attr *a;
    int n = 0;
    for (int i = 0; (a = ct_layer_argument(info, i)); i++)
        if (a->required) given[n++] = (ct_named_text){a->name, value_of(info, a)};
    return n;
}

/* What an option needs beside it to be legal. */
static int beside(const char *option, ct_named_text *given) {
    if (strcmp(option, "output_padding") == 0 || strcmp(option, "output_paddings") == 0)
        return given[0] = (ct_named_text){"stride", "2"}, 1;
    return 0;
}

TEST(every_layer_is_made_from_the_table_with_each_of_its_arguments) {
    const ct_layer_info *info;
    int layers = 0, options = 0;
    for (; (info = ct_layer_at(layers)); layers++) {
        CHECK(ct_layer_find(info->name) == info && info->doc[0]);
        ct_named_text given[16];
        const int n = required_of(info, given);
        ct_module *module = ct_layer_build(info, given, n);
        harness_check(module != NULL, __FILE__, __LINE__, "%s: %s", info->name, ct_error());
        ct_error_clear();
        ct_module_free(module);
        for (int i = 0; i < n; i++) { /* none of these may be missing */
            ct_named_text fewer[16];
            for (int k = 0; k < n - 1; k++) fewer[k] = given[k < i ? k : k + 1];
            CHECK(!ct_layer_build(info, fewer, n - 1));
            char text[128];
            snprintf(text, sizeof text, "nn_%s: %s has to be given", info->name, given[i].name);
            CHECK_ERROR(CT_ERR_VALUE, text);
        }
        const ct_attr *a;
        for (int i = 0; (a = ct_layer_argument(info, i)); i++) {
            if (a->required) continue;
            given[n] = (ct_named_text){a->name, value_of(info, a)};
            if (!harness_check(given[n].text != NULL, __FILE__, __LINE__, "no value for %s", a->name)) continue;
            const int more = n + 1 + beside(a->name, given + n + 1);
            module = ct_layer_build(info, given, more);
            harness_check(module != NULL, __FILE__, __LINE__, "%s, %s=%s: %s", info->name, a->name, given[n].text,
                          ct_error());
            ct_error_clear();
            ct_module_free(module);
            options++;
        }
    }
    CHECK(layers > 80 && options > 200);
    CHECK(!ct_layer_at(-1) && !ct_layer_find("nothing") && !ct_layer_find(NULL) && !ct_layer_argument(NULL, 0));
}

static bool alike(ct_module *a, ct_module *b) {
    char one[2048], two[2048];
    const bool same = a && b && ct_module_to_string(a, one, sizeof one) == ct_module_to_string(b, two, sizeof two) &&
                      strcmp(one, two) == 0;
    if (!same && a && b) printf("%s%s", one, two);
    ct_module_free(a);
    ct_module_free(b);
    return same;
}
#define BUILD(name, ...)                                                \
    ct_layer_build(ct_layer_find(name), (ct_named_text[]){__VA_ARGS__}, \
                   (int)(sizeof((ct_named_text[]){__VA_ARGS__}) / sizeof(ct_named_text)))

TEST(a_layer_from_the_table_is_the_one_that_c_makes) {
    CHECK(alike(BUILD("conv2d", {"in", "4"}, {"out", "6"}, {"kernel", "3"}, {"strides", "2,1"}, {"pads", "1,2"},
                      {"groups", "2"}, {"no_bias", "true"}, {"activation", "gelu"}),
                ct_nn_conv2d(4, 6, 3, .strides = CT_DIMS(2, 1), .pads = CT_DIMS(1, 2), .groups = 2, .no_bias = true,
                             .activation = CT_ACT_GELU)));
    CHECK(
        alike(BUILD("lstm", {"in", "3"}, {"hidden", "5"}, {"layers", "2"}, {"bidirectional", "1"}, {"dropout", "0.5"}),
              ct_nn_lstm(3, 5, .layers = 2, .bidirectional = true, .dropout = 0.5)));
    CHECK(alike(BUILD("batch_norm", {"channels", "3"}, {"momentum", "0"}, {"eps", "1e-3"}),
                ct_nn_batch_norm(3, .momentum = CT_SET(0), .eps = CT_SET(1e-3))));
    CHECK(alike(BUILD("unflatten", {"axis", "1"}, {"shape", "2,-1"}), ct_nn_unflatten(1, CT_DIMS(2, -1))));
    CHECK(alike(BUILD("transformer_encoder", {"layers", "2"}, {"dim", "4"}, {"heads", "2"}, {"final_norm", "true"}),
                ct_nn_transformer_encoder(2, 4, 2, .final_norm = true)));
    ct_scope { /* and computes what that one does */
        ct_module *glu = BUILD("softmax", {"axis", "0"});
        CHECK(fabs(ct_item(ct_sum(ct_forward(glu, ct_ones(CT_DIMS(3, 2))))) - 2) < 1e-6);
        ct_module_free(glu);
    }
}

TEST(arguments_that_are_not_right_are_named) {
    CHECK(!BUILD("conv2d", {"in", "4"}, {"out", "6"}, {"kernel", "three"}));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv2d: kernel = \"three\" is not an integer");
    CHECK(!BUILD("conv2d", {"in", "4"}, {"out", "6"}, {"kernel", "3"}, {"multiplier", "2"}));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv2d: has no argument named multiplier");
    CHECK(!BUILD("linear", {"in", "4"}, {"out", "6"}, {"activation", "loud"}));
    CHECK_ERROR(CT_ERR_VALUE, "nn_linear: activation = \"loud\" is not one of its named values");
    CHECK(!BUILD("linear", {"in", "4"}, {"out", NULL}));
    CHECK_ERROR(CT_ERR_NULL, "attrs_set: argument text is NULL");
    CHECK(!BUILD("linear", {NULL, "4"}));
    CHECK_ERROR(CT_ERR_VALUE, "nn_linear: has no argument named NULL");
    CHECK(!ct_layer_build(NULL, NULL, 0));
    CHECK_ERROR(CT_ERR_NULL, "layer_build: argument info is NULL");
    const ct_layer_info other = {"linear", ""};
    CHECK(!ct_layer_build(&other, NULL, 0));
    CHECK_ERROR(CT_ERR_VALUE, "layer_build: argument info is not one of the table's");
}

/* Activations, from the table activation.def, and the family of dropout. */
#include "nn/module.h"

typedef struct numbers {
    double a, b;
} numbers;

static ct_module *make(const ct_module_class *type, double a, double b) {
    if (!ct_ok()) return NULL;
    ct_module *module = ct_module_new(type);
    if (module && type->state) *(numbers *)ct_module_data(module) = (numbers){a, b};
    return module;
}

static void describe_one(const ct_module *self, char *text, size_t capacity) {
    const numbers *n = ct_module_data(self);
    ct__write(&(ct__writer){text, capacity, 0}, "%g", n->a);
}

static void describe_two(const ct_module *self, char *text, size_t capacity) {
    const numbers *n = ct_module_data(self);
    ct__write(&(ct__writer){text, capacity, 0}, "%g, %g", n->a, n->b);
}

#define FORWARD(id, expression)                                      \
    static ct_tensor *id##_forward(ct_module *self, ct_tensor *x) {  \
        const double a = ((const numbers *)ct_module_data(self))->a; \
        const double b = ((const numbers *)ct_module_data(self))->b; \
        (void)a, (void)b;                                            \
        return expression;                                           \
    }
#define PLAIN(id, fused, expression)                                                                 \
    static ct_tensor *id##_forward(ct_module *self, ct_tensor *x) {                                  \
        (void)self;                                                                                  \
        return expression;                                                                           \
    }                                                                                                \
    static const ct_module_class id##_class = {                                                      \
        .size = sizeof(ct_module_class), .name = #id, .forward = id##_forward, .activation = fused}; \
    ct_module *ct_nn_##id(void) { return make(&id##_class, 0, 0); }
#define ONE(id, type, argument, expression)                                     \
    FORWARD(id, expression)                                                     \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = #id,                     \
                                               .state = sizeof(numbers),        \
                                               .forward = id##_forward,         \
                                               .describe = describe_one};       \
    ct_module *ct_nn_##id(type argument) { return make(&id##_class, (double)argument, 0); }
#define TWO(id, first, second, expression)                                      \
    FORWARD(id, expression)                                                     \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = #id,                     \
                                               .state = sizeof(numbers),        \
                                               .forward = id##_forward,         \
                                               .describe = describe_two};       \
    ct_module *ct_nn_##id(double first, double second) { return make(&id##_class, first, second); }
#include "nn/layers/activation.def"
#undef PLAIN
#undef ONE
#undef TWO

ct_module *ct_nn_activation(ct_activation activation) {
    switch (activation) {
    case CT_ACT_NONE: return ct_nn_identity();
#define PLAIN(id, fused, expression) \
    if (fused != CT_ACT_NONE && fused == activation) return ct_nn_##id();
#define ONE(id, type, argument, expression)
#define TWO(id, first, second, expression)
    default:
#include "nn/layers/activation.def"
        break;
    }
    ct__is_activation("nn_activation", activation);
    return NULL;
}

/* ---- Dropout: a is p, b whether channels come last ---- */

FORWARD(dropout, ct_dropout(x, a, .eval = !ct_module_training(self)))
FORWARD(dropout2d, ct_dropout2d(x, a, .eval = !ct_module_training(self), .channels_last = b != 0))
FORWARD(dropout3d, ct_dropout3d(x, a, .eval = !ct_module_training(self), .channels_last = b != 0))
FORWARD(alpha_dropout, ct_alpha_dropout(x, a, .eval = !ct_module_training(self)))
FORWARD(stochastic_depth, ct_stochastic_depth(x, a, .eval = !ct_module_training(self)))

static ct_module *make_dropout(const ct_module_class *type, const char *function, double p, bool channels_last) {
    if (ct_ok() && !(p >= 0 && p <= 1)) ct_fail(CT_ERR_VALUE, function, "p is %g, expected 0 to 1", p);
    return make(type, p, channels_last);
}

#define DROPOUT(id, parameters, last)                                           \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = #id,                     \
                                               .state = sizeof(numbers),        \
                                               .forward = id##_forward,         \
                                               .describe = describe_one};       \
    ct_module *ct_nn_##id parameters { return make_dropout(&id##_class, "nn_" #id, p, last); }
DROPOUT(dropout, (double p), false)
DROPOUT(dropout2d, (double p, bool channels_last), channels_last)
DROPOUT(dropout3d, (double p, bool channels_last), channels_last)
DROPOUT(alpha_dropout, (double p), false)
DROPOUT(stochastic_depth, (double p), false)

/* What the models share. */
#ifndef COTANGENT_NN_MODELS_H
#define COTANGENT_NN_MODELS_H

#include "nn/module.h"

/* Options with their defaults filled in. */
ct_nn_model_options ct__model_options(const ct_nn_model_options *given, int64_t channels, int64_t classes);

/* So many channels times the width, at least 1; and an error unless the width is above 0. */
int64_t ct__wide(int64_t channels, const ct_nn_model_options *o);
bool ct__width_is_right(const char *function, const ct_nn_model_options *o);

/* Adds the step from [N,C,H,W] to the layout that the model computes in, and back; nothing unless channels_last. */
bool ct__enter_layout(ct_module *sequential, const ct_nn_model_options *o);
bool ct__leave_layout(ct_module *sequential, const ct_nn_model_options *o);

/* Weights of convolutions kaiming normal by what goes out, their biases zero; linear weights normal with std (0: left). */
bool ct__init_model(ct_module *module, const ct_nn_model_options *o, double std);

#endif

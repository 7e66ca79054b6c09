/* What the files of convolution share outside of kernels: the geometry of each internal op. */
#ifndef COTANGENT_OPS_CONV_H
#define COTANGENT_OPS_CONV_H

#include "ops/geometry.h"

#include "gen/ops_decl.h"

/* infer NULL: known to be valid. x's, y's and w's strides are filled where their views are given. */
bool ct__conv_plain_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x, const ct_view *w,
                             const ct_view *bias, const conv_attrs *attrs);
bool ct__conv_fused_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x, const ct_view *w,
                             const ct_view *bias, const conv_fused_attrs *attrs);
bool ct__conv_input_grad_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *g, const ct_view *w,
                                  const ct_view *bias, const conv_input_grad_attrs *attrs);
bool ct__conv_weight_grad_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x,
                                   const ct_view *g, const conv_weight_grad_attrs *attrs);

/* The residual has the shape and dtype of the result, already inferred. */
bool ct__conv_check_residual(const ct_infer *infer, const ct_view *residual);

#endif

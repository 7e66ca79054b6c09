/* infer of the elementwise ops, by class. The ops are lines in *.def; the rest of them is generated. */
#ifndef COTANGENT_OPS_ELEMENTWISE_H
#define COTANGENT_OPS_ELEMENTWISE_H

#include <cotangent/op.h>

bool ct__infer_float(ct_infer *infer); /* floats; integers and bool have become f32 by then */
bool ct__infer_num(ct_infer *infer);   /* floats and integers, not bool */
bool ct__infer_all(ct_infer *infer);   /* all dtypes that have arithmetic */
bool ct__infer_int(ct_infer *infer);   /* integers and bool */
bool ct__infer_float_to_bool(ct_infer *infer);
bool ct__infer_num_to_bool(ct_infer *infer);
bool ct__infer_all_to_bool(ct_infer *infer);
bool ct__infer_int_to_bool(ct_infer *infer);

#endif

/* Elements of any dtype as numbers that can be compared, and tables of functions by dtype. */
#ifndef COTANGENT_OPS_SORT_VALUES_H
#define COTANGENT_OPS_SORT_VALUES_H

#include "ops/reduce/cpu/elements.h"

static inline int8_t i8_value(int8_t a) { return a; }
static inline int16_t i16_value(int16_t a) { return a; }
static inline int32_t i32_value(int32_t a) { return a; }
static inline int64_t i64_value(int64_t a) { return a; }
static inline uint8_t u8_value(uint8_t a) { return a; }

#define FOR_EACH_DTYPE(X) X(f32) X(f64) X(f16) X(bf16) X(i8) X(i16) X(i32) X(i64) X(u8)
#define TABLE(name)                                                                                                    \
    {                                                                                                                  \
        [CT_F32] = name##_f32, [CT_F64] = name##_f64, [CT_F16] = name##_f16, [CT_BF16] = name##_bf16,                  \
        [CT_I8] = name##_i8, [CT_I16] = name##_i16, [CT_I32] = name##_i32, [CT_I64] = name##_i64, [CT_U8] = name##_u8, \
        [CT_BOOL] = name##_u8,                                                                                         \
    }

#endif

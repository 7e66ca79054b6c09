/* One element of each dtype, as a double and back: for scalars, printing and checks, not for kernels. */
#ifndef COTANGENT_CORE_DTYPE_H
#define COTANGENT_CORE_DTYPE_H

#include <cotangent.h>

double ct__dtype_get(ct_dtype dtype, const void *element);
void ct__dtype_put(ct_dtype dtype, void *element, double value); /* rounds or saturates as ct_cast does */
/* The same of integers, which a double may not hold. False where the element is none, or does not fit; floats round. */
bool ct__dtype_get_i64(ct_dtype dtype, const void *element, int64_t *value);
bool ct__dtype_put_i64(ct_dtype dtype, void *element, int64_t value);

/* ct_dtype_size and ct_dtype_is_float for a dtype that exists, where every call passes. */
extern const uint8_t ct__dtype_bytes[CT_DTYPE_COUNT];
static inline size_t ct__dtype_size(ct_dtype dtype) { return ct__dtype_bytes[dtype]; }
static inline bool ct__dtype_is_float(ct_dtype dtype) { return (unsigned)dtype <= CT_BF16; } /* the first four */

static inline bool ct__dtype_is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

float ct__f16_to_f32(uint16_t bits);
uint16_t ct__f32_to_f16(float value); /* to nearest, ties to even */
float ct__bf16_to_f32(uint16_t bits);
uint16_t ct__f32_to_bf16(float value);
float ct__f8_to_f32(uint8_t bits, int exponent_bits); /* 4: e4m3 (no infinity), 5: e5m2 */
uint8_t ct__f32_to_f8(float value, int exponent_bits);

#endif

/* Facts about dtypes, promotion, and conversion of single elements. */
#include "core/dtype.h"

#include <math.h>
#include <string.h>

typedef enum kind { KIND_BOOL, KIND_INT, KIND_FLOAT, KIND_STORED } kind;

_Static_assert(CT_F32 == 0 && CT_F64 == 1 && CT_F16 == 2 && CT_BF16 == 3, "floats come first");

const uint8_t ct__dtype_bytes[CT_DTYPE_COUNT] = {
    [CT_F32] = 4, [CT_F64] = 8,    [CT_F16] = 2,    [CT_BF16] = 2,     [CT_I8] = 1,  [CT_I16] = 2,
    [CT_I32] = 4, [CT_I64] = 8,    [CT_U8] = 1,     [CT_BOOL] = 1,     [CT_U16] = 2, [CT_U32] = 4,
    [CT_U64] = 8, [CT_F8E4M3] = 1, [CT_F8E5M2] = 1, [CT_COMPLEX64] = 8};

static const struct {
    const char *name;
    uint8_t kind;
} facts[CT_DTYPE_COUNT] = {
    [CT_F32] = {"f32", KIND_FLOAT},
    [CT_F64] = {"f64", KIND_FLOAT},
    [CT_F16] = {"f16", KIND_FLOAT},
    [CT_BF16] = {"bf16", KIND_FLOAT},
    [CT_I8] = {"i8", KIND_INT},
    [CT_I16] = {"i16", KIND_INT},
    [CT_I32] = {"i32", KIND_INT},
    [CT_I64] = {"i64", KIND_INT},
    [CT_U8] = {"u8", KIND_INT},
    [CT_BOOL] = {"bool", KIND_BOOL},
    [CT_U16] = {"u16", KIND_STORED},
    [CT_U32] = {"u32", KIND_STORED},
    [CT_U64] = {"u64", KIND_STORED},
    [CT_F8E4M3] = {"f8e4m3", KIND_STORED},
    [CT_F8E5M2] = {"f8e5m2", KIND_STORED},
    [CT_COMPLEX64] = {"complex64", KIND_STORED},
};

static bool known(ct_dtype dtype) { return (unsigned)dtype < CT_DTYPE_COUNT; }
const char *ct_dtype_name(ct_dtype dtype) { return known(dtype) ? facts[dtype].name : "unknown"; }
size_t ct_dtype_size(ct_dtype dtype) { return known(dtype) ? ct__dtype_bytes[dtype] : 1; }
bool ct_dtype_is_float(ct_dtype dtype) { return known(dtype) && facts[dtype].kind == KIND_FLOAT; }
bool ct_dtype_is_int(ct_dtype dtype) { return known(dtype) && facts[dtype].kind == KIND_INT; }

bool ct_dtype_parse(const char *name, ct_dtype *dtype) {
    for (int i = 0; name && i < CT_DTYPE_COUNT; i++) {
        if (strcmp(name, facts[i].name) != 0) continue;
        if (dtype) *dtype = (ct_dtype)i;
        return true;
    }
    return false;
}

ct_dtype ct_dtype_promote(ct_dtype a, ct_dtype b) {
    if (a == b || !known(a) || !known(b)) return a;
    int ka = facts[a].kind, kb = facts[b].kind;
    if (ka != kb) return ka > kb ? a : b;
    if (ka == KIND_FLOAT) {
        if (a == CT_F64 || b == CT_F64) return CT_F64;
        return CT_F32; /* of f32, f16 and bf16 any two that differ */
    }
    if (ka == KIND_INT) {
        if (ct__dtype_bytes[a] != ct__dtype_bytes[b]) return ct__dtype_bytes[a] > ct__dtype_bytes[b] ? a : b;
        return CT_I16; /* u8 with i8 */
    }
    return ct__dtype_bytes[a] >= ct__dtype_bytes[b] ? a : b;
}

static float bits_to_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t f32_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float ct__bf16_to_f32(uint16_t bits) { return bits_to_f32((uint32_t)bits << 16); }

uint16_t ct__f32_to_bf16(float value) {
    uint32_t bits = f32_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN, quiet */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* The small formats differ only in their widths: sign, `e` exponent bits, `m` mantissa bits. */
static float small_to_f32(uint32_t bits, int e, int m) {
    uint32_t sign = bits >> (e + m) & 1, exponent = bits >> m & ((1u << e) - 1), mantissa = bits & ((1u << m) - 1);
    int bias = (1 << (e - 1)) - 1;
    float value = exponent == 0 ? ldexpf((float)mantissa, 1 - bias - m)
                                : ldexpf((float)(mantissa | 1u << m), (int)exponent - bias - m);
    return sign ? -value : value;
}

/* Rounds |value| to a multiple of the format's spacing, ties to even; the caller deals with overflow. */
static uint32_t f32_to_small(float magnitude, int e, int m) {
    int bias = (1 << (e - 1)) - 1, exponent;
    if (magnitude == 0) return 0;
    frexpf(magnitude, &exponent);
    exponent -= 1;
    if (exponent < 1 - bias) exponent = 1 - bias;
    double steps = nearbyint(ldexp((double)magnitude, m - exponent));
    return (uint32_t)steps + ((uint32_t)(exponent + bias - 1) << m); /* a carry runs into the exponent by itself */
}

float ct__f16_to_f32(uint16_t bits) {
    if ((bits & 0x7c00) == 0x7c00)
        return bits_to_f32((uint32_t)(bits & 0x8000) << 16 | 0x7f800000u | (uint32_t)(bits & 0x3ff) << 13);
    return small_to_f32(bits, 5, 10);
}

uint16_t ct__f32_to_f16(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return (uint16_t)(sign | 0x7e00);
    if (isinf(value) || fabsf(value) >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | f32_to_small(fabsf(value), 5, 10));
}

float ct__f8_to_f32(uint8_t bits, int exponent_bits) {
    if (exponent_bits == 4) return (bits & 0x7f) == 0x7f ? NAN : small_to_f32(bits, 4, 3);
    if ((bits & 0x7c) == 0x7c) return bits & 3 ? NAN : (bits & 0x80 ? -INFINITY : INFINITY);
    return small_to_f32(bits, 5, 2);
}

uint8_t ct__f32_to_f8(float value, int exponent_bits) {
    uint8_t sign = signbit(value) ? 0x80 : 0;
    if (exponent_bits == 4) { /* no infinity: what is too large is NaN */
        if (isnan(value) || fabsf(value) > 464.0f) return sign | 0x7f;
        uint32_t bits = f32_to_small(fabsf(value), 4, 3);
        return (uint8_t)(sign | (bits > 0x7f ? 0x7f : bits));
    }
    if (isnan(value)) return sign | 0x7e;
    if (fabsf(value) >= 61440.0f) return sign | 0x7c;
    return (uint8_t)(sign | f32_to_small(fabsf(value), 5, 2));
}

double ct__dtype_get(ct_dtype dtype, const void *element) {
    switch (dtype) {
#define GET(code, type)                        \
    case code: {                               \
        type value;                            \
        memcpy(&value, element, sizeof value); \
        return (double)value;                  \
    }
        GET(CT_F32, float)
        GET(CT_F64, double)
        GET(CT_I8, int8_t)
        GET(CT_I16, int16_t)
        GET(CT_I32, int32_t)
        GET(CT_I64, int64_t)
        GET(CT_U8, uint8_t)
        GET(CT_BOOL, uint8_t)
        GET(CT_U16, uint16_t)
        GET(CT_U32, uint32_t)
        GET(CT_U64, uint64_t)
        GET(CT_COMPLEX64, float) /* the real part */
#undef GET
    case CT_F16:
    case CT_BF16: {
        uint16_t bits;
        memcpy(&bits, element, sizeof bits);
        return (double)(dtype == CT_F16 ? ct__f16_to_f32(bits) : ct__bf16_to_f32(bits));
    }
    case CT_F8E4M3: return (double)ct__f8_to_f32(*(const uint8_t *)element, 4);
    case CT_F8E5M2: return (double)ct__f8_to_f32(*(const uint8_t *)element, 5);
    case CT_DTYPE_COUNT: break;
    }
    return NAN;
}

/* Truncates and saturates; NaN gives 0. */
static int64_t saturate(double value, int64_t low, int64_t high) {
    if (isnan(value)) return 0;
    if (value <= (double)low) return low;
    if (value >= (double)high) return high;
    return (int64_t)value;
}

void ct__dtype_put(ct_dtype dtype, void *element, double value) {
    switch (dtype) {
#define PUT(code, type, expression)              \
    case code: {                                 \
        type stored = (type)(expression);        \
        memcpy(element, &stored, sizeof stored); \
        return;                                  \
    }
        PUT(CT_F32, float, value)
        PUT(CT_F64, double, value)
        PUT(CT_F16, uint16_t, ct__f32_to_f16((float)value))
        PUT(CT_BF16, uint16_t, ct__f32_to_bf16((float)value))
        PUT(CT_I8, int8_t, saturate(value, INT8_MIN, INT8_MAX))
        PUT(CT_I16, int16_t, saturate(value, INT16_MIN, INT16_MAX))
        PUT(CT_I32, int32_t, saturate(value, INT32_MIN, INT32_MAX))
        PUT(CT_I64, int64_t, saturate(value, INT64_MIN, INT64_MAX))
        PUT(CT_U8, uint8_t, saturate(value, 0, UINT8_MAX))
        PUT(CT_BOOL, uint8_t, value != 0)
        PUT(CT_U16, uint16_t, saturate(value, 0, UINT16_MAX))
        PUT(CT_U32, uint32_t, saturate(value, 0, UINT32_MAX))
        PUT(CT_U64, uint64_t, value >= 18446744073709551615.0 ? UINT64_MAX : value > 0 ? (uint64_t)value : 0)
        PUT(CT_F8E4M3, uint8_t, ct__f32_to_f8((float)value, 4))
        PUT(CT_F8E5M2, uint8_t, ct__f32_to_f8((float)value, 5))
#undef PUT
    case CT_COMPLEX64: {
        float parts[2] = {(float)value, 0};
        memcpy(element, parts, sizeof parts);
        return;
    }
    case CT_DTYPE_COUNT: return;
    }
}

bool ct__dtype_get_i64(ct_dtype dtype, const void *element, int64_t *value) {
    if (dtype == CT_I64 || dtype == CT_U64) {
        memcpy(value, element, sizeof *value);
        return dtype == CT_I64 || *value >= 0;
    }
    const double wide = ct__dtype_get(dtype, element); /* which holds every other dtype */
    if (!(wide >= -0x1p63 && wide < 0x1p63) || wide != floor(wide)) return false;
    *value = (int64_t)wide;
    return true;
}

bool ct__dtype_put_i64(ct_dtype dtype, void *element, int64_t value) {
    if (dtype == CT_I64 || dtype == CT_U64) {
        memcpy(element, &value, sizeof value);
        return dtype == CT_I64 || value >= 0;
    }
    int64_t back;
    const bool narrow = ct_dtype_is_int(dtype) || dtype == CT_BOOL || dtype == CT_U16 || dtype == CT_U32;
    /* a float is rounded once: of more digits than f32 has, on the way to a narrower one, as casts do */
    ct__dtype_put(dtype, element, narrow || dtype == CT_F64 ? (double)value : (double)(float)value);
    return !narrow || (ct__dtype_get_i64(dtype, element, &back) && back == value);
}

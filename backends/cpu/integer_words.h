/* The vocabulary on single integers, a template: P is the prefix, T the type, U an unsigned one that does not
 * promote, LEAST and MOST the limits, IS asks a signed number. Included by elementwise_kernel.h. */
#define OF(x) CT_SIMD_PASTE(P, CT_SIMD_PASTE(_, x))

static inline T OF(k)(double x) { return (T)(int64_t)x; }
static inline T OF(from_double)(double x) {
    return x != x ? 0 : x <= (double)LEAST ? LEAST : x >= (double)MOST ? MOST : (T)x;
}

static inline T OF(add)(T a, T b) { return (T)((U)a + (U)b); }
static inline T OF(sub)(T a, T b) { return (T)((U)a - (U)b); }
static inline T OF(mul)(T a, T b) { return (T)((U)a * (U)b); }
static inline T OF(fma)(T a, T b, T c) { return (T)((U)a * (U)b + (U)c); }
static inline T OF(square)(T a) { return (T)((U)a * (U)a); }
static inline T OF(neg)(T a) { return (T)((U)0 - (U)a); }
static inline T OF(abs)(T a) { return IS(a, < 0) ? OF(neg)(a) : a; }
static inline T OF(sign)(T a) { return (T)((a > 0) - IS(a, < 0)); }
static inline T OF(floor)(T a) { return a; }
static inline T OF(ceil)(T a) { return a; }
static inline T OF(round)(T a) { return a; }
static inline T OF(trunc)(T a) { return a; }
static inline T OF(max)(T a, T b) { return a > b ? a : b; }
static inline T OF(min)(T a, T b) { return a < b ? a : b; }
static inline T OF(fmax)(T a, T b) { return a > b ? a : b; }
static inline T OF(fmin)(T a, T b) { return a < b ? a : b; }
static inline uint8_t OF(isnan)(T a) { return (void)a, 0; }
static inline uint8_t OF(isinf)(T a) { return (void)a, 0; }
static inline uint8_t OF(isfinite)(T a) { return (void)a, 1; }
/* MIN / -1 traps in C; wrapped, the quotient is MIN, and nothing remains */
static inline T OF(fmod)(T a, T b) { return b == 0 || IS(b, == -1) ? 0 : (T)(a % b); }
static inline T OF(remainder)(T a, T b) {
    T r = OF(fmod)(a, b);
    return r != 0 && IS(r, < 0) != IS(b, < 0) ? (T)(r + b) : r;
}

static inline T OF(floor_div)(T a, T b) {
    if (b == 0) return 0;
    if (IS(b, == -1)) return OF(neg)(a);
    T q = (T)(a / b), r = (T)(a % b);
    return r != 0 && IS(r, < 0) != IS(b, < 0) ? (T)(q - 1) : q;
}

/* a^-n is 1 / a^n towards zero: 0 but for a = 1 and a = -1 */
static inline T OF(pow)(T a, T b) {
    if (IS(b, < 0)) return a == 1 ? 1 : IS(a, == -1) ? ((U)b & 1 ? (T)-1 : 1) : 0;
    U power = 1, square = (U)a;
    for (U n = (U)b; n; n >>= 1) {
        if (n & 1) power *= square;
        square *= square;
    }
    return (T)power;
}

static inline T OF(band)(T a, T b) { return (T)(a & b); }
static inline T OF(bor)(T a, T b) { return (T)(a | b); }
static inline T OF(bxor)(T a, T b) { return (T)(a ^ b); }
static inline T OF(bnot)(T a) { return (T)~a; }
static inline T OF(shl)(T a, T b) { return IS(b, < 0) || (U)b >= 8 * sizeof(T) ? 0 : (T)((U)a << (U)b); }
static inline T OF(shr)(T a, T b) {
    return IS(b, < 0) || (U)b >= 8 * sizeof(T) ? (T)(IS(a, < 0) ? -1 : 0) : (T)(a >> b);
}

#undef OF
#undef P
#undef T
#undef U
#undef LEAST
#undef MOST
#undef IS

/* Digits in exact integer arithmetic. A number is mantissa * 2^exponent; times 10^p = 5^p * 2^p it is an integer with a
 * shift, which 128 bits hold for all f16 and bf16, for f32 from 1e-35 on and for f64 from 1e-14 to 1e38. The rest goes the
 * long way round, by printf and strtod, which are exact too.
 *
 * The shortest digits are found as in Steele and White's "How to print floating-point numbers accurately" (1990): every
 * decimal between the middles of the gaps to both neighbors reads back as the number; of the shortest ones there, the
 * nearest is taken. */
#include "core/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"

/* ---- Digits of an integer ---- */

/* integer * 10^-p */
static ct__decimal from_integer(uint64_t integer, int p) {
    ct__decimal d = {.n = 0};
    char text[24];
    int at = (int)sizeof text;
    do {
        text[--at] = (char)('0' + integer % 10);
        integer /= 10;
    } while (integer);
    d.n = (int)sizeof text - at;
    memcpy(d.digits, text + at, (size_t)d.n);
    d.digits[d.n] = 0;
    d.point = d.n - p;
    return d;
}

void ct__decimal_trim(ct__decimal *d) {
    while (d->n > 1 && d->digits[d->n - 1] == '0') d->digits[--d->n] = 0;
}

/* ---- Scaling by a power of ten ---- */

/* What is left of a number beside its integer part. */
typedef enum rest { NOTHING, BELOW_HALF, HALF, ABOVE_HALF } rest;

typedef struct scaled {
    uint64_t whole;
    rest left;
} scaled;

static uint64_t rounded(scaled x) { return x.whole + (x.left == ABOVE_HALF || (x.left == HALF && (x.whole & 1))); }

static uint64_t within(uint64_t x, uint64_t first, uint64_t last) { return x < first ? first : x > last ? last : x; }

/* x / 10 */
static scaled tenth(scaled x) {
    const unsigned digit = (unsigned)(x.whole % 10);
    x.whole /= 10;
    if (digit == 0 && x.left == NOTHING) x.left = NOTHING;
    else if (digit < 5) x.left = BELOW_HALF;
    else x.left = digit == 5 && x.left == NOTHING ? HALF : ABOVE_HALF;
    return x;
}

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 wide;

enum { LARGEST_FIVE = 27 }; /* 5^27 is the last that 64 bits hold */
static const uint64_t fives[LARGEST_FIVE + 1] = {
    1u,
    5u,
    25u,
    125u,
    625u,
    3125u,
    15625u,
    78125u,
    390625u,
    1953125u,
    9765625u,
    48828125u,
    244140625u,
    1220703125u,
    6103515625u,
    30517578125u,
    152587890625u,
    762939453125u,
    3814697265625u,
    19073486328125u,
    95367431640625u,
    476837158203125u,
    2384185791015625u,
    11920928955078125u,
    59604644775390625u,
    298023223876953125u,
    1490116119384765625u,
    7450580596923828125u,
};

static int bits_of(wide x) {
    const uint64_t high = (uint64_t)(x >> 64), low = (uint64_t)x;
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

static wide five_to(int p) {
    return p <= LARGEST_FIVE ? fives[p] : (wide)fives[LARGEST_FIVE] * fives[p - LARGEST_FIVE];
}

/* mantissa * 2^exponent * 10^p, exactly; false where that needs more bits than there are. */
static bool scale(uint64_t mantissa, int exponent, int p, scaled *x) {
    const int fives_wanted = abs(p);
    if (fives_wanted > 2 * LARGEST_FIVE) return false;
    const wide five = five_to(fives_wanted);
    const int shift = exponent + p;
    if (p >= 0) {
        if (bits_of(mantissa) + bits_of(five) > 127) return false;
        const wide product = mantissa * five;
        if (shift >= 0) {
            if (bits_of(product) + shift > 64) return false;
            *x = (scaled){(uint64_t)(product << shift), NOTHING};
            return true;
        }
        if (-shift >= 128) { /* below one half */
            *x = (scaled){0, product ? BELOW_HALF : NOTHING};
            return true;
        }
        const wide whole = product >> -shift, left = product - (whole << -shift), half = (wide)1 << (-shift - 1);
        if (bits_of(whole) > 64) return false;
        *x = (scaled){(uint64_t)whole, left == 0      ? NOTHING
                                       : left < half  ? BELOW_HALF
                                       : left == half ? HALF
                                                      : ABOVE_HALF};
        return true;
    }
    if (bits_of(mantissa) + (shift > 0 ? shift : 0) > 128 || bits_of(five) + (shift < 0 ? -shift : 0) > 127)
        return false;
    const wide above = (wide)mantissa << (shift > 0 ? shift : 0), below = five << (shift < 0 ? -shift : 0);
    const wide whole = above / below, left = above - whole * below, other = below - left;
    if (bits_of(whole) > 64) return false;
    *x = (scaled){(uint64_t)whole, left == 0 ? NOTHING : left < other ? BELOW_HALF : left == other ? HALF : ABOVE_HALF};
    return true;
}
#else
static bool scale(uint64_t mantissa, int exponent, int p, scaled *x) {
    (void)mantissa, (void)exponent, (void)p, (void)x;
    return false;
}
#endif

/* ---- Binary formats ---- */

typedef struct binary {
    int precision; /* bits of a mantissa, with the leading one */
    int least;     /* every number is a multiple of 2^least */
    int digits;    /* that always read back */
    int safe;      /* so many decimal digits come back from the dtype unchanged */
} binary;

static const binary formats[] = {
    [CT_F64] = {53, -1074, 17, 15},    [CT_F32] = {24, -149, 9, 6}, [CT_F16] = {11, -24, 5, 3},
    [CT_BF16] = {8, -133, 4, 2},       [CT_F8E4M3] = {4, -9, 3, 1}, [CT_F8E5M2] = {3, -16, 2, 1},
    [CT_COMPLEX64] = {24, -149, 9, 6}, /* a part of it */
};

/* The power of ten below a number under 2^exponent and not under 2^(exponent - 1), or the one before it. */
static int tens_of(int exponent) { return (int)floor((exponent - 1) * 0.30102999566398119); }

/* ---- The long way ---- */

/* Takes the digits out of what printf wrote, whatever character the locale has between them. */
static ct__decimal take_digits(const char *text) {
    ct__decimal d = {.n = 0};
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && d.n < (int)sizeof d.digits - 1) d.digits[d.n++] = *text;
    if (*text == 'e') d.point = atoi(text + 1) + 1;
    d.digits[d.n] = 0;
    return d;
}

static ct__decimal printed(double magnitude, int n) {
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, magnitude);
    return take_digits(text);
}

static bool reads_back(const ct__decimal *d, double magnitude, ct_dtype dtype) {
    char text[64], raw[16];
    snprintf(text, sizeof text, "%.17se%d", d->digits, d->point - d->n);
    if (dtype == CT_F64) return strtod(text, NULL) == magnitude;
    if (dtype == CT_F32 || dtype == CT_COMPLEX64) return strtof(text, NULL) == (float)magnitude;
    ct__dtype_put(dtype, raw, strtod(text, NULL));
    return ct__dtype_get(dtype, raw) == magnitude;
}

/* One unit of the last digit more. */
static ct__decimal next_above(ct__decimal d) {
    int i = d.n - 1;
    for (; i >= 0 && d.digits[i] == '9'; i--) d.digits[i] = '0';
    if (i >= 0) {
        d.digits[i]++;
    } else {
        d.digits[0] = '1';
        d.point++;
    }
    return d;
}

/* Above a power of two the numbers are wider apart than below it, so there the digits just above the value may do when the
 * nearest ones, below it, do not. Only numbers that have all their bits can begin with the digits that are always safe. */
static ct__decimal tried(double magnitude, ct_dtype dtype, const binary *format) {
    const bool whole = magnitude >= ldexp(1, format->least + format->precision - 1);
    ct__decimal d = {.n = 0};
    for (int n = whole ? format->safe : 1; n <= 17; n++) {
        d = printed(magnitude, n);
        if (reads_back(&d, magnitude, dtype)) break;
        const ct__decimal above = next_above(d);
        if (reads_back(&above, magnitude, dtype)) {
            d = above;
            break;
        }
    }
    ct__decimal_trim(&d);
    return d;
}

/* ---- What is asked for ---- */

ct__decimal ct__decimal_shortest(double magnitude, ct_dtype dtype) {
    if (magnitude == 0) return (ct__decimal){.digits = "0", .n = 1, .point = 1};
    const binary format = formats[dtype];
    int top;
    frexp(magnitude, &top);
    const int exponent = top - format.precision > format.least ? top - format.precision : format.least;
    const uint64_t mantissa = (uint64_t)ldexp(magnitude, -exponent);
    /* At a power of two the gap below is half of that above, unless the numbers below are subnormal. */
    const bool power = mantissa == (uint64_t)1 << (format.precision - 1) && exponent > format.least;
    const bool closed = mantissa % 2 == 0; /* a tie is read as the even one */
    const int p = format.digits - 1 - tens_of(top);
    scaled low, high, value;
    if (!scale(4 * mantissa - (power ? 1 : 2), exponent - 2, p, &low) ||
        !scale(4 * mantissa + 2, exponent - 2, p, &high) || !scale(4 * mantissa, exponent - 2, p, &value))
        return tried(magnitude, dtype, &format);
    uint64_t first = low.whole + (low.left != NOTHING || !closed);
    uint64_t last = high.whole - (high.left == NOTHING && !closed);
    uint64_t nearest = within(rounded(value), first, last);
    int dropped = 0;
    /* A digit goes as long as there is more than one, and a multiple of ten between first and last. */
    for (; nearest >= 10 && (first + 9) / 10 <= last / 10; dropped++) {
        first = (first + 9) / 10;
        last /= 10;
        value = tenth(value);
        nearest = within(rounded(value), first, last);
    }
    ct__decimal d = from_integer(nearest, p - dropped);
    ct__decimal_trim(&d);
    return d;
}

ct__decimal ct__decimal_significant(double magnitude, int n) {
    int top, p;
    const uint64_t mantissa = (uint64_t)ldexp(frexp(magnitude, &top), 53);
    scaled value;
    if (magnitude == 0) return printed(magnitude, n);
    p = n - 1 - tens_of(top);
    if (!scale(mantissa, top - 53, p, &value)) return printed(magnitude, n);
    if (from_integer(value.whole, 0).n > n && !scale(mantissa, top - 53, --p, &value)) return printed(magnitude, n);
    ct__decimal d = from_integer(rounded(value), p);
    if (d.n > n) d.digits[d.n = n] = 0; /* 99.96 has become 100.0 */
    return d;
}

ct__decimal ct__decimal_fraction(double magnitude, int places) {
    int top;
    const uint64_t mantissa = (uint64_t)ldexp(frexp(magnitude, &top), 53);
    scaled value;
    if (scale(mantissa, top - 53, places, &value)) return from_integer(rounded(value), places);
    char text[400];
    snprintf(text, sizeof text, "%.*f", places, magnitude);
    ct__decimal d = take_digits(text);
    d.point = d.n - places;
    return d;
}

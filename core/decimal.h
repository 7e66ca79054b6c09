/* Decimal digits of binary floating-point numbers, for printing: correctly rounded, and the fewest that read back. */
#ifndef COTANGENT_CORE_DECIMAL_H
#define COTANGENT_CORE_DECIMAL_H

#include <cotangent.h>

/* The value 0.DDDD * 10^point, with n digits. */
typedef struct ct__decimal {
    char digits[24];
    int n, point;
} ct__decimal;

/* The fewest digits from which the dtype's reader gets the value back, and of those the nearest to it; of CT_COMPLEX64 a
 * part. The magnitude is finite, not negative, and one that the dtype has. */
ct__decimal ct__decimal_shortest(double magnitude, ct_dtype dtype);
/* n digits (1 to 17), rounded from the exact value, half to even; zeros at the end are kept. */
ct__decimal ct__decimal_significant(double magnitude, int n);
/* As many places (0 to 8) after the point, rounded so; zeros at the end are kept. The magnitude is below 1e9. */
ct__decimal ct__decimal_fraction(double magnitude, int places);

void ct__decimal_trim(ct__decimal *d); /* drops zeros at the end */

#endif

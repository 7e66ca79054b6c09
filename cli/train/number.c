/* Numbers as people write them. */
#include "cli/train/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond these a number is written with a power of ten. */
static const double most = 1e7, least = 1e-4;

static void add(number_text *to, const char *text) {
    const size_t used = strlen(to->text);
    snprintf(to->text + used, sizeof to->text - used, "%s", text);
}

static void add_power(number_text *to, int power, number_style style) {
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    char digits[16];
    if (style == NUMBER_PLAIN) {
        snprintf(digits, sizeof digits, "e%d", power);
        add(to, digits);
        return;
    }
    add(to, " × 10");
    if (power < 0) add(to, "⁻");
    snprintf(digits, sizeof digits, "%d", power < 0 ? -power : power);
    for (const char *c = digits; *c; c++) add(to, raised[*c - '0']);
}

/* A fixed-point text; on a page with blanks between thousands where there are more than four digits, and the sign as it is
 * printed. */
static void add_fixed(number_text *to, double value, int decimals, number_style style) {
    char digits[48];
    snprintf(digits, sizeof digits, "%.*f", decimals, fabs(value));
    if (value < 0 && strspn(digits, "0.") < strlen(digits)) add(to, style == NUMBER_PAGE ? "−" : "-");
    const size_t whole = strcspn(digits, ".");
    for (size_t i = 0; digits[i]; i++) {
        if (style == NUMBER_PAGE && whole > 4 && i > 0 && i < whole && (whole - i) % 3 == 0) add(to, "\u202f");
        add(to, (char[]){digits[i], 0});
    }
}

/* value / 10^power, where the power alone may be too small for a double. */
static double scaled(double value, int power) {
    return power < -300 ? value * 1e300 / pow(10, power + 300) : value / pow(10, power);
}

/* The power of ten of the first digit. */
static int power_of(double value) { return (int)floor(log10(fabs(value)) + 1e-12); }

static int decimals_for(double value, int digits) {
    const int decimals = digits - 1 - power_of(value);
    return decimals < 0 ? 0 : decimals > 12 ? 12 : decimals;
}

/* How many of the decimals are not zeros at the end. */
static int needed(double value, int decimals) {
    char digits[64];
    snprintf(digits, sizeof digits, "%.*f", decimals, value);
    for (size_t n = strlen(digits); decimals > 0 && digits[n - 1] == '0'; n--) decimals--;
    return decimals;
}

number_text number_of(double value, int digits, number_style style) {
    number_text to = {""};
    if (!isfinite(value)) add(&to, isnan(value) ? (style == NUMBER_PAGE ? "–" : "nan") : value < 0 ? "-inf" : "inf");
    else if (value == 0) add(&to, "0");
    else if (fabs(value) >= most || fabs(value) < least) {
        char rounded[64]; /* by the library, which raises the power where 9.9996 becomes 10.00 */
        snprintf(rounded, sizeof rounded, "%.*e", digits - 1, value);
        char *exponent = strchr(rounded, 'e');
        const int power = atoi(exponent + 1);
        *exponent = 0;
        const double mantissa = strtod(rounded, NULL);
        add_fixed(&to, mantissa, needed(mantissa, digits - 1), style);
        add_power(&to, power, style);
    } else add_fixed(&to, value, needed(value, decimals_for(value, digits)), style);
    return to;
}

number_text number_percent(double part, int decimals, number_style style) {
    number_text to = {""};
    if (isnan(part)) add(&to, style == NUMBER_PAGE ? "–" : "-");
    else {
        add_fixed(&to, 100 * part, decimals, style);
        add(&to, " %");
    }
    return to;
}

number_text number_count(int64_t value) {
    number_text to = {""};
    add_fixed(&to, (double)value, 0, NUMBER_PAGE); /* counts stay far below 2^53 */
    return to;
}

number_column number_column_of(double largest, double smallest) {
    number_column column = {0};
    largest = fabs(largest);
    if (!(largest > 0) || !isfinite(largest)) return column;
    if (largest >= most || largest < least) {
        column.power = power_of(largest);
        smallest = scaled(smallest, column.power);
    }
    for (double s = fabs(smallest); s > 0 && s < 0.9995 && column.decimals < 9; s *= 10) column.decimals++;
    return column;
}

number_text number_in(const number_column *column, double value) {
    number_text to = {""};
    if (!isfinite(value)) return number_of(value, 1, NUMBER_PAGE);
    if (column->power) value = scaled(value, column->power);
    if (column->sign && value > 0) add(&to, "+");
    if (value == 0) {
        add(&to, "0");
        return to;
    }
    add_fixed(&to, value, column->decimals, NUMBER_PAGE);
    if (column->power) add_power(&to, column->power, NUMBER_PAGE);
    return to;
}

double number_width(const char *text) {
    double width = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if ((*c & 0xc0) == 0x80) continue; /* inside a character */
        const bool thin = *c == '.' || strncmp((const char *)c, "\u202f", 3) == 0;
        width += thin ? 4 : 7.7; /* the widest of the fonts that the page may get */
    }
    return width;
}

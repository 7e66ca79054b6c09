/* Text of a tensor, as NumPy prints it: nested brackets, aligned columns, an ellipsis above a thousand elements. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/tensor.h"

enum { THRESHOLD = 1000, EDGE = 3, LINE = 75, PRECISION = 8, WORD = 400 };

/* ---- Text with a limit ---- */

/* Counts everything, keeps what fits. Spaces are held back, so that a line can drop those at its end. */
typedef struct writer {
    char *text;
    size_t capacity, length, column, spaces;
} writer;

static void put_char(writer *w, char c) {
    if (c == ' ') {
        w->spaces++;
        w->column++;
        return;
    }
    if (c == '\n') w->spaces = 0;
    for (; w->spaces; w->spaces--, w->length++)
        if (w->length + 1 < w->capacity) w->text[w->length] = ' ';
    if (w->length + 1 < w->capacity) w->text[w->length] = c;
    w->length++;
    w->column = c == '\n' ? 0 : w->column + 1;
}

static void put_text(writer *w, const char *text) {
    while (*text) put_char(w, *text++);
}

static void put_spaces(writer *w, int64_t n) {
    for (int64_t i = 0; i < n; i++) put_char(w, ' ');
}

/* ---- Decimal digits ---- */

/* A value as 0.DDDD * 10^point. */
typedef struct decimal {
    char digits[340];
    int n, point;
} decimal;

/* Takes the digits out of what printf wrote, whatever character the locale has between them. */
static decimal take_digits(const char *text) {
    decimal d = {.n = 0};
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9') d.digits[d.n++] = *text;
    if (*text == 'e') d.point = atoi(text + 1) + 1;
    d.digits[d.n] = 0;
    return d;
}

static decimal significant(double magnitude, int n) {
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, magnitude);
    return take_digits(text);
}

static decimal with_fraction(double magnitude, int places) {
    char text[400];
    snprintf(text, sizeof text, "%.*f", places, magnitude);
    decimal d = take_digits(text);
    d.point = d.n - places;
    return d;
}

static void trim(decimal *d) {
    while (d->n > 1 && d->digits[d->n - 1] == '0') d->digits[--d->n] = 0;
}

/* Whether reading the digits gives the value back. */
static bool reads_back(const decimal *d, double magnitude, ct_dtype dtype) {
    char text[64], raw[16];
    snprintf(text, sizeof text, "%.17se%d", d->digits, d->point - d->n);
    if (dtype == CT_F64) return strtod(text, NULL) == magnitude;
    if (dtype == CT_F32 || dtype == CT_COMPLEX64) return strtof(text, NULL) == (float)magnitude;
    ct__dtype_put(dtype, raw, strtod(text, NULL));
    return ct__dtype_get(dtype, raw) == magnitude;
}

/* One unit of the last digit more. */
static decimal next_above(decimal d) {
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

/* The fewest digits that no other number of the dtype would be read from. Above a power of two the numbers are wider
 * apart than below it, so there the digits just above the value may do when the nearest ones, below it, do not. */
static decimal shortest(double magnitude, ct_dtype dtype) {
    decimal d = {.n = 0};
    for (int n = 1; n <= 17; n++) {
        d = significant(magnitude, n);
        if (reads_back(&d, magnitude, dtype)) break;
        decimal above = next_above(d);
        if (reads_back(&above, magnitude, dtype)) {
            d = above;
            break;
        }
    }
    trim(&d);
    return d;
}

/* At most PRECISION digits after the point; those beyond are rounded from the exact value. */
static decimal positional(double magnitude, ct_dtype dtype) {
    decimal d = shortest(magnitude, dtype);
    if (d.n - d.point > PRECISION) d = with_fraction(magnitude, PRECISION);
    return d;
}

static decimal scientific(double magnitude, ct_dtype dtype) {
    decimal d = shortest(magnitude, dtype);
    if (d.n - 1 > PRECISION) {
        d = significant(magnitude, PRECISION + 1);
        trim(&d);
    }
    return d;
}

/* Writes d with its point; the fraction without zeros at its end. Returns the characters before the point. */
static int write_positional(char *to, const decimal *d, bool negative, const char *plus) {
    char *at = to;
    if (negative) *at++ = '-';
    else
        while (*plus) *at++ = *plus++;
    bool zero = d->n == 1 && d->digits[0] == '0';
    int point = zero ? 1 : d->point;
    if (point <= 0) *at++ = '0';
    for (int i = 0; i < point; i++) *at++ = i < d->n ? d->digits[i] : '0';
    int left = (int)(at - to);
    *at++ = '.';
    for (int i = point; i < d->n; i++) *at++ = i < 0 ? '0' : d->digits[i];
    while (at[-1] == '0' && at > to + left + 1) at--;
    *at = 0;
    return left;
}

/* Digits with `places` after the point, and at least exponent_digits in the exponent. */
static int write_scientific(char *to, const decimal *d, int places, int exponent_digits, bool negative,
                            const char *plus) {
    char *at = to;
    if (negative) *at++ = '-';
    else
        while (*plus) *at++ = *plus++;
    *at++ = d->digits[0];
    int left = (int)(at - to);
    *at++ = '.';
    for (int i = 1; i <= places; i++) *at++ = i < d->n ? d->digits[i] : '0';
    bool zero = d->digits[0] == '0';
    int exponent = zero ? 0 : d->point - 1;
    snprintf(at, 16, "e%c%0*d", exponent < 0 ? '-' : '+', exponent_digits, abs(exponent));
    return left;
}

static int exponent_length(int exponent) { return abs(exponent) >= 100 ? 3 : 2; }

/* ---- Elements ---- */

typedef struct elements {
    const char *data; /* of the first element */
    ct_view view;
    size_t size;
} elements;

static double float_at(const elements *x, int64_t at, int part) {
    if (x->view.dtype == CT_COMPLEX64) return (double)((const float *)(const void *)(x->data + at * 8))[part];
    return ct__dtype_get(x->view.dtype, x->data + at * (int64_t)x->size);
}

static bool has_integers(ct_dtype dtype) {
    return ct_dtype_is_int(dtype) || dtype == CT_U16 || dtype == CT_U32 || dtype == CT_U64;
}

static int integer_text(const elements *x, int64_t at, char *word) {
    const char *from = x->data + at * (int64_t)x->size;
    if (x->view.dtype == CT_U64) {
        uint64_t value;
        memcpy(&value, from, sizeof value);
        return snprintf(word, WORD, "%llu", (unsigned long long)value);
    }
    int64_t value;
    if (x->view.dtype == CT_I64) memcpy(&value, from, sizeof value);
    else value = (int64_t)ct__dtype_get(x->view.dtype, from);
    return snprintf(word, WORD, "%lld", (long long)value);
}

/* Calls visit for every element that will be shown. */
typedef struct survey survey;
typedef void (*visit_fn)(survey *s, int64_t at);
struct survey {
    const elements *x;
    bool summary;
    visit_fn visit;
    int part; /* of a complex number */
    /* found: */
    int64_t shown, finite;
    double least, most; /* of the magnitudes, zeros apart */
    bool negative_infinity, any_infinite;
    bool exponent;
    int left, right, exponent_digits;
};

static bool skips(int64_t size, bool summary) { return summary && size > 2 * EDGE; }

static void walk(survey *s, int axis, int64_t at) {
    const ct_view *view = &s->x->view;
    if (axis == view->ndim) {
        s->visit(s, at);
        return;
    }
    int64_t size = view->dims[axis];
    for (int64_t i = 0; i < size; i++) {
        if (skips(size, s->summary) && i == EDGE) i = size - EDGE;
        walk(s, axis + 1, at + i * view->strides[axis]);
    }
}

/* ---- Formats: how wide, how precise ---- */

static void measure_range(survey *s, int64_t at) {
    double value = float_at(s->x, at, s->part);
    s->shown++;
    if (!isfinite(value)) {
        s->any_infinite |= isinf(value);
        s->negative_infinity |= value < 0;
        return;
    }
    s->finite++;
    double magnitude = fabs(value);
    if (magnitude == 0) return;
    if (s->most == 0 || magnitude > s->most) s->most = magnitude;
    if (s->least == 0 || magnitude < s->least) s->least = magnitude;
}

static int max_int(int a, int b) { return a > b ? a : b; }

static void measure_width(survey *s, int64_t at) {
    double value = float_at(s->x, at, s->part);
    if (!isfinite(value)) return;
    const char *plus = s->part ? "+" : "";
    char word[WORD];
    if (s->exponent) {
        decimal d = scientific(fabs(value), s->x->view.dtype);
        int left = write_scientific(word, &d, d.n - 1, 2, signbit(value), plus);
        s->left = max_int(s->left, left);
        s->right = max_int(s->right, d.n - 1);
        s->exponent_digits = max_int(s->exponent_digits, exponent_length(d.point - 1));
    } else {
        decimal d = positional(fabs(value), s->x->view.dtype);
        int left = write_positional(word, &d, signbit(value), plus);
        s->left = max_int(s->left, left);
        s->right = max_int(s->right, (int)strlen(word) - left - 1);
    }
}

static double rounded_to(ct_dtype dtype, double value) {
    char raw[16];
    ct__dtype_put(dtype, raw, value);
    return ct__dtype_get(dtype, raw);
}

/* Scientific where the range of the magnitudes is wide, or some are large (from about the dtype's precision on) or small. The
 * comparisons are made in the dtype. */
static survey float_format(const elements *x, bool summary, int part) {
    survey s = {.x = x, .summary = summary, .part = part, .visit = measure_range, .exponent_digits = 2};
    walk(&s, 0, 0);
    ct_dtype dtype = x->view.dtype;
    double large = dtype == CT_F64 ? 1e8 : dtype == CT_F32 || dtype == CT_COMPLEX64 ? 1e6 : 1e3;
    ct_dtype real = dtype == CT_COMPLEX64 ? CT_F32 : dtype;
    if (s.most > 0)
        s.exponent = s.most >= large || s.least < rounded_to(real, 1e-4) ||
                     rounded_to(real, s.most / s.least) > rounded_to(real, 1000);
    s.visit = measure_width;
    walk(&s, 0, 0);
    int total = s.exponent ? s.right + 2 + s.exponent_digits : s.right;
    if (s.finite < s.shown) { /* room for nan, inf and -inf */
        int offset = total + 1;
        s.left = max_int(s.left, 3 - offset);
        s.left = max_int(s.left, 3 + (s.negative_infinity || part) - offset);
    }
    return s;
}

static void measure_integer(survey *s, int64_t at) {
    char word[WORD];
    s->left = max_int(s->left, integer_text(s->x, at, word));
}

/* ---- Words ---- */

static void float_word(const survey *s, int64_t at, char *word) {
    double value = float_at(s->x, at, s->part);
    const char *plus = s->part ? "+" : "";
    int tail = s->exponent ? s->right + 2 + s->exponent_digits : s->right;
    char text[WORD];
    int left, width = s->left + 1 + tail;
    if (!isfinite(value)) {
        snprintf(text, sizeof text, "%s%s", isnan(value) ? plus : value < 0 ? "-" : plus, isnan(value) ? "nan" : "inf");
        snprintf(word, WORD, "%*s", width, text);
        return;
    }
    if (s->exponent) {
        decimal d = scientific(fabs(value), s->x->view.dtype);
        if (d.n - 1 < s->right)
            d = significant(fabs(value), s->right + 1); /* as many as the others have, and true ones */
        left = write_scientific(text, &d, s->right, s->exponent_digits, signbit(value), plus);
    } else {
        decimal d = positional(fabs(value), s->x->view.dtype);
        left = write_positional(text, &d, signbit(value), plus);
    }
    memset(word, ' ', (size_t)width);
    memcpy(word + s->left - left, text, strlen(text));
    word[width] = 0;
}

/* The formats of an array's elements. */
typedef struct format {
    const elements *x;
    survey part[2]; /* imaginary parts have one of their own */
    int width;      /* of integers */
    bool summary;
} format;

static void element_word(const format *f, int64_t at, char *word) {
    ct_dtype dtype = f->x->view.dtype;
    if (dtype == CT_BOOL) {
        snprintf(word, WORD, "%s", f->x->data[at] ? " True" : "False");
    } else if (has_integers(dtype)) {
        char text[WORD];
        integer_text(f->x, at, text);
        snprintf(word, WORD, "%*s", f->width, text);
    } else {
        float_word(&f->part[0], at, word);
        if (dtype != CT_COMPLEX64) return;
        char imaginary[WORD];
        float_word(&f->part[1], at, imaginary);
        size_t end = strlen(imaginary), length = strlen(word);
        while (end > 0 && imaginary[end - 1] == ' ') end--; /* j goes before the padding */
        snprintf(word + length, WORD - length, "%.*sj%s", (int)end, imaginary, imaginary + end);
    }
}

/* ---- Brackets and lines ---- */

static void put_word(writer *w, const char *word, int axis) {
    size_t width = (size_t)(LINE - axis - 1), indent = (size_t)axis + 1;
    if (w->column + strlen(word) > width && w->column > indent) {
        put_char(w, '\n');
        put_spaces(w, axis + 1);
    }
    put_text(w, word);
}

static void put_axis(writer *w, const format *f, int axis, int64_t at) {
    const ct_view *view = &f->x->view;
    int64_t size = view->dims[axis];
    bool last = axis == view->ndim - 1;
    put_char(w, '[');
    for (int64_t i = 0; i < size; i++) {
        bool ellipsis = skips(size, f->summary) && i == EDGE;
        char word[2 * WORD];
        if (i > 0 && last) put_char(w, ' ');
        for (int line = axis + 1; i > 0 && line < view->ndim; line++) put_char(w, '\n');
        if (i > 0 && !last) put_spaces(w, axis + 1);
        if (ellipsis) {
            if (last) put_word(w, "...", axis);
            else put_text(w, "...");
            i = size - EDGE - 1;
        } else if (last) {
            element_word(f, at + i * view->strides[axis], word);
            put_word(w, word, axis);
        } else {
            put_axis(w, f, axis + 1, at + i * view->strides[axis]);
        }
    }
    put_char(w, ']');
}

/* ---- Scalars ---- */

/* All digits; scientific below 1e-4 and from 1e16 (f32: 1e6, smaller ones: 1e3) on. `zero` is what follows a point at the end. */
static void scalar_float(char *word, double value, ct_dtype dtype, const char *plus, const char *zero) {
    if (!isfinite(value)) {
        snprintf(word, WORD, "%s%s", isnan(value) ? plus : value < 0 ? "-" : plus, isnan(value) ? "nan" : "inf");
        return;
    }
    double magnitude = fabs(value);
    decimal d = shortest(magnitude, dtype);
    ct_dtype real = dtype == CT_COMPLEX64 ? CT_F32 : dtype;
    double large = dtype == CT_F64 ? 1e16 : real == CT_F32 ? 1e6 : 1e3;
    if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= large)) {
        write_scientific(word, &d, d.n - 1, 2, signbit(value), plus);
        char *point = strchr(word, '.');
        if (point[1] == 'e') memmove(point, point + 1, strlen(point));
        return;
    }
    write_positional(word, &d, signbit(value), plus);
    size_t length = strlen(word);
    if (word[length - 1] == '.') snprintf(word + length - (*zero == 0), WORD - length, "%s", zero);
}

static void put_scalar(writer *w, const elements *x) {
    ct_dtype dtype = x->view.dtype;
    char word[WORD], imaginary[WORD];
    if (dtype == CT_BOOL) {
        put_text(w, x->data[0] ? "True" : "False");
    } else if (has_integers(dtype)) {
        integer_text(x, 0, word);
        put_text(w, word);
    } else if (dtype == CT_COMPLEX64) {
        double real = float_at(x, 0, 0);
        scalar_float(word, real, dtype, "", "");
        scalar_float(imaginary, float_at(x, 0, 1), dtype, "+", "");
        bool pure = real == 0 && !signbit(real);
        put_text(w, pure ? "" : "(");
        put_text(w, pure ? "" : word);
        put_text(w, imaginary + (pure && imaginary[0] == '+'));
        put_text(w, pure ? "j" : "j)");
    } else {
        scalar_float(word, float_at(x, 0, 0), dtype, "", "0");
        put_text(w, word);
    }
}

/* ---- The whole ---- */

static void put_tensor(writer *w, const elements *x) {
    int64_t count = ct__view_count(&x->view);
    if (count == 0) {
        put_text(w, "[]");
        return;
    }
    if (x->view.ndim == 0) {
        put_scalar(w, x);
        return;
    }
    format f = {.x = x, .summary = count > THRESHOLD};
    ct_dtype dtype = x->view.dtype;
    if (has_integers(dtype)) {
        survey s = {.x = x, .summary = f.summary, .visit = measure_integer};
        walk(&s, 0, 0);
        f.width = s.left;
    } else if (dtype != CT_BOOL) {
        f.part[0] = float_format(x, f.summary, 0);
        if (dtype == CT_COMPLEX64) f.part[1] = float_format(x, f.summary, 1);
    }
    put_axis(w, &f, 0, 0);
}

size_t ct_to_string(const ct_tensor *x, char *text, size_t capacity) {
    if (capacity && text) text[0] = 0;
    if (!ct__valid(x, "to_string", "x")) return 0;
    if (!x->storage) {
        ct_fail(CT_ERR_STATE, "to_string", "x has a shape but no data");
        return 0;
    }
    writer w = {.text = text, .capacity = text ? capacity : 0};
    elements e = {.view = x->view, .size = ct_dtype_size(x->view.dtype)};
    size_t bytes = 0;
    void *copy = NULL;
    if (x->storage->device.type == CT_CPU) {
        e.data = (const char *)x->view.buffer + x->view.offset * (int64_t)e.size;
    } else {
        bytes = (size_t)ct__view_count(&x->view) * e.size;
        copy = ct__alloc(bytes ? bytes : 1);
        if (!copy) ct__fail_memory("to_string", bytes);
        if (!copy || !ct_read(x, copy, bytes)) {
            ct__free(copy, bytes ? bytes : 1);
            return 0;
        }
        ct__view_dense_strides(&e.view);
        e.data = copy;
    }
    put_tensor(&w, &e);
    if (w.capacity) text[w.length < capacity ? w.length : capacity - 1] = 0;
    ct__free(copy, bytes ? bytes : 1);
    return w.length;
}

bool ct_print(const ct_tensor *x) {
    size_t length = ct_to_string(x, NULL, 0);
    if (length == 0) return false;
    char *text = ct__alloc(length + 2);
    if (!text) return ct__fail_memory("print", length + 2);
    ct_to_string(x, text, length + 1);
    text[length] = '\n';
    bool ok = fwrite(text, 1, length + 1, stdout) == length + 1;
    ct__free(text, length + 2);
    return ok ? true : ct_fail(CT_ERR_IO, "print", "standard output cannot be written");
}

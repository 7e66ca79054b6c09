/* Text of a tensor, as NumPy prints it: nested brackets, aligned columns, an ellipsis above a thousand elements. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/decimal.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/tensor.h"

enum { THRESHOLD = 1000, EDGE = 3, LINE = 75, PRECISION = 8, WORD = 400 };

/* ---- Text with a limit ---- */

/* Counts everything, keeps what fits. Spaces are held back, so that a line can drop those at its end. */
typedef struct writer {
    char *text;
    size_t capacity, length, column, spaces;
    bool grows; /* the text is the writer's own, and as long as it has to be; unless memory fails */
} writer;

/* Room for `more` characters and a zero. */
static void grow(writer *w, size_t more) {
    const size_t least = w->length + more + 1, capacity = least > 2 * w->capacity ? least : 2 * w->capacity;
    char *text = ct__alloc(capacity);
    if (text) {
        if (w->text) memcpy(text, w->text, w->length);
        ct__free(w->text, w->capacity);
        w->text = text;
        w->capacity = capacity;
    } else {
        w->grows = false; /* it goes on counting */
    }
}

static void put_char(writer *w, char c) {
    if (c == ' ') {
        w->spaces++;
        w->column++;
        return;
    }
    if (c == '\n') w->spaces = 0;
    if (w->grows && w->length + w->spaces + 1 >= w->capacity) grow(w, w->spaces + 1);
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

/* ---- Numbers ---- */

static int max_int(int a, int b) { return a > b ? a : b; }

static int exponent_length(int exponent) { return abs(exponent) >= 100 ? 3 : 2; }

/* At most PRECISION digits after the point; those beyond are rounded from the exact value. */
static ct__decimal positional(double magnitude, ct_dtype dtype) {
    ct__decimal d = ct__decimal_shortest(magnitude, dtype);
    return d.n - d.point > PRECISION ? ct__decimal_fraction(magnitude, PRECISION) : d;
}

static ct__decimal scientific(double magnitude, ct_dtype dtype) {
    ct__decimal d = ct__decimal_shortest(magnitude, dtype);
    if (d.n - 1 > PRECISION) {
        d = ct__decimal_significant(magnitude, PRECISION + 1);
        ct__decimal_trim(&d);
    }
    return d;
}

/* Writes d with its point; the fraction without zeros at its end. Returns the characters before the point. */
static int write_positional(char *to, const ct__decimal *d, bool negative, const char *plus) {
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
static int write_scientific(char *to, const ct__decimal *d, int places, int exponent_digits, bool negative,
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
    const int length = max_int(exponent_digits, exponent_length(exponent));
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    exponent = abs(exponent);
    for (int i = length; i-- > 0; exponent /= 10) at[i] = (char)('0' + exponent % 10);
    at[length] = 0;
    return left;
}

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

/* Its digits and sign; returns how many characters these are. */
static int integer_text(const elements *x, int64_t at, char *word) {
    const char *from = x->data + at * (int64_t)x->size;
    uint64_t magnitude;
    bool negative = false;
    if (x->view.dtype == CT_U64) {
        memcpy(&magnitude, from, sizeof magnitude);
    } else {
        int64_t value;
        if (x->view.dtype == CT_I64) memcpy(&value, from, sizeof value);
        else value = (int64_t)ct__dtype_get(x->view.dtype, from);
        negative = value < 0;
        magnitude = negative ? 0 - (uint64_t)value : (uint64_t)value;
    }
    char digits[24];
    int n = 0, length = 0;
    do {
        digits[n++] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    if (negative) word[length++] = '-';
    while (n > 0) word[length++] = digits[--n];
    word[length] = 0;
    return length;
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

static void measure_width(survey *s, int64_t at) {
    double value = float_at(s->x, at, s->part);
    if (!isfinite(value)) return;
    const char *plus = s->part ? "+" : "";
    char word[WORD];
    if (s->exponent) {
        ct__decimal d = scientific(fabs(value), s->x->view.dtype);
        int left = write_scientific(word, &d, d.n - 1, 2, signbit(value), plus);
        s->left = max_int(s->left, left);
        s->right = max_int(s->right, d.n - 1);
        s->exponent_digits = max_int(s->exponent_digits, exponent_length(d.point - 1));
    } else {
        ct__decimal d = positional(fabs(value), s->x->view.dtype);
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
        ct__decimal d = scientific(fabs(value), s->x->view.dtype);
        if (d.n - 1 < s->right)
            d = ct__decimal_significant(fabs(value), s->right + 1); /* as many as the others have, and true ones */
        left = write_scientific(text, &d, s->right, s->exponent_digits, signbit(value), plus);
    } else {
        ct__decimal d = positional(fabs(value), s->x->view.dtype);
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
        const int length = integer_text(f->x, at, text), pad = max_int(f->width - length, 0);
        memset(word, ' ', (size_t)pad);
        memcpy(word + pad, text, (size_t)length + 1);
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
    ct__decimal d = ct__decimal_shortest(magnitude, dtype);
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

/* False, with an error raised by `function`, when x cannot be read. */
static bool write_tensor(writer *w, const ct_tensor *x, const char *function) {
    if (!ct__valid(x, function, "x")) return false;
    if (!x->storage) return ct_fail(CT_ERR_STATE, function, "x has a shape but no data");
    elements e = {.view = x->view, .size = ct_dtype_size(x->view.dtype)};
    size_t bytes = 0;
    void *copy = NULL;
    if (x->storage->device.type == CT_CPU) {
        e.data = (const char *)x->view.buffer + x->view.offset * (int64_t)e.size;
    } else {
        bytes = (size_t)ct__view_count(&x->view) * e.size;
        copy = ct__alloc(bytes ? bytes : 1);
        if (!copy) ct__fail_memory(function, bytes);
        if (!copy || !ct_read(x, copy, bytes)) {
            ct__free(copy, bytes ? bytes : 1);
            return false;
        }
        ct__view_dense_strides(&e.view);
        e.data = copy;
    }
    put_tensor(w, &e);
    ct__free(copy, bytes ? bytes : 1);
    return true;
}

size_t ct_to_string(const ct_tensor *x, char *text, size_t capacity) {
    writer w = {.text = text, .capacity = text ? capacity : 0};
    if (w.capacity) text[0] = 0;
    if (!write_tensor(&w, x, "to_string")) return 0;
    if (w.capacity) text[w.length < capacity ? w.length : capacity - 1] = 0;
    return w.length;
}

bool ct_print(const ct_tensor *x) {
    writer w = {.grows = true};
    bool ok = write_tensor(&w, x, "print");
    if (ok) put_char(&w, '\n');
    if (ok && !w.grows) ok = ct__fail_memory("print", w.length + 1);
    if (ok && fwrite(w.text, 1, w.length, stdout) != w.length)
        ok = ct_fail(CT_ERR_IO, "print", "standard output cannot be written");
    ct__free(w.text, w.capacity);
    return ok;
}

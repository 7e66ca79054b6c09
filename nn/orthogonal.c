/* Orthonormal rows by Householder reflections, for ct_init_orthogonal. Rows of a in R^(r x c), r <= c, are the vectors: this
 * is the LQ form of what LAPACK's geqrf and orgqr do by columns, after Schreiber and Van Loan, "A storage-efficient WY
 * representation for products of Householder transformations" (1989). A panel of rows is reflected one row at a time; the
 * product of its reflections is I - V' T V, and what lies below it is multiplied by that in three matrix products, where
 * nearly all of the work is. All of it is f64, whatever the weight's dtype, and each product has the same bits for any number
 * of threads.
 *
 * A reflection keeps lengths to rounding whatever the rows are, so the result is orthogonal to rounding too, which
 * Gram-Schmidt only reaches by doing everything twice. */
#include "nn/orthogonal.h"

#include <math.h>

enum { PANEL = 128, BLOCK = 256, LANES = 8 };

/* In LANES sums, whose order is written here and not left to the compiler. */
static double dot(const double *x, const double *y, int64_t n) {
    double sums[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += x[i + k] * y[i + k];
    for (; i < n; i++) rest += x[i] * y[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sums[k] += sums[k + half];
    return sums[0] + rest;
}

/* Reflects the rows of a panel onto the lower triangle, one after the other, and leaves the vectors of the reflections in
 * their place. panel: rows by columns, a step apart. scale[j]: 2 / v'v. sign[j]: that of the triangle's diagonal. */
static void reflect_panel(double *panel, int64_t rows, int64_t columns, int64_t step, double *scale, double *sign) {
    for (int64_t j = 0; j < rows; j++) {
        double *v = panel + j * step; /* what lies before column j belongs to the triangle, which nobody wants */
        for (int64_t k = 0; k < j; k++) v[k] = 0;
        const int64_t n = columns - j;
        const double norm = sqrt(dot(v + j, v + j, n)), diagonal = v[j] > 0 ? -norm : norm; /* no cancellation */
        sign[j] = diagonal < 0 ? -1 : 1;
        v[j] -= diagonal;
        const double length = dot(v + j, v + j, n);
        scale[j] = length > 0 ? 2 / length : 0;
        for (int64_t i = j + 1; i < rows; i++) {
            double *row = panel + i * step;
            const double by = scale[j] * dot(row + j, v + j, n);
            for (int64_t k = j; k < columns; k++) row[k] -= by * v[k];
        }
    }
}

/* The upper triangle T, so that the reflections of v in turn are I - V' T V. products: V V', rows by rows. */
static void fill_triangle(double *t, const double *products, const double *scale, int64_t rows) {
    for (int64_t j = 0; j < rows; j++) {
        t[j * rows + j] = scale[j];
        for (int64_t i = 0; i < j; i++) {
            double sum = 0;
            for (int64_t k = i; k < j; k++) sum += t[i * rows + k] * products[k * rows + j];
            t[i * rows + j] = -scale[j] * sum;
        }
    }
}

static ct_tensor *part(ct_tensor *x, int64_t row, int64_t rows, int64_t column) {
    return ct_narrow(ct_narrow(x, 0, row, rows), 1, column, ct_dim(x, 1) - column);
}

/* x -= (x V') T V, where x are rows of the matrix, from the panel's column on; some rows at a time, so that the product
 * stays in memory that is at hand. */
static bool multiply(ct_tensor *x, ct_tensor *v, ct_tensor *t) {
    bool done = true;
    for (int64_t row = 0, all = ct_dim(x, 0); done && row < all; row += BLOCK) {
        ct_scope {
            ct_tensor *rows = ct_narrow(x, 0, row, all - row < BLOCK ? all - row : BLOCK);
            done = ct_sub_(rows, ct_matmul(ct_matmul(ct_matmul(rows, ct_t(v)), t), v)) != NULL;
        }
    }
    return done;
}

/* One panel: its vectors in its rows of a, its triangle in t, and the rows below multiplied. */
static bool reduce_panel(ct_tensor *a, int64_t first, int64_t rows, ct_tensor *t, double *sign) {
    const int64_t height = ct_dim(a, 0), width = ct_dim(a, 1);
    double scale[PANEL];
    double *data = ct_data_mut(a);
    if (!data) return false;
    reflect_panel(data + first * width + first, rows, width - first, width, scale, sign + first);
    bool done = false;
    ct_scope {
        ct_tensor *v = part(a, first, rows, first), *products = ct_contiguous(ct_matmul(v, ct_t(v)));
        double *triangle = ct_data_mut(t);
        if (products && triangle) {
            fill_triangle(triangle, ct_data(products), scale, rows);
            const int64_t below = first + rows;
            done = below == height || multiply(part(a, below, height - below, first), v, t);
        }
    }
    return done;
}

ct_tensor *ct__orthonormal_rows(ct_tensor *a) {
    const int64_t height = ct_dim(a, 0), width = ct_dim(a, 1), panels = (height + PANEL - 1) / PANEL;
    bool good = height > 0;
    ct_tensor *q = NULL;
    ct_scope {
        ct_tensor *signs = ct_ones(CT_DIMS(height, 1), .dtype = CT_F64, .device = ct_device_of(a));
        ct_tensor *triangles = ct_zeros(CT_DIMS(panels, PANEL, PANEL), .dtype = CT_F64, .device = ct_device_of(a));
        double *sign = ct_data_mut(signs);
        good = good && sign && triangles;
        for (int64_t p = 0; good && p < panels; p++) {
            const int64_t first = p * PANEL, rows = height - first < PANEL ? height - first : PANEL;
            ct_scope {
                ct_tensor *t = ct_zeros(CT_DIMS(rows, rows), .dtype = CT_F64, .device = ct_device_of(a));
                good = reduce_panel(a, first, rows, t, sign) &&
                       ct_assign(ct_narrow(ct_narrow(ct_select(triangles, 0, p), 0, 0, rows), 1, 0, rows), t);
            }
        }
        /* The rows of the identity times the reflections, the last first. Above a panel they are still the identity's, and
         * its reflections leave these alone. */
        q = good ? ct_eye(height, .m = width, .dtype = CT_F64, .device = ct_device_of(a)) : NULL;
        for (int64_t p = panels; good && q && p-- > 0;) {
            const int64_t first = p * PANEL, rows = height - first < PANEL ? height - first : PANEL;
            ct_scope {
                ct_tensor *t = ct_narrow(ct_narrow(ct_select(triangles, 0, p), 0, 0, rows), 1, 0, rows);
                good = multiply(part(q, first, height - first, first), part(a, first, rows, first), ct_t(t));
            }
        }
        /* With a positive diagonal the factors are unique, and normal numbers give every rotation alike: Mezzadri, "How to
         * generate random matrices from the classical compact groups" (2007). */
        q = good && q ? ct_pass(ct_mul(q, signs)) : NULL;
    }
    return q;
}

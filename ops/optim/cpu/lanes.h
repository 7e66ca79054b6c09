/* The arithmetic of the steps on one vector of elements of each tensor of an item: x[0] what is learned, x[1] the
 * gradient, then the states. Included once for f32 and once for f64, with T the element, V the vector and DO(name)
 * its functions. The numbers (optim.h) are doubles; what is made of them is the same for all vectors, and the
 * compiler takes it out of the loop. */

#define NUMBER(value)   DO(set1)((T)(value))
#define TIMES(x, value) DO(mul)((x), NUMBER(value))

/* a keep + b rest */
SIMD_INLINE V OF(mix)(V a, V b, double keep, double rest) { return DO(fma)(b, NUMBER(rest), TIMES(a, keep)); }

SIMD_INLINE V OF(gradient)(const V *x, double scale, double decay) {
    return DO(fma)(x[0], NUMBER(decay), TIMES(x[1], scale));
}

SIMD_INLINE void OF(sgd)(const sgd_numbers *a, V *x, int width) {
    V g = OF(gradient)(x, a->scale, a->decay);
    if (width > 2) {
        x[2] = OF(mix)(x[2], g, a->keep, a->take);
        g = a->nesterov ? DO(fma)(x[2], NUMBER(a->momentum), g) : x[2];
    }
    x[0] = DO(fnma)(g, NUMBER(a->lr), x[0]);
}

SIMD_INLINE void OF(adam)(const adam_numbers *a, V *x, int width) {
    const V g = OF(gradient)(x, a->scale, a->decay);
    x[2] = OF(mix)(x[2], g, a->beta1, a->rest1);
    x[3] = OF(mix)(x[3], DO(mul)(g, g), a->beta2, a->rest2);
    if (width > 4) x[4] = DO(max)(x[4], x[3]);
    V u = DO(fma)(g, NUMBER(a->gradient), TIMES(x[2], a->moment));
    if (!a->plain) u = DO(div)(u, DO(fma)(DO(sqrt)(x[width - 1]), NUMBER(a->root), NUMBER(a->eps)));
    x[0] = DO(sub)(TIMES(x[0], a->shrink), u);
}

SIMD_INLINE void OF(rmsprop)(const rmsprop_numbers *a, V *x, int width) {
    const V g = OF(gradient)(x, a->scale, a->decay);
    V v = x[2] = OF(mix)(x[2], DO(mul)(g, g), a->alpha, a->rest);
    if (width > 3 && a->centered) {
        x[3] = OF(mix)(x[3], g, a->alpha, a->rest);
        v = DO(fnma)(x[3], x[3], v);
    }
    V u = DO(div)(g, DO(add)(DO(sqrt)(v), NUMBER(a->eps)));
    if (width > 3 + a->centered) u = x[width - 1] = DO(fma)(x[width - 1], NUMBER(a->momentum), u);
    x[0] = DO(fnma)(u, NUMBER(a->lr), x[0]);
}

SIMD_INLINE void OF(adagrad)(const adagrad_numbers *a, V *x, int width) {
    (void)width;
    const V g = OF(gradient)(x, a->scale, a->decay);
    x[2] = DO(fma)(g, g, x[2]);
    x[0] = DO(sub)(x[0], DO(div)(TIMES(g, a->lr), DO(add)(DO(sqrt)(x[2]), NUMBER(a->eps))));
}

SIMD_INLINE void OF(adadelta)(const adadelta_numbers *a, V *x, int width) {
    (void)width;
    const V g = OF(gradient)(x, a->scale, a->decay), eps = NUMBER(a->eps);
    x[2] = OF(mix)(x[2], DO(mul)(g, g), a->rho, a->rest);
    const V u = DO(mul)(DO(div)(DO(sqrt)(DO(add)(x[3], eps)), DO(sqrt)(DO(add)(x[2], eps))), g);
    x[3] = OF(mix)(x[3], DO(mul)(u, u), a->rho, a->rest);
    x[0] = DO(fnma)(u, NUMBER(a->lr), x[0]);
}

SIMD_INLINE void OF(lion)(const lion_numbers *a, V *x, int width) {
    (void)width;
    const V g = TIMES(x[1], a->scale), c = OF(mix)(x[2], g, a->beta1, a->rest1);
    /* the sign of zero is zero, of NaN NaN */
    const V sign = DO(select)(DO(eq)(c, c), DO(copysign)(NUMBER(1), c), c), zero = DO(zero)();
    const V u = DO(select)(DO(eq)(c, zero), zero, sign);
    x[0] = DO(fnma)(u, NUMBER(a->lr), TIMES(x[0], a->shrink));
    x[2] = OF(mix)(x[2], g, a->beta2, a->rest2);
}

SIMD_INLINE V OF(lamb_direction)(const lamb_numbers *a, const V *x) {
    const V u = DO(div)(TIMES(x[2], a->moment), DO(fma)(DO(sqrt)(x[3]), NUMBER(a->root), NUMBER(a->eps)));
    return DO(fma)(x[0], NUMBER(a->decay), u);
}

SIMD_INLINE void OF(average)(const average_numbers *a, V *x, int width) {
    (void)width;
    /* From the one that counts more, by the difference: the average of what never changes (a frozen parameter) is that
     * to the bit, and with keep 0 it is the new value. Half the difference, since the whole one may overflow. */
    if (a->keep == 0) {
        x[0] = x[1];
        return;
    }
    const int heavy = a->keep >= 0.5 ? 0 : 1;
    const V half = DO(fma)(x[heavy], NUMBER(0.5), TIMES(x[1 - heavy], -0.5));
    x[0] = DO(fnma)(half, NUMBER(2 * (heavy ? a->keep : a->rest)), x[heavy]);
}

/* ---- Whole runs of elements: n is a multiple of LANES ---- */

/* name##_N: the step on items of N tensors, all of them but the gradient written back. */
#define RUN(name, N)                                                                                        \
    static void OF(name##_##N)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) { \
        const name##_numbers a = *(const name##_numbers *)numbers;                                          \
        (void)factor, (void)sums;                                                                           \
        for (int64_t i = 0; i < n; i += LANES) {                                                            \
            V x[N];                                                                                         \
            for (int k = 0; k < N; k++) x[k] = DO(load)(at[k] + i);                                         \
            OF(name)(&a, x, N);                                                                             \
            for (int k = 0; k < N; k += 1 + (k == 0)) DO(store)(at[k] + i, x[k]);                           \
        }                                                                                                   \
    }
RUN(sgd, 2)
RUN(sgd, 3)
RUN(adam, 4)
RUN(adam, 5)
RUN(rmsprop, 3)
RUN(rmsprop, 4)
RUN(rmsprop, 5)
RUN(adagrad, 3)
RUN(adadelta, 4)
RUN(lion, 3)
RUN(average, 2)

/* First pass of LAMB: the moments, and the squared lengths of parameter and direction. */
static void OF(lamb_moments)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    const lamb_numbers a = *(const lamb_numbers *)numbers;
    OF(squares) weight = OF(squares_zero)(), step = weight;
    (void)factor;
    for (int64_t i = 0; i < n; i += LANES) {
        V x[4];
        for (int k = 0; k < 4; k++) x[k] = DO(load)(at[k] + i);
        const V g = TIMES(x[1], a.scale);
        x[2] = OF(mix)(x[2], g, a.beta1, a.rest1);
        x[3] = OF(mix)(x[3], DO(mul)(g, g), a.beta2, a.rest2);
        OF(squares_add)(&weight, x[0]);
        OF(squares_add)(&step, OF(lamb_direction)(&a, x));
        DO(store)(at[2] + i, x[2]);
        DO(store)(at[3] + i, x[3]);
    }
    sums[0] = OF(squares_sum)(&weight);
    sums[1] = OF(squares_sum)(&step);
}

/* Second pass: the direction again, times lr and the ratio of the lengths. */
static void OF(lamb_step)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    const lamb_numbers a = *(const lamb_numbers *)numbers;
    const V rate = NUMBER(a.lr * factor);
    (void)sums;
    for (int64_t i = 0; i < n; i += LANES) {
        const V x[4] = {DO(load)(at[0] + i), DO(zero)(), DO(load)(at[2] + i), DO(load)(at[3] + i)};
        DO(store)(at[0] + i, DO(fnma)(OF(lamb_direction)(&a, x), rate, x[0]));
    }
}

static void OF(lars_lengths)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    OF(squares) weight = OF(squares_zero)(), gradient = weight;
    (void)numbers, (void)factor;
    for (int64_t i = 0; i < n; i += LANES) {
        OF(squares_add)(&weight, DO(load)(at[0] + i));
        OF(squares_add)(&gradient, DO(load)(at[1] + i));
    }
    sums[0] = OF(squares_sum)(&weight);
    sums[1] = OF(squares_sum)(&gradient);
}

static void OF(lars_step)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    const lars_numbers a = *(const lars_numbers *)numbers;
    const V rate = NUMBER(a.lr * factor), momentum = NUMBER(a.momentum);
    (void)sums;
    for (int64_t i = 0; i < n; i += LANES) {
        const V x[2] = {DO(load)(at[0] + i), DO(load)(at[1] + i)};
        const V u = DO(mul)(OF(gradient)(x, a.scale, a.decay), rate);
        const V b = DO(fma)(DO(load)(at[2] + i), momentum, u);
        DO(store)(at[2] + i, b);
        DO(store)(at[0] + i, DO(sub)(x[0], a.nesterov ? DO(fma)(b, momentum, u) : b));
    }
}

/* sums[0]: 1 where a result is not finite. */
static void OF(scale_1)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    const V by = NUMBER(*(const double *)numbers);
    V rest = DO(zero)(); /* x - x is 0 but for what is not finite */
    (void)factor;
    for (int64_t i = 0; i < n; i += LANES) {
        const V y = DO(mul)(DO(load)(at[0] + i), by);
        rest = DO(add)(rest, DO(sub)(y, y));
        DO(store)(at[0] + i, y);
    }
    const T left = DO(hsum)(rest);
    sums[0] = left == 0 ? 0 : 1;
}

static void OF(norm_1)(const void *numbers, T *const *at, int64_t n, double factor, double *sums) {
    const double kind = *(const double *)numbers;
    const T *x = at[0];
    (void)factor;
    if (kind == 2) {
        OF(squares) s = OF(squares_zero)();
        for (int64_t i = 0; i < n; i += LANES) OF(squares_add)(&s, DO(load)(x + i));
        sums[0] = OF(squares_sum)(&s);
    } else if (isinf(kind)) {
        V m = DO(zero)();
        for (int64_t i = 0; i < n; i += LANES) m = DO(max)(m, DO(abs)(DO(load)(x + i)));
        sums[0] = (double)DO(hmax)(m);
    } else {
        double s = 0;
        for (int64_t i = 0; i < n; i++) s += pow(fabs((double)x[i]), kind);
        sums[0] = s;
    }
}

#undef NUMBER
#undef TIMES
#undef RUN

/* A row of the gradient of repeated padding, a template: D is the dtype by its short name, T its element, SUM what
 * is summed in, LOAD and STORE_ROW between the two. Included by pad_repeat.c. */
#define OF(x) CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)

static void OF(sum)(const job *j, void *sums, const char *row) {
    const int last = j->ndim - 1;
    const int64_t width = j->large->dims[last], size = j->small->dims[last], before = j->before[last];
    const int64_t step = j->large->strides[last];
    const T *g = (const T *)(const void *)row;
    SUM *sum = sums;
    for (int64_t i = 0; i < size; i++) sum[i] += LOAD(g + (before + i) * step);
    for (int64_t o = 0; o < width; o++) {
        if (o == before) o += size;
        if (o < width) sum[source(j->mode, o - before, size)] += LOAD(g + o * step);
    }
}

static void OF(put)(char *dst, int64_t stride, const void *sums, int64_t n) {
    T *to = (T *)(void *)dst;
    const SUM *sum = sums;
    STORE_ROW(to, stride, sum, n);
}

#undef OF
#undef D
#undef T
#undef SUM
#undef LOAD
#undef STORE_ROW

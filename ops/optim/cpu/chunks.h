/* Elements of one item, a template: D is f32 or f64, T its type, DTYPE its dtype, LANES those of its vector.
 * Included by optim.c. */
#define OF(x) CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)

/* A run of m elements; the last ones, less than a vector, as the beginning of a vector with zeros behind, which
 * change no sum. */
static void OF(run)(const job *j, int width, T *const *at, int64_t m, double factor, double *sums, bool largest) {
    const int64_t whole = m - m % (LANES), rest = m - whole;
    if (whole) {
        double part[2] = {0, 0};
        j->does.D(j->numbers, at, whole, factor, part);
        merge(sums, part, largest);
    }
    if (rest) {
        T last[OPTIM_WIDTH][LANES] = {{0}}, *end[OPTIM_WIDTH];
        double part[2] = {0, 0};
        for (int k = 0; k < width; k++) end[k] = memcpy(last[k], at[k] + whole, (size_t)rest * sizeof(T));
        j->does.D(j->numbers, end, LANES, factor, part);
        for (int k = 0; k < width; k++)
            if (j->does.writes >> k & 1) memcpy(at[k] + whole, last[k], (size_t)rest * sizeof(T));
        merge(sums, part, largest);
    }
}

static void OF(elements)(const job *j, int item, int64_t start, int64_t n, double *sums, bool largest) {
    const ct_view *const *views = j->in + (int64_t)item * j->width + j->master;
    const ct_view *rounded = j->master ? views[-1] : NULL;
    const int width = j->width - j->master;
    T *at[OPTIM_WIDTH], room[OPTIM_WIDTH][BLOCK];
    bool dense[OPTIM_WIDTH], direct[OPTIM_WIDTH], all = !rounded;
    for (int k = 0; k < width; k++) {
        dense[k] = is_dense(views[k]);
        direct[k] = dense[k] && views[k]->dtype == (DTYPE);
        all = all && direct[k];
    }
    const bool rounded_dense = rounded && is_dense(rounded);
    const int64_t most = all ? n : BLOCK;
    const double factor = j->factors ? j->factors[item] : 1;
    for (int64_t done = 0; done < n; done += most) {
        const int64_t m = ct__min64(most, n - done), from = start + done;
        for (int k = 0; k < width; k++) {
            at[k] = direct[k] ? CT_AT(T, views[k]) + from : room[k];
            if (!direct[k]) OF(fetch)(views[k], dense[k], from, room[k], m);
        }
        OF(run)(j, width, at, m, factor, sums, largest);
        for (int k = 0; k < width; k++)
            if (!direct[k] && (j->does.writes >> k & 1)) OF(put)(views[k], dense[k], from, room[k], m);
        if (rounded && (j->does.writes & 1)) OF(put)(rounded, rounded_dense, from, at[0], m);
    }
}

#undef OF
#undef D
#undef T
#undef DTYPE
#undef LANES

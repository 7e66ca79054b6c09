/* The same bits at any number of threads, with every kernel's work cut into as many chunks as its grain allows. */
#include <stdlib.h>
#include <string.h>

#include "core/threads.h"
#include "tests/opcheck.h"

/* All results of one sample as they lie in memory. */
typedef struct bits {
    size_t bytes;
    char *data;
} bits;

static bool collect(const opcheck_sample *sample, ct_dtype dtype, bits *to) {
    bool ok = true;
    *to = (bits){0};
    ct_scope {
        ct_tensor *in[OPCHECK_INPUTS], *out[OPCHECK_OUTPUTS + OPCHECK_INPUTS];
        for (int i = 0; i < sample->n_in; i++) {
            const opcheck_input *input = &sample->in[i];
            in[i] = NULL;
            if (input->skipped) continue;
            int64_t count = opcheck_count(input->shape);
            double *values = malloc(((size_t)count + 1) * sizeof *values);
            opcheck_fill(input, i, false, values, count);
            bool fixed = opcheck_is_index(input) || strcmp(input->domain, "i64") == 0;
            ct_dtype own = strcmp(input->domain, "bool") == 0 ? CT_BOOL : fixed ? CT_I64 : dtype;
            in[i] = opcheck_place(own, input->shape, values, OPCHECK_DENSE);
            free(values);
        }
        ok = ct_ok() && opcheck_apply(sample, in, out);
        int n = sample->n_out;
        for (int i = 0; i < sample->n_in; i++)
            if (in[i] && (sample->in[i].flags & CT_ARG_MUTATED)) out[n++] = in[i];
        for (int i = 0; ok && i < n; i++) {
            size_t bytes = (size_t)ct_numel(out[i]) * ct_dtype_size(ct_dtype_of(out[i]));
            to->data = realloc(to->data, to->bytes + bytes + 1);
            ok = ct_read(out[i], to->data + to->bytes, bytes);
            to->bytes += bytes;
        }
    }
    return ok;
}

enum { SAMPLES = 64 };

void opcheck_threads(opcheck *check) {
    if (opcheck_is_unset(check->op)) return;
    static const int threads[] = {1, 2, 7};
    static const struct {
        ct_dtype dtype;
        const char *level;
    } kinds[] = {{CT_F32, NULL}, {CT_F64, NULL}, {CT_BF16, NULL}, {CT_F32, "base"}};
    const char *best = ct_isa();
    int before = ct_get_threads();
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        if (!ct_device_has_dtype(ct_get_device(), kinds[kind].dtype)) continue;
        bits first[SAMPLES] = {{0}};
        ct_set_isa(kinds[kind].level ? kinds[kind].level : best);
        for (int t = 0; t < 3; t++) {
            ct_set_threads(threads[t]);
            opcheck_sample sample;
            const char *at = check->op->samples;
            for (int s = 0; s < SAMPLES && opcheck_next_sample(check, &at, &sample); s++) {
                bits now;
                /* one element a chunk; where that would be tens of thousands, a few hundred chunks */
                ct__set_grain(sample.largest > 4096 ? 64 : 1);
                bool ok = collect(&sample, kinds[kind].dtype, &now);
                opcheck_expect(check, ok, "%s, %d threads: %s", ct_dtype_name(kinds[kind].dtype), threads[t],
                               ct_error());
                ct_error_clear();
                if (t == 0) {
                    first[s] = now;
                } else {
                    bool same = now.bytes == first[s].bytes &&
                                (now.bytes == 0 || memcmp(now.data, first[s].data, now.bytes) == 0);
                    opcheck_expect(check, !ok || same, "%s at %s: other bits with %d threads than with 1",
                                   ct_dtype_name(kinds[kind].dtype), ct_isa(), threads[t]);
                    free(now.data);
                }
                opcheck_free_sample(&sample);
            }
        }
        for (int s = 0; s < SAMPLES; s++) free(first[s].data);
    }
    ct__set_grain(0);
    ct_set_threads(before);
    ct_set_isa(best);
}

/* Mutated IDX files must be refused with an error or read in full, never crash. By itself a program with a fixed seed
 * and number of inputs; with -DFUZZ_LIBFUZZER the entry point of libFuzzer. */
#include <cotangent.h>

#include "data/idx.h"
#include "tests/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses size bytes from a block of exactly that size, so that the sanitizer sees a read past its end. */
static bool parse_exact(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return true;
    memcpy(copy, bytes, size);
    bool sound = true;
    ct_scope {
        ct_tensor *x = ct__idx_parse(copy, size, "fuzz.idx");
        /* what was read has to be all of what was there */
        if (x)
            sound = ct_ok() && (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x)) + 4 + 4 * (size_t)ct_ndim(x) == size;
        else sound = !ct_ok() && (ct_error_code() == CT_ERR_IO || ct_error_code() == CT_ERR_MEMORY) && ct_error()[0];
        if (!sound) fprintf(stderr, "unsound answer: tensor %p, error '%s'\n", (void *)x, ct_error());
    }
    ct_error_clear();
    free(copy);
    return sound;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!parse_exact(data, size)) abort();
    return 0;
}

#else

enum { INPUTS = 20000, LONGEST = 256 };

/* A sound file to begin with. */
static size_t make_seed(uint8_t *bytes) {
    static const uint8_t types[] = {0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e}, sizes[] = {1, 1, 2, 4, 4, 8};
    const size_t type = fuzz_below(sizeof types), dims = 1 + fuzz_below(4);
    size_t count = sizes[type], size = 0;
    bytes[size++] = 0;
    bytes[size++] = 0;
    bytes[size++] = types[type];
    bytes[size++] = (uint8_t)dims;
    for (size_t i = 0; i < dims; i++) {
        const size_t d = fuzz_below(3) + (i > 0);
        memset(bytes + size, 0, 3);
        bytes[size + 3] = (uint8_t)d;
        size += 4;
        count *= d;
    }
    for (size_t i = 0; i < count && size < LONGEST; i++) bytes[size++] = (uint8_t)fuzz_next();
    return size;
}

static size_t mutate(uint8_t *bytes, size_t size) {
    for (size_t changes = 1 + fuzz_below(3); changes > 0; changes--) {
        switch (fuzz_below(5)) {
        case 0: /* one bit of the header */
            if (size) bytes[fuzz_below(size < 20 ? size : 20)] ^= (uint8_t)(1u << fuzz_below(8));
            break;
        case 1: /* one byte of it */
            if (size) bytes[fuzz_below(size < 20 ? size : 20)] = (uint8_t)fuzz_next();
            break;
        case 2: /* cut */ size = size ? fuzz_below(size) : 0; break;
        case 3: /* garbage behind */
            for (size_t more = fuzz_below(20); more > 0 && size < LONGEST; more--) bytes[size++] = (uint8_t)fuzz_next();
            break;
        default: /* huge dimensions */
            if (size > 8) memset(bytes + 4 + 4 * fuzz_below((size - 4) / 4), 0xff, 4);
        }
    }
    return size;
}

int main(void) {
    uint8_t bytes[LONGEST + 64];
    int failed = 0, unread = 0;
    const int64_t before = ct_live_objects();
    for (int i = 0; i < INPUTS; i++) {
        size_t size = make_seed(bytes);
        if (i < 100) {
            ct_scope {
                unread += ct__idx_parse(bytes, size, "seed.idx") == NULL;
            }
            if (!ct_ok()) printf("seed %d: %s\n", i, ct_error());
            ct_error_clear();
        }
        size = mutate(bytes, size);
        if (!parse_exact(bytes, size)) {
            printf("FAILED input %d\n", i);
            failed = 1;
        }
    }
    const int leaks = ct_live_objects() != before;
    if (leaks) printf("FAILED: %lld objects are left\n", (long long)(ct_live_objects() - before));
    if (unread) printf("FAILED: %d of 100 seeds were not read\n", unread);
    const int all = failed + leaks + (unread != 0);
    printf("%d passed, %d failed\n", 3 - all, all);
    return all != 0;
}

#endif

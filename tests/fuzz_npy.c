/* Mutated .npy files must be refused with an error or read in full, never crash. By itself a program with a fixed seed
 * and number of inputs; with -DFUZZ_LIBFUZZER the entry point of libFuzzer. */
#include <cotangent.h>

#include "io/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses size bytes from a block of exactly that size, so that the sanitizer sees a read past its end. */
static bool parse_exact(const uint8_t *bytes, size_t size, bool bf16) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return true;
    memcpy(copy, bytes, size);
    bool sound = true;
    ct_scope {
        ct_tensor *x = ct__npy_parse(copy, size, "fuzz.npy", bf16);
        if (x) {
            /* what was read has to fit in what was there */
            sound = ct_ok() && (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x)) <= size;
        } else {
            sound = !ct_ok() && (ct_error_code() == CT_ERR_IO || ct_error_code() == CT_ERR_MEMORY) && ct_error()[0];
        }
        if (!sound) fprintf(stderr, "unsound answer: tensor %p, error '%s'\n", (void *)x, ct_error());
    }
    ct_error_clear();
    free(copy);
    return sound;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!parse_exact(data, size, size & 1)) abort();
    return 0;
}

#else

enum { INPUTS = 20000, LONGEST = 1024 };

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t next(void) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}
static size_t below(size_t n) { return (size_t)(next() % n); }

/* A sound file to begin with: version, dict text, and as many bytes of data as given. */
static size_t make_seed(uint8_t *bytes, int version, const char *dict, size_t data) {
    const size_t text = strlen(dict), start = version == 1 ? 10 : 12;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    for (size_t i = 8; i < start; i++) bytes[i] = (uint8_t)(text >> (8 * (i - 8)));
    memcpy(bytes + start, dict, text);
    for (size_t i = 0; i < data; i++) bytes[start + text + i] = (uint8_t)next();
    return start + text + data;
}

static const struct {
    int version;
    const char *dict;
    size_t data;
} seeds[] = {
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24},
    {1, "{'descr': '>f8', 'fortran_order': True, 'shape': (2, 2, 2), }\n", 64},
    {2, "{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }\n", 7},
    {3, "{'descr': '<c8', 'fortran_order': True, 'shape': (), }\n", 8},
    {1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }\n", 0},
    {1, "{'descr': '>u2', 'fortran_order': True, 'shape': (1, 2, 3, 1, 2, 1, 1, 2), }\n", 48},
};
enum { SEED_COUNT = sizeof seeds / sizeof *seeds };

static size_t mutate(uint8_t *bytes, size_t size) {
    static const char *const words[] = {"9223372036854775807",
                                        "4611686018427387904",
                                        "-1",
                                        "(",
                                        ")",
                                        ",",
                                        "'",
                                        "{",
                                        "}",
                                        "|O",
                                        "True",
                                        "shape",
                                        "0",
                                        "L",
                                        "\n"};
    for (size_t changes = 1 + below(4); changes > 0; changes--) {
        switch (below(7)) {
        case 0: /* one bit */
            if (size) bytes[below(size)] ^= (uint8_t)(1u << below(8));
            break;
        case 1: /* one byte of the first 80, where the header is */
            if (size) bytes[below(size < 80 ? size : 80)] = (uint8_t)next();
            break;
        case 2: /* cut */ size = size ? below(size) : 0; break;
        case 3: /* garbage behind */
            for (size_t more = below(20); more > 0 && size < LONGEST; more--) bytes[size++] = (uint8_t)next();
            break;
        case 4: { /* a word over it */
            const char *word = words[below(sizeof words / sizeof *words)];
            const size_t length = strlen(word);
            if (size > length) memcpy(bytes + below(size - length), word, length);
            break;
        }
        case 5: { /* a word into it, with the header's length put right half of the time */
            const char *word = words[below(sizeof words / sizeof *words)];
            const size_t length = strlen(word);
            if (size < 20 || size + length > LONGEST) break;
            const size_t at = 10 + below(size - 10);
            memmove(bytes + at + length, bytes + at, size - at);
            memcpy(bytes + at, word, length);
            size += length;
            if (next() & 1) bytes[8] = (uint8_t)(bytes[8] + length);
            break;
        }
        default: { /* a stretch copied elsewhere */
            if (size < 2) break;
            const size_t from = below(size), to = below(size);
            size_t length = below(16);
            if (length > size - from) length = size - from;
            if (length > size - to) length = size - to;
            memmove(bytes + to, bytes + from, length);
        }
        }
    }
    return size;
}

int main(void) {
    uint8_t bytes[LONGEST + 64];
    int failed = 0, read = 0;
    const int64_t before = ct_live_objects();
    for (int i = 0; i < SEED_COUNT; i++) {
        const size_t size = make_seed(bytes, seeds[i].version, seeds[i].dict, seeds[i].data);
        ct_scope {
            read += ct__npy_parse(bytes, size, "seed.npy", false) != NULL;
        }
        if (!ct_ok()) printf("seed %d: %s\n", i, ct_error());
        ct_error_clear();
    }
    for (int i = 0; i < INPUTS; i++) {
        const size_t seed = below(SEED_COUNT);
        const size_t size = mutate(bytes, make_seed(bytes, seeds[seed].version, seeds[seed].dict, seeds[seed].data));
        if (!parse_exact(bytes, size, i & 1)) {
            printf("FAILED input %d\n", i);
            failed = 1;
        }
    }
    const int leaks = ct_live_objects() != before;
    if (leaks) printf("FAILED: %lld objects are left\n", (long long)(ct_live_objects() - before));
    if (read != SEED_COUNT) printf("FAILED: %d of %d seeds were read\n", read, SEED_COUNT);
    const int all = failed + leaks + (read != SEED_COUNT);
    printf("%d passed, %d failed\n", 3 - all, all);
    return all != 0;
}

#endif

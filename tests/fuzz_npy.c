/* Fuzzes the reader of .npy files. See tests/fuzz.h. */
#include "io/npy.h"
#include "tests/fuzz.h"

static bool read_array(uint8_t *bytes, size_t size) {
    ct_tensor *x = ct__npy_parse(bytes, size, "fuzz.npy", size & 1);
    /* what was read has to fit in what was there */
    const bool good = x && (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x)) <= size;
    free(bytes);
    return good;
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

static uint8_t *make_seed(int i, size_t *size) {
    if (i >= SEED_COUNT) return NULL;
    const size_t text = strlen(seeds[i].dict), start = seeds[i].version == 1 ? 10 : 12;
    uint8_t *bytes = malloc(start + text + seeds[i].data);
    if (!bytes) return NULL;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)seeds[i].version;
    bytes[7] = 0;
    for (size_t k = 8; k < start; k++) bytes[k] = (uint8_t)(text >> (8 * (k - 8)));
    memcpy(bytes + start, seeds[i].dict, text);
    for (size_t k = 0; k < seeds[i].data; k++) bytes[start + text + k] = (uint8_t)k;
    *size = start + text + seeds[i].data;
    return bytes;
}

/* The header ends where its line does. */
static void mend(uint8_t *bytes, size_t size) {
    const size_t start = size > 6 && bytes[6] == 1 ? 10 : 12;
    for (size_t i = start; i < size; i++) {
        if (bytes[i] != '\n') continue;
        bytes[8] = (uint8_t)(i + 1 - start);
        bytes[9] = (uint8_t)((i + 1 - start) >> 8);
        return;
    }
}

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
                                    "\n",
                                    NULL};
static const fuzz_target target = {
    .read = read_array, .seed = make_seed, .words = words, .hot = 80, .mend = mend, .inputs = 20000};
FUZZ_MAIN(target)

/* Fuzzes the reader of safetensors. See tests/fuzz.h. */
#include "io/safetensors.h"
#include "tests/fuzz.h"

static bool read_state(uint8_t *given, size_t size) {
    uint8_t *bytes = ct_malloc(size); /* which the mapping takes over */
    if (bytes && size) memcpy(bytes, given, size);
    free(given);
    ct__mapping *mapping = bytes ? ct__mapping_of(bytes, size, "safetensors") : NULL;
    ct_state *state = mapping ? ct__safetensors_parse(mapping, "fuzz.safetensors", "safetensors") : NULL;
    bool good = state != NULL;
    for (int64_t i = 0; good && i < ct_state_count(state); i++) { /* every byte of every tensor can be read */
        const ct_tensor *x = ct_state_at(state, i);
        const size_t bytes_of = (size_t)ct_numel(x) * ct_dtype_size(ct_dtype_of(x));
        uint8_t *copy = malloc(bytes_of + 1);
        good = bytes_of <= size && copy && ct_read(x, copy, bytes_of);
        free(copy);
    }
    if (good) ct__safetensors_verify(ct__mapping_bytes(mapping, &size), size);
    ct_state_free(state);
    ct__mapping_release(mapping);
    return good;
}

static const char *const texts[] = {
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
    "{\"__metadata__\":{\"cotangent.crc64\":\"0123456789abcdef\",\"k\":\"v\"},\"x\":{\"dtype\":\"U8\",\"shape\":[24],"
    "\"data_offsets\":[0,24]}}",
    "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"I64\",\"shape\":[0,7],"
    "\"data_offsets\":[3,3]},\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[3,5]},\"d\":{\"dtype\":\"U8\","
    "\"shape\":[19],\"data_offsets\":[5,24]}}",
    "{\"x\":{\"dtype\":\"C64\",\"shape\":[3],\"data_offsets\":[0,24]}}   ",
};
enum { TEXTS = sizeof texts / sizeof *texts };

static uint8_t *make_seed(int i, size_t *size) {
    if (i == TEXTS) return fuzz_file("all.safetensors", size);
    if (i > TEXTS) return NULL;
    const size_t length = strlen(texts[i]);
    uint8_t *bytes = calloc(1, 8 + length + 24);
    if (!bytes) return NULL;
    *size = 8 + length + 24;
    bytes[0] = (uint8_t)length;
    bytes[1] = (uint8_t)(length >> 8);
    memcpy(bytes + 8, texts[i], length);
    return bytes;
}

/* The header ends where its braces do. */
static void mend(uint8_t *bytes, size_t size) {
    size_t end = 0;
    for (size_t i = 8; i < size; i++)
        if (bytes[i] == '}') end = i + 1;
    if (end < 8) return;
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
}

static const char *const words[] = {"9223372036854775807",
                                    "4611686018427387904",
                                    "18446744073709551616",
                                    "-1",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "\\u0000",
                                    "\\ud800",
                                    "1e9",
                                    "0",
                                    "24",
                                    "[[[[[[[[[[",
                                    "\"F32\"",
                                    "\"F64\"",
                                    "\"F4\"",
                                    "null",
                                    "true",
                                    "__metadata__",
                                    "\xff",
                                    NULL};
static const fuzz_target target = {
    .read = read_state, .seed = make_seed, .words = words, .hot = 160, .mend = mend, .inputs = 30000};
FUZZ_MAIN(target)

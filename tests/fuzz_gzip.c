/* Fuzzes the unpacking of gzip. See tests/fuzz.h. */
#include "support/bytes.h"
#include "tests/fuzz.h"

static bool unpack(uint8_t *bytes, size_t size) {
    enum { LIMIT = 100000 };
    size_t unpacked = 0;
    uint8_t *result = ct__bytes_gunzip(bytes, size, "fuzz.gz", "gzip", LIMIT, &unpacked);
    const bool good = result && unpacked <= LIMIT && result[unpacked] == 0;
    ct_free(result);
    free(bytes);
    return good;
}

static uint8_t *make_seed(int i, size_t *size) {
    static const uint8_t text[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0xcb,
                                   0x48, 0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0x48, 0xaf, 0xca, 0x2c, 0x00,
                                   0x00, 0x4a, 0x9b, 0xb1, 0x5c, 0x0b, 0x00, 0x00, 0x00};
    static const uint8_t nothing[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff,
                                      0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    if (i > 2) return NULL;
    /* the last: two members in a row */
    const size_t first = i == 1 ? sizeof nothing : sizeof text, second = i == 2 ? sizeof nothing : 0;
    uint8_t *bytes = malloc(first + second);
    if (!bytes) return NULL;
    memcpy(bytes, i == 1 ? nothing : text, first);
    memcpy(bytes + first, nothing, second);
    *size = first + second;
    return bytes;
}

static const char *const words[] = {
    "\x1f\x8b\x08", "\x1f\x8b\x08\x04", "\xff\xff\xff\xff", "\xed\xc1\x01\x01", "\x03", NULL};
static const fuzz_target target = {.read = unpack, .seed = make_seed, .words = words, .hot = 24, .inputs = 30000};
FUZZ_MAIN(target)

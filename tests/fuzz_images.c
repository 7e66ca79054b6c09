/* Fuzzes what stands before libpng and TurboJPEG: nothing that they give may be believed beyond the block that was
 * allocated for it. See tests/fuzz.h. */
#include "io/image.h"
#include "tests/fuzz.h"

static bool read_image(uint8_t *bytes, size_t size) {
    /* as it is, or made smaller or larger on the way */
    const ct_image_options options = {.size = sizeof options, .height = size % 3 * 4, .width = size % 3 * 5};
    ct_tensor *x = ct__image_parse(bytes, size, (int)(size % 5), "fuzz.image", &options);
    free(bytes);
    uint64_t sum = 0;
    const uint8_t *data = x ? ct_data(x) : NULL;
    for (int64_t i = 0; data && i < ct_numel(x); i++) sum += data[i];
    return x != NULL && sum < UINT64_MAX;
}

static uint8_t *make_seed(int i, size_t *size) {
    static const char *const names[] = {"l.png",    "la.png",       "rgb.png",     "rgba.png", "palette.png",
                                        "bits.png", "deep.png",     "rgb.jpg",     "gray.jpg", "cmyk.jpg",
                                        "ycck.jpg", "turned_6.jpg", "turned_8.png"};
    return i < (int)(sizeof names / sizeof *names) ? fuzz_file(names[i], size) : NULL;
}

static uint32_t crc_of(const uint8_t *bytes, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Puts the checksums of a PNG's chunks right, without which libpng would look no further. */
static void mend(uint8_t *bytes, size_t size) {
    if (size < 8 || bytes[0] != 0x89) return;
    for (size_t at = 8; size - at >= 12;) {
        const size_t length =
            (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 | (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (length > size - at - 12) return;
        const uint32_t crc = crc_of(bytes + at + 4, length + 4);
        for (int i = 0; i < 4; i++) bytes[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += 12 + length;
    }
}

static const char *const words[] = {"IHDR",     "IDAT",     "PLTE",     "tRNS",     "gAMA",     "IEND",     "\xff\xd8",
                                    "\xff\xc0", "\xff\xc2", "\xff\xc4", "\xff\xda", "\xff\xd9", "\xff\xdd", "\xff\xff",
                                    "\xff\xe1", "\xff\xee", "eXIf",     "II*",      "\x12\x01", "MM",       NULL};
static const fuzz_target target = {
    .read = read_image, .seed = make_seed, .words = words, .hot = 48, .mend = mend, .inputs = 20000};
FUZZ_MAIN(target)

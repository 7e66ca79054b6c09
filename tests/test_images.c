/* Images: those that another program wrote, round trips, and the exact words of each refusal. */
#include <cotangent/io.h>

#include "tests/files.h"

#include <inttypes.h>

/* x[c,h,w] = 20 w + 60 h + 7 c, as tools/refs/make_files.py draws. */
static void check_ramp(int line, ct_tensor *x, int channels, int drawn) {
    if (!harness_check(x && ct_dtype_of(x) == CT_U8 && ct_ndim(x) == 3 && ct_dim(x, 0) == channels &&
                           ct_dim(x, 1) == 3 && ct_dim(x, 2) == 5,
                       __FILE__, line, "not u8[%d,3,5]", channels))
        return;
    const uint8_t *data = ct_data(x);
    for (int c = 0; c < drawn; c++)
        for (int i = 0; i < 15; i++) {
            const int expected = 20 * (i % 5) + 60 * (i / 5) + 7 * c;
            harness_check(data[c * 15 + i] == expected, __FILE__, line, "[%d,%d]: %d, not %d", c, i, data[c * 15 + i],
                          expected);
        }
}

TEST(reads_every_kind_of_png) {
    ct_tensor *x = ct_image_load(given_file("l.png"), 0);
    NEEDS(x);
    check_ramp(__LINE__, x, 1, 1);
    check_ramp(__LINE__, ct_image_load(given_file("la.png"), 0), 2, 2);
    check_ramp(__LINE__, ct_image_load(given_file("rgb.png"), 0), 3, 3);
    check_ramp(__LINE__, ct_image_load(given_file("rgba.png"), 0), 4, 4);
    check_ramp(__LINE__, ct_image_load(given_file("deep.png"), 0), 1, 1);
    check_ramp(__LINE__, ct_image_load(given_file("rgb.png"), 4), 4, 3);
    CHECK(ct_ok());
}

TEST(channels_are_made_and_dropped) {
    ct_tensor *grey = ct_image_load(given_file("l.png"), 3);
    NEEDS(grey);
    for (int c = 0; c < 3; c++)
        check_ramp(__LINE__, ct_reshape(ct_contiguous(ct_select(grey, 0, c)), CT_DIMS(1, 3, 5)), 1, 1);
    ct_tensor *opaque = ct_select(ct_image_load(given_file("l.png"), 2), 0, 1);
    CHECK(ct_item(ct_amin(ct_cast(opaque, CT_I64))) == 255);
    /* an alpha of 14 + 7 and so on dims what lies on black */
    ct_tensor *flat = ct_image_load(given_file("rgba.png"), 3);
    CHECK(ct_dim(flat, 0) == 3 && harness_at(flat, 0) == 0);
}

static void check_raw(int line, ct_tensor *x, const char *name, int channels, int height, int width) {
    size_t size = 0;
    uint8_t *raw = file_bytes(given_file(name), &size);
    const size_t count = (size_t)(height * width);
    if (harness_check(x && raw && size == count * (size_t)channels && ct_ndim(x) == 3 && ct_dim(x, 0) == channels &&
                          ct_dim(x, 1) == height && ct_dim(x, 2) == width,
                      __FILE__, line, "%s: another shape", name)) {
        const uint8_t *data = ct_data(x);
        int worst = 0;
        for (int c = 0; c < channels; c++)
            for (size_t i = 0; i < count; i++) {
                const int d = abs(data[(size_t)c * count + i] - raw[i * (size_t)channels + (size_t)c]);
                if (d > worst) worst = d;
            }
        harness_check(worst == 0, __FILE__, line, "%s: differs by %d", name, worst);
    }
    free(raw);
}

TEST(palettes_and_jpeg_as_another_program_decodes_them) {
    ct_tensor *x = ct_image_load(given_file("palette.png"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "palette.raw", 3, 3, 5);
    x = ct_image_load(given_file("rgb.jpg"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "rgb.raw", 3, 13, 18);
    check_raw(__LINE__, ct_image_load(given_file("grey.jpg"), 0), "grey.raw", 1, 13, 18);
    ct_tensor *wide = ct_image_load(given_file("grey.jpg"), 4);
    check_raw(__LINE__, ct_reshape(ct_contiguous(ct_select(wide, 0, 2)), CT_DIMS(1, 13, 18)), "grey.raw", 1, 13, 18);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(wide, 0, 3), CT_I64))) == 255);
    ct_tensor *pair = ct_image_load(given_file("grey.jpg"), 2);
    check_raw(__LINE__, ct_reshape(ct_contiguous(ct_select(pair, 0, 0)), CT_DIMS(1, 13, 18)), "grey.raw", 1, 13, 18);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(pair, 0, 1), CT_I64))) == 255);
}

TEST(what_is_written_is_read_back) {
    for (int channels = 1; channels <= 4; channels++) {
        ct_tensor *x = ct_randint(CT_DIMS(channels, 21, 34), 0, 256, .dtype = CT_U8);
        void *bytes = NULL;
        size_t size = 0;
        const bool made = ct_image_encode_png(x, &bytes, &size);
        NEEDS(made);
        CHECK(made && harness_same_bits(ct_image_decode(bytes, size, 0), x));
        free(bytes);
        CHECK(ct_image_save(own_file("x.png"), x));
        CHECK(harness_same_bits(ct_image_load(own_file("x.png"), channels), x));
    }
    ct_tensor *flat = ct_randint(CT_DIMS(4, 6), 0, 256, .dtype = CT_U8);
    CHECK(ct_image_save(own_file("x.png"), ct_t(flat)));
    CHECK(harness_same_bits(ct_image_load(own_file("x.png"), 0),
                            ct_reshape(ct_contiguous(ct_t(flat)), CT_DIMS(1, 6, 4))));
    remove_own_folder();
}

TEST(refuses_in_exact_words) {
    CHECK(!ct_image_decode("GIF89a..........", 16, 0));
    CHECK_ERROR(CT_ERR_IO, "image: (memory): is neither a PNG nor a JPEG file");
    CHECK(!ct_image_decode(NULL, 16, 0));
    CHECK_ERROR(CT_ERR_NULL, "image: argument bytes is NULL");
    CHECK(!ct_image_decode("", 0, 5));
    CHECK_ERROR(CT_ERR_VALUE, "image: (memory): channels = 5 is not from 0 to 4");
    CHECK(!ct_image_load("/nowhere.png", 0));
    CHECK_ERROR(CT_ERR_IO, "image: /nowhere.png: cannot be opened: No such file or directory");
    CHECK(!ct_image_save("/tmp/never.png", ct_zeros(CT_DIMS(3, 2, 2))));
    CHECK_ERROR(CT_ERR_DTYPE, "image: /tmp/never.png: x is f32[3,2,2], expected u8 [H,W] or [C,H,W]");
    CHECK(!ct_image_save("/tmp/never.png", ct_zeros(CT_DIMS(5, 2, 2), .dtype = CT_U8)));
    CHECK_ERROR(CT_ERR_SHAPE, "image: /tmp/never.png: x is u8[5,2,2], expected [H,W], or [C,H,W] with 1 to 4 channels");
    CHECK(!ct_image_save("/tmp/never.png", ct_zeros(CT_DIMS(0, 2), .dtype = CT_U8)));
    CHECK_ERROR(CT_ERR_IO, "image: /tmp/never.png: 2 x 0 pixels are none or more than 2^28");
    CHECK(access("/tmp/never.png", F_OK) != 0);
}

TEST(refuses_what_is_cut_or_claims_too_much) {
    size_t size = 0;
    uint8_t *png = file_bytes(given_file("rgb.png"), &size);
    REQUIRE(png != NULL);
    ct_tensor *x = ct_image_decode(png, size, 0);
    if (!x && ct_error_code() == CT_ERR_UNSUPPORTED) {
        free(png);
        NEEDS(x);
    }
    for (size_t cut = 8; cut + 12 < size; cut++) { /* the last 12 bytes are the end mark, which says nothing */
        CHECK(!ct_image_decode(png, cut, 0) && ct_error_code() == CT_ERR_IO);
        ct_error_clear();
    }
    free(png);
    /* A header of 1000000 x 1000000 pixels with the right checksum, and nothing behind it. */
    static const uint8_t huge[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0,    0,    13,
                                   'I',  'H', 'D', 'R', 0,    0x0f, 0x42, 0x40, 0,    0x0f, 0x42, 0x40,
                                   8,    0,   0,   0,   0,    0x79, 0x06, 0x67, 0xa1, 0,    0,    0,
                                   0,    'I', 'D', 'A', 'T',  0x35, 0xaf, 0x06, 0x1e};
    CHECK(!ct_image_decode(huge, sizeof huge, 0));
    CHECK_ERROR(CT_ERR_IO, "image: (memory): 1000000 x 1000000 pixels cannot be in 45 bytes");
    uint8_t *jpeg = file_bytes(given_file("rgb.jpg"), &size);
    REQUIRE(jpeg != NULL);
    for (size_t cut = 3; cut + 2 < size; cut += 7) {
        x = ct_image_decode(jpeg, cut, 0);
        CHECK(!x && (ct_error_code() == CT_ERR_IO || ct_error_code() == CT_ERR_UNSUPPORTED));
        ct_error_clear();
    }
    free(jpeg);
}

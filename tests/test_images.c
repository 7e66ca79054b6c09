/* Images: those that another program wrote, round trips, and the exact words of each refusal. */
#include <cotangent/io.h>

#include "tests/files.h"

#include <cotangent/data.h>
#include <inttypes.h>
#include <sys/resource.h>

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
    ct_tensor *gray = ct_image_load(given_file("l.png"), 3);
    NEEDS(gray);
    for (int c = 0; c < 3; c++)
        check_ramp(__LINE__, ct_reshape(ct_contiguous(ct_select(gray, 0, c)), CT_DIMS(1, 3, 5)), 1, 1);
    ct_tensor *opaque = ct_select(ct_image_load(given_file("l.png"), 2), 0, 1);
    CHECK(ct_item(ct_amin(ct_cast(opaque, CT_I64))) == 255);
    /* an alpha of 14 + 7 and so on dims what lies on black */
    ct_tensor *flat = ct_image_load(given_file("rgba.png"), 3);
    CHECK(ct_dim(flat, 0) == 3 && harness_at(flat, 0) == 0);
}

static void check_near(int line, ct_tensor *x, const char *name, int channels, int height, int width, int tolerance) {
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
        harness_check(worst <= tolerance, __FILE__, line, "%s: differs by %d", name, worst);
    }
    free(raw);
}

static void check_raw(int line, ct_tensor *x, const char *name, int channels, int height, int width) {
    check_near(line, x, name, channels, height, width, 0);
}

TEST(palettes_and_jpeg_as_another_program_decodes_them) {
    ct_tensor *x = ct_image_load(given_file("palette.png"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "palette.raw", 3, 3, 5);
    x = ct_image_load(given_file("rgb.jpg"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "rgb.raw", 3, 13, 18);
    check_raw(__LINE__, ct_image_load(given_file("gray.jpg"), 0), "gray.raw", 1, 13, 18);
    ct_tensor *wide = ct_image_load(given_file("gray.jpg"), 4);
    check_raw(__LINE__, ct_reshape(ct_contiguous(ct_select(wide, 0, 2)), CT_DIMS(1, 13, 18)), "gray.raw", 1, 13, 18);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(wide, 0, 3), CT_I64))) == 255);
    ct_tensor *pair = ct_image_load(given_file("gray.jpg"), 2);
    check_raw(__LINE__, ct_reshape(ct_contiguous(ct_select(pair, 0, 0)), CT_DIMS(1, 13, 18)), "gray.raw", 1, 13, 18);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(pair, 0, 1), CT_I64))) == 255);
}

TEST(rows_of_few_bits_palettes_and_filters) {
    ct_tensor *x = ct_image_load(given_file("bits.png"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "bits.raw", 1, 10, 14);
    check_raw(__LINE__, ct_image_load(given_file("filters.png"), 0), "filters.raw", 3, 10, 14);
    check_raw(__LINE__, ct_image_load(given_file("two.png"), 0), "two.raw", 3, 10, 14);
    check_raw(__LINE__, ct_image_load(given_file("four.png"), 3), "four.raw", 3, 10, 14);
    check_raw(__LINE__, ct_image_load(given_file("sixteen.png"), 3), "sixteen.raw", 3, 10, 14);
    ct_tensor *wide = ct_image_load(given_file("bits.png"), 4);
    check_raw(__LINE__, ct_contiguous(ct_narrow(wide, 0, 2, 1)), "bits.raw", 1, 10, 14);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(wide, 0, 3), CT_I64))) == 255);
}

TEST(pictures_are_turned_the_way_the_camera_was_held) {
    for (int i = 1; i <= 8; i++) {
        char name[32], raw[32];
        snprintf(name, sizeof name, "turned_%d.%s", i, i % 2 || i == 6 ? "jpg" : "png");
        snprintf(raw, sizeof raw, "turned_%d.raw", i);
        ct_tensor *x = ct_image_load(given_file(name), 0);
        NEEDS(x);
        const bool on_its_side = i >= 5;
        check_raw(__LINE__, x, raw, 3, on_its_side ? 14 : 10, on_its_side ? 10 : 14);
        ct_tensor *stored = ct_image_load(given_file(name), 0, .as_stored = true);
        CHECK(stored && ct_dim(stored, 1) == 10 && ct_dim(stored, 2) == 14);
        if (i % 2) CHECK(harness_same_bits(stored, ct_image_load(given_file("turned_1.jpg"), 0)));
        /* the size that is asked for is that of the picture as it is seen */
        ct_tensor *small = ct_image_load(given_file(name), 0, .height = 4, .width = 3);
        CHECK(small && ct_dim(small, 1) == 4 && ct_dim(small, 2) == 3);
    }
}

/* Whatever EXIF says, its directory at most is passed over: the picture is read as it lies. */
TEST(exif_that_lies_is_passed_over) {
    size_t size = 0;
    uint8_t *jpeg = file_bytes(given_file("turned_6.jpg"), &size);
    REQUIRE(jpeg != NULL);
    ct_tensor *stored = ct_image_decode(jpeg, size, 0, .as_stored = true);
    if (!stored) free(jpeg);
    NEEDS(stored);
    uint8_t *exif = memmem(jpeg, size, "Exif\0\0", 6);
    REQUIRE(exif != NULL);
    const bool big = exif[6] == 'M';
    const size_t entry = 6 + 8 + 2; /* the header, then how many entries there are */
    static const struct {
        size_t at, width;
        uint64_t value;
    } lies[] = {{10, 4, 0xfffffff0},        {10, 4, 0x7fffffff}, {10, 4, 0},        {6 + 8, 2, 0}, {entry + 2, 2, 4},
                {entry + 4, 4, 0xffffffff}, {entry + 8, 2, 0},   {entry + 8, 2, 9}, {6, 4, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t *changed = malloc(size);
        REQUIRE(changed != NULL);
        memcpy(changed, jpeg, size);
        uint8_t *at = changed + (exif - jpeg) + lies[i].at;
        for (size_t k = 0; k < lies[i].width; k++)
            at[k] = (uint8_t)(lies[i].value >> 8 * (big ? lies[i].width - 1 - k : k));
        harness_check(harness_same_bits(ct_image_decode(changed, size, 0), stored), __FILE__, __LINE__, "lie %zu", i);
        free(changed);
    }
    free(jpeg);
}

TEST(inks_become_light) {
    ct_tensor *x = ct_image_load(given_file("cmyk.jpg"), 0);
    NEEDS(x);
    check_raw(__LINE__, x, "cmyk.raw", 3, 10, 14);
    check_raw(__LINE__, ct_image_load(given_file("ycck.jpg"), 3), "ycck.raw", 3, 10, 14);
    /* Pillow's weights of the colors are rounded to 16 bits */
    check_near(__LINE__, ct_image_load(given_file("cmyk.jpg"), 1), "cmyk_gray.raw", 1, 10, 14, 1);
    check_near(__LINE__, ct_image_load(given_file("ycck.jpg"), 1), "ycck_gray.raw", 1, 10, 14, 1);
    ct_tensor *four = ct_image_load(given_file("cmyk.jpg"), 4);
    check_raw(__LINE__, ct_contiguous(ct_narrow(four, 0, 0, 3)), "cmyk.raw", 3, 10, 14);
    CHECK(ct_item(ct_amin(ct_cast(ct_select(four, 0, 3), CT_I64))) == 255);
}

/* The size can be given to the reader or the picture resized afterwards: the same arithmetic, and the same bits but for the
 * rounding to u8. */
TEST(a_size_is_made_on_the_way) {
    static const char *const names[] = {"filters.png", "rgba.png", "deep.png", "bits.png", "sixteen.png", "rgb.jpg"};
    static const int64_t sizes[][2] = {{4, 5}, {1, 1}, {23, 31}, {10, 3}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            if (strstr(names[i], ".jpg") && sizes[k][0] == 1) continue; /* halved before, by other means */
            ct_tensor *x = ct_image_load(given_file(names[i]), 0);
            NEEDS(x);
            ct_tensor *small = ct_image_load(given_file(names[i]), 0, .height = sizes[k][0], .width = sizes[k][1]);
            ct_transform *resize = ct_transform_resize(sizes[k][0], sizes[k][1]);
            REQUIRE(ct_transform_apply(resize, &x, 1, false, 0, 0, 0, 0));
            ct_transform_free(resize);
            ct_tensor *rounded = ct_cast(ct_floor(ct_add_s(ct_mul_s(x, 255), 0.5)), CT_U8);
            harness_check(harness_same_bits(small, rounded), __FILE__, __LINE__, "%s to %lld x %lld", names[i],
                          (long long)sizes[k][0], (long long)sizes[k][1]);
        }
}

TEST(a_large_jpeg_is_made_smaller_in_its_cosine_transform) {
    ct_tensor *x = ct_image_load(given_file("waves.jpg"), 3, .height = 24, .width = 30);
    NEEDS(x);
    /* Pillow rounds to u8 between columns and rows as well: half a step each */
    check_near(__LINE__, x, "waves.raw", 3, 24, 30, 1);
}

TEST(a_large_picture_of_few_bytes_needs_little_memory) {
    struct rusage before, after;
    ct_tensor *first = ct_image_load(given_file("bits.png"), 1, .height = 2, .width = 2);
    NEEDS(first);
    getrusage(RUSAGE_SELF, &before);
    ct_tensor *x = ct_image_load(given_file("large.png"), 3, .height = 4, .width = 4);
    getrusage(RUSAGE_SELF, &after);
    REQUIRE(x != NULL);
    for (int i = 0; i < 48; i++) {
        const double value = harness_at(x, i); /* where the quarters meet the means are between */
        const int row = i / 4 % 4, column = i % 4;
        if (row < 1 || column < 1) CHECK(value == 255);
        if (row == 3 && column == 3) CHECK(value < 20);
    }
    /* as a whole it would be 64 MiB of gray; ru_maxrss is in KiB */
    if (!harness_sanitized()) CHECK(after.ru_maxrss - before.ru_maxrss < 16 << 10);
}

TEST(the_limit_of_pixels_can_be_set) {
    ct_tensor *x = ct_image_load(given_file("bits.png"), 0, .max_pixels = 140);
    NEEDS(x);
    CHECK(!ct_image_load(given_file("bits.png"), 0, .max_pixels = 139));
    char text[1200];
    snprintf(text, sizeof text, "image: %s: 14 x 10 pixels are more than the 139 that max_pixels allows",
             given_file("bits.png"));
    CHECK_ERROR(CT_ERR_IO, text);
    CHECK(!ct_image_load(given_file("rgb.jpg"), 0, .max_pixels = 233, .height = 2, .width = 2));
    ct_error_clear();
    CHECK(!ct_image_decode("", 0, 0, .max_pixels = -1));
    CHECK_ERROR(CT_ERR_VALUE, "image: (memory): max_pixels = -1 is below 0");
    CHECK(!ct_image_decode("", 0, 0, .height = 3));
    CHECK_ERROR(CT_ERR_VALUE, "image: (memory): height = 3, width = 0; expected 1 to 65536 for both, or neither");
    CHECK(!ct_image_decode("", 0, 0, .height = 65537, .width = 1));
    CHECK_ERROR(CT_ERR_VALUE, "image: (memory): height = 65537, width = 1; expected 1 to 65536 for both, or neither");
}

TEST(what_is_written_is_read_back) {
    for (int channels = 1; channels <= 4; channels++) {
        ct_tensor *x = ct_randint(CT_DIMS(channels, 21, 34), 0, 256, .dtype = CT_U8);
        void *bytes = NULL;
        size_t size = 0;
        const bool made = ct_image_encode_png(x, &bytes, &size);
        NEEDS(made);
        CHECK(made && harness_same_bits(ct_image_decode(bytes, size, 0), x));
        ct_free(bytes);
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
    CHECK_ERROR(CT_ERR_IO, "image: /tmp/never.png: 2 x 0 pixels are none");
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
    for (size_t i = 16; i + 12 < size; i++) { /* every byte is under a checksum */
        png[i] ^= 1;
        harness_check(!ct_image_decode(png, size, 0), __FILE__, __LINE__, "byte %zu was changed", i);
        ct_error_clear();
        png[i] ^= 1;
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

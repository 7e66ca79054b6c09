/* Whole files in memory, plain and gzipped: limits, damage, several members, and the exact words of each refusal. */
#include "support/bytes.h"
#include "tests/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Skips where there is no zlib. */
#define NEEDS_ZLIB()                                                                            \
    do {                                                                                        \
        size_t size_;                                                                           \
        uint8_t *bytes_ = ct__bytes_gunzip(nothing, sizeof nothing, "a.gz", "test", 0, &size_); \
        if (!bytes_ && ct_error_code() == CT_ERR_UNSUPPORTED) {                                 \
            harness_skip("%s", ct_error());                                                     \
            ct_error_clear();                                                                   \
            return;                                                                             \
        }                                                                                       \
        ct_free(bytes_);                                                                        \
    } while (0)

/* "hello, gzip", 100000 zeros, and nothing, as gzip packs them. */
static const uint8_t hello[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb,
                                0x48, 0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0x48, 0xaf, 0xca, 0x2c, 0x00,
                                0x00, 0x4a, 0x9b, 0xb1, 0x5c, 0x0b, 0x00, 0x00, 0x00};
static const uint8_t zeros[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xed, 0xc1, 0x31, 0x01, 0x00, 0x00, 0x00, 0xc2, 0xa0,
    0xf5, 0x4f, 0x6d, 0x0d, 0x0f, 0xa0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x57, 0x03, 0x7d, 0x95, 0x11, 0xd4, 0xa0, 0x86, 0x01, 0x00};
static const uint8_t nothing[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                  0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

static bool gives(const uint8_t *packed, size_t packed_size, size_t limit, const void *expected, size_t size) {
    size_t got = 99;
    uint8_t *bytes = ct__bytes_gunzip(packed, packed_size, "a.gz", "test", limit, &got);
    const bool same = bytes && got == size && memcmp(bytes, expected, size) == 0 && bytes[size] == 0;
    ct_free(bytes);
    return same;
}

TEST(unpacks) {
    NEEDS_ZLIB();
    static const uint8_t expected[100000];
    CHECK(gives(hello, sizeof hello, 0, "hello, gzip", 11));
    CHECK(gives(zeros, sizeof zeros, 0, expected, sizeof expected));
    CHECK(gives(nothing, sizeof nothing, 0, "", 0));
}

TEST(unpacks_members_in_a_row_and_ignores_zeros_behind) {
    NEEDS_ZLIB();
    uint8_t packed[3 * sizeof hello + 5] = {0};
    for (int i = 0; i < 3; i++) memcpy(packed + (size_t)i * sizeof hello, hello, sizeof hello);
    CHECK(gives(packed, sizeof packed, 0, "hello, gziphello, gziphello, gzip", 33));
}

TEST(a_limit_is_kept_exactly) {
    NEEDS_ZLIB();
    static const uint8_t expected[100000];
    CHECK(gives(zeros, sizeof zeros, 100000, expected, sizeof expected));
    CHECK(gives(hello, sizeof hello, 11, "hello, gzip", 11));
    CHECK(!gives(zeros, sizeof zeros, 99999, expected, 99999));
    CHECK_ERROR(CT_ERR_IO, "test: a.gz: has more than the 99999 bytes that are allowed");
    CHECK(!gives(hello, sizeof hello, 1, "h", 1));
    CHECK_ERROR(CT_ERR_IO, "test: a.gz: has more than the 1 bytes that are allowed");
}

TEST(refuses_what_is_cut_anywhere) {
    NEEDS_ZLIB();
    for (size_t size = 2; size < sizeof hello; size++) {
        CHECK(!gives(hello, size, 0, "", 0));
        CHECK_ERROR(CT_ERR_IO, "test: a.gz: the gzip data is damaged: it ends too early");
    }
}

TEST(refuses_wrong_checksums_and_garbage_behind) {
    NEEDS_ZLIB();
    uint8_t packed[sizeof hello + 3];
    memcpy(packed, hello, sizeof hello);
    packed[sizeof hello - 6] ^= 1;
    CHECK(!gives(packed, sizeof hello, 0, "", 0));
    CHECK_ERROR(CT_ERR_IO, "test: a.gz: the gzip data is damaged: incorrect data check");
    memcpy(packed, hello, sizeof hello);
    memcpy(packed + sizeof hello, "xyz", 3);
    CHECK(!gives(packed, sizeof packed, 0, "", 0));
    CHECK_ERROR(CT_ERR_IO, "test: a.gz: garbage follows the gzip data");
}

TEST(files_are_read_plain_or_packed) {
    NEEDS_ZLIB();
    const char *path = own_file("a.gz");
    REQUIRE(put_file(path, hello, sizeof hello));
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load(path, "test", 0, &size);
    CHECK(bytes && size == 11 && strcmp((const char *)bytes, "hello, gzip") == 0);
    ct_free(bytes);
    bytes = ct__bytes_load_raw(path, "test", 0, &size);
    CHECK(bytes && size == sizeof hello && memcmp(bytes, hello, size) == 0);
    ct_free(bytes);
    REQUIRE(put_file(path, "plain", 5));
    bytes = ct__bytes_load(path, "test", 5, &size);
    CHECK(bytes && size == 5 && strcmp((const char *)bytes, "plain") == 0);
    ct_free(bytes);
    CHECK(!ct__bytes_load(path, "test", 4, &size) && size == 0);
    char text[128];
    snprintf(text, sizeof text, "test: %s: has more than the 4 bytes that are allowed", path);
    CHECK_ERROR(CT_ERR_IO, text);
    remove_own_folder();
    CHECK(!ct__bytes_load("/tmp", "test", 0, &size));
    CHECK_ERROR(CT_ERR_IO, "test: /tmp: cannot be read: Is a directory");
    CHECK(!ct__bytes_load("/nowhere/at/all", "test", 0, &size));
    CHECK_ERROR(CT_ERR_IO, "test: /nowhere/at/all: cannot be opened: No such file or directory");
    CHECK(!ct__bytes_load(NULL, "test", 0, &size));
    CHECK_ERROR(CT_ERR_NULL, "test: argument path is NULL");
}

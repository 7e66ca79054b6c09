/* .npz: what NumPy wrote is read, what is written is read back, and the exact words of each refusal. */
#include <cotangent/io.h>

#include "io/npz.h"
#include "tests/files.h"

static void check_refused(int line, const char *path, const char *what) {
    char text[1400];
    snprintf(text, sizeof text, "npz: %s: %s", path, what);
    harness_error(__FILE__, line, CT_ERR_IO, text);
}

TEST(reads_what_numpy_wrote) {
    for (int compressed = 0; compressed < 2; compressed++) {
        ct_state *state = ct_npz_load(given_file(compressed ? "compressed.npz" : "stored.npz"));
        NEEDS(state);
        REQUIRE(state != NULL);
        CHECK(ct_state_count(state) == 4 + compressed);
        CHECK_VALUES(ct_state_get(state, "a"), CT_DIMS(2, 3), 0, 0, 1, 2, 3, 4, 5);
        ct_tensor *fortran = ct_state_get(state, "fortran");
        CHECK(ct_dtype_of(fortran) == CT_I64);
        CHECK_VALUES(fortran, CT_DIMS(2, 3), 0, 0, 1, 2, 3, 4, 5);
        CHECK(ct_item(ct_state_get(state, "scalar")) == 2.5);
        CHECK(ct_numel(ct_state_get(state, "empty")) == 0);
        if (compressed) CHECK(ct_item(ct_sum(ct_abs(ct_state_get(state, "zeros")))) == 0);
        ct_state_free(state);
    }
}

TEST(reads_one_array) {
    ct_tensor *x = ct_npz_load_one(given_file("compressed.npz"), "a");
    NEEDS(x);
    CHECK_VALUES(x, CT_DIMS(2, 3), 0, 0, 1, 2, 3, 4, 5);
    CHECK(!ct_npz_load_one(given_file("stored.npz"), "zeros"));
    check_refused(__LINE__, given_file("stored.npz"), "has no array \"zeros\"");
    CHECK(!ct_npz_load_one(given_file("stored.npz"), NULL));
    CHECK_ERROR(CT_ERR_NULL, "npz: argument name is NULL");
}

TEST(what_is_written_is_read_back) {
    for (int compressed = 0; compressed < 2; compressed++) {
        ct_state *state = ct_state_new();
        ct_tensor *x = ct_reshape(ct_arange(0, 5000, 1), CT_DIMS(50, 100));
        CHECK(ct_state_put(state, "x", x) && ct_state_put(state, "layers.0/turned", ct_t(x)));
        CHECK(ct_state_put(state, "empty", ct_zeros(CT_DIMS(3, 0))) && ct_state_put(state, "n", I64(CT_DIMS0, -7)));
        if (!ct_npz_save(own_file("x.npz"), state, compressed)) {
            ct_state_free(state);
            remove_own_folder();
            NEEDS(false);
            REQUIRE(false);
        }
        ct_state *back = ct_npz_load(own_file("x.npz"));
        CHECK(back && ct_state_count(back) == 4);
        for (int64_t i = 0; back && i < 4; i++) {
            CHECK_TEXT(ct_state_name(back, i), ct_state_name(state, i));
            CHECK(harness_same_bits(ct_state_at(back, i), ct_state_at(state, i)));
        }
        CHECK(ct_npz_save(own_file("again.npz"), back, compressed));
        CHECK(same_files(own_file("x.npz"), own_file("again.npz"))); /* no clock in it */
        size_t size = 0;
        free(file_bytes(own_file("x.npz"), &size));
        CHECK(compressed ? size < 25000 : size > 40000);
        ct_state_free(back);
        ct_state_free(state);
    }
    remove_own_folder();
}

TEST(an_empty_state_is_an_empty_archive) {
    ct_state *state = ct_state_new();
    const bool saved = ct_npz_save(own_file("e.npz"), state, false);
    ct_state_free(state);
    if (saved) {
        ct_state *back = ct_npz_load(own_file("e.npz"));
        CHECK(back && ct_state_count(back) == 0);
        ct_state_free(back);
    }
    remove_own_folder();
    NEEDS(saved);
    CHECK(saved);
}

TEST(refuses_texts_and_dtypes_that_npy_lacks) {
    ct_state *state = ct_state_new();
    CHECK(ct_state_put_text(state, "k", "v"));
    CHECK(!ct_npz_save("/tmp/never.npz", state, false));
    if (ct_error_code() == CT_ERR_UNSUPPORTED) {
        harness_skip("%s", ct_error());
        ct_error_clear();
        ct_state_free(state);
        return;
    }
    CHECK_ERROR(CT_ERR_VALUE, "npz: /tmp/never.npz: the state has texts, for which .npz has no place");
    ct_state_free(state);
    state = ct_state_new();
    CHECK(ct_state_put(state, "x", ct_cast(ct_ones(CT_DIMS(2)), CT_F8E4M3)));
    const bool saved = ct_npz_save("/tmp/never.npz", state, false);
    ct_state_free(state);
    NEEDS(saved);
    CHECK_ERROR(CT_ERR_IO, "npy: /tmp/never.npz: f8e4m3 has no form in .npy files; cast it first");
    CHECK(access("/tmp/never.npz", F_OK) != 0);
}

TEST(refuses_what_is_no_archive_or_damaged) {
    size_t size = 0;
    uint8_t *bytes = file_bytes(given_file("compressed.npz"), &size);
    REQUIRE(bytes != NULL);
    ct_state *state = ct__npz_parse((const uint8_t *)"hello", 5, "a.npz", NULL);
    if (!state && ct_error_code() == CT_ERR_UNSUPPORTED) {
        free(bytes);
        NEEDS(state);
    }
    CHECK(!state);
    check_refused(__LINE__, "a.npz", "is not a .npz archive");
    CHECK(!ct__npz_parse(bytes, size / 2, "a.npz", NULL));
    CHECK(ct_error_code() == CT_ERR_IO &&
          strncmp(ct_error(), "npz: a.npz: is damaged: ", 24) == 0); /* then in libzip's words */
    ct_error_clear();
    bytes[60] ^= 0xff; /* in the first array's deflated data */
    CHECK(!ct__npz_parse(bytes, size, "a.npz", NULL));
    CHECK(ct_error_code() == CT_ERR_IO && strncmp(ct_error(), "npz: a.npz: array \"a\": ", 22) == 0);
    ct_error_clear();
    bytes[60] ^= 0xff;
    /* the size in the central directory, of which the last entry (zeros, 40128 bytes) comes last */
    for (size_t i = size - 4; i > 0; i--)
        if (memcmp(bytes + i, "\xc0\x9c\x00\x00", 4) == 0) {
            memcpy(bytes + i, "\xff\xff\xff\x7f", 4);
            break;
        }
    CHECK(!ct__npz_parse(bytes, size, "a.npz", NULL));
    check_refused(__LINE__, "a.npz", "array \"zeros\": it says to have more bytes than the archive can hold");
    free(bytes);
}

/* .npy files: what is read, what is written, and the exact words of each refusal. */
#include <cotangent/io.h>

#include "io/npy.h"
#include "tests/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Helpers ---- */

/* A file in memory: version, dict, data. Returns its size. */
static size_t build(uint8_t *bytes, int version, const char *dict, const void *data, size_t size) {
    const size_t text = strlen(dict), start = version == 1 ? 10 : 12;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    for (size_t i = 8; i < start; i++) bytes[i] = (uint8_t)(text >> (8 * (i - 8)));
    memcpy(bytes + start, dict, text);
    if (size) memcpy(bytes + start + text, data, size);
    return start + text + size;
}

static ct_tensor *parse(int version, const char *dict, const void *data, size_t size) {
    uint8_t bytes[2048];
    return ct__npy_parse(bytes, build(bytes, version, dict, data, size), "a.npy", false);
}

static void expect_refused(int line, ct_tensor *x, const char *text) {
    harness_check(!x, __FILE__, line, "it was read");
    harness_text(__FILE__, line, "the op of the error", ct_error_op(), "npy");
    harness_error(__FILE__, line, CT_ERR_IO, text);
}
#define REFUSED(dict, text) expect_refused(__LINE__, parse(1, dict, NULL, 0), text)

static bool same(ct_tensor *x, ct_dtype dtype, ct_dims shape, const void *values) {
    if (!x || ct_dtype_of(x) != dtype || ct_ndim(x) != shape.n) return false;
    for (int i = 0; i < shape.n; i++)
        if (ct_dim(x, i) != shape.d[i]) return false;
    const size_t bytes = (size_t)ct_numel(x) * ct_dtype_size(dtype);
    unsigned char read[512];
    return bytes <= sizeof read && ct_read(x, read, bytes) && memcmp(read, values, bytes) == 0;
}

/* ---- Reading ---- */

TEST(reads_versions_1_2_and_3) {
    const float values[] = {1, 2, 3, 4, 5, 6};
    for (int version = 1; version <= 3; version++)
        CHECK(same(
            parse(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", values, sizeof values),
            CT_F32, CT_DIMS(2, 3), values));
}

TEST(reads_every_dtype) {
    static const struct {
        const char *code;
        ct_dtype dtype;
    } all[] = {{"<f4", CT_F32}, {"<f8", CT_F64}, {"<f2", CT_F16}, {"|i1", CT_I8},       {"<i2", CT_I16},
               {"<i4", CT_I32}, {"<i8", CT_I64}, {"|u1", CT_U8},  {"|b1", CT_BOOL},     {"?", CT_BOOL},
               {"<u2", CT_U16}, {"<u4", CT_U32}, {"<u8", CT_U64}, {"<c8", CT_COMPLEX64}};
    const uint8_t data[16] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char dict[128];
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n", all[i].code);
        CHECK(same(parse(1, dict, data, 2 * ct_dtype_size(all[i].dtype)), all[i].dtype, CT_DIMS(2), data));
    }
}

TEST(swaps_big_endian_data) {
    const uint8_t data[] = {0, 0, 1, 2, 255, 255, 255, 254};
    const int32_t values[] = {258, -2};
    CHECK(same(parse(1, "{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }\n", data, sizeof data), CT_I32,
               CT_DIMS(2), values));
    const uint8_t one_i[] = {0x3f, 0x80, 0, 0, 0x40, 0, 0, 0}; /* 1 + 2i: the halves stay where they are */
    const float halves[] = {1, 2};
    CHECK(same(parse(1, "{'descr': '>c8', 'fortran_order': False, 'shape': (), }\n", one_i, sizeof one_i), CT_COMPLEX64,
               CT_DIMS0, halves));
}

TEST(turns_fortran_order_into_rows) {
    const int16_t columns[] = {1, 4, 2, 5, 3, 6}, rows[] = {1, 2, 3, 4, 5, 6};
    CHECK(same(parse(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", columns, sizeof columns),
               CT_I16, CT_DIMS(2, 3), rows));
    const uint8_t first_axis_first[] = {0, 4, 2, 6, 1, 5, 3, 7}, last_axis_first[] = {0, 1, 2, 3, 4, 5, 6, 7};
    CHECK(same(parse(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 2), }\n", first_axis_first, 8), CT_U8,
               CT_DIMS(2, 2, 2), last_axis_first));
}

TEST(reads_scalars_and_empty_arrays) {
    const double value = 0.5;
    CHECK(same(parse(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", &value, 8), CT_F64, CT_DIMS0,
               &value));
    CHECK(same(parse(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }\n", NULL, 0), CT_F64, CT_DIMS(0),
               &value));
    CHECK(same(parse(1, "{'descr': '>f8', 'fortran_order': True, 'shape': (3, 0, 2), }\n", NULL, 0), CT_F64,
               CT_DIMS(3, 0, 2), &value));
}

TEST(takes_u16_as_bf16_only_when_asked) {
    const uint16_t bits[] = {0x3f80, 0xc000};
    uint8_t bytes[256];
    const size_t size =
        build(bytes, 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }\n", bits, sizeof bits);
    CHECK(same(ct__npy_parse(bytes, size, "a.npy", true), CT_BF16, CT_DIMS(2), bits));
    CHECK(same(ct__npy_parse(bytes, size, "a.npy", false), CT_U16, CT_DIMS(2), bits));
    const float one = 1;
    const size_t other = build(bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", &one, 4);
    CHECK(same(ct__npy_parse(bytes, other, "a.npy", true), CT_F32, CT_DIMS0, &one));
}

TEST(reads_any_order_of_keys_and_either_quote) {
    const int64_t value = 7;
    CHECK(same(parse(1, "{\"shape\":(1L,),\"fortran_order\":False,\"descr\":\"<i8\"}", &value, 8), CT_I64, CT_DIMS(1),
               &value));
}

TEST(makes_bools_zero_or_one) {
    const uint8_t data[] = {0, 1, 2, 255}, values[] = {0, 1, 1, 1};
    CHECK(same(parse(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (4,), }\n", data, 4), CT_BOOL, CT_DIMS(4),
               values));
}

/* ---- Refusals ---- */

TEST(refuses_what_is_no_npy_file) {
    expect_refused(__LINE__, ct__npy_parse((const uint8_t *)"hello, world", 12, "a.npy", false),
                   "npy: a.npy: is not a .npy file");
    expect_refused(__LINE__, ct__npy_parse((const uint8_t *)"", 0, "a.npy", false), "npy: a.npy: is not a .npy file");
    expect_refused(__LINE__, ct__npy_parse((const uint8_t *)"PK\x03\x04........", 12, "a.npy", false),
                   "npy: a.npy: is a .npz archive, not a .npy file");
    expect_refused(__LINE__, parse(4, "{}", NULL, 0), "npy: a.npy: format version 4.0 is not 1.0, 2.0 or 3.0");
}

TEST(refuses_objects_and_structures) {
    REFUSED("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "npy: a.npy: holds Python objects (a pickle), which are never loaded");
    REFUSED("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            "npy: a.npy: structured dtypes are not supported");
    REFUSED("{'descr': '<c16', 'fortran_order': False, 'shape': (1,), }", "npy: a.npy: dtype '<c16' is not supported");
    REFUSED("{'descr': '|f4', 'fortran_order': False, 'shape': (1,), }",
            "npy: a.npy: dtype '|f4' lacks its byte order");
}

TEST(refuses_a_wrong_amount_of_data) {
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    const float values[7] = {0};
    expect_refused(__LINE__, parse(1, dict, values, 23),
                   "npy: a.npy: f32[2,3] needs 24 bytes of data, the file has 23");
    expect_refused(__LINE__, parse(1, dict, values, 28),
                   "npy: a.npy: f32[2,3] needs 24 bytes of data, the file has 28");
}

TEST(refuses_impossible_shapes) {
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }",
            "npy: a.npy: more than 8 dimensions");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
            "npy: a.npy: the shape has more elements than can be counted");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4), }",
            "npy: a.npy: the shape has more elements than can be counted");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
            "npy: a.npy: malformed header: a dimension is too large");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "npy: a.npy: malformed header: a dimension is negative");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': (3), }",
            "npy: a.npy: malformed header: the shape is not a tuple");
}

TEST(refuses_malformed_headers) {
    REFUSED("", "npy: a.npy: malformed header: it does not begin with {");
    REFUSED("{", "npy: a.npy: malformed header: a key is not a string");
    REFUSED("{'descr", "npy: a.npy: malformed header: a string does not end");
    REFUSED("{'descr' '<f4'}", "npy: a.npy: malformed header: a key has no value");
    REFUSED("{'descr': 4}", "npy: a.npy: malformed header: descr is not a string");
    REFUSED("{'color': '<f4'}", "npy: a.npy: malformed header: a key is none of descr, fortran_order, shape");
    REFUSED("{'descr': '<f4', 'descr': '<f4'}", "npy: a.npy: malformed header: a key comes twice");
    REFUSED("{'descr': '<f4', 'fortran_order': False}",
            "npy: a.npy: malformed header: descr, fortran_order or shape is missing");
    REFUSED("{'fortran_order': 0}", "npy: a.npy: malformed header: fortran_order is neither True nor False");
    REFUSED("{'shape': (1, x)}", "npy: a.npy: malformed header: a dimension is not a number");
    REFUSED("{'shape': (1 2)}", "npy: a.npy: malformed header: the shape does not end");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': () ",
            "npy: a.npy: malformed header: it does not end with }");
    REFUSED("{'descr': '<f4', 'fortran_order': False, 'shape': ()} + 1", "npy: a.npy: malformed header: text after }");
}

TEST(refuses_a_header_that_is_too_long) {
    const uint8_t huge[] = "\x93NUMPY\x02\x00\xff\xff\xff\xff{";
    expect_refused(__LINE__, ct__npy_parse(huge, 13, "a.npy", false),
                   "npy: a.npy: a header of 4294967295 bytes is longer than 65536");
    const uint8_t cut[] = "\x93NUMPY\x01\x00\x40\x00{'descr'";
    expect_refused(__LINE__, ct__npy_parse(cut, 18, "a.npy", false), "npy: a.npy: ends inside its header");
    expect_refused(__LINE__, ct__npy_parse((const uint8_t *)"\x93NUMPY\x02\x00\x40\x00", 10, "a.npy", false),
                   "npy: a.npy: ends inside its header");
}

/* ---- Files ---- */

TEST(writes_what_it_reads) {
    const uint16_t data[6] = {0, 0x3c00, 1, 2, 3, 0x7bff};
    static const ct_dtype dtypes[] = {CT_F16, CT_I16, CT_U16, CT_BF16};
    for (int i = 0; i < 4; i++) {
        const char *path = own_file("same.npy");
        CHECK(ct_npy_save(path, ct_from_data(data, CT_DIMS(1, 6), dtypes[i])));
        CHECK(same(ct_npy_load(path, dtypes[i] == CT_BF16), dtypes[i], CT_DIMS(1, 6), data));
    }
    const double value = -3;
    CHECK(ct_npy_save(own_file("scalar.npy"), ct_scalar(value, CT_F64)));
    CHECK(same(ct_npy_load(own_file("scalar.npy"), false), CT_F64, CT_DIMS0, &value));
    CHECK(ct_npy_save(own_file("empty.npy"), ct_from_data(data, CT_DIMS(2, 0, 3), CT_I64)));
    CHECK(same(ct_npy_load(own_file("empty.npy"), false), CT_I64, CT_DIMS(2, 0, 3), data));
    remove_own_folder();
}

TEST(writes_the_header_that_numpy_writes) {
    const float values[] = {1, 2};
    const char *path = own_file("header.npy");
    CHECK(ct_npy_save(path, ct_from_data(values, CT_DIMS(2), CT_F32)));
    char bytes[256] = {0};
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    CHECK(size == 128 + sizeof values);
    CHECK(memcmp(bytes, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   ", 70) ==
          0);
    CHECK(bytes[127] == '\n');
    remove_own_folder();
}

TEST(names_the_file_and_the_reason) {
    CHECK(!ct_npy_load(own_file("absent.npy"), false));
    char text[512];
    snprintf(text, sizeof text, "npy: %s: cannot be opened: No such file or directory", own_file("absent.npy"));
    CHECK(strcmp(ct_error(), text) == 0);
    ct_error_clear();
    CHECK(!ct_npy_load(own_folder(), false)); /* the folder itself */
    snprintf(text, sizeof text, "npy: %s: cannot be read: Is a directory", own_folder());
    CHECK(strcmp(ct_error(), text) == 0);
    ct_error_clear();
    CHECK(!ct_npy_save(own_file("no/such/folder.npy"), ct_scalar(1, CT_F32)));
    snprintf(text, sizeof text, "npy: %s: cannot be created: No such file or directory",
             own_file("no/such/folder.npy"));
    CHECK(strcmp(ct_error(), text) == 0);
    ct_error_clear();
    remove_own_folder();
}

TEST(leaves_the_old_file_when_writing_fails) {
    CHECK(ct_npy_save(own_file("old.npy"), ct_scalar(1, CT_F32)));
    CHECK(!ct_npy_save(own_file("old.npy"), ct_from_data("", CT_DIMS(0), CT_F8E4M3)));
    char text[512];
    snprintf(text, sizeof text, "npy: %s: f8e4m3 has no form in .npy files; cast it first", own_file("old.npy"));
    CHECK(strcmp(ct_error(), text) == 0);
    /* while an error is pending nothing is written either */
    CHECK(!ct_npy_save(own_file("old.npy"), ct_scalar(2, CT_F32)));
    ct_error_clear();
    CHECK(ct_item(ct_npy_load(own_file("old.npy"), false)) == 1);
    remove_own_folder();
}

TEST(keeps_links_and_leaves_no_other_files) {
    CHECK(ct_npy_save(own_file("target.npy"), ct_scalar(1, CT_F32)));
    CHECK(symlink("target.npy", own_file("link.npy")) == 0);
    CHECK(ct_npy_save(own_file("link.npy"), ct_scalar(5, CT_F32)));
    struct stat status;
    CHECK(lstat(own_file("link.npy"), &status) == 0 && S_ISLNK(status.st_mode));
    CHECK(ct_item(ct_npy_load(own_file("target.npy"), false)) == 5);
    char command[512];
    snprintf(command, sizeof command, "test -z \"$(find %s -name '*.tmp-*')\"", own_folder());
    CHECK(system(command) == 0);
    remove_own_folder();
}

TEST(null_arguments_are_errors) {
    CHECK(!ct_npy_load(NULL, false) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_npy_save(own_file("null.npy"), NULL) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_npy_save(NULL, ct_scalar(1, CT_F32)) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    remove_own_folder();
}

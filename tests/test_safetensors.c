/* safetensors: what others wrote is read and written again to the same bytes; what is wrong is refused in exact words. */
#include <cotangent/io.h>

#include "io/safetensors.h"
#include "support/checksum.h"
#include "tests/files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- What the reference implementation wrote ---- */

TEST(reads_every_dtype_of_the_reference) {
    ct_state *state = ct_safetensors_load(given_file("all.safetensors"));
    NEEDS(state);
    REQUIRE(state != NULL);
    CHECK(ct_state_count(state) == 19);
    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++) {
        ct_tensor *x = ct_state_get(state, ct_dtype_name((ct_dtype)dtype));
        REQUIRE(x && ct_dtype_of(x) == (ct_dtype)dtype && ct_ndim(x) == 2 && ct_dim(x, 0) == 2 && ct_dim(x, 1) == 3);
        if (dtype == CT_COMPLEX64) {
            float parts[12];
            CHECK(ct_read(x, parts, sizeof parts));
            for (int i = 0; i < 6; i++) CHECK(parts[2 * i] == i && parts[2 * i + 1] == -i);
        } else {
            ct_tensor *wide = ct_cast(x, CT_F64);
            for (int i = 0; i < 6; i++) CHECK(harness_at(wide, i) == (dtype == CT_BOOL ? i % 2 : i));
        }
    }
    CHECK(ct_item(ct_state_get(state, "scalar")) == 2.5 && ct_ndim(ct_state_get(state, "scalar")) == 0);
    ct_tensor *empty = ct_state_get(state, "empty");
    CHECK(empty && ct_numel(empty) == 0 && ct_dim(empty, 0) == 0 && ct_dim(empty, 1) == 4);
    CHECK(ct_state_get(state, "a \"quoted\\\" n\xc3\xa4me\n") != NULL);
    CHECK_TEXT(ct_state_text(state, "author"), "someone \"else\"");
    CHECK_TEXT(ct_state_text(state, "empty"), "");
    ct_state_free(state);
}

TEST(writes_the_bytes_that_the_reference_writes) {
    static const char *const names[] = {"all.safetensors", "nothing.safetensors"};
    for (int i = 0; i < 2; i++) {
        ct_state *state = ct_safetensors_load(given_file(names[i]));
        NEEDS(state);
        CHECK(ct_safetensors_save(own_file(names[i]), state));
        ct_state_free(state);
        CHECK(same_files(own_file(names[i]), given_file(names[i])));
    }
    remove_own_folder();
}

TEST(refuses_an_unknown_dtype_by_name) {
    ct_state *state = ct_safetensors_load(given_file("unknown_dtype.safetensors"));
    NEEDS(state);
    CHECK(!state);
    char text[1200];
    snprintf(text, sizeof text, "safetensors: %s: tensor \"x\": dtype F8_E8M0 is not supported",
             given_file("unknown_dtype.safetensors"));
    CHECK_ERROR(CT_ERR_IO, text);
}

/* ---- The mapping ---- */

TEST(tensors_outlive_the_state_and_the_file_and_can_be_changed) {
    char *path = strdup(own_file("x.safetensors"));
    ct_state *state = ct_state_new();
    CHECK(ct_state_put(state, "x", F32(CT_DIMS(3), 1, 2, 3)) && ct_state_put(state, "y", F64(CT_DIMS0, 7)));
    CHECK(ct_safetensors_save(path, state));
    ct_state_free(state);
    state = ct_safetensors_load(path);
    if (state) {
        ct_tensor *x = ct_keep(ct_state_get(state, "x"));
        ct_state_free(state);
        CHECK(ct_add_(x, F32(CT_DIMS0, 10)) != NULL);
        CHECK_VALUES(x, CT_DIMS(3), 0, 11, 12, 13);
        ct_state *again = ct_safetensors_load(path); /* the file has not changed */
        CHECK_VALUES(ct_state_get(again, "x"), CT_DIMS(3), 0, 1, 2, 3);
        ct_state_free(again);
        CHECK(unlink(path) == 0);
        CHECK_VALUES(x, CT_DIMS(3), 0, 11, 12, 13);
        ct_drop(x);
    }
    remove_own_folder();
    free(path);
    NEEDS(state);
}

TEST(keeps_views_and_odd_sizes) {
    ct_state *state = ct_state_new();
    ct_tensor *x = ct_arange(0, 12, 1);
    CHECK(ct_state_put(state, "odd", ct_cast(ct_arange(0, 3, 1), CT_U8))); /* written last: it would push others off */
    CHECK(ct_state_put(state, "turned", ct_t(ct_reshape(x, CT_DIMS(3, 4)))));
    CHECK(ct_state_put_text(state, "note", "tab\tand\x01"));
    CHECK(ct_safetensors_save(own_file("v.safetensors"), state));
    ct_state *back = ct_safetensors_load(own_file("v.safetensors"));
    if (back) {
        CHECK(harness_same_bits(ct_state_get(back, "turned"), ct_state_get(state, "turned")));
        CHECK(harness_same_bits(ct_state_get(back, "odd"), ct_state_get(state, "odd")));
        CHECK_TEXT(ct_state_text(back, "note"), "tab\tand\x01");
        CHECK_TEXT(ct_state_name(back, 0), "turned");
    }
    ct_state_free(back);
    ct_state_free(state);
    remove_own_folder();
    NEEDS(back);
}

TEST(what_is_not_aligned_is_copied_and_bools_are_zero_or_one) {
    const char header[] = "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
                          "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[3,7]}}";
    uint8_t bytes[256] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + sizeof header - 1, "\x00\x07\x01\x00\x00\x80\x3f", 7);
    CHECK(put_file(own_file("u.safetensors"), bytes, 8 + sizeof header - 1 + 7));
    ct_state *state = ct_safetensors_load(own_file("u.safetensors"));
    if (state) {
        CHECK(ct_item(ct_state_get(state, "x")) == 1);
        const uint8_t *b = ct_data(ct_state_get(state, "b"));
        CHECK(b[0] == 0 && b[1] == 1 && b[2] == 1);
    }
    ct_state_free(state);
    remove_own_folder();
    NEEDS(state);
}

/* ---- Refusals ---- */

/* A file in memory: the header's length, its text, and as many bytes of data as said. */
static ct_state *parse(uint64_t told, const char *header, size_t data) {
    const size_t length = strlen(header);
    uint8_t *bytes = ct_calloc(1, 8 + length + data + 1);
    if (!bytes) return NULL;
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(told >> (8 * i));
    memcpy(bytes + 8, header, length);
    ct__mapping *mapping = ct__mapping_of(bytes, 8 + length + data, "safetensors");
    ct_state *state = mapping ? ct__safetensors_parse(mapping, "a.st", "safetensors") : NULL;
    ct__mapping_release(mapping);
    return state;
}

TEST(refuses_in_exact_words) {
#define ENTRY(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define X(dtype, shape, offsets)     "{\"x\":" ENTRY(dtype, shape, offsets) "}"
    static const struct {
        const char *header;
        size_t data;
        const char *text;
    } cases[] = {
        {"", 4, "is not a safetensors file"},
        {"[]  ", 4, "is not a safetensors file"},
        {"{", 0, "is not a safetensors file"},
        {"{ ", 0, "malformed header: byte 2: string or '}' expected near end of file"},
        {"{}x", 0, "malformed header: byte 3: end of file expected near 'x'"},
        {"{\"x\":NaN}", 0, "malformed header: byte 8: invalid token near 'NaN'"},
        {"{\"\xff\":1}", 0, "malformed header: byte 2: unable to decode byte 0xff near '\"'"},
        {"{\"x\\u0000\":1}", 0, "malformed header: byte 10: NUL byte in object key not supported near '\"x\\u0000\"'"},
        {"{\"x\":" ENTRY("\"U8\"", "[1]", "[0,1]") ",\"x\":" ENTRY("\"U8\"", "[1]", "[0,1]") "}", 1,
         "malformed header: byte 56: duplicate object key near '\"x\"'"},
        {"{\"__metadata__\":3}", 0, "malformed header: __metadata__ is not an object"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "malformed header: \"k\" in __metadata__ is not a text"},
        {"{\"x\":[[[[[[[[[]]]]]]]]]}", 0, "malformed header: it is nested too deeply"},
        {"{\"x\":3}", 0, "tensor \"x\": its entry is not an object"},
        {"{\"x\":{}}", 0, "tensor \"x\": dtype is not a text"},
        {X("3", "[1]", "[0,4]"), 4, "tensor \"x\": dtype is not a text"},
        {X("\"F4\"", "[1]", "[0,4]"), 4, "tensor \"x\": dtype F4 is not supported"},
        {X("\"F32\"", "1", "[0,4]"), 4, "tensor \"x\": shape is not a list"},
        {X("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "tensor \"x\": 9 dimensions are more than 8"},
        {X("\"F32\"", "[-1]", "[0,4]"), 4, "tensor \"x\": a dimension is no integer from 0 up"},
        {X("\"F32\"", "[1.0]", "[0,4]"), 4, "tensor \"x\": a dimension is no integer from 0 up"},
        {X("\"F32\"", "[18446744073709551617]", "[0,4]"), 4,
         "malformed header: byte 49: too big integer near '18446744073709551617'"},
        {X("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0,
         "tensor \"x\": the shape has more elements than can be counted"},
        {X("\"F32\"", "[0,4611686018427387904,4]", "[0,0]"), 0,
         "tensor \"x\": the shape has more elements than can be counted"},
        {X("\"F32\"", "[1]", "[0]"), 4, "tensor \"x\": data_offsets are not two integers from 0 up"},
        {X("\"F32\"", "[1]", "[-4,0]"), 4, "tensor \"x\": data_offsets are not two integers from 0 up"},
        {X("\"F32\"", "[1]", "[4,0]"), 4, "tensor \"x\": it ends before it begins"},
        {X("\"F32\"", "[2]", "[0,4]"), 4, "tensor \"x\": its shape and dtype need 8 bytes, the file gives it 4"},
        {X("\"F32\"", "[1]", "[4,8]"), 8, "tensor \"x\": there is a hole before it"},
        {X("\"F32\"", "[1]", "[0,4]"), 3, "the tensors need 4 bytes of data, the file has 3"},
        {X("\"F32\"", "[1]", "[0,4]"), 5, "the tensors need 4 bytes of data, the file has 5"},
        {X("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1, "tensor \"x\": there is a hole before it"},
        {"{}", 1, "the tensors need 0 bytes of data, the file has 1"},
        {"{\"x\":" ENTRY("\"U8\"", "[4]", "[0,4]") ",\"y\":" ENTRY("\"U8\"", "[4]", "[2,6]") "}", 6,
         "tensor \"y\": it overlaps the tensor before it"},
        {"{\"x\":" ENTRY("\"U8\"", "[4]", "[0,4]") ",\"y\":" ENTRY("\"U8\"", "[2]", "[1,3]") "}", 4,
         "tensor \"y\": it overlaps the tensor before it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_state *state = parse(strlen(cases[i].header), cases[i].header, cases[i].data);
        NEEDS(state);
        harness_check(!state, __FILE__, __LINE__, "case %zu was read", i);
        char text[256];
        snprintf(text, sizeof text, "safetensors: a.st: %s", cases[i].text);
        if (!CHECK_ERROR(CT_ERR_IO, text)) printf("in case %zu\n", i);
        ct_state_free(state);
    }
}

TEST(refuses_headers_that_are_too_long) {
    ct_state *state = parse(1000000000000000000u, "{}", 0);
    NEEDS(state);
    CHECK(!state);
    CHECK_ERROR(CT_ERR_IO, "safetensors: a.st: a header of 1000000000000000000 bytes is longer than 100000000");
    CHECK(!parse(UINT64_MAX, "{}", 0));
    CHECK_ERROR(CT_ERR_IO, "safetensors: a.st: a header of 18446744073709551615 bytes is longer than 100000000");
    CHECK(!parse(3, "{}", 0));
    CHECK_ERROR(CT_ERR_IO, "safetensors: a.st: ends inside its header");
}

TEST(accepts_any_order_in_the_header_and_unknown_keys) {
    const char header[] = "{\"y\":{\"shape\":[2],\"extra\":[1],\"dtype\":\"U8\",\"data_offsets\":[4,6]},"
                          "\"x\":{\"data_offsets\":[0,4],\"dtype\":\"F32\",\"shape\":[]}}   ";
    ct_state *state = parse(sizeof header - 1, header, 6);
    NEEDS(state);
    CHECK(state && ct_state_count(state) == 2);
    if (state) CHECK_TEXT(ct_state_name(state, 0), "x");
    ct_state_free(state);
}

TEST(refuses_files_that_are_none) {
    CHECK(!ct_safetensors_load("/nowhere/at/all"));
    CHECK_ERROR(CT_ERR_IO, "safetensors: /nowhere/at/all: cannot be opened: No such file or directory");
    CHECK(!ct_safetensors_load("/tmp"));
    CHECK_ERROR(CT_ERR_IO, "safetensors: /tmp: cannot be read: Is a directory");
    CHECK(!ct_safetensors_load(NULL));
    CHECK_ERROR(CT_ERR_NULL, "safetensors: argument path is NULL");
    ct_state *state = ct_safetensors_load("/dev/null");
    NEEDS(state);
    CHECK(!state);
    CHECK_ERROR(CT_ERR_IO, "safetensors: /dev/null: is not a safetensors file");
}

TEST(refuses_to_write_what_the_format_cannot_hold) {
    ct_state *state = ct_state_new();
    CHECK(ct_state_put(state, "__metadata__", ct_scalar(1, CT_F32)));
    CHECK(!ct_safetensors_save("/tmp/never", state));
    CHECK_ERROR(CT_ERR_VALUE, "safetensors: /tmp/never: the format keeps the name \"__metadata__\" for itself");
    ct_state_free(state);
    static const char *const wrong[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "a\x80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        state = ct_state_new();
        CHECK(ct_state_put(state, wrong[i], ct_scalar(1, CT_F32)));
        CHECK(!ct_safetensors_save("/tmp/never", state));
        CHECK_ERROR(CT_ERR_VALUE, "safetensors: /tmp/never: the name of tensor 0 is not UTF-8");
        ct_state_free(state);
    }
    state = ct_state_new();
    CHECK(ct_state_put_text(state, CT__CHECKSUM_NAME, "x"));
    CHECK(!ct_safetensors_save("/tmp/never", state));
    CHECK_ERROR(CT_ERR_VALUE, "safetensors: /tmp/never: the text \"cotangent.crc64\" is written by the library alone");
    ct_state_free(state);
    CHECK(!ct_safetensors_save("/tmp/never", NULL));
    CHECK_ERROR(CT_ERR_NULL, "safetensors: argument state is NULL (for /tmp/never)");
    CHECK(access("/tmp/never", F_OK) != 0);
}

/* ---- Writing that fails ---- */

TEST(a_full_disk_leaves_the_old_file) {
    ct_state *small = ct_state_new(), *large = ct_state_new();
    CHECK(ct_state_put(small, "x", ct_zeros(CT_DIMS(4))) && ct_state_put(large, "x", ct_zeros(CT_DIMS(100000))));
    CHECK(ct_safetensors_save(own_file("x.safetensors"), small));
    size_t size = 0, after = 0;
    uint8_t *before = file_bytes(own_file("x.safetensors"), &size);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){50000, limit.rlim_max}) == 0);
    CHECK(!ct_safetensors_save(own_file("x.safetensors"), large));
    char text[600];
    snprintf(text, sizeof text, "safetensors: %s: cannot be written: File too large", own_file("x.safetensors"));
    CHECK_ERROR(CT_ERR_IO, text);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    uint8_t *now = file_bytes(own_file("x.safetensors"), &after);
    CHECK(before && now && size == after && memcmp(before, now, size) == 0);
    char command[600];
    snprintf(command, sizeof command, "test \"$(ls %s)\" = x.safetensors", own_folder());
    CHECK(system(command) == 0);
    free(before);
    free(now);
    ct_state_free(small);
    ct_state_free(large);
    remove_own_folder();
}

TEST(what_killed_writers_left_is_removed_and_nothing_else) {
    static const char *const left[] = {"x.safetensors.tmp-1-0", "x.safetensors.tmp-99999999-12"};
    static const char *const other[] = {"x.safetensors.tmp-", "x.safetensors.tmp-1-0.bak", "y.safetensors.tmp-1-0",
                                        "x.safetensors.tmp-a-1", "x.safetensors.tmp-1"};
    for (int i = 0; i < 2; i++) CHECK(put_file(own_file(left[i]), "x", 1));
    for (int i = 0; i < 5; i++) CHECK(put_file(own_file(other[i]), "x", 1));
    ct_state *state = ct_state_new();
    CHECK(ct_safetensors_save(own_file("x.safetensors"), state));
    for (int i = 0; i < 2; i++) CHECK(access(own_file(left[i]), F_OK) != 0);
    for (int i = 0; i < 5; i++) CHECK(access(own_file(other[i]), F_OK) == 0);
    ct_state_free(state);
    remove_own_folder();
}

TEST(nothing_is_written_while_an_error_is_pending) {
    ct_state *state = ct_state_new();
    ct_fail(CT_ERR_VALUE, "test", "earlier");
    CHECK(!ct_safetensors_save(own_file("x.safetensors"), state));
    CHECK_ERROR(CT_ERR_VALUE, "test: earlier");
    CHECK(access(own_file("x.safetensors"), F_OK) != 0);
    ct_state_free(state);
    remove_own_folder();
}

TEST(a_file_keeps_its_permissions_and_a_link_stays_a_link) {
    ct_state *state = ct_state_new();
    struct stat status;
    CHECK(ct_safetensors_save(own_file("x.safetensors"), state));
    CHECK(chmod(own_file("x.safetensors"), 0600) == 0);
    CHECK(ct_safetensors_save(own_file("x.safetensors"), state));
    CHECK(stat(own_file("x.safetensors"), &status) == 0 && (status.st_mode & 0777) == 0600);
    /* to a file that is there, and to one that is not there yet */
    CHECK(symlink("x.safetensors", own_file("there")) == 0 && symlink("new.safetensors", own_file("not_yet")) == 0);
    CHECK(ct_safetensors_save(own_file("there"), state) && ct_safetensors_save(own_file("not_yet"), state));
    CHECK(lstat(own_file("there"), &status) == 0 && S_ISLNK(status.st_mode));
    CHECK(lstat(own_file("not_yet"), &status) == 0 && S_ISLNK(status.st_mode));
    CHECK(access(own_file("new.safetensors"), F_OK) == 0);
    ct_state_free(state);
    remove_own_folder();
}

/* Many times: a reader that opens the pipe twice loses what was written between, or the writer, only now and then. */
TEST(a_named_pipe_is_read_whole) {
    size_t size = 0;
    uint8_t *bytes = file_bytes(given_file("all.safetensors"), &size);
    REQUIRE(bytes != NULL && mkfifo(own_file("pipe"), 0600) == 0);
    bool missing = false;
    for (int i = 0; i < 100 && !missing; i++) {
        const pid_t writer = fork();
        if (writer == 0) {
            alarm(20);
            const int fd = open(own_file("pipe"), O_WRONLY);
            const bool done = fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0;
            _exit(done ? 0 : 1);
        }
        alarm(20);
        ct_state *state = ct_safetensors_load(own_file("pipe"));
        alarm(0);
        int status = 1;
        CHECK(waitpid(writer, &status, 0) == writer && status == 0);
        missing = !state && ct_error_code() == CT_ERR_UNSUPPORTED;
        CHECK(missing || (state && ct_state_count(state) == 19));
        ct_state_free(state);
    }
    free(bytes);
    remove_own_folder();
    NEEDS(!missing);
}

/* ---- The checksum ---- */

TEST(crc64_has_its_known_value) {
    CHECK(ct__crc64(0, "123456789", 9) == 0x995DC9BBDF1939FAu);
    CHECK(ct__crc64(ct__crc64(0, "1234", 4), "56789", 5) == 0x995DC9BBDF1939FAu);
    CHECK(ct__crc64(0, "", 0) == 0);
}

TEST(any_changed_byte_is_noticed) {
    ct_state *state = ct_state_new();
    CHECK(ct_state_put(state, "x", ct_zeros(CT_DIMS(9))) && ct_state_put_text(state, "k", "v"));
    CHECK(ct__safetensors_write(own_file("x.safetensors"), state, true, "test"));
    ct_state_free(state);
    size_t size = 0;
    uint8_t *bytes = file_bytes(own_file("x.safetensors"), &size);
    REQUIRE(bytes != NULL);
    CHECK(ct__safetensors_verify(bytes, size) == CT__CHECKSUM_RIGHT);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        CHECK(ct__safetensors_verify(bytes, size) != CT__CHECKSUM_RIGHT);
        bytes[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < size; cut++) CHECK(ct__safetensors_verify(bytes, cut) != CT__CHECKSUM_RIGHT);
    free(bytes);
    /* other programs read it, and its checksum is not carried into another file */
    ct_state *back = ct_safetensors_load(own_file("x.safetensors"));
    if (back) CHECK(ct_state_text_count(back) == 1 && !ct_state_text(back, CT__CHECKSUM_NAME));
    ct_state_free(back);
    remove_own_folder();
    NEEDS(back);
}

/* Datasets: each kind from small files made here, what they refuse, and with which words. */
#include "tests/files.h"

#include <cotangent/data.h>
#include <cotangent/io.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files in a folder of the test ---- */

static const char *put(const char *name, const void *bytes, size_t size) {
    const char *path = own_file(name);
    CHECK(put_file(path, bytes, size));
    return path;
}
static const char *put_text(const char *name, const char *text) { return put(name, text, strlen(text)); }

/* The pending error ends with this text; what stands before has the path of the folder in it. */
static void check_error(int line, ct_code code, const char *op, const char *end) {
    const size_t have = strlen(ct_error()), want = strlen(end);
    harness_check(ct_error_code() == code && strcmp(ct_error_op(), op) == 0 && have >= want &&
                      strcmp(ct_error() + have - want, end) == 0,
                  __FILE__, line, "the error is '%s', not one that ends with '%s'", ct_error(), end);
    ct_error_clear();
}
#define CHECK_REFUSED(call, code, op, end)    \
    do {                                      \
        CHECK(!(call));                       \
        check_error(__LINE__, code, op, end); \
    } while (0)

static double value(ct_dataset *set, int64_t item, int field, int64_t element) {
    double result = NAN;
    ct_scope {
        ct_tensor *fields[CT_MAX_FIELDS];
        if (ct_dataset_get(set, item, fields, ct_dataset_fields(set))) result = harness_at(fields[field], element);
    }
    return result;
}

/* ---- IDX ---- */

static const char images[] =
    "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c";
static const char labels[] = "\0\0\x08\x01\0\0\0\x02\x07\x03";

TEST(idx_files_become_images_and_labels) {
    ct_dataset *set = ct_dataset_idx(put("i", images, sizeof images - 1), put("l", labels, sizeof labels - 1));
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 2 && ct_dataset_fields(set) == 2 && ct_dataset_classes(set) == 8);
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(set, 1, fields, 2));
    CHECK(ct_dtype_of(fields[0]) == CT_U8 && ct_dtype_of(fields[1]) == CT_I64 && ct_ndim(fields[1]) == 0);
    CHECK_VALUES(fields[0], CT_DIMS(1, 2, 3), 0, 7, 8, 9, 10, 11, 12);
    CHECK(ct_item(fields[1]) == 3 && ct_dataset_label(set, 0) == 7);
    CHECK_REFUSED(ct_dataset_get(set, 2, fields, 2), CT_ERR_INDEX, "dataset_get", "item 2 of 2");
    ct_dataset_free(set);
    set = ct_dataset_idx(own_file("i"), NULL);
    CHECK(set && ct_dataset_fields(set) == 1 && ct_dataset_classes(set) == 0);
    ct_dataset_free(set);
    remove_own_folder();
}

TEST(idx_files_of_every_dtype_and_rank_are_read) {
    CHECK_VALUES(ct_idx_load(put("a", "\0\0\x09\x01\0\0\0\x02\xff\x05", 10)), CT_DIMS(2), 0, -1, 5);
    CHECK_VALUES(ct_idx_load(put("a", "\0\0\x0b\x01\0\0\0\x02\xff\xfe\x01\0", 12)), CT_DIMS(2), 0, -2, 256);
    CHECK_VALUES(ct_idx_load(put("a", "\0\0\x0c\x02\0\0\0\x01\0\0\0\x01\0\x01\0\0", 16)), CT_DIMS(1, 1), 0, 65536);
    CHECK_VALUES(ct_idx_load(put("a", "\0\0\x0d\x01\0\0\0\x01\xbf\xc0\0\0", 12)), CT_DIMS(1), 0, -1.5);
    CHECK_VALUES(ct_idx_load(put("a", "\0\0\x0e\x01\0\0\0\x01\x40\x04\0\0\0\0\0\0", 16)), CT_DIMS(1), 0, 2.5);
    ct_tensor *empty = ct_idx_load(put("a", "\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x03", 16));
    CHECK(empty && ct_numel(empty) == 0);
    remove_own_folder();
}

TEST(broken_idx_files_are_refused) {
    char bytes[sizeof images];
#define REFUSED(size, end) CHECK_REFUSED(ct_dataset_idx(put("x", bytes, size), NULL), CT_ERR_IO, "idx_load", end)
    memcpy(bytes, images, sizeof images);
    REFUSED(3, ": has 3 bytes, too few for an IDX file");
    REFUSED(10, ": ends within its header (10 bytes of 16)");
    REFUSED(20, ": holds 4 bytes of data, but its header says u8[2,2,3]");
    REFUSED(sizeof images, ": holds 13 bytes of data, but its header says u8[2,2,3]");
    bytes[2] = 7;
    REFUSED(sizeof images - 1, ": 0x07 is not an element type of IDX");
    bytes[2] = 8;
    bytes[3] = 9;
    REFUSED(sizeof images - 1, ": has 9 dimensions; expected 1 to 8");
    bytes[3] = 3;
    memset(bytes + 4, 0xff, 12);
    REFUSED(sizeof images - 1, ": holds 12 bytes of data, but its header says u8[4294967295,4294967295,4294967295]");
    bytes[0] = 'P';
    REFUSED(sizeof images - 1, ": is not an IDX file: it begins with the bytes 50 00, not 00 00");
#undef REFUSED
    put("i", images, sizeof images - 1);
    CHECK_REFUSED(ct_dataset_idx(own_file("i"), put("l", "\0\0\x08\x01\0\0\0\x01\x07", 9)), CT_ERR_IO, "dataset_idx",
                  "/l has 1 labels");
    CHECK_REFUSED(ct_dataset_idx(own_file("i"), own_file("i")), CT_ERR_IO, "dataset_idx",
                  "/i: holds u8 of 3 dimensions; labels are integers of one");
    CHECK(!ct_dataset_idx(own_file("missing"), NULL) && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    CHECK(!ct_dataset_idx(NULL, NULL));
    CHECK_ERROR(CT_ERR_NULL, "dataset_idx: argument images is NULL");
    remove_own_folder();
}

TEST(mnist_is_found_by_its_names) {
    own_file("");
    put("train-images-idx3-ubyte", images, sizeof images - 1);
    put("train-labels-idx1-ubyte", labels, sizeof labels - 1);
    ct_dataset *set = ct_dataset_mnist(own_folder(), true);
    REQUIRE(set);
    CHECK(ct_dataset_classes(set) == 10 && ct_dataset_count(set) == 2);
    CHECK_TEXT(ct_dataset_class_name(set, 9), "9");
    CHECK(!ct_dataset_class_name(set, 10) && !ct_dataset_class_name(set, -1));
    ct_dataset_free(set);
    CHECK_REFUSED(ct_dataset_mnist(own_folder(), false), CT_ERR_IO, "dataset_mnist",
                  ": has no file t10k-images-idx3-ubyte, nor the same with .gz");
    remove_own_folder();
}

TEST(fashion_mnist_is_read_from_its_packed_files) {
    const char *fashion = "/usr/share/datasets/fashion-mnist";
    if (access(fashion, R_OK) != 0) SKIP("%s is not installed", fashion);
    ct_dataset *set = ct_dataset_mnist(fashion, false);
    if (!set && ct_error_code() == CT_ERR_UNSUPPORTED) {
        ct_error_clear();
        SKIP("this build has no zlib");
    }
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 10000 && ct_dataset_classes(set) == 10);
    CHECK_TEXT(ct_dataset_class_name(set, ct_dataset_label(set, 0)), "Ankle boot");
    int64_t count[10] = {0};
    for (int64_t i = 0; i < 10000; i++) count[ct_dataset_label(set, i)]++;
    for (int c = 0; c < 10; c++) CHECK(count[c] == 1000);
    ct_dataset_free(set);
}

/* ---- CIFAR ---- */

static void put_cifar(const char *name, int label_bytes, int records, int first) {
    const size_t record = (size_t)(3072 + label_bytes);
    char *bytes = calloc((size_t)records, record);
    for (int i = 0; bytes && i < records; i++) {
        bytes[(size_t)i * record + (size_t)label_bytes - 1] = (char)(first + i);
        bytes[(size_t)i * record + (size_t)label_bytes] = (char)(first + i + 100);
    }
    put(name, bytes, (size_t)records * record);
    free(bytes);
}

TEST(cifar_is_read_from_files_and_folders) {
    own_file("");
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        put_cifar(name, 1, 2, i);
    }
    put_cifar("test_batch.bin", 1, 3, 4);
    put_text("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    ct_dataset *train = ct_dataset_cifar(own_folder(), true), *test = ct_dataset_cifar(own_folder(), false);
    REQUIRE(train && test);
    CHECK(ct_dataset_count(train) == 10 && ct_dataset_count(test) == 3 && ct_dataset_classes(train) == 10);
    CHECK(ct_dataset_label(train, 3) == 3 && value(train, 3, 0, 0) == 103 && ct_dataset_label(test, 2) == 6);
    CHECK_TEXT(ct_dataset_class_name(test, 2), "c");
    ct_dataset_free(train);
    ct_dataset_free(test);
    remove_own_folder();
    put_cifar("train.bin", 2, 4, 90); /* CIFAR-100, by its size */
    ct_dataset *set = ct_dataset_cifar(own_file("train.bin"), true);
    REQUIRE(set);
    CHECK(ct_dataset_classes(set) == 100 && ct_dataset_label(set, 1) == 91 && !ct_dataset_class_name(set, 1));
    ct_dataset_free(set);
    set = ct_dataset_cifar(own_folder(), true);
    CHECK(set && ct_dataset_count(set) == 4);
    ct_dataset_free(set);
    CHECK_REFUSED(ct_dataset_cifar(own_folder(), false), CT_ERR_IO, "dataset_cifar",
                  ": has neither test_batch.bin of CIFAR-10 nor test.bin of CIFAR-100");
    CHECK_REFUSED(ct_dataset_cifar(put("short.bin", images, 20), true), CT_ERR_IO, "dataset_cifar",
                  ": has 20 bytes, which is not a number of records of 3074");
    put_cifar("test_batch.bin", 1, 1, 3);
    set = ct_dataset_cifar(own_folder(), false); /* without a file of names */
    CHECK_TEXT(ct_dataset_class_name(set, ct_dataset_label(set, 0)), "cat");
    ct_dataset_free(set);
    put_cifar("test_batch.bin", 1, 1, 200);
    CHECK_REFUSED(ct_dataset_cifar(own_folder(), false), CT_ERR_IO, "dataset_cifar",
                  ": the label of record 0 is 200; expected 0 to 9");
    remove_own_folder();
}

/* ---- Folders of pictures ---- */

static bool put_picture(const char *name, int64_t height, int64_t width, double gray) {
    bool ok = false;
    ct_scope {
        ok = ct_image_save(own_file(name), ct_full(CT_DIMS(3, height, width), gray, .dtype = CT_U8));
    }
    return ok;
}

TEST(folders_of_pictures_are_classes_by_name) {
    own_file("");
    mkdir(own_file("dog"), 0700);
    mkdir(own_file("cat"), 0700);
    mkdir(own_file("empty"), 0700);
    if (!put_picture("dog/2.png", 4, 6, 200) && ct_error_code() == CT_ERR_UNSUPPORTED) {
        ct_error_clear();
        remove_own_folder();
        SKIP("this build has no libpng");
    }
    REQUIRE(put_picture("dog/1.png", 4, 6, 150) && put_picture("cat/x.PNG", 8, 8, 50));
    put_text("cat/notes.txt", "not a picture");
    put_text("cat/.hidden.png", "not a picture");
    ct_dataset *set = ct_dataset_folder(own_folder(), .resize = 5);
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 3 && ct_dataset_classes(set) == 3);
    CHECK_TEXT(ct_dataset_class_name(set, 0), "cat");
    CHECK_TEXT(ct_dataset_class_name(set, 1), "dog");
    CHECK_TEXT(ct_folder_file(set, 1) + strlen(own_folder()), "/dog/1.png");
    CHECK(!ct_folder_file(set, 3));
    CHECK(ct_dataset_label(set, 0) == 0 && ct_dataset_label(set, 2) == 1);
    ct_loader *loader = ct_batches(set, 3, .raw = true, .threads = CT_SET(2));
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    CHECK(ct_dtype_of(b.x) == CT_U8 && ct_dim(b.x, 1) == 3 && ct_dim(b.x, 2) == 5 && ct_dim(b.x, 3) == 5);
    CHECK(harness_at(b.x, 0) == 50 && harness_at(b.x, 75) == 150 && harness_at(b.x, 224) == 200);
    ct_loader_free(loader);
    ct_dataset_free(set);
    set = ct_dataset_folder(own_folder(), .gray = true);
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(set, 0, fields, 2));
    CHECK(ct_dim(fields[0], 0) == 1 && ct_dim(fields[0], 1) == 8);
    ct_dataset_free(set);
    /* a broken picture is an error of the batch that it is in, with its name */
    put_text("dog/0.png", "nonsense");
    set = ct_dataset_folder(own_folder(), .resize = 5);
    loader = ct_batches(set, 1);
    CHECK(ct_next(loader, &b) && !ct_next(loader, &b) && strstr(ct_error(), "dog/0.png"));
    ct_error_clear();
    CHECK(ct_next(loader, &b));
    ct_loader_free(loader);
    ct_dataset_free(set);
    CHECK_REFUSED(ct_dataset_folder(own_file("dog")), CT_ERR_IO, "dataset_folder",
                  ": has no PNG or JPEG files in 0 subfolders (one for each class)");
    CHECK_REFUSED(ct_dataset_folder(own_file("nothing")), CT_ERR_IO, "dataset_folder",
                  "/nothing: cannot be opened as a folder");
    CHECK_REFUSED(ct_dataset_folder(own_folder(), .height = 3), CT_ERR_VALUE, "dataset_folder",
                  "images resized to 3 x 0; expected 1 to 65536 for both");
    remove_own_folder();
}

/* ---- CSV ---- */

TEST(csv_columns_become_numbers_and_classes) {
    const char *path = put_text("t.csv", "\xef\xbb\xbf"
                                         "size, color ,\"na,me\",kind\r\n"
                                         "1.5,red,3,10\r\n"
                                         "\r\n"
                                         "-2e1,\"blue\",4,9\n"
                                         " 0.5 , red,5,10");
    ct_dataset *set = ct_dataset_csv(path);
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 3 && ct_dataset_classes(set) == 2);
    CHECK_TEXT(ct_dataset_class_name(set, 0), "9"); /* whole numbers in their order */
    CHECK_TEXT(ct_dataset_class_name(set, 1), "10");
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(set, 1, fields, 2));
    CHECK(ct_dtype_of(fields[0]) == CT_F32 && ct_dtype_of(fields[1]) == CT_I64);
    CHECK_VALUES(fields[0], CT_DIMS(3), 0, -20, 0, 4);
    CHECK_NEAR(ct_item(fields[1]), 0, 0);
    CHECK_NEAR(value(set, 0, 0, 1), 1, 0);
    CHECK_TEXT(ct_csv_column_at(set, 1)->name, "color");
    CHECK_TEXT(ct_csv_column_at(set, 2)->name, "na,me");
    CHECK(ct_csv_column_at(set, 1)->categories == 2 && ct_csv_column_at(set, 0)->categories == 0);
    CHECK_TEXT(ct_csv_category(set, 1, 0), "blue");
    CHECK(ct_csv_column_at(set, 3)->target && !ct_csv_column_at(set, 4) && !ct_csv_category(set, 0, 0));
    CHECK_NEAR(ct_csv_column_at(set, 0)->mean, -6, 1e-12);
    ct_dataset_free(set);
    remove_own_folder();
}

TEST(csv_options_choose_target_separator_header_and_task) {
    const char *path = put_text("t.csv", "a;b;c\n1;2;x\n3;4;y\n");
    ct_dataset *set = ct_dataset_csv(path, .separator = ';', .target = "b", .regression = true);
    REQUIRE(set);
    CHECK(ct_dataset_classes(set) == 0 && value(set, 1, 1, 0) == 4 && value(set, 1, 0, 1) == 1);
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(set, 0, fields, 2));
    CHECK(ct_ndim(fields[1]) == 1 && ct_dtype_of(fields[1]) == CT_F32);
    CHECK_REFUSED(ct_dataset_label(set, 0) >= 0, CT_ERR_VALUE, "dataset_label", "csv has no class numbers in field 1");
    ct_dataset_free(set);
    set = ct_dataset_csv(path, .separator = ';', .target = "0", .categorical = "b");
    CHECK(set && ct_dataset_classes(set) == 2 && value(set, 1, 0, 0) == 1);
    ct_dataset_free(set);
    set = ct_dataset_csv(put_text("u.csv", "1,2\n3,4\n"), .no_header = true, .target = "-2", .regression = true);
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 2 && value(set, 0, 1, 0) == 1 && value(set, 1, 0, 0) == 4);
    CHECK_TEXT(ct_csv_column_at(set, 1)->name, "1");
    ct_dataset_free(set);
    remove_own_folder();
}

TEST(csv_is_standardized_by_the_training_set) {
    ct_dataset *train = ct_dataset_csv(put_text("a.csv", "x,k,c,y\n1,p,7,u\n3,q,7,v\n5,p,7,u\n"), .standardize = true);
    REQUIRE(train);
    const double std = sqrt(8.0 / 3);
    CHECK_NEAR(value(train, 0, 0, 0), -2 / std, 1e-6);
    CHECK(value(train, 1, 0, 1) == 1 && value(train, 0, 0, 2) == 0); /* categories stay; a constant column is 0 */
    ct_dataset *test = ct_dataset_csv(put_text("b.csv", "x,k,c,y\n7,q,8,u\n"), .like = train);
    REQUIRE(test);
    CHECK_NEAR(value(test, 0, 0, 0), 4 / std, 1e-6);
    CHECK(value(test, 0, 0, 1) == 1 && value(test, 0, 0, 2) == 1 && value(test, 0, 1, 0) == 0);
    CHECK(ct_dataset_classes(test) == 2);
    ct_dataset_free(test);
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,k,c,y\n7,r,8,u\n"), .like = train), CT_ERR_IO, "dataset_csv",
                  "b.csv, line 2, column k: 'r' is not one of the 2 categories that are known");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,m,c,y\n7,q,8,u\n"), .like = train), CT_ERR_VALUE, "dataset_csv",
                  "b.csv: has no column k; the dataset that it is to be like has one");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "k,x,c,y\nq,7,8,u\n"), .like = train), CT_ERR_VALUE, "dataset_csv",
                  "b.csv: column 0 is k; in the dataset that it is to be like it is x");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,k,c,y,z\n7,q,8,u,1\n"), .like = train), CT_ERR_VALUE,
                  "dataset_csv", "b.csv: has 5 columns; the dataset that it is to be like has 4");
    ct_dataset_free(train);
    remove_own_folder();
}

/* What a bent state does: each of these in place of what was put. */
static void check_bent_csv(const ct_dataset *train, const char *name, const int64_t *values, int64_t n) {
    ct_state *whole = ct_state_new(), *bent = ct_state_new();
    REQUIRE(ct_csv_put_state(train, whole, ""));
    for (int64_t i = 0; i < ct_state_count(whole); i++)
        if (strcmp(ct_state_name(whole, i), name) == 0) ct_state_put_integers(bent, name, values, n);
        else ct_state_put(bent, ct_state_name(whole, i), ct_state_at(whole, i));
    CHECK(!ct_csv_take_state(bent, "") && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    ct_state_free(whole);
    ct_state_free(bent);
}

TEST(how_csv_is_read_can_be_stored) {
    ct_dataset *train =
        ct_dataset_csv(put_text("a.csv", "x,\"k\nl\",c,y\n1,p,7,u\n3,q,7,v\n5,p,7,u\n"), .standardize = true);
    ct_state *state = ct_state_new();
    REQUIRE(train && ct_csv_put_state(train, state, "csv."));
    ct_dataset_free(train);
    ct_dataset *like = ct_csv_take_state(state, "csv.");
    REQUIRE(like);
    CHECK(ct_dataset_count(like) == 0 && ct_dataset_classes(like) == 2);
    CHECK_TEXT(ct_dataset_class_name(like, 1), "v");
    CHECK_TEXT(ct_csv_column_at(like, 1)->name, "k\nl");
    CHECK_TEXT(ct_csv_category(like, 1, 1), "q");
    CHECK(ct_csv_column_at(like, 3)->target && !ct_csv_column_at(like, 2)->target && !ct_csv_column_at(like, 4));
    ct_dataset *test = ct_dataset_csv(put_text("b.csv", "x,\"k\nl\",c,y\n7,q,8,v\n"), .like = like);
    REQUIRE(test);
    CHECK_NEAR(value(test, 0, 0, 0), 4 / sqrt(8.0 / 3), 1e-6);
    CHECK(value(test, 0, 0, 1) == 1 && ct_dataset_label(test, 0) == 1 && ct_dataset_classes(test) == 2);
    ct_dataset_free(test);
    CHECK(!ct_csv_take_state(state, "else.") && ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    check_bent_csv(like, "facts", (int64_t[]){4, 0, 1}, 3);
    check_bent_csv(like, "facts", (int64_t[]){2, 0, 1}, 3); /* a class needs categories */
    check_bent_csv(like, "facts", (int64_t[]){0, 0}, 2);
    check_bent_csv(like, "categories", (int64_t[]){0, 2, 0, 3}, 4);
    check_bent_csv(like, "categories", (int64_t[]){0, 2, 0, -1}, 4);
    check_bent_csv(like, "categories", (int64_t[]){0, INT64_MAX, 0, 2}, 4);
    check_bent_csv(like, "categories", (int64_t[]){0}, 1);
    check_bent_csv(like, "numbers", (int64_t[]){0}, 1);
    check_bent_csv(like, "texts", (int64_t[]){0}, 1);
    CHECK(!ct_csv_put_state(NULL, state, "") && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    ct_dataset_free(like);
    ct_state_free(state);
    remove_own_folder();
}

TEST(csv_without_its_target_is_read_like_the_training_set) {
    ct_dataset *train = ct_dataset_csv(put_text("a.csv", "y,x,k\nu,1,p\nv,3,q\nu,5,p\n"), .target = "y");
    REQUIRE(train);
    static const char *const texts[] = {"x,k\n7,q\n8,p\n", "y,x,k\n,7,q\nnever seen,8,p\n"};
    for (int i = 0; i < 2; i++) {
        ct_dataset *set = ct_dataset_csv(put_text("b.csv", texts[i]), .like = train, .unlabeled = true);
        REQUIRE(set);
        CHECK(ct_dataset_fields(set) == 1 && ct_dataset_count(set) == 2 && ct_dataset_classes(set) == 2);
        ct_tensor *x = NULL;
        float values[2];
        CHECK(ct_dataset_get(set, 0, &x, 1) && ct_read(x, values, sizeof values) && values[0] == 7 && values[1] == 1);
        CHECK_TEXT(ct_csv_column_at(set, 0)->name, "y");
        CHECK(ct_csv_column_at(set, 0)->target);
        ct_dataset_free(set);
    }
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "y,x\nu,7\n"), .like = train, .unlabeled = true), CT_ERR_VALUE,
                  "dataset_csv", "b.csv: has no column k; the dataset that it is to be like has one");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,k\n7,\n"), .like = train, .unlabeled = true), CT_ERR_IO,
                  "dataset_csv", "b.csv, line 2, column k: the value is missing");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,k\n7,q\n"), .like = train), CT_ERR_VALUE, "dataset_csv",
                  "b.csv: has no column y; the dataset that it is to be like has one");
    CHECK_REFUSED(ct_dataset_csv(put_text("b.csv", "x,k\n7,q\n"), .unlabeled = true), CT_ERR_VALUE, "dataset_csv",
                  "unlabeled needs like, the dataset that says what the columns are");
    ct_dataset_free(train);
    remove_own_folder();
}

TEST(broken_csv_files_are_refused_with_their_line_and_column) {
#define REFUSED(text, end, ...) \
    CHECK_REFUSED(ct_dataset_csv(put_text("x.csv", text), __VA_ARGS__), CT_ERR_IO, "dataset_csv", end)
    REFUSED("", "x.csv: is empty", .target = NULL);
    REFUSED("\n\n", "x.csv: is empty", .target = NULL);
    REFUSED("a,b\n", "x.csv: has a header but no data", .target = NULL);
    REFUSED("a,b\n1,2\n1,2,3\n", "x.csv, line 3: has 3 fields; expected 2", .target = NULL);
    REFUSED("a,b\n1,2\n\n1\n", "x.csv, line 4: has 1 fields; expected 2", .target = NULL);
    REFUSED("a,b\n1,2\n,2\n", "x.csv, line 3, column a: the value is missing", .target = NULL);
    REFUSED("a,b\n1,2\n1,NA\n", "x.csv, line 3, column b: the value is missing", .target = NULL);
    REFUSED("a,b\n1,2\n1x,2\n", "x.csv, line 3, column a: '1x' is not a number", .target = NULL);
    REFUSED("a,b\n1,2\n1e99,2\n", "x.csv, line 3, column a: '1e99' is not a number", .target = NULL);
    REFUSED("a,b\n\"1\n\",2\n3,\"x\n", "x.csv, line 4: a quote is not closed", .target = NULL);
    REFUSED("a,b\n\"1\"x,2\n", "x.csv, line 2: text after a closing quote", .target = NULL);
    CHECK_REFUSED(ct_dataset_csv(put("x.csv", "a\0b\n", 4)), CT_ERR_IO, "dataset_csv",
                  "x.csv: is not a text: byte 1 is zero");
    put_text("x.csv", "a,b\n1,2\n");
    CHECK_REFUSED(ct_dataset_csv(own_file("x.csv"), .target = "c"), CT_ERR_VALUE, "dataset_csv",
                  "x.csv: has no column c; the first of its 2 columns is a");
    CHECK_REFUSED(ct_dataset_csv(own_file("x.csv"), .categorical = "a,z"), CT_ERR_VALUE, "dataset_csv",
                  "x.csv: has no column z, which is to be categorical");
    CHECK_REFUSED(ct_dataset_csv(own_file("x.csv"), .separator = ';'), CT_ERR_VALUE, "dataset_csv",
                  "x.csv: has no column beside the target a,b");
    remove_own_folder();
#undef REFUSED
}

/* ---- Text ---- */

TEST(text_becomes_windows_of_characters) {
    const char *path = put_text("t.txt", "h\xc3\xa4llo welt");
    ct_dataset *set = ct_dataset_text(path, 3);
    REQUIRE(set);
    const ct_vocabulary *v = ct_text_vocabulary(set);
    CHECK_TEXT(ct_vocabulary_text(v), " ehlotw\xc3\xa4");
    CHECK(ct_vocabulary_size(v) == 8 && ct_dataset_count(set) == 3 && ct_dataset_classes(set) == 8);
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(set, 1, fields, 2)); /* "lo " and "o w" */
    CHECK_VALUES(fields[0], CT_DIMS(3), 0, 3, 4, 0);
    CHECK_VALUES(fields[1], CT_DIMS(3), 0, 4, 0, 6);
    char bytes[4];
    CHECK(ct_vocabulary_decode(v, 7, bytes) == 2 && memcmp(bytes, "\xc3\xa4", 2) == 0 &&
          !ct_vocabulary_decode(v, 8, bytes));
    CHECK_VALUES(ct_vocabulary_encode(v, "toll", 4, false), CT_DIMS(4), 0, 5, 4, 3, 3);
    CHECK(!ct_vocabulary_encode(v, "toXl", 4, false));
    CHECK_ERROR(CT_ERR_VALUE,
                "vocabulary_encode: the character 'X' (U+0058) at byte 2 is not among the 8 that are known");
    CHECK_VALUES(ct_vocabulary_encode(v, "tX\xffl", 4, true), CT_DIMS(2), 0, 5, 3);
    ct_vocabulary *again = ct_vocabulary_characters(ct_vocabulary_text(v), strlen(ct_vocabulary_text(v)));
    CHECK(ct_vocabulary_size(again) == 8);
    ct_loader *loader = ct_batches(set, 3);
    ct_batch b;
    REQUIRE(ct_next(loader, &b));
    CHECK_VALUES(b.x, CT_DIMS(3, 3), 0, 2, 7, 3, 3, 4, 0, 6, 1, 3);
    ct_loader_free(loader);
    ct_dataset_free(set);

    set = ct_dataset_text(path, 2, .bytes = true, .stride = 1);
    CHECK(set && ct_dataset_count(set) == 9 && ct_vocabulary_size(ct_text_vocabulary(set)) == 256);
    CHECK(value(set, 0, 0, 1) == 0xc3);
    ct_dataset_free(set);
    ct_dataset *train = ct_dataset_text(path, 2, .part = CT_TEXT_TRAIN, .validation = 0.4, .stride = 1);
    ct_dataset *rest = ct_dataset_text(path, 2, .part = CT_TEXT_VALIDATION, .validation = 0.4, .vocabulary = again);
    REQUIRE(train && rest);
    CHECK(ct_dataset_count(train) == 4 && ct_dataset_count(rest) == 1 && value(rest, 0, 0, 0) == 6);
    ct_dataset_free(train);
    ct_dataset_free(rest);
    ct_vocabulary_free(again);
    CHECK_REFUSED(ct_dataset_text(path, 10), CT_ERR_VALUE, "dataset_text",
                  "t.txt: this part of the text has 10 characters; items of 10 want one more");
    CHECK_REFUSED(ct_dataset_text(path, INT64_MAX), CT_ERR_VALUE, "dataset_text",
                  "t.txt: this part of the text has 10 characters; items of 9223372036854775807 want one more");
    CHECK(!ct_vocabulary_characters("a\0b", 3)); /* its text would end there */
    CHECK_ERROR(CT_ERR_IO, "vocabulary_characters: there is a zero byte at position 1; read the text as bytes");
    CHECK_REFUSED(ct_dataset_text(put_text("t.txt", "abc\xc0\x80"), 1), CT_ERR_IO, "dataset_text",
                  "t.txt: the byte 0xc0 at position 3 is not UTF-8; read the text as bytes");
    remove_own_folder();
}

/* ---- In memory, and combinations ---- */

static ct_dataset *count_to(int64_t n) {
    ct_dataset *set = NULL;
    ct_scope {
        ct_tensor *x = ct_arange(0, (double)n, 1), *y = ct_cast(ct_arange(0, (double)n, 1), CT_I32);
        set = ct_dataset_tensors((ct_tensor *[]){x, y}, 2);
    }
    return set;
}

TEST(tensors_are_a_dataset) {
    ct_tensor *x = ct_transpose(F32(CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6), 0, 1); /* not contiguous */
    ct_dataset *set = ct_dataset_tensors((ct_tensor *[]){x, I64(CT_DIMS(3), 2, 0, 1)}, 2);
    REQUIRE(set);
    CHECK(ct_dataset_count(set) == 3 && ct_dataset_classes(set) == 3 && value(set, 1, 0, 1) == 5);
    CHECK(ct_dataset_set_classes(set, 3, (const char *[]){"a", "b", "c"}));
    CHECK_TEXT(ct_dataset_class_name(set, 2), "c");
    ct_dataset_free(set);
    CHECK(!ct_dataset_tensors((ct_tensor *[]){x, I64(CT_DIMS(2), 2, 0)}, 2));
    CHECK_ERROR(CT_ERR_SHAPE, "dataset_tensors: tensor 1 has 2 items, tensor 0 has 3");
    CHECK(!ct_dataset_tensors((ct_tensor *[]){ct_scalar(1, CT_F32)}, 1));
    CHECK_ERROR(CT_ERR_SHAPE, "dataset_tensors: tensor 0 has no dimensions; its first one is to be the items");
    CHECK(!ct_dataset_tensors((ct_tensor *[]){NULL}, 1));
    CHECK_ERROR(CT_ERR_NULL, "dataset_tensors: argument fields is NULL");
}

TEST(parts_of_datasets_are_datasets_and_keep_what_they_are_made_of) {
    ct_dataset *ten = count_to(10), *five = count_to(5);
    ct_dataset *some = ct_dataset_subset(ten, (int64_t[]){9, 0, 9}, 3), *range = ct_dataset_range(ten, 4, 7);
    ct_dataset *both = ct_dataset_concat((ct_dataset *[]){some, five, range}, 3);
    ct_dataset *first, *second, *again, *rest;
    CHECK(ct_dataset_split(both, 0.7, 1, &first, &second) && ct_dataset_split(both, 0.7, 1, &again, &rest));
    REQUIRE(both && first && second);
    ct_dataset_free(ten);
    ct_dataset_free(five);
    ct_dataset_free(some);
    ct_dataset_free(range);
    CHECK(ct_dataset_count(both) == 11 && ct_dataset_count(first) == 7 && ct_dataset_count(second) == 4);
    static const int expected[] = {9, 0, 9, 0, 1, 2, 3, 4, 4, 5, 6};
    int seen[10] = {0}, wanted[10] = {0};
    for (int i = 0; i < 11; i++) {
        CHECK(value(both, i, 0, 0) == expected[i] && ct_dataset_label(both, i) == expected[i]);
        wanted[expected[i]]++;
        seen[(int)(i < 7 ? value(first, i, 0, 0) : value(second, i - 7, 0, 0))]++;
        if (i < 7) CHECK(value(first, i, 0, 0) == value(again, i, 0, 0));
    }
    CHECK(memcmp(seen, wanted, sizeof seen) == 0 && ct_dataset_classes(first) == 10);
    CHECK(!ct_dataset_subset(both, (int64_t[]){11}, 1));
    CHECK_ERROR(CT_ERR_INDEX, "dataset_subset: index 11 at position 0; the dataset has 11 items");
    CHECK(!ct_dataset_range(both, 5, 12));
    CHECK_ERROR(CT_ERR_INDEX, "dataset_range: items 5 to 12 of 11");
    ct_dataset *none, *nothing;
    CHECK(!ct_dataset_split(both, 1.5, 1, &none, &nothing) && !none && !nothing);
    CHECK_ERROR(CT_ERR_VALUE, "dataset_split: fraction is 1.5; expected 0 to 1");
    ct_dataset_free(both);
    ct_dataset_free(first);
    ct_dataset_free(second);
    ct_dataset_free(again);
    ct_dataset_free(rest);
    ct_dataset_free(NULL);
}

TEST(a_mapped_dataset_transforms_its_items) {
    ct_dataset *set = ct_dataset_shapes(6, 16, 1), *mapped = ct_dataset_map(set, ct_transform_center_crop(8, 8));
    REQUIRE(mapped);
    ct_tensor *fields[2];
    REQUIRE(ct_dataset_get(mapped, 2, fields, 2));
    CHECK(ct_dim(fields[0], 1) == 8 && ct_dataset_label(mapped, 2) == ct_dataset_label(set, 2));
    CHECK(!ct_dataset_map(set, ct_transform_chain(ct_transform_flip(1), ct_transform_mixup(1, 1))));
    CHECK_ERROR(CT_ERR_VALUE,
                "dataset_map: the transform works on whole batches, at least in part: give it to ct_batches");
    CHECK(!ct_dataset_map(NULL, ct_transform_flip(1)));
    CHECK_ERROR(CT_ERR_NULL, "dataset_map: argument dataset is NULL");
    ct_dataset_free(set);
    ct_dataset_free(mapped);
}

TEST(drawn_shapes_are_the_same_for_a_seed_and_of_every_class) {
    ct_dataset *few = ct_dataset_shapes(20, 28, 5), *many = ct_dataset_shapes(400, 28, 5);
    REQUIRE(few && many);
    CHECK(ct_dataset_classes(few) == 10 && ct_dataset_class_name(few, 9));
    for (int i = 0; i < 20; i += 7) {
        ct_tensor *a[2], *b[2];
        REQUIRE(ct_dataset_get(few, i, a, 2) && ct_dataset_get(many, i, b, 2));
        CHECK(harness_same_bits(a[0], b[0]) && harness_same_bits(a[1], b[1]));
        CHECK(ct_dtype_of(a[0]) == CT_U8 && ct_dim(a[0], 0) == 1 && ct_dim(a[0], 2) == 28);
    }
    int64_t count[10] = {0};
    for (int i = 0; i < 400; i++) count[ct_dataset_label(many, i)]++;
    for (int c = 0; c < 10; c++) CHECK_NEAR((double)count[c], 40, 5 * sqrt(36));
    CHECK(!ct_dataset_shapes(3, 8, 1));
    CHECK_ERROR(CT_ERR_VALUE, "dataset_shapes: size is 8; expected 12 to 4096");
    CHECK(!ct_dataset_shapes(-1, 16, 1));
    CHECK_ERROR(CT_ERR_VALUE, "dataset_shapes: count is -1; expected 0 to 36028797018963967 pictures of size 16");
    ct_dataset_free(few);
    ct_dataset_free(many);
}

TEST(masks_of_drawn_shapes_say_what_each_pixel_is) {
    ct_dataset *few = ct_dataset_shape_masks(20, 32, 5), *many = ct_dataset_shape_masks(60, 32, 5);
    REQUIRE(few && many);
    CHECK(ct_dataset_classes(few) == 6 && ct_dataset_fields(few) == 2);
    CHECK_TEXT(ct_dataset_class_name(few, 0), "background");
    CHECK_TEXT(ct_dataset_class_name(few, 5), "cross");
    int64_t seen[6] = {0};
    int brighter = 0;
    for (int64_t i = 0; i < 60; i++)
        ct_scope {
            ct_tensor *a[2], *b[2];
            REQUIRE(ct_dataset_get(many, i, a, 2));
            CHECK(ct_dtype_of(a[0]) == CT_U8 && ct_dtype_of(a[1]) == CT_U8 && ct_dim(a[1], 0) == 32 &&
                  ct_ndim(a[1]) == 2);
            const uint8_t *pixels = ct_data(a[0]), *mask = ct_data(a[1]);
            double sums[2] = {0}, counts[2] = {0};
            for (int p = 0; p < 32 * 32; p++) {
                CHECK(mask[p] < 6);
                seen[mask[p] % 6]++;
                sums[mask[p] > 0] += pixels[p];
                counts[mask[p] > 0]++;
            }
            CHECK(counts[0] > 0 && counts[1] > 0);
            brighter += sums[1] / counts[1] > sums[0] / counts[0];
            if (i < 20) { /* the same whatever the count */
                REQUIRE(ct_dataset_get(few, i, b, 2));
                CHECK(memcmp(pixels, ct_data(b[0]), 32 * 32) == 0 && memcmp(mask, ct_data(b[1]), 32 * 32) == 0);
            }
        }
    CHECK(brighter == 60); /* shapes are lighter than their ground, pixel by pixel on the mean */
    for (int c = 0; c < 6; c++) CHECK(seen[c] > 0);
    CHECK(!ct_dataset_shape_masks(3, 8, 1));
    CHECK_ERROR(CT_ERR_VALUE, "dataset_shape_masks: size is 8; expected 12 to 4096");
    CHECK(!ct_dataset_shape_masks(-1, 16, 1));
    CHECK_ERROR(CT_ERR_VALUE, "dataset_shape_masks: count is -1; expected 0 to 36028797018963967 pictures of size 16");
    ct_dataset_free(few);
    ct_dataset_free(many);
}

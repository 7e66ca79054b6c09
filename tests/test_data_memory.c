/* Every allocation fails once while datasets are made, transformed, sampled and loaded. */
#include <cotangent/data.h>
#include <cotangent/io.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fail_everywhere.h"
#include "tests/files.h"

/* One pass over what a loader gives; true when there was no error. */
static bool drain(ct_loader *loader) {
    int64_t items = 0;
    for (ct_batch b; loader && ct_next(loader, &b);) items += b.n;
    return loader && ct_ok() && items == ct_loader_items(loader);
}

static bool load(ct_dataset *data, ct_transform *transform, ct_sampler *sampler) {
    ct_loader *loader = data && ct_ok() ? ct_batches(data, 3, .seed = 5, .threads = CT_SET(0), .transform = transform,
                                                     .sampler = sampler)
                                        : NULL;
    if (!data || (!loader && ct_ok())) return false;
    const bool ok = drain(loader);
    ct_loader_free(loader);
    return ok;
}

static bool plain(void) {
    bool ok = false;
    ct_dataset *data = NULL, *first = NULL, *second = NULL, *both = NULL, *some = NULL, *mapped = NULL;
    ct_scope {
        ct_tensor *fields[] = {ct_ones(CT_DIMS(8, 3)), ct_zeros(CT_DIMS(8), .dtype = CT_I64)};
        data = fields[0] && fields[1] ? ct_dataset_tensors(fields, 2) : NULL;
        ok = data && ct_dataset_set_classes(data, 2, (const char *[]){"cat", "dog"}) &&
             ct_dataset_split(data, 0.5, 1, &first, &second);
        both = ok ? ct_dataset_concat((ct_dataset *[]){second, first}, 2) : NULL;
        some = both ? ct_dataset_subset(both, (const int64_t[]){7, 1, 1, 0}, 4) : NULL;
        mapped = some ? ct_dataset_map(some, ct_transform_float()) : NULL;
        ok = mapped && load(mapped, NULL, NULL) && ct_dataset_label(both, 3) == 0;
    }
    ct_dataset_free(mapped);
    ct_dataset_free(some);
    ct_dataset_free(both);
    ct_dataset_free(first);
    ct_dataset_free(second);
    ct_dataset_free(data);
    return ok;
}

/* Each transform that can be made by name, on drawn images, with every kind of sampler by turns. */
static const ct_transform_info *current;
static int turn;

static ct_sampler *sampler_of(int i) {
    static const double weights[7] = {1, 2, 3, 1, 2, 3, 4};
    switch (i % 6) {
    case 0: return ct_sampler_random();
    case 1: return ct_sampler_replacement(5);
    case 2: return ct_sampler_weighted(weights, 7, 5);
    case 3: return ct_sampler_balanced(5);
    case 4: return ct_sampler_subset((const int64_t[]){3, 1, 2}, 3);
    default: return ct_sampler_sequential();
    }
}

static bool transformed(void) {
    ct_dataset *data = ct_dataset_shapes(7, 12, 3);
    double values[16] = {0};
    for (int i = 0; i < current->count && i < 16; i++) {
        const ct_setting *s = ct_setting_at(current->settings, i);
        values[i] = s->value == s->value ? s->value : 8; /* NaN: it has to be given */
    }
    ct_transform *one = data ? ct_transform_build(current, values) : NULL;
    ct_transform *chain = one ? ct_transform_chain(one, ct_transform_float()) : NULL;
    ct_sampler *sampler = chain ? sampler_of(turn) : NULL;
    bool ok = false;
    if (chain && !sampler) ct_transform_free(chain);
    else if (chain) ok = load(data, chain, sampler);
    ct_dataset_free(data);
    return ok;
}

TEST_LIMIT(datasets_survive_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(plain) > 40); }

TEST_LIMIT(transforms_and_samplers_survive_the_failure_of_any_allocation, 600) {
    ct_set_threads(1);
    for (turn = 0; (current = ct_transform_at(turn)); turn++) CHECK(fail_everywhere(current->name, transformed) > 20);
}

/* With threads of its own: which allocation fails is chance, what happens then is not. */
static bool threaded(void) {
    ct_dataset *data = ct_dataset_shapes(9, 12, 3);
    ct_loader *loader = data ? ct_batches(data, 2, .shuffle = true, .threads = CT_SET(2)) : NULL;
    const bool ok = loader && drain(loader) && drain(loader);
    ct_loader_free(loader);
    ct_dataset_free(data);
    return ok;
}
TEST_LIMIT(a_loader_with_threads_survives_the_failure_of_any_allocation, 300) { CHECK(FAIL_EVERYWHERE(threaded) > 20); }

/* ---- From files ---- */

static bool csv(void) {
    ct_dataset *train = ct_dataset_csv(own_file("a.csv"), .standardize = true, .categorical = "kind");
    ct_state *state = train ? ct_state_new() : NULL;
    bool ok = state && ct_csv_put_state(train, state, "csv.");
    ct_dataset *like = ok ? ct_csv_take_state(state, "csv.") : NULL;
    ct_dataset *test = like ? ct_dataset_csv(own_file("a.csv"), .like = like, .unlabeled = true) : NULL;
    ok = test && load(train, NULL, NULL) && load(test, NULL, NULL);
    ct_dataset_free(test);
    ct_dataset_free(like);
    ct_state_free(state);
    ct_dataset_free(train);
    return ok;
}

static bool text(void) {
    ct_dataset *data = ct_dataset_text(own_file("a.txt"), 4, .stride = 2, .part = CT_TEXT_TRAIN);
    const ct_vocabulary *vocabulary = data ? ct_text_vocabulary(data) : NULL;
    ct_vocabulary *again =
        vocabulary ? ct_vocabulary_characters(ct_vocabulary_text(vocabulary), strlen(ct_vocabulary_text(vocabulary)))
                   : NULL;
    bool ok = false;
    ct_scope {
        ok = again && ct_vocabulary_encode(again, "to be", 5, false) && load(data, NULL, NULL);
    }
    ct_vocabulary_free(again);
    ct_dataset_free(data);
    return ok;
}

static bool folder(void) {
    ct_dataset *data = ct_dataset_folder(own_file("pictures"), .resize = 6);
    const bool ok = data && load(data, NULL, NULL);
    ct_dataset_free(data);
    return ok;
}

static bool idx(void) {
    ct_dataset *data = ct_dataset_idx(own_file("images"), own_file("labels"));
    const bool ok = data && load(data, NULL, NULL);
    ct_dataset_free(data);
    return ok;
}

static bool cifar(void) {
    ct_dataset *data = ct_dataset_cifar(own_file("data_batch_1.bin"), true);
    const bool ok = data && load(data, NULL, NULL);
    ct_dataset_free(data);
    return ok;
}

TEST_LIMIT(datasets_of_files_survive_the_failure_of_any_allocation, 300) {
    static const char table[] =
        "size,kind,class\n1.5,small,a\n2.5,large,b\n3,small,a\n4.25,\"quite, large\",b\n5,small,c\n";
    static const char words[] = "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer";
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8},
                         labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 1};
    static uint8_t pixels[2 * 3073];
    pixels[0] = 3;
    REQUIRE(
        put_file(own_file("a.csv"), table, sizeof table - 1) && put_file(own_file("a.txt"), words, sizeof words - 1) &&
        put_file(own_file("images"), images, sizeof images) && put_file(own_file("labels"), labels, sizeof labels) &&
        put_file(own_file("data_batch_1.bin"), pixels, sizeof pixels));
    CHECK(FAIL_EVERYWHERE(csv) > 20);
    CHECK(FAIL_EVERYWHERE(text) > 10);
    CHECK(FAIL_EVERYWHERE(idx) > 10);
    CHECK(FAIL_EVERYWHERE(cifar) > 10);
    bool pictures = mkdir(own_file("pictures"), 0777) == 0 && mkdir(own_file("pictures/a"), 0777) == 0 &&
                    mkdir(own_file("pictures/b"), 0777) == 0;
    ct_scope {
        ct_tensor *x = ct_full(CT_DIMS(3, 5, 7), 9, .dtype = CT_U8);
        pictures = pictures && ct_image_save(own_file("pictures/a/1.png"), x) &&
                   ct_image_save(own_file("pictures/b/1.png"), x);
    }
    if (pictures) CHECK(FAIL_EVERYWHERE(folder) > 20);
    else CHECK(ct_error_code() == CT_ERR_UNSUPPORTED); /* a build without libpng */
    ct_error_clear();
    remove_own_folder();
}

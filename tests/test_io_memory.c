/* Every allocation fails once while files are written and read: an error of memory, no leak, and on the disk either what was there
 * before or all of what was to be written. */
#include <cotangent/io.h>
#include <cotangent/metrics.h>
#include <cotangent/nn.h>
#include <cotangent/run.h>
#include <dirent.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/files.h"
#include "tests/run_fixture.h"

static const char *file_name; /* the one file that a step writes */
static uint8_t *first_bytes;  /* of it, as it was before */
static size_t first_size;

/* The folder holds that file alone, as it was before or as the step would have left it: both are the same bytes. */
static bool folder_is_whole(bool ok) {
    (void)ok;
    int others = 0;
    DIR *folder = opendir(own_folder());
    for (struct dirent *e; folder && (e = readdir(folder));)
        others += e->d_name[0] != '.' && strcmp(e->d_name, file_name) != 0;
    if (folder) closedir(folder);
    size_t size = 0;
    uint8_t *bytes = file_bytes(own_file(file_name), &size);
    const bool same = bytes && size == first_size && memcmp(bytes, first_bytes, size) == 0;
    free(bytes);
    return same && others == 0;
}

/* Runs a step that writes file_name over and over. A build that lacks the library for it says so. */
static void writes(const char *name, bool (*step)(void), const char *file) {
    file_name = file;
    if (!step()) {
        harness_check(ct_error_code() == CT_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s: %s", name, ct_error());
        ct_error_clear();
    } else {
        first_bytes = file_bytes(own_file(file), &first_size);
        REQUIRE(first_bytes != NULL);
        CHECK(fail_everywhere_then(name, step, folder_is_whole) > 4);
        free(first_bytes);
    }
    remove_own_folder();
}

static bool npy(void) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = ct_t(ct_reshape(ct_arange(0, 12, 1, .dtype = CT_F32), CT_DIMS(3, 4)));
        ok = x && ct_npy_save(own_file("a.npy"), x) && ct_npy_load(own_file("a.npy"), false);
    }
    return ok;
}

static ct_state *some_state(void) {
    ct_state *state = ct_state_new();
    bool ok = state != NULL;
    ct_scope {
        ok = ok && ct_state_put(state, "one", ct_t(ct_ones(CT_DIMS(2, 3)))) &&
             ct_state_put(state, "two", ct_zeros(CT_DIMS(4)));
    }
    if (ok) return state;
    ct_state_free(state);
    return NULL;
}

static bool npz(void) {
    ct_state *state = some_state(), *back = NULL;
    const bool ok = state && ct_npz_save(own_file("a.npz"), state, true) && (back = ct_npz_load(own_file("a.npz"))) &&
                    ct_state_count(back) == 2;
    ct_state_free(back);
    ct_state_free(state);
    return ok;
}

static bool safetensors(void) {
    ct_state *state = some_state(), *back = NULL;
    const bool ok = state && ct_state_put_text(state, "author", "nobody") &&
                    ct_safetensors_save(own_file("a.safetensors"), state) &&
                    (back = ct_safetensors_load(own_file("a.safetensors"))) && ct_state_count(back) == 2;
    ct_state_free(back);
    ct_state_free(state);
    return ok;
}

static bool png(void) {
    bool ok = false;
    void *bytes = NULL;
    size_t size = 0;
    ct_scope {
        ct_tensor *x = ct_full(CT_DIMS(3, 9, 7), 9, .dtype = CT_U8);
        ok = x && ct_image_save(own_file("a.png"), x) && ct_image_encode_png(x, &bytes, &size) &&
             ct_image_decode(bytes, size, 1) && ct_image_load(own_file("a.png"), 0) &&
             ct_image_load(own_file("a.png"), 3, .height = 4, .width = 5);
    }
    ct_free(bytes);
    return ok;
}

static bool weights(void) {
    ct_seed(3);
    ct_module *net = ct_nn_sequential(ct_nn_conv2d(1, 2, 3), ct_nn_batch_norm(2), ct_nn_linear(4, 3));
    ct_module *other = net ? ct_nn_sequential(ct_nn_conv2d(1, 2, 3, .channels_last = true),
                                              ct_nn_batch_norm(2, .channels_last = true), ct_nn_linear(4, 3))
                           : NULL;
    ct_load_report *report = NULL;
    const bool ok = other && ct_save(own_file("a.safetensors"), net) && ct_load(own_file("a.safetensors"), net) &&
                    ct_load(own_file("a.safetensors"), other, .lenient = true, .report = &report,
                            .renames = (ct_rename[]){{"2.*", "9.*"}}, .rename_count = 1);
    ct_load_report_free(report);
    ct_module_free(other);
    ct_module_free(net);
    return ok;
}

TEST_LIMIT(npy_files_survive_the_failure_of_any_allocation, 120) { writes("npy", npy, "a.npy"); }
TEST_LIMIT(npz_files_survive_the_failure_of_any_allocation, 120) { writes("npz", npz, "a.npz"); }
TEST_LIMIT(safetensors_files_survive_the_failure_of_any_allocation, 120) {
    writes("safetensors", safetensors, "a.safetensors");
}
TEST_LIMIT(images_survive_the_failure_of_any_allocation, 120) { writes("png", png, "a.png"); }
TEST_LIMIT(weights_survive_the_failure_of_any_allocation, 300) { writes("weights", weights, "a.safetensors"); }

/* ---- A whole run ---- */

static training trained; /* what the checkpoint was written from */

/* Makes another run and reads the checkpoint into it. */
static bool resumed(void) {
    training t = {0};
    bool ok = training_make(&t, 4, 20, 0) && (t.run.extra = ct_state_new()) && ct_run_resume(&t.run, own_folder()) &&
              t.run.step == 3;
    training_free(&t);
    return ok;
}

/* All of a run is taken back, or nothing of it. */
static training into;
static double before;
static bool load_whole(void) { return ct_run_resume(&into.run, own_folder()); }
static bool all_or_nothing(bool ok) {
    double now = 0;
    ct_scope {
        now = ct_item(ct_sum(ct_module_param(ct_module_child(into.run.net, 0), 0)));
    }
    double want = 0;
    ct_scope {
        want = ct_item(ct_sum(ct_module_param(ct_module_child(trained.run.net, 0), 0)));
    }
    const bool right = ok ? now == want && into.run.step == 3 : now == before && into.run.step == 0;
    if (ok) { /* as it was before the first time */
        into.run.step = 0;
        ct_no_grad
            ct_scope {
                ct_fill(ct_module_param(ct_module_child(into.run.net, 0), 0), 0.5);
            }
    }
    return right;
}

static bool three_steps(training *t) {
    for (int i = 0; i < 3; i++) training_step(t);
    return ct_ok() && t->run.step == 3;
}

static bool checkpointed(void) { return ct_run_checkpoint(&trained.run, own_folder(), 2); }

TEST_LIMIT(checkpoints_survive_the_failure_of_any_allocation, 600) {
    REQUIRE(training_make(&trained, 4, 20, 0) && three_steps(&trained));
    file_name = "step-3.safetensors";
    REQUIRE(checkpointed());
    first_bytes = file_bytes(own_file(file_name), &first_size);
    REQUIRE(first_bytes != NULL);
    CHECK(fail_everywhere_then("checkpoint", checkpointed, folder_is_whole) > 20);
    free(first_bytes);
    if (resumed()) {
        CHECK(FAIL_EVERYWHERE(resumed) > 100);
        REQUIRE(training_make(&into, 4, 20, 0));
        ct_no_grad
            ct_scope {
                ct_tensor *w = ct_module_param(ct_module_child(into.run.net, 0), 0);
                ct_fill(w, 0.5);
                before = ct_item(ct_sum(w));
            }
        for (int i = 0; i < 2; i++) REQUIRE(load_whole() && all_or_nothing(true));
        for (int64_t n = 1, reached = 1; reached && !harness_failed(); n++) {
            ct__alloc_fail_at(n);
            const bool ok = load_whole();
            reached = ct__alloc_fail_left() <= 0;
            ct__alloc_fail_at(0);
            const ct_code code = ct_error_code();
            ct_error_clear();
            harness_check(ok == (code == CT_OK) && all_or_nothing(ok), __FILE__, __LINE__,
                          "allocation %lld: %s, code %d, and half of it is there", (long long)n,
                          ok ? "loaded" : "failed", (int)code);
        }
        training_free(&into);
    } else { /* a build without jansson */
        CHECK(ct_error_code() == CT_ERR_UNSUPPORTED);
        ct_error_clear();
    }
    training_free(&trained);
    remove_own_folder();
}

/* ---- Metrics ---- */

static bool metrics(void) {
    ct_confusion *confusion = ct_confusion_new(3);
    ct_auc *auc = confusion ? ct_auc_new(3) : NULL;
    ct_accuracy right = {.top = 2};
    ct_regression regression = {0};
    bool ok = auc != NULL;
    ct_scope {
        ct_tensor *scores = ct_reshape(ct_arange(0, 12, 1, .dtype = CT_F32), CT_DIMS(4, 3));
        ct_tensor *target = I64(CT_DIMS(4), 0, 1, 2, 1);
        for (int i = 0; i < 3; i++)
            ok = ok && scores && target && ct_confusion_add(confusion, scores, target) &&
                 ct_auc_add(auc, scores, target) && ct_accuracy_add(&right, scores, target) &&
                 ct_regression_add(&regression, scores, scores);
        ok = ok && ct_confusion_tensor(confusion) && ct_auc_value(auc) == ct_auc_value(auc) &&
             ct_confusion_total(confusion) == 12 && right.count == 12 && regression.count == 36;
    }
    ct_auc_free(auc);
    ct_confusion_free(confusion);
    return ok && ct_ok();
}
TEST_LIMIT(metrics_survive_the_failure_of_any_allocation, 120) { CHECK(FAIL_EVERYWHERE(metrics) > 20); }

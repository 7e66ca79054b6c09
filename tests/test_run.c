/* Checkpoints: they restore everything or nothing, the newest whole one is found, and what is damaged is refused. */
#include "core/alloc.h"
#include "io/safetensors.h"
#include "tests/run_fixture.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void check_text(int line, ct_code code, const char *path, const char *what) {
    char text[1024];
    snprintf(text, sizeof text, "run: %s: %s", path, what);
    harness_error(__FILE__, line, code, text);
}

static bool there(const char *name) { return access(own_file(name), F_OK) == 0; }

/* Whether checkpoints can be read at all here. */
#define NEEDS_JSON()                                                                \
    do {                                                                            \
        ct_state *nothing = ct_safetensors_load(given_file("nothing.safetensors")); \
        NEEDS(nothing);                                                             \
        ct_state_free(nothing);                                                     \
    } while (0)

TEST(a_loaded_run_goes_on_to_the_same_bits) {
    NEEDS_JSON();
    training a, b;
    REQUIRE(training_make(&a, 16, 20, 1));
    for (int i = 0; i < 7; i++) training_step(&a); /* in the middle of the second epoch */
    a.run.extra = ct_state_new();
    CHECK(ct_state_put(a.run.extra, "best", F64(CT_DIMS(2), 1.5, 2.5)) && ct_state_put_text(a.run.extra, "note", "x"));
    CHECK(ct_run_save(&a.run, own_folder(), "middle"));
    double expected[12];
    for (int i = 0; i < 12; i++) expected[i] = training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "end"));

    CHECK(ct_seed(12345)); /* another stream, another network, another place in the data */
    REQUIRE(training_make(&b, 16, 20, 2));
    for (int i = 0; i < 3; i++) training_step(&b);
    b.run.extra = ct_state_new();
    CHECK(ct_run_load(&b.run, own_file("middle.safetensors")));
    CHECK(b.run.step == 7 && b.run.epoch == 1 && ct_get_seed() == 7);
    CHECK_VALUES(ct_state_get(b.run.extra, "best"), CT_DIMS(2), 0, 1.5, 2.5);
    CHECK_TEXT(ct_state_text(b.run.extra, "note"), "x");
    CHECK_TEXT(ct_run_isa(&b.run), ct_isa());
    CHECK_TEXT(ct_run_note(&b.run), "");
    CHECK(training_same(&b, own_file("middle.safetensors")));
    for (int i = 0; i < 12; i++) CHECK(training_step(&b) == expected[i]);
    CHECK(training_same(&b, own_file("end.safetensors")));
    training_free(&a);
    training_free(&b);
    remove_own_folder();
}

/* tests/files/run.safetensors was written by ct_run_save of layout 1: later versions have to read it. */
TEST(a_checkpoint_of_the_first_layout_is_read) {
    NEEDS_JSON();
    ct_run run = {.size = sizeof run, .net = ct_nn_linear(2, 3), .extra = ct_state_new()};
    CHECK(ct_run_load(&run, given_file("run.safetensors")));
    CHECK(run.epoch == 2 && run.step == 34 && ct_get_seed() == 11 && ct_rng_position(NULL) == 5);
    CHECK_VALUES(ct_module_param(run.net, 0), CT_DIMS(3, 2), 0, 1, 2, 3, 4, 5, 6);
    CHECK_VALUES(ct_module_param(run.net, 1), CT_DIMS(3), 0, -1, -2, -3);
    CHECK_TEXT(ct_state_text(run.extra, "classes"), "a b c");
    CHECK_TEXT(ct_run_isa(&run), "base");
    ct_module_free(run.net);
    ct_state_free(run.extra);
}

TEST(weights_alone_and_out_of_a_checkpoint) {
    NEEDS_JSON();
    training a, b;
    REQUIRE(training_make(&a, 16, 20, 0) && training_make(&b, 16, 20, 0));
    for (int i = 0; i < 3; i++) training_step(&a);
    CHECK(ct_save(own_file("net.safetensors"), a.run.net));
    CHECK(ct_run_save(&a.run, own_folder(), "run"));
    const uint64_t position = ct_rng_position(NULL);
    static const char *const files[] = {"net.safetensors", "run.safetensors"};
    for (int i = 0; i < 2; i++) {
        training_step(&b);
        CHECK(ct_load(own_file(files[i]), b.run.net));
        CHECK(ct_save(own_file("again.safetensors"), b.run.net));
        CHECK(same_files(own_file("again.safetensors"), own_file("net.safetensors")));
    }
    CHECK(ct_rng_position(NULL) != position); /* the stream is not the weights' */
    ct_run only = {.size = sizeof only, .net = b.run.net};
    CHECK(ct_run_load(&only, own_file("run.safetensors")) && only.step == 3);
    training_free(&a);
    training_free(&b);
    remove_own_folder();
}

TEST(weights_go_through_a_pipe_with_their_checksum) {
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    CHECK(ct_save(own_file("file"), a.run.net) && mkfifo(own_file("pipe"), 0600) == 0);
    char command[1200];
    snprintf(command, sizeof command, "cat %s >%s &", own_file("pipe"), own_file("copy"));
    CHECK(system(command) == 0);
    CHECK(ct_save(own_file("pipe"), a.run.net));
    for (int i = 0; i < 200 && !same_files(own_file("copy"), own_file("file")); i++) usleep(50000);
    CHECK(same_files(own_file("copy"), own_file("file")));
    training_free(&a);
    remove_own_folder();
}

TEST(another_network_is_refused_and_stays) {
    NEEDS_JSON();
    training a, b;
    REQUIRE(training_make(&a, 16, 20, 0) && training_make(&b, 17, 20, 0));
    CHECK(ct_save(own_file("net.safetensors"), a.run.net));
    CHECK(ct_save(own_file("other.safetensors"), b.run.net));
    CHECK(!ct_load(own_file("net.safetensors"), b.run.net));
    char text[600];
    snprintf(text, sizeof text, "load: %s: \"0.weight\" is f32[16,12], the module's is f32[17,12] (and 6 more)",
             own_file("net.safetensors"));
    CHECK_ERROR(CT_ERR_SHAPE, text);
    CHECK(ct_save(own_file("again.safetensors"), b.run.net));
    CHECK(same_files(own_file("again.safetensors"), own_file("other.safetensors")));
    training_free(&a);
    training_free(&b);
    remove_own_folder();
}

TEST(a_part_that_does_not_fit_leaves_all_parts_alone) {
    NEEDS_JSON();
    training a, b;
    REQUIRE(training_make(&a, 16, 20, 0) && training_make(&b, 16, 30, 1)); /* another size of batches */
    for (int i = 0; i < 4; i++) training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "a"));
    for (int fresh = 1; fresh >= 0;
         fresh--) { /* before the first step, when the optimizer has nothing yet, and after */
        if (!fresh) training_step(&b);
        CHECK(ct_run_save(&b.run, own_folder(), "b"));
        CHECK(!ct_run_load(&b.run, own_file("a.safetensors")));
        CHECK(strstr(ct_error(), own_file("a.safetensors")) && strncmp(ct_error(), "run: ", 5) == 0);
        ct_error_clear();
        CHECK(training_same(&b, own_file("b.safetensors")));
    }
    /* and it still trains as if nothing had been tried */
    CHECK(ct_run_save(&b.run, own_folder(), "b"));
    const double expected = training_step(&b);
    CHECK(ct_run_load(&b.run, own_file("b.safetensors")));
    CHECK(training_step(&b) == expected);
    training_free(&a);
    training_free(&b);
    remove_own_folder();
}

TEST(a_part_that_the_file_lacks_is_named) {
    NEEDS_JSON();
    training a;
    REQUIRE(training_make(&a, 16, 20, 0));
    ct_run some = {.size = sizeof some, .net = a.run.net, .optim = a.run.optim};
    CHECK(ct_run_save(&some, own_folder(), "some"));
    CHECK(!ct_run_load(&a.run, own_file("some.safetensors")));
    check_text(__LINE__, CT_ERR_VALUE, own_file("some.safetensors"), "holds no schedule; it has: net optim");
    training_free(&a);
    remove_own_folder();
}

TEST_LIMIT(damage_is_noticed_and_changes_nothing, 120) {
    NEEDS_JSON();
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "good"));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "now"));
    size_t size = 0;
    uint8_t *bytes = file_bytes(own_file("good.safetensors"), &size);
    REQUIRE(bytes != NULL);
    for (size_t i = 0; i < size; i += 1 + size / 150) { /* one bit */
        bytes[i] ^= 4;
        CHECK(put_file(own_file("bad.safetensors"), bytes, size) && !ct_run_load(&a.run, own_file("bad.safetensors")));
        CHECK(ct_error_code() == CT_ERR_IO);
        ct_error_clear();
        bytes[i] ^= 4;
    }
    for (size_t cut = 0; cut < size; cut += 1 + size / 40) { /* torn */
        CHECK(put_file(own_file("bad.safetensors"), bytes, cut) && !ct_run_load(&a.run, own_file("bad.safetensors")));
        CHECK(ct_error_code() == CT_ERR_IO);
        ct_error_clear();
    }
    CHECK(put_file(own_file("bad.safetensors"), bytes, size - 8) && !ct_run_load(&a.run, own_file("bad.safetensors")));
    check_text(__LINE__, CT_ERR_IO, own_file("bad.safetensors"), "is damaged: its checksum does not fit what is in it");
    bytes = realloc(bytes, size + 8); /* oversized */
    memset(bytes + size, 0, 8);
    CHECK(put_file(own_file("bad.safetensors"), bytes, size + 8) && !ct_run_load(&a.run, own_file("bad.safetensors")));
    check_text(__LINE__, CT_ERR_IO, own_file("bad.safetensors"), "is damaged: its checksum does not fit what is in it");
    free(bytes);
    CHECK(!ct_run_load(&a.run, given_file("all.safetensors"))); /* foreign */
    check_text(__LINE__, CT_ERR_IO, given_file("all.safetensors"), "is not a checkpoint of a run");
    CHECK(!ct_run_load(&a.run, given_file("rgb.png")));
    check_text(__LINE__, CT_ERR_IO, given_file("rgb.png"), "is not a safetensors file");
    CHECK(ct_save(own_file("net.safetensors"), a.run.net) && !ct_run_load(&a.run, own_file("net.safetensors")));
    check_text(__LINE__, CT_ERR_IO, own_file("net.safetensors"), "is not a checkpoint of a run");
    CHECK(training_same(&a, own_file("now.safetensors")));
    training_free(&a);
    remove_own_folder();
}

TEST(the_newest_are_kept) {
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    for (int i = 0; i < 12; i++) {
        training_step(&a);
        CHECK(ct_run_checkpoint(&a.run, own_file("out"), 3));
    }
    for (int i = 1; i <= 12; i++) {
        char name[64];
        snprintf(name, sizeof name, "out/step-%d.safetensors", i);
        CHECK(there(name) == (i >= 10));
    }
    CHECK(ct_run_save(&a.run, own_file("out"), "best") && ct_run_checkpoint(&a.run, own_file("out"), 1));
    CHECK(there("out/best.safetensors") && !there("out/step-11.safetensors"));
    a.run.step = 2; /* a new run in an old folder: what was just written is never removed */
    CHECK(ct_run_checkpoint(&a.run, own_file("out"), 1));
    CHECK(there("out/step-2.safetensors") && there("out/step-12.safetensors"));
    CHECK(!ct_run_checkpoint(&a.run, own_file("out"), -1));
    CHECK_ERROR(CT_ERR_VALUE, "run: keep = -1 is negative");
    CHECK(!ct_run_save(&a.run, own_file("out"), "a/b"));
    CHECK_ERROR(CT_ERR_VALUE, "run: \"a/b\" is no name of a file");
    training_free(&a);
    remove_own_folder();
}

TEST(resuming_takes_the_newest_whole_one) {
    NEEDS_JSON();
    training a, b;
    REQUIRE(training_make(&a, 4, 20, 0) && training_make(&b, 4, 20, 0));
    CHECK(ct_run_resume(&a.run, own_file("nowhere")) && a.run.step == 0);
    CHECK(ct_run_resume(&a.run, own_folder()) && a.run.step == 0); /* an empty one */
    for (int i = 0; i < 11; i++) {
        training_step(&a);
        CHECK(ct_run_checkpoint(&a.run, own_folder(), 0));
    }
    CHECK(put_file(own_file("step-99"), "x", 1) && put_file(own_file("step-099.safetensors"), "x", 1) &&
          put_file(own_file("step-x.safetensors"), "x", 1));
    CHECK(ct_run_resume(&b.run, own_folder()) && b.run.step == 11); /* by number: not 9 */
    CHECK_TEXT(ct_run_note(&b.run), "");
    CHECK(training_same(&b, own_file("step-11.safetensors")));
    CHECK(truncate(own_file("step-11.safetensors"), 3000) == 0 && truncate(own_file("step-10.safetensors"), 0) == 0);
    CHECK(ct_run_resume(&b.run, own_folder()) && b.run.step == 9);
    CHECK_TEXT(ct_run_note(&b.run), "passed over step-11.safetensors");
    CHECK(training_same(&b, own_file("step-9.safetensors")));
    for (int i = 1; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "step-%d.safetensors", i);
        CHECK(truncate(own_file(name), 10) == 0);
    }
    CHECK(!ct_run_resume(&b.run, own_folder()));
    CHECK(ct_error_code() == CT_ERR_IO && strstr(ct_error(), "none of its 11 checkpoints is whole"));
    ct_error_clear();
    CHECK(training_same(&b, own_file("fingerprint.safetensors")));
    training_free(&a);
    training_free(&b);
    remove_own_folder();
}

TEST(a_full_disk_keeps_the_last_checkpoint) {
    training a;
    REQUIRE(training_make(&a, 64, 20, 0));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "last"));
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    size_t size = 0;
    uint8_t *before = file_bytes(own_file("last.safetensors"), &size);
    training_step(&a);
    for (size_t most = 0; most < size; most += size / 7) {
        CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){most, limit.rlim_max}) == 0);
        CHECK(!ct_run_save(&a.run, own_folder(), "last"));
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        check_text(__LINE__, CT_ERR_IO, own_file("last.safetensors"), "cannot be written: File too large");
        size_t after = 0;
        uint8_t *now = file_bytes(own_file("last.safetensors"), &after);
        CHECK(now && before && size == after && memcmp(before, now, size) == 0);
        free(now);
    }
    char command[600];
    snprintf(command, sizeof command, "test \"$(ls %s)\" = last.safetensors", own_folder());
    CHECK(system(command) == 0);
    free(before);
    CHECK(ct_run_save(&a.run, own_folder(), "last")); /* and with room again it goes on */
    training_free(&a);
    remove_own_folder();
}

TEST(folders_that_cannot_be_written_are_refused) {
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    CHECK(put_file(own_file("file"), "x", 1));
    CHECK(!ct_run_save(&a.run, own_file("no/such"), "x"));
    check_text(__LINE__, CT_ERR_IO, own_file("no/such"), "cannot be made: No such file or directory");
    CHECK(!ct_run_save(&a.run, own_file("file"), "x"));
    CHECK(ct_error_code() == CT_ERR_IO);
    ct_error_clear();
    CHECK(!ct_run_resume(&a.run, own_file("file")));
    check_text(__LINE__, CT_ERR_IO, own_file("file"), "cannot be read: Not a directory");
    training_free(&a);
    remove_own_folder();
}

TEST(what_a_killed_process_left_is_removed) {
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    CHECK(put_file(own_file("step-5.safetensors.tmp-123-0"), "x", 1));
    CHECK(ct_run_checkpoint(&a.run, own_folder(), 1));
    CHECK(!there("step-5.safetensors.tmp-123-0") && there("step-0.safetensors"));
    training_free(&a);
    remove_own_folder();
}

TEST(another_level_of_instructions_is_told) {
    NEEDS_JSON();
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    char level[32], text[256];
    snprintf(level, sizeof level, "%s", ct_isa());
    CHECK(ct_run_save(&a.run, own_folder(), "x"));
    if (strcmp(level, "base") != 0) {
        CHECK(ct_set_isa("base") && ct_run_load(&a.run, own_file("x.safetensors")));
        CHECK_TEXT(ct_run_isa(&a.run), level);
        snprintf(text, sizeof text,
                 "written under %s, this is base: the next steps are the same up to rounding, not to the bit", level);
        CHECK_TEXT(ct_run_note(&a.run), text);
    }
    training_free(&a);
    remove_own_folder();
}

TEST(pending_errors_and_nothing_are_refused) {
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    ct_fail(CT_ERR_VALUE, "test", "earlier");
    CHECK(!ct_run_save(&a.run, own_folder(), "x") && !ct_run_checkpoint(&a.run, own_folder(), 1) &&
          !ct_run_load(&a.run, "x") && !ct_run_resume(&a.run, own_folder()) && !ct_save("x", a.run.net) &&
          !ct_load("x", a.run.net));
    CHECK_ERROR(CT_ERR_VALUE, "test: earlier");
    CHECK(!there("x.safetensors"));
    CHECK(!ct_run_save(NULL, own_folder(), "x"));
    CHECK_ERROR(CT_ERR_NULL, "run: argument run is NULL");
    CHECK(!ct_run_load(&(ct_run){0}, "x"));
    CHECK_ERROR(CT_ERR_VALUE, "ct_run: size is 0; it has to be sizeof(ct_run)");
    CHECK(!ct_run_load(&(ct_run){.size = sizeof(ct_run)}, "x"));
    CHECK_ERROR(CT_ERR_NULL, "run: run->net is NULL");
    training_free(&a);
    remove_own_folder();
}

/* A sound file, checksum and all, of which one entry is another: what makes the copy of entry i, NULL to leave it out. */
static ct_tensor *left_out(ct_tensor *x) { return (void)x, NULL; }
static ct_tensor *other_dtype(ct_tensor *x) { return ct_cast(x, ct_dtype_of(x) == CT_F32 ? CT_F64 : CT_F32); }
static ct_tensor *one_longer(ct_tensor *x) {
    ct_tensor *flat = ct_reshape(x, CT_DIMS(ct_numel(x)));
    return ct_cat((ct_tensor *[]){flat, ct_narrow(flat, 0, 0, 1)}, 2, 0);
}

static bool write_changed(const ct_state *from, int64_t which, ct_tensor *(*change)(ct_tensor *)) {
    bool good = false;
    ct_scope {
        ct_state *state = ct_state_new();
        good = state != NULL;
        for (int64_t i = 0; good && i < ct_state_count(from); i++) {
            ct_tensor *x = ct_state_at(from, i);
            if (i == which) x = change(x);
            if (x) good = ct_state_put(state, ct_state_name(from, i), x);
        }
        for (int64_t i = 0; good && i < ct_state_text_count(from); i++)
            good = ct_state_put_text(state, ct_state_text_name(from, i), ct_state_text_at(from, i));
        good = good && ct__safetensors_write(own_file("changed.safetensors"), state, true, "test");
        ct_state_free(state);
    }
    return good;
}

TEST_LIMIT(no_entry_can_be_missing_or_of_another_kind, 120) {
    static ct_tensor *(*const changes[])(ct_tensor *) = {left_out, other_dtype, one_longer};
    NEEDS_JSON();
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "old"));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "now"));
    ct_state *old = ct_safetensors_load(own_file("old.safetensors"));
    REQUIRE(old != NULL);
    for (int64_t i = 0; i < ct_state_count(old); i++)
        for (int k = 0; k < 3; k++) {
            CHECK(write_changed(old, i, changes[k]));
            const bool loaded = ct_run_load(&a.run, own_file("changed.safetensors"));
            harness_check(!loaded && !ct_ok(), __FILE__, __LINE__, "%s, change %d: it was loaded",
                          ct_state_name(old, i), k);
            ct_error_clear();
            if (loaded) CHECK(ct_run_load(&a.run, own_file("now.safetensors")));
            harness_check(training_same(&a, own_file("now.safetensors")), __FILE__, __LINE__,
                          "%s, change %d: loaded in part", ct_state_name(old, i), k);
        }
    ct_state_free(old);
    training_free(&a);
    remove_own_folder();
}

/* Every allocation of the library fails once while a checkpoint is loaded: it is loaded, or nothing has changed. */
TEST_LIMIT(lack_of_memory_leaves_all_parts_alone, 120) {
    NEEDS_JSON();
    training a;
    REQUIRE(training_make(&a, 4, 20, 0));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "one"));
    training_step(&a);
    CHECK(ct_run_save(&a.run, own_folder(), "two"));
    CHECK(ct_run_load(&a.run, own_file("two.safetensors")));
    bool reached = true;
    int refused = 0;
    for (int64_t n = 1; reached && n < 3000 && !harness_failed(); n++) {
        ct__alloc_fail_at(n);
        const bool ok = ct_run_load(&a.run, own_file("one.safetensors"));
        reached = ct__alloc_fail_left() <= 0;
        ct__alloc_fail_at(0);
        harness_check(ok == ct_ok() && (ok || ct_error_code() == CT_ERR_MEMORY), __FILE__, __LINE__,
                      "allocation %" PRId64 ": %s, '%s'", n, ok ? "true" : "false", ct_error());
        ct_error_clear();
        refused += !ok;
        harness_check(training_same(&a, own_file(ok ? "one.safetensors" : "two.safetensors")), __FILE__, __LINE__,
                      "allocation %" PRId64 ": loaded in part", n);
        CHECK(ct_run_load(&a.run, own_file("two.safetensors")));
    }
    CHECK(refused > 10);
    training_free(&a);
    remove_own_folder();
}

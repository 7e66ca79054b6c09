/* Environment switches: each does what its call does, is read at first use, and silence is the default. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/threads.h"
#include "tests/harness.h"

/* What is written to standard error while fn runs. */
static char *capture_stderr(void (*fn)(void), char *text, size_t capacity) {
    int ends[2], before = dup(STDERR_FILENO);
    memset(text, 0, capacity);
    if (pipe(ends) != 0) return text;
    dup2(ends[1], STDERR_FILENO);
    fn();
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    close(before);
    ssize_t length = read(ends[0], text, capacity - 1);
    if (length < 0) text[0] = 0;
    close(ends[0]);
    return text;
}

static void add_ones(void) {
    ct_scope {
        ct_add(ct_ones(CT_DIMS(3)), ct_ones(CT_DIMS(3)));
    }
}

TEST_BARE(ct_threads_sets_the_number_of_threads) {
    setenv("CT_THREADS", "3", 1);
    CHECK(ct_get_threads() == 3);
}

TEST_BARE(ct_threads_of_nonsense_is_the_default) {
    setenv("CT_THREADS", "many", 1);
    CHECK(ct_get_threads() >= 1);
}

TEST_BARE(ct_isa_forces_a_level) {
    setenv("CT_ISA", "base", 1);
    CHECK_TEXT(ct_isa(), "base");
}

TEST_BARE(ct_isa_of_a_level_that_is_not_there_leaves_the_best) {
    setenv("CT_ISA", "z80", 1);
    CHECK(strcmp(ct_isa(), "z80") != 0);
    ct_error_clear(); /* it may say so */
}

TEST_BARE(ct_grain_cuts_everything) {
    setenv("CT_GRAIN", "1", 1);
    CHECK(ct__grain(1000) == 1);
}

TEST_BARE(ct_log_prints_a_line_a_call) {
    char text[4096];
    setenv("CT_LOG", "dispatch", 1);
    capture_stderr(add_ones, text, sizeof text);
    CHECK(strstr(text, "add(f32[3], f32[3]) -> f32[3]") != NULL);
}

TEST_BARE(nothing_is_printed_unless_asked_for) {
    char text[4096];
    unsetenv("CT_LOG");
    capture_stderr(add_ones, text, sizeof text);
    CHECK_TEXT(text, "");
}

TEST_BARE(ct_anomaly_finds_nans) {
    setenv("CT_ANOMALY", "1", 1);
    ct_scope {
        CHECK(ct_log(ct_full(CT_DIMS(2), -1)) == NULL);
        CHECK_ERROR(CT_ERR_VALUE, "log: anomaly: the first NaN was born here, from f32[2]");
    }
}

TEST(the_version_is_that_of_the_header) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", CT_VERSION_MAJOR, CT_VERSION_MINOR, CT_VERSION_PATCH);
    CHECK_TEXT(ct_version_text(), version);
}

TEST(a_backend_that_is_missing_says_why) {
    CHECK_TEXT(ct_backend_missing(CT_CPU), "");
    for (int type = -1; type < CT_DEVICE_TYPES + 2; type++) CHECK(ct_backend_missing((ct_device_type)type) != NULL);
    if (ct_backend_missing(CT_CUDA)[0]) {
        CHECK(ct_zeros(CT_DIMS(2), .device = {CT_CUDA, 0}) == NULL);
        CHECK(ct_error_code() == CT_ERR_DEVICE);
        ct_error_clear();
    }
}

/* Files for tests: those that other programs made (tests/files), and a folder of the test's own. */
#ifndef COTANGENT_TESTS_FILES_H
#define COTANGENT_TESTS_FILES_H

#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of a file that comes with the tests; valid until the fourth call from now. */
static inline const char *given_file(const char *name) {
    static char path[4][1024];
    static int turn;
    const char *root = getenv("CT_SOURCE_DIR");
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/tests/files/%s", root ? root : ".", name);
    return path[turn];
}

/* A folder that is made when it is asked for; the test calls remove_own_folder at its end, and may then ask for another. */
static char own_folder_path[64];
static inline char *own_folder(void) {
    if (!own_folder_path[0]) {
        snprintf(own_folder_path, sizeof own_folder_path, "/tmp/cotangent-test-XXXXXX");
        CHECK(mkdtemp(own_folder_path) != NULL);
    }
    return own_folder_path;
}
/* The path of a file in it; valid until the eighth call from now. */
static inline const char *own_file(const char *name) {
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", own_folder(), name);
    return path[turn];
}
static inline void remove_own_folder(void) {
    char command[128];
    if (!own_folder_path[0]) return;
    snprintf(command, sizeof command, "rm -rf %s", own_folder_path);
    CHECK(system(command) == 0);
    own_folder_path[0] = 0;
}

/* A whole file, for the caller to free. NULL when it cannot be read. */
static inline uint8_t *file_bytes(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *bytes = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        bytes = malloc(*size + 1);
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}
static inline bool put_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    const bool done = fwrite(bytes, 1, size, file) == size;
    return fclose(file) == 0 && done;
}
static inline bool same_files(const char *a, const char *b) {
    size_t size_a = 0, size_b = 0;
    uint8_t *bytes_a = file_bytes(a, &size_a), *bytes_b = file_bytes(b, &size_b);
    const bool same = bytes_a && bytes_b && size_a == size_b && memcmp(bytes_a, bytes_b, size_a) == 0;
    free(bytes_a);
    free(bytes_b);
    return same;
}

/* Skips a test where a library of others is missing: after a call that returned nothing. */
#define NEEDS(result)                                             \
    do {                                                          \
        if (!(result) && ct_error_code() == CT_ERR_UNSUPPORTED) { \
            harness_skip("%s", ct_error());                       \
            ct_error_clear();                                     \
            return;                                               \
        }                                                         \
    } while (0)

#endif

/* Whatever the library writes is synced before it gets its name, and the name after it: a power cut leaves the old file or
 * the new one. The calls that make it so are watched here, by standing in for those of the C library. */
#include <cotangent/io.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/files.h"

static char calls[64]; /* w: a regular file is synced, r: renamed, d: a folder is synced */
static bool sync_fails;

static void note(char call) {
    const size_t n = strlen(calls);
    if (n + 1 < sizeof calls) calls[n] = call, calls[n + 1] = 0;
}

int fsync(int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) return -1;
    if (sync_fails) {
        errno = EIO;
        return -1;
    }
    note(S_ISDIR(status.st_mode) ? 'd' : 'w');
    return 0;
}

int rename(const char *from, const char *to) {
    note('r');
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

typedef bool writer(const char *path);

static bool write_npy(const char *path) { return ct_npy_save(path, ct_ones(CT_DIMS(3))); }
static bool write_npz_of(const char *path, int64_t arrays) {
    ct_state *state = ct_state_new();
    bool done = state != NULL;
    for (int64_t i = 0; done && i < arrays; i++) done = ct_state_put(state, "x", ct_ones(CT_DIMS(3)));
    done = done && ct_npz_save(path, state, true);
    ct_state_free(state);
    return done;
}
static bool write_npz(const char *path) { return write_npz_of(path, 1); }
static bool write_empty_npz(const char *path) { return write_npz_of(path, 0); }
static bool write_image(const char *path) { return ct_image_save(path, ct_ones(CT_DIMS(2, 2), .dtype = CT_U8)); }
static bool write_safetensors(const char *path) {
    ct_state *state = ct_state_new();
    const bool done = state && ct_state_put(state, "x", ct_ones(CT_DIMS(3))) && ct_safetensors_save(path, state);
    ct_state_free(state);
    return done;
}

static void check_writer(int line, writer *write_file, const char *name, const char *op) {
    const char *path = own_file(name);
    calls[0] = 0;
    if (!write_file(path)) {
        harness_check(ct_error_code() == CT_ERR_UNSUPPORTED, __FILE__, line, "%s: %s", name, ct_error());
        ct_error_clear(); /* a machine without the library for it */
        return;
    }
    harness_text(__FILE__, line, name, calls, "wrd");

    struct stat before, after;
    char text[600];
    CHECK(stat(path, &before) == 0);
    sync_fails = true;
    harness_check(!write_file(path), __FILE__, line, "%s: written although it cannot be synced", name);
    sync_fails = false;
    snprintf(text, sizeof text, "%s: %s: cannot be synced: Input/output error", op, path);
    harness_error(__FILE__, line, CT_ERR_IO, text);
    CHECK(stat(path, &after) == 0 && before.st_ino == after.st_ino); /* the old file is still there */
}

TEST(every_file_is_synced_renamed_and_its_folder_synced) {
    check_writer(__LINE__, write_npy, "x.npy", "npy");
    check_writer(__LINE__, write_npz, "x.npz", "npz");
    check_writer(__LINE__, write_empty_npz, "empty.npz", "npz");
    check_writer(__LINE__, write_image, "x.png", "image");
    check_writer(__LINE__, write_safetensors, "x.safetensors", "safetensors");
    remove_own_folder();
}

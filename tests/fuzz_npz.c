/* Fuzzes the reader of .npz archives. See tests/fuzz.h. */
#include "io/npz.h"
#include "tests/fuzz.h"

static bool read_archive(uint8_t *bytes, size_t size) {
    ct_state *state = ct__npz_parse(bytes, size, "fuzz.npz", NULL);
    const bool good = state != NULL;
    ct_state_free(state);
    free(bytes);
    return good;
}

static uint8_t *make_seed(int i, size_t *size) {
    static const char *const names[] = {"stored.npz", "compressed.npz"};
    return i < 2 ? fuzz_file(names[i], size) : NULL;
}

static const char *const words[] = {"PK\x03\x04",       "PK\x01\x02", "PK\x05\x06", "PK\x06\x06",
                                    "PK\x06\x07",       "\x93NUMPY",  ".npy",       "\x08",
                                    "\xff\xff\xff\xff", "\x01\x00",   NULL};
static const fuzz_target target = {.read = read_archive, .seed = make_seed, .words = words, .hot = 80, .inputs = 10000};
FUZZ_MAIN(target)

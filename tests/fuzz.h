/* Mutated files must be refused with an error or read in full, never crash. A fuzzer fills a fuzz_target; by itself it is
 * a program with a fixed seed and number of inputs, with -DFUZZ_LIBFUZZER the entry point of libFuzzer. */
#ifndef COTANGENT_TESTS_FUZZ_H
#define COTANGENT_TESTS_FUZZ_H

#include <cotangent.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fuzz_target {
    /* Reads what is in the bytes, which it may free or keep. True when it could. */
    bool (*read)(uint8_t *bytes, size_t size);
    /* Seed number i into a new block, for the caller to free; NULL past the last. */
    uint8_t *(*seed)(int i, size_t *size);
    const char *const *words; /* bits of the format to put in, ended by NULL */
    size_t hot;               /* bytes at the beginning where a change says most */
    /* Makes a mutated file consistent again (lengths, checksums), so that the deeper layers are reached; may be NULL. */
    void (*mend)(uint8_t *bytes, size_t size);
    int inputs;
} fuzz_target;

/* Reads from a block of exactly that size, so that the sanitizer sees a read past its end. */
static inline bool fuzz_sound(const fuzz_target *target, const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return true;
    if (size) memcpy(copy, bytes, size);
    bool sound = false;
    ct_scope {
        const bool read = target->read(copy, size);
        const ct_code code = ct_error_code();
        sound = read ? code == CT_OK : (code == CT_ERR_IO || code == CT_ERR_MEMORY) && ct_error()[0];
        if (!sound) fprintf(stderr, "unsound answer: %s, error '%s'\n", read ? "read" : "refused", ct_error());
    }
    ct_error_clear();
    return sound;
}

static uint64_t fuzz_state = 0x9e3779b97f4a7c15u;
static inline uint64_t fuzz_next(void) { /* xorshift64* */
    fuzz_state ^= fuzz_state >> 12;
    fuzz_state ^= fuzz_state << 25;
    fuzz_state ^= fuzz_state >> 27;
    return fuzz_state * 0x2545f4914f6cdd1du;
}
static inline size_t fuzz_below(size_t n) { return (size_t)(fuzz_next() % n); }

/* One change of the bytes, which have room for 64 more; the new size. */
static inline size_t fuzz_change(const fuzz_target *target, uint8_t *bytes, size_t size) {
    size_t word_count = 0;
    while (target->words && target->words[word_count]) word_count++;
    const char *word = word_count ? target->words[fuzz_below(word_count)] : "";
    const size_t length = strlen(word), hot = size < target->hot ? size : target->hot;
    switch (fuzz_below(8)) {
    case 0: /* one bit */
        if (size) bytes[fuzz_below(size)] ^= (uint8_t)(1u << fuzz_below(8));
        break;
    case 1: /* one byte near the beginning */
        if (hot) bytes[fuzz_below(hot)] = (uint8_t)fuzz_next();
        break;
    case 2: /* cut */
        if (fuzz_below(3) == 0) size = size ? fuzz_below(size) : 0;
        break;
    case 3: /* garbage behind */
        for (size_t more = fuzz_below(16); more > 0; more--) bytes[size++] = (uint8_t)fuzz_next();
        break;
    case 4: /* a word over it */
        if (length && size > length) memcpy(bytes + fuzz_below(size - length), word, length);
        break;
    case 5: { /* a word into it */
        if (length > 32 || size < 12) break;
        const size_t at = 8 + fuzz_below(size - 8);
        memmove(bytes + at + length, bytes + at, size - at);
        memcpy(bytes + at, word, length);
        size += length;
        break;
    }
    case 6: { /* an extreme number over it */
        static const uint64_t numbers[] = {0, UINT64_MAX, INT64_MAX, 0x7fffffff, 0x80000000u, 0xffff, 1};
        const uint64_t number = numbers[fuzz_below(sizeof numbers / sizeof *numbers)];
        const size_t bytes_of = (size_t)1 << fuzz_below(4);
        if (size > bytes_of) memcpy(bytes + fuzz_below(size - bytes_of), &number, bytes_of);
        break;
    }
    default: { /* a stretch copied elsewhere */
        if (size < 2) break;
        const size_t from = fuzz_below(size), to = fuzz_below(size);
        size_t stretch = fuzz_below(16);
        if (stretch > size - from) stretch = size - from;
        if (stretch > size - to) stretch = size - to;
        memmove(bytes + to, bytes + from, stretch);
    }
    }
    return size;
}

#ifdef FUZZ_LIBFUZZER
#define FUZZ_MAIN(target)                                          \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);  \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { \
        if (!fuzz_sound(&(target), data, size)) abort();           \
        return 0;                                                  \
    }
#else
static inline int fuzz_run(const fuzz_target *target) {
    enum { CHANGES = 4, GROWTH = 64 };
    int failed = 0, seeds = 0, unread = 0;
    size_t size = 0;
    const int64_t before = ct_live_objects();
    for (uint8_t *bytes; (bytes = target->seed(seeds, &size)); seeds++) {
        ct_scope {
            /* A machine without the library that reads this has nothing to test. */
            if (!target->read(bytes, size)) {
                if (ct_error_code() == CT_ERR_UNSUPPORTED) {
                    printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", ct_error());
                    return 0;
                }
                printf("FAILED: seed %d was not read: %s\n", seeds, ct_error());
                unread++;
            }
        }
        ct_error_clear();
    }
    for (int i = 0; i < target->inputs; i++) {
        uint8_t *seed = target->seed((int)fuzz_below((size_t)seeds), &size);
        uint8_t *bytes = seed ? realloc(seed, size + CHANGES * GROWTH) : NULL;
        if (!bytes) {
            free(seed);
            continue;
        }
        for (size_t changes = 1 + fuzz_below(CHANGES); changes > 0; changes--) size = fuzz_change(target, bytes, size);
        if (target->mend && fuzz_below(2)) target->mend(bytes, size);
        if (!fuzz_sound(target, bytes, size)) {
            printf("FAILED input %d\n", i);
            failed = 1;
        }
        free(bytes);
    }
    const int leaks = ct_live_objects() != before;
    if (leaks) printf("FAILED: %lld objects are left\n", (long long)(ct_live_objects() - before));
    const int all = failed + leaks + (unread > 0);
    printf("%d passed, %d failed\n", 3 - all, all);
    return all != 0;
}
#define FUZZ_MAIN(target) \
    int main(void) { return fuzz_run(&(target)); }
#endif

/* Seeds out of tests/files. */
static inline uint8_t *fuzz_file(const char *name, size_t *size) {
    char path[1024];
    const char *root = getenv("CT_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/files/%s", root ? root : ".", name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *bytes = malloc(65536);
    if (bytes) *size = fread(bytes, 1, 65536, file);
    fclose(file);
    return bytes;
}

#endif

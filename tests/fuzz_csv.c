/* Mutated CSV files must be refused with an error or become a dataset whose items can all be read, never crash. By
 * itself a program with a fixed seed and number of inputs; with -DFUZZ_LIBFUZZER the entry point of libFuzzer. */
#include <cotangent.h>

#include "data/csv.h"
#include "tests/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses size bytes from a block of one more, which the parser may write, so that the sanitizer sees a step past it. */
static bool parse_exact(const uint8_t *bytes, size_t size, unsigned how) {
    char *copy = malloc(size + 1);
    if (!copy) return true;
    memcpy(copy, bytes, size);
    copy[size] = 0;
    const ct_csv_options options = {.size = sizeof options,
                                    .no_header = how & 1,
                                    .regression = how & 2,
                                    .standardize = how & 4,
                                    .target = how & 8 ? "0" : NULL,
                                    .separator = (how & 48) == 48 ? ';' : 0};
    bool sound = true;
    ct_dataset *set = ct__csv_parse(copy, size, "fuzz.csv", &options);
    free(copy); /* nothing of the dataset may lie in it */
    if (set) {
        sound = ct_ok() && ct_dataset_count(set) > 0 && (size_t)ct_dataset_count(set) <= size;
        ct_scope {
            ct_tensor *fields[2];
            for (int64_t i = 0; sound && i < ct_dataset_count(set); i++) {
                sound = ct_dataset_get(set, i, fields, 2);
                if (sound && !options.regression) sound = ct_item(fields[1]) < (double)ct_dataset_classes(set);
            }
        }
        for (int i = 0; sound && ct_csv_column_at(set, i); i++)
            for (int64_t k = 0; sound && k < ct_csv_column_at(set, i)->categories; k++)
                sound = strlen(ct_csv_category(set, i, k)) <= size;
    } else {
        sound = !ct_ok() && ct_error()[0] &&
                (ct_error_code() == CT_ERR_IO || ct_error_code() == CT_ERR_VALUE || ct_error_code() == CT_ERR_MEMORY);
    }
    if (!sound) fprintf(stderr, "unsound answer: dataset %p, error '%s'\n", (void *)set, ct_error());
    ct_error_clear();
    ct_dataset_free(set);
    return sound;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && !parse_exact(data + 1, size - 1, data[0])) abort();
    return 0;
}

#else

enum { INPUTS = 50000, LONGEST = 512 };

static const char *const seeds[] = {
    "a,b,c\n1,2,x\n3.5,-4e2,y\n",
    "name,value,class\r\n\"one, two\",1,0\r\n\"say \"\"three\"\"\",2,1\r\nplain,3,10\r\n",
    "1,2,3\n4,5,6\n7,8,9\n",
    "\xef\xbb\xbfx;y\n 1 ; 2 \n\n3;4",
    "k,t\n\"line\nbreak\",1\n\"other\",2\n",
};
enum { SEED_COUNT = sizeof seeds / sizeof *seeds };

static size_t mutate(uint8_t *bytes, size_t size) {
    static const char *const words[] = {"\"",    "\"\"", ",",   ";",     "\n",   "\r\n", "NA", "",
                                        "1e999", "-",    "nan", "0x1p3", "\xff", "\r",   " "};
    for (size_t changes = 1 + fuzz_below(4); changes > 0; changes--) {
        switch (fuzz_below(6)) {
        case 0:
            if (size) bytes[fuzz_below(size)] ^= (uint8_t)(1u << fuzz_below(8));
            break;
        case 1: size = size ? fuzz_below(size) : 0; break;
        case 2: { /* a word over it */
            const char *word = words[fuzz_below(sizeof words / sizeof *words)];
            const size_t length = strlen(word);
            if (size > length) memcpy(bytes + fuzz_below(size - length), word, length);
            break;
        }
        case 3: { /* a word into it */
            const char *word = words[fuzz_below(sizeof words / sizeof *words)];
            const size_t length = strlen(word), place = fuzz_below(size + 1);
            if (size + length > LONGEST) break;
            memmove(bytes + place + length, bytes + place, size - place);
            memcpy(bytes + place, word, length);
            size += length;
            break;
        }
        case 4: /* zero */
            if (size && fuzz_below(8) == 0) bytes[fuzz_below(size)] = 0;
            break;
        default: { /* a stretch repeated at the end */
            if (size < 2) break;
            const size_t from = fuzz_below(size);
            size_t length = fuzz_below(40);
            if (length > size - from) length = size - from;
            if (size + length > LONGEST) break;
            memmove(bytes + size, bytes + from, length);
            size += length;
        }
        }
    }
    return size;
}

int main(void) {
    uint8_t bytes[LONGEST + 64];
    int failed = 0, read = 0;
    const int64_t before = ct_live_objects();
    for (int i = 0; i < INPUTS + SEED_COUNT; i++) {
        const char *seed = seeds[i < SEED_COUNT ? (size_t)i : fuzz_below(SEED_COUNT)];
        size_t size = strlen(seed);
        memcpy(bytes, seed, size);
        if (i >= SEED_COUNT) size = mutate(bytes, size);
        else {
            char copy[LONGEST];
            memcpy(copy, seed, size + 1);
            ct_dataset *set =
                ct__csv_parse(copy, size, "seed.csv",
                              &(ct_csv_options){.size = sizeof(ct_csv_options), .separator = i == 3 ? ';' : ','});
            if (!ct_ok()) printf("seed %d: %s\n", i, ct_error());
            ct_error_clear();
            read += set != NULL;
            ct_dataset_free(set);
        }
        if (!parse_exact(bytes, size, (unsigned)fuzz_below(64))) {
            printf("FAILED input %d\n", i);
            failed = 1;
        }
    }
    const int leaks = ct_live_objects() != before;
    if (leaks) printf("FAILED: %lld objects are left\n", (long long)(ct_live_objects() - before));
    if (read != SEED_COUNT) printf("FAILED: %d of %d seeds were read\n", read, SEED_COUNT);
    const int all = failed + leaks + (read != SEED_COUNT);
    printf("%d passed, %d failed\n", 3 - all, all);
    return all != 0;
}

#endif

/* Mutated recipes must be refused with an error or read in full, never crash. By itself a program with a fixed seed and
 * number of inputs; with -DFUZZ_LIBFUZZER the entry point of libFuzzer. */
#include "cli/train/recipe.h"
#include "tests/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From a block of exactly that size, so that the sanitizer sees a read past its end. What is read is written and read again,
 * and has to be the same. */
static bool parse_exact(const char *bytes, size_t size, const char *const *sets, int n) {
    char *copy = malloc(size ? size : 1);
    if (!copy) return true;
    memcpy(copy, bytes, size);
    recipe *r = recipe_parse(copy, size, "fuzz", "fuzz.yaml", sets, n);
    free(copy);
    bool sound = r ? ct_ok() : !ct_ok() && ct_error()[0];
    if (r && sound) {
        buffer text = {0};
        sound = recipe_text(r, &text);
        recipe *again = sound ? recipe_parse(text.at, text.n, "fuzz", "again.yaml", NULL, 0) : NULL;
        if (!again || !tree_same(r->root, again->root)) {
            fprintf(stderr, "not the same when written and read again: %s\n%s\n", ct_error(), text.at);
            sound = false;
        }
        recipe_free(again);
        buffer_free(&text);
    }
    if (!sound) fprintf(stderr, "unsound answer: recipe %p, error '%s'\n", (void *)r, ct_error());
    recipe_free(r);
    ct_error_clear();
    return sound;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!parse_exact((const char *)data, size, NULL, 0)) abort();
    return 0;
}

#else

enum { INPUTS = 20000, LONGEST = 4096 };

static const char *const words[] = {"&a",
                                    "*a",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ": ",
                                    "- ",
                                    "\n",
                                    "  ",
                                    "\"",
                                    "'",
                                    "|",
                                    ">",
                                    "---\n",
                                    "...",
                                    "!!int",
                                    "?",
                                    "1e999",
                                    "-1",
                                    "99999999999999999999",
                                    "null",
                                    "~",
                                    "true",
                                    "nan",
                                    "model",
                                    "data",
                                    "path",
                                    "normalize",
                                    "{mean: [1, 2], std: 0}",
                                    "[[[[[[[[[[[[[[[[[[[[[[",
                                    "\t",
                                    "#",
                                    "\\x00",
                                    "%",
                                    "@",
                                    "name",
                                    "loss",
                                    "transforms",
                                    "groups",
                                    "metrics",
                                    "&a [*a, *a]",
                                    "<<: *a"};

static size_t mutate(char *bytes, size_t size) {
    for (size_t changes = 1 + fuzz_below(4); changes > 0; changes--) {
        const char *word = words[fuzz_below(sizeof words / sizeof *words)];
        const size_t length = strlen(word);
        switch (fuzz_below(6)) {
        case 0: /* one bit */
            if (size) bytes[fuzz_below(size)] ^= (char)(1u << fuzz_below(8));
            break;
        case 1: /* cut */ size = size ? fuzz_below(size) : 0; break;
        case 2: /* a word over it */
            if (size > length) memcpy(bytes + fuzz_below(size - length), word, length);
            break;
        case 3: { /* a word into it */
            if (size < 2 || size + length > LONGEST) break;
            const size_t at = fuzz_below(size);
            memmove(bytes + at + length, bytes + at, size - at);
            memcpy(bytes + at, word, length);
            size += length;
            break;
        }
        case 4: { /* something taken out */
            if (size < 2) break;
            const size_t at = fuzz_below(size), gone = fuzz_below(size - at < 20 ? size - at : 20);
            memmove(bytes + at, bytes + at + gone, size - at - gone);
            size -= gone;
            break;
        }
        default: { /* a stretch copied elsewhere */
            if (size < 2) break;
            const size_t from = fuzz_below(size), to = fuzz_below(size);
            size_t n = fuzz_below(32);
            if (n > size - from) n = size - from;
            if (n > size - to) n = size - to;
            memmove(bytes + to, bytes + from, n);
        }
        }
    }
    return size;
}

int main(void) {
    static char bytes[LONGEST + 64];
    static const char *const sets[] = {"optimizer.lr=1e-3",
                                       "model.dropout=0.5",
                                       "transforms.0.p=0.1",
                                       "data=[1,2",
                                       "a.b.c.d=1",
                                       "=",
                                       "epochs",
                                       "loss.name=x",
                                       "model=",
                                       "batch=&a [*a]"};
    int failed = 0, read = 0, recipes = 0;
    const int64_t before = ct_live_objects();
    for (; recipe_files[recipes].name; recipes++) {
        recipe *r = recipe_parse(recipe_files[recipes].text, recipe_files[recipes].n, recipe_files[recipes].name,
                                 "seed", NULL, 0);
        read += r != NULL;
        if (!r && ct_error_code() == CT_ERR_UNSUPPORTED) {
            printf("%s\n0 passed, 0 failed, 1 skipped\n", ct_error());
            return 0;
        }
        if (!r) printf("%s: %s\n", recipe_files[recipes].name, ct_error());
        ct_error_clear();
        recipe_free(r);
    }
    for (int i = 0; i < INPUTS && recipes; i++) {
        const recipe_file *seed = &recipe_files[fuzz_below((size_t)recipes)];
        const size_t n = seed->n < LONGEST ? seed->n : LONGEST;
        memcpy(bytes, seed->text, n);
        const char *set[1] = {sets[fuzz_below(sizeof sets / sizeof *sets)]};
        if (!parse_exact(bytes, mutate(bytes, n), set, i % 4 == 0)) {
            printf("FAILED input %d\n", i);
            failed = 1;
        }
    }
    const int leaks = ct_live_objects() != before;
    if (leaks) printf("FAILED: %lld objects are left\n", (long long)(ct_live_objects() - before));
    if (read != recipes || read < 12) printf("FAILED: %d of %d recipes that ship were read\n", read, recipes);
    const int all = failed + leaks + (read != recipes || read < 12);
    printf("%d passed, %d failed\n", 3 - all, all);
    return all != 0;
}

#endif

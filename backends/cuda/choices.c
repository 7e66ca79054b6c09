/* The table is a hash with open addressing. The file has a first line that names the format, then per choice one line of family,
 * number of candidates, choice, and the key in hexadecimal. */
#include "backends/cuda/choices.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cache.h"

enum { ENTRIES = 1 << 15, FILE_BYTES = 16 << 20 };
#define FIRST_LINE "cotangent choices 1\n"

typedef struct entry {
    uint64_t hash;
    int n, choice;
    size_t bytes;
    char family[CT_CHOICE_FAMILY + 1];
    unsigned char key[];
} entry;

struct ct_choices {
    entry **slots;
    size_t capacity, count; /* capacity: a power of two, at least twice the count */
    char *path;
};

static uint64_t hash_of(const char *family, const void *key, size_t bytes) {
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (const char *c = family; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

static entry **slot_of(const ct_choices *choices, uint64_t hash, const char *family, const void *key, size_t bytes) {
    for (size_t i = (size_t)hash;; i++) {
        entry **slot = &choices->slots[i & (choices->capacity - 1)];
        const entry *e = *slot;
        if (!e) return slot;
        if (e->hash == hash && e->bytes == bytes && !strcmp(e->family, family) && !memcmp(e->key, key, bytes))
            return slot;
    }
}

static bool grow(ct_choices *choices) {
    ct_choices larger = {.capacity = 2 * choices->capacity};
    if (!(larger.slots = calloc(larger.capacity, sizeof *larger.slots))) return false;
    for (size_t i = 0; i < choices->capacity; i++) {
        entry *e = choices->slots[i];
        if (e) *slot_of(&larger, e->hash, e->family, e->key, e->bytes) = e;
    }
    free(choices->slots);
    choices->slots = larger.slots;
    choices->capacity = larger.capacity;
    return true;
}

static bool is_family(const char *family, size_t length) {
    if (length < 1 || length > CT_CHOICE_FAMILY) return false;
    for (size_t i = 0; i < length; i++) {
        const char c = family[i];
        const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

int ct_choices_find(const ct_choices *choices, const char *family, const void *key, size_t bytes, int n) {
    const entry *e = *slot_of(choices, hash_of(family, key, bytes), family, key, bytes);
    return e && e->n == n ? e->choice : -1;
}

bool ct_choices_keep(ct_choices *choices, const char *family, const void *key, size_t bytes, int n, int choice) {
    const size_t length = strlen(family);
    if (!is_family(family, length) || bytes < 1 || bytes > CT_CHOICE_KEY) return false;
    if (n < 1 || n > CT_CHOICE_COUNT || choice < 0 || choice >= n) return false;
    const uint64_t hash = hash_of(family, key, bytes);
    entry **slot = slot_of(choices, hash, family, key, bytes);
    if (!*slot) {
        if (choices->count >= ENTRIES) return false;
        if (2 * (choices->count + 1) > choices->capacity) {
            if (!grow(choices)) return false;
            slot = slot_of(choices, hash, family, key, bytes);
        }
        entry *made = malloc(sizeof *made + bytes);
        if (!made) return false;
        made->hash = hash;
        made->bytes = bytes;
        memcpy(made->family, family, length + 1);
        memcpy(made->key, key, bytes);
        *slot = made;
        choices->count++;
    }
    (*slot)->n = n;
    (*slot)->choice = choice;
    return true;
}

/* ---- The file ---- */

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* A number of at most 4 digits and the space after it. */
static bool number(const char **at, const char *end, int *value) {
    const char *c = *at;
    *value = 0;
    while (c < end && c - *at < 4 && *c >= '0' && *c <= '9') *value = 10 * *value + (*c++ - '0');
    if (c == *at || c == end || *c != ' ') return false;
    *at = c + 1;
    return true;
}

/* What is known already wins: it was measured in this process, or it is the same. */
static void read_line(ct_choices *choices, const char *line, const char *end) {
    char family[CT_CHOICE_FAMILY + 1];
    unsigned char key[CT_CHOICE_KEY];
    int n, choice;
    const char *space = memchr(line, ' ', (size_t)(end - line));
    const size_t length = space ? (size_t)(space - line) : 0;
    if (!is_family(line, length)) return;
    memcpy(family, line, length);
    family[length] = 0;
    const char *at = space + 1;
    if (!number(&at, end, &n) || !number(&at, end, &choice)) return;
    const size_t digits = (size_t)(end - at), bytes = digits / 2;
    if (digits % 2 || bytes < 1 || bytes > CT_CHOICE_KEY) return;
    for (size_t i = 0; i < bytes; i++) {
        const int high = digit(at[2 * i]), low = digit(at[2 * i + 1]);
        if (high < 0 || low < 0) return;
        key[i] = (unsigned char)(high << 4 | low);
    }
    if (!*slot_of(choices, hash_of(family, key, bytes), family, key, bytes))
        ct_choices_keep(choices, family, key, bytes, n, choice);
}

static void read_file(ct_choices *choices) {
    size_t length = 0;
    char *text = ct_cache_read(choices->path, FILE_BYTES, &length);
    const size_t first = sizeof FIRST_LINE - 1;
    if (text && length >= first && !memcmp(text, FIRST_LINE, first))
        for (const char *line = text + first, *end = text + length, *stop; line < end; line = stop + 1) {
            if (!(stop = memchr(line, '\n', (size_t)(end - line)))) break; /* cut off */
            read_line(choices, line, stop);
        }
    free(text);
}

static bool write_all(FILE *file, const void *context) {
    const ct_choices *choices = context;
    fputs(FIRST_LINE, file);
    for (size_t i = 0; i < choices->capacity; i++) {
        const entry *e = choices->slots[i];
        if (!e) continue;
        fprintf(file, "%s %d %d ", e->family, e->n, e->choice);
        for (size_t k = 0; k < e->bytes; k++) fprintf(file, "%02x", (unsigned)e->key[k]);
        fputc('\n', file);
    }
    return true;
}

bool ct_choices_save(ct_choices *choices) {
    if (!choices->path) return false;
    read_file(choices);
    return ct_cache_replace(choices->path, write_all, choices);
}

ct_choices *ct_choices_open(const char *path) {
    ct_choices *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->capacity = 64;
    made->slots = calloc(made->capacity, sizeof *made->slots);
    made->path = path ? strdup(path) : NULL;
    if (!made->slots || (path && !made->path)) {
        ct_choices_free(made);
        return NULL;
    }
    if (path) read_file(made);
    return made;
}

void ct_choices_free(ct_choices *choices) {
    if (!choices) return;
    for (size_t i = 0; choices->slots && i < choices->capacity; i++) free(choices->slots[i]);
    free(choices->slots);
    free(choices->path);
    free(choices);
}

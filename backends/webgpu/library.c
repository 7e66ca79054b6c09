/* The library of device code, backends/webgpu/lib/: cut into its declarations when the module is opened, of which a shader gets those that
 * it names. Shaders stay short that way, and compile fast. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/webgpu/shader.h"

#define CT_WGSL_LIBRARY(file) extern const char ct_wgsl_lib_##file[];
#include "gen/wgsl_library.inc"
#undef CT_WGSL_LIBRARY

static const struct {
    const char *name, *text;
} files[] = {
#define CT_WGSL_LIBRARY(file) {#file, ct_wgsl_lib_##file},
#include "gen/wgsl_library.inc"
#undef CT_WGSL_LIBRARY
    {NULL, NULL},
};

typedef struct declaration {
    const char *name, *text;
    size_t name_length, length;
    ct_wgpu_words words; /* of the file that belongs to one T alone; CT_WGPU_NO_WORDS: of all */
} declaration;

enum { DECLARATIONS = 1024, BUCKETS = 4096 };
static declaration declarations[DECLARATIONS];
static int n_declarations;
static short buckets[BUCKETS]; /* 1 + the first declaration of a hash, then on by linear probing */

static unsigned hash(const char *s, size_t n) {
    unsigned h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h % BUCKETS;
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static ct_wgpu_words words_of(const char *file) {
    static const char *const names[] = {"", "words_f32", "words_i32", "words_i64", "words_bool"};
    for (int i = 1; i < 5; i++)
        if (strcmp(file, names[i]) == 0) return (ct_wgpu_words)i;
    return CT_WGPU_NO_WORDS;
}

/* Adds the declaration that begins at s, and returns its end; NULL: there are too many. */
static const char *add(const char *s, ct_wgpu_words words) {
    if (n_declarations == DECLARATIONS) return NULL;
    const char *name = s + strcspn(s, " <");
    if (*name == '<') name = strchr(name, '>') + 1; /* var<workgroup> */
    while (*name == ' ') name++;
    declaration *d = &declarations[n_declarations++];
    d->name = name;
    while (is_name(name[d->name_length])) d->name_length++;
    d->text = s;
    d->words = words;
    /* Its line, or all up to the line that is a brace alone. */
    const char *end = s + strcspn(s, "\n");
    const char last = end > s ? end[-1] : ' ';
    if (last != ';' && last != '}') {
        const char *brace = strstr(end, "\n}");
        end = brace ? brace + 2 : end + strlen(end);
    }
    d->length = (size_t)(end - s);
    unsigned h = hash(d->name, d->name_length);
    while (buckets[h]) h = (h + 1) % BUCKETS;
    buckets[h] = (short)n_declarations;
    return end;
}

bool ct_wgpu_library_start(void) {
    if (n_declarations) return true;
    for (int i = 0; files[i].name; i++)
        for (const char *s = files[i].text; s && *s;) {
            const bool begins = strncmp(s, "fn ", 3) == 0 || strncmp(s, "const ", 6) == 0 || strncmp(s, "alias ", 6) == 0 ||
                                strncmp(s, "struct ", 7) == 0 || strncmp(s, "var<", 4) == 0;
            if (begins) s = add(s, words_of(files[i].name));
            if (!s) return false;
            s += strcspn(s, "\n");
            if (*s) s++;
        }
    return true;
}

static int find(const char *name, size_t n, ct_wgpu_words words) {
    for (unsigned h = hash(name, n); buckets[h]; h = (h + 1) % BUCKETS) {
        const declaration *d = &declarations[buckets[h] - 1];
        if (d->name_length == n && memcmp(d->name, name, n) == 0 && (!d->words || d->words == words)) return buckets[h] - 1;
    }
    return -1;
}

/* What is appended is looked through in turn, as the text grows. */
void ct_wgpu_link(ct_wgpu_text *t, ct_wgpu_words words) {
    static const unsigned char none[DECLARATIONS];
    unsigned char *taken = malloc(sizeof none);
    if (!taken) {
        t->failed = true;
        return;
    }
    memcpy(taken, none, sizeof none);
    for (size_t i = 0; i < t->n && !t->failed;) {
        if (t->s[i] == '/' && i + 1 < t->n && t->s[i + 1] == '/') { /* a comment */
            while (i < t->n && t->s[i] != '\n') i++;
            continue;
        }
        if (!is_name(t->s[i])) {
            i++;
            continue;
        }
        size_t n = 1;
        while (i + n < t->n && is_name(t->s[i + n])) n++;
        const int found = find(t->s + i, n, words);
        i += n;
        if (found < 0 || taken[found]) continue;
        taken[found] = 1;
        ct_wgpu_put_bytes(t, declarations[found].text, declarations[found].length);
        ct_wgpu_put_bytes(t, "\n", 1);
    }
    free(taken);
}

void ct_wgpu_put_bytes(ct_wgpu_text *t, const char *s, size_t n) {
    if (t->n + n + 1 > t->room && !t->failed) {
        const size_t room = 2 * (t->n + n + 1);
        char *grown = realloc(t->s, room);
        if (grown) t->s = grown, t->room = room;
        else t->failed = true;
    }
    if (t->failed) return;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void ct_wgpu_put(ct_wgpu_text *t, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line) t->failed = true;
    else ct_wgpu_put_bytes(t, line, (size_t)n);
}

/* The library of device code, backends/webgpu/lib/: cut into its declarations when the module is opened. A shader gets those of its unit and of
 * the library that its function names, and those that these name: it stays short, and compiles fast.
 *
 * The words of elementwise lines mean what they mean on the T of the launch. A text that computes in several types names the others' with
 * a suffix: ct_add_on_i32 is ct_add of words_i32.wgsl, and what this names in turn gets the suffix too. */
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
    bool is_word;        /* it depends on T */
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

static bool begins_declaration(const char *s) {
    static const char *const words[] = {"fn ", "const ", "alias ", "struct ", "var<", "override "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* The next declaration from s on, at the beginning of a line; false: there is none. */
static bool next_declaration(const char **s, declaration *d) {
    const char *at = *s;
    while (*at && !begins_declaration(at)) {
        at += strcspn(at, "\n");
        if (*at) at++;
    }
    if (!*at) return false;
    const char *name = at + strcspn(at, " <");
    if (*name == '<') name += strcspn(name, ">") + 1; /* var<workgroup> */
    while (*name == ' ') name++;
    *d = (declaration){.name = name, .text = at};
    while (is_name(name[d->name_length])) d->name_length++;
    /* Its line, without a comment behind it, or all up to the line that is a brace alone. */
    const char *end = at + strcspn(at, "\n"), *last = strstr(at, "//");
    if (!last || last > end) last = end;
    while (last > at && last[-1] == ' ') last--;
    if (last[-1] != ';' && last[-1] != '}') {
        const char *brace = strstr(end, "\n}");
        end = brace ? brace + 2 : end + strlen(end);
    }
    d->length = (size_t)(end - at);
    *s = end;
    return true;
}

bool ct_wgpu_library_start(void) {
    if (n_declarations) return true;
    for (int i = 0; files[i].name; i++)
        for (const char *s = files[i].text;
             n_declarations < DECLARATIONS && next_declaration(&s, &declarations[n_declarations]);) {
            declaration *d = &declarations[n_declarations++];
            d->words = words_of(files[i].name);
            d->is_word = d->words || strcmp(files[i].name, "truth") == 0;
            unsigned h = hash(d->name, d->name_length);
            while (buckets[h]) h = (h + 1) % BUCKETS;
            buckets[h] = (short)n_declarations;
        }
    return n_declarations < DECLARATIONS;
}

static int find(const char *name, size_t n, ct_wgpu_words words) {
    for (unsigned h = hash(name, n); buckets[h]; h = (h + 1) % BUCKETS) {
        const declaration *d = &declarations[buckets[h] - 1];
        if (d->name_length == n && memcmp(d->name, name, n) == 0 && (!d->words || d->words == words))
            return buckets[h] - 1;
    }
    return -1;
}

/* ---- Words on several types ---- */

static const char *const suffixes[] = {"", "_on_f32", "_on_i32", "_on_i64", "_on_bool"};

/* What the suffix of a name says, and the name without it. */
static ct_wgpu_words suffix_of(const char *name, size_t *n) {
    for (int i = 1; i < 5; i++) {
        const size_t length = strlen(suffixes[i]);
        if (*n <= length || memcmp(name + *n - length, suffixes[i], length) != 0) continue;
        *n -= length;
        return (ct_wgpu_words)i;
    }
    return CT_WGPU_NO_WORDS;
}

void ct_wgpu_put_on(ct_wgpu_text *t, const char *s, size_t n, ct_wgpu_words words) {
    for (size_t i = 0; i < n && !t->failed;) {
        size_t length = 1;
        const bool named = is_name(s[i]);
        while (i + length < n && is_name(s[i + length]) == named) length++;
        ct_wgpu_put_bytes(t, s + i, length);
        const int found = named ? find(s + i, length, words) : -1;
        if (found >= 0 && declarations[found].is_word) ct_wgpu_put_bytes(t, suffixes[words], strlen(suffixes[words]));
        i += length;
    }
}

/* ---- Linking ---- */

enum { LOCAL = 256 };
typedef struct own {
    declaration list[LOCAL];
    int n;
    unsigned char taken[LOCAL], library_taken[DECLARATIONS]; /* the latter: a bit for each suffix */
} own;

static void add_own(own *o, const char *text) {
    while (text && o->n < LOCAL && next_declaration(&text, &o->list[o->n])) o->n++;
}

/* The declaration of that name which is not in the text yet; NULL: there is none, or it is. *on becomes what its suffix says. */
static const declaration *take(own *o, const char *name, size_t n, ct_wgpu_words words, ct_wgpu_words *on) {
    *on = CT_WGPU_NO_WORDS;
    for (int i = 0; i < o->n; i++)
        if (o->list[i].name_length == n && memcmp(o->list[i].name, name, n) == 0) {
            if (o->taken[i]) return NULL;
            o->taken[i] = 1;
            return &o->list[i];
        }
    *on = suffix_of(name, &n);
    const int found = find(name, n, *on ? *on : words);
    if (found < 0 || o->library_taken[found] >> *on & 1) return NULL;
    o->library_taken[found] |= (unsigned char)(1u << *on);
    return &declarations[found];
}

/* What is appended is looked through in turn, as the text grows. */
void ct_wgpu_link(ct_wgpu_text *t, const char *unit, const char *more, ct_wgpu_words words) {
    own *o = calloc(1, sizeof *o);
    if (!o) {
        t->failed = true;
        return;
    }
    add_own(o, unit);
    add_own(o, more);
    ct_wgpu_words on;
    take(o, "Params", 6, words, &on); /* it is there, with a head */
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
        const declaration *d = take(o, t->s + i, n, words, &on);
        i += n;
        if (!d) continue;
        const char *from = d->text;
        if (on) ct_wgpu_put_on(t, from, d->length, on);
        else ct_wgpu_put_bytes(t, from, d->length);
        ct_wgpu_put_bytes(t, "\n", 1);
    }
    free(o);
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

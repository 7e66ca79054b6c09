/* Strings, growing text and files. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkops.h"

static void *checked(void *p) {
    if (!p) {
        fputs("mkops: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static void put_args(text *t, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (t->n + (size_t)n + 1 > t->room) {
        t->room = (t->n + (size_t)n + 1) * 2;
        t->s = checked(realloc(t->s, t->room));
    }
    vsnprintf(t->s + t->n, (size_t)n + 1, format, again);
    va_end(again);
    t->n += (size_t)n;
}

void put(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    put_args(t, format, args);
    va_end(args);
}

char *form(const char *format, ...) {
    text t = {0};
    va_list args;
    va_start(args, format);
    put_args(&t, format, args);
    va_end(args);
    return t.s;
}

char *copy_n(const char *s, size_t n) {
    char *copy = checked(malloc(n + 1));
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *upper_case(const char *s) {
    char *copy = copy_n(s, strlen(s));
    for (char *p = copy; *p; p++) *p = (char)toupper((unsigned char)*p);
    return copy;
}

char *c_string(const char *s) {
    text t = {0};
    put(&t, "\"");
    for (; *s; s++) {
        if (*s == '\n') put(&t, "\\n");
        else if (*s == '"' || *s == '\\') put(&t, "\\%c", *s);
        else put(&t, "%c", *s);
    }
    put(&t, "\"");
    return t.s;
}

char *c_double(double x) {
    if (isnan(x)) return form("(double)NAN");
    if (isinf(x)) return form(x < 0 ? "-(double)INFINITY" : "(double)INFINITY");
    char *s = NULL;
    for (int digits = 1; digits <= 17; digits++) {
        s = form("%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    return strpbrk(s, ".e") ? s : form("%s.0", s);
}

void *grow(void *array, int n, size_t size) {
    if (n & (n - 1)) return array; /* room doubles at each power of two */
    return checked(realloc(array, size * (n ? 2 * (size_t)n : 1)));
}

void fail_at(const char *file, int line, const char *format, ...) {
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

char *read_whole(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    text t = {0};
    char block[4096];
    size_t n;
    put(&t, "%s", "");
    while ((n = fread(block, 1, sizeof block, f)) > 0) put(&t, "%.*s", (int)n, block);
    fclose(f);
    return t.s;
}

/* A file that would not change keeps its time, so that the build does not compile what depends on it. */
void write_if_changed(const char *directory, const char *name, const text *t) {
    char *path = form("%s/%s", directory, name);
    char *old = read_whole(path);
    const char *content = t->s ? t->s : "";
    if (old && strcmp(old, content) == 0) return;
    FILE *f = fopen(path, "wb");
    if (!f || fputs(content, f) == EOF || fclose(f) == EOF) {
        fprintf(stderr, "mkops: %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

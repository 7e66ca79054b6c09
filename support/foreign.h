/* Libraries of others (zlib, libpng, ...) that are loaded when they are first used, so that this library needs none to be
 * linked or started. A file that uses one lists its functions once:
 *
 *     #define PNG(X) X(png_image_free) X(png_image_begin_read_from_memory)
 *     FOREIGN(png, PNG, "libpng", "libpng16-16", "libpng16.so.16")
 *
 *     if (!foreign_png("image_load")) return NULL;  // an error that says what is missing
 *     png.png_image_free(&image);
 *
 * The prototypes come from the library's own header, at build time. */
#ifndef COTANGENT_SUPPORT_FOREIGN_H
#define COTANGENT_SUPPORT_FOREIGN_H

#include <cotangent.h>

typedef struct ct__foreign {
    const char *name, *package; /* "libpng", and what Debian calls it */
    const char *files[4];       /* names to try, ended by NULL */
    const char *const *symbols; /* ended by NULL */
    void **functions;           /* one for each symbol */
} ct__foreign;

/* Whether the library is there; loads it the first time, on any thread. If not, an error raised by `op`. */
bool ct__foreign_load(const ct__foreign *library, int *state, const char *op);

/* The error of a build that did not find the header. Always false. */
bool ct__foreign_absent(const char *op, const char *name, const char *package);

#define CT__FOREIGN_FIELD(function)  __typeof__(&function) function;
#define CT__FOREIGN_SYMBOL(function) #function,
/* The address of a function inside the struct, seen as what dlsym gives: POSIX makes the two interchangeable. */
#define FOREIGN(id, LIST, title, debian, ...)                                                                   \
    static struct { LIST(CT__FOREIGN_FIELD) } id;                                                               \
    static bool foreign_##id(const char *op) {                                                                  \
        static const char *const symbols[] = {LIST(CT__FOREIGN_SYMBOL) NULL};                                   \
        static const ct__foreign library = {title, debian, {__VA_ARGS__, NULL}, symbols, (void **)(void *)&id}; \
        static int state;                                                                                       \
        return ct__foreign_load(&library, &state, op);                                                          \
    }

#endif

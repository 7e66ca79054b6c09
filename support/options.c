/* Structs that callers hand over, of whatever version. A newer caller's struct is longer, and may set nothing of what is there
 * beyond this version's: what the library does not know it cannot do. */
#include "support/options.h"

enum { LARGEST = 1 << 14 }; /* more is no size, but something that stands where it should */

static bool is_zero(const char *bytes, size_t n) {
    while (n && !*bytes) bytes++, n--;
    return n == 0;
}

/* Whether a struct that says so is of n bytes, and what this version does not know of it is zero; or an error. */
static bool is_known(const char *type, const void *given, size_t size, size_t least, size_t n) {
    if (n < least || n > LARGEST) return ct_fail(CT_ERR_VALUE, type, "size is %zu; it has to be sizeof(%s)", n, type);
    return n <= size || is_zero((const char *)given + size, n - size) ||
           ct_fail(CT_ERR_UNSUPPORTED, type, "something is set that version %s of the library does not have",
                   ct_version_text());
}

void ct__take_options(const char *type, void *options, size_t size, const void *given) {
    const size_t n = given ? *(const size_t *)given : 0;
    memset(options, 0, size);
    if (given && is_known(type, given, size, sizeof n, n)) memcpy(options, given, n > size ? size : n);
    *(size_t *)options = size; /* which they may be given on by */
}

const void *ct__take_class(const char *type, void *own, size_t size, const void *given) {
    const size_t n = *(const size_t *)given;
    if (!is_known(type, given, size, 2 * sizeof n, n)) return NULL;
    if (n >= size) return given;
    memset(own, 0, size);
    return memcpy(own, given, n);
}

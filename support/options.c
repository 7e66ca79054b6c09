/* Structs that callers hand over, of whatever version. */
#include "support/options.h"

void ct__take_options(const char *type, void *options, size_t size, const void *given) {
    const size_t n = given ? *(const size_t *)given : 0;
    memset(options, 0, size);
    if (n) memcpy(options, given, n > size ? size : n);
    else if (given) ct_fail(CT_ERR_VALUE, type, "size is 0; it has to be sizeof(%s)", type);
}

const void *ct__take_class(const char *type, void *own, size_t size, const void *given) {
    enum { MOST = 4096 }; /* more is no size, but something that stands where it should */
    const size_t n = *(const size_t *)given;
    if (n < 2 * sizeof(size_t) || n > MOST) {
        ct_fail(CT_ERR_VALUE, type, "size is %zu; it has to be sizeof(%s)", n, type);
        return NULL;
    }
    if (n >= size) return given;
    memset(own, 0, size);
    return memcpy(own, given, n);
}

/* Options and attributes on their way into a call. */
#include "core/options.h"

#include <string.h>

void ct__take_options(void *options, size_t size, const void *given) {
    size_t n = given ? *(const size_t *)given : 0;
    if (given && (n == 0 || n > size)) n = size;
    memcpy(options, given, n);
    memset((char *)options + n, 0, size - n);
}

void ct__clear(void *attrs, size_t size) { memset(attrs, 0, size); }

/* Structs that say their size. */
#include "core/sized.h"

#include <string.h>

#include "core/error.h"

enum { LARGEST = 1 << 14 }; /* of all structs of options, those to come included: what is larger is no size */

bool ct__sized_copy(void *to, size_t size, const void *from, size_t given) {
    const char *bytes = from;
    memcpy(to, from, given < size ? given : size);
    if (given < size) memset((char *)to + given, 0, size - given);
    for (size_t i = size; i < given; i++)
        if (bytes[i]) return false;
    return true;
}

bool ct__take_sized(void *options, size_t size, const void *given, const char *op) {
    if (!given) {
        memset(options, 0, size);
        return true;
    }
    const size_t n = *(const size_t *)given;
    if (n < sizeof n || n > LARGEST)
        return ct_fail(CT_ERR_VALUE, op,
                       "the options say that their size is %zu: zero the struct and set size to that of its type", n);
    return ct__sized_copy(options, size, given, n) ||
           ct_fail(CT_ERR_UNSUPPORTED, op, "an option is set that version %s of the library does not have",
                   ct_version_text());
}

const void *ct__sized(void *room, size_t size, const void *given, const char *op) {
    if (given && *(const size_t *)given == size) return given;
    return ct__take_sized(room, size, given, op) ? room : NULL;
}

void ct__sized_fill(void *to, size_t given, const void *from, size_t size) {
    memcpy(to, from, given < size ? given : size);
    if (given > size) memset((char *)to + size, 0, given - size);
}

void ct__clear(void *attrs, size_t size) { memset(attrs, 0, size); }

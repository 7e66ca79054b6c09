/* How nn/, optim/ and data/ read the structs of options that callers hand over. */
#ifndef COTANGENT_NN_OPTIONS_H
#define COTANGENT_NN_OPTIONS_H

#include <stddef.h>
#include <string.h>

/* An older caller has a shorter struct: what it lacks is zero, which is the default. */
static inline void ct__take_options(void *options, size_t size, const void *given) {
    const size_t n = given ? *(const size_t *)given : 0;
    memset(options, 0, size);
    if (given) memcpy(options, given, n == 0 || n > size ? size : n);
}

/* Declares `name`, with what was given in it. */
#define TAKE_OPTIONS(type, name, given) \
    type name;                          \
    ct__take_options(&name, sizeof name, (given))

#endif

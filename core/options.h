/* Options and attributes on their way into a call. Every call passes here, so this is built to be fast; the functions that use it,
 * some hundreds, are built to be small. */
#ifndef COTANGENT_CORE_OPTIONS_H
#define COTANGENT_CORE_OPTIONS_H

#include <stddef.h>

/* The options that a caller gave, whose struct begins with its size. An older caller has a shorter one: what it lacks is zero, which is
 * the default. */
void ct__take_options(void *options, size_t size, const void *given);
void ct__clear(void *attrs, size_t size);

#endif

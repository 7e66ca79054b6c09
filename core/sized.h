/* Public structs that begin with their size, as the caller's compiler knew it. An older caller has a shorter one: what it lacks
 * is zero. A newer one has more, and may set nothing of it: what this library does not know it cannot do. */
#ifndef COTANGENT_CORE_SIZED_H
#define COTANGENT_CORE_SIZED_H

#include <stdbool.h>
#include <stddef.h>

/* Copies what both sides know and zeroes the rest; false: beyond that something is set. */
bool ct__sized_copy(void *to, size_t size, const void *from, size_t given);

/* Reads a struct of options; NULL gives the defaults. False, with an error of op, for a size that none can have. */
bool ct__take_sized(void *options, size_t size, const void *given, const char *op);
/* The same without a copy where the caller's struct is of our size already, as nearly always: it, or room; NULL after an error. */
const void *ct__sized(void *room, size_t size, const void *given, const char *op);
/* Fills a struct of the caller's as far as it goes, and zeroes what it has beyond what is known; the sizes are its and ours. */
void ct__sized_fill(void *to, size_t given, const void *from, size_t size);

/* Zeroes a struct of attributes. Here because the hundreds of functions that need it are built to be small, and this to be fast. */
void ct__clear(void *attrs, size_t size);

#endif

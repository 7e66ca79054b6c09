/* Host memory: a caching allocator. Blocks are 64-byte aligned; the caller remembers the size. */
#ifndef COTANGENT_CORE_ALLOC_H
#define COTANGENT_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *ct__alloc(size_t bytes);             /* NULL when there is none; raises no error; bytes 0 is fine */
void ct__free(void *memory, size_t bytes); /* bytes as asked for; NULL is fine */
void *ct__grow(void *memory, size_t old_bytes, size_t new_bytes); /* moves the content; NULL leaves the old alone */

/* Tensors and graph nodes alive, counted where allocations are: by thread, without locked instructions. */
void ct__live_add(int64_t by);

/* For tests: the nth allocation from now on (1 is the next) fails, and only that one; 0 switches it off. */
void ct__alloc_fail_at(int64_t nth);
int64_t ct__alloc_fail_left(void);

#endif

/* Bytes at the end of readable memory: whoever reads behind them is killed. */
#ifndef COTANGENT_TESTS_GUARDED_PAGE_H
#define COTANGENT_TESTS_GUARDED_PAGE_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A copy of size bytes (at most a page, a multiple of 8) that stays; NULL: no memory. */
static inline void *at_the_end(const void *bytes, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0) return NULL;
    return memcpy(memory + page - size, bytes, size);
}

#endif

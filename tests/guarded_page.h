/* Bytes at the end of memory: whoever reads or writes behind them is killed. */
#ifndef COTANGENT_TESTS_GUARDED_PAGE_H
#define COTANGENT_TESTS_GUARDED_PAGE_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* size bytes behind which a page is that nobody may touch; NULL: no memory. */
static inline char *guarded_alloc(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *memory = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + whole, page, PROT_NONE) != 0) return NULL;
    return memory + whole - size;
}
static inline void guarded_free(char *bytes, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    if (bytes) munmap(bytes + size - whole, whole + page);
}

/* A copy of them that stays. */
static inline void *at_the_end(const void *bytes, size_t size) {
    char *at = guarded_alloc(size);
    return at ? memcpy(at, bytes, size) : NULL;
}

#endif

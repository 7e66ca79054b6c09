/* Asks the system for the caches; where it does not know, they are those of most processors: 32 KiB and 1 MiB, 8 ways each. The
 * processor itself tells its family. */
#include "backends/cpu/gemm/caches.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <unistd.h>

static ct_caches caches = {.l1_ways = 8, .l1_way = 4096, .l2_ways = 8, .l2_way = 131072};
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A way is a power of two, as sets are numbered by bits of the address. With fewer ways than any processor has that these kernels are for,
 * which emulators tell of, tiles would be of hardly a row. */
enum { LEAST_WAYS = 8 };
static void set(int64_t *ways, int64_t *way, long bytes, long associativity) {
    if (bytes <= 0 || associativity < LEAST_WAYS || bytes % associativity) return;
    const int64_t each = bytes / associativity;
    if (each < 64 || (each & (each - 1))) return;
    *ways = associativity, *way = each;
}

/* AMD's Zen 5, family 0x1A, and what may follow: 56 GB/s on one thread without prefetches, 49 with them. */
static bool reads_ahead(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx)
        return false;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    return (a >> 8 & 0xf) + (a >> 20 & 0xff) >= 0x1a; /* the family, and beside 0xf its extension */
#else
    return false;
#endif
}

static void read_caches(void) {
    caches.reads_ahead = reads_ahead();
#if defined(_SC_LEVEL1_DCACHE_ASSOC)
    set(&caches.l1_ways, &caches.l1_way, sysconf(_SC_LEVEL1_DCACHE_SIZE), sysconf(_SC_LEVEL1_DCACHE_ASSOC));
    set(&caches.l2_ways, &caches.l2_way, sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_ASSOC));
#endif
}

const ct_caches *ct__caches(void) {
    pthread_once(&once, read_caches);
    return &caches;
}

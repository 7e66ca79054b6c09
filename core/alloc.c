/* Host memory. Small blocks (up to 2 KiB, in steps of 64 bytes) come from free lists of the thread, so that a tensor of four
 * elements costs nanoseconds. Larger ones are blocks of an arena (arena.h), found again by their address. Fresh memory is the
 * dearest thing a kernel can ask for (page faults), so the arena's parts are kept, and large ones sit on huge pages. The
 * memory of other devices: device_memory.c. */
#include "core/alloc.h"
#include "core/hot.h"

#include <cotangent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/arena.h"
#include "core/device_memory.h"
#include "core/error.h"

enum {
    LINE = 64,
    SMALL_STEP = 64,
    SMALL_CLASSES = 32,
    SMALL_MAX = SMALL_STEP * SMALL_CLASSES,
    SLAB = 256 << 10,  /* small blocks are carved from slabs of this size */
    SPILL = 128 << 10, /* bytes of one small class that a thread keeps to itself */
    PART_LEAST = 1 << 20,
    PART_MOST = 64 << 20, /* unless one block is larger */
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    STAGGER_FROM =
        1 << 20, /* arrays a power of two apart fight for the same cache sets, so they are a line further apart, */
    STAGGER = 2 * LINE, /* and from this size on so much more */
};

/* Under the address sanitizer nothing is cached, so that it sees every use after release. */
#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#elif defined(__has_feature)
#define CACHING (!__has_feature(address_sanitizer))
#else
#define CACHING 1
#endif

typedef struct free_block {
    struct free_block *next;
} free_block;

typedef struct thread_cache {
    free_block *list[SMALL_CLASSES];
    int count[SMALL_CLASSES];
    _Atomic int64_t in_use, requests, live; /* written by the owner alone, read by anybody */
    struct thread_cache *next;
} thread_cache;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static _Thread_local thread_cache *cache;

/* Everything below is guarded by lock. */
static thread_cache *caches; /* of all live threads */
static free_block *shared_list[SMALL_CLASSES];
static char *slab_next, *slab_end;
static ct_books books;
static ct_arena arena;
static ct_block **by_address; /* blocks of the arena that are in use: chains by a hash of their address */
static size_t by_address_size, by_address_count;
static int64_t retired_in_use, retired_requests, retired_live; /* counts of threads that ended */
static int64_t large_in_use, large_requests, reserved, peak, from_host, limit;
static ct_allocate_fn host_allocate;
static ct_release_fn host_release;
static void *host_context;

static _Atomic int64_t fail_countdown;

void ct__alloc_fail_at(int64_t nth) { atomic_store(&fail_countdown, nth); }
int64_t ct__alloc_fail_left(void) { return atomic_load(&fail_countdown); }

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

/* ---- The system ---- */

static void *system_get(size_t total) {
    void *memory;
    if (limit && reserved + (int64_t)total > limit) return NULL;
    if (host_allocate) {
        memory = host_allocate(host_context, total, total >= HUGE_PAGE ? PAGE : LINE);
    } else if (CACHING && total >= HUGE_PAGE) {
        memory = mmap(NULL, total + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return NULL;
        /* Trim to a huge-page boundary, or the kernel cannot use one for the first and last part. */
        uintptr_t start = (uintptr_t)memory, aligned = (start + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
        if (aligned > start) munmap(memory, aligned - start);
        size_t tail = start + HUGE_PAGE - aligned;
        if (tail) munmap((char *)aligned + total, tail);
        memory = (void *)aligned;
#ifdef MADV_HUGEPAGE
        madvise(memory, total, MADV_HUGEPAGE);
#endif
    } else {
        memory = aligned_alloc(LINE, total);
    }
    if (memory) {
        reserved += (int64_t)total;
        from_host++;
    }
    return memory;
}

static void system_return(void *memory, size_t total) {
    reserved -= (int64_t)total;
    if (host_release) host_release(host_context, memory, total);
    else if (CACHING && total >= HUGE_PAGE) munmap(memory, total);
    else free(memory);
}

/* ---- Blocks of the arena ---- */

static ct_block **chain_of(const void *memory) {
    return &by_address[((uintptr_t)memory / LINE * 0x9E3779B97F4A7C15u >> 20) & (by_address_size - 1)];
}

static void chain(ct_block *block) {
    ct_block **head = chain_of((char *)block->buffer + block->offset);
    block->next = *head;
    *head = block;
}

/* Room for one more: false when there is no memory for it and no table at all. */
static bool chains_grow(void) {
    if (by_address_count < by_address_size) return true;
    const size_t before = by_address_size, size = before ? 2 * before : PAGE / sizeof *by_address;
    ct_block **old = by_address, **table = system_get(size * sizeof *table);
    if (!table) return before > 0; /* longer chains will do */
    memset(table, 0, size * sizeof *table);
    by_address = table;
    by_address_size = size;
    for (size_t i = 0; i < before; i++) {
        for (ct_block *block = old[i], *next; block; block = next) {
            next = block->next;
            chain(block);
        }
    }
    if (before) system_return(old, before * sizeof *old);
    return true;
}

static ct_block *unchain(const void *memory) {
    ct_block **link = chain_of(memory);
    while ((char *)(*link)->buffer + (*link)->offset != memory) link = &(*link)->next;
    ct_block *block = *link;
    *link = block->next;
    by_address_count--;
    return block;
}

static void trim_locked(void) {
    void *memory;
    size_t size;
    for (int bin = 0; ct__arena_remove(&arena, &bin, &memory, &size);) system_return(memory, size);
}

static void note_peak_locked(void) {
    int64_t now = large_in_use + retired_in_use;
    for (thread_cache *c = caches; c; c = c->next) now += atomic_load_explicit(&c->in_use, memory_order_relaxed);
    if (now > peak) peak = now;
}

/* Parts grow with what is in use, so that a small program stays small and a large one asks rarely. */
static bool new_part(size_t size) {
    size_t usual = (size_t)reserved / 4, total;
    usual = usual < PART_LEAST ? PART_LEAST : usual > PART_MOST ? PART_MOST : usual;
    total = size > usual ? size : usual;
    total = ct__whole(total, total >= HUGE_PAGE ? HUGE_PAGE : LINE);
    void *memory = system_get(total);
    if (!memory) { /* memory is short: what lies unused goes back, and no more than needed is asked for */
        trim_locked();
        memory = system_get(total = ct__whole(size, PAGE));
    }
    if (!memory) return false;
    if (ct__arena_add(&arena, memory, total)) return true;
    system_return(memory, total);
    return false;
}

static void *large_get_locked(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    if (!arena.books) {
        books.get = system_get;
        arena.books = &books;
        arena.least = SMALL_MAX + LINE;
    }
    large_requests++;
    const size_t size = (bytes + 2 * LINE - 1) / LINE * LINE + (bytes >= STAGGER_FROM ? STAGGER : 0);
    if (!chains_grow()) return NULL;
    ct_block *block = ct__arena_take(&arena, size);
    if (!block && new_part(size)) block = ct__arena_take(&arena, size);
    if (!block) return NULL;
    chain(block);
    by_address_count++;
    large_in_use += (int64_t)bytes;
    note_peak_locked();
    return (char *)block->buffer + block->offset;
}

static void large_return_locked(void *memory, size_t bytes) {
    large_in_use -= (int64_t)bytes;
    ct__arena_give(unchain(memory));
}

/* ---- Small blocks ---- */

static void cache_retire(void *memory) {
    thread_cache *gone = memory;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SMALL_CLASSES; i++) {
        while (gone->list[i]) {
            free_block *block = gone->list[i];
            gone->list[i] = block->next;
            block->next = shared_list[i];
            shared_list[i] = block;
        }
    }
    retired_in_use += atomic_load(&gone->in_use);
    retired_requests += atomic_load(&gone->requests);
    retired_live += atomic_load(&gone->live);
    thread_cache **link = &caches;
    while (*link != gone) link = &(*link)->next;
    *link = gone->next;
    pthread_mutex_unlock(&lock);
    cache = NULL;
    free(gone);
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

static void make_key(void) {
    pthread_key_create(&exit_key, cache_retire);
    pthread_atfork(before_fork, after_fork, after_fork); /* a child never finds the lock taken */
}

static thread_cache *cache_open(void) {
    pthread_once(&once, make_key);
    thread_cache *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    pthread_mutex_lock(&lock);
    made->next = caches;
    caches = made;
    pthread_mutex_unlock(&lock);
    pthread_setspecific(exit_key, made);
    return cache = made;
}

/* Hands the thread a batch of one class: from what other threads gave up, else cut from a slab. */
static void *small_refill(thread_cache *c, int index) {
    size_t size = (size_t)(index + 1) * SMALL_STEP;
    int batch = (int)(4096 / size) + 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < batch; i++) {
        free_block *block = shared_list[index];
        if (block) {
            shared_list[index] = block->next;
        } else {
            if (slab_next == NULL || (size_t)(slab_end - slab_next) < size) {
                char *slab = system_get(SLAB);
                if (!slab) {
                    trim_locked();
                    slab = system_get(SLAB);
                }
                if (!slab) break;
                slab_next = slab;
                slab_end = slab + SLAB;
            }
            block = (free_block *)slab_next;
            slab_next += size;
        }
        block->next = c->list[index];
        c->list[index] = block;
        c->count[index]++;
    }
    pthread_mutex_unlock(&lock);
    free_block *block = c->list[index];
    if (!block) return NULL;
    c->list[index] = block->next;
    c->count[index]--;
    return block;
}

static void small_spill(thread_cache *c, int index) {
    pthread_mutex_lock(&lock);
    for (int keep = c->count[index] / 2; c->count[index] > keep; c->count[index]--) {
        free_block *block = c->list[index];
        c->list[index] = block->next;
        block->next = shared_list[index];
        shared_list[index] = block;
    }
    pthread_mutex_unlock(&lock);
}

static void count(_Atomic int64_t *counter, int64_t by) { /* one writer: no need for a locked add */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

static size_t plain_size(size_t bytes) { return (bytes / LINE + 1) * LINE; }

static void *plain_get(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    pthread_mutex_lock(&lock);
    void *memory = system_get(plain_size(bytes));
    if (memory) {
        large_in_use += (int64_t)bytes;
        large_requests++;
        note_peak_locked();
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

static void plain_return(void *memory, size_t bytes) {
    pthread_mutex_lock(&lock);
    system_return(memory, plain_size(bytes));
    large_in_use -= (int64_t)bytes;
    pthread_mutex_unlock(&lock);
}

CT__HOT void *ct__alloc(size_t bytes) {
    if (must_fail()) return NULL;
    if (!CACHING) return plain_get(bytes);
    if (bytes <= SMALL_MAX) {
        thread_cache *c = cache ? cache : cache_open();
        if (!c) return NULL;
        int index = bytes ? (int)((bytes - 1) / SMALL_STEP) : 0;
        void *memory = c->list[index];
        if (memory) {
            c->list[index] = ((free_block *)memory)->next;
            c->count[index]--;
        } else {
            memory = small_refill(c, index);
            if (!memory) return NULL;
        }
        count(&c->in_use, (int64_t)(index + 1) * SMALL_STEP);
        count(&c->requests, 1);
        return memory;
    }
    pthread_mutex_lock(&lock);
    void *memory = large_get_locked(bytes);
    pthread_mutex_unlock(&lock);
    return memory;
}

CT__HOT void ct__free(void *memory, size_t bytes) {
    if (!memory) return;
    if (!CACHING) {
        plain_return(memory, bytes);
        return;
    }
    if (bytes <= SMALL_MAX) {
        thread_cache *c = cache ? cache : cache_open();
        int index = bytes ? (int)((bytes - 1) / SMALL_STEP) : 0;
        free_block *block = memory;
        if (!c) { /* no memory even for a cache: hand the block to everybody */
            pthread_mutex_lock(&lock);
            block->next = shared_list[index];
            shared_list[index] = block;
            retired_in_use -= (int64_t)(index + 1) * SMALL_STEP;
            pthread_mutex_unlock(&lock);
            return;
        }
        block->next = c->list[index];
        c->list[index] = block;
        count(&c->in_use, -(int64_t)(index + 1) * SMALL_STEP);
        if (++c->count[index] > SPILL / ((index + 1) * SMALL_STEP)) small_spill(c, index);
        return;
    }
    pthread_mutex_lock(&lock);
    large_return_locked(memory, bytes);
    pthread_mutex_unlock(&lock);
}

void *ct__grow(void *memory, size_t old_bytes, size_t new_bytes) {
    void *larger = ct__alloc(new_bytes);
    if (!larger) return NULL;
    if (memory) memcpy(larger, memory, old_bytes < new_bytes ? old_bytes : new_bytes);
    ct__free(memory, old_bytes);
    return larger;
}

CT__HOT void ct__live_add(int64_t by) {
    thread_cache *c = cache ? cache : cache_open();
    if (c) {
        count(&c->live, by);
        return;
    }
    pthread_mutex_lock(&lock);
    retired_live += by;
    pthread_mutex_unlock(&lock);
}

/* ---- Public ---- */

int64_t ct_live_objects(void) {
    pthread_mutex_lock(&lock);
    int64_t total = retired_live;
    for (thread_cache *c = caches; c; c = c->next) total += atomic_load_explicit(&c->live, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return total;
}

bool ct_set_allocator(ct_allocate_fn allocate, ct_release_fn release, void *context) {
    if ((allocate == NULL) != (release == NULL))
        return ct_fail(CT_ERR_VALUE, "set_allocator", "allocate and release have to be given together");
    pthread_mutex_lock(&lock);
    bool used = reserved != 0;
    if (!used) {
        host_allocate = allocate;
        host_release = release;
        host_context = context;
    }
    pthread_mutex_unlock(&lock);
    if (used)
        return ct_fail(CT_ERR_STATE, "set_allocator",
                       "memory is in use already; set the allocator before the first tensor is made");
    return true;
}

void ct__host_memory_stats(ct_memory *stats) {
    pthread_mutex_lock(&lock);
    note_peak_locked();
    stats->in_use = large_in_use + retired_in_use;
    stats->peak = peak;
    stats->reserved = reserved;
    stats->requests = large_requests + retired_requests;
    stats->from_host = from_host;
    stats->limit = limit;
    for (thread_cache *c = caches; c; c = c->next) {
        stats->in_use += atomic_load_explicit(&c->in_use, memory_order_relaxed);
        stats->requests += atomic_load_explicit(&c->requests, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}

void ct__host_memory_reset_peak(void) {
    pthread_mutex_lock(&lock);
    peak = 0;
    note_peak_locked();
    pthread_mutex_unlock(&lock);
}

void ct__host_memory_trim(void) {
    pthread_mutex_lock(&lock);
    trim_locked();
    pthread_mutex_unlock(&lock);
}

void ct__host_memory_limit(int64_t bytes) {
    pthread_mutex_lock(&lock);
    limit = bytes;
    pthread_mutex_unlock(&lock);
}

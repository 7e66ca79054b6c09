/* The caching allocator. Small blocks (up to 2 KiB, in steps of 64 bytes) come from free lists of the thread, so that a
 * tensor of four elements costs nanoseconds; larger ones from shared bins of geometric size classes. Fresh memory is the
 * dearest thing a kernel can ask for (page faults), so blocks are kept and reused, large ones sit on huge pages, and
 * their starts are staggered: arrays a power of two apart fight for the same cache sets. */
#include "core/alloc.h"

#include <cotangent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/error.h"

enum {
    LINE = 64,
    SMALL_STEP = 64,
    SMALL_CLASSES = 32,
    SMALL_MAX = SMALL_STEP * SMALL_CLASSES,
    SLAB = 256 << 10,       /* small blocks are carved from slabs of this size */
    SPILL = 128 << 10,      /* bytes of one small class that a thread keeps to itself */
    LARGE_CLASSES = 40 * 8, /* eight sizes to an octave: at most 12.5 % wasted */
    HUGE_PAGE = 2 << 20,
    STAGGER_COUNT = 16,
    STAGGER_STEP = 4096 + 2 * LINE,
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

/* In front of each large block. */
typedef struct large_block {
    struct large_block *next;
    void *base;   /* what the system gave */
    size_t total; /* and how much */
    int class_index;
} large_block;

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
static large_block *bins[LARGE_CLASSES];
static int64_t retired_in_use, retired_requests, retired_live; /* counts of threads that ended */
static int64_t large_in_use, large_requests, reserved, peak, from_host;
static unsigned stagger;
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
    if (host_allocate) {
        memory = host_allocate(host_context, total, total >= HUGE_PAGE ? 4096 : LINE);
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

/* ---- Large blocks ---- */

/* Smallest class whose size holds bytes: sizes are (8 + step) * 2^shift. */
static int large_class(size_t bytes, size_t *class_bytes) {
    int shift = 0;
    while ((size_t)15 << shift < bytes && shift < 60) shift++;
    size_t steps = (bytes + ((size_t)1 << shift) - 1) >> shift; /* 8..15, or fewer for tiny sizes */
    if (steps < 8) steps = 8;
    *class_bytes = steps << shift;
    int index = shift * 8 + (int)(steps - 8);
    return index < LARGE_CLASSES ? index : -1;
}

static void trim_locked(void) {
    for (int i = 0; i < LARGE_CLASSES; i++) {
        while (bins[i]) {
            large_block *block = bins[i];
            bins[i] = block->next;
            system_return(block->base, block->total);
        }
    }
}

static void note_peak_locked(void) {
    int64_t now = large_in_use + retired_in_use;
    for (thread_cache *c = caches; c; c = c->next) now += atomic_load_explicit(&c->in_use, memory_order_relaxed);
    if (now > peak) peak = now;
}

static void *large_get_locked(size_t bytes) {
    size_t class_bytes;
    int index = large_class(bytes, &class_bytes);
    if (index < 0) return NULL;
    large_requests++;
    for (int i = index; i < LARGE_CLASSES && i < index + 3; i++) { /* up to a quarter too large is good enough */
        large_block *block = bins[i];
        if (!block) continue;
        bins[i] = block->next;
        large_in_use += (int64_t)bytes;
        note_peak_locked();
        return block + 1;
    }
    _Static_assert(sizeof(large_block) <= LINE, "the header fits one line");
    bool huge = class_bytes >= HUGE_PAGE / 2;
    size_t offset = huge ? (size_t)(stagger++ % STAGGER_COUNT) * STAGGER_STEP : 0;
    size_t total = class_bytes + offset + 2 * LINE;
    size_t unit = total >= HUGE_PAGE ? HUGE_PAGE : LINE;
    if (total > SIZE_MAX / 2) return NULL;
    total = (total + unit - 1) / unit * unit;
    char *base = system_get(total);
    if (!base) {
        trim_locked();
        base = system_get(total);
    }
    if (!base) return NULL;
    /* The header sits right below a line boundary, so the payload is aligned. */
    large_block *block = (large_block *)(base + offset + LINE) - 1;
    block->base = base;
    block->total = total;
    block->class_index = index;
    large_in_use += (int64_t)bytes;
    note_peak_locked();
    return block + 1;
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

void *ct__alloc(size_t bytes) {
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

void ct__free(void *memory, size_t bytes) {
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
    large_block *block = (large_block *)memory - 1;
    block->next = bins[block->class_index];
    bins[block->class_index] = block;
    large_in_use -= (int64_t)bytes;
    pthread_mutex_unlock(&lock);
}

void *ct__grow(void *memory, size_t old_bytes, size_t new_bytes) {
    void *larger = ct__alloc(new_bytes);
    if (!larger) return NULL;
    if (memory) memcpy(larger, memory, old_bytes < new_bytes ? old_bytes : new_bytes);
    ct__free(memory, old_bytes);
    return larger;
}

void ct__live_add(int64_t by) {
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

ct_memory ct_memory_stats(void) {
    pthread_mutex_lock(&lock);
    note_peak_locked();
    ct_memory stats = {.in_use = large_in_use + retired_in_use,
                       .peak = peak,
                       .reserved = reserved,
                       .requests = large_requests + retired_requests,
                       .from_host = from_host};
    for (thread_cache *c = caches; c; c = c->next) {
        stats.in_use += atomic_load_explicit(&c->in_use, memory_order_relaxed);
        stats.requests += atomic_load_explicit(&c->requests, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return stats;
}

void ct_memory_reset_peak(void) {
    pthread_mutex_lock(&lock);
    peak = 0;
    note_peak_locked();
    pthread_mutex_unlock(&lock);
}

void ct_memory_trim(void) {
    pthread_mutex_lock(&lock);
    trim_locked();
    pthread_mutex_unlock(&lock);
}

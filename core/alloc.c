/* The caching allocator. Small blocks (up to 2 KiB, in steps of 64 bytes) come from free lists of the thread, so that a
 * tensor of four elements costs nanoseconds. Larger ones are pieces of segments: split when they are taken, joined with
 * their neighbours when they come back, so that memory that one shape has used serves another. Fresh memory is the dearest
 * thing a kernel can ask for (page faults), so segments are kept, and large ones sit on huge pages. */
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
    SLAB = 256 << 10,  /* small blocks are carved from slabs of this size */
    SPILL = 128 << 10, /* bytes of one small class that a thread keeps to itself */
    BINS = 48 * 8,     /* of free pieces: eight sizes to an octave */
    BIN_LOOK = 16,     /* pieces of a bin that are looked at for one that fits */
    SEGMENT_LEAST = 1 << 20,
    SEGMENT_MOST = 64 << 20, /* unless one piece is larger */
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    STAGGER_FROM = 1 << 20, /* arrays a power of two apart fight for the same cache sets, so from this size on */
    STAGGER = 2 * LINE,     /* they are this much further apart */
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

/* The head of a piece of a segment. Pieces follow one another in memory, and no two free ones are neighbours. */
typedef struct piece {
    size_t size;                /* with this head */
    struct piece *before;       /* the one in front of it in memory; NULL for the first of a segment */
    struct piece *next, **link; /* in its bin, while it is free */
    bool free, last;            /* last of its segment */
} piece;
_Static_assert(sizeof(piece) <= LINE, "the head fits one line");

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
static piece *bins[BINS];
static int64_t retired_in_use, retired_requests, retired_live; /* counts of threads that ended */
static int64_t large_in_use, large_requests, reserved, peak, from_host;
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

/* ---- Pieces of segments ---- */

/* The bin of a free piece: every piece in bin (8 + step) * 2^shift is at least that large. */
static int bin_of(size_t size) {
    const int shift = 60 - __builtin_clzll(size); /* size is at least a line, so its top four bits are 8..15 */
    const int bin = shift * 8 + (int)((size >> shift) - 8);
    return bin < BINS ? bin : BINS - 1;
}

static void bin_put(piece *p) {
    piece **head = &bins[bin_of(p->size)];
    p->free = true;
    p->next = *head;
    p->link = head;
    if (*head) (*head)->link = &p->next;
    *head = p;
}

static void bin_take(piece *p) {
    p->free = false;
    *p->link = p->next;
    if (p->next) p->next->link = p->link;
}

static piece *after(const piece *p) { return p->last ? NULL : (piece *)((char *)p + p->size); }

/* The part of p behind size bytes becomes a free piece, if it is worth one. */
static void split(piece *p, size_t size) {
    if (p->size - size < SMALL_MAX + LINE) return;
    piece *rest = (piece *)((char *)p + size), *behind = after(p);
    *rest = (piece){.size = p->size - size, .before = p, .last = p->last};
    if (behind) behind->before = rest;
    p->size = size;
    p->last = false;
    bin_put(rest);
}

/* p takes over the piece behind it, which is in no bin. */
static void join(piece *p) {
    const piece *gone = after(p);
    p->size += gone->size;
    p->last = gone->last;
    if (!p->last) after(p)->before = p;
}

static void trim_locked(void) {
    for (int i = 0; i < BINS; i++) {
        for (piece *p = bins[i], *next; p; p = next) {
            next = p->next;
            if (p->before || !p->last) continue;
            bin_take(p);
            system_return(p, p->size);
        }
    }
}

static void note_peak_locked(void) {
    int64_t now = large_in_use + retired_in_use;
    for (thread_cache *c = caches; c; c = c->next) now += atomic_load_explicit(&c->in_use, memory_order_relaxed);
    if (now > peak) peak = now;
}

/* The smallest that fits among the first of the bin that may have one, else any of the next larger bin. */
static piece *find_piece(size_t size) {
    int bin = bin_of(size), looked = 0;
    piece *best = NULL;
    for (piece *p = bins[bin]; p && looked < BIN_LOOK; p = p->next, looked++)
        if (p->size >= size && (!best || p->size < best->size)) best = p;
    while (!best && ++bin < BINS) best = bins[bin];
    if (best) bin_take(best);
    return best;
}

static size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Segments grow with what is in use, so that a small program stays small and a large one asks rarely. */
static piece *new_segment(size_t size) {
    size_t usual = (size_t)reserved / 4, total;
    usual = usual < SEGMENT_LEAST ? SEGMENT_LEAST : usual > SEGMENT_MOST ? SEGMENT_MOST : usual;
    total = size > usual ? size : usual;
    total = whole(total, total >= HUGE_PAGE ? HUGE_PAGE : LINE);
    piece *p = system_get(total);
    if (!p) { /* memory is short: what lies unused goes back, and no more than needed is asked for */
        trim_locked();
        p = system_get(total = whole(size, PAGE));
    }
    if (p) *p = (piece){.size = total, .last = true};
    return p;
}

static void *large_get_locked(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    large_requests++;
    const size_t size = (bytes + 2 * LINE - 1) / LINE * LINE + (bytes >= STAGGER_FROM ? STAGGER : 0);
    piece *p = find_piece(size);
    if (!p) p = new_segment(size);
    if (!p) return NULL;
    split(p, size);
    large_in_use += (int64_t)bytes;
    note_peak_locked();
    return (char *)p + LINE;
}

static void large_return_locked(void *memory, size_t bytes) {
    piece *p = (piece *)(void *)((char *)memory - LINE), *behind = after(p);
    large_in_use -= (int64_t)bytes;
    if (behind && behind->free) {
        bin_take(behind);
        join(p);
    }
    if (p->before && p->before->free) {
        p = p->before;
        bin_take(p);
        join(p);
    }
    bin_put(p);
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

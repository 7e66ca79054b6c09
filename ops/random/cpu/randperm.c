/* randperm: the order of n random 64-bit keys, which are spread evenly over their range: a bucket sort in three jobs. Fixed chunks of
 * elements make their keys and count them by the upper bits; each chunk moves its own to the places that the buckets of those bits have for
 * it; each bucket, small enough for L1, is ordered on its own by a counting sort of the bits below, of one more than there are to number its
 * elements, then an insertion sort by what is left of the key and, should all 64 bits be equal, by place. The result is a function of the
 * keys alone. */
#include <string.h>

#include "backends/cpu/kernel.h"
#include "ops/random/cpu/philox/philox.h"

#include "gen/random.attrs.h"

enum {
    CHUNK = 16 * 1024,
    MOST_CHUNKS = 256,
    BUCKET_BITS = 10, /* a bucket has about so many elements, as a power of two, */
    MOST_BITS = 11,   /* unless there were more buckets than this power of two, */
    FULL_BITS = 15,   /* but never more elements than this power of two: what is counted in a bucket has 16 bits */
    CELLS_EACH = 1,   /* as a power of two: cells for each element of a bucket, few of which get more than one */
    LEAST_CELL_BITS = 2,
    MOST_CELL_BITS = 16,
};

/* The upper half of a key, and below it the element that it belongs to. */
typedef uint64_t entry;

typedef struct permutation {
    ct_random at;
    const ct_view *y;
    int64_t n, chunk, chunks;
    int bits, cell_bits; /* of keys: those that tell buckets apart, and below them the cells of one */
    bool in_y;           /* entries are ordered in the memory of y, whose elements are as large */
    entry *moved;        /* (n) by buckets */
    entry *ordered;      /* (n) */
    uint32_t *keys;      /* (n), in the memory of `ordered`, until they are moved */
    uint32_t *next;      /* (chunks, buckets): how many; then where the next goes; at last where they end */
    uint16_t *cells;     /* (workers, cells) */
} permutation;

static int64_t buckets_of(const permutation *p) { return (int64_t)1 << p->bits; }
static int64_t cells_of(const permutation *p) { return (int64_t)1 << p->cell_bits; }

static permutation permutation_of(const ct_call *call) {
    permutation p = {.at = call->random, .y = call->out[0], .n = call->out[0]->dims[0], .cell_bits = LEAST_CELL_BITS};
    p.chunk = ct__max64(ct__grain(CHUNK), (p.n + MOST_CHUNKS - 1) / MOST_CHUNKS);
    p.chunks = (p.n + p.chunk - 1) / p.chunk;
    while (p.n >> p.bits > 1 << (p.bits < MOST_BITS ? BUCKET_BITS : FULL_BITS)) p.bits++;
    while (p.cell_bits < MOST_CELL_BITS && p.n >> p.bits << CELLS_EACH > cells_of(&p)) p.cell_bits++;
    p.in_y = p.y->dtype == CT_I64 && p.y->strides[0] == 1;
    return p;
}

static size_t randperm_scratch(const ct_call *call) {
    const permutation p = permutation_of(call);
    return (p.in_y ? 1 : 2) * (size_t)p.n * sizeof(entry) + (size_t)(p.chunks * buckets_of(&p)) * sizeof *p.next +
           (size_t)(ct__threads() * cells_of(&p)) * sizeof *p.cells;
}

/* Bits `from` to `from + count - 1` of a key, its uppermost being bit 0. */
static inline uint32_t digit(uint32_t key, int from, int count) {
    return (uint32_t)((uint64_t)(key << from) >> (32 - count));
}

/* Element i has the words 2i and 2i + 1 of the call; the second is the upper half of its key. */
static void make_keys(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    enum { BLOCK = 256 };
    const permutation *p = ctx;
    uint32_t words[2 * BLOCK], *counts = p->next + chunk * buckets_of(p);
    memset(counts, 0, (size_t)buckets_of(p) * sizeof *counts);
    const int64_t end = ct__min64(p->n, (chunk + 1) * p->chunk);
    for (int64_t i = chunk * p->chunk; i < end;) {
        const int skip = (int)(i % 2),
                  m = (int)ct__min64(BLOCK - skip, end - i); /* two elements have one block of Philox */
        CT_ISA_FN(ct__philox_fill)(p->at, 2 * (uint64_t)(i - skip), 2 * (m + skip), words);
        for (int k = 0; k < m; k++) {
            const uint32_t key = words[2 * (k + skip) + 1];
            p->keys[i + k] = key;
            counts[digit(key, 0, p->bits)]++;
        }
        i += m;
    }
}

/* From how many elements each chunk has of each bucket to where they go: by buckets, and within one by chunks. */
static void sum_up(const permutation *p) {
    enum { SOME = 1024 };
    const int64_t buckets = buckets_of(p);
    uint32_t sum = 0;
    for (int64_t first = 0; first < buckets; first += SOME) {
        const int64_t end = ct__min64(first + SOME, buckets);
        uint32_t start[SOME] = {0};
        for (int64_t c = 0; c < p->chunks; c++)
            for (int64_t b = first; b < end; b++) start[b - first] += p->next[c * buckets + b];
        for (int64_t b = first; b < end; b++) {
            const uint32_t count = start[b - first];
            start[b - first] = sum;
            sum += count;
        }
        for (int64_t c = 0; c < p->chunks; c++)
            for (int64_t b = first; b < end; b++) {
                const uint32_t count = p->next[c * buckets + b];
                p->next[c * buckets + b] = start[b - first];
                start[b - first] += count;
            }
    }
}

static void move_keys(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const permutation *p = ctx;
    const int bits = p->bits;
    uint32_t *next = p->next + chunk * buckets_of(p);
    const int64_t end = ct__min64(p->n, (chunk + 1) * p->chunk);
    for (int64_t i = chunk * p->chunk; i < end; i++)
        p->moved[next[digit(p->keys[i], 0, bits)]++] = (entry)p->keys[i] << 32 | (entry)i;
}

/* Orders entries of which each is at most a few places from its own. The exchange of neighbors, nearly always all there is to do, is free of
 * branches: whether they are in order is a coin's toss. */
static void insertion_sort(entry *e, int64_t n) {
    entry last = e[0]; /* the greatest so far */
    for (int64_t i = 1; i < n; i++) {
        const entry less = last < e[i] ? last : e[i];
        last = last < e[i] ? e[i] : last;
        int64_t k = i - 1;
        for (; k > 0 && e[k - 1] > less; k--) e[k] = e[k - 1];
        e[k] = less;
    }
    e[n - 1] = last;
}

static uint32_t low_key(ct_random at, entry e) {
    const uint32_t place = (uint32_t)e;
    uint32_t words[4];
    ct__philox(at, place / 2, words);
    return words[2 * (place % 2)];
}

/* Orders those whose upper halves are equal by the lower ones. Each is looked up again: in 2^32 pairs there is one. */
static void settle_equal(ct_random at, entry *e, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        if ((e[i] ^ e[i - 1]) >> 32) continue;
        const entry moved = e[i];
        const uint32_t low = low_key(at, moved);
        int64_t k = i;
        for (; k > 0 && (e[k - 1] ^ moved) >> 32 == 0 && low_key(at, e[k - 1]) > low; k--) e[k] = e[k - 1];
        e[k] = moved;
    }
}

static bool has_equal(const entry *e, int64_t n) {
    uint64_t equal = 0;
    for (int64_t i = 1; i < n; i++) equal |= (e[i] ^ e[i - 1]) >> 32 == 0;
    return equal;
}

/* From how many entries there are in each cell to where its first goes; n is a multiple of four. Four counts are a word: times 1 in each place it
 * has their sums. Compilers make one load and one store of it. */
static void start_cells(uint16_t *cells /* (n) */, int64_t n) {
    const uint64_t ones = 0x0001000100010001u;
    uint64_t before = 0;
    for (uint16_t *c = cells; c < cells + n; c += 4) {
        const uint64_t counts = c[0] | (uint64_t)c[1] << 16 | (uint64_t)c[2] << 32 | (uint64_t)c[3] << 48;
        const uint64_t sums = counts * ones, starts = before * ones + (sums << 16);
        c[0] = (uint16_t)starts, c[1] = (uint16_t)(starts >> 16);
        c[2] = (uint16_t)(starts >> 32), c[3] = (uint16_t)(starts >> 48);
        before += sums >> 48;
    }
}

static void order_bucket(void *ctx, int64_t bucket, int worker) {
    const permutation *p = ctx;
    const int bits = p->bits, cell_bits = p->cell_bits;
    const int64_t n_cells = cells_of(p);
    const uint32_t *ends = p->next + (p->chunks - 1) * buckets_of(p); /* as the last chunk has left them */
    const int64_t start = bucket ? ends[bucket - 1] : 0, count = ends[bucket] - start;
    const entry *from = p->moved + start;
    entry *to = p->ordered + start;
    uint16_t *cells = p->cells + worker * n_cells;
    if (count == 0) return;
    memset(cells, 0, (size_t)n_cells * sizeof *cells);
    if (count <= UINT16_MAX) {
        for (int64_t i = 0; i < count; i++) {
            cells[digit((uint32_t)(from[i] >> 32), bits, cell_bits)]++;
            __builtin_prefetch(to + i, 1); /* soon written in random order */
        }
        start_cells(cells, n_cells);
        for (int64_t i = 0; i < count; i++) to[cells[digit((uint32_t)(from[i] >> 32), bits, cell_bits)]++] = from[i];
    } else {
        memcpy(to, from, (size_t)count * sizeof *to); /* more than twice as many as fall into a bucket: hardly ever */
    }
    insertion_sort(to, count);
    if (has_equal(to, count)) settle_equal(p->at, to, count);
    const int64_t step = p->y->strides[0];
    if (p->in_y) {
        for (int64_t i = 0; i < count; i++) to[i] &= UINT32_MAX;
    } else if (p->y->dtype == CT_I64) {
        int64_t *y = CT_AT(int64_t, p->y) + start * step;
        for (int64_t i = 0; i < count; i++) y[i * step] = (uint32_t)to[i];
    } else {
        int32_t *y = CT_AT(int32_t, p->y) + start * step;
        for (int64_t i = 0; i < count; i++) y[i * step] = (int32_t)(uint32_t)to[i];
    }
}

static bool run_randperm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    permutation p = permutation_of(call);
    if (p.n == 0) return true;
    p.moved = ct__scratch(call);
    p.ordered = p.in_y ? CT_AT(entry, p.y) : p.moved + p.n;
    p.keys = (uint32_t *)(void *)p.ordered;
    p.next = (uint32_t *)(void *)(p.moved + (p.in_y ? 1 : 2) * p.n);
    p.cells = (uint16_t *)(void *)(p.next + p.chunks * buckets_of(&p));
    ct__parallel(p.chunks, make_keys, &p);
    sum_up(&p);
    ct__parallel(p.chunks, move_keys, &p);
    ct__parallel(buckets_of(&p), order_bucket, &p);
    return true;
}

CT_KERNELS(random_randperm) = {
    CT_CANDIDATES(randperm, {"radix_sort", NULL, randperm_scratch, run_randperm}),
    {0},
};

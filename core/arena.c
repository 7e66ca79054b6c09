/* Blocks of parts of memory: best fit among the free ones, found by bins of their sizes. */
#include "core/arena.h"

enum { LOOK = 16, RECORDS = 4096 }; /* blocks of a bin that are looked at for one that fits; bytes of new records */

/* ---- Books ---- */

static ct_block *record_new(ct_books *books) {
    if (!books->spare) {
        ct_block *fresh = books->get(RECORDS);
        for (size_t i = 0; fresh && i < RECORDS / sizeof *fresh; i++) {
            fresh[i].next = books->spare;
            books->spare = &fresh[i];
        }
    }
    ct_block *record = books->spare;
    if (record) books->spare = record->next;
    return record;
}

static void record_free(ct_books *books, ct_block *record) {
    record->next = books->spare;
    books->spare = record;
}

/* ---- Bins ---- */

/* The bin of a free block: every block in bin (8 + step) * 2^shift is at least that large. */
static int bin_of(size_t size) {
    const int shift = 60 - __builtin_clzll(size); /* size is at least 64, so its top four bits are 8..15 */
    const int bin = shift * 8 + (int)((size >> shift) - 8);
    return bin < CT__BINS ? bin : CT__BINS - 1;
}

static void bin_put(ct_block *block) {
    const int bin = bin_of(block->size);
    ct_block **head = &block->arena->bins[bin];
    block->arena->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    block->free = true;
    block->next = *head;
    block->link = head;
    if (*head) (*head)->link = &block->next;
    *head = block;
}

static void bin_take(ct_block *block) {
    const int bin = bin_of(block->size);
    block->free = false;
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
    if (!block->arena->bins[bin]) block->arena->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The first bin from here on that has blocks; CT__BINS: there is none. */
static int next_filled(const ct_arena *arena, int bin) {
    uint64_t word = bin < CT__BINS ? arena->filled[bin / 64] >> bin % 64 << bin % 64 : 0;
    int at = bin / 64;
    while (!word && ++at < CT__BINS / 64) word = arena->filled[at];
    return word ? at * 64 + __builtin_ctzll(word) : CT__BINS;
}

/* The smallest that fits among the first of the bin that may have one, else any of the next larger bin. */
static ct_block *find(ct_arena *arena, size_t size) {
    const int bin = bin_of(size);
    int looked = 0;
    ct_block *best = NULL;
    for (ct_block *block = arena->bins[bin]; block && looked < LOOK; block = block->next, looked++)
        if (block->size >= size && (!best || block->size < best->size)) best = block;
    const int larger = best ? CT__BINS : next_filled(arena, bin + 1);
    return larger < CT__BINS ? arena->bins[larger] : best;
}

/* ---- Blocks ---- */

/* What lies behind size bytes becomes a free block, if it is worth one and there is memory for its record. */
static void split(ct_block *block, size_t size) {
    ct_arena *arena = block->arena;
    if (block->size - size < arena->least) return;
    ct_block *rest = record_new(arena->books), *behind = block->after;
    if (!rest) return;
    *rest = (ct_block){.buffer = block->buffer,
                       .offset = block->offset + size,
                       .size = block->size - size,
                       .before = block,
                       .after = behind,
                       .arena = arena};
    if (behind) behind->before = rest;
    block->after = rest;
    block->size = size;
    bin_put(rest);
}

/* block takes over the one behind it, which is in no bin. */
static void join(ct_block *block) {
    ct_block *gone = block->after;
    block->size += gone->size;
    block->after = gone->after;
    if (block->after) block->after->before = block;
    record_free(block->arena->books, gone);
}

bool ct__arena_add(ct_arena *arena, void *buffer, size_t size) {
    ct_block *whole = record_new(arena->books);
    if (!whole) return false;
    *whole = (ct_block){.buffer = buffer, .size = size, .arena = arena};
    bin_put(whole);
    return true;
}

ct_block *ct__arena_take(ct_arena *arena, size_t size) {
    ct_block *block = find(arena, size);
    if (!block) return NULL;
    bin_take(block);
    split(block, size);
    return block;
}

void ct__arena_give(ct_block *block) {
    if (block->after && block->after->free) {
        bin_take(block->after);
        join(block);
    }
    if (block->before && block->before->free) {
        block = block->before;
        bin_take(block);
        join(block);
    }
    bin_put(block);
}

bool ct__arena_remove(ct_arena *arena, int *bin, void **buffer, size_t *size) {
    for (; (*bin = next_filled(arena, *bin)) < CT__BINS; ++*bin) {
        for (ct_block *block = arena->bins[*bin]; block; block = block->next) {
            if (block->before || block->after) continue;
            bin_take(block);
            *buffer = block->buffer;
            *size = block->size;
            record_free(arena->books, block);
            return true;
        }
    }
    return false;
}

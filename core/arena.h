/* An arena divides large parts of one device's memory into blocks: split when they are taken, joined with their neighbors when
 * they come back, so that memory that one shape has used serves another. It never touches the memory: its books are records
 * in host memory, and a buffer is opaque. Who owns an arena locks it. */
#ifndef COTANGENT_CORE_ARENA_H
#define COTANGENT_CORE_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ct_block ct_block;
typedef struct ct_arena ct_arena;

/* A block of a part. Blocks of a part are chained in the order in which they lie, and no two free ones are neighbors. */
struct ct_block {
    void *buffer; /* of the part */
    size_t offset, size;
    size_t bytes;             /* that were asked for; for whoever took it */
    ct_block *before, *after; /* neighbors in the part */
    ct_block *next, **link;   /* in its bin while it is free; next is its owner's while it is not */
    ct_arena *arena;          /* that it goes back to */
    _Atomic uint64_t users;   /* streams that have used its content since it was last written, a bit each (stream.h) */
    _Atomic unsigned writer;  /* the stream that wrote it last: one of users */
    bool free;
};

/* Records of blocks, kept for reuse. get gives host memory for more of them, or NULL. */
typedef struct ct_books {
    ct_block *spare;
    void *(*get)(size_t bytes);
} ct_books;

enum { CT__BINS = 48 * 8 }; /* of free blocks: eight sizes to an octave */

struct ct_arena {
    ct_block *bins[CT__BINS];
    uint64_t filled[CT__BINS / 64]; /* which of them have blocks, a bit each */
    ct_books *books;
    size_t least;    /* a rest that is smaller is not worth a block of its own */
    unsigned stream; /* in whose order its free blocks may be used (stream.h); 0 on the CPU */
};

/* All sizes are multiples of what blocks are to be aligned to, and at least 64. */
bool ct__arena_add(ct_arena *arena, void *buffer, size_t size); /* a new part; false: no memory for the books */
ct_block *ct__arena_take(ct_arena *arena, size_t size);         /* of at least that size; NULL: there is none */
void ct__arena_give(ct_block *block);
/* Takes a part out that has no block in use; NULL: there is none. Where to start looking is kept in *bin, 0 at first. */
bool ct__arena_remove(ct_arena *arena, int *bin, void **buffer, size_t *size);

static inline size_t ct__whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

#endif

/* What the two halves of the loader share: making one batch (collate.c) and having them made in time (loader.c). */
#ifndef COTANGENT_DATA_LOADER_H
#define COTANGENT_DATA_LOADER_H

#include "data/data.h"

typedef struct ct__recipe {
    ct_dataset *dataset;
    ct_transform *transform; /* all of it, for batches; NULL: none */
    ct_transform *items;     /* what is done item by item */
    ct_transform *last;      /* part of transform: normalizes, done for the whole batch; NULL: none */
    uint64_t seed;
    bool raw, pad;
    bool once; /* no item comes twice in an epoch; otherwise random numbers depend on its place in the epoch, too */
    double pad_value;
    ct_device device;           /* where batches are brought */
    ct_stream *stream;          /* on which; the loader's own. NULL: they stay on the CPU */
    const _Atomic bool *cancel; /* when it turns true, the batch is not wanted any more */
} ct__recipe;

typedef struct ct__made {
    ct_tensor *field[CT_MAX_FIELDS]; /* kept */
    int64_t *index, *length;         /* room for a whole batch */
    int64_t n, first;                /* how many items, and the place of the first in the epoch */
    ct_code code;                    /* CT_OK, or why there is no batch */
    char op[64], text[1024];
} ct__made;

/* Fills made->field from made->index and made->n, on any thread; errors end up in it, not on the thread. */
void ct__make_batch(const ct__recipe *recipe, int64_t epoch, int64_t number, ct__made *made);
void ct__made_drop(ct__made *made);

#endif

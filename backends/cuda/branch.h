/* Parts of a call that do not depend on each other, side by side: while work is recorded, one of them goes to a second stream, which becomes a
 * branch of the graph. Otherwise they follow each other, since events would cost more than such small parts take. */
#ifndef COTANGENT_BACKENDS_CUDA_BRANCH_H
#define COTANGENT_BACKENDS_CUDA_BRANCH_H

#include "backends/cuda/cuda.h"

typedef struct ct_cuda_branch {
    ct_call call; /* what the branch is run with: as the call that it is part of, on its own stream */
    ct_stream stream;
    bool apart; /* there is a second stream */
} ct_cuda_branch;

/* It begins after all that the call has enqueued so far, and points into itself: it is not to be copied. The branch may not write what the
 * rest of the call reads or writes, scratch included. False after an error. */
bool ct_cuda_branch_begin(const ct_call *call, ct_cuda_branch *branch);
/* What the call enqueues from here on waits for the branch. False after an error. */
bool ct_cuda_branch_end(const ct_call *call, ct_cuda_branch *branch);
/* Whether two products of so many multiplications each are small enough to leave room for each other on the device: measured on an H200, where
 * 3e7 gain a quarter and 8e7 lose a little. */
static inline bool ct_cuda_leaves_room(double multiplications) { return multiplications < 5e7; }

/* ---- Parts of a recording ---- */

/* What is enqueued on the stream from here on, by this thread, is the next part of what is recorded, and comes after n parts before it; from the first
 * one on, calls have branches. The context is current. False after an error. */
bool ct_cuda_parts_from(int index, CUstream stream, const int *parts, int n);
/* Before the recording ends: everything joins. The context is current. */
void ct_cuda_parts_end(int index, CUstream stream);
/* CT_BRANCHES: 0, recorded work has none; 1, it has them without being measured; else -1. */
int ct_cuda_branches_wanted(void);

#endif

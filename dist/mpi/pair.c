/* The sum of f32 over two ranks. MPIs' own begun all-reduce sends everything to one of the two, which adds it up and
 * sends everything back, and dist/ then goes over the result once more to divide it. Here each rank adds up one half,
 * divides that in the same pass, and the halves are exchanged: half as much on the longer way, and the work is shared.
 * The sum of two numbers has one order, so the bits are those of MPI. */
#include "dist/mpi/pair.h"

#include "dist/mpi/reduce.h"

enum { LEAST = 1 << 14 }; /* elements; shorter ones are a matter of messages, not of bytes */

typedef struct pair {
    bool busy, back; /* back: the halves that are added up are on their way */
    MPI_Comm comm;
    int peer, tag;
    const float *in;
    float *out;
    int64_t begin[2], count[2]; /* of the halves: this rank's, the other's */
    float scale;
    float *theirs; /* of this rank's half */
    int64_t room;
    MPI_Request requests[2];
    struct pair *next;
} pair;
static pair *pairs; /* kept for the next steps, which have the same */

/* A request is a pointer or an int of MPI's, or one of these: no pointer of a program has this bit. */
static const uint64_t mark = (uint64_t)1 << 63;

bool ct__pair_is(const ct__request *request) { return (request->handle & mark) != 0; }

bool ct__pair_takes(const ct__transfer *t, MPI_Comm comm) {
    int size = 0;
    return t->kind == CT__ALL_REDUCE && t->dtype == CT_F32 && t->count >= LEAST &&
           (t->reduction == CT_DIST_SUM || t->reduction == CT_DIST_MEAN) && MPI_Comm_size(comm, &size) == MPI_SUCCESS &&
           size == 2;
}

/* From MPI, which may have memory of a kind that it exchanges faster. NULL: there is none. */
static void *take(size_t bytes) {
    void *memory = NULL;
    return MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : NULL;
}

static pair *new_pair(void) {
    pair *p = take(sizeof *p);
    if (!p) return NULL;
    *p = (pair){.next = pairs};
    return pairs = p;
}

static pair *find_room(int64_t count) {
    pair *found = NULL;
    for (pair *p = pairs; p; p = p->next) { /* the least that is enough, else the largest that is there */
        const bool better =
            !found || (found->room < count ? p->room > found->room : p->room >= count && p->room < found->room);
        if (!p->busy && better) found = p;
    }
    if (!found) found = new_pair();
    if (!found || found->room >= count) return found;
    if (found->theirs) MPI_Free_mem(found->theirs);
    found->theirs = take((size_t)count * sizeof *found->theirs);
    found->room = found->theirs ? count : 0;
    return found->theirs ? found : NULL;
}

static const char *exchange(pair *p, const float *mine, int64_t n, float *theirs, int64_t m, int tag) {
    const char *problem = ct__mpi_problem(MPI_Irecv(theirs, (int)m, MPI_FLOAT, p->peer, tag, p->comm, &p->requests[0]));
    if (problem) return problem;
    return ct__mpi_problem(MPI_Isend(mine, (int)n, MPI_FLOAT, p->peer, tag, p->comm, &p->requests[1]));
}

const char *ct__pair_start(ct__transfer *t, MPI_Comm comm, int tag, ct__request *request) {
    int rank = 0;
    const int64_t half = t->count / 2;
    MPI_Comm_rank(comm, &rank);
    pair *p = find_room(t->count - half);
    if (!p) return "there is no memory for the other rank's half";
    p->busy = true;
    p->back = false;
    p->comm = comm;
    p->peer = 1 - rank;
    p->tag = tag;
    p->in = t->in;
    p->out = t->out;
    p->scale = t->scale;
    for (int i = 0; i < 2; i++) {
        const bool second = (i == 0) == (rank == 1);
        p->begin[i] = second ? half : 0;
        p->count[i] = second ? t->count - half : half;
    }
    t->scale = 0;
    request->handle = mark | (uint64_t)(uintptr_t)p;
    return exchange(p, p->in + p->begin[1], p->count[1], p->theirs, p->count[0], tag);
}

/* out = (in + theirs) scale, of this rank's half. */
static void add(const pair *p) {
    typedef float four __attribute__((vector_size(16), aligned(4)));
    const float *a = p->in + p->begin[0], *b = p->theirs, scale = p->scale == 0 ? 1 : p->scale;
    float *y = p->out + p->begin[0];
    int64_t i = 0;
    for (; i + 16 <= p->count[0]; i += 16)
        for (int k = 0; k < 16; k += 4)
            *(four *)(y + i + k) = (*(const four *)(a + i + k) + *(const four *)(b + i + k)) * scale;
    for (; i < p->count[0]; i++) y[i] = (a[i] + b[i]) * scale;
}

const char *ct__pair_test(ct__request *request, bool *done) {
    pair *p = (pair *)(uintptr_t)(request->handle & ~mark);
    int sent = 0, received = 0;
    *done = false;
    const char *problem = ct__mpi_problem(MPI_Test(&p->requests[0], &received, MPI_STATUS_IGNORE));
    if (!problem) problem = ct__mpi_problem(MPI_Test(&p->requests[1], &sent, MPI_STATUS_IGNORE));
    if (problem || !received || !sent) return problem;
    if (p->back) {
        p->busy = false;
        *done = true;
        const MPI_Request none = MPI_REQUEST_NULL;
        ct__request_put(request, none);
        return NULL;
    }
    add(p);
    p->back = true;
    return exchange(p, p->out + p->begin[0], p->count[0], p->out + p->begin[1], p->count[1], p->tag + 1);
}

void ct__pair_close(void) {
    while (pairs) {
        pair *p = pairs;
        pairs = p->next;
        if (p->theirs) MPI_Free_mem(p->theirs);
        MPI_Free_mem(p);
    }
}

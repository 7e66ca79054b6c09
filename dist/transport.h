/* The contract between dist/ and the module that carries its data: one small shared object for each ABI of MPI,
 * found as backends' modules are. It links against MPI and against nothing of Cotangent. Every function that can
 * fail returns NULL, or what went wrong; none is called by two threads at once. Nothing waits but open, split and
 * close: the rest begins, and test tells when it is over. */
#ifndef COTANGENT_DIST_TRANSPORT_H
#define COTANGENT_DIST_TRANSPORT_H

#include <cotangent/dist.h>

#define CT__TRANSPORT_ENTRY "ct_dist_transport"
enum { CT__TRANSPORT_VERSION = 4, CT__MOST_GROUPS = 256 };

typedef enum ct__dist_kind {
    CT__ALL_REDUCE,
    CT__BROADCAST,
    CT__ALL_GATHER,
    CT__REDUCE_SCATTER,
    CT__ALL_TO_ALL,
    CT__BARRIER,
    CT__SEND,
    CT__RECEIVE,
    CT__SPLIT,
    CT__END,
    CT__KINDS
} ct__dist_kind;

/* Messages of one kind never meet those of another: each group has a communicator for each. */
typedef enum ct__lane { CT__CALLS, CT__DATA, CT__POINT, CT__TROUBLE, CT__LANES } ct__lane;

/* A collective, of kinds up to CT__BARRIER: count elements per block. A block is all of in and out, but for those of
 * all_gather's out, reduce_scatter's in and both of all_to_all, which hold one per rank. in may be out in an
 * all_reduce and a broadcast. A mean is a sum here. */
typedef struct ct__transfer {
    ct__dist_kind kind;
    ct_dist_reduction reduction;
    ct_dtype dtype;
    int64_t count;
    int root;
    const void *in;
    void *out;
    /* Of an f32 all_reduce, what dist/ multiplies the result by; 0: nothing. A module that does it itself sets it to 0. */
    float scale;
} ct__transfer;

typedef struct ct__request {
    uint64_t handle;
} ct__request;

typedef struct ct__transport {
    uint32_t size, version;
    bool (*running)(void); /* the program has initialized the engine itself */
    /* Joins the job; group 0 is that of all. any_thread: whether threads may call in turn. name: of the library and
     * its version. */
    const char *(*open)(int *rank, int *ranks, int *local_rank, int *local_ranks, bool *any_thread, char *name,
                        size_t room);
    /* A new group, its number, rank and size. */
    const char *(*split)(int group, int color, int key, int *made, int *rank, int *ranks);
    void (*release)(int group);
    const char *(*collective)(int group, ct__lane lane, ct__transfer *transfer, ct__request *request);
    const char *(*send)(int group, ct__lane lane, const void *data, size_t bytes, int to, int tag,
                        ct__request *request);
    const char *(*receive)(int group, ct__lane lane, void *data, size_t bytes, int from, int tag, ct__request *request);
    /* Whether a message lies there that nobody has received: from whom, or -1. */
    const char *(*probe)(int group, ct__lane lane, int tag, int *from);
    const char *(*test)(ct__request *request, bool *done);
    const char *(*close)(void);
} ct__transport;
typedef const ct__transport *(*ct__transport_entry)(void);

#endif

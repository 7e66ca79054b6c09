/* What the files of dist/ share: the job, its groups, and calls in flight. */
#ifndef COTANGENT_DIST_DIST_H
#define COTANGENT_DIST_DIST_H

#include <cotangent/dist.h>
#include <cotangent/op.h>

#include "dist/transport.h"

/* What a rank is about to do, as the others are told before any data moves. */
typedef struct ct__call_text {
    uint64_t sequence; /* of the group's calls */
    int32_t kind, reduction, dtype, root;
    int32_t ndim, rank; /* the rank of the job that says this; it is not compared */
    int64_t dims[CT_MAX_DIMS];
    char name[88]; /* of a parameter; "" where there is none */
} ct__call_text;

typedef enum ct__stage { CT__AGREEING, CT__MOVING, CT__OVER, CT__FAILED } ct__stage;

/* What the engine writes to while calls are compared. Of a call that was given up it may do so at any time, when the missing rank comes after all
 * and the program goes on to use MPI: it is not freed then. */
typedef struct ct__comparison {
    uint64_t agreement[2];
    ct__call_text theirs; /* of a send or receive */
} ct__comparison;

/* A call in flight, in the list of its group. It lies where the caller has it until it is over or has failed. */
typedef struct ct__flight {
    ct_dist_group *group;
    ct__transfer transfer;
    ct__call_text text;
    ct__stage stage;
    ct__request request, other;
    ct__comparison *comparison; /* NULL: it is over */
    bool moving;                /* the engine has the memory of the data: it stays so where the call is given up */
    struct ct__flight *next;
} ct__flight;

struct ct_dist_group {
    int number; /* the transport's */
    int rank, size;
    int *ranks; /* of the job, by rank of the group */
    uint64_t sequence;
    uint64_t id; /* what attributes of ops know it by: never that of another */
    /* of CUDA tensors: NCCL's communicator, and the stream that it runs on; NULL: they go through the host */
    void *nccl;
    ct_stream *stream;
    bool asked; /* whether all ranks have NCCL */
    int device;
    unsigned char nccl_id[128]; /* of a group that NCCL alone has made */
    ct__flight *first, *last;
    struct ct_dist_group *next;
};

typedef struct ct__job {
    const ct__transport *transport; /* NULL: one rank */
    ct_dist_group world;
    int local_rank;
    double timeout;
    char engine[160];
    bool joined, ended;
    bool engine_is_hosts; /* the program has initialized MPI itself, and ends it */
    bool nccl_alone;      /* without MPI */
    bool progress;        /* a thread moves calls on */
    char broken[1024];    /* why nothing can be exchanged any more; "": it can */
    ct_dist_stats stats;
} ct__job;
extern ct__job ct__job_state;

double ct__seconds(void);

/* Has a call made that may wait for other ranks for ever (patience.c). False: it has not returned within the limit, and no other
 * will be made. The context has to be there until it returns: it is of static storage. */
typedef void (*ct__patient_call)(void *context);
bool ct__patiently(ct__patient_call call, void *context, double seconds);

/* The thread that moves calls on (progress.c), and the lock of all use of the engine, which its holder may take
 * again. */
void ct__lock(void);
bool ct__try_lock(void);
void ct__unlock(void);
void ct__progress_start(void);
void ct__progress_stop(void);
bool ct__progress_runs(void);
void ct__progress_begun(void);         /* a call is on its way */
void ct__progress_waits(bool waiting); /* the program polls by itself, or no longer */

/* Who started this process, by the environment: the engine's name, or NULL; ranks: how many there are, where that is
 * told. */
const char *ct__launcher(int *ranks, const char **who);

/* The group itself, or that of all; NULL with an error where it is no group any more. */
ct_dist_group *ct__group(ct_dist_group *group, const char *op);
ct_dist_group *ct__group_by_id(uint64_t id, const char *op);

/* "dist_all_reduce" */
const char *ct__kind_name(ct__dist_kind kind);

/* Begins a call. shape and name are what the others compare; the tensors' memory is the host's. False after an
 * error. */
bool ct__flight_begin(ct__flight *flight, ct_dist_group *group, const ct__transfer *transfer, ct_dims shape,
                      const char *name);
bool ct__flights_queued(void);      /* whether one has still to be begun */
void ct__flights_fail_queued(void); /* nothing can be exchanged any more: those will not be begun */
/* Moves every call of the job on as far as it goes. False after an error, which every later call has as well. */
bool ct__flights_move(void);
ct__stage ct__flight_stage(const ct__flight *flight); /* while it may be moved by another thread */
/* Until it is over, or the time limit. */
bool ct__flight_wait(ct__flight *flight);

/* A call as a text: "all_reduce (sum) of 'fc.weight', f32[3,4]". */
void ct__call_describe(const ct__call_text *text, char *out, size_t room);
/* Ranks disagree about the call: asks all what they are about to do, and makes a text of it. Always false. */
bool ct__fail_disagreement(ct__flight *flight);
/* The time limit is over, or another rank has said so: finds out which ranks do not answer. Always false. */
bool ct__fail_missing(ct__flight *flight, bool told);
bool ct__trouble_heard(void); /* another rank has run into its time limit */
bool ct__fail_engine(const ct__flight *flight, const char *problem);
bool ct__break(const char *op, ct_code code, const char *text); /* nothing can be exchanged from now on. Always false */

/* The ops, registered when they are first needed. work: a call that is over already, whose result is taken. */
typedef struct ct__dist_attrs {
    int64_t group, reduction, root, work;
} ct__dist_attrs;
ct_tensor *ct__dist_apply(ct__dist_kind kind, ct_tensor *x, ct_dist_reduction reduction, int root, ct_dist_group *group,
                          ct_dist_work *work);
/* By NCCL alone: a receive gives what arrives, of the shape of x and on the device; a send an empty tensor. */
ct_tensor *ct__dist_message(ct__dist_kind kind, ct_tensor *x, int peer, ct_dist_group *group);
/* The shape of a result. False where x does not fit, with the reason in why. */
bool ct__dist_result(ct__dist_kind kind, ct_dtype dtype, ct_dist_reduction reduction, int root, int size, ct_dims shape,
                     ct_dims *result, char *why, size_t room);
/* What a call of that many elements moves: a mean is a sum, which the caller divides. */
ct__transfer ct__transfer_of(ct__dist_kind kind, ct_dist_reduction reduction, ct_dtype dtype, int root,
                             int64_t elements, int size);

/* The result of a call that has begun, in the host's memory; NULL with an error where there is no such work. */
ct_tensor *ct__work_result(int64_t id);

/* As ct_dist_..._start, under a name that ranks compare and errors tell; in_place: the result may be where x is; scale:
 * that of the transfer. */
ct_dist_work *ct__start(ct__dist_kind kind, ct_tensor *x, ct_dist_reduction reduction, int root, ct_dist_group *group,
                        const char *name, bool in_place, float scale);

struct ct_dist_work {
    ct__flight flight;
    ct_tensor *x;      /* as it was given, kept */
    ct_tensor *staged; /* x in the host's memory, dense, kept */
    ct_tensor *result; /* in the host's memory, kept; NULL of a send and a barrier */
    bool waited;
    bool enqueued; /* on a device: the result is there, and whoever uses it waits on the device */
    uint64_t id;
    struct ct_dist_work *next, *later; /* later: the next message that has begun, by NCCL alone */
};

#endif

/* Training in several processes: ranks, groups of them, collectives on tensors, and data parallelism. The work is done
 * by the engines that clusters have, MPI for processes and NCCL for NVIDIA devices, which are opened when they are
 * first needed:
 *
 *     ct_dist_init();                                 // mpirun -n 4 ./program, or srun; alone it is one rank of one
 *     ct_tensor *sum = ct_dist_all_reduce(x, CT_DIST_SUM, NULL);
 *     ct_dist_end();
 *
 * A collective is called by all ranks of its group, in the same order, with tensors of the same shape and dtype. What
 * each rank is about to do is compared before any data moves: a rank that calls something else, or with another shape,
 * ends the call on every rank with a text that names the ranks, the calls and the tensors. A rank that does not come
 * within the time limit (CT_DIST_TIMEOUT) ends it too. After such an error nothing more can be exchanged: the program
 * says why and ends, and its launcher ends the others.
 *
 * Tensors may be of any dtype and on any device; those of CUDA go by NCCL where it is there, others through the host's
 * memory. Gradients: a scalar that is differentiated is taken to be one rank's part of a sum over all ranks, so
 * backward of a collective is a collective, and all ranks of the group have to run it.
 *
 * Threads: the functions here are for one thread of a process at a time. With MPI one thread of the library's own
 * moves what has begun. */
#ifndef COTANGENT_DIST_H
#define COTANGENT_DIST_H

#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The job --------------------------------------------------------------------------------------- */

typedef struct ct_dist_options {
    size_t size;
    /* Who carries the data: "openmpi", "mpich" (and what has its ABI), "nccl" (without MPI, by torchrun's, srun's or
     * mpirun's variables and MASTER_ADDR, MASTER_PORT; every rank has a CUDA device), or "none": one rank. NULL: CT_DIST, and without it whoever started this process, by the variables that
     * mpirun, srun and torchrun set. */
    const char *engine;
    double
        timeout; /* seconds that a rank waits for the others in a call, and to join: CT_DIST_TIMEOUT, and without it 300 */
    /* No thread that moves calls on while the program computes: they move when it calls something here. Also
     * CT_DIST_PROGRESS=0 */
    bool no_progress;
} ct_dist_options;
/* Joins the job that this process was started in; one that was started alone is rank 0 of 1, and needs no engine. A
 * program that has initialized MPI itself stays its owner. A second call does nothing. Where the ranks of a machine
 * would have more threads together than it has processors, each takes its share (ct_set_threads), unless CT_THREADS
 * or the program has said how many. */
CT_API bool ct_dist_init_p(const ct_dist_options *options);
/* Leaves it, when all ranks have come here; after an error in a collective it does not wait for them. Nothing can be
 * exchanged afterwards. */
CT_API bool ct_dist_end(void);
CT_API int ct_dist_rank(void);           /* 0 before ct_dist_init */
CT_API int ct_dist_size(void);           /* of the job; 1 before ct_dist_init */
CT_API int ct_dist_local_rank(void);     /* among those on the same machine: which of its devices to take */
CT_API const char *ct_dist_engine(void); /* "Open MPI v4.1.4", "one process" */

/* What this rank has exchanged so far. */
typedef struct ct_dist_stats {
    size_t size;    /* sizeof(ct_dist_stats), set by the caller */
    int64_t calls;  /* of collectives, sends and receives */
    int64_t bytes;  /* that it gave to them */
    double seconds; /* that it waited for them */
} ct_dist_stats;
CT_API bool ct_dist_get_stats(ct_dist_stats *stats);

/* ---- Groups ---------------------------------------------------------------------------------------- */

/* Some ranks of the job, numbered from 0. NULL is the group of all. */
typedef struct ct_dist_group ct_dist_group;
/* Called by all ranks of a group: those with the same color make a new one, in the order of key, then of rank. A
 * negative color takes part in none and gets a group of itself alone. NULL after an error. */
CT_API ct_dist_group *ct_dist_split(ct_dist_group *group, int color, int key);
CT_API void ct_dist_group_free(ct_dist_group *group); /* by all of its ranks */
CT_API int ct_dist_group_rank(const ct_dist_group *group);
CT_API int ct_dist_group_size(const ct_dist_group *group);

/* ---- Collectives ----------------------------------------------------------------------------------- */

typedef enum ct_dist_reduction {
    CT_DIST_SUM = 0,
    CT_DIST_MEAN, /* of floating dtypes */
    CT_DIST_MAX,  /* NaN where a rank has NaN */
    CT_DIST_MIN,
    CT_DIST_PRODUCT,
} ct_dist_reduction;

/* y = the sum (mean, ...) over ranks of x. f16 and bf16 are added in f32 and rounded at each rank. The gradient of
 * max and min is that of the first rank of equals. Bool has max (or) and min (and); f8 and complex64 have no
 * reductions. */
CT_API ct_tensor *ct_dist_all_reduce(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group);
/* y = x of rank root. The others' x gives shape and dtype, and gets a gradient of zeros. */
CT_API ct_tensor *ct_dist_broadcast(ct_tensor *x, int root, ct_dist_group *group);
/* x [n, ...] of all ranks, one after the other: [size n, ...]. Of scalars [size]. */
CT_API ct_tensor *ct_dist_all_gather(ct_tensor *x, ct_dist_group *group);
/* x [size n, ...], reduced; rank r gets [n, ...], the r-th part. Sum and mean have gradients. */
CT_API ct_tensor *ct_dist_reduce_scatter(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group);
/* x [size n, ...]: part s goes to rank s, whose part r it becomes. */
CT_API ct_tensor *ct_dist_all_to_all(ct_tensor *x, ct_dist_group *group);
CT_API bool ct_dist_barrier(ct_dist_group *group); /* returns when all have called it */
/* To one other rank of the group, and from one: as many receives as sends, in the same order. What arrives replaces
 * the elements of x, which is contiguous and of the shape and dtype that were sent. There is no gradient, so what is
 * sent must not be part of a graph. */
CT_API bool ct_dist_send(ct_tensor *x, int to, ct_dist_group *group);
CT_API bool ct_dist_receive(ct_tensor *x, int from, ct_dist_group *group);

/* ---- The same without waiting ---------------------------------------------------------------------- */

/* A call that has begun. x must not change before it is over. Calls that have begun count in the order of the
 * group's calls. By NCCL alone messages that have begun go when one of them is waited for, all at once. */
typedef struct ct_dist_work ct_dist_work;
CT_API ct_dist_work *ct_dist_all_reduce_start(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_broadcast_start(ct_tensor *x, int root, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_all_gather_start(ct_tensor *x, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_reduce_scatter_start(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_all_to_all_start(ct_tensor *x, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_barrier_start(ct_dist_group *group);
CT_API ct_dist_work *ct_dist_send_start(ct_tensor *x, int to, ct_dist_group *group);
CT_API ct_dist_work *ct_dist_receive_start(ct_tensor *x, int from, ct_dist_group *group);
/* Moves what can be moved, and says whether this one is over; false also after an error. */
CT_API bool ct_dist_done(ct_dist_work *work);
/* Waits. *result, if it is asked for, is what the call gives (of a receive x; of a send and a barrier NULL); it
 * belongs to the current scope and has the same gradient. */
CT_API bool ct_dist_wait(ct_dist_work *work, ct_tensor **result);
CT_API void ct_dist_work_free(ct_dist_work *work); /* waits first, if nobody did */

/* ---- Data parallelism ------------------------------------------------------------------------------ */

/* A network of which every rank has a copy and trains it on its own part of each batch. Gradients are averaged over
 * ranks in buckets, while backward goes on with the layers below:
 *
 *     ct_dist_parallel *parallel = ct_dist_data_parallel(net);
 *     for (...) { ct_backward(loss); ct_dist_reduce_gradients(parallel); ct_optim_step(opt); }
 *
 * Each rank's loss is the mean over its own items, of which all have as many; otherwise it is weighted by them. */
typedef struct ct_dist_parallel ct_dist_parallel;
typedef struct ct_dist_parallel_options {
    size_t size;
    ct_dist_group *group; /* NULL: all ranks */
    int64_t bucket;       /* bytes of gradients that go at once: 8 MiB; those of 512 KiB go by themselves, in place */
    bool bf16;            /* f32 gradients go as bf16: half the bytes, 8 bits of mantissa */
    /* The same bits with any number of ranks that divides this, a power of two: see ct_dist_shard. 0: not so */
    int shards;
} ct_dist_parallel_options;
/* Parameters and buffers of rank 0 become those of all; ranks whose networks differ are told which parameter it is. net
 * is held. What is sharded (below) is left to itself. Parameters must not be replaced afterwards (moved, converted, frozen or not). Every pass that reaches
 * parameters counts, also that of a ct_grad for them: ct_dist_set_sync keeps out those that are not meant. */
CT_API ct_dist_parallel *ct_dist_data_parallel_p(ct_module *net, const ct_dist_parallel_options *options);
CT_API void ct_dist_parallel_free(ct_dist_parallel *parallel);
/* Once after the last backward before a step, by all ranks: ends what backward has begun. A parameter that some
 * ranks have not used counts as zeros there; one that none has used has no gradient, as ever. */
CT_API bool ct_dist_reduce_gradients(ct_dist_parallel *parallel);
/* false: backward only adds up gradients on its own rank, until it is true again and a pass was made (gradient
 * accumulation). Returns what it was. */
CT_API bool ct_dist_set_sync(ct_dist_parallel *parallel, bool sync);
/* Parameters and buffers of rank 0 on all ranks: of the running statistics of batch norm each rank has its own. */
CT_API bool ct_dist_broadcast_network(ct_dist_parallel *parallel);

/* The same bits whatever the number of ranks. The batch of a step is cut into `shards` parts, of which rank r computes
 * shards / size, from r shards / size on, one after the other:
 *
 *     for (int s = ct_dist_first_shard(p); s < ct_dist_last_shard(p); s++) {
 *         ct_dist_shard(p, step, s);
 *         ... forward and backward of the mean loss of part s ...
 *     }
 *     ct_dist_reduce_gradients(p);
 *
 * ct_dist_shard sets the default random generator to a position of (step, shard), and buffers to what they were
 * before the step. Gradients, and buffers, become the mean over the shards, added up as a balanced binary tree in
 * their order, by one rank in the same way as by many. */
CT_API bool ct_dist_shard(ct_dist_parallel *parallel, int64_t step, int shard);
CT_API int ct_dist_first_shard(const ct_dist_parallel *parallel);
CT_API int ct_dist_last_shard(const ct_dist_parallel *parallel); /* one past it */

/* ---- Sharded parameters ---------------------------------------------------------------------------- */

/* A module whose learning is divided among ranks, in one of the stages of ZeRO.
 *
 * Stages 2 and 3 divide its parameters: it has one parameter, "shard", this rank's part of all of them, flat. A forward
 * pass gathers the whole, and backward gives each rank the mean over ranks of its part's gradient, so that gradients
 * and an optimizer's state are of that part too; nothing is left to reduce. Wrap every layer that has parameters by
 * itself: what is whole at one time is one layer. The optimizer has to be one that takes each element by itself (not
 * LARS or LAMB). Owns inner, whose parameters of rank 0 all begin with; its buffers stay in it.
 *
 * Stage 1 divides an optimizer's state alone, and with it the work of a step. The module is given back as it is, under
 * its own names: parameters and gradients are whole on every rank, and ct_dist_data_parallel, whose options all hold,
 * has to average the gradients. An optimizer that is made for it afterwards learns this rank's part of each parameter's
 * elements, has state (and f32 copies of half types) for these alone, and ct_optim_step, by all ranks, ends with the
 * whole parameters on all of them: to the bit those that it has without stages. Optimizers that need whole tensors
 * (LARS, LAMB, L-BFGS) refuse.
 *
 *     ct_dist_divide(net, .stage = 1);              // any network, all of it
 *     ct_dist_parallel *parallel = ct_dist_data_parallel(net);
 *     ct_optim *opt = ct_adamw(net, .lr = 1e-3);
 *     for (...) { ct_backward(loss); ct_dist_reduce_gradients(parallel); ct_optim_step(opt); } */
typedef struct ct_dist_sharded_options {
    size_t size;
    ct_dist_group *group; /* NULL: all ranks. It outlives the module */
    /* 3, or 0: what was gathered is let go after forward, and gathered again in backward; 2: it is kept in between; 1:
     * the optimizer's state alone */
    int stage;
} ct_dist_sharded_options;
CT_API ct_module *ct_dist_sharded_p(ct_module *inner, const ct_dist_sharded_options *options);
/* A copy of what is inside, whole again, on every rank; all ranks call it. To be saved, and to go on with another
 * number of ranks. Of a module that is whole, as in stage 1, it is a copy. */
CT_API ct_module *ct_dist_whole(ct_module *sharded);

/* ---- Tensor parallelism ---------------------------------------------------------------------------- */

/* Layers whose matrices are cut among the ranks of a group. All its ranks have the same input and compute the same
 * loss; gradients of what every rank has whole (input, biases behind a sum, norms) come out the same on all of them.
 * Weights begin as those of the layer that is not cut, of rank 0. A feed-forward block is
 *     ct_nn_sequential(ct_dist_column_linear(dim, 4 * dim, .activation = CT_ACT_GELU),
 *                      ct_dist_row_linear(4 * dim, dim)) */
typedef struct ct_dist_split_options {
    size_t size;
    ct_dist_group *group;     /* NULL: all ranks */
    bool no_bias;             /* not of embedding */
    ct_activation activation; /* of column_linear */
    bool causal;              /* of attention: position i sees 0 to i */
} ct_dist_split_options;
/* [..., in] to this rank's part of the results, [..., out / size]. [weight, bias] */
CT_API ct_module *ct_dist_column_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options);
/* This rank's part of the features, [..., in / size], to [..., out], the sum of all ranks'. [weight, bias] */
CT_API ct_module *ct_dist_row_linear_p(int64_t in, int64_t out, const ct_dist_split_options *options);
/* Rows of a table by integer, of which each rank has its part: [...] to [..., dim]. [weight] */
CT_API ct_module *ct_dist_embedding_p(int64_t count, int64_t dim, const ct_dist_split_options *options);
/* Multi-head self-attention on [..., T, dim], of which each rank has its heads. [in_proj_weight, in_proj_bias,
 * out_proj...] */
CT_API ct_module *ct_dist_attention_p(int64_t dim, int64_t heads, const ct_dist_split_options *options);

/* ---- A network as it is, divided ------------------------------------------------------------------- */

/* Divides a network of transformer layers (ct_nn_gpt, ct_nn_vit: one whose child "layers" holds them) in place:
 * attention and feed-forward of each layer are cut among the ranks of `tensor`, and what a rank then has of a layer is
 * sharded among those of `data`. The weights are those of rank 0. The rest of the network stays whole, for
 * ct_dist_data_parallel(net, .group = data) to reduce. In stage 1 that is all of it: what a rank has of the network is
 * learned in parts by the ranks of `data`, and without `tensor` the network may be any. Names in checkpoints
 * (ct_dist_run_save) stay those of the network as it was. */
typedef struct ct_dist_divide_options {
    size_t size;
    ct_dist_group *tensor; /* NULL: layers are not cut */
    ct_dist_group *data;   /* those with the same part of the layers; NULL: all ranks, where layers are not cut */
    int stage;             /* of ct_dist_sharded, 1, 2 or 3; 0: layers are not sharded */
} ct_dist_divide_options;
CT_API bool ct_dist_divide_p(ct_module *net, const ct_dist_divide_options *options);

/* ct_clip_grad_norm of the whole network, of which ranks have parts or all: by all ranks of the job. */
CT_API double ct_dist_clip_grad_norm(ct_module *net, double max_norm);

/* ---- Checkpoints ----------------------------------------------------------------------------------- */

/* ct_run_save and ct_run_load, by all ranks of the job. There is one file, which all ranks write in parallel, and it holds
 * the whole network, optimizer state and averages under the names of one process: what was saved by some ranks is loaded
 * by any number, divided in another way or not at all, and by ct_run_load and ct_load. Optimizers are those that take each
 * element by itself. The folder has to be one that all ranks see. When any rank fails, or dies, before all have written,
 * the file that was there before stays. */
CT_API bool ct_dist_run_save(const ct_run *run, const char *folder, const char *name);
CT_API bool ct_dist_run_load(ct_run *run, const char *path);

/* Batch norms of net, in training, take mean and variance over the items of all ranks of the group, and their
 * running statistics from these. All ranks run forward and backward together. */
CT_API bool ct_nn_sync_batch_norm(ct_module *net, ct_dist_group *group);

#ifdef __cplusplus
}
#endif

#include <cotangent/dist_options.h> /* ct_dist_init(.timeout = 60) and so on, over the functions ending in _p */

#endif

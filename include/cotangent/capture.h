/* Captured functions: a step that does the same work again and again, recorded once and run again without the program around it.
 *
 *     static bool step(void *context) {             // a training step as it is written anyway
 *         model *m = context;
 *         ct_tensor *loss = ct_cross_entropy_loss(ct_forward(m->net, m->x), m->target);
 *         return ct_assign(m->loss, ct_detach(loss)) && ct_backward(loss) && ct_optim_step(m->optim) && ct_optim_zero_grad(m->optim);
 *     }
 *     ct_graph *graph = ct_capture(step, &m, 0);
 *     while (next_batch(m.x, m.target)) ct_replay(graph);   // batches are written into the tensors that the step reads
 *
 * What is recorded are the calls of kernels, with the memory that they read and write. Passes leave out what is not needed and look for an
 * order that needs less memory; a replay gives the same bits as the function would, takes no memory and counts no references. Memory that only the function uses is planned: all of it
 * lies in one block that the graph keeps. Tensors from before the capture, and those that the function leaves behind (a gradient, what
 * it has kept), stay where they are: write inputs in place (ct_write, ct_assign), read results as always.
 *
 * What changes from step to step is data: random numbers go on where the generators stand, learning rates are brought over when they have
 * changed (ct_optim_set_lr and schedules as ever), clocks and loss scales lie in tensors. What the function computes on the host is frozen:
 * a number that it hands to an op, which way it went, the data of a ct_from_data. What cannot be captured is an error that says so, and
 * leaves no graph: a read of a value (ct_item, ct_read, ct_data), an op whose result has a shape that depends on values, a ct_write to a
 * tensor from before, a generator of random numbers that is set (ct_seed, ct_rng_set_position) or freed.
 *
 * Threads: a graph is for one thread at a time; graphs of their own may be captured and replayed by several at once. What effects and
 * guards point at lives as long as graphs that have them are replayed; it may go before the graph does. */
#ifndef COTANGENT_CAPTURE_H
#define COTANGENT_CAPTURE_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_graph ct_graph;

/* Flags of ct_capture. */
enum {
    CT_CAPTURE_WARM = 1, /* the function has run before: it is run once only */
    /* Parameters (tensors that require grad, and views of them) that the function does not change are not changed by anybody else as long as
     * the graph lives: what depends on them alone is computed when the graph is made. For inference. */
    CT_CAPTURE_FROZEN = 2,
    /* Time for memory: cheap results (elementwise ops, casts, dropout) that would be held for long are computed again where they are used.
     * The same bits. */
    CT_CAPTURE_RECOMPUTE = 4,
    /* Images between convolutions have their channels last in memory, whatever the network is written in: for devices whose convolutions are
     * faster so. Results are the same but for rounding. Checked replays, which compare bits, are without it. */
    CT_CAPTURE_LAYOUT = 8,
    /* Every replay is compared with the function (CT_CAPTURE=check in the environment does the same for all graphs): see below */
    CT_CAPTURE_CHECK = 1 << 8,
    CT_CAPTURE_SAVE = 1 << 9, /* what was recorded is kept as it is, so that it can be saved (cotangent/graph.h) */
    /* The function or its context does not live as long as the graph: CT_CAPTURE=check leaves this graph alone */
    CT_CAPTURE_UNCHECKED = 1 << 10,
};

/* Runs function(context) twice, and records it the second time: what only its first run makes (an optimizer's state, say) is then there.
 * So two steps have been taken when it returns; with CT_CAPTURE_WARM, one. NULL after an error.
 *
 * What cannot be captured ends the recording and not the function, which goes on to its end without a pending error: when ct_capture
 * returns NULL with CT_ERR_STATE, or CT_ERR_MEMORY where there is none for the records, both steps (with CT_CAPTURE_WARM, the one) have
 * been taken whole all the same. Parameters, the state of the optimizer, running statistics, random positions and the numbers of steps are
 * as after so many eager steps, and the program goes on without a graph once it has cleared the error. An error of the function itself (a
 * shape that does not fit) is what it would be without a capture. The function returns false after one. */
CT_API ct_graph *ct_capture(bool (*function)(void *context), void *context, unsigned flags);

/* Which passes improve the graphs that this thread captures from now on, as CT_PASSES says it for all threads, and before that: their names in
 * the order in which they run ("cse,dead"), names to leave out of those that run anyway ("-order"), or "none". NULL: as CT_PASSES says.
 * False after an error: there is no such pass. docs/capture.md tells what each of them does. */
CT_API bool ct_capture_passes(const char *passes);

/* Does the work of the function once more. After an error in the middle (an index out of range, on the CPU) the rest is not done. */
CT_API bool ct_replay(ct_graph *graph);

CT_API void ct_graph_free(ct_graph *graph); /* NULL does nothing */

/* With CT_CAPTURE_CHECK a replay runs the function (function and context have to live on), records it anew, and then replays from the same
 * state. What differs is an error that names the first record, with both values: a number or data that was frozen by mistake, another way
 * that the function went, a result with other bits. The state is then that after the function alone, as if it had been called in place
 * of the replay. What the function does on the host besides calls is not compared. It takes the time of both, and memory for what
 * the step changes; on devices it waits. */

/* A number of the program's own that changes from replay to replay: a tensor of no dimensions, of the dtype and on the device of `like`,
 * in the scope. Where nothing is captured it holds value; in a captured function it is a variable of the graph, value to begin with, and
 * what ct_graph_set said last in later replays. `ct_mul(x, ct_capture_variable("noise", m->noise, x))` in place of `ct_mul_s(x, m->noise)`.
 * The same name twice in a function is one variable. NULL after an error. */
CT_API ct_tensor *ct_capture_variable(const char *name, double value, const ct_tensor *like);
/* From the next replay on; all that were set are brought over in one copy before it, and on devices in the order of their stream: nothing
 * waits. A name that the graph does not know is an error. */
CT_API bool ct_graph_set(ct_graph *graph, const char *name, double value);

/* While a function is captured: effect(context) is called at this place in every replay. For what a program does on the host in each
 * step, such as counting. False after an error; true, and nothing is done, where nothing is captured. */
CT_API bool ct_capture_effect(bool (*effect)(void *context), void *context);
/* The same for an effect that only changes numbers which calls after it read, such as rates: a device that does the calls of a replay as one
 * has it before all of them, though not before effects that the function led to before it. It is called early once; where a function
 * leads to the same effect and context again, at its place. */
CT_API bool ct_capture_effect_early(bool (*effect)(void *context), void *context);
/* While a function is captured: the graph takes as given what *version stands for, and is good as long as that is what it was when the
 * capture ended. For what replaces tensors that a step uses, as loading the state of an optimizer does: it counts its version up. A
 * replay is then refused, before anything is done, with "why" (a text that lives as long as the graph). False after an error; true,
 * and nothing is done, where nothing is captured. */
CT_API bool ct_capture_guard(const int64_t *version, const char *why);
/* Whether all of these still are what they were, and neither ct_set_isa nor ct_set_grain has been called: kernels have their memory for
 * what these say. Of NULL false. */
CT_API bool ct_graph_is_good(const ct_graph *graph);
CT_API bool ct_is_capturing(void);
/* Whether something is captured and the memory of x was there before: a replay finds in it what is there by then. For functions that let
 * go of what they were given, which a replay would read again. */
CT_API bool ct_capture_is_outside(const ct_tensor *x);
/* Where something is captured: op says that `what` cannot be, "what cannot be captured: why" (NULL: it would be the same in every replay).
 * Nothing is recorded from here on, and ct_capture ends with that error. For functions that do on the host what a replay would
 * leave out. */
CT_API void ct_capture_refuse(const char *op, const char *what, const char *why);
/* What is done between the two is not recorded: what an effect will do in replays, the function itself does in between. */
CT_API bool ct_capture_suspend(void);          /* false where nothing is captured, or it is suspended already: */
CT_API void ct_capture_resume(bool suspended); /* this then does nothing */

/* Fills as much of info as its size says. */
typedef struct ct_graph_info {
    uint32_t size;         /* sizeof(ct_graph_info), set by the caller */
    int64_t records;       /* calls of kernels, and what else is done in a replay */
    int64_t planned_bytes; /* of the graph's own memory */
    int64_t needed_bytes;  /* the most that is in use of it at one time: no plan can do with less */
    int64_t kept_bytes;    /* of tensors that the function has left behind */
} ct_graph_info;
CT_API bool ct_graph_describe(const ct_graph *graph, ct_graph_info *info);

/* What a replay does, step by step, for programs that draw or count it: ct_graph_step from 0 on until it returns false, and of each step
 * ct_graph_operand in the same way, its inputs first. Neither is an error past the end. Texts live as long as the graph. */
typedef enum ct_graph_step_kind {
    CT_GRAPH_STEP_CALL,  /* of a kernel */
    CT_GRAPH_STEP_WRITE, /* of the host's: data that changes from replay to replay, or that kernels change */
    CT_GRAPH_STEP_EFFECT /* ct_capture_effect */
} ct_graph_step_kind;
typedef struct ct_graph_step_info {
    uint32_t size; /* sizeof(ct_graph_step_info), set by the caller */
    ct_graph_step_kind kind;
    const char *op, *kernel; /* NULL where no kernel is called */
    ct_device device;
    int inputs, outputs;   /* operands */
    int64_t scratch_bytes; /* that the kernel works in */
    bool random;           /* it has a position in a random stream */
    int parts;             /* calls that its kernel does as one; 0: it is one */
} ct_graph_step_info;
CT_API bool ct_graph_step(const ct_graph *graph, int64_t step, ct_graph_step_info *info);
/* The op of one of these calls; NULL past the last. */
CT_API const char *ct_graph_step_part(const ct_graph *graph, int64_t step, int part);

/* Where the memory of an operand comes from. */
typedef enum ct_graph_memory_kind {
    CT_GRAPH_MEMORY_PLANNED,  /* of the graph's own, in a replay */
    CT_GRAPH_MEMORY_KEPT,     /* a tensor from before the capture, or left behind by the function */
    CT_GRAPH_MEMORY_CONSTANT, /* of the graph's own, written when it was made */
    CT_GRAPH_MEMORY_NUMBER,   /* no memory: a number among the kernel's arguments */
    CT_GRAPH_MEMORY_NONE      /* an input that was not given, a result that nobody wants */
} ct_graph_memory_kind;
typedef struct ct_graph_operand_info {
    uint32_t size; /* sizeof(ct_graph_operand_info), set by the caller */
    ct_graph_memory_kind kind;
    int memory;           /* operands with the same number share memory; -1: it has none */
    int64_t memory_bytes; /* all of it */
    int64_t offset;       /* bytes from its beginning */
    bool reads, writes;   /* both where the kernel changes it */
    ct_dtype dtype;
    int ndim;
    int64_t dims[CT_MAX_DIMS], strides[CT_MAX_DIMS]; /* strides in elements */
    double number;
} ct_graph_operand_info;
CT_API bool ct_graph_operand(const ct_graph *graph, int64_t step, int operand, ct_graph_operand_info *info);

#ifdef __cplusplus
}
#endif
#endif

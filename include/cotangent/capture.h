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
 * What is recorded are the calls of kernels, with the memory that they read and write. A replay runs them in the same order: it gives the
 * same bits as the function would, takes no memory and counts no references. Memory that only the function uses is planned: all of it
 * lies in one block that the graph keeps. Tensors from before the capture, and those that the function leaves behind (a gradient, what
 * it has kept), stay where they are: write inputs in place (ct_write, ct_assign), read results as always.
 *
 * What changes from step to step is data: random numbers go on where the generators stand, learning rates are brought over when they have
 * changed (ct_optim_set_lr and schedules as ever), clocks and loss scales lie in tensors. What the function computes on the host is frozen:
 * a number that it hands to an op, which way it went, the data of a ct_from_data. What cannot be captured is an error that says so, and
 * leaves no graph: a read of a value (ct_item, ct_read, ct_data), an op whose result has a shape that depends on values, a ct_write to a
 * tensor from before.
 *
 * Threads: a graph is for one thread at a time; graphs of their own may be captured and replayed by several at once. */
#ifndef COTANGENT_CAPTURE_H
#define COTANGENT_CAPTURE_H

#include <cotangent.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_graph ct_graph;

enum { CT_CAPTURE_WARM = 1 /* the function has run before: it is run once only */ };

/* Runs function(context) twice, and records it the second time: what only its first run makes (an optimizer's state, say) is then there.
 * So two steps have been taken when it returns; with CT_CAPTURE_WARM, one. The function returns false after an error. NULL after one. */
CT_API ct_graph *ct_capture(bool (*function)(void *context), void *context, unsigned flags);

/* Does the work of the function once more. After an error in the middle (an index out of range, on the CPU) the rest is not done. */
CT_API bool ct_replay(ct_graph *graph);

CT_API void ct_graph_free(ct_graph *graph); /* NULL does nothing */

/* While a function is captured: effect(context) is called at this place in every replay. For what a program does on the host in each
 * step, such as counting. False after an error; true, and nothing is done, where nothing is captured. */
CT_API bool ct_capture_effect(bool (*effect)(void *context), void *context);
/* The same for an effect that only changes numbers which calls after it read, such as rates: a device that does the calls of a replay as one
 * has it before all of them. It is called early once; where a function leads to the same effect and context again, at its place. */
CT_API bool ct_capture_effect_early(bool (*effect)(void *context), void *context);
CT_API bool ct_is_capturing(void);
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

#ifdef __cplusplus
}
#endif
#endif

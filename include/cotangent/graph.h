/* Captured graphs in files: a network's forward pass with its weights, to be run by a program that knows nothing of the network; and what
 * such a file is made of, the records of a graph, for programs that draw or store them.
 *
 *     static bool forward(void *context) {          // what is captured: x and y are tensors of the program's
 *         model *m = context;
 *         return ct_assign(m->y, ct_forward(m->net, m->x)) != NULL;
 *     }
 *     ct_graph *graph = ct_capture(forward, &m, CT_CAPTURE_SAVE);      // in evaluation mode, under ct_no_grad
 *     ct_graph_name(graph, "x", m.x), ct_graph_name(graph, "y", m.y);
 *     ct_graph_save("digits.graph", graph);
 *
 *     ct_graph *graph = ct_graph_load("digits.graph", device);         // in another program
 *     ct_write(ct_graph_tensor(graph, "x"), pixels, sizeof pixels);
 *     ct_replay(graph);
 *     ct_read(ct_graph_tensor(graph, "y"), scores, sizeof scores);
 *
 * The file is of the safetensors kind, with a checksum: weights and constants by number, and the records as text. It holds ops, views,
 * options and numbers, not kernels: those are chosen anew where it is loaded, for that machine's instructions and the device that it is
 * loaded to, and passes and the memory plan run there. An op that this device has no kernel for is computed by others, as always.
 *
 * Threads: as in cotangent/capture.h. */
#ifndef COTANGENT_GRAPH_H
#define COTANGENT_GRAPH_H

#include <cotangent/capture.h>
#include <cotangent/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Names ----------------------------------------------------------------------------------------- */

/* Names a tensor that the graph reads or writes and that stays (inputs and results, not what lives only within a replay); the graph holds
 * it. A name is of letters, digits, dots and underscores, at most 63; one that was given already is an error. */
CT_API bool ct_graph_name(ct_graph *graph, const char *name, ct_tensor *x);
/* The tensor of that name, which the graph holds: no one drops it. NULL, with an error that lists the names, where there is none. */
CT_API ct_tensor *ct_graph_tensor(const ct_graph *graph, const char *name);
CT_API const char *ct_graph_name_at(const ct_graph *graph,
                                    int i); /* in the order in which they were given; NULL: no more */

/* ---- Files ----------------------------------------------------------------------------------------- */

/* Writes a graph that was captured with CT_CAPTURE_SAVE. Memory from before the capture, weights and inputs alike, is saved with what it
 * holds. What cannot be saved is an error that names the record: an effect on the host, a generator of the program's own, a transfer
 * between devices, memory that is seen as two dtypes or that only a part of is written by the host, a view with negative strides. */
CT_API bool ct_graph_save(const char *path, ct_graph *graph);
/* Reads one, with all it needs on the device (zero: the current one), and runs it once to capture it anew, on what its inputs held when it
 * was saved; what it changes is then as it was saved. Everything in the file is checked: names of ops, options, dtypes, shapes, strides,
 * places in memory and that nothing is read before it is written; what is wrong is refused with CT_ERR_IO and a text that names file and
 * record. NULL after an error. */
CT_API ct_graph *ct_graph_load(const char *path, ct_device device);

/* ---- Records --------------------------------------------------------------------------------------- */

typedef enum ct_graph_kind {
    CT_GRAPH_CALL = 0, /* of a kernel */
    CT_GRAPH_PUT,      /* the host's data into memory, at a place */
    CT_GRAPH_FILL,     /* an element, all over memory */
    CT_GRAPH_EFFECT,   /* a function on the host */
} ct_graph_kind;

/* A record as it was captured, before any pass. Pointers are good as long as the graph is. */
typedef struct ct_graph_record_info {
    uint32_t size; /* sizeof(ct_graph_record_info), set by the caller */
    ct_graph_kind kind;
    const ct_op *op; /* of a call, and what follows: */
    const void *attrs;
    int n_in, n_out;
    const ct_view *const *in;  /* NULL: it is not there */
    const ct_view *const *out; /* NULL: it is not asked for */
    const int *
        memory; /* of each input, then of each output: its number; -1: it is a number (the element is at in[i]->buffer) */
    bool random;          /* it draws from a generator: */
    bool own_generator;   /* one of the program's own, not the default one */
    bool positioned;      /* its position in the stream is among its attributes or data */
    int place;            /* of a put or fill: the memory */
    size_t offset, bytes; /* of a put: where in it, and how much; of a fill: bytes is the size of the element */
    const void *data;
} ct_graph_record_info;
/* False past the last, and of a graph that was captured without CT_CAPTURE_SAVE or CT_CAPTURE_CHECK; no error. */
CT_API bool ct_graph_record(const ct_graph *graph, int64_t i, ct_graph_record_info *info);

typedef struct ct_graph_memory_info {
    uint32_t size; /* sizeof(ct_graph_memory_info), set by the caller */
    size_t bytes;
    ct_device device;
    bool before;  /* it was there before the capture */
    bool stays;   /* it was, or the function has left it behind */
    bool written; /* by a call, or more than once by the host */
} ct_graph_memory_info;
CT_API bool ct_graph_memory(const ct_graph *graph, int memory, ct_graph_memory_info *info); /* false: there is none */
/* Memory that stays, as a tensor of one dimension, in the scope. NULL after an error. */
CT_API ct_tensor *ct_graph_memory_tensor(const ct_graph *graph, int memory, ct_dtype dtype);
/* Of a tensor that ct_graph_name has named: the number of its memory, and its view of it. False: there is none such. */
CT_API bool ct_graph_named(const ct_graph *graph, const char *name, int *memory, ct_view *view);

/* One attribute as ct_attrs_set takes it back to the same bits, cut to the room there is. False: it is an optional number that is not
 * set, or the current device; the text is then empty. */
CT_API bool ct_attrs_text(const ct_attr *attr, const void *attrs, char *text, size_t room);

#ifdef __cplusplus
}
#endif
#endif

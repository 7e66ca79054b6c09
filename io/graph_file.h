/* The form of a saved graph: a safetensors file whose text CT__GRAPH_TEXT describes the records, line by line, in words and numbers.
 *
 *     cotangent-graph 1
 *     memory 3                                how many parts of memory there are
 *     m 0 f32 12 given                        number, dtype, elements; given: tensor "memory.0" holds it; made: by a record below
 *     name x 0 0 2 3 4 4 1                    name, memory, then a view: offset, dimensions, sizes, strides
 *     call matmul 2 1                         op, inputs, outputs; for each of these a line:
 *     i 0 0 2 3 4 4 1                         memory and view
 *     n f32 0000003f                          a number, the bytes of its element
 *     -                                       it is not there
 *     o 2 0 2 3 5 5 1                         an output; if its memory is made here, all of it
 *     a axis 1                                an option, as ct_attrs_set takes it
 *     end                                     of the call
 *     copy 4 data.7                           memory is made as a copy of that tensor
 *     fill 5 data.8                           memory is made of its one element, again and again */
#ifndef COTANGENT_IO_GRAPH_FILE_H
#define COTANGENT_IO_GRAPH_FILE_H

#include <cotangent/graph.h>
#include <cotangent/io.h>

#define CT__GRAPH_TEXT "cotangent.graph"
enum { CT__GRAPH_VERSION = 1, CT__GRAPH_MOST = 1 << 20 /* parts of memory, and records */ };

bool ct__graph_to_state(const ct_graph *graph, ct_state *state); /* what a file will hold; false after an error */
/* A graph of what a file holds; path is for messages. NULL after an error. */
ct_graph *ct__graph_of_state(const ct_state *state, const char *path, ct_device device);

#endif

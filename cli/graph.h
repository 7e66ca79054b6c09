/* Drawings of a captured graph: boxes for what a replay does, in layers from top to bottom, and lines for the memory that goes from one to
 * the next. */
#ifndef COTANGENT_CLI_GRAPH_H
#define COTANGENT_CLI_GRAPH_H

#include <cotangent/capture.h>

#include "cli/train/buffer.h"

/* False after an error. title: what it is a step of. */
bool graph_draw_svg(const ct_graph *graph, const char *title, buffer *b);
bool graph_draw_dot(const ct_graph *graph, const char *title, buffer *b);

#endif

/* A captured graph as SVG or DOT. Which step reads what another wrote is found from the numbers of their memory; each step goes to the first
 * layer below all that it reads, unless that is full, and beside its neighbours there by the mean place of those. */
#include "cli/graph.h"

#include <cotangent/op.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ACROSS = 10, BOX_WIDTH = 150, BOX_HEIGHT = 34, STEP_X = 170, STEP_Y = 62, MARGIN = 40 };

typedef struct box {
    ct_graph_step_info step;
    char name[28];           /* of its op, or of those that it does as one, as far as there is room */
    char shape[96];          /* of its first result, or of what it changes */
    const char *style;       /* class of the box */
    int first_line, n_lines; /* that lead to it */
    int layer, column;
} box;

typedef struct line {
    int from, to;
} line;

typedef struct drawing {
    const ct_graph *graph;
    box *boxes;
    line *lines; /* in the order of the steps that they lead to */
    int n, n_lines, lines_room, layers;
} drawing;

static bool fail_memory(void) { return ct_fail(CT_ERR_MEMORY, NULL, "out of memory"); }

static bool operand_of(const drawing *d, int step, int i, ct_graph_operand_info *o) {
    o->size = sizeof *o;
    return ct_graph_operand(d->graph, step, i, o);
}

static void write_operand(const ct_graph_operand_info *o, char *text, size_t room) {
    if (o->kind == CT_GRAPH_MEMORY_NONE) {
        snprintf(text, room, "-");
        return;
    }
    if (o->kind == CT_GRAPH_MEMORY_NUMBER) {
        snprintf(text, room, "%g", o->number);
        return;
    }
    int n = snprintf(text, room, "%s[", ct_dtype_name(o->dtype));
    for (int i = 0; i < o->ndim && n < (int)room; i++)
        n += snprintf(text + n, room - (size_t)n, "%s%lld", i ? "," : "", (long long)o->dims[i]);
    if (n < (int)room) snprintf(text + n, room - (size_t)n, "]");
}

/* ---- What is drawn ---- */

static void write_name(const drawing *d, int step, box *b) {
    const char *part;
    size_t used = 0;
    if (!b->step.parts)
        snprintf(b->name, sizeof b->name, "%s",
                 b->step.op                             ? b->step.op
                 : b->step.kind == CT_GRAPH_STEP_EFFECT ? "effect"
                                                        : "write");
    for (int i = 0; i < b->step.parts && (part = ct_graph_step_part(d->graph, step, i)); i++) {
        if (used + strlen(part) + 5 >= sizeof b->name) {
            snprintf(b->name + used, sizeof b->name - used, " ...");
            break;
        }
        used += (size_t)snprintf(b->name + used, sizeof b->name - used, "%s%s", i ? " " : "", part);
    }
}

static const char *style_of(const drawing *d, int step, const ct_graph_step_info *info) {
    const ct_op *op = info->op ? ct_op_find(info->op) : NULL;
    ct_graph_operand_info o;
    if (info->kind == CT_GRAPH_STEP_EFFECT) return "effect";
    if (info->kind == CT_GRAPH_STEP_WRITE) return "write";
    for (int i = 0; operand_of(d, step, i, &o); i++)
        if (o.writes && o.kind == CT_GRAPH_MEMORY_KEPT) return "lasting";
    return info->parts || (op && (op->flags & CT_OP_ELEMENTWISE)) ? "elementwise" : "other";
}

static bool add_line(drawing *d, int from, int to) {
    if (from < 0 || from == to) return true;
    for (int i = d->n_lines - 1; i >= 0 && d->lines[i].to == to; i--)
        if (d->lines[i].from == from) return true;
    if (d->n_lines == d->lines_room) {
        const int more = 2 * d->lines_room + 256;
        line *larger = realloc(d->lines, (size_t)more * sizeof *larger);
        if (!larger) return fail_memory();
        d->lines = larger;
        d->lines_room = more;
    }
    d->lines[d->n_lines++] = (line){from, to};
    return true;
}

/* Lines from the last step that wrote what a step reads; `writer` has one for each memory. */
static bool find_lines(drawing *d, int *writer) {
    ct_graph_operand_info o;
    for (int k = 0; k < d->n; k++) {
        d->boxes[k].first_line = d->n_lines;
        for (int i = 0; operand_of(d, k, i, &o); i++)
            if (o.reads && o.memory >= 0 && !add_line(d, writer[o.memory], k)) return false;
        d->boxes[k].n_lines = d->n_lines - d->boxes[k].first_line;
        for (int i = 0; operand_of(d, k, i, &o); i++) {
            if (!o.writes) continue;
            writer[o.memory] = k;
            if (!d->boxes[k].shape[0]) write_operand(&o, d->boxes[k].shape, sizeof d->boxes[k].shape);
        }
    }
    return true;
}

static bool look(drawing *d) {
    ct_graph_info info = {.size = sizeof info};
    ct_graph_operand_info o;
    int memories = 0;
    if (!ct_graph_describe(d->graph, &info)) return false;
    d->n = (int)info.records;
    d->boxes = calloc((size_t)d->n + 1, sizeof *d->boxes);
    if (!d->boxes) return fail_memory();
    for (int k = 0; k < d->n; k++) {
        d->boxes[k].step.size = sizeof d->boxes[k].step;
        if (!ct_graph_step(d->graph, k, &d->boxes[k].step)) return false;
        write_name(d, k, &d->boxes[k]);
        d->boxes[k].style = style_of(d, k, &d->boxes[k].step);
        for (int i = 0; operand_of(d, k, i, &o); i++)
            if (o.memory >= memories) memories = o.memory + 1;
    }
    int *writer = malloc(((size_t)memories + 1) * sizeof *writer);
    if (!writer) return fail_memory();
    for (int i = 0; i < memories; i++) writer[i] = -1;
    const bool ok = find_lines(d, writer);
    free(writer);
    return ok;
}

static void close_drawing(drawing *d) {
    free(d->boxes);
    free(d->lines);
}

/* ---- Where it is drawn ---- */

static bool choose_layers(drawing *d) {
    int *filled = calloc((size_t)d->n + 1, sizeof *filled);
    if (!filled) return fail_memory();
    for (int k = 0; k < d->n; k++) {
        box *b = &d->boxes[k];
        for (int i = 0; i < b->n_lines; i++) {
            const int above = d->boxes[d->lines[b->first_line + i].from].layer;
            if (above >= b->layer) b->layer = above + 1;
        }
        while (filled[b->layer] == MOST_ACROSS) b->layer++;
        filled[b->layer]++;
        if (b->layer >= d->layers) d->layers = b->layer + 1;
    }
    free(filled);
    return true;
}

/* A box on its way to its place in a layer. */
typedef struct entry {
    int layer, step;
    double place; /* wished for: the mean column of what it reads */
} entry;

static int by_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static double wished_place(const drawing *d, const box *b) {
    double sum = 0;
    for (int i = 0; i < b->n_lines; i++) sum += d->boxes[d->lines[b->first_line + i].from].column;
    return b->n_lines ? sum / b->n_lines : MOST_ACROSS / 2.0;
}

/* Layer by layer: what a box reads lies above it and has its column already. */
static bool choose_columns(drawing *d) {
    entry *entries = calloc((size_t)d->n + 1, sizeof *entries);
    if (!entries) return fail_memory();
    for (int k = 0; k < d->n; k++) entries[k] = (entry){.layer = d->boxes[k].layer, .step = k};
    qsort(entries, (size_t)d->n, sizeof *entries, by_place);
    for (int begin = 0, end; begin < d->n; begin = end) {
        for (end = begin; end < d->n && entries[end].layer == entries[begin].layer; end++)
            entries[end].place = wished_place(d, &d->boxes[entries[end].step]);
        qsort(entries + begin, (size_t)(end - begin), sizeof *entries, by_place);
        const int first = (MOST_ACROSS - (end - begin)) / 2;
        for (int i = begin; i < end; i++) d->boxes[entries[i].step].column = first + i - begin;
    }
    free(entries);
    return true;
}

/* ---- SVG ---- */

static const char style_sheet[] =
    "text { font: 11px sans-serif; text-anchor: middle; fill: #222 } .title { font-size: 16px; text-anchor: start }\n"
    "rect { stroke: #555; rx: 5 } .elementwise { fill: #dcedc8 } .other { fill: #bbdefb } .lasting { fill: #ffe0b2 }\n"
    ".write { fill: #e1bee7 } .effect { fill: #ffcdd2 } path { fill: none; stroke: #777; stroke-opacity: 0.6 }\n"
    ".far { stroke-opacity: 0.2 }\n";

static double left_of(const box *b) { return MARGIN + b->column * STEP_X; }
static double top_of(const box *b) { return 2 * MARGIN + b->layer * STEP_Y; }

/* All that is known of a step, which is shown where the mouse points. */
static void describe(const drawing *d, int step, buffer *b) {
    const box *x = &d->boxes[step];
    ct_graph_operand_info o;
    char text[256];
    buffer_add(b, "%d: %s", step, x->step.op ? x->step.op : x->name);
    if (x->step.kernel) buffer_add(b, " by %s", x->step.kernel);
    for (int i = 0; i < x->step.parts; i++)
        buffer_add(b, "%s%s", i ? ", " : "\nof ", ct_graph_step_part(d->graph, step, i));
    for (int i = 0; operand_of(d, step, i, &o); i++) {
        write_operand(&o, text, sizeof text);
        buffer_add(b, "\n%s %s", i < x->step.inputs ? (o.writes ? "changes" : "reads") : "writes", text);
        if (o.memory < 0) continue;
        static const char *const kinds[] = {"", ", kept", ", constant"};
        buffer_add(b, ", memory %d of %lld bytes%s", o.memory, (long long)o.memory_bytes, kinds[o.kind]);
    }
    if (x->step.scratch_bytes) buffer_add(b, "\nscratch of %lld bytes", (long long)x->step.scratch_bytes);
    if (x->step.random) buffer_text(b, "\nrandom");
}

static bool draw_box(const drawing *d, int step, buffer *b) {
    const box *x = &d->boxes[step];
    const double center = left_of(x) + BOX_WIDTH / 2.0;
    buffer text = {0};
    describe(d, step, &text);
    buffer_add(b, "<g><title>");
    buffer_html(b, text.at ? text.at : "");
    buffer_add(b, "</title><rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\"/>", x->style, left_of(x),
               top_of(x), BOX_WIDTH, BOX_HEIGHT);
    buffer_add(b, "<text x=\"%g\" y=\"%g\">", center, top_of(x) + 14);
    buffer_html(b, x->name);
    buffer_add(b, "</text><text x=\"%g\" y=\"%g\">", center, top_of(x) + 28);
    buffer_html(b, x->shape);
    buffer_text(b, "</text></g>\n");
    const bool ok = !text.failed;
    buffer_free(&text);
    return ok || fail_memory();
}

static void draw_line(const drawing *d, const line *l, buffer *b) {
    const box *from = &d->boxes[l->from], *to = &d->boxes[l->to];
    const double x0 = left_of(from) + BOX_WIDTH / 2.0, y0 = top_of(from) + BOX_HEIGHT;
    const double x1 = left_of(to) + BOX_WIDTH / 2.0, y1 = top_of(to), bend = (y1 - y0) / 2;
    buffer_add(b, "<path%s d=\"M%g %gC%g %g %g %g %g %g\"/>\n", to->layer - from->layer > 3 ? " class=\"far\"" : "", x0,
               y0, x0, y0 + bend, x1, y1 - bend, x1, y1);
}

static void write_title(const ct_graph *graph, const char *title, buffer *b) {
    ct_graph_info info = {.size = sizeof info};
    ct_graph_describe(graph, &info);
    buffer_add(b, "%s: %lld steps, %lld bytes of its own", title, (long long)info.records,
               (long long)info.planned_bytes);
}

bool graph_draw_svg(const ct_graph *graph, const char *title, buffer *b) {
    drawing d = {.graph = graph};
    buffer text = {0};
    bool ok = look(&d) && choose_layers(&d) && choose_columns(&d);
    if (ok) {
        buffer_add(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n<style>\n%s</style>\n",
                   2 * MARGIN + MOST_ACROSS * STEP_X, 3 * MARGIN + d.layers * STEP_Y, style_sheet);
        write_title(graph, title, &text);
        buffer_add(b, "<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, MARGIN);
        buffer_html(b, text.at ? text.at : "");
        buffer_text(b, "</text>\n");
    }
    for (int i = 0; ok && i < d.n_lines; i++) draw_line(&d, &d.lines[i], b);
    for (int k = 0; ok && k < d.n; k++) ok = draw_box(&d, k, b);
    if (ok) buffer_text(b, "</svg>\n");
    if (ok && (b->failed || text.failed)) ok = fail_memory();
    buffer_free(&text);
    close_drawing(&d);
    return ok;
}

/* ---- DOT ---- */

bool graph_draw_dot(const ct_graph *graph, const char *title, buffer *b) {
    drawing d = {.graph = graph};
    buffer text = {0};
    bool ok = look(&d);
    if (ok) {
        write_title(graph, title, &text);
        buffer_text(b, "digraph step {\n  node [shape=box, fontsize=10];\n  label=");
        buffer_json(b, text.at ? text.at : ""); /* its texts are those of DOT */
        buffer_text(b, ";\n");
    }
    for (int k = 0; ok && k < d.n; k++)
        buffer_add(b, "  s%d [label=\"%s\\n%s\"];\n", k, d.boxes[k].name, d.boxes[k].shape);
    for (int i = 0; ok && i < d.n_lines; i++) buffer_add(b, "  s%d -> s%d;\n", d.lines[i].from, d.lines[i].to);
    if (ok) buffer_text(b, "}\n");
    if (ok && (b->failed || text.failed)) ok = fail_memory();
    buffer_free(&text);
    close_drawing(&d);
    return ok;
}

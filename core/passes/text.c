/* A captured graph as a person reads it: a line for each record.
 *
 *     12  add  elementwise_f32  %4 f32[8,3], @0 f32[3] -> %7 f32[8,3] to 15
 *
 * and below a call of several a line for each of its steps, in which .3 is what only they know:
 *
 *           gelu  %4 -> .3 f32[8,3]
 *
 * %4 is memory of the graph's own, @0 a tensor that is kept, $2 a constant; "to 15" is the last record that uses what is new. */
#include <cotangent/fused.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/dtype.h"
#include "core/log.h"
#include "core/passes/passes.h"
#include "gen/ops_decl.h"

typedef struct text_line {
    char at[1024];
    size_t used;
} text_line;

CT_PRINTF(2, 3) static void add(text_line *line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t left = sizeof line->at - line->used;
    const int n = vsnprintf(line->at + line->used, left, format, args);
    va_end(args);
    line->used += n < 0 ? 0 : (size_t)n < left ? (size_t)n : left - 1;
}

static void add_slot(text_line *line, const ct_graph *g, int slot) {
    const ct_graph_slot *s = &g->slots[slot];
    const bool constant = !s->kept && s->first <= s->last && g->records[s->first].once;
    add(line, "%c%d", s->kept ? '@' : constant ? '$' : '%', slot);
}

static void add_view(text_line *line, const ct_graph *g, const ct_record *record, int i) {
    const ct_view *view = i < record->call.n_in ? record->call.in[i] : record->call.out[i - record->call.n_in];
    if (!view) {
        add(line, "-");
    } else if (record->slots[i] < 0) {
        add(line, "%g", ct__dtype_get(view->dtype, view->buffer));
    } else {
        add_slot(line, g, record->slots[i]);
        if (view->offset) add(line, "+%lld", (long long)view->offset);
        add(line, " %s%s", ct_view_text(view), ct__view_is_dense(view) ? "" : " strided");
    }
}

static void add_lifetime(text_line *line, const ct_graph *g, int slot, int now) {
    const ct_graph_slot *s = &g->slots[slot];
    if (!s->kept && s->first == now) add(line, " to %d", s->last);
}

static void write_call(text_line *line, const ct_graph *g, const ct_record *record, int now) {
    const ct_call *call = &record->call;
    add(line, "%s  %s  ", call->op->name, call->kernel ? call->kernel->name : "-");
    for (int i = 0; i < record->n_views; i++) {
        if (i == call->n_in) add(line, "%s-> ", i ? " " : "");
        else if (i) add(line, ", ");
        add_view(line, g, record, i);
        if (i >= call->n_in && record->slots[i] >= 0) add_lifetime(line, g, record->slots[i], now);
    }
    if (record->scratch >= 0) add(line, "  scratch %zu bytes", g->slots[record->scratch].bytes);
    if (record->generator >= 0) add(line, "  random %llu", (unsigned long long)record->draw);
}

static void write_record(text_line *line, const ct_graph *g, int i) {
    const ct_record *record = &g->records[i];
    add(line, "%5d  ", i);
    switch (record->kind) {
    case CT__CALL: write_call(line, g, record, i); break;
    case CT__EFFECT: add(line, "effect"); break;
    default:
        add(line, "%s  %zu bytes -> ", record->kind == CT__PUT ? "put" : "fill", record->bytes);
        add_slot(line, g, record->slot);
        if (record->offset) add(line, "+%zu", record->offset);
        add(line, " of %zu bytes", g->slots[record->slot].bytes);
        add_lifetime(line, g, record->slot, i);
    }
    if (record->once) add(line, "  once");
}

/* ---- Steps of fused calls ---- */

static void write_operand(text_line *line, const ct_graph *g, const ct_record *record, const ct_fused_step *step,
                          int i) {
    const ct_fused *fused = record->call.attrs;
    const ct_view *view = i < step->call.n_in ? step->call.in[i] : step->call.out[i - step->call.n_in];
    if (!view) {
        add(line, "-");
        return;
    }
    if (step->values[i] < 0) {
        add(line, "%g", ct__dtype_get(view->dtype, view->buffer));
        return;
    }
    const ct_fused_value *value = &fused->values[step->values[i]];
    if (value->input >= 0) add_slot(line, g, record->slots[value->input]);
    else if (value->output >= 0) add_slot(line, g, record->slots[record->call.n_in + value->output]);
    else add(line, ".%d", step->values[i]);
    if (i >= step->call.n_in) add(line, " %s", ct_view_text(view));
}

static void log_steps(text_line *line, const ct_graph *g, const ct_record *record) {
    const ct_fused *fused = record->call.attrs;
    for (int k = 0; k < fused->n_steps; k++) {
        const ct_fused_step *step = &fused->steps[k];
        line->used = 0;
        add(line, "           %s  ", step->call.op->name);
        for (int i = 0; i < step->call.n_in + step->call.n_out; i++) {
            add(line, "%s", i == step->call.n_in ? (i ? " -> " : "-> ") : i ? ", " : "");
            write_operand(line, g, record, step, i);
        }
        ct__log_put(line->at);
    }
}

void ct__record_log(const ct_graph *g, int i, const char *before) {
    text_line line = {.used = 0};
    add(&line, "%s", before);
    write_record(&line, g, i);
    ct__log_put(line.at);
    if (g->records[i].kind == CT__CALL && g->records[i].call.op == &ct__op_fused) log_steps(&line, g, &g->records[i]);
}

void ct__graph_log(const ct_graph *g) {
    for (int i = 0; i < g->n_records; i++) ct__record_log(g, i, "");
}

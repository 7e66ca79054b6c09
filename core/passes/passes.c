/* The table of passes, which of them run, and the log of what they do. */
#include "core/passes/passes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/log.h"

/* In the order in which they run. */
static const ct_graph_pass passes[] = {
    {"dead", ct__pass_dead, true, 0},   /* what nobody reads */
    {"cse", ct__pass_cse, true, 0},     /* what is computed twice */
    {"hoist", ct__pass_hoist, true, 0}, /* what is the same in every replay */
    {"layout", ct__pass_layout, false, CT_CAPTURE_LAYOUT},
    {"recompute", ct__pass_recompute, false, CT_CAPTURE_RECOMPUTE},
    {"fuse", ct__pass_fuse, true, 0},   /* and of what is made again, with what uses it */
    {"casts", ct__pass_casts, true, 0}, /* that fuse has left */
    {"order", ct__pass_order, true, 0}, /* for a lower peak of memory */
    {"overwrite", ct__pass_overwrite, true, 0},
    {0},
};

const ct_graph_pass *ct__pass_at(int i) {
    return i >= 0 && i < (int)(sizeof passes / sizeof *passes) - 1 ? &passes[i] : NULL;
}

static _Thread_local const char *chosen;
void ct__passes_set(const char *text) { chosen = text; }

/* ---- The log ---- */

void ct__pass_note(ct_graph *g, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(g->note, sizeof g->note, format, args);
    va_end(args);
}

static void log_state(const ct_graph *g, const char *what) {
    char line[320];
    const int64_t needed = ct__graph_usage(g, NULL);
    snprintf(line, sizeof line, "capture: %s: %d records, %lld bytes at once", what, g->n_records, (long long)needed);
    ct__log_put(line);
}

/* ---- Which of them run ---- */

static const ct_graph_pass *find(const char *name, size_t length) {
    const ct_graph_pass *pass = passes;
    while (pass->name && (strlen(pass->name) != length || memcmp(pass->name, name, length) != 0)) pass++;
    return pass->name ? pass : NULL;
}

static bool fail_unknown(const char *name, size_t length) {
    char all[256] = "";
    size_t used = 0;
    for (const ct_graph_pass *pass = passes; pass->name && used < sizeof all; pass++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", pass->name);
    return ct_fail(CT_ERR_VALUE, "capture", "there is no pass named %.*s (CT_PASSES); there are: %s", (int)length, name,
                   all);
}

static bool run_pass(ct_graph *g, const ct_graph_pass *pass) {
    const bool logging = ct__log_on(CT__LOG_CAPTURE);
    g->note[0] = 0;
    if (!pass->run(g)) return false;
    ct__graph_lifetimes(g);
    if (!logging) return true;
    char what[240];
    snprintf(what, sizeof what, "%s: %s", pass->name, g->note[0] ? g->note : "nothing to do");
    log_state(g, what);
    return true;
}

/* The names of a list, one after the other, are checked before any pass runs. */
typedef struct names {
    const char *at, *name;
    size_t length;
} names;

static bool next_name(names *n) {
    n->at += strspn(n->at, ", ");
    n->name = n->at;
    n->length = strcspn(n->at, ", ");
    n->at += n->length;
    return n->length > 0;
}

/* Whether all names exist; *out: they are to be left out. */
static bool check_names(const char *text, bool *out) {
    int plain = 0, minus = 0;
    for (names n = {.at = text}; next_name(&n);) {
        const bool is_out = n.name[0] == '-';
        if (!find(n.name + is_out, n.length - is_out)) return fail_unknown(n.name + is_out, n.length - is_out);
        *(is_out ? &minus : &plain) += 1;
    }
    if (plain && minus)
        return ct_fail(CT_ERR_VALUE, "capture",
                       "CT_PASSES is \"%s\": names either give an order, or all begin with - and are left out", text);
    *out = plain == 0;
    return true;
}

bool ct_capture_passes(const char *text) {
    static _Thread_local char kept[256];
    bool out;
    if (ct__pending()) return false;
    if (!text) return ct__passes_set(NULL), true;
    if (strlen(text) >= sizeof kept)
        return ct_fail(CT_ERR_VALUE, "capture_passes", "passes is %zu characters long; %zu are enough for all of them",
                       strlen(text), sizeof kept - 1);
    if (strcmp(text, "none") != 0 && !check_names(text, &out)) return false;
    memmove(kept, text, strlen(text) + 1);
    ct__passes_set(kept);
    return true;
}

static bool is_left_out(const char *text, const ct_graph_pass *pass) {
    for (names n = {.at = text}; next_name(&n);)
        if (find(n.name + 1, n.length - 1) == pass) return true;
    return false;
}

static bool run_chosen(ct_graph *g, const char *text) {
    bool out = true;
    if (strcmp(text, "none") == 0) return true;
    if (!check_names(text, &out)) return false;
    bool ok = true;
    for (names n = {.at = text}; ok && !out && next_name(&n);) ok = run_pass(g, find(n.name, n.length));
    for (const ct_graph_pass *pass = passes; ok && out && pass->name; pass++)
        if ((pass->on || (pass->flag & g->flags)) && !is_left_out(text, pass)) ok = run_pass(g, pass);
    return ok;
}

bool ct__passes_run(ct_graph *g) {
    const char *text = chosen ? chosen : getenv("CT_PASSES");
    const bool logging = ct__log_on(CT__LOG_CAPTURE);
    if (!ct__graph_once_first(g)) return false;
    ct__graph_lifetimes(g);
    if (logging) log_state(g, "as recorded"), ct__graph_log(g);
    if (!run_chosen(g, text ? text : "")) return false;
    if (logging) log_state(g, "after all passes"), ct__graph_log(g);
    return true;
}

/* The sections of the report on what was trained: filters, parameters, recipe, and how to do it again. */
#include "cli/train/report.h"

#include "cli/train/number.h"
#include "cli/train/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

bool report_filters(buffer *b, trainer *t) {
    picture filters;
    if (!picture_of_filters(&t->learner, &filters)) {
        if (ct_error_code() != CT_ERR_UNSUPPORTED) return false;
        ct_error_clear(); /* no libpng here */
        return true;
    }
    if (!filters.png) return true;
    report_section(b, "What the first layer looks for",
                   t->learner.item.d[0] == 3 ? "Its weights, each filter by itself, as colors."
                                             : "Its weights, each filter by itself: red adds, blue takes away.");
    buffer_text(
        b,
        "<div class=\"panel\"><img class=\"filters\" alt=\"filters of the first layer\" src=\"data:image/png;base64,");
    buffer_base64(b, filters.png, filters.bytes);
    buffer_text(b, "\"></div></section>\n");
    picture_free(&filters);
    return true;
}

/* ---- Parameters ---- */

enum { BINS = 24 };

typedef struct summary {
    double mean, std, low, high;
    int64_t bins[BINS];
} summary;

static bool summarise(ct_tensor *x, summary *s) {
    *s = (summary){.low = INFINITY, .high = -INFINITY};
    const int64_t n = ct_numel(x);
    ct_tensor *values = ct_contiguous(ct_to(ct_cast(ct_detach(x), CT_F32), (ct_device){CT_CPU, 0}));
    const float *at = ct_data(values);
    if (!at) return false;
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)at[i];
        s->mean += value / (double)n;
        s->low = fmin(s->low, value);
        s->high = fmax(s->high, value);
    }
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)at[i];
        squares += (value - s->mean) * (value - s->mean);
        const double place = s->high > s->low ? (value - s->low) / (s->high - s->low) * BINS : BINS / 2;
        const int bin = isfinite(place) ? (int)place : 0;
        s->bins[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
    }
    s->std = n ? sqrt(squares / (double)n) : 0;
    return true;
}

static void write_histogram(buffer *b, const summary *s) {
    int64_t most = 1;
    for (int i = 0; i < BINS; i++)
        if (s->bins[i] > most) most = s->bins[i];
    buffer_add(b, "<svg class=\"histogram\" viewBox=\"0 0 %d 20\" preserveAspectRatio=\"none\">", BINS * 4);
    for (int i = 0; i < BINS; i++)
        if (s->bins[i]) {
            const double height = 1 + 19 * (double)s->bins[i] / (double)most;
            buffer_add(b, "<rect x=\"%d\" width=\"3\" y=\"%.1f\" height=\"%.1f\"/>", 4 * i, 20 - height, height);
        }
    buffer_add(b, "<title>from %s to %s</title></svg>", number_of(s->low, 4, NUMBER_PAGE).text,
               number_of(s->high, 4, NUMBER_PAGE).text);
}

static void write_row(buffer *b, const ct_parameter *parameter, ct_tensor *x, const summary *s) {
    buffer_text(b, "<tr><td><code>");
    buffer_html(b, parameter->name);
    buffer_text(b, parameter->buffer   ? "</code> (not learned)</td><td>"
                   : parameter->frozen ? "</code> (frozen)</td><td>"
                                       : "</code></td><td>");
    for (int i = 0; i < ct_ndim(x); i++) buffer_add(b, "%s%lld", i ? " &times; " : "", (long long)ct_dim(x, i));
    buffer_add(b, "</td><td>%s</td><td>%s</td><td>%s</td><td>", number_count(ct_numel(x)).text,
               number_of(s->mean, 3, NUMBER_PAGE).text, number_of(s->std, 3, NUMBER_PAGE).text);
    write_histogram(b, s);
    buffer_text(b, "</td></tr>\n");
}

bool report_parameters(buffer *b, trainer *t) {
    ct_parameters *list = ct_module_parameters(t->learner.net);
    if (!list) return false;
    report_section(b, "Parameters", NULL);
    const bool many = ct_parameters_count(list) > 60; /* then they are folded away */
    buffer_add(b,
               "<div class=\"panel\">%s<table><tr><th>Name</th><th>Shape</th><th>Count</th><th>Mean</th>"
               "<th>Deviation</th><th>Spread</th></tr>\n",
               many ? "<details><summary>All of them</summary>" : "");
    bool right = true;
    for (int i = 0; right && i < ct_parameters_count(list); i++) {
        const ct_parameter *parameter = ct_parameters_at(list, i);
        ct_tensor *x = ct_parameter_tensor(parameter);
        if (!ct_dtype_is_float(ct_dtype_of(x))) continue; /* a counter */
        ct_no_grad {
            ct_scope {
                summary s;
                right = summarise(x, &s);
                if (right) write_row(b, parameter, x, &s);
            }
        }
    }
    buffer_add(b,
               "<tr><td class=\"total\">Learned in all</td><td></td><td "
               "class=\"total\">%s</td><td></td><td></td><td></td></tr></table>%s",
               number_count(t->learner.parameters).text, many ? "</details>" : "");
    const size_t n = ct_module_to_string(t->learner.net, NULL, 0);
    char *text = malloc(n + 1);
    if (text) {
        ct_module_to_string(t->learner.net, text, n + 1);
        buffer_text(b, "<details><summary>The network</summary><pre>");
        buffer_html(b, text);
        buffer_text(b, "</pre></details>");
    }
    free(text);
    buffer_text(b, "</div></section>\n");
    ct_parameters_free(list);
    return right;
}

/* ---- The recipe, and doing it again ---- */

bool report_recipe(buffer *b, trainer *t) {
    buffer text = {0};
    if (!recipe_text(t->recipe, &text)) return false;
    report_section(b, "Recipe", NULL);
    buffer_text(b, "<div class=\"panel\"><pre>");
    buffer_html(b, text.at);
    buffer_text(b, "</pre></div></section>\n");
    buffer_free(&text);
    return true;
}

static void row(buffer *b, const char *name, const char *value) {
    buffer_add(b, "<tr><td>%s</td><td class=\"text\">", name);
    buffer_html(b, value);
    buffer_text(b, "</td></tr>\n");
}

bool report_reproduce(buffer *b, trainer *t) {
    struct utsname machine;
    char text[256];
    report_section(b, "Again",
                   "The same command gives the same numbers, to the bit, at any number of threads on the same level of "
                   "vector instructions.");
    buffer_text(b, "<div class=\"panel\"><pre>");
    buffer_html(b, t->command);
    buffer_text(b, "</pre></div><h3></h3><div class=\"panel\"><table>\n");
    row(b, "Cotangent", ct_version_text());
    snprintf(text, sizeof text, "%lld", (long long)t->recipe->seed);
    row(b, "Seed", text);
    snprintf(text, sizeof text, "%d", ct_get_threads());
    row(b, "Threads", text);
    row(b, "Vector instructions", ct_isa());
    row(b, "Precision", t->recipe->tf32 ? "tf32" : ct_dtype_name(t->recipe->precision));
    if (uname(&machine) == 0) {
        snprintf(text, sizeof text, "%.60s %.60s, %.40s", machine.sysname, machine.release, machine.machine);
        row(b, "System", text);
    }
    snprintf(text, sizeof text, "%s of %s", number_count(t->run.step).text, number_count(t->total_steps).text);
    row(b, "Steps", text);
    row(b, "Folder", t->out);
    buffer_text(b, "</table></div></section>\n");
    return true;
}

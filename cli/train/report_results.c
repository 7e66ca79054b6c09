/* The sections of the report on how it went: curves, classes, mistakes, points, samples of text. */
#include "cli/train/report.h"

#include "cli/train/chart.h"
#include "cli/train/number.h"
#include "cli/train/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Curves ---- */

static double field(const epoch_record *r, int which) {
    const double values[] = {r->epoch, r->loss, r->valid_loss, r->score, r->valid_score};
    return values[which];
}

bool report_curves(buffer *b, trainer *t) {
    enum { EPOCH, LOSS, VALID_LOSS, SCORE, VALID_SCORE, FIELDS };
    const journal *j = &t->journal;
    const task_info *task = &tasks[t->learner.task];
    const int n = j->epoch_count, steps = j->step_count;
    double *columns = malloc((size_t)(FIELDS * n + steps + 1) * sizeof *columns), *of[FIELDS];
    if (!columns) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int f = 0; f < FIELDS; f++) {
        of[f] = columns + (size_t)f * (size_t)n;
        for (int i = 0; i < n; i++) of[f][i] = field(&j->epochs[i], f);
    }
    double *step_epoch = columns + (size_t)FIELDS * (size_t)n; /* where in the epochs a step is */
    const double an_epoch = (double)ct_loader_batches(t->batches);
    for (int i = 0; i < steps; i++) step_epoch[i] = j->step[i] / an_epoch;
    const double best = (double)t->best_epoch; /* by the score: both charts mark that epoch */
    report_section(b, "Learning", NULL);
    buffer_text(b, "<div class=\"charts\">");
    const chart_series losses[] = {{NULL, "faint", step_epoch, j->loss, steps, false},
                                   {"training", "train", of[EPOCH], of[LOSS], n, true},
                                   {"validation", "valid", of[EPOCH], of[VALID_LOSS], n, true}};
    chart_lines(b, &(chart){.title = "Loss", .x_label = "epoch", .best = 2, .best_x = best, .best_name = ""}, losses,
                3);
    const chart_series scores[] = {{"training", "train", of[EPOCH], of[SCORE], n, true},
                                   {"validation", "valid", of[EPOCH], of[VALID_SCORE], n, true}};
    chart_lines(b,
                &(chart){.title = metric_title(task->score),
                         .x_label = "epoch",
                         .percent = task->percent,
                         .best = 1,
                         .best_x = best,
                         .best_name = "best, "},
                scores, 2);
    const chart_series rates[] = {{NULL, "rate", j->step, j->lr, steps, false}};
    chart_lines(b, &(chart){.title = "Learning rate", .x_label = "step", .best = -1, .wide = true, .linear = true},
                rates, 1);
    buffer_text(b, "</div></section>\n");
    free(columns);
    return true;
}

/* ---- Classes ---- */

static const char *class_name(const void *context, int label) { return learner_class_name(context, label); }

/* Of a segmentation what is counted are pixels, and their overlap is what is judged. */
static void write_scores(buffer *b, const trainer *t, int classes) {
    const bool pixels = t->learner.task == TASK_SEGMENTATION;
    const char *last = pixels ? "IoU" : "F1";
    buffer_add(
        b,
        "<h3>By class</h3><div class=\"panel\"><table><tr><th>Class</th><th>Precision</th><th>Recall</th><th>%s</th>"
        "<th class=\"extra\"></th><th>%s</th></tr>\n",
        last, pixels ? "Pixels" : "Items");
    for (int i = 0; i < classes; i++) {
        const ct_scores s = class_scores(&t->best, i);
        const double figure = pixels ? s.iou : s.f1;
        buffer_text(b, "<tr><td>");
        buffer_html(b, learner_class_name(&t->learner, i));
        buffer_add(b,
                   "</td><td>%s</td><td>%s</td><td>%s</td><td class=\"extra\"><span class=\"bar\"><i "
                   "style=\"width:%.1f%%\"></i></span></td><td>%s</td></tr>\n",
                   number_percent(s.precision, 1, NUMBER_PAGE).text, number_percent(s.recall, 1, NUMBER_PAGE).text,
                   number_percent(figure, 1, NUMBER_PAGE).text, isnan(figure) ? 0 : 100 * figure,
                   number_count(s.support).text);
    }
    const ct_scores mean = ct_confusion_macro(t->best.confusion);
    buffer_add(b,
               "<tr><td class=\"total\">Mean</td><td class=\"total\">%.1f %%</td><td class=\"total\">%.1f %%</td><td "
               "class=\"total\">%.1f %%</td><td class=\"extra\"></td><td class=\"total\">%s</td></tr></table></div>",
               100 * mean.precision, 100 * mean.recall, 100 * (pixels ? mean.iou : mean.f1),
               number_count(ct_confusion_total(t->best.confusion)).text);
}

bool report_confusion(buffer *b, trainer *t) {
    enum { MOST = 100 };
    const ct_confusion *confusion = t->best.confusion;
    if (!confusion || ct_confusion_classes(confusion) > MOST) return true;
    const int n = (int)ct_confusion_classes(confusion);
    int64_t *counts = malloc((size_t)n * (size_t)n * sizeof *counts);
    if (!counts) return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) counts[i * n + k] = ct_confusion_count(confusion, i, k);
    report_section(
        b, "What is taken for what",
        t->learner.task == TASK_SEGMENTATION
            ? "Pixels of the validation data: a row is the true class, a column what the network says. Blue is "
              "right, red is wrong."
            : "A row is the true class, a column what the network says, over the validation data. Blue is "
              "right, red is wrong.");
    buffer_text(b, "<div class=\"panel\">");
    chart_confusion(b, counts, n, class_name, &t->learner);
    buffer_text(b, "</div>");
    write_scores(b, t, n);
    buffer_text(b, "</section>\n");
    free(counts);
    return true;
}

/* ---- Mistakes ---- */

static bool write_mistake(buffer *b, trainer *t, const mistake *m) {
    picture image = {0};
    bool right = true;
    ct_scope {
        ct_tensor *x[1] = {NULL};
        right = ct_dataset_get(t->learner.valid, m->index, x, 1) && picture_of_item(x[0], &image);
    }
    if (!right) return false;
    buffer_add(b, "<div class=\"mistake\" title=\"item %lld\"><img alt=\"\" src=\"data:image/png;base64,",
               (long long)m->index);
    buffer_base64(b, image.png, image.bytes);
    buffer_text(b, "\"><b>");
    buffer_html(b, learner_class_name(&t->learner, m->said));
    buffer_text(b, "</b><span>is ");
    buffer_html(b, learner_class_name(&t->learner, m->truth));
    buffer_add(b, "</span><em>%.1f %%</em></div>\n", 100 * m->confidence);
    picture_free(&image);
    return true;
}

bool report_mistakes(buffer *b, trainer *t) {
    if (!learner_is_image(&t->learner) || t->best.mistake_count == 0) return true;
    report_section(
        b, "The surest mistakes",
        "Validation images that the network gets wrong while it is most certain: hard ones, and often wrong labels.");
    buffer_text(b, "<div class=\"mistakes\">\n");
    for (int i = 0; i < t->best.mistake_count; i++) {
        if (write_mistake(b, t, &t->best.mistakes[i])) continue;
        if (ct_error_code() != CT_ERR_UNSUPPORTED) return false;
        ct_error_clear(); /* no libpng here: the report goes without pictures */
        break;
    }
    buffer_text(b, "</div></section>\n");
    return true;
}

/* ---- Regressions and texts ---- */

/* The largest errors, by looking for the next smaller one each time. */
static void write_worst(buffer *b, const trainer *t) {
    enum { ROWS = 10 };
    const evaluation *e = &t->best;
    double mean = 0, below = INFINITY, largest = 0;
    for (int64_t i = 0; i < e->points; i++) {
        mean += (e->guess[i] - e->truth[i]) / (double)e->points;
        if (isfinite(e->guess[i])) largest = fmax(largest, fmax(fabs(e->guess[i]), fabs(e->truth[i])));
    }
    buffer_add(
        b,
        "<div class=\"panel\"><table><tr><td>Items</td><td></td><td>%s</td></tr><tr><td>Root of the mean squared "
        "error</td><td></td><td>%s</td></tr><tr><td>Mean error</td><td></td><td>%s</td></tr></table><h3>The "
        "largest "
        "errors</h3><table><tr><th>True</th><th>Predicted</th><th>Error</th></tr>\n",
        number_count(e->count).text, number_of(e->score, 4, NUMBER_PAGE).text, number_of(mean, 4, NUMBER_PAGE).text);
    const number_column column = number_column_of(largest, largest * 1e-4);
    number_column errors = column;
    errors.sign = true;
    for (int row = 0; row < ROWS; row++) {
        int64_t worst = -1;
        for (int64_t i = 0; i < e->points; i++) {
            const double error = fabs(e->guess[i] - e->truth[i]);
            if (error < below && (worst < 0 || error > fabs(e->guess[worst] - e->truth[worst]))) worst = i;
        }
        if (worst < 0) break;
        below = fabs(e->guess[worst] - e->truth[worst]);
        buffer_add(b, "<tr><td>%s</td><td>%s</td><td>%s</td></tr>\n", number_in(&column, e->truth[worst]).text,
                   number_in(&column, e->guess[worst]).text,
                   number_in(&errors, e->guess[worst] - e->truth[worst]).text);
    }
    buffer_text(b, "</table></div>");
}

bool report_scatter(buffer *b, trainer *t) {
    if (t->learner.task != TASK_REGRESSION || t->best.points == 0) return true;
    report_section(b, "Predicted and true", "On the dashed line a prediction is exact.");
    buffer_text(b, "<div class=\"charts\">");
    chart_scatter(b, "Predicted (upward) against true", t->best.truth, t->best.guess, t->best.points);
    write_worst(b, t);
    buffer_text(b, "</div></section>\n");
    return true;
}

bool report_samples(buffer *b, trainer *t) {
    if (!t->samples[0]) return true;
    report_section(b, "What it writes", "Text drawn from the network, from cautious to free.");
    buffer_text(b, "<div class=\"samples\">");
    for (int i = 0; i < 3 && t->samples[i]; i++) {
        buffer_add(b, "<div class=\"panel\"><p>Temperature %.2f</p><pre>", 0.5 + 0.25 * i);
        buffer_html(b, t->samples[i]);
        buffer_text(b, "</pre></div>");
    }
    buffer_text(b, "</div></section>\n");
    return true;
}

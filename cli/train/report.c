/* report.html: one file that needs nothing else. The page, its head, and the order of its sections. */
#include "cli/train/report.h"

#include "cli/train/number.h"

#include <stdio.h>
#include <string.h>

void report_section(buffer *b, const char *title, const char *lead) {
    buffer_add(b, "<section><h2>%s</h2>", title);
    if (lead) buffer_add(b, "<p class=\"lead\">%s</p>\n", lead);
}

static void tile(buffer *b, const char *name, const char *value, const char *note) {
    buffer_add(b, "<div class=\"tile\"><span>%s</span><b>%s</b><small>%s</small></div>\n", name, value, note);
}

static void write_tiles(buffer *b, const trainer *t) {
    const task_info *task = &tasks[t->learner.task];
    const journal *j = &t->journal;
    char value[96], note[96];
    double seconds = 0, rate = 0;
    for (int i = 0; i < j->epoch_count; i++) {
        seconds += j->epochs[i].seconds;
        rate += j->epochs[i].rate / j->epoch_count;
    }
    buffer_text(b, "<div class=\"tiles\">\n");
    if (task->percent) format_score(task, t->best_score, value, sizeof value);
    else snprintf(value, sizeof value, "%s", number_of(t->best_score, 4, NUMBER_PAGE).text);
    snprintf(note, sizeof note, "validation, epoch %lld", (long long)t->best_epoch);
    tile(b, metric_title(task->score), t->best_epoch ? value : "&ndash;", note);
    if (t->best.count) {
        snprintf(note, sizeof note, "%s items", number_count(t->best.count).text);
        tile(b, "Validation loss", number_of(t->best.loss, 4, NUMBER_PAGE).text, note);
    }
    tile(b, "Parameters", number_count(t->learner.parameters).text, t->recipe->model.name);
    if (seconds < 10) snprintf(value, sizeof value, "%.1f s", seconds);
    else format_duration(seconds, value, sizeof value);
    snprintf(note, sizeof note, "%d of %lld epochs", j->epoch_count, (long long)t->recipe->epochs);
    tile(b, "Time", value, note);
    const int threads = ct_get_threads();
    if (t->ranks > 1)
        snprintf(note, sizeof note, "a second, by %d processes of %d thread%s", t->ranks, threads,
                 threads == 1 ? "" : "s");
    else snprintf(note, sizeof note, "a second, on %d thread%s", threads, threads == 1 ? "" : "s");
    tile(b, "Items", number_of(rate, 3, NUMBER_PAGE).text, note);
    if (t->ranks > 1) {
        snprintf(value, sizeof value, "%d", t->ranks);
        tile(b, "Processes", value, ct_dist_engine());
        snprintf(value, sizeof value, "%.1f %%", 100 * t->waited[0]);
        tile(b, "Communication", value, "of the time, by the process that waits least");
        snprintf(value, sizeof value, "%.1f %%", 100 * (t->waited[1] - t->waited[0]));
        tile(b, "Imbalance", value, "of the time, that another waits longer");
    }
    for (int i = 0; i < t->recipe->metric_count && t->best.count; i++)
        tile(b, metric_title(t->recipe->metrics[i]), number_of(t->best.metrics[i], 4, NUMBER_PAGE).text, "validation");
    buffer_text(b, "</div>\n");
}

static void write_head(buffer *b, const trainer *t) {
    buffer_text(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                   "content=\"width=device-width, initial-scale=1\">"
                   "<meta name=\"color-scheme\" content=\"light dark\"><title>");
    buffer_html(b, t->recipe->name);
    buffer_text(b, "</title>\n<style>\n");
    buffer_text(b, report_style);
    buffer_text(b, "</style></head><body>\n<header><p class=\"kind\">Training report</p><h1>");
    buffer_html(b, t->recipe->name);
    buffer_text(b, "</h1><p class=\"about\">");
    buffer_html(b, t->recipe->about);
    buffer_text(b, "</p>");
    if (t->run.epoch < t->recipe->epochs && !t->finished)
        buffer_add(b, "<p class=\"state\">Not finished: %lld of %lld epochs are done.</p>", (long long)t->run.epoch,
                   (long long)t->recipe->epochs);
    buffer_text(b, "</header>\n<main>\n");
}

bool report_write(trainer *t) {
    if (t->rank > 0) return true;
    static bool (*const sections[])(buffer *, trainer *) = {
        report_curves,  report_masks,   report_confusion,  report_mistakes, report_scatter,
        report_samples, report_filters, report_parameters, report_recipe,   report_reproduce};
    buffer page = {0};
    char path[4096 + 32];
    write_head(&page, t);
    write_tiles(&page, t);
    bool right = true;
    for (size_t i = 0; right && i < sizeof sections / sizeof *sections; i++) right = sections[i](&page, t);
    buffer_add(&page, "</main>\n<footer>Written by cotangent %s</footer>\n</body></html>\n", ct_version_text());
    snprintf(path, sizeof path, "%s/report.html", t->out);
    if (right && page.failed) right = ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    right = right && file_write(path, page.at, page.n, false);
    buffer_free(&page);
    return right;
}

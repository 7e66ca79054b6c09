/* What became of each name when weights were loaded: a list, and its text. */
#include "nn/names.h"

#include <stdlib.h>

struct ct_load_report {
    ct_load_entry *items; /* the texts of an item are one block, which begins with its note */
    int64_t count, capacity;
    int64_t counts[CT_LOAD_OUTCOMES];
};

ct_load_report *ct__report_new(const char *function) {
    ct_load_report *report = ct_calloc(1, sizeof *report);
    if (!report) ct_fail(CT_ERR_MEMORY, function, "out of memory");
    return report;
}

void ct_load_report_free(ct_load_report *report) {
    if (!report) return;
    for (int64_t i = 0; i < report->count; i++) ct_free((char *)report->items[i].note);
    ct_free(report->items);
    ct_free(report);
}

static const char *put(char **to, const char *text) {
    if (!text) return NULL;
    const char *start = strcpy(*to, text);
    *to += strlen(text) + 1;
    return start;
}

bool ct__report_add(ct_load_report *report, ct_load_outcome outcome, const char *name, const char *source,
                    const char *note, const char *function) {
    if (report->count == report->capacity) {
        const int64_t larger = report->capacity ? 2 * report->capacity : 64;
        ct_load_entry *items = ct_realloc(report->items, (size_t)larger * sizeof *items);
        if (!items) return ct_fail(CT_ERR_MEMORY, function, "out of memory");
        report->items = items;
        report->capacity = larger;
    }
    char *text = ct_malloc(strlen(note) + 1 + (name ? strlen(name) + 1 : 0) + (source ? strlen(source) + 1 : 0)),
         *end = text;
    if (!text) return ct_fail(CT_ERR_MEMORY, function, "out of memory");
    ct_load_entry *entry = &report->items[report->count++];
    entry->outcome = outcome;
    entry->note = put(&end, note);
    entry->name = put(&end, name);
    entry->source = put(&end, source);
    report->counts[outcome]++;
    return true;
}

static bool is_outcome(ct_load_outcome outcome) { return (unsigned)outcome < CT_LOAD_OUTCOMES; }

int64_t ct_load_report_count(const ct_load_report *report, ct_load_outcome outcome) {
    return report && is_outcome(outcome) ? report->counts[outcome] : 0;
}

const ct_load_entry *ct_load_report_at(const ct_load_report *report, ct_load_outcome outcome, int64_t i) {
    if (!report || !is_outcome(outcome) || i < 0 || i >= report->counts[outcome]) return NULL;
    /* asked for one after the other, the whole list is read once for each: it is short where somebody reads it */
    for (int64_t k = 0; k < report->count; k++)
        if (report->items[k].outcome == outcome && i-- == 0) return &report->items[k];
    return NULL;
}

size_t ct_load_report_to_string(const ct_load_report *report, char *text, size_t capacity) {
    ct__writer w = {text, capacity, 0};
    if (text && capacity) text[0] = 0;
    if (!report) return 0;
    const int64_t *n = report->counts;
    ct__write(&w, "loaded %lld of %lld", (long long)n[CT_LOAD_LOADED],
              (long long)(n[CT_LOAD_LOADED] + n[CT_LOAD_MISSING] + n[CT_LOAD_MISMATCH]));
    static const char *const words[] = {[CT_LOAD_MISSING] = "missing",
                                        [CT_LOAD_UNUSED] = "unused",
                                        [CT_LOAD_MISMATCH] = "different",
                                        [CT_LOAD_IGNORED] = "ignored"};
    for (int k = CT_LOAD_MISSING; k < CT_LOAD_OUTCOMES; k++)
        if (n[k]) ct__write(&w, ", %s %lld", words[k], (long long)n[k]);
    for (int k = CT_LOAD_MISSING; k < CT_LOAD_IGNORED; k++)
        for (int64_t i = 0; i < report->count; i++) {
            const ct_load_entry *e = &report->items[i];
            if ((int)e->outcome != k) continue;
            ct__write(&w, "\n%s: %s", words[k], e->name ? e->name : e->source);
            if (e->name && e->source && strcmp(e->name, e->source) != 0) ct__write(&w, " (%s)", e->source);
            if (e->note[0]) ct__write(&w, " %s", e->note);
        }
    return w.length;
}

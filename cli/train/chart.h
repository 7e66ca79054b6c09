/* Line charts, scatter plots and heat maps as inline SVG. Colors come from classes of the page's style sheet. */
#ifndef COTANGENT_CLI_TRAIN_CHART_H
#define COTANGENT_CLI_TRAIN_CHART_H

#include "cli/train/buffer.h"

typedef struct chart_series {
    const char *name;  /* written at the end of the line; NULL for none */
    const char *style; /* class of the line: "train", "valid", "faint" */
    const double *x, *y;
    int n;
    bool dots; /* a dot, with its numbers as tool tip, at each point */
} chart_series;

typedef struct chart {
    const char *title, *x_label;
    bool percent;          /* y from 0 to 1, written as percentages */
    int best;              /* index of a series of which one point is marked; -1: none */
    double best_x;         /* where: the same in every chart of a report */
    const char *best_name; /* before its value: "best" */
    bool wide;             /* as wide as the page */
    bool linear;           /* never by powers of ten */
} chart;

void chart_lines(buffer *b, const chart *c, const chart_series *series, int n);
/* Points (x: true, y: predicted) and the line on which both are equal. */
void chart_scatter(buffer *b, const char *title, const double *truth, const double *guess, int64_t n);
/* Rows: the true class; columns: what was said. counts is (n,n). */
void chart_confusion(buffer *b, const int64_t *counts, int n, const char *(*name)(const void *context, int label),
                     const void *context);

#endif

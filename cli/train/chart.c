/* Charts as SVG. Coordinates are in a box of fixed size that the page scales. */
#include "cli/train/chart.h"

#include "cli/train/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 270, LEFT = 52, RIGHT = 78, TOP = 14, BOTTOM = 40, MOST_POINTS = 600 };

typedef struct axis {
    double low, high, step; /* of the values, and between ticks */
    double from, to;        /* of the drawing */
    bool powers;            /* equal factors are equally far apart */
    bool percent;           /* parts of 1, written as percentages */
} axis;

static double place(const axis *a, double value) {
    if (a->powers) return a->from + log(value / a->low) / log(a->high / a->low) * (a->to - a->from);
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

/* Ticks at 1, 2 or 5 times a power of ten, about `ticks` of them; the ends move outward to a tick where `round`. */
static axis make_axis(double low, double high, int ticks, bool round_ends, double from, double to) {
    if (!(high > low)) {
        const double middle = isfinite(low) ? low : 0, half = middle != 0 ? fabs(middle) * 0.1 : 1;
        low = middle - half;
        high = middle + half;
    }
    const double rough = (high - low) / ticks, power = pow(10, floor(log10(rough)));
    const double times = rough / power;
    const double step = power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
    if (round_ends) {
        low = floor(low / step) * step;
        high = ceil(high / step) * step;
    }
    return (axis){low, high, step, from, to, false, false};
}

/* 1, 2 or 5 times a power of ten: the one at or below value, or the next one. */
static double round_power(double value, bool up) {
    const double power = pow(10, floor(log10(value) + 1e-9)), times = value / power;
    if (up) return power * (times <= 1.0001 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
    return power * (times >= 4.9999 ? 5 : times >= 1.9999 ? 2 : 1);
}

static axis make_powers(double low, double high, double from, double to) {
    return (axis){round_power(low, false), round_power(high, true), 0, from, to, true, false};
}

/* The tick after one; of powers, fewer where there are many decades. */
static double next_tick(const axis *a, double value) {
    if (!a->powers) return value + a->step;
    if (a->high / a->low > 2e3) return pow(10, floor(log10(value) + 1e-9) + 1);
    return round_power(value * 1.01, true);
}

static double first_tick(const axis *a) {
    if (a->powers) return a->high / a->low > 2e3 ? pow(10, ceil(log10(a->low) - 1e-9)) : a->low;
    return ceil(a->low / a->step - 1e-9) * a->step;
}

/* What stands beside a tick. */
static number_text tick_text(const axis *a, double value) {
    const double scale = a->percent ? 100 : 1;
    number_text text;
    if (a->powers) text = number_of(value, 2, NUMBER_PAGE);
    else {
        const number_column column = number_column_of(scale * fmax(fabs(a->low), fabs(a->high)), scale * a->step);
        if (fabs(value) < a->step * 1e-9) value = 0;
        text = number_in(&column, scale * value);
    }
    const size_t used = strlen(text.text);
    if (a->percent) snprintf(text.text + used, sizeof text.text - used, " %%");
    return text;
}

static bool is_within(const axis *a, double value) { return value <= a->high * (1 + 1e-9) + a->step * 1e-6; }

/* The widest of its labels. */
static double label_width(const axis *a) {
    double width = 0;
    for (double value = first_tick(a); is_within(a, value); value = next_tick(a, value))
        width = fmax(width, number_width(tick_text(a, value).text));
    return width;
}

/* Where the drawing begins, right of the labels of y, and ends, so that the last label of x is not cut at the picture's edge. */
static void fit_sides(axis *x, const axis *y, double width, double right) {
    x->from = fmax(LEFT, label_width(y) + 14);
    x->to = width - fmax(right, label_width(x) / 2 + 3);
}

/* Ticks at 1, 2 or 5 times a power of ten, as many as there is room for beside each other, and at most so many. */
static void fit_ticks(axis *x, const axis *y, int ticks, bool round_ends, bool whole, double width, double right) {
    const double low = x->low, high = x->high;
    for (; ticks > 0; ticks--) {
        *x = make_axis(low, high, ticks, round_ends, 0, 0);
        if (whole && x->step < 1) x->step = 1;
        fit_sides(x, y, width, right);
        if (fabs(place(x, x->low + x->step) - x->from) > label_width(x) + 10) return;
    }
}

static bool is_faint(const chart_series *s) { return strcmp(s->style, "faint") == 0; }

/* A faint series (every step) does not count where there are others: the first steps would hide what comes after. */
static void extent(const chart_series *series, int n, bool vertical, double *low, double *high) {
    bool others = false;
    for (int s = 0; s < n; s++) others = others || (series[s].n > 0 && !is_faint(&series[s]));
    *low = INFINITY, *high = -INFINITY;
    for (int s = 0; s < n; s++) {
        if (vertical && others && is_faint(&series[s])) continue;
        for (int i = 0; i < series[s].n; i++) {
            const double value = vertical ? series[s].y[i] : series[s].x[i];
            if (!isfinite(value)) continue;
            *low = fmin(*low, value);
            *high = fmax(*high, value);
        }
    }
    if (!isfinite(*low)) *low = 0, *high = 1;
}

static void draw_axes(buffer *b, const axis *x, const axis *y, const char *x_label) {
    for (double value = first_tick(y); is_within(y, value); value = next_tick(y, value)) {
        const double at = place(y, value);
        buffer_add(b,
                   "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" "
                   "x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                   x->from, x->to, at, at, x->from - 8, at + 4, tick_text(y, value).text);
    }
    for (double value = first_tick(x); is_within(x, value); value = next_tick(x, value))
        buffer_add(b, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", place(x, value),
                   y->from + 18, tick_text(x, value).text);
    buffer_add(b, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x->from, x->to, y->from,
               y->from);
    buffer_add(b, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", (x->from + x->to) / 2,
               y->from + 35, x_label);
}

/* A long line is drawn by the means of its pieces. */
static void draw_line(buffer *b, const chart_series *s, const axis *x, const axis *y) {
    const int stride = s->n > MOST_POINTS ? (s->n + MOST_POINTS - 1) / MOST_POINTS : 1;
    buffer_add(b, "<path class=\"line %s\" d=\"", s->style);
    bool pen = false;
    for (int i = 0; i < s->n; i += stride) {
        double sx = 0, sy = 0;
        const int count = s->n - i < stride ? s->n - i : stride;
        for (int j = i; j < i + count; j++) sx += s->x[j] / count, sy += s->y[j] / count;
        if (!isfinite(sy)) {
            pen = false;
            continue;
        }
        /* outside of the box (a loss that began very high) it stays at the edge */
        const double py = place(y, fmin(fmax(sy, y->low), y->high));
        buffer_add(b, "%c%.1f %.1f", pen ? 'L' : 'M', place(x, sx), py);
        pen = true;
    }
    buffer_text(b, "\"/>");
}

/* A value of a chart, in full. */
static number_text value_text(const chart *c, double value) {
    number_text text = {""};
    if (!c->percent) return number_of(value, 4, NUMBER_PAGE);
    snprintf(text.text, sizeof text.text, "%.2f %%", 100 * value);
    return text;
}

static void draw_dots(buffer *b, const chart *c, const chart_series *s, const axis *x, const axis *y) {
    for (int i = 0; s->dots && i < s->n; i++) {
        if (!isfinite(s->y[i])) continue;
        buffer_add(b, "<circle class=\"dot %s\" r=\"%s\" cx=\"%.1f\" cy=\"%.1f\"><title>%s %g: %s%s%s</title></circle>",
                   s->style, s->n > 40 ? "1.5" : "3", place(x, s->x[i]), place(y, fmin(fmax(s->y[i], y->low), y->high)),
                   c->x_label, s->x[i], value_text(c, s->y[i]).text, s->name ? " " : "", s->name ? s->name : "");
    }
}

/* The ring round the point that the chart marks, and its value: on the side that the line does not come from, if there is room,
 * and never beyond the sides of the drawing. */
static void draw_best(buffer *b, const chart *c, const chart_series *s, const axis *x, const axis *y) {
    int best = 0;
    while (best < s->n && s->x[best] != c->best_x) best++;
    if (best == s->n || !isfinite(s->y[best])) return;
    char note[160];
    snprintf(note, sizeof note, "%s%s %.0f: %s", c->best_name, c->x_label, s->x[best], value_text(c, s->y[best]).text);
    const double px = place(x, s->x[best]), py = place(y, fmin(fmax(s->y[best], y->low), y->high));
    const double half = number_width(note) / 2;
    const double before =
        best > 0 && isfinite(s->y[best - 1]) ? place(y, fmin(fmax(s->y[best - 1], y->low), y->high)) : py;
    const bool below = before < py ? y->from - py >= 26 : py - y->to < 20;
    buffer_add(b,
               "<circle class=\"best %s\" r=\"6\" cx=\"%.1f\" cy=\"%.1f\"/><text class=\"note\" x=\"%.1f\" y=\"%.1f\" "
               "text-anchor=\"%s\">%s</text>",
               s->style, px, py, px, py + (below ? 21 : -13),
               px + half > x->to     ? "end"
               : px - half < x->from ? "start"
                                     : "middle",
               note);
}

/* Names at the ends of the lines, moved apart where they would meet. */
static void draw_names(buffer *b, const chart_series *series, int n, const axis *x, const axis *y) {
    enum { MOST = 8, APART = 15 };
    struct {
        double at;
        int s;
    } label[MOST];
    int count = 0;
    for (int s = 0; s < n && count < MOST; s++) {
        if (!series[s].name || !series[s].n || !isfinite(series[s].y[series[s].n - 1])) continue;
        double at = place(y, fmin(fmax(series[s].y[series[s].n - 1], y->low), y->high));
        int i = count++;
        for (; i > 0 && label[i - 1].at > at; i--) label[i] = label[i - 1];
        label[i].at = at;
        label[i].s = s;
    }
    for (int i = 1; i < count; i++)
        if (label[i].at < label[i - 1].at + APART) label[i].at = label[i - 1].at + APART;
    for (int i = count - 1, below = (int)y->from - 4; i >= 0; i--, below -= APART) /* not over the ticks of x */
        if (label[i].at > below) label[i].at = below;
    for (int i = 0; i < count; i++)
        buffer_add(b, "<text class=\"name %s\" x=\"%.1f\" y=\"%.1f\">%s</text>", series[label[i].s].style, x->to + 8,
                   label[i].at + 4, series[label[i].s].name);
}

void chart_lines(buffer *b, const chart *c, const chart_series *series, int n) {
    const int width = c->wide ? 960 : 470;
    double low, high, first, last;
    extent(series, n, true, &low, &high);
    extent(series, n, false, &first, &last);
    const bool powers = !c->percent && !c->linear && low > 0 && high / low > 12;
    for (int s = 0; s < n && !c->percent; s++)
        if (is_faint(&series[s])) high *= 1.3; /* room for some of it */
    if (!c->percent && !powers && low >= 0 && low < 0.4 * high) low = 0;
    axis y =
        powers ? make_powers(low, high, HEIGHT - BOTTOM, TOP) : make_axis(low, high, 5, true, HEIGHT - BOTTOM, TOP);
    if (c->percent && y.high > 1) y.high = 1;
    y.percent = c->percent;
    axis x = {.low = first, .high = last};
    fit_ticks(&x, &y, c->wide ? 10 : 6, false, true, width, c->wide ? 24 : RIGHT); /* epochs and steps are whole */
    buffer_add(b, "<figure%s><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
               c->wide ? " class=\"wide\"" : "", c->title, width, HEIGHT, c->title);
    draw_axes(b, &x, &y, c->x_label);
    for (int s = 0; s < n; s++) draw_line(b, &series[s], &x, &y);
    for (int s = 0; s < n; s++) draw_dots(b, c, &series[s], &x, &y);
    if (c->best >= 0 && c->best < n) draw_best(b, c, &series[c->best], &x, &y);
    draw_names(b, series, n, &x, &y);
    buffer_text(b, "</svg></figure>\n");
}

void chart_scatter(buffer *b, const char *title, const double *truth, const double *guess, int64_t n) {
    enum { SIDE = 440, MOST = 2000 };
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(truth[i]) || !isfinite(guess[i])) continue;
        low = fmin(low, fmin(truth[i], guess[i]));
        high = fmax(high, fmax(truth[i], guess[i]));
    }
    /* both have the same ticks: as many as fit beside each other along x */
    axis x = {.low = low, .high = high}, y = make_axis(low, high, 6, true, SIDE - BOTTOM, TOP);
    fit_ticks(&x, &y, 6, true, false, SIDE, 20);
    y = x;
    y.from = SIDE - BOTTOM, y.to = TOP;
    buffer_add(b, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
               title, SIDE, SIDE, title);
    draw_axes(b, &x, &y, "true value");
    buffer_add(b, "<line class=\"line ideal\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x.from, y.from, x.to,
               y.to);
    const int64_t stride = n > MOST ? (n + MOST - 1) / MOST : 1;
    for (int64_t i = 0; i < n; i += stride)
        if (isfinite(truth[i]) && isfinite(guess[i]))
            buffer_add(b,
                       "<circle class=\"point\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"><title>true %s, predicted "
                       "%s</title></circle>",
                       place(&x, truth[i]), place(&y, guess[i]), number_of(truth[i], 4, NUMBER_PAGE).text,
                       number_of(guess[i], 4, NUMBER_PAGE).text);
    buffer_text(b, "</svg></figure>\n");
}

void chart_confusion(buffer *b, const int64_t *counts, int n, const char *(*name)(const void *context, int label),
                     const void *context) {
    enum { SIDE = 960, MARGIN = 150, HEAD = 84 };
    const double cell = n > 10 ? (double)(SIDE - MARGIN - 70) / n : 64;
    const double width = MARGIN + cell * n + 70, height = HEAD + cell * 0.62 * n + 8;
    const double tall = cell * 0.62;
    const bool numbers = n <= 20;
    buffer_add(b,
               "<svg class=\"confusion\" viewBox=\"0 0 %.0f %.0f\" style=\"max-width:%.0fpx\" role=\"img\" "
               "aria-label=\"confusion matrix\">",
               width, height, width);
    for (int i = 0; i < n; i++) {
        int64_t total = 0;
        for (int j = 0; j < n; j++) total += counts[(int64_t)i * n + j];
        const double top = HEAD + tall * i;
        if (numbers || i % (n / 20 + 1) == 0) {
            buffer_add(b, "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", MARGIN - 8,
                       top + tall / 2 + 4);
            buffer_html(b, name(context, i));
            buffer_add(
                b, "</text><text class=\"label\" text-anchor=\"start\" transform=\"translate(%.1f 76) rotate(-40)\">",
                MARGIN + cell * (i + 0.5));
            buffer_html(b, name(context, i));
            buffer_text(b, "</text>");
        }
        for (int j = 0; j < n; j++) {
            const int64_t count = counts[(int64_t)i * n + j];
            const double share = total ? (double)count / (double)total : 0;
            /* the square root lets a few mistakes be seen beside thousands of right answers */
            buffer_add(b,
                       "<g><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
                       "fill-opacity=\"%.3f\"/>",
                       i == j ? "right" : "wrong", MARGIN + cell * j + 1, top + 1, cell - 2, tall - 2,
                       count ? 0.06 + 0.9 * sqrt(share) : 0.03);
            if (numbers && count)
                buffer_add(b, "<text class=\"count%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                           share > 0.35 ? " strong" : "", MARGIN + cell * (j + 0.5), top + tall / 2 + 4,
                           number_count(count).text);
            buffer_text(b, "<title>");
            buffer_html(b, name(context, i));
            buffer_text(b, i == j ? ", rightly: " : " taken for ");
            if (i != j) {
                buffer_html(b, name(context, j));
                buffer_text(b, ": ");
            }
            buffer_add(b, "%s of %s (%.1f %%)</title></g>", number_count(count).text, number_count(total).text,
                       100 * share);
        }
    }
    buffer_text(b, "</svg>\n");
}

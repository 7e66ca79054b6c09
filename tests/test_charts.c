/* The numbers and charts of the report: numbers as people write them, and labels that neither meet nor are cut, whatever the
 * range of the values. */
#include "cli/train/chart.h"
#include "cli/train/number.h"
#include "tests/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(numbers_are_written_in_full_where_people_would) {
    CHECK_TEXT(number_of(114680, 4, NUMBER_PAGE).text, "114\u202f680");
    CHECK_TEXT(number_of(65603, 4, NUMBER_PAGE).text, "65\u202f603");
    CHECK_TEXT(number_of(9816, 4, NUMBER_PAGE).text, "9816");
    CHECK_TEXT(number_of(439.4321, 4, NUMBER_PAGE).text, "439.4");
    CHECK_TEXT(number_of(-0.98164, 4, NUMBER_PAGE).text, "\u22120.9816");
    CHECK_TEXT(number_of(0.5, 4, NUMBER_PAGE).text, "0.5");
    CHECK_TEXT(number_of(100, 2, NUMBER_PAGE).text, "100");
    CHECK_TEXT(number_of(0, 4, NUMBER_PAGE).text, "0");
    CHECK_TEXT(number_of(1.5e9, 4, NUMBER_PAGE).text, "1.5 × 10⁹");
    CHECK_TEXT(number_of(-2.25e-12, 4, NUMBER_PAGE).text, "\u22122.25 × 10⁻¹²");
    CHECK_TEXT(number_of(NAN, 4, NUMBER_PAGE).text, "–");
    CHECK_TEXT(number_of(114680, 4, NUMBER_PLAIN).text, "114680");
    CHECK_TEXT(number_of(-1.5e-9, 4, NUMBER_PLAIN).text, "-1.5e-9");
    CHECK_TEXT(number_of(9.99996e-5, 4, NUMBER_PLAIN).text, "1e-4");
    CHECK_TEXT(number_of(-9.99999e7, 4, NUMBER_PAGE).text, "\u22121 × 10⁸");
    CHECK_TEXT(number_of(9.994e7, 3, NUMBER_PLAIN).text, "9.99e7");
    CHECK_TEXT(number_of(5e-324, 4, NUMBER_PLAIN).text, "4.941e-324"); /* the least double, 2^-1074 */
    CHECK_TEXT(number_of(1.797693e308, 4, NUMBER_PLAIN).text, "1.798e308");
    CHECK_TEXT(number_of(NAN, 4, NUMBER_PLAIN).text, "nan");
    CHECK_TEXT(number_count(1234567).text, "1\u202f234\u202f567");
    CHECK_TEXT(number_count(999).text, "999");
}

TEST(numbers_of_a_column_have_the_same_decimals) {
    const number_column money = number_column_of(413558, 41), parts = number_column_of(-0.95, 1e-4);
    CHECK_TEXT(number_in(&money, 176265.4).text, "176\u202f265");
    CHECK_TEXT(number_in(&money, 1.2).text, "1");
    CHECK_TEXT(number_in(&parts, 0.5).text, "0.5000");
    CHECK_TEXT(number_in(&parts, -0.12345).text, "\u22120.1235");
    number_column errors = money;
    errors.sign = true;
    CHECK_TEXT(number_in(&errors, 20075).text, "+20\u202f075");
    const number_column large = number_column_of(3e9, 5e8);
    CHECK_TEXT(number_in(&large, 1.5e9).text, "1.5 × 10⁹");
    CHECK_TEXT(number_in(&large, 0).text, "0");
    const number_column tiny = number_column_of(5e-324, 5e-324);
    CHECK_TEXT(number_in(&tiny, 5e-324).text, "5 × 10⁻³²⁴");
}

TEST(json_has_null_for_what_is_not_finite) {
    buffer b = {0};
    const double values[] = {0.25, NAN, INFINITY, -INFINITY, 1e300};
    for (int i = 0; i < 5; i++) {
        buffer_json_number(&b, values[i], 6);
        buffer_text(&b, " ");
    }
    CHECK_TEXT(b.at, "0.25 null null null 1e+300 ");
    buffer_free(&b);
}

/* ---- Labels ---- */

typedef struct label {
    double left, right, y;
    char text[80];
} label;

/* As wide as DejaVu Sans, the widest of the usual fonts, sets it at 12 pixels: digits take 0.636 of that, the point 0.318, a narrow
 * blank 0.2. */
static double set_width(const char *text) {
    double width = 0;
    for (const char *c = text; *c; c++) {
        if (((unsigned char)*c & 0xc0) == 0x80) continue;
        width += 12 * (*c == '.' ? 0.318 : strncmp(c, "\u202f", 3) == 0 ? 0.2 : 0.636);
    }
    return width;
}

/* The ticks and notes of a chart, in the order of the file. */
static int find_labels(const char *svg, label *labels, int most) {
    int n = 0;
    for (const char *at = svg; (at = strstr(at, "<text class=\"")) && n < most; at++) {
        double x, y;
        char style[16], anchor[16];
        label *to = &labels[n];
        if (sscanf(at, "<text class=\"%15[a-z]\" x=\"%lf\" y=\"%lf\" text-anchor=\"%15[a-z]\">%79[^<]", style, &x, &y,
                   anchor, to->text) != 5)
            continue;
        const double width = set_width(to->text);
        to->left = strcmp(anchor, "end") == 0 ? x - width : strcmp(anchor, "start") == 0 ? x : x - width / 2;
        to->right = to->left + width;
        to->y = y;
        n++;
    }
    return n;
}

static void check_labels(const char *what, double low, double high, const char *svg, double width) {
    label labels[64];
    const int n = find_labels(svg, labels, 64);
    CHECK(n >= 5);
    for (int i = 0; i < n; i++) {
        harness_check(labels[i].left >= 0 && labels[i].right <= width, __FILE__, __LINE__,
                      "%s from %g to %g: '%s' is cut: from %.1f to %.1f of %.0f", what, low, high, labels[i].text,
                      labels[i].left, labels[i].right, width);
        for (int k = 0; k < i; k++)
            harness_check(fabs(labels[i].y - labels[k].y) >= 10 || labels[i].left > labels[k].right + 3 ||
                              labels[k].left > labels[i].right + 3,
                          __FILE__, __LINE__, "%s from %g to %g: '%s' and '%s' meet", what, low, high, labels[k].text,
                          labels[i].text);
    }
}

static const struct {
    double low, high;
} ranges[] = {{50000, 450000}, {0, 1},        {-1e6, 1e6},      {9999999, 10000001}, {1e-9, 3e-9},
              {-0.001, 0.002}, {1e12, 3e12},  {123456, 123457}, {-99999, 9999},      {5, 5},
              {0, 0},          {-1e-7, 1e-7}, {3, 1e15}};
enum { RANGES = sizeof ranges / sizeof *ranges };

TEST(labels_of_a_scatter_plot_neither_meet_nor_are_cut) {
    for (int r = 0; r < RANGES; r++) {
        const double values[2] = {ranges[r].low, ranges[r].high};
        buffer b = {0};
        chart_scatter(&b, "title", values, values, 2);
        CHECK(!b.failed);
        check_labels("scatter", ranges[r].low, ranges[r].high, b.at, 440);
        buffer_free(&b);
    }
}

TEST(labels_of_lines_neither_meet_nor_are_cut) {
    static const double ends[] = {3, 10, 100, 12345, 1000000};
    for (int r = 0; r < RANGES; r++)
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
            const double x[2] = {1, ends[e]}, y[2] = {ranges[r].low, ranges[r].high};
            const chart_series series = {NULL, "valid", x, y, 2, true};
            for (int wide = 0; wide < 2; wide++) {
                buffer b = {0};
                chart_lines(&b, &(chart){.title = "title", .x_label = "step", .best = -1, .wide = wide}, &series, 1);
                CHECK(!b.failed);
                check_labels("lines", ranges[r].low, ranges[r].high, b.at, wide ? 960 : 470);
                buffer_free(&b);
            }
        }
}

TEST(charts_mark_the_point_that_they_are_told_to) {
    const double x[4] = {1, 2, 3, 4}, y[4] = {5, 2, 3, 1};
    const chart_series series = {"validation", "valid", x, y, 4, true};
    buffer b = {0};
    chart_lines(&b, &(chart){.title = "t", .x_label = "epoch", .best_x = 3, .best_name = "best, "}, &series, 1);
    REQUIRE(!b.failed);
    CHECK(strstr(b.at, ">best, epoch 3: 3</text>"));
    buffer_free(&b);
    b = (buffer){0};
    chart_lines(&b, &(chart){.title = "t", .x_label = "epoch", .best_x = 9, .best_name = ""}, &series, 1);
    CHECK(!strstr(b.at, "class=\"best"));
    buffer_free(&b);
}

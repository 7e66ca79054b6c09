/* Numbers as people write them: one way for the report, its charts and the terminal. */
#ifndef COTANGENT_CLI_TRAIN_NUMBER_H
#define COTANGENT_CLI_TRAIN_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* plain: for a terminal and for machines, ASCII. page: UTF-8 with narrow blanks between thousands ("114 680"), a true minus, and
 * powers of ten as such ("1.5 × 10⁹"). */
typedef enum number_style { NUMBER_PLAIN, NUMBER_PAGE } number_style;

/* A text by value, so that number_of(...).text can stand among the arguments of a call. */
typedef struct number_text {
    char text[64];
} number_text;

/* With so many significant digits, zeros at the end left away; a whole part is written in full, and only what is beyond ten
 * millions or below a ten thousandth with a power of ten. */
number_text number_of(double value, int digits, number_style style);
/* A part of a whole in percent; a dash where there is no whole (NaN). */
number_text number_percent(double part, int decimals, number_style style);
/* A count, in full. */
number_text number_count(int64_t value);

/* Numbers that stand below each other, or along an axis: all with the same decimals, which the largest of them and the least
 * difference that matters decide. */
typedef struct number_column {
    int decimals;
    int power; /* all are multiples of 10^power; 0: as they are */
    bool sign; /* a plus where there is no minus */
} number_column;
number_column number_column_of(double largest, double least);
number_text number_in(const number_column *column, double value);

/* About how wide a text is in a chart, whose letters are 12 units high. */
double number_width(const char *text);

#endif

/* CSV in two steps: cells out of a text (csv_cells.c), and numbers out of cells (csv.c). How they were made can be stored
 * (csv_state.c). */
#ifndef COTANGENT_DATA_CSV_H
#define COTANGENT_DATA_CSV_H

#include "data/data.h"

typedef struct ct__cells {
    char **cell;   /* (rows, columns), texts inside the file's memory */
    int64_t *line; /* (rows) where each begins, from 1 */
    char **name;   /* (columns), or NULL without a header */
    int64_t rows;
    int columns;
} ct__cells;

/* Cuts text in place: separators become ends of strings, quotes are taken away. text[size] is written to as well. */
bool ct__csv_cut(char *text, size_t size, const char *path, char separator, bool header, ct__cells *cells);
void ct__csv_free(ct__cells *cells);

/* What a dataset remembers of its file. */
typedef struct ct__csv_info {
    int columns, target;
    bool regression, standardize;
    struct ct__csv_column {
        ct_csv_column shown;
        char *name;
        char **category; /* in the order of their numbers */
        struct ct__csv_entry {
            const char *text;
            int64_t number;
        } * by_text; /* the same, sorted by text, to search in */
    } * column;
} ct__csv_info;
void ct__csv_free_info(void *info);
/* Gives a column n categories, in the order of their numbers. */
bool ct__csv_copy_categories(struct ct__csv_column *column, const char *const *text, int64_t n);

/* The dataset that a whole file holds; text is changed. path is only for error texts. */
ct_dataset *ct__csv_parse(char *text, size_t size, const char *path, const ct_csv_options *options);

#endif

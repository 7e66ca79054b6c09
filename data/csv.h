/* CSV in two steps: cells out of a text (csv_cells.c), and numbers out of cells (csv.c). */
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

/* The dataset that a whole file holds; text is changed. path is only for error texts. */
ct_dataset *ct__csv_parse(char *text, size_t size, const char *path, const ct_csv_options *options);

#endif

/* Cuts the text of a CSV file into cells, in place. Lines end with LF or CRLF; empty lines are passed over; a field may
 * be in double quotes, which are doubled inside it. */
#include "data/csv.h"

enum { MOST_COLUMNS = 1 << 16 };

typedef struct reader {
    char *at, *end; /* what is left */
    char separator;
    int64_t line;
    const char *path;
} reader;

typedef enum field_end { AT_SEPARATOR, AT_LINE_END, AT_TEXT_END, BROKEN } field_end;

void ct__csv_free(ct__cells *cells) {
    ct_free(cells->cell);
    ct_free(cells->line);
    ct_free(cells->name);
    *cells = (ct__cells){0};
}

static bool is_blank(char c, char separator) { return (c == ' ' || c == '\t') && c != separator; }

/* What stands behind a field, and steps over it. */
static field_end step_over(reader *r) {
    if (r->at == r->end) return AT_TEXT_END;
    if (*r->at == r->separator) {
        r->at++;
        return AT_SEPARATOR;
    }
    r->at += r->at[0] == '\r';
    r->at++;
    return AT_LINE_END;
}

static bool at_line_end(const reader *r) {
    return r->at == r->end || *r->at == '\n' || (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n');
}

/* A quoted field: the reader stands behind its first quote. The end of the text it makes is not written yet, since the
 * byte there may be the separator that is still to be looked at. */
static bool read_quoted(reader *r, char **end_of_text) {
    const int64_t began = r->line;
    char *to = r->at;
    for (;; r->at++) {
        if (r->at == r->end)
            return ct_fail(CT_ERR_IO, "dataset_csv", "%s, line %lld: a quote is not closed", r->path, (long long)began);
        if (*r->at == '"') {
            if (r->at + 1 < r->end && r->at[1] == '"') r->at++;
            else break;
        }
        r->line += *r->at == '\n';
        *to++ = *r->at;
    }
    r->at++;
    while (r->at < r->end && is_blank(*r->at, r->separator)) r->at++;
    if (!at_line_end(r) && *r->at != r->separator)
        return ct_fail(CT_ERR_IO, "dataset_csv", "%s, line %lld: text after a closing quote", r->path,
                       (long long)r->line);
    *end_of_text = to;
    return true;
}

static field_end read_field(reader *r, char **field) {
    while (r->at < r->end && is_blank(*r->at, r->separator)) r->at++;
    char *stop = r->at;
    if (r->at < r->end && *r->at == '"') {
        r->at++;
        *field = r->at;
        if (!read_quoted(r, &stop)) return BROKEN;
    } else {
        *field = r->at;
        while (!at_line_end(r) && *r->at != r->separator) r->at++;
        stop = r->at;
        while (stop > *field && is_blank(stop[-1], r->separator)) stop--;
    }
    const field_end how = step_over(r);
    *stop = 0;
    return how;
}

/* Room for one more row. */
static bool grow(ct__cells *cells, int64_t *room) {
    if (cells->rows < *room) return true;
    const int64_t more = *room ? 2 * *room : 64;
    const size_t row = (size_t)cells->columns * sizeof *cells->cell;
    char **cell = ct_realloc(cells->cell, (size_t)more * row);
    if (cell) cells->cell = cell;
    int64_t *line = ct_realloc(cells->line, (size_t)more * sizeof *line);
    if (line) cells->line = line;
    if (!cell || !line) return ct__no_memory("dataset_csv", (size_t)more * (row + sizeof *line));
    *room = more;
    return true;
}

/* The first line decides how many columns there are. */
static bool read_first(reader *r, ct__cells *cells, bool header, int64_t *room) {
    int space = 0, count = 0;
    char **row = NULL;
    const int64_t line = r->line;
    for (field_end how = AT_SEPARATOR; how == AT_SEPARATOR; count++) {
        if (count == space) {
            space = space ? 2 * space : 16;
            char **more = count < MOST_COLUMNS ? ct_realloc(row, (size_t)space * sizeof *row) : NULL;
            if (!more) {
                ct_free(row);
                return count < MOST_COLUMNS
                           ? ct__no_memory("dataset_csv", (size_t)space * sizeof *row)
                           : ct_fail(CT_ERR_IO, "dataset_csv", "%s: has more than %d columns", r->path, MOST_COLUMNS);
            }
            row = more;
        }
        how = read_field(r, &row[count]);
        r->line += how == AT_LINE_END;
        if (how == BROKEN) {
            ct_free(row);
            return false;
        }
    }
    cells->columns = count;
    if (header) {
        cells->name = row;
        return true;
    }
    const bool ok = grow(cells, room);
    if (ok) {
        memcpy(cells->cell, row, (size_t)count * sizeof *row);
        cells->line[0] = line;
        cells->rows = 1;
    }
    ct_free(row);
    return ok;
}

static bool read_row(reader *r, ct__cells *cells, int64_t *room) {
    if (!grow(cells, room)) return false;
    char **row = cells->cell + cells->rows * cells->columns, *extra;
    const int64_t line = r->line;
    int count = 0;
    for (field_end how = AT_SEPARATOR; how == AT_SEPARATOR; count++) {
        how = read_field(r, count < cells->columns ? &row[count] : &extra);
        r->line += how == AT_LINE_END;
        if (how == BROKEN) return false;
    }
    if (count != cells->columns)
        return ct_fail(CT_ERR_IO, "dataset_csv", "%s, line %lld: has %d fields; expected %d", r->path, (long long)line,
                       count, cells->columns);
    cells->line[cells->rows++] = line;
    return true;
}

static void skip_empty_lines(reader *r) {
    while (r->at < r->end && at_line_end(r)) {
        step_over(r);
        r->line++;
    }
}

bool ct__csv_cut(char *text, size_t size, const char *path, char separator, bool header, ct__cells *cells) {
    *cells = (ct__cells){0};
    const char *zero = size ? memchr(text, 0, size) : NULL;
    if (zero)
        return ct_fail(CT_ERR_IO, "dataset_csv", "%s: is not a text: byte %zu is zero", path, (size_t)(zero - text));
    reader r = {text, text + size, separator, 1, path};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) r.at += 3; /* the mark that some editors put in front */
    skip_empty_lines(&r);
    int64_t room = 0;
    bool ok = r.at < r.end || ct_fail(CT_ERR_IO, "dataset_csv", "%s: is empty", path);
    ok = ok && read_first(&r, cells, header, &room);
    for (skip_empty_lines(&r); ok && r.at < r.end; skip_empty_lines(&r)) ok = read_row(&r, cells, &room);
    if (ok && cells->rows == 0) ok = ct_fail(CT_ERR_IO, "dataset_csv", "%s: has a header but no data", path);
    if (!ok) ct__csv_free(cells);
    return ok;
}

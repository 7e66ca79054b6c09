/* Numbers out of the cells of a CSV file: which columns are categories, what their numbers are, means and
 * deviations. */
#include "data/csv.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "data/memory.h"
#include "support/bytes.h"

typedef struct csv_job {
    ct__cells cells;
    ct__csv_info *info;
    const ct__csv_info *like;
    bool unlabeled; /* the target is not read */
    int absent;     /* the column of the target, which the file lacks; -1: it has all */
    const char *path;
    locale_t plain; /* numbers are written with a point whatever the program's language */
} csv_job;

void ct__csv_free_info(void *memory) {
    ct__csv_info *info = memory;
    for (int c = 0; info && info->column && c < info->columns; c++) {
        for (int64_t i = 0; info->column[c].category && i < info->column[c].shown.categories; i++)
            ct_free(info->column[c].category[i]);
        ct_free(info->column[c].category);
        ct_free(info->column[c].by_text);
        ct_free(info->column[c].name);
    }
    if (info) ct_free(info->column);
    ct_free(info);
}

static bool is_missing(const char *cell) {
    static const char *const words[] = {"", "NA", "N/A", "NaN", "null", "?"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(cell, words[i]) == 0) return true;
    return false;
}

/* A number as people write it; not the hexadecimal, infinite and other forms that C knows as well. */
static bool to_number(locale_t plain, const char *cell, double *value) {
    if (!cell[0] || strspn(cell, "0123456789+-.eE") != strlen(cell)) return false;
    char *end;
    *value = strtod_l(cell, &end, plain);
    return *end == 0 && end != cell && fabs(*value) <= 3.4028234e38;
}

/* Where in the file a column is. */
static int place_of(const csv_job *job, int column) { return column - (job->absent >= 0 && column > job->absent); }

static char *cell_at(const csv_job *job, int64_t row, int column) {
    return job->cells.cell[row * job->cells.columns + place_of(job, column)];
}

static bool bad_cell(const csv_job *job, int64_t row, int column, const char *what) {
    return ct_fail(CT_ERR_IO, "dataset_csv", "%s, line %lld, column %s: %s", job->path, (long long)job->cells.line[row],
                   job->info->column[column].name, what);
}

/* ---- Columns and the target ---- */

static bool name_columns(csv_job *job) {
    ct__csv_info *info = job->info;
    for (int c = 0; c < info->columns; c++) {
        char number[16];
        snprintf(number, sizeof number, "%d", c);
        const char *name = c == job->absent  ? job->like->column[c].name
                           : job->cells.name ? job->cells.name[place_of(job, c)]
                                             : number;
        info->column[c].name = ct__copy_text("dataset_csv", name, strlen(name));
        if (!info->column[c].name) return false;
        info->column[c].shown.name = info->column[c].name;
    }
    return true;
}

static int find_column(const ct__csv_info *info, const char *name, size_t length) {
    for (int c = 0; c < info->columns; c++)
        if (strlen(info->column[c].name) == length && memcmp(info->column[c].name, name, length) == 0) return c;
    return -1;
}

/* By name, or else by number; -1 is the last. */
static bool find_target(csv_job *job, const char *target) {
    ct__csv_info *info = job->info;
    info->target = target ? find_column(info, target, strlen(target)) : info->columns - 1;
    if (info->target < 0) {
        char *end;
        const long number = strtol(target, &end, 10);
        if (target[0] && *end == 0 && number < info->columns && number >= -info->columns)
            info->target = (int)(number < 0 ? number + info->columns : number);
    }
    if (info->target < 0)
        return ct_fail(CT_ERR_VALUE, "dataset_csv", "%s: has no column %s; the first of its %d columns is %s",
                       job->path, target, info->columns, info->column[0].name);
    info->column[info->target].shown.target = true;
    if (info->columns < 2)
        return ct_fail(CT_ERR_VALUE, "dataset_csv", "%s: has no column beside the target %s", job->path,
                       info->column[0].name);
    return true;
}

static bool same_columns(const csv_job *job) {
    const ct__csv_info *a = job->info, *b = job->like;
    for (int c = 0; c < b->columns; c++)
        if (find_column(a, b->column[c].name, strlen(b->column[c].name)) < 0)
            return ct_fail(CT_ERR_VALUE, "dataset_csv",
                           "%s: has no column %s; the dataset that it is to be like has one", job->path,
                           b->column[c].name);
    if (a->columns != b->columns)
        return ct_fail(CT_ERR_VALUE, "dataset_csv", "%s: has %d columns; the dataset that it is to be like has %d",
                       job->path, a->columns, b->columns);
    for (int c = 0; c < a->columns; c++)
        if (strcmp(a->column[c].name, b->column[c].name) != 0)
            return ct_fail(CT_ERR_VALUE, "dataset_csv",
                           "%s: column %d is %s; in the dataset that it is to be like it is %s", job->path, c,
                           a->column[c].name, b->column[c].name);
    return true;
}

/* ---- Categories ---- */

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

typedef struct numbered {
    double value;
    char *text;
} numbered;
static int compare_numbers(const void *a, const void *b) {
    const numbered *x = a, *y = b;
    return x->value < y->value ? -1 : x->value > y->value ? 1 : strcmp(x->text, y->text);
}

/* Texts that are all whole numbers go in the order of the numbers: 2 before 10. */
static bool sort_as_numbers(const csv_job *job, char **text, int64_t n) {
    numbered *list = ct__zeroed("dataset_csv", n, sizeof *list);
    if (!list) return false;
    bool all = true;
    for (int64_t i = 0; all && i < n; i++) {
        list[i].text = text[i];
        all = to_number(job->plain, text[i], &list[i].value) && list[i].value == floor(list[i].value);
    }
    if (all) {
        qsort(list, (size_t)n, sizeof *list, compare_numbers);
        for (int64_t i = 0; i < n; i++) text[i] = list[i].text;
    }
    ct_free(list);
    return true;
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const struct ct__csv_entry *)a)->text, ((const struct ct__csv_entry *)b)->text);
}

bool ct__csv_copy_categories(struct ct__csv_column *column, const char *const *text, int64_t n) {
    column->category = ct__zeroed("dataset_csv", n, sizeof *column->category);
    column->by_text = column->category ? ct__zeroed("dataset_csv", n, sizeof *column->by_text) : NULL;
    if (!column->by_text) return false;
    column->shown.categories = n;
    for (int64_t i = 0; i < n; i++) {
        column->category[i] = ct__copy_text("dataset_csv", text[i], strlen(text[i]));
        if (!column->category[i]) return false;
        column->by_text[i] = (struct ct__csv_entry){column->category[i], i};
    }
    qsort(column->by_text, (size_t)n, sizeof *column->by_text, compare_entries);
    return true;
}

static bool collect_categories(csv_job *job, int c) {
    const int64_t rows = job->cells.rows;
    char **text = ct__zeroed("dataset_csv", rows, sizeof *text);
    if (!text) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < rows; i++) {
        text[i] = cell_at(job, i, c);
        if (is_missing(text[i])) ok = bad_cell(job, i, c, "the value is missing");
    }
    if (ok) {
        qsort(text, (size_t)rows, sizeof *text, compare_texts);
        int64_t n = 0;
        for (int64_t i = 0; i < rows; i++)
            if (i == 0 || strcmp(text[i], text[n - 1]) != 0) text[n++] = text[i];
        ok = sort_as_numbers(job, text, n) &&
             ct__csv_copy_categories(&job->info->column[c], (const char *const *)text, n);
    }
    ct_free(text);
    return ok;
}

static int64_t find_category(const struct ct__csv_column *column, const char *cell) {
    const struct ct__csv_entry key = {cell, 0};
    const struct ct__csv_entry *found =
        bsearch(&key, column->by_text, (size_t)column->shown.categories, sizeof key, compare_entries);
    return found ? found->number : -1;
}

static bool decide_kinds(csv_job *job, const char *categorical, char separator) {
    ct__csv_info *info = job->info;
    bool *listed = ct__zeroed("dataset_csv", info->columns, sizeof *listed);
    bool ok = listed != NULL;
    for (const char *at = categorical; ok && at && *at;) {
        const char *end = strchr(at, separator);
        const size_t length = end ? (size_t)(end - at) : strlen(at);
        const int c = find_column(info, at, length);
        if (c < 0)
            ok = ct_fail(CT_ERR_VALUE, "dataset_csv", "%s: has no column %.*s, which is to be categorical", job->path,
                         (int)length, at);
        else listed[c] = true;
        at = end ? end + 1 : NULL;
    }
    for (int c = 0; ok && c < info->columns; c++) {
        double value;
        const char *first = cell_at(job, 0, c);
        const bool target = c == info->target;
        if (target ? !info->regression : listed[c] || !(is_missing(first) || to_number(job->plain, first, &value)))
            ok = collect_categories(job, c);
    }
    ct_free(listed);
    return ok;
}

static bool copy_kinds(csv_job *job) {
    for (int c = 0; c < job->info->columns; c++) {
        const struct ct__csv_column *from = &job->like->column[c];
        job->info->column[c].shown.mean = from->shown.mean;
        job->info->column[c].shown.std = from->shown.std;
        if (from->category && !ct__csv_copy_categories(&job->info->column[c], (const char *const *)from->category,
                                                       from->shown.categories))
            return false;
    }
    return true;
}

/* ---- Numbers ---- */

static bool read_cell(const csv_job *job, int64_t row, int c, double *value) {
    const struct ct__csv_column *column = &job->info->column[c];
    const char *cell = cell_at(job, row, c);
    char text[256];
    if (is_missing(cell)) return bad_cell(job, row, c, "the value is missing");
    if (column->category) {
        *value = (double)find_category(column, cell);
        if (*value >= 0) return true;
        snprintf(text, sizeof text, "'%.100s' is not one of the %lld categories that are known", cell,
                 (long long)column->shown.categories);
    } else {
        if (to_number(job->plain, cell, value)) return true;
        snprintf(text, sizeof text, "'%.100s' is not a number", cell);
    }
    return bad_cell(job, row, c, text);
}

static void measure(struct ct__csv_column *column, const double *values, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    column->shown.mean = mean;
    column->shown.std = sqrt(squares / (double)n);
}

/* One column after the other: x is (rows, columns - 1), y class numbers or (rows, 1). */
static bool fill(csv_job *job, float *x, void *y) {
    ct__csv_info *info = job->info;
    const int64_t rows = job->cells.rows;
    const int width = info->columns - 1;
    double *values = ct__zeroed("dataset_csv", rows, sizeof *values);
    bool ok = values != NULL;
    for (int c = 0; ok && c < info->columns; c++) {
        struct ct__csv_column *column = &info->column[c];
        if (c == info->target && job->unlabeled) continue;
        for (int64_t i = 0; ok && i < rows; i++) ok = read_cell(job, i, c, &values[i]);
        if (!ok) break;
        if (!column->category && !job->like) measure(column, values, rows);
        if (c == info->target) {
            for (int64_t i = 0; i < rows; i++) {
                if (info->regression) ((float *)y)[i] = (float)values[i];
                else ((int64_t *)y)[i] = (int64_t)values[i];
            }
            continue;
        }
        const bool scaled = info->standardize && !column->category;
        const double mean = scaled ? column->shown.mean : 0;
        const double std = scaled && column->shown.std > 0 ? column->shown.std : 1;
        float *to = x + (c > info->target ? c - 1 : c);
        for (int64_t i = 0; i < rows; i++) to[i * width] = (float)((values[i] - mean) / std);
    }
    ct_free(values);
    return ok;
}

static ct_dataset *build(csv_job *job) {
    ct__csv_info *info = job->info;
    const int64_t rows = job->cells.rows;
    ct_dataset *dataset = NULL;
    ct_scope {
        void *x, *y = NULL;
        ct_tensor *fields[2] = {ct__blank(CT_DIMS(rows, info->columns - 1), CT_F32, &x), NULL};
        if (!job->unlabeled)
            fields[1] =
                info->regression ? ct__blank(CT_DIMS(rows, 1), CT_F32, &y) : ct__blank(CT_DIMS(rows), CT_I64, &y);
        if (fields[0] && (fields[1] || job->unlabeled) && fill(job, x, y))
            dataset = ct__memory_csv(fields, job->unlabeled ? 1 : 2, info, ct__csv_free_info);
    }
    if (!dataset) return NULL;
    job->info = NULL; /* the dataset's now */
    const struct ct__csv_column *target = &info->column[info->target];
    if (!info->regression &&
        !ct_dataset_set_classes(dataset, target->shown.categories, (const char *const *)target->category)) {
        ct_dataset_free(dataset);
        return NULL;
    }
    return dataset;
}

static bool prepare(csv_job *job, const ct_csv_options *o, char separator) {
    ct__csv_info *info = job->info = ct__zeroed("dataset_csv", 1, sizeof *job->info);
    if (!info) return false;
    /* with the target's column left away the others are still at their places */
    if (job->unlabeled && job->cells.columns == job->like->columns - 1) job->absent = job->like->target;
    const int columns = job->cells.columns + (job->absent >= 0);
    info->column = ct__zeroed("dataset_csv", columns, sizeof *info->column);
    if (!info->column) return false;
    info->columns = columns;
    if (!name_columns(job)) return false;
    if (!job->like) {
        info->regression = o->regression;
        info->standardize = o->standardize;
        return find_target(job, o->target) && decide_kinds(job, o->categorical, separator);
    }
    if (!same_columns(job)) return false;
    info->regression = job->like->regression;
    info->standardize = job->like->standardize;
    info->target = job->like->target;
    info->column[info->target].shown.target = true;
    return copy_kinds(job);
}

ct_dataset *ct__csv_parse(char *text, size_t size, const char *path, const ct_csv_options *options) {
    TAKE_OPTIONS(ct_csv_options, o, options);
    const char separator = o.separator ? o.separator : ',';
    if (separator == '"' || separator == '\n' || separator == '\r') {
        ct_fail(CT_ERR_VALUE, "dataset_csv", "the separator is a quote or a line end");
        return NULL;
    }
    if (o.like && !ct__memory_is_csv(o.like)) {
        ct_fail(CT_ERR_VALUE, "dataset_csv", "like is a dataset of the kind %s; expected one of CSV",
                o.like->type->name);
        return NULL;
    }
    if (o.unlabeled && !o.like) {
        ct_fail(CT_ERR_VALUE, "dataset_csv", "unlabeled needs like, the dataset that says what the columns are");
        return NULL;
    }
    csv_job job = {.like = ct__memory_extra(o.like), .unlabeled = o.unlabeled, .absent = -1, .path = path};
    job.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!job.plain) {
        ct__no_memory("dataset_csv", 1);
        return NULL;
    }
    ct_dataset *dataset = NULL;
    if (ct__csv_cut(text, size, path, separator, !o.no_header, &job.cells) && prepare(&job, &o, separator))
        dataset = build(&job);
    ct__csv_free_info(job.info);
    ct__csv_free(&job.cells);
    freelocale(job.plain);
    return dataset;
}

ct_dataset *ct_dataset_csv_p(const char *path, const ct_csv_options *options) {
    if (!path) {
        ct__null("dataset_csv", "path");
        return NULL;
    }
    size_t size;
    char *text = (char *)ct__bytes_load(path, "dataset_csv", 0, &size);
    if (!text) return NULL;
    ct_dataset *dataset = ct__csv_parse(text, size, path, options);
    ct_free(text);
    return dataset;
}

const ct_csv_column *ct_csv_column_at(const ct_dataset *dataset, int i) {
    const ct__csv_info *info = ct__memory_extra(dataset);
    return info && i >= 0 && i < info->columns ? &info->column[i].shown : NULL;
}

const char *ct_csv_category(const ct_dataset *dataset, int i, int64_t number) {
    const ct_csv_column *column = ct_csv_column_at(dataset, i);
    if (!column || number < 0 || number >= column->categories) return NULL;
    return ((const ct__csv_info *)ct__memory_extra(dataset))->column[i].category[number];
}

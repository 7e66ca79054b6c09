/* How the numbers of a CSV dataset were made of its file, to be stored with a network and taken for other files. Texts are
 * bytes, each ended by a zero, since a file need not be UTF-8: of each column its name, then its categories. */
#include "data/csv.h"

#include <limits.h>
#include <stdio.h>

#include "data/memory.h"

enum { FACTS = 3 }; /* target, regression, standardize */

static const char *full_name(char *name, size_t capacity, const char *prefix, const char *what) {
    snprintf(name, capacity, "%s%s", prefix ? prefix : "", what);
    return name;
}

static char *add_text(char *to, const char *text) {
    const size_t n = strlen(text) + 1;
    if (to) memcpy(to, text, n);
    return to ? to + n : NULL;
}

static bool put_texts(const ct__csv_info *info, ct_state *state, const char *name) {
    size_t bytes = 0;
    for (int c = 0; c < info->columns; c++) {
        bytes += strlen(info->column[c].name) + 1;
        for (int64_t i = 0; i < info->column[c].shown.categories; i++) bytes += strlen(info->column[c].category[i]) + 1;
    }
    bool ok = false;
    ct_scope {
        void *memory;
        ct_tensor *texts = ct__blank(CT_DIMS((int64_t)bytes), CT_U8, &memory);
        char *to = texts ? memory : NULL;
        for (int c = 0; c < info->columns; c++) {
            to = add_text(to, info->column[c].name);
            for (int64_t i = 0; i < info->column[c].shown.categories; i++)
                to = add_text(to, info->column[c].category[i]);
        }
        ok = texts && ct_state_put(state, name, texts);
    }
    return ok;
}

bool ct_csv_put_state(const ct_dataset *dataset, ct_state *state, const char *prefix) {
    const ct__csv_info *info = ct__memory_extra(dataset);
    char name[256];
    if (!ct_ok()) return false;
    if (!info) return ct_fail(CT_ERR_VALUE, "csv_put_state", "this is not a dataset of CSV");
    if (!state) return ct__null("csv_put_state", "state");
    const int64_t facts[FACTS] = {info->target, info->regression, info->standardize};
    int64_t *categories = ct__zeroed("csv_put_state", info->columns, sizeof *categories);
    double *numbers = categories ? ct__zeroed("csv_put_state", info->columns, 2 * sizeof *numbers) : NULL;
    for (int c = 0; numbers && c < info->columns; c++) {
        categories[c] = info->column[c].shown.categories;
        numbers[2 * c] = info->column[c].shown.mean;
        numbers[2 * c + 1] = info->column[c].shown.std;
    }
    const bool ok =
        numbers && ct_state_put_integers(state, full_name(name, sizeof name, prefix, "facts"), facts, FACTS) &&
        ct_state_put_integers(state, full_name(name, sizeof name, prefix, "categories"), categories, info->columns) &&
        ct_state_put_numbers(state, full_name(name, sizeof name, prefix, "numbers"), numbers, 2 * info->columns) &&
        put_texts(info, state, full_name(name, sizeof name, prefix, "texts"));
    ct_free(categories);
    ct_free(numbers);
    return ok;
}

/* ---- Back ---- */

/* The next text of those that are left; NULL when none is. */
static const char *next_text(const char **at, const char *end) {
    const char *text = *at, *stop = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (stop) *at = stop + 1;
    return stop ? text : NULL;
}

static bool take_column(struct ct__csv_column *column, int64_t categories, const char **at, const char *end) {
    const char *name = next_text(at, end);
    if (!name || categories < 0 || categories > end - *at) return false;
    column->name = ct__copy_text("csv_take_state", name, strlen(name));
    column->shown.name = column->name;
    if (!column->name || categories == 0) return column->name != NULL;
    const char **text = ct__zeroed("csv_take_state", categories, sizeof *text);
    bool ok = text != NULL;
    for (int64_t i = 0; ok && i < categories; i++) ok = (text[i] = next_text(at, end)) != NULL;
    ok = ok && ct__csv_copy_categories(column, text, categories);
    ct_free(text);
    return ok;
}

static bool take_info(ct__csv_info *info, const ct_state *state, const char *prefix, ct_tensor *texts) {
    char name[256];
    int64_t facts[FACTS], *categories = ct__zeroed("csv_take_state", info->columns, sizeof *categories);
    double *numbers = categories ? ct__zeroed("csv_take_state", info->columns, 2 * sizeof *numbers) : NULL;
    bool ok = numbers && ct_state_integers(state, full_name(name, sizeof name, prefix, "facts"), facts, FACTS) &&
              ct_state_integers(state, full_name(name, sizeof name, prefix, "categories"), categories, info->columns) &&
              ct_state_numbers(state, full_name(name, sizeof name, prefix, "numbers"), numbers, 2 * info->columns);
    const char *at = ok ? ct_data(texts) : NULL, *end = at ? at + ct_numel(texts) : NULL;
    for (int c = 0; ok && c < info->columns; c++) {
        ok = take_column(&info->column[c], categories[c], &at, end);
        info->column[c].shown.mean = numbers[2 * c];
        info->column[c].shown.std = numbers[2 * c + 1];
    }
    ok = ok && at == end && facts[0] >= 0 && facts[0] < info->columns &&
         (facts[1] != 0) == (info->column[facts[0]].category == NULL);
    if (ok) {
        info->target = (int)facts[0];
        info->regression = facts[1] != 0;
        info->standardize = facts[2] != 0;
        info->column[info->target].shown.target = true;
    }
    ct_free(categories);
    ct_free(numbers);
    return ok;
}

static ct_dataset *empty_like(ct__csv_info *info) {
    ct_dataset *dataset = NULL;
    ct_scope {
        void *none;
        ct_tensor *fields[2] = {ct__blank(CT_DIMS(0, info->columns - 1), CT_F32, &none), NULL};
        fields[1] = info->regression ? ct__blank(CT_DIMS(0, 1), CT_F32, &none) : ct__blank(CT_DIMS(0), CT_I64, &none);
        if (fields[0] && fields[1]) dataset = ct__memory_csv(fields, 2, info, ct__csv_free_info);
    }
    if (!dataset) {
        ct__csv_free_info(info);
        return NULL;
    }
    const struct ct__csv_column *target = &info->column[info->target];
    if (info->regression ||
        ct_dataset_set_classes(dataset, target->shown.categories, (const char *const *)target->category))
        return dataset;
    ct_dataset_free(dataset);
    return NULL;
}

ct_dataset *ct_csv_take_state(const ct_state *state, const char *prefix) {
    char name[256];
    if (!ct_ok()) return NULL;
    ct_tensor *counts = state ? ct_state_get(state, full_name(name, sizeof name, prefix, "categories")) : NULL,
              *texts = state ? ct_state_get(state, full_name(name, sizeof name, prefix, "texts")) : NULL;
    const int64_t columns = counts && ct_ndim(counts) == 1 ? ct_numel(counts) : 0;
    ct__csv_info *info = NULL;
    bool ok = columns >= 2 && columns <= INT_MAX / 2 && texts && ct_dtype_of(texts) == CT_U8 && ct_ndim(texts) == 1;
    if (ok) info = ct__zeroed("csv_take_state", 1, sizeof *info);
    if (info) info->column = ct__zeroed("csv_take_state", columns, sizeof *info->column);
    if (info && info->column) {
        info->columns = (int)columns;
        ok = take_info(info, state, prefix, texts);
    }
    if (ok && ct_ok()) return empty_like(info);
    ct__csv_free_info(info);
    if (ct_error_code() == CT_ERR_MEMORY) return NULL;
    ct_error_clear();
    ct_fail(CT_ERR_IO, "csv_take_state", "the state does not hold how a CSV file is read, or contradicts itself");
    return NULL;
}

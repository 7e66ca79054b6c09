/* Predictions for the rows of a table, as CSV: the class or number, and for classes the probability of each. The file is read as
 * the training set was: its columns, categories and separator are those of the checkpoint. */
#include "cli/train/predict.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 1024 }; /* at once */

typedef struct printer {
    const learner *l;
    const predict_options *options;
    const char *separator;
    int target; /* its column */
    int64_t row;
} printer;

static void print_field(const printer *p, const char *text) {
    const size_t n = strlen(text);
    const bool plain =
        n && text[0] != ' ' && text[n - 1] != ' ' && !strpbrk(text, "\"\r\n\t") && !strstr(text, p->separator);
    if (plain) {
        printf("%s", text);
        return;
    }
    printf("\"");
    for (const char *c = text; *c; c++) printf(*c == '"' ? "\"\"" : "%c", *c);
    printf("\"");
}

static const char *class_text(const printer *p, int64_t label) {
    return ct_csv_category(p->l->encoding, p->target, label);
}

static void print_names(const printer *p) {
    char name[512];
    snprintf(name, sizeof name, "predicted_%s", ct_csv_column_at(p->l->encoding, p->target)->name);
    print_field(p, name);
    for (int64_t i = 0; p->l->task == TASK_CLASSIFICATION && i < p->l->classes; i++) {
        snprintf(name, sizeof name, "probability_%s", class_text(p, i));
        printf("%s", p->separator);
        print_field(p, name);
    }
    printf("\n");
}

static void print_class(const printer *p, const float *of /* (classes) */, int64_t best) {
    print_field(p, class_text(p, best));
    for (int64_t i = 0; i < p->l->classes; i++) printf("%s%.6g", p->separator, (double)of[i]);
    printf("\n");
}

static bool print_json(const printer *p, const char *path, const float *of, int64_t best) {
    buffer b = {0};
    buffer_text(&b, "{\"file\":");
    buffer_json(&b, path);
    buffer_add(&b, ",\"row\":%lld,\"predicted\":", (long long)p->row);
    if (p->l->task == TASK_REGRESSION) buffer_json_number(&b, (double)of[0], 9);
    else {
        buffer_json(&b, class_text(p, best));
        buffer_text(&b, ",\"probabilities\":{");
        for (int64_t i = 0; i < p->l->classes; i++) {
            if (i) buffer_text(&b, ",");
            buffer_json(&b, class_text(p, i));
            buffer_text(&b, ":");
            buffer_json_number(&b, (double)of[i], 6);
        }
        buffer_text(&b, "}");
    }
    buffer_text(&b, "}");
    if (!b.failed) printf("%s\n", b.at);
    const bool right = !b.failed || ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
    buffer_free(&b);
    return right;
}

static bool print_rows(printer *p, const char *path, const float *of /* (n,classes) */, int64_t n) {
    const int64_t classes = p->l->classes;
    for (int64_t i = 0; i < n; i++, of += classes) {
        int64_t best = 0;
        p->row++;
        for (int64_t c = 1; c < classes; c++)
            if (of[c] > of[best]) best = c;
        if (p->options->json) {
            if (!print_json(p, path, of, best)) return false;
        } else if (p->l->task == TASK_REGRESSION) printf("%.9g\n", (double)of[0]);
        else print_class(p, of, best);
    }
    return true;
}

/* Outputs of a batch as they are printed: probabilities, or numbers in the units of the data. */
static ct_tensor *finish(const learner *l, ct_tensor *outputs) {
    if (l->task == TASK_CLASSIFICATION) outputs = ct_softmax(outputs, 1);
    else outputs = ct_add_s(ct_mul_s(outputs, l->target_std), l->target_mean);
    return ct_contiguous(outputs);
}

bool predict_table(learner *l, const char *path, const predict_options *options) {
    const recipe_data *data = &l->recipe->data;
    printer p = {.l = l, .options = options, .separator = data->separator};
    while (!ct_csv_column_at(l->encoding, p.target)->target) p.target++;
    if (l->classes != (l->task == TASK_REGRESSION ? 1 : ct_csv_column_at(l->encoding, p.target)->categories))
        return ct_fail(CT_ERR_IO, NULL, "the checkpoint contradicts itself");
    ct_dataset *rows = ct_dataset_csv(path, .separator = data->separator[0], .no_header = !data->header,
                                      .like = l->encoding, .unlabeled = true);
    ct_loader *batches = rows ? ct_batches(rows, ROWS) : NULL;
    bool right = batches != NULL;
    if (right && options->first && data->header && !options->json) print_names(&p);
    for (ct_batch b; right && ct_next(batches, &b);) {
        ct_no_grad {
            ct_scope {
                ct_tensor *of = finish(l, learner_on_host(l, learner_forward(l, b.x)));
                right = of && print_rows(&p, path, ct_data(of), b.n);
            }
        }
    }
    ct_loader_free(batches);
    ct_dataset_free(rows);
    return right && ct_ok();
}

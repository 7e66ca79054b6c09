/* cotangent eval: how good a checkpoint is on its validation data, or on other data. */
#include "cli/cli.h"

#include "cli/train/journal.h"
#include "cli/train/learner.h"
#include "cli/train/number.h"
#include "cli/train/options.h"
#include "cli/train/progress.h"

#include <string.h>

static void print_help(void) {
    printf("usage: cotangent eval CHECKPOINT [--data PATH] [--device D] [--threads N] [--json]\n\n"
           "Loss and score of a network on its validation data or, with --data, on all that lies there (of MNIST and "
           "CIFAR the\n"
           "test part; of a folder with test/ or val/ in it, that one).\n");
}

static void print_text(const learner *l, const evaluation *e) {
    char score[64];
    format_score(&tasks[l->task], e->score, score, sizeof score);
    printf("items      %lld\nloss       %.6f\n%-10s %s\n", (long long)e->count, e->loss, tasks[l->task].score, score);
    for (int i = 0; i < l->recipe->metric_count; i++)
        printf("%-10s %s\n", l->recipe->metrics[i], number_of(e->metrics[i], 6, NUMBER_PLAIN).text);
    if (!e->confusion || l->classes > 100) return;
    const bool pixels = l->task == TASK_SEGMENTATION;
    printf("\n%-24s %9s %9s %9s %9s\n", "class", "precision", "recall", pixels ? "iou" : "f1",
           pixels ? "pixels" : "items");
    for (int64_t i = 0; i < l->classes; i++) {
        const ct_scores s = class_scores(e, i);
        printf("%-24s %9s %9s %9s %9lld\n", learner_class_name(l, i), number_percent(s.precision, 2, NUMBER_PLAIN).text,
               number_percent(s.recall, 2, NUMBER_PLAIN).text,
               number_percent(pixels ? s.iou : s.f1, 2, NUMBER_PLAIN).text, (long long)s.support);
    }
}

static void print_json(const learner *l, const evaluation *e) {
    buffer b = {0};
    buffer_add(&b, "{\"items\":%lld", (long long)e->count);
    json_number(&b, "loss", e->loss);
    json_number(&b, tasks[l->task].score, e->score);
    for (int i = 0; i < l->recipe->metric_count; i++) json_number(&b, l->recipe->metrics[i], e->metrics[i]);
    if (!b.failed) printf("%s}\n", b.at);
    buffer_free(&b);
}

static bool run(const char *path, const char *data, ct_device device, bool json) {
    learner l = {0};
    recipe *own = NULL;
    evaluation e = {0};
    ct_loader *batches = NULL;
    bool right = learner_load(&l, path, &own) && learner_open_other(&l, own, data);
    right = right && learner_to_device(&l, device);
    right = right && (batches = learner_valid_batches(&l)) && evaluate(&l, batches, NULL, &e);
    if (right && json) print_json(&l, &e);
    else if (right) print_text(&l, &e);
    evaluation_free(&e);
    ct_loader_free(batches);
    learner_close(&l);
    recipe_free(own);
    return right;
}

int cli_eval(int argc, char **argv) {
    const char *path = NULL, *data = NULL, *value = NULL;
    ct_device device = {0};
    bool json = false;
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    for (int i = 1; i < argc; i++) {
        if (option_value(argc, argv, &i, "--data", &data)) {
            if (!data) return option_lacks("--data");
        } else if (option_value(argc, argv, &i, "--device", &value)) {
            if (!value) return option_lacks("--device");
            if (!option_device(value, &device)) return CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--threads", &value)) {
            if (!value) return option_lacks("--threads");
            if (!option_threads(value)) return CLI_USAGE;
        } else if (strcmp(argv[i], "--json") == 0) json = true;
        else if (argv[i][0] == '-') return option_unknown("eval", argv[i], "--data --device --threads --json --help");
        else if (!path) path = argv[i];
        else {
            fprintf(stderr, "error: one checkpoint at a time, not '%s' and '%s'\n", path, argv[i]);
            return CLI_USAGE;
        }
    }
    if (!path) {
        fprintf(stderr, "error: 'cotangent eval' needs a checkpoint; --help says more\n");
        return CLI_USAGE;
    }
    return run(path, data, device, json) ? CLI_DONE : option_failed(CLI_FAILED);
}

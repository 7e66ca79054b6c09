/* cotangent predict: what a network says of images and tables. */
#include "cli/cli.h"

#include "cli/train/options.h"
#include "cli/train/predict.h"

#include <string.h>

static void print_help(void) {
    printf("usage: cotangent predict CHECKPOINT FILE... [--top N] [--out FOLDER] [--max-pixels N] [--device D] "
           "[--threads N] "
           "[--json]\n\n"
           "What a network says of files of the kind that it was trained on.\n\n"
           "Images (PNG, JPEG): the classes that it takes each for, the likeliest first, with their probabilities. An "
           "image is\n"
           "resized, and made gray or colored, as the network was trained. --top N prints N classes (default 3).\n\n"
           "Images, by a network that gives a class for each pixel: NAME-mask.png, whose grays are the numbers of the "
           "classes, and\n"
           "NAME-colors.png to look at, in the folder that --out names (default: this one); printed are the shares of "
           "the classes.\n\n"
           "Tables (CSV): a line for each row, as CSV: the predicted class and the probability of each class, or the "
           "predicted\n"
           "number. Columns, separator and categories are those of the training; the column that is predicted may be "
           "there or not.\n"
           "A value that is missing and a category that the training did not have are errors with their line.\n\n"
           "  --max-pixels N  images of more are refused (default 2^28)\n"
           "  --json          a line of JSON per image or row\n"
           "  --device D      where the network computes (default cpu)\n"
           "  --threads N     threads that compute\n");
}

/* How files are predicted by this network; NULL after a line was printed. */
static predict_fn choose(const learner *l, const char *checkpoint, const predict_options *options) {
    if (options->out && l->task != TASK_SEGMENTATION)
        fprintf(stderr, "error: --out is for masks; this network is for a task of %s\n", tasks[l->task].name);
    else if (l->encoding && options->top)
        fprintf(stderr, "error: --top is for images; of a table every class is printed\n");
    else if (l->encoding && options->max_pixels)
        fprintf(stderr, "error: --max-pixels is for images; this network is for tables\n");
    else if (l->encoding) return predict_table;
    else if (l->task == TASK_LANGUAGE)
        fprintf(stderr, "error: %s: this is a language model; 'cotangent generate' goes on with a text\n", checkpoint);
    else if (learner_is_image(l) && l->task == TASK_SEGMENTATION) return predict_mask;
    else if (learner_is_image(l) && l->task == TASK_CLASSIFICATION) return predict_classes;
    else fprintf(stderr, "error: %s: this network is neither for images nor for tables\n", checkpoint);
    return NULL;
}

static int run(const char *checkpoint, const cli_list *files, predict_options *options) {
    learner l = {0};
    recipe *own = NULL;
    int status = CLI_FAILED;
    if (!learner_load(&l, checkpoint, &own) || !learner_to_device(&l, options->device)) option_failed(status);
    else {
        predict_fn predict = choose(&l, checkpoint, options);
        if (predict == predict_mask && !predict_masks_differ((const char *const *)files->at, files->n, options)) {
            option_failed(status);
            predict = NULL;
        }
        if (predict) status = CLI_DONE;
        options->first = true;
        for (int i = 0; predict && i < files->n; i++) {
            if (predict(&l, files->at[i], options)) options->first = false;
            else status = option_failed(CLI_FAILED); /* the others may be right */
        }
    }
    learner_close(&l);
    recipe_free(own);
    return status;
}

int cli_predict(int argc, char **argv) {
    const char *checkpoint = NULL, *value = NULL;
    cli_list files = {0};
    predict_options options = {0};
    int status = CLI_DONE;
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    for (int i = 1; status == CLI_DONE && i < argc; i++) {
        if (option_value(argc, argv, &i, "--top", &value)) {
            if (!value) status = option_lacks("--top");
            else if (!option_integer("--top", value, 1, 1 << 20, &options.top)) status = CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--out", &options.out)) {
            if (!options.out || !*options.out) status = option_lacks("--out");
        } else if (option_value(argc, argv, &i, "--max-pixels", &value)) {
            if (!value) status = option_lacks("--max-pixels");
            else if (!option_integer("--max-pixels", value, 1, INT64_MAX, &options.max_pixels)) status = CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--device", &value)) {
            if (!value) status = option_lacks("--device");
            else if (!option_device(value, &options.device)) status = CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--threads", &value)) {
            if (!value) status = option_lacks("--threads");
            else if (!option_threads(value)) status = CLI_USAGE;
        } else if (strcmp(argv[i], "--json") == 0) options.json = true;
        else if (argv[i][0] == '-')
            status = option_unknown("predict", argv[i], "--top --out --max-pixels --device --threads --json --help");
        else if (!checkpoint) checkpoint = argv[i];
        else if (!cli_list_add(&files, argv[i])) status = CLI_FAILED;
    }
    if (status == CLI_DONE && files.n == 0) {
        fprintf(stderr, "error: 'cotangent predict' needs a checkpoint and files; --help says more\n");
        status = CLI_USAGE;
    }
    if (status == CLI_DONE) status = run(checkpoint, &files, &options);
    cli_list_free(&files);
    return status;
}

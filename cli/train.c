/* cotangent train: a recipe, or a run to go on with. The work is in cli/train/. */
#include "cli/cli.h"

#include "cli/train/options.h"
#include "cli/train/trainer.h"

#include <string.h>

static void print_help(void) {
    printf(
        "usage: cotangent train RECIPE [OPTIONS]\n"
        "       cotangent train --resume --out FOLDER\n"
        "       cotangent train --list | --show RECIPE | --describe [NAME]\n\n"
        "Trains what a recipe says: one that ships, by name, or a YAML file of yours. In the folder of the run are "
        "then the best\n"
        "and the last checkpoint, log.jsonl, files for TensorBoard, and report.html.\n\n"
        "  --data PATH        where the data is\n"
        "  --epochs N         times through the data, in all; +N: so many more than the recipe or, with --resume, the "
        "run says\n"
        "  --batch N          items per step\n"
        "  --lr X             learning rate\n"
        "  --set KEY=VALUE    anything else of the recipe, by its path: --set model.dropout=0.1; may be repeated\n"
        "  --out FOLDER       the folder of the run; by default runs/RECIPE-N, N being the first that is free\n"
        "  --resume           go on with a run that was stopped, or with --epochs one that is done; with RECIPE "
        "alone,\n"
        "                     the last of that name\n"
        "  --device D         cpu, cuda or webgpu\n"
        "  --capture MODE     true: record a step once and replay it, which gives the same result; false; or auto, "
        "where it pays\n"
        "  --threads N        threads that compute; the results are the same for any number\n"
        "  --deterministic    the same result bit for bit by 1, 2 and 4 processes: --set shards=4, which says more\n"
        "  --json             a line of JSON for each event on standard output, and nothing else\n\n"
        "  --list             the recipes that ship\n"
        "  --show RECIPE      a recipe that ships, to copy and change\n"
        "  --describe [NAME]  what a recipe may say; of a model, optimizer, ... its settings\n\n"
        "Ctrl-C saves after the current step and stops. Exit status: 0 done, 1 failed, 2 wrong command line, 130 "
        "stopped.\n");
}

static int show(const char *name) {
    for (const recipe_file *file = recipe_files; file->name; file++)
        if (strcmp(file->name, name) == 0) {
            fwrite(file->text, 1, file->n, stdout);
            return CLI_DONE;
        }
    fprintf(stderr, "error: no recipe '%s' ships; 'cotangent train --list' lists them\n", name);
    return CLI_USAGE;
}

static int list(const char *none) {
    (void)none;
    recipe_list();
    return CLI_DONE;
}

static int describe(const char *name) { return recipe_describe(name) ? CLI_DONE : option_failed(CLI_USAGE); }

/* What is asked for alone, with so many words after it. */
static const struct {
    const char *option;
    int least, most;
    int (*answer)(const char *word);
    const char *usage;
} questions[] = {{"--list", 0, 0, list, "--list"},
                 {"--show", 1, 1, show, "--show RECIPE"},
                 {"--describe", 0, 1, describe, "--describe [NAME]"}};

static bool is_question(const char *word) {
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (strcmp(word, questions[i].option) == 0) return true;
    return false;
}

/* The shorthands are --set of these. */
static const struct {
    const char *option, *key;
} shorthands[] = {{"--data", "data.path"}, {"--epochs", "epochs"}, {"--batch", "batch"}, {"--lr", "optimizer.lr"}};

/* --epochs +N is no value of a recipe: what it is added to may stand in a checkpoint. */
static bool is_more_epochs(const char *key, const char *value) { return strcmp(key, "epochs") == 0 && value[0] == '+'; }

static int parse(int argc, char **argv, trainer_options *o, option_sets *sets) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = NULL;
        bool taken = false;
        for (size_t s = 0; s < sizeof shorthands / sizeof *shorthands && !taken; s++) {
            if (!option_value(argc, argv, &i, shorthands[s].option, &value)) continue;
            if (!value) return option_lacks(shorthands[s].option);
            if (is_more_epochs(shorthands[s].key, value)) {
                if (!option_integer("--epochs +N", value, 1, MOST_EPOCHS, &o->more_epochs)) return CLI_USAGE;
            } else if (!option_set(sets, shorthands[s].key, value)) return CLI_FAILED;
            taken = true;
        }
        if (taken) continue;
        if (option_value(argc, argv, &i, "--set", &value)) {
            if (!value) return option_lacks("--set");
            if (!option_set(sets, NULL, value)) return CLI_FAILED;
        } else if (option_value(argc, argv, &i, "--out", &o->out)) {
            if (!o->out || !*o->out) return option_lacks("--out");
        } else if (option_value(argc, argv, &i, "--device", &value)) {
            if (!value) return option_lacks("--device");
            if (!option_device(value, &o->device)) return CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--capture", &o->capture)) {
            ct_train_mode mode;
            if (!o->capture) return option_lacks("--capture");
            if (!recipe_capture(o->capture, &mode)) {
                fprintf(stderr, "error: --capture is true, false or auto, not '%s'\n", o->capture);
                return CLI_USAGE;
            }
        } else if (option_value(argc, argv, &i, "--threads", &value)) {
            if (!value) return option_lacks("--threads");
            if (!option_threads(value)) return CLI_USAGE;
        } else if (is_question(word)) {
            fprintf(stderr, "error: %s stands alone: 'cotangent train --help' says how\n", word);
            return CLI_USAGE;
        } else if (strcmp(word, "--resume") == 0) o->resume = true;
        else if (strcmp(word, "--json") == 0) o->json = true;
        else if (strcmp(word, "--deterministic") == 0) {
            if (!option_set(sets, "shards", "4")) return CLI_FAILED;
        } else if (word[0] == '-')
            return option_unknown("train", word,
                                  "--data --epochs --batch --lr --set --out --resume --device --capture --threads "
                                  "--deterministic --json --list "
                                  "--show --describe --help");
        else if (o->recipe) {
            fprintf(stderr, "error: one recipe at a time, not '%s' and '%s'\n", o->recipe, word);
            return CLI_USAGE;
        } else o->recipe = word;
    }
    return CLI_DONE;
}

int cli_train(int argc, char **argv) {
    trainer_options options = {0};
    option_sets sets = {0};
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    for (size_t i = 0; argc > 1 && i < sizeof questions / sizeof *questions; i++)
        if (strcmp(argv[1], questions[i].option) == 0) {
            if (argc - 2 >= questions[i].least && argc - 2 <= questions[i].most)
                return questions[i].answer(argc > 2 ? argv[2] : NULL);
            fprintf(stderr, "error: '%s' is used as: cotangent train %s\n", argv[1], questions[i].usage);
            return CLI_USAGE;
        }
    int status = parse(argc, argv, &options, &sets);
    if (status == CLI_DONE && !options.recipe && options.resume && !options.out) {
        fprintf(stderr, "error: --resume without a recipe needs --out FOLDER, that of the run\n");
        status = CLI_USAGE;
    }
    if (status == CLI_DONE && !options.recipe && !options.resume) {
        fprintf(stderr,
                "error: 'cotangent train' needs a recipe; --list lists those that ship, and --help says more\n");
        status = CLI_USAGE;
    }
    options.sets = sets.at.at;
    options.set_count = sets.at.n;
    if (status == CLI_DONE && options.more_epochs && trainer_sets_epochs(&options)) {
        fprintf(stderr, "error: --epochs is either the number of all epochs or +N for so many more, not both\n");
        status = CLI_USAGE;
    }
    if (status == CLI_DONE) {
        const int end = trainer_run(&options);
        /* What is wrong with an option begins with it. */
        const bool usage = strncmp(ct_error(), "--", 2) == 0 || (options.recipe && !recipe_exists(options.recipe));
        status = end == TRAINED ? CLI_DONE : end == TRAIN_STOPPED ? 130 : option_failed(usage ? CLI_USAGE : CLI_FAILED);
    } else if (!ct_ok()) option_failed(status);
    option_sets_free(&sets);
    return status;
}

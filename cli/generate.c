/* cotangent generate: text from a language model. */
#include "cli/cli.h"

#include "cli/train/learner.h"
#include "cli/train/options.h"

#include <stdlib.h>
#include <string.h>

static void print_help(void) {
    printf("usage: cotangent generate CHECKPOINT [--prompt TEXT] [--tokens N] [--temperature X] [--top-k N] [--seed N] "
           "[--no-cache] [--device D] [--threads N]\n\n"
           "Goes on from a prompt. --tokens: how many to add (default 200); --temperature: 0 always takes the "
           "likeliest, 1 draws as\n"
           "the network says (default 0.8); --top-k: draw only from the N likeliest; --seed: the same text for the "
           "same number\n"
           "(default 1); --no-cache: computes all of the text anew for each token, to compare with.\n");
}

static void print_piece(const char *bytes, int n) {
    fwrite(bytes, 1, (size_t)n, stdout);
    fflush(stdout);
}

static bool run(const char *checkpoint, const char *prompt, const sampling *how, ct_device device) {
    learner l = {0};
    recipe *own = NULL;
    bool right = learner_load(&l, checkpoint, &own) && learner_to_device(&l, device);
    if (right && l.task != TASK_LANGUAGE)
        right =
            ct_fail(CT_ERR_VALUE, NULL, "%s: this is not a language model but a %s", checkpoint, tasks[l.task].name);
    if (right) {
        char *text = generate(&l, prompt, how, print_piece);
        right = text != NULL;
        free(text);
        if (right) printf("\n");
    }
    learner_close(&l);
    recipe_free(own);
    return right;
}

int cli_generate(int argc, char **argv) {
    const char *checkpoint = NULL, *prompt = "", *value = NULL;
    ct_device device = {0};
    sampling how = {.tokens = 200, .temperature = 0.8, .seed = 1};
    int64_t seed = 1;
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    for (int i = 1; i < argc; i++) {
        bool right = true;
        const char *name = argv[i];
        value = "";
        if (option_value(argc, argv, &i, "--prompt", &value)) prompt = value;
        else if (option_value(argc, argv, &i, "--tokens", &value))
            right = !value || option_integer("--tokens", value, 1, 1000000, &how.tokens);
        else if (option_value(argc, argv, &i, "--temperature", &value))
            right = !value || option_number("--temperature", value, 0, &how.temperature);
        else if (option_value(argc, argv, &i, "--top-k", &value))
            right = !value || option_integer("--top-k", value, 0, 1 << 24, &how.top_k);
        else if (option_value(argc, argv, &i, "--seed", &value))
            right = !value || option_integer("--seed", value, 0, INT64_MAX, &seed);
        else if (strcmp(name, "--no-cache") == 0) how.no_cache = true;
        else if (option_value(argc, argv, &i, "--device", &value)) right = !value || option_device(value, &device);
        else if (option_value(argc, argv, &i, "--threads", &value)) right = !value || option_threads(value);
        else if (name[0] == '-')
            return option_unknown(
                "generate", name,
                "--prompt --tokens --temperature --top-k --seed --no-cache --device --threads --help");
        else if (!checkpoint) checkpoint = name;
        else {
            fprintf(stderr, "error: one checkpoint at a time, not '%s' and '%s'\n", checkpoint, name);
            return CLI_USAGE;
        }
        if (!value) return option_lacks(name);
        if (!right) return CLI_USAGE;
    }
    if (!checkpoint) {
        fprintf(stderr, "error: 'cotangent generate' needs a checkpoint; --help says more\n");
        return CLI_USAGE;
    }
    how.seed = (uint64_t)seed;
    return run(checkpoint, prompt, &how, device) ? CLI_DONE : option_failed(CLI_FAILED);
}

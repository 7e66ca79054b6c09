/* cotangent predict: what a network says of images. */
#include "cli/cli.h"

#include "cli/train/learner.h"
#include "cli/train/options.h"

#include <stdlib.h>
#include <string.h>

static void print_help(void) {
    printf("usage: cotangent predict CHECKPOINT IMAGE... [--top N] [--max-pixels N] [--threads N] [--json]\n\n"
           "The classes that a network takes images (PNG, JPEG) for, the likeliest first, with their probabilities. An "
           "image is\n"
           "resized, and made grey or coloured, as the network was trained. --top N prints N classes (default 3); "
           "--json a line of\n"
           "JSON an image. A file of more than 2^28 pixels is refused, unless --max-pixels N allows it.\n");
}

typedef struct request {
    int64_t top, max_pixels; /* max_pixels 0: the library's own limit */
    bool json;
} request;

/* The probabilities of the classes, [classes]. */
static ct_tensor *classify(learner *l, const char *path, int64_t max_pixels) {
    ct_tensor *x =
        ct_image_load(path, (int)l->item.d[0], .height = l->item.d[1], .width = l->item.d[2], .max_pixels = max_pixels);
    if (!x) return NULL;
    x = ct_div_s(ct_cast(x, CT_F32), 255);
    return ct_contiguous(ct_reshape(ct_softmax(learner_forward(l, ct_unsqueeze(x, 0)), 1), CT_DIMS(-1)));
}

static void print_text(const learner *l, const char *path, const float *p, const int64_t *order, int64_t top) {
    printf("%s\n", path);
    for (int64_t i = 0; i < top; i++)
        printf("  %7.2f %%  %s\n", 100 * (double)p[order[i]], learner_class_name(l, order[i]));
}

static void print_json(const learner *l, const char *path, const float *p, const int64_t *order, int64_t top) {
    buffer b = {0};
    buffer_text(&b, "{\"image\":");
    buffer_json(&b, path);
    buffer_text(&b, ",\"classes\":[");
    for (int64_t i = 0; i < top; i++) {
        buffer_add(&b, "%s{\"label\":%lld,\"name\":", i ? "," : "", (long long)order[i]);
        buffer_json(&b, learner_class_name(l, order[i]));
        buffer_add(&b, ",\"probability\":%.6g}", (double)p[order[i]]);
    }
    buffer_text(&b, "]}");
    if (!b.failed) printf("%s\n", b.at);
    buffer_free(&b);
}

static bool predict(learner *l, const char *path, const request *wanted) {
    const int64_t top = wanted->top < l->classes ? wanted->top : l->classes;
    bool right = false;
    ct_no_grad {
        ct_scope {
            ct_tensor *all = classify(l, path, wanted->max_pixels), *order = NULL;
            ct_tensor *sorted = ct_sort(all, -1, .descending = true, .indices = &order);
            order = ct_contiguous(ct_cast(order, CT_I64));
            right = sorted && order;
            if (right) (wanted->json ? print_json : print_text)(l, path, ct_data(all), ct_data(order), top);
        }
    }
    return right;
}

static int run(const char *checkpoint, const cli_list *images, const request *wanted) {
    learner l = {0};
    recipe *own = NULL;
    int status = CLI_DONE;
    if (!learner_load(&l, checkpoint, &own)) status = option_failed(CLI_FAILED);
    else if (!learner_is_image(&l) || l.task != TASK_CLASSIFICATION) {
        fprintf(stderr, "error: %s: this network does not classify images\n", checkpoint);
        status = CLI_FAILED;
    }
    const bool ready = status == CLI_DONE;
    for (int i = 0; ready && i < images->n; i++)
        if (!predict(&l, images->at[i], wanted)) status = option_failed(CLI_FAILED); /* the others may be right */
    learner_close(&l);
    recipe_free(own);
    return status;
}

int cli_predict(int argc, char **argv) {
    const char *checkpoint = NULL, *value = NULL;
    cli_list images = {0};
    request wanted = {.top = 3};
    int status = CLI_DONE;
    if (cli_wants_help(argc, argv)) {
        print_help();
        return CLI_DONE;
    }
    for (int i = 1; status == CLI_DONE && i < argc; i++) {
        if (option_value(argc, argv, &i, "--top", &value)) {
            if (!value) status = option_lacks("--top");
            else if (!option_integer("--top", value, 1, 1 << 20, &wanted.top)) status = CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--max-pixels", &value)) {
            if (!value) status = option_lacks("--max-pixels");
            else if (!option_integer("--max-pixels", value, 1, INT64_MAX, &wanted.max_pixels)) status = CLI_USAGE;
        } else if (option_value(argc, argv, &i, "--threads", &value)) {
            if (!value) status = option_lacks("--threads");
            else if (!option_threads(value)) status = CLI_USAGE;
        } else if (strcmp(argv[i], "--json") == 0) wanted.json = true;
        else if (argv[i][0] == '-')
            status = option_unknown("predict", argv[i], "--top --max-pixels --threads --json --help");
        else if (!checkpoint) checkpoint = argv[i];
        else if (!cli_list_add(&images, argv[i])) status = CLI_FAILED;
    }
    if (status == CLI_DONE && images.n == 0) {
        fprintf(stderr, "error: 'cotangent predict' needs a checkpoint and images; --help says more\n");
        status = CLI_USAGE;
    }
    if (status == CLI_DONE) status = run(checkpoint, &images, &wanted);
    cli_list_free(&images);
    return status;
}

/* A small GPT that learns a text letter by letter and goes on writing: 04_char_gpt [FILE [STEPS]]. Without a file it reads
 * its own source. */
#include <cotangent.h>
#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 64 };

/* Writes `count` more characters after prompt, each drawn from the network's answer. */
static void write_on(ct_module *net, const ct_vocabulary *letters, const char *prompt, int count) {
    int64_t window[CONTEXT];
    ct_eval(net);
    printf("%s", prompt);
    ct_no_grad
        ct_scope {
            ct_tensor *start = ct_vocabulary_encode(letters, prompt, strlen(prompt), true);
            int64_t length = ct_numel(start);
            if (length > CONTEXT) return;
            if (start) ct_read(start, window, (size_t)length * sizeof *window);
            for (int i = 0; i < count && ct_ok(); i++) {
                ct_scope {
                    ct_tensor *logits =
                        ct_forward(net, ct_from_data(window, CT_DIMS(1, length), CT_I64)); /* [1, T, V] */
                    ct_tensor *last = ct_reshape(ct_narrow(logits, 1, length - 1, 1), CT_DIMS(-1));
                    const int64_t next = (int64_t)ct_item(ct_multinomial(ct_softmax(ct_div_s(last, 0.7), 0), 1));
                    char bytes[4];
                    fwrite(bytes, 1, (size_t)ct_vocabulary_decode(letters, next, bytes), stdout);
                    if (length == CONTEXT) memmove(window, window + 1, (size_t)--length * sizeof *window);
                    window[length++] = next;
                }
            }
        }
    printf("\n");
    ct_train(net);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : __FILE__;
    const int64_t steps = argc > 2 ? atoi(argv[2]) : 300;
    ct_seed(1);
    ct_dataset *text = ct_dataset_text(path, CONTEXT, .stride = 1);
    ct_loader *batches = ct_batches(text, 16, .shuffle = true, .drop_last = true, .seed = 1);
    const ct_vocabulary *letters = ct_text_vocabulary(text);
    ct_module *net = ct_nn_gpt(ct_vocabulary_size(letters), .context = CONTEXT, .dim = 96, .layers = 3, .heads = 4);
    ct_optim *opt = ct_adamw(net, .lr = 2e-3);
    ct_schedule *schedule = ct_schedule_one_cycle(opt, 4e-3, steps + 1);
    printf("%lld different characters, %lld parameters\n", (long long)ct_vocabulary_size(letters),
           (long long)ct_module_size(net));

    double first = 0, last = 0;
    for (int64_t step = 0; step < steps && ct_ok();) {
        for (ct_batch b; step < steps && ct_next(batches, &b); step++) {
            ct_scope {
                ct_tensor *logits = ct_flatten(ct_forward(net, b.x), .start = 0, .end = CT_SET(1)); /* [B T, V] */
                ct_tensor *loss = ct_cross_entropy_loss(logits, ct_flatten(b.y));
                ct_backward(loss);
                ct_optim_clip_grad_norm(opt, 1.0);
                ct_optim_step(opt);
                ct_schedule_step(schedule);
                last = ct_item(loss);
            }
            if (step == 0) first = last;
            if (step % 50 == 0) printf("step %3lld: loss %.3f\n", (long long)step, last);
        }
    }
    printf("loss %.3f after %lld steps; it writes:\n\n", last, (long long)steps);
    write_on(net, letters, "    ct_", 200);

    ct_schedule_free(schedule);
    ct_optim_free(opt);
    ct_module_free(net);
    ct_loader_free(batches);
    ct_dataset_free(text);
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() && last < first ? 0 : 1;
}

/* Fuzzes the reader of saved graphs: the description of the records is changed, the tensors stay. See tests/fuzz.h. */
#include "io/graph_file.h"
#include "tests/fuzz.h"

enum { LIMIT = 64 << 20 }; /* of the library's memory: shapes of a file's own invention are refused sooner */

static bool read_graph(uint8_t *bytes, size_t size) {
    char *text = malloc(size + 1);
    bool good = false;
    if (text) {
        memcpy(text, bytes, size);
        text[size] = 0;
    }
    free(bytes);
    ct_set_memory_limit((ct_device){CT_CPU, 0}, LIMIT);
    ct_state *state = text ? ct_state_new() : NULL;
    ct_tensor *x = ct_arange(0, 24, 1), *weight = ct_reshape(ct_full(CT_DIMS(4, 6), 0.5), CT_DIMS(24)),
              *index = ct_remainder_s(ct_arange(0, 6, 1, .dtype = CT_I64), 4);
    if (state && ct_state_put(state, "memory.0", x) && ct_state_put(state, "memory.1", weight) &&
        ct_state_put(state, "memory.2", index) && ct_state_put(state, "data.0", ct_ones(CT_DIMS(1))) &&
        ct_state_put(state, "data.1", ct_arange(0, 6, 1)) && ct_state_put_text(state, CT__GRAPH_TEXT, text)) {
        ct_graph *graph = ct__graph_of_state(state, "fuzz.graph", (ct_device){CT_CPU, 0});
        good = graph != NULL;
        /* a kernel may find a value wrong in a replay, never crash */
        if (graph && !ct_replay(graph) && ct_error_code() != CT_ERR_MEMORY) ct_error_clear();
        ct_graph_free(graph);
    }
    if (!ct_ok() && good) good = false;
    ct_state_free(state);
    free(text);
    return good;
}

#define MEMORY(rest)                                                                                                \
    "cotangent-graph 1\nmemory 7\nm 0 f32 24 given\nm 1 f32 24 given\nm 2 i64 6 given\nm 3 f32 16 made\nm 4 f32 6 " \
    "made\n" rest
static const char *const texts[] = {
    MEMORY("m 5 f32 24 made\nm 6 f32 24 made\nname y 3 0 2 4 4 4 1\ncall matmul 2 1\ni 0 0 2 4 6 6 1\ni 1 0 2 6 4 1 6\n"
           "o 3 0 2 4 4 4 1\nend\ncall add 2 1\ni 3 0 2 4 4 4 1\nn f32 0000803f\no 3 0 2 4 4 4 1\nend\n"),
    MEMORY("m 5 f32 24 made\nm 6 f32 6 made\nname y 5 0 2 4 6 6 1\ncall softmax 1 1\ni 0 0 2 4 6 6 1\no 5 0 2 4 6 6 1\n"
           "a axis -1\nend\ncall gather 2 1\ni 0 0 1 24 1\ni 2 0 1 6 1\no 6 0 1 6 1\na axis 0\nend\n"),
    MEMORY("m 5 f32 1 made\nm 6 f32 6 made\nname y 6 0 1 6 1\ncopy 4 data.1\nfill 6 data.0\n"
           "call mul 2 1\ni 4 0 1 6 1\ni 6 0 1 6 0\no 6 0 1 6 1\nend\n"
           "call sum 1 1\ni 1 0 2 4 6 6 1\no 5 0 0\nend\n"),
    MEMORY("m 5 f32 8 made\nm 6 f32 6 made\nname y 5 0 4 1 2 2 2 8 4 2 1\ncall conv2d 4 1\ni 0 0 4 1 2 3 4 24 12 4 1\n"
           "i 1 0 4 2 2 2 3 12 6 3 1\n-\n-\no 5 0 4 1 2 2 2 8 4 2 1\na strides 1,1\nend\n"),
};
enum { TEXTS = sizeof texts / sizeof *texts };

static uint8_t *make_seed(int i, size_t *size) {
    if (i >= TEXTS) return NULL;
    *size = strlen(texts[i]);
    uint8_t *bytes = malloc(*size + 1);
    if (bytes) memcpy(bytes, texts[i], *size + 1);
    return bytes;
}

static const char *const words[] = {"9223372036854775807",
                                    "2147483647",
                                    "-1",
                                    "0",
                                    "1",
                                    "2",
                                    "6",
                                    "24",
                                    " ",
                                    "\n",
                                    "-\n",
                                    "f64",
                                    "bf16",
                                    "i64",
                                    "bool",
                                    "end\n",
                                    "call exp 1 1\n",
                                    "call embedding 2 1\n",
                                    "call sort 1 2\n",
                                    "call concat 2 1\n",
                                    "call layer_norm 3 1\n",
                                    "i 0 0 2 4 6 6 1\n",
                                    "o 3 0 2 4 4 4 1\n",
                                    "n f32 0000803f\n",
                                    "a axis 1\n",
                                    "a keepdim true\n",
                                    "a axes 0,1\n",
                                    "copy 4 data.1\n",
                                    "fill 4 data.0\n",
                                    "given",
                                    "made",
                                    "name z 0 0 0\n",
                                    "\xff",
                                    NULL};
static const fuzz_target target = {.read = read_graph, .seed = make_seed, .words = words, .hot = 400, .inputs = 200000};
FUZZ_MAIN(target)

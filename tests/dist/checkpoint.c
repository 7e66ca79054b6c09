/* Checkpoints that all ranks write: the bytes of one process's, networks that are divided in one way and go on in another,
 * and a rank that dies while it writes. Run by tests/dist.sh under mpirun:
 *     dist_checkpoint FOLDER          all of it but the last
 *     dist_checkpoint FOLDER kill     saves, and saves again: the last rank dies in between
 *     dist_checkpoint FOLDER after    what is there is the first of them, and nothing else */
#include <cotangent/nn.h>
#include <cotangent/op.h>
#include <cotangent/optim.h>
#include <cotangent/run.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/dist/ranks.h"

enum { VOCABULARY = 13, LENGTH = 6, ITEMS = 4 };
static int rank, size;
static bool armed;

/* The library's writes come here: a rank that is armed has written half of what it has when it dies. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    const ssize_t put = syscall(SYS_pwrite64, fd, data, armed && n > 1 ? n / 2 : n, at);
    if (armed) raise(SIGKILL);
    return put;
}

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_dist_parallel *parallel;
    ct_dist_group *near, *across;
    ct_run run;
} training;

/* cut: among how many ranks matrices are cut; stage: 0, not sharded. alone: a network of this rank by itself. */
static training begin(int cut, int stage, bool alone) {
    training t = {0};
    ct_seed(5 + (alone ? 0 : (uint64_t)rank)); /* the weights are those of rank 0 */
    t.net = ct_nn_gpt(VOCABULARY, .dim = 16, .heads = 4, .layers = 2, .context = LENGTH);
    if (!alone) {
        t.near = ct_dist_split(NULL, rank / cut, 0);
        t.across = ct_dist_split(NULL, rank % cut, 0);
        CHECK(ct_dist_divide(t.net, .tensor = t.near, .data = t.across, .stage = stage));
        t.parallel = ct_dist_data_parallel(t.net, .group = t.across);
    }
    t.optim = ct_adamw(t.net, .lr = 0.01);
    t.run = (ct_run){.size = sizeof t.run, .net = t.net, .optim = t.optim};
    CHECK(ct_ok());
    return t;
}

static void end(training *t) {
    ct_dist_parallel_free(t->parallel);
    ct_optim_free(t->optim);
    ct_module_free(t->net);
    ct_dist_group_free(t->near);
    ct_dist_group_free(t->across);
}

/* One step on a batch that all ranks know, of which each takes its part; the norm of the gradients before they are cut to
 * 0.5. */
static double step(training *t, double *norm) {
    double loss = 0;
    ct_rng *rng = ct_rng_new(9, (uint64_t)t->run.step);
    ct_scope {
        const int parts = t->across ? ct_dist_group_size(t->across) : 1, n = ITEMS / parts;
        ct_tensor *text = ct_randint(CT_DIMS(ITEMS, LENGTH + 1), 0, VOCABULARY, .rng = rng);
        ct_tensor *mine = ct_narrow(text, 0, n * (t->across ? ct_dist_group_rank(t->across) : 0), n);
        ct_tensor *logits = ct_forward(t->net, ct_narrow(mine, 1, 0, LENGTH));
        ct_tensor *value = ct_cross_entropy_loss(ct_reshape(logits, CT_DIMS(-1, VOCABULARY)),
                                                 ct_reshape(ct_narrow(mine, 1, 1, LENGTH), CT_DIMS(-1)));
        CHECK(ct_backward(value));
        if (t->parallel) CHECK(ct_dist_reduce_gradients(t->parallel));
        *norm = t->across ? ct_dist_clip_grad_norm(t->net, 0.5) : ct_clip_grad_norm(t->net, 0.5);
        CHECK(ct_optim_step(t->optim) && ct_optim_zero_grad(t->optim));
        loss = ct_item(t->across ? ct_dist_all_reduce(ct_detach(value), CT_DIST_MEAN, t->across) : value);
    }
    ct_rng_free(rng);
    t->run.step++;
    return loss;
}

static bool near(double a, double b) { return fabs(a - b) <= 2e-5 * (1 + fabs(b)); }

static void path_of(char *path, size_t room, const char *folder, const char *name) {
    snprintf(path, room, "%s/%s.safetensors", folder, name);
}

/* Saved as it is divided in one way, and taken up in another and by one process: the steps that follow are the same. */
static void goes_on(const char *folder, int cut, int stage, int other_cut, int other_stage) {
    char path[512];
    double losses[4], norms[4], norm;
    training t = begin(cut, stage, false), alone = begin(1, 0, true);
    path_of(path, sizeof path, folder, "divided");
    for (int i = 0; i < 4 && ct_ok(); i++) {
        if (i == 2) CHECK(ct_dist_run_save(&t.run, folder, "divided"));
        losses[i] = step(&t, &norms[i]);
        const double loss = step(&alone, &norm);
        CHECK(near(losses[i], loss));
        CHECK(near(norms[i], norm) && norm > 0.5);
    }
    end(&t);
    end(&alone);
    for (int way = 0; way < 3 && ct_ok(); way++) {
        t = way == 0 ? begin(cut, stage, false) : way == 1 ? begin(other_cut, other_stage, false) : begin(1, 0, true);
        CHECK(way == 2 ? ct_run_load(&t.run, path) : ct_dist_run_load(&t.run, path));
        CHECK(t.run.step == 2);
        for (int i = 2; i < 4 && ct_ok(); i++) {
            const double loss = step(&t, &norm);
            /* divided in the same way, to the bit */
            CHECK(way == 0 ? loss == losses[i] && norm == norms[i] : near(loss, losses[i]) && near(norm, norms[i]));
        }
        end(&t);
    }
}

static char *bytes_of(const char *folder, const char *name, long *n) {
    char path[512], *bytes = NULL;
    path_of(path, sizeof path, folder, name);
    FILE *file = fopen(path, "rb");
    if (file && fseek(file, 0, SEEK_END) == 0 && (*n = ftell(file)) > 0 && (bytes = malloc((size_t)*n))) {
        rewind(file);
        if (fread(bytes, 1, (size_t)*n, file) != (size_t)*n) *n = -1;
    }
    if (file) fclose(file);
    return bytes;
}

/* Of a network that is whole on every rank, its optimizer's state too or, in stage 1, not. */
static void same_bytes(const char *folder, int stage) {
    training t = begin(1, stage, false), whole = begin(1, 0, false);
    double norm;
    long n = 0, m = 0;
    for (int i = 0; i < 2; i++) step(&t, &norm), step(&whole, &norm);
    t.run.extra = ct_state_new();
    ct_state_put_text(t.run.extra, "words", rank == 0 ? "of a program" : "of others, which do not count");
    whole.run.extra = t.run.extra;
    CHECK(ct_dist_run_save(&t.run, folder, "together"));
    if (rank == 0) CHECK(ct_run_save(&whole.run, folder, "alone"));
    CHECK(ct_dist_barrier(NULL));
    char *together = bytes_of(folder, "together", &n), *alone = bytes_of(folder, "alone", &m);
    CHECK(together && alone && n == m && memcmp(together, alone, (size_t)n) == 0);
    free(together);
    free(alone);
    ct_state_free(t.run.extra);
    end(&t);
    end(&whole);
}

static void fails_together(const char *folder) {
    training t = begin(1, 0, false);
    CHECK(!ct_dist_run_save(&t.run, folder, "no/name") && strstr(ct_error(), "is no name of a file"));
    ct_error_clear();
    ct_state *extra = t.run.extra = ct_state_new(); /* of which one rank has another */
    ct_state_put_integers(extra, "numbers", (const int64_t[]){1, 2, 3}, rank == size - 1 ? 3 : 2);
    if (size > 1) {
        CHECK(!ct_dist_run_save(&t.run, folder, "differs") && strstr(ct_error(), "would write other tensors"));
        ct_error_clear();
    }
    ct_state_free(extra);
    t.run.extra = NULL;
    if (rank == size - 1) ct_fail(CT_ERR_VALUE, "test", "of one rank alone"); /* which the others do not wait for */
    CHECK(!ct_dist_run_save(&t.run, folder, "pending"));
    CHECK(rank == size - 1 ? strstr(ct_error(), "test: of one rank alone")
                           : strstr(ct_error(), "could not write its part"));
    ct_error_clear();
    end(&t);
}

/* A weight of another dtype than those that are divided with it. */
static void refuses_other_dtypes(const char *folder) {
    char path[512];
    training alone = begin(1, 0, true), t = begin(1, 2, false);
    ct_module *layer = ct_module_child(ct_module_find_child(alone.net, "layers"), 0);
    ct_module *linear = ct_module_find_child(layer, "linear1");
    ct_run run = {.size = sizeof run, .net = alone.net};
    CHECK(ct_module_set_param(linear, 0, ct_cast(ct_detach(ct_module_param(linear, 0)), CT_BF16)));
    if (rank == 0) CHECK(ct_run_save(&run, folder, "dtypes"));
    path_of(path, sizeof path, folder, "dtypes");
    t.run.optim = NULL;
    CHECK(ct_dist_barrier(NULL) && !ct_dist_run_load(&t.run, path));
    CHECK(strstr(ct_error(), "linear1.weight\" is bf16[64,16], and what is divided with it f32"));
    ct_error_clear();
    end(&t);
    end(&alone);
}

static int files_of(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) n += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

int main(int argc, char **argv) {
    if (argc < 2 || !CHECK(ct_dist_init())) return 2;
    const char *folder = argv[1], *what = argc > 2 ? argv[2] : "";
    rank = ct_dist_rank();
    size = ct_dist_size();
    if (strcmp(what, "kill") == 0) {
        training t = begin(1, 3, false);
        double norm;
        step(&t, &norm);
        CHECK(ct_dist_run_save(&t.run, folder, "last"));
        step(&t, &norm);
        armed = rank == size - 1;
        CHECK(!ct_dist_run_save(&t.run, folder, "last"));
        return 1;
    }
    if (strcmp(what, "after") == 0) {
        training t = begin(1, 3, false);
        char path[512];
        path_of(path, sizeof path, folder, "last");
        CHECK(ct_dist_run_load(&t.run, path) && t.run.step == 1);
        CHECK(ct_dist_run_save(&t.run, folder, "last"));
        CHECK(files_of(folder) == 1); /* what the dead have left is gone */
        end(&t);
    } else {
        const int cut = size % 2 == 0 ? 2 : 1;
        same_bytes(folder, 0);
        same_bytes(folder, 1);
        fails_together(folder);
        refuses_other_dtypes(folder);
        goes_on(folder, 1, 3, 1, 2);
        goes_on(folder, 1, 2, 1, 1);
        goes_on(folder, 1, 1, 1, 0);
        goes_on(folder, cut, 1, 1, 3);
        goes_on(folder, cut, 3, 1, 0);
        goes_on(folder, cut, 0, cut, 2);
    }
    if (rank == 0) printf("%d ranks\n", size);
    return ended();
}

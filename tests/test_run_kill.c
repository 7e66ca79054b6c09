/* A training is killed at random moments, twenty times, and resumed each time with other numbers of threads, its steps written out or
 * captured. Its losses and its weights in the end are those, bit for bit, of the same training left alone. */
#include "tests/run_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { STEPS = 300, EVERY = 2, KILLS = 20, KEPT = 2 };
enum { CHILD_DONE = 0, CHILD_FAILED = 3, CHILD_DIFFERS = 4 };

/* The loss of each step is at its place in a file. A step that is done again has to give what it gave before. */
static bool note_loss(int fd, int64_t step, double loss) {
    double before = 0;
    const off_t at = (off_t)(step * (int64_t)sizeof loss);
    if (pread(fd, &before, sizeof before, at) == (ssize_t)sizeof before && before != 0 && before != loss) return false;
    return pwrite(fd, &loss, sizeof loss, at) == (ssize_t)sizeof loss;
}

/* The training, in a process of its own: resumes, trains to the end, saves the weights. */
static int child(const char *folder, int threads, int loader_threads, bool captured) {
    char path[600];
    training t;
    ct_set_threads(threads);
    ct_set_grain(64); /* or this would be too small to be cut into pieces */
    int result = CHILD_FAILED;
    snprintf(path, sizeof path, "%s/losses", folder);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || !training_make(&t, 64, 16, loader_threads) || !ct_run_resume(&t.run, folder)) goto out;
    if (captured && !training_capture(&t)) goto out;
    while (t.run.step < STEPS) {
        const int64_t step = t.run.step;
        const double loss = training_step(&t);
        if (!ct_ok()) goto out;
        if (!note_loss(fd, step, loss)) {
            result = CHILD_DIFFERS;
            goto out;
        }
        if (t.run.step % EVERY == 0 && !ct_run_checkpoint(&t.run, folder, KEPT)) goto out;
    }
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    if (ct_save(path, t.run.net)) result = CHILD_DONE;
out:
    if (!ct_ok()) fprintf(stderr, "child: %s\n", ct_error());
    return result;
}

static pid_t start(const char *folder, int threads, int loader_threads, bool captured) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(child(folder, threads, loader_threads, captured));
    return pid;
}

static int ended(pid_t pid) { /* its exit status, or minus the signal that ended it */
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static bool same_results(void) {
    return same_files(own_file("plain/losses"), own_file("killed/losses")) &&
           same_files(own_file("plain/weights.safetensors"), own_file("killed/weights.safetensors"));
}

static void check_kills(bool captured) {
    ct_state *nothing = ct_safetensors_load(given_file("nothing.safetensors"));
    NEEDS(nothing);
    ct_state_free(nothing);
    const double begin = harness_seconds();
    REQUIRE(mkdir(own_file("plain"), 0700) == 0 && mkdir(own_file("killed"), 0700) == 0);
    REQUIRE(ended(start(own_file("plain"), 1, 1, false)) == CHILD_DONE);
    const double whole = harness_seconds() - begin;
    srand(20);
    int kills = 0, round = 0, finished = 0;
    while (!harness_failed()) {
        const pid_t pid = start(own_file("killed"), 1 + round % 3, round % 4, captured);
        round++;
        if (kills < KILLS) { /* some come before the first step, some late; most in the midst of it */
            const double delay = whole * 0.1 * rand() / RAND_MAX;
            nanosleep(&(struct timespec){(time_t)delay, (long)(1e9 * (delay - (double)(time_t)delay))}, NULL);
            kill(pid, SIGKILL);
        }
        const int result = ended(pid);
        if (result == -SIGKILL) {
            kills++;
            continue;
        }
        harness_check(result == CHILD_DONE, __FILE__, __LINE__, "round %d ended with %d", round, result);
        CHECK(same_results());
        finished++;
        if (kills >= KILLS) break;
        char command[600]; /* done before it was killed often enough: again from the beginning */
        snprintf(command, sizeof command, "rm -rf %s/killed && mkdir %s/killed", own_folder(), own_folder());
        CHECK(system(command) == 0);
    }
    CHECK(kills == KILLS && finished >= 1);
    char command[600]; /* nothing half-written is left beside the two that are kept */
    snprintf(command, sizeof command, "test $(ls %s/killed | grep -c step-) -eq 2 && ! ls %s/killed | grep -q tmp-",
             own_folder(), own_folder());
    CHECK(system(command) == 0);
    remove_own_folder();
}

TEST_LIMIT(twenty_kills_change_no_bit, 300) { check_kills(false); }
TEST_LIMIT(nor_do_twenty_of_a_captured_training, 300) { check_kills(true); }

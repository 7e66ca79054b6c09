/* A host that opens the library at run time, as plug-in hosts and language runtimes do: threads from before and after use
 * it, it is closed and opened again, and a child uses it too. Prints what went wrong; exits with 1 then. */
#include <cotangent.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    __typeof__(ct_from_data) *from_data;
    __typeof__(ct_set_requires_grad) *set_requires_grad;
    __typeof__(ct_matmul) *matmul;
    __typeof__(ct_sum_p) *sum;
    __typeof__(ct_backward) *backward;
    __typeof__(ct_grad_of) *grad_of;
    __typeof__(ct_read) *read;
    __typeof__(ct_ok) *ok;
    __typeof__(ct_error) *error;
    __typeof__(ct_error_clear) *error_clear;
    __typeof__(ct_scope_begin) *scope_begin;
    __typeof__(ct_scope_end) *scope_end;
} ct;

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("dlopen: %s\n", dlerror());
        exit(1);
    }
#define TAKE(member, symbol) *(void **)&ct.member = dlsym(library, #symbol)
    TAKE(from_data, ct_from_data);
    TAKE(set_requires_grad, ct_set_requires_grad);
    TAKE(matmul, ct_matmul);
    TAKE(sum, ct_sum_p);
    TAKE(backward, ct_backward);
    TAKE(grad_of, ct_grad_of);
    TAKE(read, ct_read);
    TAKE(ok, ct_ok);
    TAKE(error, ct_error);
    TAKE(error_clear, ct_error_clear);
    TAKE(scope_begin, ct_scope_begin);
    TAKE(scope_end, ct_scope_end);
    return library;
}

enum { SIZE = 300 }; /* a product large enough for several threads */

/* The gradient of sum(a a) for a of ones is 2 n everywhere; and an error is this thread's own. Returns what failed. */
static const char *use(void) {
    static float ones[SIZE * SIZE];
    static float *grad;
    const char *wrong = NULL;
    ct_scope_mark mark = ct.scope_begin();
    for (int i = 0; i < SIZE * SIZE; i++) ones[i] = 1;
    ct_tensor *a = ct.set_requires_grad(ct.from_data(ones, CT_DIMS(SIZE, SIZE), CT_F32), true);
    if (!ct.backward(ct.sum(ct.matmul(a, a), NULL))) wrong = "backward";
    grad = malloc(sizeof ones);
    if (!wrong && !ct.read(ct.grad_of(a), grad, sizeof ones)) wrong = "read";
    for (int i = 0; !wrong && i < SIZE * SIZE; i++)
        if (grad[i] != 2.0f * SIZE) wrong = "the gradient";
    free(grad);
    if (!ct.ok()) wrong = "an error";
    ct.matmul(a, ct.from_data(ones, CT_DIMS(2, 3), CT_F32));
    if (ct.ok() || !strstr(ct.error(), "f32[2,3]")) wrong = "the error's text";
    ct.error_clear();
    ct.scope_end(mark);
    return wrong;
}

/* Threads take turns: a stage each, which main waits for. */
static pthread_barrier_t opened, used, closed;

static void *from_before(void *failure) {
    pthread_barrier_wait(&opened);
    *(const char **)failure = use();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed); /* it ends after dlclose, and what it had in the library goes with it */
    return NULL;
}

static void *from_after(void *failure) {
    *(const char **)failure = use();
    return NULL;
}

static int report(const char *who, const char *failure) {
    if (failure) printf("%s: %s\n", who, failure);
    return failure != NULL;
}

int main(int argc, char **argv) {
    int failed = 0;
    if (argc < 2) return 2;
    pthread_t before, after;
    const char *failure = NULL;
    pthread_barrier_init(&opened, NULL, 2);
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    pthread_create(&before, NULL, from_before, &failure);
    void *library = open_library(argv[1]);
    failed |= report("the opening thread", use());
    pthread_barrier_wait(&opened);
    pthread_barrier_wait(&used);
    failed |= report("a thread from before", failure);
    pthread_create(&after, NULL, from_after, &failure);
    pthread_join(after, NULL);
    failed |= report("a thread from after", failure);
    if (dlclose(library) != 0) failed |= report("dlclose", dlerror());
    pthread_barrier_wait(&closed);
    pthread_join(before, NULL);
    library = open_library(argv[1]);
    failed |= report("opened again", use());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(report("a child", use()));
    int status = 0;
    waitpid(child, &status, 0);
    if (status) printf("the child ended with status %d\n", status);
    dlclose(library);
    return failed || status;
}

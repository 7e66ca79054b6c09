/* What `cotangent info` says of a machine: the driver's version, and which of NVIDIA's libraries can be opened, with theirs. */
#include "backends/cuda/libraries.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/driver.h"

/* ---- Versions, as each library tells them ---- */

typedef void (*any_function)(void);

static void cublas_version(any_function function, char *text, size_t room) {
    const size_t v = ((size_t(*)(void))function)(); /* 130100: 13.1.0 */
    snprintf(text, room, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

static void cudnn_version(any_function function, char *text, size_t room) {
    const size_t v = ((size_t(*)(void))function)(); /* 91400, and 8902 before version 9 */
    const size_t major = v >= 90000 ? 10000 : 1000;
    snprintf(text, room, "%zu.%zu.%zu", v / major, v % major / 100, v % 100);
}

static void nvrtc_version(any_function function, char *text, size_t room) {
    int major = 0, minor = 0;
    ((int (*)(int *, int *))function)(&major, &minor);
    snprintf(text, room, "%d.%d", major, minor);
}

static void nccl_version(any_function function, char *text, size_t room) {
    int v = 0;
    ((int (*)(int *))function)(&v); /* 22803: 2.28.3 */
    snprintf(text, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

static const struct {
    const char *title, *names[3], *function; /* of CUDA 13, 12, and whichever */
    void (*version)(any_function function, char *text, size_t room);
} libraries[] = {
    {"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, "cublasLtGetVersion", cublas_version},
    {"cuDNN", {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"}, "cudnnGetVersion", cudnn_version},
    {"NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "nvrtcVersion", nvrtc_version},
    {"NCCL", {"libnccl.so.2", "libnccl.so"}, "ncclGetVersion", nccl_version},
};

static char found[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_libraries(void) {
    size_t used = 0;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && used < sizeof found; i++) {
        char version[64] = "";
        void *library = NULL;
        any_function function = NULL;
        for (int n = 0; n < 3 && libraries[i].names[n] && !library; n++)
            library = dlopen(libraries[i].names[n], RTLD_LAZY | RTLD_LOCAL);
        if (library) *(void **)&function = dlsym(library, libraries[i].function);
        if (function) libraries[i].version(function, version, sizeof version);
        /* it stays open: some of them do not survive being closed */
        const char *between = i ? ", " : "", *title = libraries[i].title;
        const int more = function ? snprintf(found + used, sizeof found - used, "%s%s %s", between, title, version)
                                  : snprintf(found + used, sizeof found - used, "%sno %s", between, title);
        used += more > 0 ? (size_t)more : 0;
    }
}

void ct_cuda_libraries(char *text, size_t room) {
    pthread_once(&once, find_libraries);
    snprintf(text, room, "%s", found);
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build ...": its first word with digits and a dot. */
static bool kernel_module(char *version, size_t room) {
    char line[512], *rest = NULL;
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    const bool read = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    for (char *word = read ? strtok_r(line, " \t\n", &rest) : NULL; word; word = strtok_r(NULL, " \t\n", &rest))
        if (isdigit((unsigned char)word[0]) && strchr(word, '.')) {
            snprintf(version, room, "%s", word);
            return true;
        }
    return false;
}

void ct_cuda_driver_text(char *text, size_t room) {
    char module[64];
    int version = 0;
    ct_cuda.cuDriverGetVersion(&version); /* 13000: CUDA 13.0 */
    const int major = version / 1000, minor = version % 1000 / 10;
    if (kernel_module(module, sizeof module)) snprintf(text, room, "driver %s (CUDA %d.%d)", module, major, minor);
    else snprintf(text, room, "driver for CUDA %d.%d", major, minor);
}

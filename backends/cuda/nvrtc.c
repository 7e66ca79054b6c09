/* Opening NVRTC, and compiling by it. */
#include "backends/cuda/nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)          \
    X(nvrtcVersion)           \
    X(nvrtcGetErrorString)    \
    X(nvrtcCreateProgram)     \
    X(nvrtcDestroyProgram)    \
    X(nvrtcCompileProgram)    \
    X(nvrtcGetCUBINSize)      \
    X(nvrtcGetCUBIN)          \
    X(nvrtcGetProgramLogSize) \
    X(nvrtcGetProgramLog)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} rtc;

enum { HEADERS = 32 };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;
static char version[32];

static void open_library(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *library = NULL;
    int major = 0, minor = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    there = library != NULL;
#define X(name) there = there && (*(void **)&rtc.name = dlsym(library, #name)) != NULL;
    FUNCTIONS(X)
#undef X
    there = there && rtc.nvrtcVersion(&major, &minor) == NVRTC_SUCCESS;
    if (there) snprintf(version, sizeof version, "nvrtc-%d.%d", major, minor);
}

bool ct_nvrtc_there(void) {
    pthread_once(&once, open_library);
    return there;
}

const char *ct_nvrtc_version(void) {
    ct_nvrtc_there();
    return version;
}

/* The beginning of the compiler's messages. */
static void read_log(nvrtcProgram program, nvrtcResult result, char *why, size_t room) {
    size_t bytes = 0;
    char *log = rtc.nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS && bytes > 1 ? malloc(bytes) : NULL;
    if (log && rtc.nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS) snprintf(why, room, "%s", log);
    else snprintf(why, room, "%s", rtc.nvrtcGetErrorString(result));
    free(log);
}

static void *machine_code(nvrtcProgram program, size_t *bytes) {
    void *code = NULL;
    if (rtc.nvrtcGetCUBINSize(program, bytes) != NVRTC_SUCCESS || !*bytes || !(code = malloc(*bytes))) return NULL;
    if (rtc.nvrtcGetCUBIN(program, code) == NVRTC_SUCCESS) return code;
    free(code);
    return NULL;
}

void *ct_nvrtc_compile(const char *text, const ct_nvrtc_header *headers, int n_headers, int capability, size_t *bytes,
                       char *why, size_t room) {
    const char *names[HEADERS], *texts[HEADERS];
    char architecture[40];
    /* as nvcc is told for all other device code */
    const char *const options[] = {architecture, "--std=c++17", "--fmad=false", "--diag-suppress=186,177",
                                   "--device-as-default-execution-space"};
    nvrtcProgram program = NULL;
    snprintf(why, room, "NVRTC is missing");
    if (!ct_nvrtc_there() || n_headers > HEADERS) return NULL;
    for (int i = 0; i < n_headers; i++) names[i] = headers[i].name, texts[i] = headers[i].text;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d", capability);
    nvrtcResult result = rtc.nvrtcCreateProgram(&program, text, "fused.cu", n_headers, texts, names);
    if (result != NVRTC_SUCCESS) {
        snprintf(why, room, "%s", rtc.nvrtcGetErrorString(result));
        return NULL;
    }
    result = rtc.nvrtcCompileProgram(program, (int)(sizeof options / sizeof *options), options);
    void *code = result == NVRTC_SUCCESS ? machine_code(program, bytes) : NULL;
    if (!code) read_log(program, result, why, room);
    rtc.nvrtcDestroyProgram(&program);
    return code;
}

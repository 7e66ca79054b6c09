/* Finding and opening the WebGPU runtime. */
#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/webgpu/device.h"

ct_wgpu_runtime ct_wgpu;

/* Versions of wgpu-native that the calls here were tried with; others may have another ABI. */
enum { VERSION_LEAST = 29, VERSION_MOST = 29 };

static const char *const system_names[] = {"libwebgpu_dawn.so.0",  "libwebgpu_dawn.so",    "libwgpu_native.so",
                                           "libwgpu_native.dylib", "libwebgpu_dawn.dylib", NULL};

/* Where pip installs the wheel `wgpu`. */
static const char *const wheel_patterns[] = {
    "%s/.local/lib/python3*/site-packages/wgpu/resources/libwgpu_native-release.so",
    "/usr/local/lib/python3*/dist-packages/wgpu/resources/libwgpu_native-release.so",
    "/usr/local/lib/python3*/site-packages/wgpu/resources/libwgpu_native-release.so",
    "/usr/lib/python3/dist-packages/wgpu/resources/libwgpu_native-release.so",
    NULL,
};

static void *open_glob(const char *pattern) {
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0 && !library;)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

static void *open_wheel(void) {
    char pattern[512];
    void *library = NULL;
    const char *environment = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    if (environment) {
        snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages/wgpu/resources/libwgpu_native-release.so",
                 environment);
        library = open_glob(pattern);
    }
    for (int i = 0; wheel_patterns[i] && !library; i++) {
        const char *in_home = strchr(wheel_patterns[i], '%');
        if (in_home && !home) continue;
        if (in_home) snprintf(pattern, sizeof pattern, "%s%s", home, in_home + 2);
        library = open_glob(in_home ? pattern : wheel_patterns[i]);
    }
    return library;
}

/* A function pointer from dlsym without a cast that ISO C lacks. */
static void take(void *library, const char *name, void *function, size_t size) {
    if (ct_wgpu_given_function(name, function, size)) return;
    void *found = dlsym(library, name);
    memcpy(function, &found, size);
}

static bool take_functions(void *library, char *why, size_t room) {
    const char *missing = NULL;
#define CT_WGPU_TAKE(name)                                           \
    take(library, "wgpu" #name, &ct_wgpu.name, sizeof ct_wgpu.name); \
    if (!ct_wgpu.name) missing = "wgpu" #name;
    CT_WGPU_FUNCTIONS(CT_WGPU_TAKE)
#undef CT_WGPU_TAKE
    if (missing) snprintf(why, room, "the WebGPU runtime has no %s: it is too old, or something else", missing);
    return !missing;
}

/* Dawn before the header was standard (of 2024, as in the wheel dawn-python) has functions of the same names that take other arguments, and
 * beside each of them another one under a number: to call it would end the program. */
static bool take_abi(void *library, char *why, size_t room) {
    void *numbered = NULL;
    take(library, "wgpuAdapterRequestDevice2", &numbered, sizeof numbered);
    if (numbered)
        snprintf(why, room, "the WebGPU runtime is older than the standard header: its functions take other arguments");
    return !numbered;
}

/* wgpu-native tells its version; Dawn has no function for it, and is known by the lack of that one. */
static bool take_version(void *library, char *why, size_t room) {
    uint32_t (*version)(void) = NULL;
    take(library, "wgpuGetVersion", &version, sizeof version);
    if (!version) {
        snprintf(ct_wgpu.name, sizeof ct_wgpu.name, "Dawn");
        return true;
    }
    const uint32_t v = version();
    snprintf(ct_wgpu.name, sizeof ct_wgpu.name, "wgpu-native %u.%u.%u.%u", v >> 24, v >> 16 & 255, v >> 8 & 255,
             v & 255);
    if ((v >> 24) < VERSION_LEAST || (v >> 24) > VERSION_MOST) {
        snprintf(why, room, "%s is not a version that is known to work (%d to %d are)", ct_wgpu.name, VERSION_LEAST,
                 VERSION_MOST);
        return false;
    }
    take(library, "wgpuDevicePoll", &ct_wgpu.native.DevicePoll, sizeof ct_wgpu.native.DevicePoll);
    take(library, "wgpuInstanceEnumerateAdapters", &ct_wgpu.native.InstanceEnumerateAdapters,
         sizeof ct_wgpu.native.InstanceEnumerateAdapters);
    take(library, "wgpuDeviceCreateShaderModuleTrusted", &ct_wgpu.native.DeviceCreateShaderModuleTrusted,
         sizeof ct_wgpu.native.DeviceCreateShaderModuleTrusted);
    return true;
}

/* wgpu-native also tries OpenGL, which writes to the host's standard error where there is none, and has no compute that we could use. Of
 * its own options only the first counts here; the others are 0, whatever there are of them. */
static WGPUInstance make_instance(void) {
    struct {
        WGPUChainedStruct chain;
        uint64_t backends;
        unsigned char others[1024];
    } only = {.chain = {.sType = (WGPUSType)0x00030004},
              .backends = 1 << 0 | 1 << 2 | 1 << 3}; /* Vulkan, Metal, D3D12 */
    WGPUInstanceDescriptor descriptor = WGPU_INSTANCE_DESCRIPTOR_INIT;
    if (ct_wgpu.native.DevicePoll) descriptor.nextInChain = &only.chain;
    return ct_wgpu.CreateInstance(&descriptor);
}

static void *find_library(char *why, size_t room) {
    const char *named = getenv("CT_WEBGPU_LIBRARY");
    void *library = NULL;
    if (named && *named) {
        library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library) snprintf(why, room, "CT_WEBGPU_LIBRARY cannot be opened: %s", dlerror());
        return library;
    }
    for (int i = 0; !library && system_names[i]; i++) library = dlopen(system_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) library = open_wheel();
#ifdef CT_WEBGPU_BESIDE_HEADER /* the one that this module was built with */
    if (!library) library = dlopen(CT_WEBGPU_BESIDE_HEADER, RTLD_NOW | RTLD_LOCAL);
#endif
    if (!library)
        snprintf(why, room,
                 "there is no WebGPU runtime: neither Dawn nor wgpu-native is installed (pip install wgpu has it, and "
                 "CT_WEBGPU_LIBRARY names one)");
    return library;
}

bool ct_wgpu_open(char *why, size_t room) {
    void *none = NULL, *library = NULL;
    const bool given = ct_wgpu_given_function("wgpuCreateInstance", &none, sizeof none);
    if (!given && !(library = find_library(why, room))) return false;
    if (!take_abi(library, why, room) || !take_functions(library, why, room) || !take_version(library, why, room))
        return false;
    ct_wgpu.instance = make_instance();
    if (!ct_wgpu.instance) snprintf(why, room, "the WebGPU runtime makes no instance");
    return ct_wgpu.instance != NULL;
}

/* Whether AMX may be used: the processor has it, and the kernel of the operating system grants its registers, which a process has to ask
 * for before its first use (Linux: arch_prctl). A host that allows it is asked once; a refusal means the level below. */
#include "backends/cpu/gemm/amx.h"

bool ct__amx_is_emulated;

#if defined(CT_HAVE_AVX512AMX) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool granted;

static void ask(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    const unsigned wanted = 1u << 24 | 1u << 22 | 1u << 25; /* AMX-TILE, AMX-BF16, AMX-INT8 */
    granted = (d & wanted) == wanted && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool ct__amx_is_granted(void) {
    pthread_once(&once, ask);
    return granted || ct__amx_is_emulated;
}
#else
bool ct__amx_is_granted(void) { return false; }
#endif

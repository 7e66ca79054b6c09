/* The trap of amx_trap.h. It knows the instructions that the kernels use, as compilers write them: VEX in three bytes with no prefix
 * before it. Any other SIGILL is passed on. */
#include "tests/amx_trap.h"

#include <cotangent.h>

#include "backends/cpu/gemm/amx.h"
#include "tests/amx_tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

static _Atomic int64_t executed;

/* ---- Decoding ---- */

enum { PREFIX_NONE, PREFIX_66, PREFIX_F3, PREFIX_F2 };
#define CODE(opcode, prefix) ((opcode) << 2 | (prefix))

/* What a ModRM byte and its successors name. A tile's rows begin at `base`, `index` bytes apart. */
typedef struct operand {
    uintptr_t base;
    int64_t index;
    int length; /* of them, in bytes */
} operand;

static operand decode_memory(const uint8_t *modrm, int index_high, int base_high, const greg_t *registers) {
    static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    const int mod = modrm[0] >> 6, rm = modrm[0] & 7;
    const uint8_t *next = modrm + 1;
    operand o = {0};
    int base = rm, displacement = 0;
    if (rm == 4) { /* a SIB byte */
        const int sib = *next++, index = (sib >> 3 & 7) | index_high;
        if (index != 4) o.index = (int64_t)((uint64_t)registers[order[index]] << (sib >> 6));
        base = sib & 7;
    }
    const bool has_base = mod != 0 || base != 5;
    if (mod == 1) {
        displacement = (int8_t)*next++;
    } else if (mod == 2 || !has_base) {
        memcpy(&displacement, next, 4);
        next += 4;
    }
    if (has_base) o.base = (uintptr_t)registers[order[base | base_high]];
    else if (rm == 5) o.base = (uintptr_t)next; /* from the next instruction on: no operand follows */
    o.base += (uintptr_t)(intptr_t)displacement;
    o.length = (int)(next - modrm);
    return o;
}

/* Executes the instruction that is next, if it is one of AMX's. */
static bool execute(greg_t *registers) {
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false; /* VEX.128.0F38.W0 */
    const int reg_high = at[1] & 0x80 ? 0 : 8, index_high = at[1] & 0x40 ? 0 : 8, base_high = at[1] & 0x20 ? 0 : 8;
    const int third = ~at[2] >> 3 & 15, code = CODE(at[3], at[2] & 3);
    const bool in_memory = at[4] >> 6 != 3, has_sib = in_memory && (at[4] & 7) == 4;
    const int reg = (at[4] >> 3 & 7) | reg_high, rm = (at[4] & 7) | base_high;
    const bool is_product = code == CODE(0x5c, PREFIX_F3) || code == CODE(0x5e, PREFIX_66);
    if (third && !is_product) return false;
    operand o = {.length = 1};
    if (in_memory) o = decode_memory(at + 4, index_high, base_high, registers);
    switch (code) {
    case CODE(0x49, PREFIX_NONE):
        if (in_memory && reg == 0) amx_configure((const void *)(o.base + (uintptr_t)o.index));
        else if (at[4] == 0xc0) amx_release();
        else return false;
        break;
    case CODE(0x49, PREFIX_F2):
        if (in_memory || (at[4] & 7) != 0) return false;
        amx_zero(reg);
        break;
    case CODE(0x4b, PREFIX_F2): /* tileloadd, and with a hint of its use tileloaddt1 */
    case CODE(0x4b, PREFIX_66):
        if (!has_sib) return false;
        amx_load(reg, (const void *)o.base, o.index);
        break;
    case CODE(0x4b, PREFIX_F3):
        if (!has_sib) return false;
        amx_store(reg, (void *)o.base, o.index);
        break;
    case CODE(0x5c, PREFIX_F3):
        if (in_memory) return false;
        amx_product_bf16(reg, rm, third);
        break;
    case CODE(0x5e, PREFIX_66):
        if (in_memory) return false;
        amx_product_u8(reg, rm, third);
        break;
    default: return false;
    }
    registers[REG_RIP] += 4 + o.length;
    executed++;
    return true;
}

/* ---- The signal ---- */

static struct sigaction before;
static bool is_set;

static void handle(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (execute(registers)) {
        while (execute(registers)) {
        } /* those that follow at once need no trap of their own */
    } else if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        sigaction(number, &before, NULL); /* and again, without us */
    } else {
        before.sa_handler(number);
    }
}

void amx_trap_stop(void) {
    if (is_set) sigaction(SIGILL, &before, NULL);
    ct__amx_is_emulated = is_set = false;
}

bool amx_trap_start(void) {
    const char *level = ct_isa(); /* chosen now at the latest: by what the processor has */
    if (!is_set && !ct__amx_is_granted()) {
        struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
        sigemptyset(&action.sa_mask);
        is_set = ct__amx_is_emulated = sigaction(SIGILL, &action, &before) == 0;
    }
    const bool there = ct_set_isa("avx512amx");
    ct_error_clear();
    ct_set_isa(level);
    if (!there) amx_trap_stop();
    return there;
}

bool amx_trap_is_set(void) { return is_set; }
int64_t amx_trap_count(void) { return executed; }
#else
bool amx_trap_start(void) { return false; }
void amx_trap_stop(void) {}
bool amx_trap_is_set(void) { return false; }
int64_t amx_trap_count(void) { return 0; }
#endif

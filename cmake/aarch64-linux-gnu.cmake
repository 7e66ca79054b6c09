# Toolchain file: builds for 64-bit ARM on another machine, and runs mkops and the tests in QEMU's user mode.
# Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
find_program(CT_QEMU NAMES qemu-aarch64-static qemu-aarch64)
set(CMAKE_CROSSCOMPILING_EMULATOR ${CT_QEMU} -L /usr/aarch64-linux-gnu)

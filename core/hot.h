/* Functions that nearly every call passes. */
#ifndef COTANGENT_CORE_HOT_H
#define COTANGENT_CORE_HOT_H

/* The linker puts them side by side: a call then takes few pages of code, wherever the rest of the library lies. */
#define CT__HOT __attribute__((hot))

#endif

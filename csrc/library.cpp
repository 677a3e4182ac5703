// Properties of the library, for the code that loaded it. Operators are in the other files, each with its kernel.

#include "simd/cpu.h"

#define INVERTBENCH_QUOTED(name) #name
#define INVERTBENCH_NAME_OF(set) INVERTBENCH_QUOTED(set)

extern "C" __attribute__((visibility("default"))) const char* invertbench_instructions() {
  return INVERTBENCH_NAME_OF(INVERTBENCH_SET);
}

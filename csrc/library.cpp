// Properties of the library, for the code that loaded it. Operators are in the other files, each with its kernel.

#include "simd/cpu.h"

extern "C" __attribute__((visibility("default"))) const char* invertbench_instructions() {
  return invertbench::name(invertbench::instructions());
}

// The kernels of one instruction set: no include guard.
#include "emerging/cpu/events.h"
#include "emerging/cpu/diagonals.h"
#include "emerging/cpu/planes.h"

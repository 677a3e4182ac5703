// The kernels of one instruction set: no include guard.
#include "simd/simd.h"
#include "butterfly/cpu/weights.h"
#include "butterfly/cpu/example_lanes/tile.h"
#include "butterfly/cpu/example_lanes/run.h"
#include "butterfly/cpu/entry_lanes/lanes.h"
#include "butterfly/cpu/entry_lanes/lanes_backward.h"
#include "butterfly/cpu/one_by_one.h"
#include "butterfly/cpu/table.h"

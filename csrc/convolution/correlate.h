// The gradient of a convolution's kernel, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include "convolution/frame.h"

namespace invertbench::correlation {

// The frame of events (N, C, *spatial) with kernels of these sizes along the spatial axes, and padding before them.
Frame frame_of(const at::Tensor& x, at::IntArrayRef sizes, at::IntArrayRef before, bool circular);

// sum over events n and positions p of of_y[n, o, p] x~[n, i, p + t - before], x~ the padded events: (O, I, rows,
// columns) in x's precision, with one row for sequences. The sums are of double precision, over up to eight parts of
// the events, in their order: the same for any number of threads.
at::Tensor correlate(const at::Tensor& x, const at::Tensor& of_y, const Frame& frame);

}  // namespace invertbench::correlation

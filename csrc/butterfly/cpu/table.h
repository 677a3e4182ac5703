// The table of what was compiled for one kind of instructions.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

template <class T>
const ButterflyKernels<T>& kernels() {
  static const ButterflyKernels<T> found{
      LANES<T>,     log_abs_dets<T>, log_abs_det_gradient<T>, invert<T>,      invert_gradient<T>, pack<T>,
      add_unpacked<T>, pack_tile<T>, unpack_tile<T>,              unpack_shared<T>, apply_staged<T>,  staged_back<T>,
      apply<T>,     backward<T>,     apply_few<T>, backward_few<T>};
  return found;
}

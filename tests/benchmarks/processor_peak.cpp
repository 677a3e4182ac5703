// Peak rates of a processor with AVX2, and with AVX-512, a thread on each core: fused multiply-adds that read one operand
// from the first-level cache, plain reads from it, multiply-adds of registers, and shuffles. In 10^9 vectors of 32 bytes,
// or of 64, per second of every thread's processor time.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr long CALLS = 100'000'000;

// Twelve instructions, the number of each at \\i, in a loop.
#define LOOP(name, instruction)                                                                             \
  void name(long calls, const float* x) {                                                                   \
    asm volatile("1:\n\t.irp i,0,1,2,3,4,5,6,7,8,9,10,11\n\t" instruction "\n\t.endr\n\tdec %0\n\tjnz 1b"     \
                 : "+r"(calls)                                                                              \
                 : "r"(x)                                                                                   \
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                   "xmm11", "memory");                                                                      \
  }

LOOP(multiply_adds, "vfmadd231ps 32*\\i(%1),%%ymm15,%%ymm\\i")
LOOP(reads, "vmovaps 32*\\i(%1),%%ymm\\i")
LOOP(wide_multiply_adds, "vfmadd231ps %%zmm15,%%zmm15,%%zmm\\i")
LOOP(wide_multiply_adds_with_reads, "vfmadd231ps 64*\\i(%1),%%zmm15,%%zmm\\i")
LOOP(wide_shuffles, "vunpcklps %%zmm15,%%zmm15,%%zmm\\i")

double processor_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

void measure(const char* name, void (*work)(long, const float*), int threads) {
  struct alignas(64) Data {
    float x[192] = {};
  };
  std::vector<Data> data(threads);
  std::vector<double> rates(threads);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      const double start = processor_time();
      work(CALLS, data[i].x);
      rates[i] = 12e-9 * CALLS / (processor_time() - start);
    });
  }
  for (std::thread& thread : running) thread.join();
  std::printf("%-28s", name);
  for (const double rate : rates) std::printf(" %6.2f", rate);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  for (int round = 0; round < 3; ++round) {
    measure("multiply-adds with a read", multiply_adds, threads);
    measure("reads", reads, threads);
    if (!__builtin_cpu_supports("avx512f")) continue;
    measure("64 bytes: multiply-adds", wide_multiply_adds, threads);
    measure("64 bytes: with a read", wide_multiply_adds_with_reads, threads);
    measure("64 bytes: shuffles", wide_shuffles, threads);
  }
}

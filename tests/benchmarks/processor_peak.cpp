// What a processor with AVX2 does at most, a thread on each core: fused multiply-adds that read one operand from the
// first-level cache, and plain reads from it. In 10^9 vectors of 32 bytes per second, of every thread's processor
// time. With AVX-512 also multiply-adds of registers of 64 bytes, in 10^9 of those.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr long CALLS = 100'000'000;

void multiply_adds(long calls, const float* x) {
  asm volatile(
      "1:\n\t"
      "vfmadd231ps (%1),%%ymm15,%%ymm0\n\tvfmadd231ps 32(%1),%%ymm15,%%ymm1\n\tvfmadd231ps 64(%1),%%ymm15,%%ymm2\n\t"
      "vfmadd231ps 96(%1),%%ymm15,%%ymm3\n\tvfmadd231ps 128(%1),%%ymm15,%%ymm4\n\tvfmadd231ps 160(%1),%%ymm15,%%ymm5\n\t"
      "vfmadd231ps 192(%1),%%ymm15,%%ymm6\n\tvfmadd231ps 224(%1),%%ymm15,%%ymm7\n\tvfmadd231ps 256(%1),%%ymm15,%%ymm8\n\t"
      "vfmadd231ps 288(%1),%%ymm15,%%ymm9\n\tvfmadd231ps 320(%1),%%ymm15,%%ymm10\n\tvfmadd231ps 352(%1),%%ymm15,%%ymm11\n\t"
      "dec %0\n\tjnz 1b"
      : "+r"(calls)
      : "r"(x)
      : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "memory");
}

void reads(long calls, const float* x) {
  asm volatile(
      "1:\n\t"
      "vmovaps (%1),%%ymm0\n\tvmovaps 32(%1),%%ymm1\n\tvmovaps 64(%1),%%ymm2\n\tvmovaps 96(%1),%%ymm3\n\t"
      "vmovaps 128(%1),%%ymm4\n\tvmovaps 160(%1),%%ymm5\n\tvmovaps 192(%1),%%ymm6\n\tvmovaps 224(%1),%%ymm7\n\t"
      "vmovaps 256(%1),%%ymm8\n\tvmovaps 288(%1),%%ymm9\n\tvmovaps 320(%1),%%ymm10\n\tvmovaps 352(%1),%%ymm11\n\t"
      "dec %0\n\tjnz 1b"
      : "+r"(calls)
      : "r"(x)
      : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "memory");
}

void wide_multiply_adds(long calls, const float*) {
  asm volatile(
      "1:\n\t"
      "vfmadd231ps %%zmm15,%%zmm15,%%zmm0\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm1\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm2\n\t"
      "vfmadd231ps %%zmm15,%%zmm15,%%zmm3\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm4\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm5\n\t"
      "vfmadd231ps %%zmm15,%%zmm15,%%zmm6\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm7\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm8\n\t"
      "vfmadd231ps %%zmm15,%%zmm15,%%zmm9\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm10\n\tvfmadd231ps %%zmm15,%%zmm15,%%zmm11\n\t"
      "dec %0\n\tjnz 1b"
      : "+r"(calls)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
}

double processor_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

void measure(const char* name, void (*work)(long, const float*), int threads) {
  struct alignas(64) Data {
    float x[96] = {};
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
    if (__builtin_cpu_supports("avx512f")) measure("multiply-adds of 64 bytes", wide_multiply_adds, threads);
  }
}

// What a processor with AVX2 does at most, a thread on each core: fused multiply-adds that read one operand from the
// first-level cache, and plain reads from it. In 10^9 vectors of 32 bytes per second, of every thread.
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

void measure(const char* name, void (*work)(long, const float*), int threads) {
  struct alignas(64) Data {
    float x[96] = {};
  };
  std::vector<Data> data(threads);
  std::vector<double> rates(threads);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      const auto start = std::chrono::steady_clock::now();
      work(CALLS, data[i].x);
      rates[i] = 12e-9 * CALLS / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  }
}

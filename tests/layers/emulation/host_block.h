// A block of threads on the processor, which runs each step thread by thread, the last first and the first last by
// turns, and watches what the threads do:
//
// - a place of shared memory that one thread writes in a step, no other may read or write in that step;
// - shared memory that nothing wrote must not be read;
// - what `copy` brings is there only once `arrived` and the end of a step have passed;
// - a place of global memory is stored no more than once by a launch, and only where `allow` says.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/block.h"

namespace invertbench::emulation {

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

// Global memory that a launch may store to, and how often it did.
struct Ledger {
  struct Memory {
    const char* begin;
    int64_t bytes, width;
    std::vector<int> stores;
  };
  std::vector<Memory> memories;

  template <class T>
  void allow(const T* begin, int64_t count) {
    memories.push_back({reinterpret_cast<const char*>(begin), count * int64_t(sizeof(T)), int64_t(sizeof(T)),
                        std::vector<int>(size_t(count), 0)});
  }
  void stored(const void* at, int64_t width) {
    const char* place = static_cast<const char*>(at);
    for (Memory& memory : memories) {
      if (place < memory.begin || place >= memory.begin + memory.bytes) continue;
      if (width != memory.width) fail("a store of another width than the memory's numbers");
      if (++memory.stores[size_t((place - memory.begin) / width)] > 1) fail("global memory stored twice");
      return;
    }
    fail("a store to global memory that is not the launch's");
  }
};

struct Cell {
  int written_step = -1, written_thread = -1, read_step = -1, read_thread = -1;
  bool under_way = false, set = false;
};

class SharedMemory {
 public:
  explicit SharedMemory(int bytes) : bytes_(size_t(bytes), 0xff), cells_(size_t(bytes + 3) / 4) {}

  void* at(int offset, int width) {
    if (offset < 0 || offset + width > int(bytes_.size())) fail("shared memory beyond its end");
    return bytes_.data() + offset;
  }
  void read(int offset, int width) {
    at(offset, width);
    for (int i = offset / 4; i < (offset + width) / 4; ++i) {
      Cell& cell = cells_[size_t(i)];
      if (cell.under_way) fail("shared memory read before it arrived");
      if (!cell.set) fail("shared memory read that nothing wrote");
      if (cell.written_step == step && cell.written_thread != thread) fail("read in the step of another's write");
      if (cell.read_step == step && cell.read_thread != thread) cell.read_thread = -2;  // several
      else cell.read_thread = thread;
      cell.read_step = step;
    }
  }
  void write(int offset, int width, bool under_way) {
    at(offset, width);
    for (int i = offset / 4; i < (offset + width) / 4; ++i) {
      Cell& cell = cells_[size_t(i)];
      if (cell.under_way) fail("written while a copy is under way");
      if (cell.written_step == step && cell.written_thread != thread) fail("written by two threads in a step");
      if (cell.read_step == step && cell.read_thread != thread) fail("written in the step of another's read");
      cell.written_step = step;
      cell.written_thread = thread;
      cell.under_way = under_way;
      cell.set = true;
    }
  }
  void arrive(int offset, int width) {
    for (int i = offset / 4; i < (offset + width) / 4; ++i) {
      cells_[size_t(i)].under_way = false;
      cells_[size_t(i)].written_step = step;  // others see it from the next step on
      cells_[size_t(i)].written_thread = thread;
    }
  }
  int step = 0, thread = 0;

 private:
  std::vector<unsigned char> bytes_;
  std::vector<Cell> cells_;
};

// What a body sees as a pointer into shared memory.
template <class T>
class Shared {
 public:
  class Place {
   public:
    Place(SharedMemory& memory, int offset) : memory_(memory), offset_(offset) {}
    operator T() const {
      memory_.read(offset_, sizeof(T));
      T value;
      std::memcpy(&value, memory_.at(offset_, sizeof(T)), sizeof(T));
      return value;
    }
    Place& operator=(const T& value) {
      memory_.write(offset_, sizeof(T), false);
      std::memcpy(memory_.at(offset_, sizeof(T)), &value, sizeof(T));
      return *this;
    }
    Place& operator=(const Place& other) { return *this = T(other); }

   private:
    SharedMemory& memory_;
    int offset_;
  };

  Shared(SharedMemory& memory, int offset) : memory_(&memory), offset_(offset) {}
  Place operator[](int i) const { return Place(*memory_, offset_ + i * int(sizeof(T))); }
  Shared operator+(int i) const { return Shared(*memory_, offset_ + i * int(sizeof(T))); }
  SharedMemory& memory() const { return *memory_; }
  int offset(int i) const { return offset_ + i * int(sizeof(T)); }

 private:
  SharedMemory* memory_;
  int offset_;
};

template <class State>
class HostBlock {
 public:
  HostBlock(int threads, int bytes, Ledger& ledger)
      : states_(size_t(threads)), copies_(size_t(threads)), memory_(bytes), ledger_(ledger) {}

  int threads() const { return int(states_.size()); }

  template <class T>
  Shared<T> shared(int offset) {
    return Shared<T>(memory_, offset);
  }

  template <class Step>
  void step(const Step& f) {
    const int count = threads();
    for (int i = 0; i < count; ++i) {
      memory_.thread = memory_.step % 2 ? i : count - 1 - i;
      f(memory_.thread, states_[size_t(memory_.thread)]);
    }
    ++memory_.step;
  }

  template <class T>
  T load(const T* from) const {
    return *from;
  }
  template <class T>
  void store(T* to, T value) const {
    ledger_.stored(to, sizeof(T));
    *to = value;
  }
  template <class T>
  void copy(const Shared<T>& shared, int place, const T* from) const {
    const int offset = shared.offset(place);
    const T value = *from;
    memory_.write(offset, sizeof(T), true);
    copies_[size_t(memory_.thread)].open.push_back([this, offset, value] {
      std::memcpy(memory_.at(offset, sizeof(T)), &value, sizeof(T));
      memory_.arrive(offset, sizeof(T));
    });
  }
  void commit() const {
    Copies& own = copies_[size_t(memory_.thread)];
    own.groups.push_back(std::move(own.open));
    own.open.clear();
  }
  template <int N>
  void arrived() const {
    auto& groups = copies_[size_t(memory_.thread)].groups;
    while (groups.size() > size_t(N)) {
      for (const auto& finish : groups.front()) finish();
      groups.erase(groups.begin());
    }
  }

 private:
  struct Copies {
    std::vector<std::function<void()>> open;
    std::vector<std::vector<std::function<void()>>> groups;
  };
  std::vector<State> states_;
  mutable std::vector<Copies> copies_;
  mutable SharedMemory memory_;
  Ledger& ledger_;
};

}  // namespace invertbench::emulation

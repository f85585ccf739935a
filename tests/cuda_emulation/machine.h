// Machine: the emulated devices with their streams. Streams are queues; what is in them runs when
// a host thread waits, in an order that events allow and a seed chooses.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda_emulation/cuda_types.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/memory.h"
#include "tests/cuda_emulation/random.h"

namespace penstock::cuda_emulation {

using Lock = std::unique_lock<std::mutex>;

// One recording of an event; shared by the event, the operation that reaches it and those that
// wait for it.
struct Record {
  bool reached = false;
  Clock clock;
  std::uint64_t reached_at = 0;  // operations that had run
};

struct Event {
  int device = 0;
  bool timed = false;
  std::shared_ptr<Record> record;  // the latest; null until the first
};

struct Operation {
  std::string what;                     // "kernel add", for messages
  std::function<void()> run;            // may throw Fault
  bool locked = false;                  // run under the machine's lock
  std::function<bool()> ready = {};     // under the lock; empty: once it is first in its stream
  std::vector<std::byte*> blocks = {};  // that it touches, by their addresses
  std::string waits_for = {};           // what it needs beside its turn, for messages
};

// What a stream queued while it was captured; an executable graph is a copy.
struct Graph {
  std::vector<std::shared_ptr<Operation>> operations;
};
struct Executable : Graph {};

struct Stream {
  int id = 0;
  int device = 0;
  std::deque<std::shared_ptr<Operation>> queue;
  Clock clock;                     // what the next operation comes after
  std::uint64_t finished = 0;      // operations
  bool busy = false;               // its first operation runs
  bool destroyed = false;          // by its owner; goes once its queue is empty
  std::uint64_t urgency = 0;       // chance's order among streams
  std::unique_ptr<Graph> capture;  // gets the operations instead of the queue
  bool capture_broken = false;
};

class Machine {
 public:
  static Machine& get();

  Lock lock() { return Lock(mutex_); }

  // All that follows is called with the lock held.

  void start(const Options& options);
  const Options& options() const { return options_; }

  Stream* create_stream(int device);
  bool is_stream(Stream* stream) const { return streams_.contains(stream); }
  void destroy_stream(Stream* stream);
  std::vector<Stream*> streams_of(int device) const;
  Event* create_event(int device, bool timed);
  bool is_event(Event* event) const { return events_.contains(event); }
  void destroy_event(Event* event) { events_.erase(event); }

  // Appends to the stream, or to the graph that it is captured into. What is wrong with the order
  // of memory's uses becomes a fault.
  void enqueue(Stream& stream, std::shared_ptr<Operation> operation);
  // Notes that the operation touches the bytes; false where they are not in one block of a device.
  bool touch(Operation& operation, const void* data, std::size_t bytes);
  void record(Event& event, Stream& stream);
  void wait(Stream& stream, const Event& event);
  // The stream's next operation, as the order of uses sees it.
  Moment next_moment(const Stream& stream, std::string what) const;

  // Waits until done(), running queued work meanwhile; false after a fault.
  bool wait_until(Lock& lock, const std::function<bool()>& done, const std::string& what);
  // Waits and remembers that the host has seen what the clock stands for.
  bool synchronise(Lock& lock, const std::function<bool()>& done, const Clock& clock,
                   const std::string& what);
  // Runs a few operations, perhaps none; for calls that ask without waiting.
  void advance(Lock& lock);
  const Clock& host_clock() const { return host_clock_; }
  void saw(const Clock& clock) { join(host_clock_, clock); }
  // Runs all that can run.
  void drain(Lock& lock);
  void notify() { changed_.notify_all(); }

  void fault(const std::string& message, cudaError_t error = cudaErrorLaunchFailure);
  cudaError_t sticky() const { return sticky_; }
  const std::string& fault_text() const { return fault_; }
  void clear_fault();
  // Drops everything, whoever still holds handles to it.
  void discard() { start(options_); }

  Memory& memory() { return *memory_; }
  Pool& pool(int device) { return *pools_.at(static_cast<std::size_t>(device)); }
  Counters& counters() { return counters_; }
  std::map<const void*, int>& shared_limits() { return shared_limits_; }
  Random& random() { return random_; }
  std::uint64_t progress() const { return progress_; }
  std::vector<std::string> leftovers(Lock& lock);
  // Graphs, handles and communicators count themselves, by what they are called.
  std::map<std::string, int>& objects() { return objects_; }

 private:
  Stream* pick();
  bool is_ready(const Stream& stream) const;
  // Runs one operation; false when none can.
  bool run_one(Lock& lock);
  void run_first(Lock& lock, Stream& stream);
  std::string stuck() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  Options options_;
  Random random_{0};
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>(false, 0);
  std::vector<std::unique_ptr<Pool>> pools_;
  std::map<Stream*, std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> in_order_;  // of creation
  std::map<Event*, std::unique_ptr<Event>> events_;
  std::map<std::string, int> objects_;
  std::map<const void*, int> shared_limits_;
  int next_stream_ = 1;
  Clock host_clock_;
  std::uint64_t progress_ = 0;
  std::chrono::steady_clock::time_point progressed_ = std::chrono::steady_clock::now();
  cudaError_t sticky_ = cudaSuccess;
  std::string fault_;  // the first
  Counters counters_;
};

// The device that the calling thread has set.
int& current_device();

}  // namespace penstock::cuda_emulation

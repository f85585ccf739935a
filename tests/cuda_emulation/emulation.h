// What tests say to the emulation and learn from it. No product file includes this.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::cuda_emulation {

// PENSTOCK_EMULATION_SEED, or 0.
std::uint64_t default_seed();
// Unless PENSTOCK_EMULATION_GUARDED is 0.
bool default_guarded();

struct Options {
  std::uint64_t seed = default_seed();              // chooses every order that is open
  int devices = 1;                                  // that the process sees
  std::size_t memory_bytes = std::size_t{1} << 30;  // of each device
  // A host thread that touches device memory ends the program by SIGSEGV, unless a device runs
  // something at that moment.
  bool guarded = default_guarded();
  bool refuse_products = false;                // cuBLASLt has no algorithm for anything
  std::chrono::milliseconds patience{20'000};  // a wait in which nothing moves ends after it
};

// Since the last start().
struct Counters {
  std::int64_t host_waits = 0;                      // calls that had to wait for a device
  std::map<std::string, std::int64_t> launches;     // by the kernel's name, such as "add<float>"
  std::map<std::string, std::size_t> shared_bytes;  // by the same: the most a launch asked for
  std::int64_t copies = 0;                          // copies and fills that were queued
  std::int64_t copied_bytes = 0;
  std::int64_t allocations = 0;
  std::int64_t operations = 0;  // of all kinds that have run
  std::int64_t products = 0;    // of cuBLASLt, batches counted as one
  std::int64_t graph_captures = 0;
  std::int64_t graph_launches = 0;
  std::map<std::string, std::int64_t> ranges;      // of NVTX, by name
  std::map<std::string, std::int64_t> nccl_calls;  // by name, such as "ncclSend"
};

// Begins afresh, with nothing queued and no fault. Nothing of CUDA's may live any more: throws
// std::logic_error that names what does.
void start(const Options& options = {});

Counters counters();
void reset_counters();

// What went wrong first, which is what all calls after it fail with; empty: nothing.
std::string fault();
// Forgets it, so that calls succeed again.
void clear_fault();
// Drops all that is queued and all that lives, whoever still holds handles: after a planted fault.
void discard();

// Runs what can still run and then names all that is left: streams, events, blocks, graphs,
// communicators, handles, operations that nothing completes. Empty after a clean end.
std::vector<std::string> leftovers();

// The communicators of a device meet a system error: what is queued on them completes no more, and
// ncclCommGetAsyncError tells.
void break_communicators(int device);

// The name of a function, without its namespaces and parameters, from the program's symbol table.
std::string name_of_function(const void* function);

}  // namespace penstock::cuda_emulation

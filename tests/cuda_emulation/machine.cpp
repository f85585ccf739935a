#include "tests/cuda_emulation/machine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tests/cuda_emulation/clique.h"
#include "tests/cuda_emulation/fault.h"

namespace penstock::cuda_emulation {

int& current_device() {
  thread_local int device = 0;
  return device;
}

Machine& Machine::get() {
  static Machine machine;
  static const bool started = [] {
    machine.start({});
    return true;
  }();
  static_cast<void>(started);
  return machine;
}

void Machine::start(const Options& options) {
  options_ = options;
  random_ = Random(options.seed);
  forget_communicators();
  streams_.clear();
  in_order_.clear();
  events_.clear();
  objects_.clear();
  // Released blocks are kept for a while, and sizes are apart.
  const std::size_t bytes = 8 * options.memory_bytes * static_cast<std::size_t>(options.devices);
  memory_ = std::make_unique<Memory>(options.guarded, bytes);
  pools_.clear();
  for (int device = 0; device < options.devices; ++device) {
    pools_.push_back(std::make_unique<Pool>());
    pools_.back()->device = device;
  }
  next_stream_ = 1;
  host_clock_.clear();
  counters_ = {};
  clear_fault();
}

Stream* Machine::create_stream(int device) {
  auto stream = std::make_unique<Stream>();
  stream->id = next_stream_++;
  stream->device = device;
  stream->urgency = random_.next();
  Stream* handle = stream.get();
  streams_[handle] = std::move(stream);
  in_order_.push_back(handle);
  return handle;
}

void Machine::destroy_stream(Stream* stream) {
  stream->destroyed = true;
  if (!stream->queue.empty()) return;
  std::erase(in_order_, stream);
  streams_.erase(stream);
}

std::vector<Stream*> Machine::streams_of(int device) const {
  std::vector<Stream*> streams;
  for (Stream* stream : in_order_) {
    if (stream->device == device) streams.push_back(stream);
  }
  return streams;
}

Event* Machine::create_event(int device, bool timed) {
  auto event = std::make_unique<Event>();
  event->device = device;
  event->timed = timed;
  Event* handle = event.get();
  events_[handle] = std::move(event);
  return handle;
}

Moment Machine::next_moment(const Stream& stream, std::string what) const {
  return {stream.id, at(stream.clock, stream.id) + 1, std::move(what)};
}

void Machine::enqueue(Stream& stream, std::shared_ptr<Operation> operation) {
  if (stream.capture != nullptr) {
    stream.capture->operations.push_back(std::move(operation));
    return;
  }
  join(stream.clock, host_clock_);
  const Moment moment = next_moment(stream, operation->what);
  if (stream.clock.size() <= static_cast<std::size_t>(stream.id)) {
    stream.clock.resize(static_cast<std::size_t>(stream.id) + 1);
  }
  stream.clock[static_cast<std::size_t>(stream.id)] = moment.count;
  for (std::byte* data : operation->blocks) {
    Block* block = memory_->find(data);
    std::string wrong = block == nullptr ? moment.what + " was given memory that is gone"
                                         : memory_->use(*block, moment, stream.clock);
    if (!wrong.empty()) fault(wrong);
  }
  stream.queue.push_back(std::move(operation));
  progressed_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

bool Machine::touch(Operation& operation, const void* data, std::size_t bytes) {
  if (bytes == 0) return true;
  const Block* block = memory_->find(data);
  if (block == nullptr || block->device == kPinned) return false;
  operation.blocks.push_back(block->data);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - block->data);
  return offset + bytes <= block->bytes;
}

void Machine::record(Event& event, Stream& stream) {
  auto record = std::make_shared<Record>();
  event.record = record;
  auto operation = std::make_shared<Operation>();
  operation->what = "cudaEventRecord";
  operation->locked = true;
  operation->run = [this, record] {
    record->reached = true;
    record->reached_at = progress_;
  };
  enqueue(stream, std::move(operation));
  record->clock = stream.clock;
}

void Machine::wait(Stream& stream, const Event& event) {
  if (event.record == nullptr) return;
  auto operation = std::make_shared<Operation>();
  operation->what = "cudaStreamWaitEvent";
  operation->waits_for = "an event that another stream has yet to reach";
  operation->locked = true;
  operation->run = [] {};
  operation->ready = [record = event.record] { return record->reached; };
  join(stream.clock, event.record->clock);
  enqueue(stream, std::move(operation));
}

bool Machine::is_ready(const Stream& stream) const {
  if (stream.busy || stream.queue.empty()) return false;
  const Operation& first = *stream.queue.front();
  return !first.ready || first.ready();
}

// Mostly the most urgent stream, so that others fall far behind; at times any.
Stream* Machine::pick() {
  std::vector<Stream*> ready;
  for (Stream* stream : in_order_) {
    if (is_ready(*stream)) ready.push_back(stream);
  }
  if (ready.empty()) return nullptr;
  if (random_.below(4) == 0) return ready[random_.below(ready.size())];
  Stream* most = *std::max_element(ready.begin(), ready.end(),
                                   [](Stream* a, Stream* b) { return a->urgency < b->urgency; });
  if (random_.below(16) == 0) most->urgency = random_.next();
  return most;
}

bool Machine::run_one(Lock& lock) {
  Stream* stream = pick();
  if (stream == nullptr) return false;
  run_first(lock, *stream);
  return true;
}

void Machine::run_first(Lock& lock, Stream& stream) {
  const std::shared_ptr<Operation> operation = stream.queue.front();
  stream.busy = true;
  std::string wrong;
  const Arena::Access access = memory_->access();
  if (!operation->locked) lock.unlock();
  try {
    operation->run();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (!operation->locked) lock.lock();
  if (!wrong.empty()) fault(wrong);
  for (std::byte* data : operation->blocks) {
    const Block* block = memory_->find(data);
    if (block == nullptr) continue;
    wrong = memory_->check_guards(*block);
    if (!wrong.empty()) fault(operation->what + ": " + wrong);
  }
  stream.busy = false;
  stream.queue.pop_front();
  ++stream.finished;
  if (stream.queue.empty() && stream.destroyed) destroy_stream(&stream);
  ++progress_;
  ++counters_.operations;
  progressed_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

bool Machine::wait_until(Lock& lock, const std::function<bool()>& done, const std::string& what) {
  // Others may still queue what this waits for: patience begins again whenever something moves.
  const auto begun = std::chrono::steady_clock::now();
  while (sticky_ == cudaSuccess && !done()) {
    if (run_one(lock)) continue;
    const auto deadline = std::max(begun, progressed_) + options_.patience;
    if (std::chrono::steady_clock::now() >= deadline) {
      const bool runs = std::any_of(in_order_.begin(), in_order_.end(),
                                    [](const Stream* stream) { return stream->busy; });
      if (!runs) fault(what + " waits for ever: " + stuck(), cudaErrorLaunchTimeout);
    }
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return sticky_ == cudaSuccess;
}

bool Machine::synchronise(Lock& lock, const std::function<bool()>& done, const Clock& clock,
                          const std::string& what) {
  ++counters_.host_waits;
  if (!wait_until(lock, done, what)) return false;
  saw(clock);
  const std::string wrong = memory_->check_all_guards();
  if (!wrong.empty()) fault(wrong);
  for (auto& pool : pools_) {  // what a pool keeps beyond its threshold goes back
    pool->reserved = std::max(pool->used, std::min(pool->reserved, pool->threshold));
  }
  return sticky_ == cudaSuccess;
}

void Machine::advance(Lock& lock) {
  bool ran = false;
  for (std::uint64_t i = random_.below(4); i > 0 && sticky_ == cudaSuccess; --i) {
    ran = run_one(lock) || ran;
  }
  if (ran || sticky_ != cudaSuccess) return;
  if (std::chrono::steady_clock::now() < progressed_ + options_.patience) return;
  if (!run_one(lock)) fault("a query finds no end: " + stuck(), cudaErrorLaunchTimeout);
}

void Machine::drain(Lock& lock) {
  while (sticky_ == cudaSuccess && run_one(lock)) {
  }
  changed_.wait(lock, [this] {
    return std::none_of(in_order_.begin(), in_order_.end(),
                        [](const Stream* stream) { return stream->busy; });
  });
}

std::string Machine::stuck() const {
  std::string text;
  for (const Stream* stream : in_order_) {
    if (stream->queue.empty()) continue;
    const Operation& first = *stream->queue.front();
    text += (text.empty() ? "stream " : "; stream ") + std::to_string(stream->id) + " of device " +
            std::to_string(stream->device) + " stands at " + first.what;
    if (!first.waits_for.empty()) text += ", which needs " + first.waits_for;
    if (stream->queue.size() > 1) {
      text += ", with " + std::to_string(stream->queue.size() - 1) + " operations behind it";
    }
  }
  return text.empty() ? "no stream has work queued" : text;
}

void Machine::fault(const std::string& message, cudaError_t error) {
  if (sticky_ != cudaSuccess) return;  // what comes after the first is its consequence
  fault_ = "[emulated] " + message;
  sticky_ = error;
  changed_.notify_all();
}

void Machine::clear_fault() {
  fault_.clear();
  sticky_ = cudaSuccess;
}

std::vector<std::string> Machine::leftovers(Lock& lock) {
  drain(lock);
  std::vector<std::string> left;
  for (const Stream* stream : in_order_) {
    std::string text =
        "stream " + std::to_string(stream->id) + " of device " + std::to_string(stream->device);
    if (!stream->destroyed) left.push_back(text + " was not destroyed");
    if (!stream->queue.empty()) {
      left.push_back(text + " still holds " + std::to_string(stream->queue.size()) +
                     " operations, the first being " + stream->queue.front()->what);
    }
  }
  if (!events_.empty()) left.push_back(std::to_string(events_.size()) + " events");
  for (const Block* block : memory_->live()) left.push_back(memory_->describe(*block));
  for (const auto& [name, count] : objects_) {
    if (count != 0) left.push_back(std::to_string(count) + " × " + name);
  }
  const std::string wrong = memory_->check_all_guards();
  if (!wrong.empty()) left.push_back(wrong);
  return left;
}

}  // namespace penstock::cuda_emulation

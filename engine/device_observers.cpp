#include "engine/device_observers.h"

#include <string>

#include "schedule/text.h"
#include "tensor/cuda/profiler.h"

namespace penstock::engine {

void DeviceWait::before(std::int64_t, const schedule::Instruction&) {}

void DeviceWait::after(std::int64_t, const schedule::Instruction&) {
  if (const auto done = memory_->fence()) world_.wait_for_device(*done);
}

ProfilerSpans::~ProfilerSpans() {
  if (open_) tensor::cuda::end_span();
}

void ProfilerSpans::before(std::int64_t, const schedule::Instruction& instruction) {
  tensor::cuda::begin_span(schedule::to_text(instruction).c_str());
  open_ = true;
}

void ProfilerSpans::after(std::int64_t, const schedule::Instruction&) {
  tensor::cuda::end_span();
  open_ = false;
}

}  // namespace penstock::engine

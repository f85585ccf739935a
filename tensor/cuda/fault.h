// What kernels say of data that cannot be right, such as an id outside of its table. The host hears
// of it when it next waits for the device: asking after each kernel would be a wait each time.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::tensor::cuda {

struct Fault {
  // Makes the text of the error, on the host; null where nothing was found.
  std::string (*describe)(const Fault&) = nullptr;
  std::int64_t position = 0;   // of the first element that is wrong
  std::int64_t value = 0;      // what stands there
  std::int64_t facts[8] = {};  // whatever else `describe` needs, as who starts the kernel sets it
};

// For one thread of a kernel: writes to the queue's record unless an earlier kernel has. `describe`
// comes last: with it the record counts.
constexpr void record_fault(Fault& record, const Fault& fault, std::int64_t position,
                            std::int64_t value) {
  if (record.describe != nullptr) return;
  record.position = position;
  record.value = value;
  for (int i = 0; i < 8; ++i) record.facts[i] = fault.facts[i];
  record.describe = fault.describe;
}

}  // namespace penstock::tensor::cuda

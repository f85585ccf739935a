// Where a tensor's elements live, and where an operation runs.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::tensor {

// Meta tensors have a shape and a dtype and no elements: operations on them run their checks and
// shape rules and record on the tape, which is how memory is planned before a run.
enum class DeviceType : std::uint8_t { kCpu, kCuda, kMeta };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_meta() const { return type == DeviceType::kMeta; }
  std::string to_string() const {
    if (type == DeviceType::kCpu) return "cpu";
    if (type == DeviceType::kMeta) return "meta";
    return "cuda:" + std::to_string(index);
  }
};

inline constexpr Device kCpuDevice{DeviceType::kCpu, 0};
inline constexpr Device kMetaDevice{DeviceType::kMeta, 0};

}  // namespace penstock::tensor

// The records of TensorBoard's event files: their framing, and the few messages of event.proto and
// summary.proto that scalars need, in protobuf's wire format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/monitor.h"

namespace penstock::engine {

// CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes);

// Length, its masked CRC, the data, their masked CRC; all little-endian.
std::string event_record(std::string_view event);

// Event messages. wall_time: seconds since 1970.
std::string version_event(double wall_time);  // begins every file
// Tells readers that a run begins at this step: they drop what earlier files have from there on.
std::string start_event(double wall_time, std::int64_t step);
// Scalars are single precision there.
std::string scalars_event(double wall_time, std::int64_t step, std::span<const Metric> metrics);

}  // namespace penstock::engine

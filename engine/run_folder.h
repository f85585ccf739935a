// The folder of a run: its configuration, the series of losses, traces. Written by rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace penstock::engine {

// Throws tensor::Error, naming the file, when it cannot be written.
class RunFolder {
 public:
  // Makes the folder. losses.csv is begun anew when resume_step is 0; else its lines up to that
  // step are kept, so that a resumed run continues the series where its checkpoint was.
  RunFolder(const std::filesystem::path& folder, std::int64_t resume_step);

  // The file of losses in a run folder.
  static std::filesystem::path losses_in(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  // "step,samples,loss,lr,grad_norm,skipped"; flushed, so that the series can be watched.
  void append(const TrainResult& result, std::int64_t samples);
  // Writes a whole file of the folder, replacing an older one.
  void write(std::string_view name, std::string_view text) const;

 private:
  std::filesystem::path folder_;
  std::ofstream losses_;
};

}  // namespace penstock::engine

// The folder of a run: its configuration, the series of losses, traces. Written by rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "engine/engine.h"

namespace penstock::engine {

// Throws tensor::Error, naming the file, when it cannot be written.
class RunFolder {
 public:
  // Makes the folder, and keeps other runs out of it while this object lives; throws when one is
  // going on there. What a process held that is gone counts no more.
  explicit RunFolder(const std::filesystem::path& folder);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  // Whether other runs are kept out; not so on a file system without locks.
  bool alone() const { return alone_; }
  // Whether an earlier run has left its losses.
  bool used() const;
  // Gives those another name, which is returned.
  std::filesystem::path set_losses_aside() const;
  // Begins losses.csv anew when resume_step is 0; else keeps its lines up to that step, so that a
  // resumed run continues the series where its checkpoint was. To be called before append().
  void begin_losses(std::int64_t resume_step);
  // "step,samples,loss,lr,grad_norm,skipped"; flushed, so that the series can be watched.
  void append(const TrainResult& result, std::int64_t samples);
  // Writes a whole file of the folder, replacing an older one.
  void write(std::string_view name, std::string_view text) const;

 private:
  void lock();

  std::filesystem::path folder_;
  bool alone_ = false;
  int lock_ = -1;  // descriptor of the locked file; the system unlocks it when it is closed
  std::ofstream losses_;
};

}  // namespace penstock::engine

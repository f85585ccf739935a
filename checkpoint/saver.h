// A save, step by step in the order of docs/checkpoint-format.md. Steps that communicate and steps
// that work with files are apart, so that the latter may run on a thread of their own.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"

namespace penstock::checkpoint {

// The steps are called in the order in which they stand here. Collective ones throw FileError on
// every rank alike; in the others what goes wrong is kept for the next collective one.
class Saver {
 public:
  Saver(comm::World& world, SaveRequest request, FileSystem& file_system);

  // Collective: agrees on the request and the plan, and makes the temporary directory.
  void prepare();
  // This rank's files. Ends early, as a failure, once `stop` is true.
  void write(const std::atomic<bool>& stop);
  // Collective: all files are there; rank 0 gets to know them.
  void exchange();
  // On rank 0: makes what all ranks wrote a checkpoint.
  void publish();
  // Collective: the checkpoint is committed.
  SaveResult finish();

  // After an agreement failed: no rank is writing any more.
  void clean_up() noexcept;
  // Something outside of these steps went wrong, on this rank.
  void fail(std::string why) { failure_ = std::move(why); }
  bool leads() const { return leads_; }
  const std::string& tag() const { return request_.tag; }

 private:
  void validate() const;
  void write_file(const FilePlan& file);
  // Syncs and closes the files written first, until this many are left.
  void sync_files(std::size_t most);
  void write_engine_json();

  comm::World& world_;
  const bool leads_;  // the world itself is not the writing thread's to ask
  SaveRequest request_;
  FileSystem& file_system_;
  Places places_;
  Manifest mine_;
  std::vector<std::string> parts_;  // on rank 0: what each rank wrote, as manifests
  // Written, but not waited for: so the disk is never idle, and most waits are for all of them.
  std::deque<std::unique_ptr<FileWriter>> unsynced_;
  std::optional<std::string> failure_;
  std::vector<std::string> warnings_;
  bool temporary_made_ = false;
};

}  // namespace penstock::checkpoint

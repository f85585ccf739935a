#include "checkpoint/pending_save.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/saver.h"
#include "comm/world.h"

namespace penstock::checkpoint {

class PendingSave::Worker {
 public:
  Worker(comm::World& world, SaveRequest request, FileSystem& file_system)
      : world_(world), saver_(world, std::move(request), file_system) {
    collective([&] { saver_.prepare(); });
    start([this] { saver_.write(stop_); });
  }

  ~Worker() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& tag() const { return saver_.tag(); }
  bool ready() const noexcept { return ready_; }

  std::optional<SaveResult> advance() {
    join();
    if (publishing_) {
      std::optional<SaveResult> result;
      collective([&] { result = saver_.finish(); });
      return result;
    }
    collective([&] { saver_.exchange(); });
    publishing_ = true;
    if (saver_.leads()) start([this] { saver_.publish(); });
    return std::nullopt;
  }

  SaveResult finish() {
    for (;;) {
      while (!ready()) {
        world_.poll();  // another rank may have failed
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      if (std::optional<SaveResult> result = advance()) return std::move(*result);
    }
  }

 private:
  template <class Fn>
  void collective(Fn&& fn) {
    try {
      fn();
    } catch (const FileError&) {
      saver_.clean_up();
      throw;
    }
  }

  // Runs the work on the thread; a thread that cannot be had is a failure of the work.
  template <class Work>
  void start(Work work) {
    ready_ = false;
    try {
      thread_ = std::thread([this, work] {
        try {
          work();
        } catch (...) {  // no failure of a file: those are kept by the saver
          error_ = std::current_exception();
        }
        ready_ = true;
      });
    } catch (const std::system_error& error) {
      saver_.fail(std::string("the thread that writes cannot be started: ") + error.what());
      ready_ = true;
    }
  }

  void join() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  comm::World& world_;
  Saver saver_;  // the thread's while it runs
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> ready_ = true;
  std::exception_ptr error_;  // of the thread
  bool publishing_ = false;
};

PendingSave::PendingSave(comm::World& world, SaveRequest request, FileSystem& file_system)
    : worker_(std::make_unique<Worker>(world, std::move(request), file_system)) {}
PendingSave::~PendingSave() = default;

const std::string& PendingSave::tag() const {
  return worker_->tag();
}
bool PendingSave::ready() const noexcept {
  return worker_->ready();
}
std::optional<SaveResult> PendingSave::advance() {
  return worker_->advance();
}
SaveResult PendingSave::finish() {
  return worker_->finish();
}

}  // namespace penstock::checkpoint

#include "engine/run_folder.h"

#include <cerrno>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tensor/error.h"

namespace penstock::engine {

namespace {

constexpr std::string_view kLockFile = "run.lock";
constexpr std::string_view kLossFile = "losses.csv";
constexpr std::string_view kEndedLossFile = "losses.ended.csv";
constexpr std::string_view kLossHeader = "step,samples,loss,lr,grad_norm,skipped";

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view what) {
  throw tensor::Error("[run folder] " + file.string() + " cannot be " + std::string(what) +
                      "; check that the folder is writable and that there is room");
}

// Lines of an earlier part of the run, up to and with the given step.
std::vector<std::string> lines_until(const std::filesystem::path& file, std::int64_t last_step) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::int64_t step = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), step);
    if (parsed.ec == std::errc() && step <= last_step) lines.push_back(line);
  }
  return lines;
}

// "process 1234 on host"
std::string this_process() {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return "process " + std::to_string(getpid()) + " on " + host;
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw tensor::Error("[run folder] " + folder_.string() +
                        " cannot be made a folder: " + error.message() + "; choose another");
  }
  lock();
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

// The file stays when the run ends: removing it would let two runs hold locks on two files of the
// same name.
void RunFolder::lock() {
  const std::filesystem::path file = folder_ / kLockFile;
  lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail(file, "opened (" + std::generic_category().message(errno) + ")");
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    alone_ = true;
    const std::string holder = this_process() + "\n";
    // What cannot be told is only missing from another run's error.
    std::ofstream(file, std::ios::trunc) << holder;
    return;
  }
  if (errno != EWOULDBLOCK) return;  // a file system without locks
  std::string holder;
  std::ifstream in(file);
  std::getline(in, holder);
  close(std::exchange(lock_, -1));
  throw tensor::Error("[run folder] " + folder_.string() + " is in use by " +
                      (holder.empty() ? "another run" : holder) +
                      "; wait until it has ended, or choose another folder");
}

bool RunFolder::used() const {
  return std::filesystem::exists(folder_ / kLossFile);
}

std::filesystem::path RunFolder::set_losses_aside() const {
  const std::filesystem::path file = folder_ / kLossFile, aside = folder_ / kEndedLossFile;
  std::error_code error;
  std::filesystem::rename(file, aside, error);
  if (error) fail(file, "renamed");
  return aside;
}

void RunFolder::begin_losses(std::int64_t resume_step) {
  const std::filesystem::path file = folder_ / kLossFile;
  std::vector<std::string> kept;
  if (resume_step > 0) kept = lines_until(file, resume_step);
  // The lines so far stay until all of them are in the new file: there may be no room for it.
  const std::filesystem::path next = folder_ / (std::string(kLossFile) + ".tmp");
  losses_.open(next, std::ios::trunc);
  if (!losses_) fail(file, "opened");
  losses_.precision(std::numeric_limits<double>::max_digits10);
  losses_ << kLossHeader << '\n';
  for (const std::string& line : kept) losses_ << line << '\n';
  losses_.flush();
  std::error_code error;
  if (losses_) std::filesystem::rename(next, file, error);
  if (losses_ && !error) return;
  std::filesystem::remove(next, error);
  fail(file, "written");
}

void RunFolder::append(const TrainResult& result, std::int64_t samples) {
  losses_ << result.step << ',' << samples << ',' << result.loss << ',' << result.lr.back() << ','
          << result.grad_norm << ',' << (result.skipped ? 1 : 0) << '\n';
  losses_.flush();
  if (!losses_) fail(folder_ / kLossFile, "written");
}

void RunFolder::write(std::string_view name, std::string_view text) const {
  const std::filesystem::path file = folder_ / name;
  std::ofstream out(file, std::ios::trunc | std::ios::binary);
  out << text;
  out.flush();
  if (!out) fail(file, "written");
}

}  // namespace penstock::engine

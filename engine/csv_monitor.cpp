#include "engine/csv_monitor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "tensor/error.h"

namespace penstock::engine {

namespace {

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

std::string file_name(std::string tag) {
  std::ranges::replace_if(
      tag, [](char c) { return c == '/' || c == ' '; }, '_');
  return tag + ".csv";
}

std::optional<std::int64_t> samples_of(std::string_view line) {
  std::int64_t samples = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), samples);
  if (error != std::errc() || end == line.data() + line.size() || *end != ',') return {};
  return samples;
}

// The header and the points up to `last`, all in whole lines.
std::string kept_text(std::string_view text, std::string_view header, std::int64_t last) {
  std::string kept(header);
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos;) {
    const auto samples = samples_of(text.substr(0, end));
    if (samples && *samples <= last) kept += text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  return kept;
}

// All or nothing: the new text is complete before it takes the file's name.
void cut(const std::filesystem::path& path, std::string_view header, std::int64_t last) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;  // what it is, open() will tell
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string kept = kept_text(text, header, last);
  if (text.empty() || kept == text) return;
  const std::string next = path.string() + ".tmp";
  std::ofstream out(next, std::ios::binary | std::ios::trunc);
  out << kept;
  out.close();
  constexpr auto kOverwrite = std::filesystem::copy_options::overwrite_existing;
  if (out) std::filesystem::copy_file(path, path.string() + ".old", kOverwrite, error);
  if (out && !error) std::filesystem::rename(next, path, error);
  if (out && !error) return;
  std::filesystem::remove(next, error);
  throw tensor::Error("[monitor] " + path.string() +
                      " cannot be cut to the samples that the run begins at; check that its folder "
                      "is writable and that there is room");
}

}  // namespace

void CsvMonitor::begin_at(std::int64_t samples) {
  begin_ = samples;
  files_.clear();
}

AppendFile& CsvMonitor::file_of(const std::string& tag) {
  if (const auto found = files_.find(tag); found != files_.end()) return found->second;
  const std::filesystem::path path = folder_ / file_name(tag);
  const std::string header = "step," + tag.substr(tag.rfind('/') + 1) + "\n";
  cut(path, header, begin_);
  return files_.emplace(tag, AppendFile(path, header)).first->second;
}

void CsvMonitor::write(std::span<const Metric> metrics, std::int64_t samples) {
  std::exception_ptr first_error;
  for (const Metric& metric : metrics) {
    try {
      file_of(metric.tag).append(std::to_string(samples) + "," + number_text(metric.value) + "\n");
    } catch (const std::exception&) {
      if (!first_error) first_error = std::current_exception();  // the other files may do
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace penstock::engine
